//! Base64 (RFC 4648 §4), and its form for URLs without padding (§5): what handshakes, credentials and tokens are written in.
//!
//! Decoding is strict: one text for one sequence of bytes. No space, no missing or needless padding, no bits set behind the
//! last byte.

const STANDARD: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const URL: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// What each byte stands for in either alphabet; 64 where it is none of their digits.
static STANDARD_VALUES: [u8; 256] = values(STANDARD);
static URL_VALUES: [u8; 256] = values(URL);

/// `bytes` as text, padded.
pub fn encode(bytes: &[u8]) -> String {
    let mut text = digits(bytes, STANDARD);
    while !text.len().is_multiple_of(4) {
        text.push('=');
    }
    text
}

/// `bytes` as text for URLs, not padded.
pub fn encode_url(bytes: &[u8]) -> String {
    digits(bytes, URL)
}

/// The bytes of a padded text; `None` where it is none.
pub fn decode(text: &[u8]) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(4) {
        return None;
    }
    let unpadded = text.strip_suffix(b"==").or_else(|| text.strip_suffix(b"=")).unwrap_or(text);
    read(unpadded, &STANDARD_VALUES)
}

/// The bytes of a text for URLs; `None` where it is none.
pub fn decode_url(text: &[u8]) -> Option<Vec<u8>> {
    read(text, &URL_VALUES)
}

fn digits(bytes: &[u8], alphabet: &[u8; 64]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let bits = group.iter().chain([0, 0].iter()).take(3).fold(0, |bits, &b| bits << 8 | u32::from(b));
        for digit in 0..=group.len() {
            text.push(alphabet[(bits >> (18 - 6 * digit)) as usize & 63] as char);
        }
    }
    text
}

fn read(text: &[u8], values: &[u8; 256]) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3 + 2);
    for group in text.chunks(4) {
        let mut bits = 0;
        for &digit in group {
            let value = values[usize::from(digit)];
            if value > 63 {
                return None;
            }
            bits = bits << 6 | u32::from(value);
        }
        let [_, a, b, c] = (bits << (6 * (4 - group.len()))).to_be_bytes();
        let whole = match group.len() {
            4 => 3,
            3 if c == 0 => 2,
            2 if b == 0 && c == 0 => 1,
            _ => return None, // a single digit, or bits behind the last byte
        };
        bytes.extend([a, b, c].into_iter().take(whole));
    }
    Some(bytes)
}

const fn values(alphabet: &[u8; 64]) -> [u8; 256] {
    let mut values = [64; 256];
    let mut at = 0;
    while at < 64 {
        values[alphabet[at] as usize] = at as u8;
        at += 1;
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_remainder_both_ways() {
        for (bytes, text) in [(&b""[..], ""), (b"f", "Zg=="), (b"fo", "Zm8="), (b"foo", "Zm9v")] {
            assert_eq!(encode(bytes), text);
            assert_eq!(decode(text.as_bytes()).as_deref(), Some(bytes));
            let url = text.trim_end_matches('=');
            assert_eq!(encode_url(bytes), url);
            assert_eq!(decode_url(url.as_bytes()).as_deref(), Some(bytes));
        }
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(decode(encode(&all).as_bytes()).as_deref(), Some(&all[..]));
        assert_eq!(decode_url(encode_url(&all).as_bytes()).as_deref(), Some(&all[..]));
    }

    #[test]
    fn one_text_for_each_value() {
        for text in
            ["Zg", "Zg=", "Zg===", "Zh==", "Zm9=", "Zm 9", "Zm9v\n", "Z", "====", "=", "Zg==Zg==", "-_-_"]
        {
            assert_eq!(decode(text.as_bytes()), None, "{text}");
        }
        for text in ["Zg==", "Zh", "Zm9", "Z", "Zm9vZ", "+/+/", "Zm9v ", "\u{e4}aaa"] {
            assert_eq!(decode_url(text.as_bytes()), None, "{text}");
        }
    }
}
