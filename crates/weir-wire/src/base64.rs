//! Base64 (RFC 4648 §4), and its unpadded form for URLs (§5), for handshakes, credentials and tokens.
//!
//! Decoding is strict: each byte sequence has exactly one valid text. No spaces, no missing or extra padding, no bits
//! set after the last byte.

use ::base64::Engine;
use ::base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};

/// Encodes `bytes`, padded.
pub fn encode(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// Encodes `bytes` for URLs, unpadded.
pub fn encode_url(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// Decodes a padded text; `None` if it is invalid.
pub fn decode(text: &[u8]) -> Option<Vec<u8>> {
    STANDARD.decode(text).ok()
}

/// Decodes a text for URLs; `None` if it is invalid.
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
