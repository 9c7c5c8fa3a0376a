//! Limits for keys that clients choose (addresses, header values): as many as fit into a table of fixed size.
//!
//! ```text
//!   key ─hash─▶ two buckets of 8 slots, two cache lines each       slot: hash of the key │ TAT
//!
//!   slot's hash:  EMPTY ──claim──▶ CLAIMED ──publish──▶ key ──claim──▶ CLAIMED ──publish──▶ other key
//!                                      └──withdraw──▶ what it was before
//! ```
//! No lock. A key that has a slot is charged with one compare-and-swap. A key without one claims a slot that is empty or
//! whose TAT has passed (its owner has its whole burst again, so forgetting it changes nothing), in whichever of its two buckets has
//! more of them. Only a claim waits for other claims in these buckets, which last a few instructions.
//!
//! *As many keys as the table is for are held*: it has twice as many slots, and of two buckets the emptier one fills (Mitzenmacher: The Power of Two
//! Choices in Randomized Load Balancing, 2001). So with all keys active both buckets of a key are full once in 10^9 times.
//!
//! *When all 16 slots hold keys with a debt*, the one that is closest to having none loses it: its next request is counted
//! as its first. So the error is in favour of that client, at most the share of a burst that it had used.
//!
//! *When a thread is taken off its processor in the middle of a claim* and stays off for longer than others wait
//! (`PATIENCE`), a request that needs that bucket passes uncounted, or its key gets a second slot: better than to stop a
//! core behind a thread that does not run.
//!
//! Invariant: but for that, no key has two slots.

use super::gcra::{Decision, NEVER, Rate, Time};
use foldhash::SharedSeed;
use foldhash::quality::SeedableRandomState;
use std::hash::{BuildHasher, Hash, RandomState};
use std::hint::spin_loop;
use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};

const SLOTS: usize = 8;

/// Slots for each key that a table is for.
const SLACK: usize = 2;

/// Buckets that come into being together, at the first request for one of them: 16 KiB, so that a limit that is hardly
/// used costs hardly any memory.
const SEGMENT: usize = 128;

/// Hash of a slot that is about to change hands. 0 is that of an empty slot, whose TAT has always passed.
const CLAIMED: u64 = 1;

/// Waits for a claim before it is given up on. The first ones spin, the others let another thread run: in all longer than
/// a claim lasts unless its thread was taken off its processor in the middle of it.
const PATIENCE: u32 = 1000;
const SPINS: u32 = 64;

/// A key, hashed with the table's own seed: which keys share a bucket cannot be known outside.
///
/// Two keys with the same 64 bits share a limit; among 65,536 keys the chance of one such pair is one in 10^10.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Key(u64);

pub(super) struct Table {
    seeds: Seeds,
    hasher: SeedableRandomState,
    buckets: usize,
    segments: Box<[OnceLock<Box<[Bucket]>>]>,
    patience: u32,
}

/// What keys are hashed with. Random, and known to this process and to the one that it hands its counters to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seeds {
    /// Of all tables of a process: foldhash wants it to live as long.
    pub(super) shared: u64,
    pub(super) own: u64,
}

#[derive(Default)]
#[repr(align(128))]
struct Bucket([Slot; SLOTS]);

#[derive(Default)]
struct Slot {
    key: AtomicU64,
    tat: AtomicU64,
}

/// Why a key has to be looked for again.
struct Moved;

// === impl Table ===

impl Table {
    /// A table for `keys` keys. Memory: 32 bytes a key once it is in use, in steps of 16 KiB.
    pub(super) fn new(keys: usize) -> Self {
        let (shared, seed) = shared_seed(random);
        Self::of(keys, Seeds { shared: *shared, own: random() }, seed)
    }

    /// A table for keys that were hashed in another process; `None` where this one has hashed keys of its own already.
    pub(super) fn with_seeds(keys: usize, seeds: Seeds) -> Option<Self> {
        let (shared, seed) = shared_seed(|| seeds.shared);
        (*shared == seeds.shared).then(|| Self::of(keys, seeds, seed))
    }

    fn of(keys: usize, seeds: Seeds, shared: &'static SharedSeed) -> Self {
        let buckets = (keys.saturating_mul(SLACK)).div_ceil(SLOTS).max(2);
        let segments = (0..buckets.div_ceil(SEGMENT)).map(|_| OnceLock::new()).collect();
        let hasher = SeedableRandomState::with_seed(seeds.own, shared);
        Self { seeds, hasher, buckets, segments, patience: PATIENCE }
    }

    pub(super) const fn seeds(&self) -> Seeds {
        self.seeds
    }

    /// The keys with a debt, and how large it is. Requests may go on meanwhile.
    pub(super) fn debts(&self, now: Time) -> Vec<(u64, Time)> {
        let buckets = self.segments.iter().filter_map(OnceLock::get).flat_map(|segment| segment.iter());
        let slots = buckets.flat_map(|bucket| &bucket.0);
        let debts = slots.map(|slot| (slot.key.load(Acquire), slot.tat.load(Acquire).saturating_sub(now)));
        debts.filter(|(key, debt)| *key > CLAIMED && *debt > 0).collect()
    }

    /// Gives a key its TAT, in a table that no request uses yet. One too many in its buckets is forgotten.
    pub(super) fn restore(&self, key: u64, tat: Time, now: Time) {
        let pair = self.pair(Key(key));
        let Some(slot) = pair.emptier(now).iter().find(|slot| slot.tat.load(Relaxed) <= now) else { return };
        slot.tat.store(tat, Relaxed);
        slot.key.store(key.max(CLAIMED + 1), Release);
    }

    /// The same with another number of waits before a claim is given up on.
    #[cfg(test)]
    pub(super) fn with_patience(mut self, patience: u32) -> Self {
        self.patience = patience;
        self
    }

    /// Leaves a claim in the key's buckets that nobody ends, in a slot above all that are used first.
    #[cfg(test)]
    pub(super) fn claim_for_ever(&self, key: Key) {
        let Pair([first, second]) = self.pair(key);
        let last = if first.0.as_ptr() > second.0.as_ptr() { first } else { second };
        last.0[SLOTS - 1].key.store(CLAIMED, SeqCst);
    }

    pub(super) fn key(&self, of: impl Hash) -> Key {
        Key(self.hasher.hash_one(of).max(CLAIMED + 1))
    }

    /// Charges one request to `key`.
    pub(super) fn charge(&self, key: Key, rate: &Rate, now: Time) -> Decision {
        let pair = self.pair(key);
        for tries in 0..=self.patience {
            let charged = match pair.find(key) {
                Some(slot) => slot.charge(key, rate, now),
                None => pair.insert(key, rate, now, self.patience),
            };
            if let Ok(decision) = charged {
                return decision;
            }
            pause(tries);
        }
        Decision::Allowed { used: rate.interval }
    }

    /// Gives back what a request of `key` was charged.
    pub(super) fn refund(&self, key: Key, amount: Time) {
        if let Some(slot) = self.pair(key).find(key) {
            slot.change(key, |tat| tat.saturating_sub(amount));
        }
    }

    /// Takes more, whether it fits or not; how much of the window is then taken.
    pub(super) fn force(&self, key: Key, rate: &Rate, amount: Time, now: Time) -> Time {
        let pair = self.pair(key);
        let forced = |slot: &Slot| slot.change(key, |tat| rate.forced(tat, now, amount));
        let known = pair.find(key).and_then(forced);
        known
            .or_else(|| {
                // Its slot was needed for another key: it gets one again, with one request that is part of the amount.
                self.charge(key, rate, now);
                let rest = amount.saturating_sub(rate.amount);
                pair.find(key)?.change(key, |tat| rate.forced(tat, now, rest))
            })
            .map_or(0, |tat| tat.saturating_sub(now))
    }

    /// The two buckets that a key may stand in.
    fn pair(&self, key: Key) -> Pair<'_> {
        // The high bits choose, by multiplication instead of division (Lemire: Fast random integer generation in an
        // interval, 2019).
        let below = |bits: u64, end: usize| ((u128::from(bits) * end as u128) >> 64) as usize;
        let first = below(key.0, self.buckets);
        let other = below(key.0.rotate_left(32).wrapping_mul(MIX), self.buckets - 1);
        let second = if other < first { other } else { other + 1 };
        Pair([self.bucket(first), self.bucket(second)])
    }

    fn bucket(&self, at: usize) -> &Bucket {
        let make = || (0..SEGMENT).map(|_| Bucket::default()).collect();
        &self.segments[at / SEGMENT].get_or_init(make)[at % SEGMENT]
    }
}

/// An odd number that makes other bits of a hash of it: the golden ratio, as in Fibonacci hashing (Knuth: The Art of Computer
/// Programming, volume 3, 6.4).
const MIX: u64 = 0x9e37_79b9_7f4a_7c15;

/// The seed that all tables of this process share, and the number it is made of: `choose` is asked once.
fn shared_seed(choose: impl FnOnce() -> u64) -> &'static (u64, SharedSeed) {
    static SHARED: OnceLock<(u64, SharedSeed)> = OnceLock::new();
    SHARED.get_or_init(|| {
        let number = choose();
        (number, SharedSeed::from_u64(number))
    })
}

/// A number that nobody outside can know: the standard library takes it from the system.
fn random() -> u64 {
    RandomState::new().hash_one(0)
}

fn pause(tries: u32) {
    if tries < SPINS { spin_loop() } else { std::thread::yield_now() }
}

// === impl Pair ===

/// The buckets of one key.
struct Pair<'t>([&'t Bucket; 2]);

impl<'t> Pair<'t> {
    fn slots(&self) -> impl Iterator<Item = &'t Slot> {
        let Self([first, second]) = *self;
        first.0.iter().chain(&second.0)
    }

    fn find(&self, key: Key) -> Option<&'t Slot> {
        self.slots().find(|slot| slot.key.load(Acquire) == key.0)
    }

    /// The bucket with more slots that are free.
    fn emptier(&self, now: Time) -> &'t [Slot; SLOTS] {
        let Self([first, second]) = *self;
        let free = |bucket: &Bucket| bucket.0.iter().filter(|slot| slot.tat.load(Acquire) <= now).count();
        if free(first) >= free(second) { &first.0 } else { &second.0 }
    }

    /// Gives `key` a slot with one request charged to it.
    fn insert(&self, key: Key, rate: &Rate, now: Time, patience: u32) -> Result<Decision, Moved> {
        let (slot, owner, tat) = self.victim(key, now)?;
        slot.key.compare_exchange(owner, CLAIMED, SeqCst, Relaxed).map_err(|_| Moved)?;
        let (next, decision) = match rate.decide(NEVER, now) {
            Ok(first) => first,
            Err(denied) => (NEVER, denied), // not with a burst of at least one
        };
        // The TAT changes before the hash does: whoever charges the former owner at this moment finds that its TAT is not
        // the one it read. If it was quicker, the slot is not free after all.
        let sole = self.is_sole_claim(slot, key, patience);
        if !sole || slot.tat.compare_exchange(tat, next, SeqCst, Relaxed).is_err() {
            slot.key.store(owner, SeqCst);
            return Err(Moved);
        }
        slot.key.store(key.0, SeqCst);
        Ok(decision)
    }

    /// The slot to claim, with its owner and TAT: the first free one of the emptier bucket, else the one closest to being free.
    fn victim(&self, key: Key, now: Time) -> Result<(&'t Slot, u64, Time), Moved> {
        let preferred = self.emptier(now).as_ptr_range();
        let mut free: Option<(&Slot, u64, Time)> = None;
        let mut best: Option<(&Slot, u64, Time)> = None;
        for slot in self.slots() {
            let owner = slot.key.load(SeqCst);
            let tat = slot.tat.load(Acquire);
            if owner == key.0 {
                return Err(Moved);
            }
            if owner == CLAIMED {
                continue;
            }
            let is_preferred = preferred.contains(&std::ptr::from_ref(slot));
            if tat <= now
                && (free.is_none()
                    || is_preferred
                        && free.is_some_and(|(at, ..)| !preferred.contains(&std::ptr::from_ref(at))))
            {
                free = Some((slot, owner, tat));
            }
            if best.is_none_or(|(_, _, earliest)| tat < earliest) {
                best = Some((slot, owner, tat));
            }
        }
        free.or(best).ok_or(Moved)
    }

    /// Whether nobody else gives `key` a slot at the same time, after `claimed` was claimed for it.
    ///
    /// Of two claims in one bucket the lower one stands: the higher one sees it and withdraws, or had passed it before it
    /// was made; then the lower one sees the higher one and waits for what becomes of it. Claims and looks are
    /// sequentially consistent, so at least one of two sees the other. Lower is by the place in memory, which all agree on whichever
    /// buckets their keys have; so nobody waits for somebody who waits for him.
    fn is_sole_claim(&self, claimed: &Slot, key: Key, patience: u32) -> bool {
        let place = std::ptr::from_ref(claimed);
        for slot in self.slots().filter(|slot| !std::ptr::eq(*slot, claimed)) {
            for tries in 0..=patience {
                let owner = slot.key.load(SeqCst);
                if owner == key.0 || (owner == CLAIMED && std::ptr::from_ref(slot) < place) {
                    return false;
                }
                if owner != CLAIMED {
                    break;
                }
                pause(tries);
            }
        }
        true
    }
}

// === impl Slot ===

impl Slot {
    /// Changes the key's TAT; what it then is, or `None` if the slot is another's now.
    fn change(&self, key: Key, to: impl Fn(Time) -> Time) -> Option<Time> {
        loop {
            let tat = self.tat.load(Acquire);
            if self.key.load(Acquire) != key.0 {
                return None;
            }
            let next = to(tat);
            if self.tat.compare_exchange_weak(tat, next, Release, Relaxed).is_ok() {
                return Some(next);
            }
        }
    }

    fn charge(&self, key: Key, rate: &Rate, now: Time) -> Result<Decision, Moved> {
        loop {
            // In this order: if the slot is still the key's after its TAT was read, the TAT was the key's, and the swap
            // fails if that has changed since.
            let tat = self.tat.load(Acquire);
            if self.key.load(Acquire) != key.0 {
                return Err(Moved);
            }
            let (next, decision) = match rate.decide(tat, now) {
                Ok(allowed) => allowed,
                Err(denied) => return Ok(denied),
            };
            if self.tat.compare_exchange_weak(tat, next, Release, Relaxed).is_ok() {
                return Ok(decision);
            }
        }
    }
}
