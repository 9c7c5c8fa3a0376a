//! Bytes as hexadecimal digits (RFC 4648 §8), as people and configs write hashes and fingerprints.

use std::fmt::Write;

/// `bytes` as lower-case digits.
pub fn encode(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut out, byte| {
        let _ = write!(out, "{byte:02x}"); // writing to a String cannot fail
        out
    })
}

/// Decodes digits in either case; `None` if the text is not hexadecimal.
pub fn decode(text: &str) -> Option<Vec<u8>> {
    let digit = |b: u8| char::from(b).to_digit(16).and_then(|d| u8::try_from(d).ok());
    let pairs = text.as_bytes().chunks(2).map(|pair| match pair {
        [high, low] => Some(digit(*high)? << 4 | digit(*low)?),
        _ => None,
    });
    pairs.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_and_back() {
        assert_eq!(encode(b"\x00\x0f\xff"), "000fff");
        assert_eq!(decode("000FfF").as_deref(), Some(&b"\x00\x0f\xff"[..]));
        assert_eq!(decode(""), Some(Vec::new()));
        for bad in ["0", "0g", " 0", "+1", "0x", "\u{e4}"] {
            assert_eq!(decode(bad), None, "{bad:?}");
        }
    }
}
