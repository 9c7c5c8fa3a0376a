//! Base64 (RFC 4648 §4), and its form for URLs without padding (§5): what handshakes, credentials and tokens are written in.
//!
//! Decoding is strict: one text for one sequence of bytes. No space, no missing or needless padding, no bits set behind the
//! last byte.

use ::base64::Engine;
use ::base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};

/// `bytes` as text, padded.
pub fn encode(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// `bytes` as text for URLs, not padded.
pub fn encode_url(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// The bytes of a padded text; `None` where it is none.
pub fn decode(text: &[u8]) -> Option<Vec<u8>> {
    STANDARD.decode(text).ok()
}

/// The bytes of a text for URLs; `None` where it is none.
pub fn decode_url(text: &[u8]) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(text).ok()
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
