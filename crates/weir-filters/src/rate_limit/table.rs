//! Limits for keys that clients choose (addresses, header values), in a table of fixed size.
//!
//! ```text
//!   key ─hash─▶ two buckets of 8 slots, two cache lines each       slot: hash of the key │ TAT
//!
//!   slot's hash:  EMPTY ──claim──▶ CLAIMED ──publish──▶ key ──claim──▶ CLAIMED ──publish──▶ other key
//!                                      └──withdraw──▶ what it was before
//! ```
//! The table is lock-free. A key that has a slot is charged with one compare-and-swap. A key without a slot claims
//! one that is empty or whose TAT has passed, in whichever of its two buckets has more of them. The owner of an
//! expired slot has its whole burst again, so forgetting it changes nothing. Only a claim waits for other claims in
//! these buckets, which last a few instructions.
//!
//! *The table holds as many keys as it is made for*: it has twice as many slots, and the emptier of two buckets is
//! filled (Mitzenmacher: The Power of Two Choices in Randomized Load Balancing, 2001). With all keys active, both
//! buckets of a key are full once in 10^9 times.
//!
//! *When all 16 slots hold keys with a debt*, the key with the smallest debt loses its slot: its next request counts
//! as its first. The error favours that client, by at most the share of a burst that it had used.
//!
//! *When a thread is descheduled in the middle of a claim* for longer than others wait (`PATIENCE`), a request that
//! needs that bucket passes uncounted, or its key gets a second slot. This is better than blocking a core behind a
//! thread that does not run.
//!
//! Invariant: except in that case, no key has two slots.

use super::gcra::{Decision, NEVER, Rate, Time};
use foldhash::SharedSeed;
use foldhash::quality::SeedableRandomState;
use std::hash::{BuildHasher, Hash, RandomState};
use std::hint::spin_loop;
use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};

const SLOTS: usize = 8;

/// Slots per key that a table is made for.
const SLACK: usize = 2;

/// Buckets that are allocated together, at the first request for one of them: 16 KiB. A limit that is hardly used
/// takes hardly any memory.
const SEGMENT: usize = 128;

/// Hash of a slot that is being claimed. An empty slot has the hash 0, and its TAT has always passed.
const CLAIMED: u64 = 1;

/// Number of waits for a claim before giving up. The first waits spin, the others yield to another thread. In total
/// they are longer than a claim, unless its thread was descheduled in the middle of it.
const PATIENCE: u32 = 1000;
const SPINS: u32 = 64;

/// A key, hashed with the table's own seed, so outsiders cannot know which keys share a bucket.
///
/// Two keys with the same 64-bit hash share a limit. Among 65,536 keys the chance of one such pair is one in 10^10.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Key(u64);

pub(super) struct Table {
    seeds: Seeds,
    hasher: SeedableRandomState,
    buckets: usize,
    segments: Box<[OnceLock<Box<[Bucket]>>]>,
    patience: u32,
}

/// The seeds of the key hashes. Random, and known only to this process and to the one that takes over its counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seeds {
    /// Shared by all tables of a process, because foldhash needs it for the life of the process.
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

/// A key must be looked up again.
struct Moved;

// === impl Table ===

impl Table {
    /// A table for `keys` keys. Memory: 32 bytes per key once in use, in steps of 16 KiB.
    pub(super) fn new(keys: usize) -> Self {
        let (shared, seed) = shared_seed(random);
        Self::of(keys, Seeds { shared: *shared, own: random() }, seed)
    }

    /// A table for keys hashed in another process; `None` if this process has already hashed keys with another seed.
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

    /// The keys with a debt, and the size of each debt. Requests may continue during the call.
    pub(super) fn debts(&self, now: Time) -> Vec<(u64, Time)> {
        let buckets = self.segments.iter().filter_map(OnceLock::get).flat_map(|segment| segment.iter());
        let slots = buckets.flat_map(|bucket| &bucket.0);
        let debts = slots.map(|slot| (slot.key.load(Acquire), slot.tat.load(Acquire).saturating_sub(now)));
        debts.filter(|(key, debt)| *key > CLAIMED && *debt > 0).collect()
    }

    /// Sets the TAT of a key in a table that no request uses yet. If its buckets are full, one key is dropped.
    pub(super) fn restore(&self, key: u64, tat: Time, now: Time) {
        let pair = self.pair(Key(key));
        let Some(slot) = pair.emptier(now).iter().find(|slot| slot.tat.load(Relaxed) <= now) else { return };
        slot.tat.store(tat, Relaxed);
        slot.key.store(key.max(CLAIMED + 1), Release);
    }

    /// A table with another number of waits before giving up on a claim.
    #[cfg(test)]
    pub(super) fn with_patience(mut self, patience: u32) -> Self {
        self.patience = patience;
        self
    }

    /// Leaves an unfinished claim in the key's buckets, in a slot above all that are used first.
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

    /// Refunds the charge of a request of `key`.
    pub(super) fn refund(&self, key: Key, amount: Time) {
        if let Some(slot) = self.pair(key).find(key) {
            slot.change(key, |tat| tat.saturating_sub(amount));
        }
    }

    /// Takes more, even if it does not fit; returns how much of the window is then taken.
    pub(super) fn force(&self, key: Key, rate: &Rate, amount: Time, now: Time) -> Time {
        let pair = self.pair(key);
        let forced = |slot: &Slot| slot.change(key, |tat| rate.forced(tat, now, amount));
        let known = pair.find(key).and_then(forced);
        known
            .or_else(|| {
                // The slot was taken for another key. This gives the key a slot again, with one request that is part
                // of the amount.
                self.charge(key, rate, now);
                let rest = amount.saturating_sub(rate.amount);
                pair.find(key)?.change(key, |tat| rate.forced(tat, now, rest))
            })
            .map_or(0, |tat| tat.saturating_sub(now))
    }

    /// The two buckets of a key.
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

/// An odd number that spreads the bits of a hash: the golden ratio, as in Fibonacci hashing (Knuth: The Art of
/// Computer Programming, volume 3, 6.4).
const MIX: u64 = 0x9e37_79b9_7f4a_7c15;

/// The seed shared by all tables of this process, and the number that it is made from. `choose` is called once.
fn shared_seed(choose: impl FnOnce() -> u64) -> &'static (u64, SharedSeed) {
    static SHARED: OnceLock<(u64, SharedSeed)> = OnceLock::new();
    SHARED.get_or_init(|| {
        let number = choose();
        (number, SharedSeed::from_u64(number))
    })
}

/// A number that outsiders cannot know: the standard library gets it from the system.
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

    /// The bucket with more free slots.
    fn emptier(&self, now: Time) -> &'t [Slot; SLOTS] {
        let Self([first, second]) = *self;
        let free = |bucket: &Bucket| bucket.0.iter().filter(|slot| slot.tat.load(Acquire) <= now).count();
        if free(first) >= free(second) { &first.0 } else { &second.0 }
    }

    /// Gives `key` a slot and charges one request to it.
    fn insert(&self, key: Key, rate: &Rate, now: Time, patience: u32) -> Result<Decision, Moved> {
        let (slot, owner, tat) = self.victim(key, now)?;
        slot.key.compare_exchange(owner, CLAIMED, SeqCst, Relaxed).map_err(|_| Moved)?;
        let (next, decision) = match rate.decide(NEVER, now) {
            Ok(first) => first,
            Err(denied) => (NEVER, denied), // impossible with a burst of at least one
        };
        // The TAT changes before the hash does. A thread that is charging the former owner then finds that the TAT is
        // not the one it read. If that thread was faster, the slot is not free after all.
        let sole = self.is_sole_claim(slot, key, patience);
        if !sole || slot.tat.compare_exchange(tat, next, SeqCst, Relaxed).is_err() {
            slot.key.store(owner, SeqCst);
            return Err(Moved);
        }
        slot.key.store(key.0, SeqCst);
        Ok(decision)
    }

    /// The slot to claim, with its owner and TAT: the first free slot of the emptier bucket, otherwise the slot that
    /// will be free soonest.
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

    /// Whether no other thread is giving `key` a slot at the same time, after `claimed` was claimed for it.
    ///
    /// Of two claims in one bucket, the lower one stands. The higher claim sees the lower one and withdraws, unless
    /// it had already passed that slot; then the lower claim sees the higher one and waits for its outcome. Claims
    /// and checks are sequentially consistent, so at least one of the two sees the other. "Lower" compares addresses
    /// in memory. All threads agree on them, whatever buckets their keys have, so waits never form a cycle.
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
    /// Changes the key's TAT and returns the new one; `None` if the slot now belongs to another key.
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
            // The order matters: if the slot still belongs to the key after its TAT was read, the TAT was the key's.
            // The swap fails if that has changed since.
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
