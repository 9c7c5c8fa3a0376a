//! Encrypted cookies for sessions and pending logins. Only a gateway with the same client secret can read or make
//! them.

use super::super::prelude::*;
use aws_lc_rs::aead::{AES_256_GCM_SIV, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::hmac;
use aws_lc_rs::rand::{SecureRandom as _, SystemRandom};
use serde::de::DeserializeOwned;
use weir_filter::cookies;
use weir_wire::base64;

/// Longest value of one cookie, in bytes: with its name and attributes under the 4,096 that browsers keep (RFC 6265
/// §6.1).
const PART_BYTES: usize = 3800;

/// Most parts of a session: with more, requests would be longer than servers take.
pub(super) const PARTS: usize = 4;

/// Seals and opens values.
pub(super) struct Seal(LessSafeKey);

impl Seal {
    /// Derives the key from the secret and the purpose of the sessions.
    pub(super) fn new(secret: &str, purpose: &str) -> Self {
        let secret = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
        let key = hmac::sign(&secret, format!("weir oidc 1 {purpose}").as_bytes());
        let key = UnboundKey::new(&AES_256_GCM_SIV, key.as_ref()).expect("a hash is as long as the key");
        Self(LessSafeKey::new(key))
    }

    /// Seals a value, bound to its kind.
    pub(super) fn seal<T: Serialize>(&self, kind: &str, value: &T) -> Option<String> {
        let mut bytes = serde_json::to_vec(value).ok()?;
        let mut nonce = [0; NONCE_LEN];
        SystemRandom::new().fill(&mut nonce).ok()?;
        let unique = Nonce::assume_unique_for_key(nonce);
        self.0.seal_in_place_append_tag(unique, Aad::from(kind), &mut bytes).ok()?;
        Some(base64::encode_url(&[&nonce[..], &bytes].concat()))
    }

    /// Opens a value that was sealed as this kind; `None` for anything else.
    pub(super) fn open<T: DeserializeOwned>(&self, kind: &str, text: &[u8]) -> Option<T> {
        let bytes = base64::decode_url(text)?;
        let (nonce, sealed) = bytes.split_first_chunk::<NONCE_LEN>()?;
        let mut sealed = sealed.to_vec();
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let opened = self.0.open_in_place(nonce, Aad::from(kind), &mut sealed).ok()?;
        serde_json::from_slice(opened).ok()
    }
}

/// A cookie for this host only, over TLS only, invisible to scripts.
pub(super) fn set(name: &str, value: &str, seconds: u64) -> Vec<u8> {
    format!("{name}={value}; Path=/; Max-Age={seconds}; Secure; HttpOnly; SameSite=Lax").into_bytes()
}

/// The cookies of a split value. Also expires the parts that only a longer previous value needed.
pub(super) fn set_parts(name: &str, value: &str, seconds: u64, head: &RequestHead) -> Option<Vec<Vec<u8>>> {
    let parts: Vec<&[u8]> = value.as_bytes().chunks(PART_BYTES).collect();
    if parts.len() > PARTS {
        return None;
    }
    let mut all = Vec::new();
    for (at, part) in parts.iter().enumerate() {
        all.push(set(&format!("{name}-{at}"), std::str::from_utf8(part).ok()?, seconds));
    }
    all.extend(end_parts(name, parts.len(), head));
    Some(all)
}

/// Expires the parts in a request from number `from` on.
pub(super) fn end_parts(name: &str, from: usize, head: &RequestHead) -> Vec<Vec<u8>> {
    let names = (from..PARTS).map(|at| format!("{name}-{at}"));
    names.filter(|name| cookies::values(head, name).next().is_some()).map(|name| set(&name, "", 0)).collect()
}

/// Joins a value that came in parts.
pub(super) fn parts(head: &RequestHead, name: &str) -> Option<Vec<u8>> {
    let mut value = Vec::new();
    for at in 0..PARTS {
        let part = format!("{name}-{at}");
        let Some(part) = cookies::values(head, &part).next() else { break };
        value.extend_from_slice(part);
    }
    (!value.is_empty()).then_some(value)
}

/// A random text made from `N` bytes.
pub(super) fn random<const N: usize>() -> Option<String> {
    let mut bytes = [0; N];
    SystemRandom::new().fill(&mut bytes).ok()?;
    Some(base64::encode_url(&bytes))
}

#[cfg(test)]
mod tests {
    use super::super::super::testing::request_head;
    use super::*;

    #[test]
    fn only_its_maker_opens_it() {
        let seal = Seal::new("secret", "a");
        let sealed = seal.seal("session", &"value").unwrap();
        assert_eq!(seal.open("session", sealed.as_bytes()), Some("value".to_owned()));
        assert_eq!(Seal::new("secret", "a").open("session", sealed.as_bytes()), Some("value".to_owned()));
        assert_ne!(seal.seal("session", &"value").unwrap(), sealed);
        for (other, kind) in
            [(Seal::new("secret", "b"), "session"), (Seal::new("secret2", "a"), "session"), (seal, "login")]
        {
            assert_eq!(other.open::<String>(kind, sealed.as_bytes()), None);
        }
        let seal = Seal::new("secret", "a");
        for at in 0..sealed.len() {
            let mut changed = sealed.clone().into_bytes();
            changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
            assert_eq!(seal.open::<String>("session", &changed), None, "{at}");
        }
        assert_eq!(seal.open::<String>("session", b""), None);
    }

    #[test]
    fn long_ones_are_split() {
        let none = request_head("GET /");
        let value = "a".repeat(2 * PART_BYTES + 1);
        let all = set_parts("s", &value, 60, &none).unwrap();
        assert_eq!(all.len(), 3);
        assert!(all.iter().all(|cookie| cookie.len() < 4096));
        let sent: Vec<String> =
            all.iter().map(|c| String::from_utf8_lossy(c).split(';').next().unwrap().to_owned()).collect();
        let head = request_head(&format!("GET /\nCookie: {}", sent.join("; ")));
        assert_eq!(parts(&head, "s").as_deref(), Some(value.as_bytes()));
        // A shorter value expires the parts that it does not need.
        let shorter = set_parts("s", "b", 60, &head).unwrap();
        assert_eq!(shorter.len(), 3);
        assert!(
            shorter[1].starts_with(b"s-1=; ") && String::from_utf8_lossy(&shorter[1]).contains("Max-Age=0")
        );
        assert!(set_parts("s", &"a".repeat(PARTS * PART_BYTES + 1), 60, &none).is_none());
        assert_eq!(parts(&none, "s"), None);
    }
}
