//! Verified tokens, per core, so that the next request with the same token costs one lookup.

use std::collections::HashMap;
use std::rc::Rc;

/// Most bytes of tokens that a core remembers, in each of two generations.
const BYTES: usize = 2 * 1024 * 1024;

/// The result of verifying a token.
#[derive(Debug, Default)]
pub(super) struct Verified {
    /// The consumer that the token names.
    pub(super) consumer: Option<Holder>,
    /// The values of the fields to set, in the order of the settings; `None` if the token has no such claim.
    pub(super) headers: Vec<Option<Vec<u8>>>,
    /// Identifies the holder of the token.
    pub(super) who: [u8; 32],
    /// When the token expires, in seconds since 1970, leeway included.
    pub(super) until: Option<u64>,
    /// All claims, if expressions of the config may read them.
    pub(super) claims: Option<Rc<serde_json::Value>>,
}

/// The consumer that a token names.
#[derive(Debug)]
pub(super) enum Holder {
    /// One of the config, by position.
    Config(usize),
    /// One of a source, by the value of the claim: which consumer has it may change.
    Listed(Box<str>),
}

/// Tokens that were verified with one key set.
///
/// Two generations: when the young one is full, it becomes the old one, and the previous old one is dropped. A token
/// that is used again moves back to the young generation. Tokens are compared as a whole, so none is mistaken for
/// another.
#[derive(Default)]
pub(super) struct Cache {
    key_set: u64,
    young: Generation,
    old: Generation,
}

#[derive(Default)]
struct Generation {
    tokens: HashMap<Box<[u8]>, Rc<Verified>, foldhash::fast::RandomState>,
    bytes: usize,
}

impl Cache {
    /// The result for a token that was verified with this key set and has not expired.
    pub(super) fn find(&mut self, key_set: u64, token: &[u8], now: u64) -> Option<Rc<Verified>> {
        if self.key_set != key_set {
            *self = Self { key_set, ..Self::default() };
            return None;
        }
        let valid = |verified: &&Rc<Verified>| verified.until.is_none_or(|until| now < until);
        if let Some(verified) = self.young.tokens.get(token) {
            return Some(verified).filter(valid).cloned();
        }
        let verified = self.old.tokens.get(token).filter(valid).cloned()?;
        self.add(token, Rc::clone(&verified));
        Some(verified)
    }

    /// Remembers a token that was verified with this key set.
    pub(super) fn remember(&mut self, key_set: u64, token: &[u8], verified: Rc<Verified>) {
        if self.key_set != key_set {
            *self = Self { key_set, ..Self::default() };
        }
        self.add(token, verified);
    }

    fn add(&mut self, token: &[u8], verified: Rc<Verified>) {
        let fields: usize = verified.headers.iter().flatten().map(Vec::len).sum();
        if self.young.bytes > BYTES {
            self.old = std::mem::take(&mut self.young);
        }
        // Values take several times the room of their text.
        let claims = if verified.claims.is_some() { 4 * token.len() } else { 0 };
        self.young.bytes += token.len() + fields + claims + 128; // 128 bytes of overhead in the map and the values
        self.young.tokens.insert(token.into(), verified);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn until(until: u64) -> Rc<Verified> {
        Rc::new(Verified { until: Some(until), ..Verified::default() })
    }

    #[test]
    fn until_it_expires_or_the_keys_change() {
        let mut cache = Cache::default();
        cache.remember(1, b"token", until(10));
        assert!(cache.find(1, b"token", 9).is_some());
        assert!(cache.find(1, b"token", 10).is_none());
        assert!(cache.find(1, b"tokem", 9).is_none());
        assert!(cache.find(2, b"token", 9).is_none());
        assert!(cache.find(1, b"token", 9).is_none(), "the first set is not the one before");
        cache.remember(3, b"token", Rc::new(Verified::default()));
        assert!(cache.find(3, b"token", u64::MAX).is_some());
    }

    #[test]
    fn it_has_an_end() {
        let mut cache = Cache::default();
        let token = |n: usize| format!("{n:01000}").into_bytes();
        for n in 0..10_000 {
            cache.remember(1, &token(n), until(10));
            assert!(cache.find(1, &token(0), 9).is_some(), "what is used stays");
        }
        let held = cache.young.bytes + cache.old.bytes;
        assert!(held < 2 * BYTES + 4096, "{held}");
        assert!(cache.find(1, &token(9_999), 9).is_some());
        assert!(cache.find(1, &token(1), 9).is_none());
    }
}
