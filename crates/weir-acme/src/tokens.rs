//! The proofs that certificate authorities request over cleartext HTTP (`http-01`, RFC 8555 §8.3): a token in a path,
//! and its response.
//!
//! While no proof is pending, a request only checks one counter. Paths without a pending token go to the routes.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

/// The path under which authorities request tokens.
const PREFIX: &[u8] = b"/.well-known/acme-challenge/";

/// The pending tokens. Cheap to clone; clones share them.
#[derive(Clone, Default)]
pub struct Tokens(Arc<Awaited>);

#[derive(Default)]
struct Awaited {
    count: AtomicUsize,
    answers: RwLock<HashMap<String, Arc<str>>>,
}

impl Tokens {
    /// The response to a request for this path; `None` unless it contains a pending token.
    #[inline]
    pub fn answer(&self, path: &[u8]) -> Option<Arc<str>> {
        if self.0.count.load(Ordering::Relaxed) == 0 { None } else { self.look_up(path) }
    }

    #[cold]
    fn look_up(&self, path: &[u8]) -> Option<Arc<str>> {
        let token = str::from_utf8(path.strip_prefix(PREFIX)?).ok()?;
        let answers = self.0.answers.read().unwrap_or_else(PoisonError::into_inner);
        answers.get(token).cloned()
    }

    pub(crate) fn expect(&self, token: &str, answer: &str) {
        self.change(|answers| drop(answers.insert(token.to_owned(), answer.into())));
    }

    pub(crate) fn forget(&self, token: &str) {
        self.change(|answers| drop(answers.remove(token)));
    }

    fn change(&self, change: impl FnOnce(&mut HashMap<String, Arc<str>>)) {
        let mut answers = self.0.answers.write().unwrap_or_else(PoisonError::into_inner);
        change(&mut answers);
        self.0.count.store(answers.len(), Ordering::Relaxed);
    }
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tokens({})", self.0.count.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_awaited_tokens_are_answered() {
        let tokens = Tokens::default();
        let path = b"/.well-known/acme-challenge/abc";
        assert_eq!(tokens.answer(path), None);
        tokens.expect("abc", "abc.thumb");
        assert_eq!(tokens.answer(path).as_deref(), Some("abc.thumb"));
        for other in [
            "/.well-known/acme-challenge/",
            "/.well-known/acme-challenge/abcd",
            "/abc",
            "/.well-known/acme-challenge/abc/",
        ] {
            assert_eq!(tokens.answer(other.as_bytes()), None, "{other}");
        }
        assert_eq!(tokens.answer(b"/.well-known/acme-challenge/\xff"), None);
        tokens.clone().forget("abc");
        assert_eq!(tokens.answer(path), None);
    }
}
