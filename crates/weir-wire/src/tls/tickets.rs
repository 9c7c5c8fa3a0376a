//! The keys of session tickets. We keep our own instead of those of rustls, so that an upgrade can hand them to the
//! new process. Otherwise every client would need a full handshake at the same time.
//!
//! ```text
//!   ticket: │ name of the key (16) │ nonce (12) │ the session, AES-256-GCM │ tag (16) │
//! ```
//! The tag covers the name too. Random nonces are safe for 2^32 tickets per key (NIST SP 800-38D §8.3). At 100,000
//! handshakes per second, a key makes half of that in its six hours.

use super::TlsError;
use aws_lc_rs::aead::{AES_256_GCM, Aad, Nonce, RandomizedNonceKey};
use rustls::server::ProducesTickets;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};
use std::time::{SystemTime, UNIX_EPOCH};

/// How long a key makes tickets, in seconds. We accept them for the same time again, so a ticket is good for 6 to 12
/// hours. Keeping a key longer would put past sessions at risk (RFC 8446 appendix E.6).
const ROTATE_SECONDS: u64 = 6 * 60 * 60;

const NAME_BYTES: usize = 16;
const NONCE_BYTES: usize = 12;

/// Bytes of one key as [`Tickets::save`] writes it: name, key, second of creation.
const SAVED_BYTES: usize = NAME_BYTES + 32 + 8;

/// The keys of session tickets. They are the same on every core, after a reload and after an upgrade, so that clients
/// can resume anywhere. Only equal policies share them, because a resuming client presents no certificate again.
/// Replaced every six hours; a key is accepted for twice that.
#[derive(Clone)]
pub struct Tickets(Arc<Ring>);

/// The key that makes tickets, and its predecessor, which only opens them.
struct Ring {
    keys: RwLock<Keys>,
    now: fn() -> u64,
}

struct Keys {
    current: Key,
    previous: Option<Key>,
}

struct Key {
    name: [u8; NAME_BYTES],
    secret: [u8; 32],
    /// The second of creation, since 1970.
    made: u64,
    aead: RandomizedNonceKey,
}

impl Tickets {
    /// Fresh keys.
    ///
    /// # Errors
    /// When the system gives no randomness.
    pub fn new() -> Result<Self, TlsError> {
        Self::at(now)
    }

    fn at(now: fn() -> u64) -> Result<Self, TlsError> {
        let current = Key::fresh(now()).ok_or_else(|| TlsError::policy("session tickets: no randomness"))?;
        Ok(Self(Arc::new(Ring { keys: RwLock::new(Keys { current, previous: None }), now })))
    }

    /// The keys, to hand to the successor process. Secret: with them, anyone can read what clients send.
    pub fn save(&self) -> Vec<u8> {
        let keys = self.0.read();
        [Some(&keys.current), keys.previous.as_ref()].into_iter().flatten().flat_map(Key::save).collect()
    }

    /// The keys that another process [saved](Self::save); `None` if the bytes are not such keys.
    pub fn load(saved: &[u8]) -> Option<Self> {
        Self::load_at(saved, now)
    }

    fn load_at(saved: &[u8], now: fn() -> u64) -> Option<Self> {
        let mut keys = saved.chunks(SAVED_BYTES).map(Key::load);
        let (current, previous) = (keys.next()??, keys.next());
        let previous = match previous {
            Some(key) => Some(key?),
            None => None,
        };
        let ring = Ring { keys: RwLock::new(Keys { current, previous }), now };
        keys.next().is_none().then(|| Self(Arc::new(ring)))
    }

    pub(super) fn producer(&self) -> Arc<dyn ProducesTickets> {
        Arc::clone(&self.0) as Arc<dyn ProducesTickets>
    }
}

impl fmt::Debug for Tickets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tickets")
    }
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

// === impl Ring ===

impl Ring {
    fn read(&self) -> RwLockReadGuard<'_, Keys> {
        self.keys.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces the key when it is due. Without randomness the old key stays, and every call tries again.
    fn turn(&self) {
        let now = (self.now)();
        // Otherwise a key made by a clock that was ahead would make tickets until that time comes.
        let due = |keys: &Keys| now.abs_diff(keys.current.made) >= ROTATE_SECONDS;
        if !due(&self.read()) {
            return;
        }
        let mut keys = self.keys.write().unwrap_or_else(PoisonError::into_inner);
        if due(&keys)
            && let Some(fresh) = Key::fresh(now)
        {
            let last = std::mem::replace(&mut keys.current, fresh);
            // After a day without handshakes, the last key is too old as well.
            keys.previous = (now.abs_diff(last.made) < 2 * ROTATE_SECONDS).then_some(last);
        }
    }
}

impl fmt::Debug for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ring")
    }
}

impl ProducesTickets for Ring {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        const { (2 * ROTATE_SECONDS) as u32 }
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        self.turn();
        let keys = self.read();
        let key = &keys.current;
        let mut sealed = plain.to_vec();
        let nonce = key.aead.seal_in_place_append_tag(Aad::from(&key.name), &mut sealed).ok()?;
        Some([&key.name[..], &nonce.as_ref()[..], &sealed].concat())
    }

    fn decrypt(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        self.turn();
        let (name, rest) = ticket.split_at_checked(NAME_BYTES)?;
        let (nonce, sealed) = rest.split_at_checked(NONCE_BYTES)?;
        let keys = self.read();
        // Key names are public, so comparing them leaks nothing.
        let key =
            [Some(&keys.current), keys.previous.as_ref()].into_iter().flatten().find(|k| k.name == name)?;
        let mut plain = sealed.to_vec();
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let length = key.aead.open_in_place(nonce, Aad::from(&key.name), &mut plain).ok()?.len();
        plain.truncate(length);
        Some(plain)
    }
}

// === impl Key ===

impl Key {
    fn fresh(made: u64) -> Option<Self> {
        let (mut name, mut secret) = ([0; NAME_BYTES], [0; 32]);
        aws_lc_rs::rand::fill(&mut name).ok()?;
        aws_lc_rs::rand::fill(&mut secret).ok()?;
        Self::of(name, secret, made)
    }

    fn of(name: [u8; NAME_BYTES], secret: [u8; 32], made: u64) -> Option<Self> {
        let aead = RandomizedNonceKey::new(&AES_256_GCM, &secret).ok()?;
        Some(Self { name, secret, made, aead })
    }

    fn save(&self) -> Vec<u8> {
        [&self.name[..], &self.secret, &self.made.to_be_bytes()].concat()
    }

    fn load(saved: &[u8]) -> Option<Self> {
        let (name, rest) = saved.split_first_chunk()?;
        let (secret, made) = rest.split_first_chunk()?;
        Self::of(*name, *secret, u64::from_be_bytes(made.try_into().ok()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    thread_local!(static CLOCK: Cell<u64> = const { Cell::new(1_000_000) });

    fn tickets() -> Tickets {
        Tickets::at(|| CLOCK.get()).unwrap()
    }

    #[test]
    fn a_ticket_opens_with_its_key_only() {
        let (ours, others) = (tickets(), tickets());
        let mut ticket = ours.0.encrypt(b"session").unwrap();
        assert_eq!(ours.0.decrypt(&ticket).unwrap(), b"session");
        assert_eq!(others.0.decrypt(&ticket), None);
        assert_ne!(ours.0.encrypt(b"session").unwrap(), ticket, "nonces differ");
        for at in 0..ticket.len() {
            ticket[at] ^= 1;
            assert_eq!(ours.0.decrypt(&ticket), None, "byte {at} was changed");
            ticket[at] ^= 1;
        }
        for length in 0..ticket.len() {
            assert_eq!(ours.0.decrypt(&ticket[..length]), None);
        }
    }

    #[test]
    fn a_key_opens_tickets_for_six_hours_more_and_no_longer() {
        let ours = tickets();
        let ticket = ours.0.encrypt(b"session").unwrap();
        CLOCK.set(CLOCK.get() + ROTATE_SECONDS);
        assert_eq!(ours.0.decrypt(&ticket).unwrap(), b"session");
        let later = ours.0.encrypt(b"session").unwrap();
        assert_ne!(later[..NAME_BYTES], ticket[..NAME_BYTES]);
        CLOCK.set(CLOCK.get() + ROTATE_SECONDS);
        assert_eq!(ours.0.decrypt(&ticket), None);
        assert_eq!(ours.0.decrypt(&later).unwrap(), b"session");
        CLOCK.set(CLOCK.get() + 2 * ROTATE_SECONDS);
        assert_eq!(ours.0.decrypt(&later), None, "nobody came for twelve hours");
        let last = ours.0.encrypt(b"session").unwrap();
        CLOCK.set(CLOCK.get() + 2 * ROTATE_SECONDS - 1);
        assert_eq!(ours.0.decrypt(&last).unwrap(), b"session", "nobody came for nearly as long");
        assert_eq!(ours.0.lifetime(), 12 * 60 * 60, "what clients are told");
    }

    #[test]
    fn a_key_makes_tickets_for_six_hours_wherever_it_came_from() {
        let ours = tickets();
        let name = |tickets: &Tickets| tickets.0.encrypt(b"session").unwrap()[..NAME_BYTES].to_vec();
        let first = name(&ours);
        CLOCK.set(CLOCK.get() + ROTATE_SECONDS - 1);
        // In another process or snapshot, the key has the same age.
        let theirs = Tickets::load_at(&ours.save(), || CLOCK.get()).unwrap();
        let same = ours.clone();
        assert!([&ours, &theirs, &same].map(name).iter().all(|name| *name == first));
        CLOCK.set(CLOCK.get() + 1);
        assert_ne!(name(&ours), first);
        assert_ne!(name(&theirs), first);
        assert_ne!(name(&theirs), name(&ours), "whoever turns first makes a key of his own");
        assert_eq!(name(&same), name(&ours));
        // Encrypting a ticket also replaces the key.
        let ticket = theirs.0.encrypt(b"session").unwrap();
        CLOCK.set(CLOCK.get() + 2 * ROTATE_SECONDS);
        assert_eq!(theirs.0.decrypt(&ticket), None);
        assert!(
            theirs.0.read().previous.is_none() && theirs.0.read().current.name[..] != ticket[..NAME_BYTES]
        );
    }

    #[test]
    fn a_key_of_a_clock_that_was_ahead_ages_all_the_same() {
        CLOCK.set(CLOCK.get() + 100 * ROTATE_SECONDS);
        let ours = tickets();
        let ticket = ours.0.encrypt(b"session").unwrap();
        CLOCK.set(CLOCK.get() - ROTATE_SECONDS + 1);
        assert!(ours.0.decrypt(&ticket).is_some());
        CLOCK.set(CLOCK.get() - 99 * ROTATE_SECONDS);
        assert_ne!(ours.0.encrypt(b"session").unwrap()[..NAME_BYTES], ticket[..NAME_BYTES]);
        assert_eq!(ours.0.decrypt(&ticket), None);
    }

    #[test]
    fn keys_travel() {
        let ours = tickets();
        let old = ours.0.encrypt(b"old").unwrap();
        CLOCK.set(CLOCK.get() + ROTATE_SECONDS);
        let new = ours.0.encrypt(b"new").unwrap();
        let saved = ours.save();
        // Their clock is the real one, far ahead. So compare the keys, not their age.
        let theirs = Tickets::load(&saved).unwrap();
        assert_eq!(theirs.save(), saved);
        let (old_name, new_name) = (&old[..NAME_BYTES], &new[..NAME_BYTES]);
        let keys = theirs.0.read();
        assert_eq!((&keys.current.name[..], &keys.previous.as_ref().unwrap().name[..]), (new_name, old_name));
        for broken in [&saved[..saved.len() - 1], b"", &[0; 3]] {
            assert!(Tickets::load(broken).is_none());
        }
    }
}
