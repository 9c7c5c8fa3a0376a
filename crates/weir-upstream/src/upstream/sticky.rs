//! `sticky`: a cookie that brings a client back to the endpoint that answered first.
//!
//! The cookie names the endpoint by a code (HMAC-SHA-256, RFC 2104, over the names of upstream and endpoint). It
//! reveals no address, cannot be forged without the key, and is valid at every gateway with the key and across
//! reloads and restarts. Nothing is stored: a core knows the codes of its endpoints and ignores any other.

use sha2::{Digest, Sha256};
use std::fmt;
use std::time::Duration;

/// The policy of an upstream.
pub struct Sticky {
    /// The name of the cookie.
    pub cookie: Box<str>,
    /// How long a client keeps it; without it, until its session ends.
    pub ttl: Option<Duration>,
    key: [u8; BLOCK],
}

/// An endpoint's code: hexadecimal digits.
pub(crate) type Code = [u8; 32];

/// SHA-256's block size in bytes.
const BLOCK: usize = 64;

/// Separates these codes from other uses of the same key.
const PURPOSE: &[u8] = b"weir sticky 1\0";

impl Sticky {
    /// A cookie with this name and age. The secret signs its codes.
    pub fn new(cookie: &str, ttl: Option<Duration>, secret: &[u8]) -> Self {
        let digest = Sha256::digest(secret);
        let secret = if secret.len() > BLOCK { &digest[..] } else { secret };
        let mut key = [0; BLOCK];
        key.iter_mut().zip(secret).for_each(|(to, from)| *to = *from);
        Self { cookie: cookie.into(), ttl, key }
    }

    /// The code of an endpoint, by its label.
    pub(super) fn code(&self, upstream: &str, label: &str) -> Code {
        let mac = self.mac(&[PURPOSE, upstream.as_bytes(), b"\0", label.as_bytes()]);
        let mut code = [0; 32];
        for (digits, byte) in code.chunks_exact_mut(2).zip(mac) {
            for (digit, half) in digits.iter_mut().zip([byte >> 4, byte & 15]) {
                *digit = b"0123456789abcdef"[usize::from(half)];
            }
        }
        code
    }

    /// The value of Set-Cookie. Scripts cannot read it, and other sites send it only when linking here. For a client
    /// on TLS, it is sent only over TLS (RFC 6265 §5.2; SameSite: draft-ietf-httpbis-rfc6265bis §5.5).
    pub(super) fn set_cookie(&self, code: &Code, is_tls: bool) -> Vec<u8> {
        let mut value = [self.cookie.as_bytes(), b"=", code, b"; Path=/; HttpOnly; SameSite=Lax"].concat();
        if let Some(ttl) = self.ttl {
            value.extend_from_slice(format!("; Max-Age={}", ttl.as_secs().max(1)).as_bytes());
        }
        // A client rejects a cookie with such a name unless it is Secure.
        let prefix = ["__Host-", "__Secure-"].iter().any(|prefix| self.cookie.starts_with(prefix));
        if is_tls || prefix {
            value.extend_from_slice(b"; Secure");
        }
        value
    }

    fn mac(&self, parts: &[&[u8]]) -> [u8; 32] {
        let padded = |pad: u8| self.key.map(|byte| byte ^ pad);
        let inner =
            parts.iter().fold(Sha256::new_with_prefix(padded(0x36)), |hash, part| hash.chain_update(part));
        Sha256::new_with_prefix(padded(0x5c)).chain_update(inner.finalize()).finalize().into()
    }
}

impl fmt::Debug for Sticky {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cookie, ttl, key: _ } = self; // the key is secret
        f.debug_struct("Sticky").field("cookie", cookie).field("ttl", ttl).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_wire::hex;

    #[test]
    fn is_hmac_sha_256() {
        // RFC 4231 §4.3 and §4.7: a short key, and one longer than a block.
        let short = Sticky::new("c", None, b"Jefe").mac(&[b"what do ya want ", b"for nothing?"]);
        assert_eq!(hex::encode(&short), "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
        let long = Sticky::new("c", None, &[0xaa; 131]);
        let long = long.mac(&[b"Test Using Larger Than Block-Size Key - Hash Key First"]);
        assert_eq!(hex::encode(&long), "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
    }

    #[test]
    fn codes_differ_by_key_upstream_and_endpoint_and_by_nothing_else() {
        let code = |key: &str, upstream, label| {
            let sticky = Sticky::new("c", None, key.as_bytes());
            String::from_utf8(sticky.code(upstream, label).to_vec()).unwrap()
        };
        let one = code("k", "u", "10.0.0.1:80");
        assert_eq!(one, code("k", "u", "10.0.0.1:80"));
        assert!(one.len() == 32 && one.bytes().all(|b| b.is_ascii_hexdigit()), "{one}");
        for other in
            [code("k", "u", "10.0.0.2:80"), code("k", "v", "10.0.0.1:80"), code("l", "u", "10.0.0.1:80")]
        {
            assert_ne!(one, other);
        }
    }

    #[test]
    fn attributes_are_safe() {
        let value = |cookie, ttl, tls| {
            let sticky = Sticky::new(cookie, ttl, b"k");
            String::from_utf8(sticky.set_cookie(b"0123456789abcdef0123456789abcdef", tls)).unwrap()
        };
        let begin = "=0123456789abcdef0123456789abcdef; Path=/; HttpOnly; SameSite=Lax";
        assert_eq!(value("w", None, false), format!("w{begin}"));
        assert_eq!(
            value("w", Some(Duration::from_secs(3600)), true),
            format!("w{begin}; Max-Age=3600; Secure")
        );
        assert_eq!(value("__Host-w", None, false), format!("__Host-w{begin}; Secure"));
        assert!(!format!("{:?}", Sticky::new("w", None, b"secret")).contains("115"));
    }
}
