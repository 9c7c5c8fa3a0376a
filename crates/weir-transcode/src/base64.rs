//! Bytes in JSON: writes standard base64, and reads every variant (RFC 4648 §4 and §5, padded or not).

use ::base64::Engine;
use ::base64::alphabet::STANDARD as ALPHABET;
use ::base64::engine::general_purpose::STANDARD;
use ::base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use std::borrow::Cow;

/// Reads digits without padding, and ignores the bits after the last byte.
const DIGITS: GeneralPurpose = GeneralPurpose::new(
    &ALPHABET,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::RequireNone)
        .with_decode_allow_trailing_bits(true),
);

/// Appends the bytes with padding.
pub fn encode(bytes: &[u8], out: &mut Vec<u8>) {
    let from = out.len();
    out.resize(from + bytes.len().div_ceil(3) * 4, 0);
    let written = out.get_mut(from..).and_then(|room| STANDARD.encode_slice(bytes, room).ok());
    out.truncate(from + written.unwrap_or_default()); // always fits
}

/// Appends the decoded bytes; `None` if the text is not base64.
#[must_use]
pub fn decode(text: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let padding = text.iter().rev().take_while(|&&b| b == b'=').count();
    let digits = text.get(..text.len() - padding)?;
    if padding > 2 || (padding > 0 && !text.len().is_multiple_of(4)) {
        return None;
    }
    let standard = |digit: &u8| match digit {
        b'-' => b'+',
        b'_' => b'/',
        digit => *digit,
    };
    let for_urls = digits.iter().any(|digit| b"-_".contains(digit));
    let digits: Cow<'_, [u8]> = if for_urls { digits.iter().map(standard).collect() } else { digits.into() };
    DIGITS.decode_vec(digits, out).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_and_back() {
        for length in 0..70u8 {
            let bytes: Vec<u8> = (0..length).map(|n| n.wrapping_mul(199)).collect();
            let (mut text, mut back) = (Vec::new(), Vec::new());
            encode(&bytes, &mut text);
            assert_eq!(text.len() % 4, 0);
            decode(&text, &mut back).unwrap();
            assert_eq!(back, bytes);
        }
    }

    #[test]
    fn every_form_is_read_and_nothing_else() {
        let read = |text: &str| {
            let mut out = Vec::new();
            decode(text.as_bytes(), &mut out).map(|()| out)
        };
        for (text, bytes) in [
            ("", &b""[..]),
            ("Zg==", b"f"),
            ("Zg", b"f"),
            ("Zm8=", b"fo"),
            ("Zm8", b"fo"),
            ("Zm9v", b"foo"),
            ("-_8", b"\xfb\xff"),
            ("+/8=", b"\xfb\xff"),
        ] {
            assert_eq!(read(text).as_deref(), Some(bytes), "{text}");
        }
        for bad in ["Z", "Zg=", "Zg===", "Z=g=", "Zm 9v", "====", "=", "Zm9v=", "Zm\u{e9}v"] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }
}
