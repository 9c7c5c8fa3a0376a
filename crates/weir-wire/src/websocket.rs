//! The handshake of a WebSocket (RFC 6455 §4.2.2), for where one side speaks HTTP/1.1 and proves it, and the other HTTP/2
//! and does not (RFC 8441 §5).

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};

/// The answer to a `Sec-WebSocket-Key`.
pub fn accept(key: &[u8]) -> String {
    const MAGIC: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
    base64(digest(&SHA1_FOR_LEGACY_USE_ONLY, &[key, MAGIC].concat()).as_ref())
}

/// A fresh key: 16 random bytes in base64. It keeps caches from answering, not secrets.
pub fn key() -> String {
    let mut bytes = [0; 16];
    // Without randomness the key is one that was used before: of a connection of our own nobody minds.
    let _ = aws_lc_rs::rand::fill(&mut bytes);
    base64(&bytes)
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let bits = group.iter().chain([0, 0].iter()).take(3).fold(0, |bits, &b| bits << 8 | u32::from(b));
        for digit in 0..4 {
            let shown = digit <= group.len();
            text.push(if shown { DIGITS[(bits >> (18 - 6 * digit)) as usize & 63] as char } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_the_rfc() {
        assert_eq!(accept(b"dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }

    #[test]
    fn base64_of_each_remainder() {
        for (bytes, text) in [(&b""[..], ""), (b"f", "Zg=="), (b"fo", "Zm8="), (b"foo", "Zm9v")] {
            assert_eq!(base64(bytes), text);
        }
        assert_eq!(key().len(), 24);
    }
}
