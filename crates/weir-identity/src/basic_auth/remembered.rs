//! The pairs of user and password that were verified, so that each is hashed once.

use crate::prelude::*;
use std::cell::RefCell;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// Verified pairs, stored as 128 bits that depend on secrets of this process. The passwords themselves are not kept.
#[derive(Default)]
pub(super) struct Remembered {
    sip: RandomState,
    fold: foldhash::quality::RandomState,
    cores: PerCore<RefCell<Slots>>,
    /// What all cores have verified, in parts with one lock each. A core holds the lock only to look up a pair that
    /// it does not know itself.
    shared: [Mutex<Slots>; PARTS],
}

/// A set-associative table of pairs; a pair's bits choose its set. A full set evicts the pair that was verified
/// first.
#[derive(Default)]
pub(super) struct Slots(Vec<[Option<Slot>; WAYS]>);

#[derive(Clone, Copy)]
pub(super) struct Slot {
    pub(super) tag: u128,
    pub(super) consumer: usize,
    pub(super) until: Instant,
}

/// Sets per core, and per part of the shared table. Allocated when the first pair comes.
pub(super) const SETS: usize = 256;

/// Places in a set, 64 bytes each.
pub(super) const WAYS: usize = 4;

/// Parts of the table that all cores share.
pub(super) const PARTS: usize = 16;

// === impl Remembered ===

impl Remembered {
    /// `seal` is that of the user's hash, if a source may replace it while this is remembered.
    pub(super) fn tag(&self, user: &[u8], password: &[u8], seal: Option<u64>) -> u128 {
        let (mut sip, mut fold) = (self.sip.build_hasher(), self.fold.build_hasher());
        for hasher in [&mut sip as &mut dyn std::hash::Hasher, &mut fold] {
            hasher.write(user);
            hasher.write(b":"); // no user name contains one (RFC 7617 §2)
            hasher.write(password);
            if let Some(seal) = seal {
                hasher.write_u64(seal);
            }
        }
        u128::from(sip.finish()) << 64 | u128::from(fold.finish())
    }

    /// Finds the pair if any core has verified it and it has not expired.
    pub(super) fn find(&self, tag: u128, core: &CoreHandle, now: Instant) -> Option<usize> {
        let slots = self.cores.get(core);
        if let Some(slot) = slots.borrow().find(tag).filter(|slot| now < slot.until) {
            return Some(slot.consumer);
        }
        let slot = self.shared(tag)?.find(tag).filter(|slot| now < slot.until)?;
        slots.borrow_mut().put(slot);
        Some(slot.consumer)
    }

    /// Whether the pair was ever verified, even if it has expired.
    pub(super) fn was_right(&self, tag: u128) -> bool {
        self.shared(tag).is_some_and(|slots| slots.find(tag).is_some())
    }

    /// The consumer of a pair, which is then remembered for this time. `verify` is not called if the pair was verified
    /// while this request waited: a client that opens many connections at once pays for one hash.
    pub(super) fn verified(
        &self,
        tag: u128,
        time: std::time::Duration,
        verify: impl FnOnce() -> Option<usize>,
    ) -> Option<usize> {
        let known = self.shared(tag)?.find(tag).filter(|slot| Instant::now() < slot.until);
        if let Some(slot) = known {
            return Some(slot.consumer);
        }
        let consumer = verify()?;
        if let Some(until) = Instant::now().checked_add(time).filter(|_| !time.is_zero()) {
            self.share(Slot { tag, consumer, until });
        }
        Some(consumer)
    }

    pub(super) fn share(&self, slot: Slot) {
        if let Some(mut slots) = self.shared(slot.tag) {
            slots.put(slot);
        }
    }

    fn shared(&self, tag: u128) -> Option<std::sync::MutexGuard<'_, Slots>> {
        // Uses other bits than those that choose the set.
        let part = self.shared.get((tag >> 64) as usize % PARTS)?;
        Some(part.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

// === impl Slots ===

impl Slots {
    fn find(&self, tag: u128) -> Option<Slot> {
        let set = self.0.get(tag as usize % SETS)?;
        set.iter().flatten().find(|slot| slot.tag == tag).copied()
    }

    fn put(&mut self, slot: Slot) {
        self.0.resize(SETS, [None; WAYS]);
        let Some(set) = self.0.get_mut(slot.tag as usize % SETS) else { return };
        let same = set.iter().position(|place| place.is_some_and(|known| known.tag == slot.tag));
        let at = same.or_else(|| {
            // `None` sorts before any moment: free places first, then the pair that was verified first.
            (0..WAYS).min_by_key(|at| set.get(*at).copied().flatten().map(|known| known.until))
        });
        if let Some(place) = at.and_then(|at| set.get_mut(at)) {
            *place = Some(slot);
        }
    }
}
