//! The WebSocket handshake (RFC 6455 §4.2.2), for when one side speaks HTTP/1.1, which requires the key and its
//! answer, and the other HTTP/2, which does not (RFC 8441 §5).

use crate::base64;
use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};

/// The `Sec-WebSocket-Accept` for a `Sec-WebSocket-Key`.
pub fn accept(key: &[u8]) -> String {
    const MAGIC: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
    base64::encode(digest(&SHA1_FOR_LEGACY_USE_ONLY, &[key, MAGIC].concat()).as_ref())
}

/// A fresh key: 16 random bytes in base64. It prevents cached answers; it protects no secret.
pub fn key() -> String {
    let mut bytes = [0; 16];
    // Without randomness the key repeats. On a connection of our own that does no harm.
    let _ = aws_lc_rs::rand::fill(&mut bytes);
    base64::encode(&bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_the_rfc() {
        assert_eq!(accept(b"dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }

    #[test]
    fn a_key_has_16_bytes() {
        assert_eq!(key().len(), 24);
    }
}
