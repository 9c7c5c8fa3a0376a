//! Tokens by which a client that comes back proves its address at once (NEW_TOKEN, RFC 9000 §8.1.3).
//!
//! A token names the IP address that it was given to, and works once. Otherwise, somebody who copied one could make us
//! send that address more than three times what they send.

use quinn_proto::{TokenLog, TokenReuseError};
use std::collections::HashSet;
use std::mem::take;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

/// How long a token works. Clients come back within hours, if at all.
pub(crate) const LIFETIME: Duration = Duration::from_secs(24 * 60 * 60);

/// Tokens that a client gets per connection. More than one, as browsers open several connections when they come back.
pub(crate) const GIVEN: u32 = 2;

/// Used tokens that are remembered, at least the latest half of them: 16 MiB in a day of a hundred returning clients per
/// second is not worth the little that a forgotten one allows.
const REMEMBERED: usize = 64 * 1024;

/// The tokens that were used lately. All cores of a process share it; the next process begins with none.
#[derive(Debug, Default)]
pub(crate) struct Used(Mutex<[HashSet<u64>; 2]>);

impl TokenLog for Used {
    fn check_and_insert(&self, nonce: u128, _: SystemTime, _: Duration) -> Result<(), TokenReuseError> {
        let nonce = nonce as u64; // half of its random bits are plenty
        let mut used = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let [latest, earlier] = &mut *used;
        if earlier.contains(&nonce) || !latest.insert(nonce) {
            return Err(TokenReuseError);
        }
        if latest.len() >= REMEMBERED / 2 {
            *earlier = take(latest);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_works_once_and_memory_is_bounded() {
        let used = Used::default();
        let takes = |nonce: u128| used.check_and_insert(nonce, SystemTime::UNIX_EPOCH, LIFETIME).is_ok();
        for nonce in 0..200_000_u128 {
            assert!(takes(nonce));
            assert!(!takes(nonce));
        }
        let held: usize = used.0.lock().unwrap().iter().map(HashSet::len).sum();
        assert!((REMEMBERED / 2..=REMEMBERED).contains(&held), "{held}");
    }
}
