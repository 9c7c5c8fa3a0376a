//! Bytes in JSON: writes standard base64, and reads every variant (RFC 4648 §4 and §5, padded or not).

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// The digit value of each byte, in either alphabet; 64 for a byte that is not a digit.
const VALUES: [u8; 256] = {
    let mut values = [64; 256];
    let mut at = 0;
    while at < 64 {
        values[DIGITS[at] as usize] = at as u8;
        at += 1;
    }
    values[b'-' as usize] = 62;
    values[b'_' as usize] = 63;
    values
};

/// Appends the bytes with padding.
pub fn encode(bytes: &[u8], out: &mut Vec<u8>) {
    out.reserve(bytes.len().div_ceil(3) * 4);
    let digit =
        |group: u32, at: u32| DIGITS.get((group >> (18 - 6 * at) & 63) as usize).copied().unwrap_or(b'=');
    for chunk in bytes.chunks(3) {
        let mut group = 0;
        for at in 0..3 {
            group = group << 8 | u32::from(chunk.get(at).copied().unwrap_or(0));
        }
        for at in 0..4 {
            out.push(if at as usize <= chunk.len() { digit(group, at) } else { b'=' });
        }
    }
}

/// Appends the decoded bytes; `None` if the text is not base64.
#[must_use]
pub fn decode(text: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let padding = text.iter().rev().take_while(|&&b| b == b'=').count();
    let digits = text.get(..text.len() - padding)?;
    if padding > 2 || digits.len() % 4 == 1 || (padding > 0 && !text.len().is_multiple_of(4)) {
        return None;
    }
    out.reserve(digits.len() / 4 * 3 + 2);
    for chunk in digits.chunks(4) {
        let mut group = 0u32;
        for &digit in chunk {
            let value = VALUES.get(usize::from(digit)).copied().filter(|v| *v < 64)?;
            group = group << 6 | u32::from(value);
        }
        group <<= 6 * (4 - chunk.len());
        let [_, bytes @ ..] = group.to_be_bytes();
        out.extend_from_slice(bytes.get(..chunk.len() * 3 / 4)?);
    }
    Some(())
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
