//! Places for requests: how many there are, who holds one, who waits for one.
//!
//! ```text
//!   State ─┬─ all: Places              everybody together
//!          ├─ consumers: Places each   by name
//!          └─ Keyed ─ Places each      by a key that clients choose: there only while somebody holds or wants a place
//! ```
//! A place is a [`Slot`], whose drop gives it back: the end of an exchange, a panic and a client that leaves are all the same
//! drop, so a place is given back exactly once.
//!
//! The places of everybody and of consumers are found without a lock, and taking a free one is one atomic operation. Those by
//! key are found under the lock of one 64th of them, held for a look-up.

use super::super::shared::by::Key;
use foldhash::quality::RandomState;
use std::collections::HashMap;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use tokio::sync::{Semaphore, SemaphorePermit};
use weir_filter::filter::Consumers;

/// How many parts of the keyed places have a lock of their own.
const SHARDS: usize = 64;

/// Places that share one limit.
#[derive(Debug)]
pub(super) struct Places {
    /// Free places. It serves those who wait in the order in which they came, whatever their core.
    free: Semaphore,
    limit: AtomicUsize,
    /// Places that are gone as soon as they are given back: the limit sank below what was taken.
    owed: AtomicUsize,
    waiting: AtomicUsize,
}

/// What a request was given: a right to ask for a place.
#[derive(Debug)]
pub(super) struct Claim {
    pub(super) places: Arc<Places>,
    home: Option<(Arc<Keyed>, u64)>,
}

/// A place that is taken.
#[derive(Debug)]
pub(super) struct Slot(Claim);

/// One of those who wait.
#[derive(Debug)]
pub(super) struct Waiter(Claim);

/// Places by the hash of their key, with the claims to them, which are counted under the lock.
type Shard = HashMap<u64, (usize, Arc<Places>)>;

/// Places by key.
#[derive(Debug)]
pub(super) struct Keyed {
    hasher: RandomState,
    shards: [Mutex<Shard>; SHARDS],
    limit: usize,
}

/// What survives a reload.
#[derive(Debug)]
pub(super) struct State {
    pub(super) all: Arc<Places>,
    keyed: Arc<Keyed>,
    /// By name: positions change with the config. Locked while a snapshot is built, never by a request.
    consumers: Mutex<HashMap<String, Weak<Places>>>,
}

// === impl Places ===

impl Places {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            free: Semaphore::new(limit.min(Semaphore::MAX_PERMITS)),
            limit: AtomicUsize::new(limit),
            owed: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
        }
    }

    /// How many there are.
    pub(super) fn limit(&self) -> usize {
        self.limit.load(Relaxed)
    }

    /// How many are taken.
    pub(super) fn taken(&self) -> usize {
        let there = self.limit.load(Relaxed) + self.owed.load(Relaxed);
        there.saturating_sub(self.free.available_permits())
    }

    /// How many wait for one.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        self.waiting.load(Relaxed)
    }

    /// Changes how many there are. One thread at a time.
    pub(super) fn set_limit(&self, limit: usize) {
        let before = self.limit.swap(limit, Relaxed);
        if limit < before {
            let gone = self.free.forget_permits(before - limit);
            self.owed.fetch_add(before - limit - gone, Relaxed);
        }
        for _ in before..limit {
            if !self.pay() {
                self.free.add_permits(1);
            }
        }
    }

    /// Takes one place off what is owed, if anything is.
    fn pay(&self) -> bool {
        let less = |owed: usize| owed.checked_sub(1);
        self.owed.load(Relaxed) > 0 && self.owed.fetch_update(Relaxed, Relaxed, less).is_ok()
    }

    fn give_back(&self) {
        if !self.pay() {
            self.free.add_permits(1);
        }
    }
}

// === impl Claim ===

impl Claim {
    /// One to places that are always there.
    pub(super) const fn to(places: Arc<Places>) -> Self {
        Self { places, home: None }
    }

    /// A place, if one is free and nobody waits for it.
    pub(super) fn take(self) -> Result<Slot, Self> {
        let taken = self.places.free.try_acquire().map(SemaphorePermit::forget).is_ok();
        if taken { Ok(Slot(self)) } else { Err(self) }
    }

    /// Joins those who wait, if fewer than `queue` do.
    pub(super) fn wait(self, queue: usize) -> Option<Waiter> {
        let waiter = Waiter(self); // whose drop counts it off again
        (waiter.0.places.waiting.fetch_add(1, Relaxed) < queue).then_some(waiter)
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if let Some((keyed, key)) = self.home.take() {
            keyed.leave(key);
        }
    }
}

impl Waiter {
    /// Waits for a place; whoever came before has one first.
    pub(super) async fn place(mut self) -> Option<Slot> {
        self.0.places.free.acquire().await.ok()?.forget();
        let claim = Claim { places: Arc::clone(&self.0.places), home: self.0.home.take() };
        Some(Slot(claim))
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        self.0.places.waiting.fetch_sub(1, Relaxed);
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.places.give_back();
    }
}

// === impl Keyed ===

impl Keyed {
    fn new(limit: usize) -> Self {
        Self { hasher: RandomState::default(), shards: std::array::from_fn(|_| Mutex::default()), limit }
    }

    /// The claim of who has this key. Two keys with the same 64 bits share their places: among a million clients the chance
    /// of one such pair is one in 10^7.
    pub(super) fn claim(self: &Arc<Self>, key: &Key<'_>) -> Claim {
        let hash = self.hasher.hash_one(key);
        let mut shard = self.shard(hash);
        let (claims, places) = shard.entry(hash).or_insert_with(|| (0, Arc::new(Places::new(self.limit))));
        *claims += 1;
        Claim { places: Arc::clone(places), home: Some((Arc::clone(self), hash)) }
    }

    /// Forgets places with their last claim.
    fn leave(&self, key: u64) {
        let mut shard = self.shard(key);
        let Some((claims, _)) = shard.get_mut(&key) else { return };
        *claims -= 1;
        if *claims == 0 {
            shard.remove(&key);
        }
    }

    fn shard(&self, key: u64) -> MutexGuard<'_, Shard> {
        self.shards[key as usize % SHARDS].lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().unwrap().len()).sum()
    }
}

// === impl State ===

impl State {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            all: Arc::new(Places::new(limit)),
            keyed: Arc::new(Keyed::new(limit)),
            consumers: Mutex::default(),
        }
    }

    pub(super) const fn keyed(&self) -> &Arc<Keyed> {
        &self.keyed
    }

    /// Places of each consumer: those it had, where it had some.
    pub(super) fn of_consumers(&self, consumers: &Consumers) -> Vec<Arc<Places>> {
        let mut known = self.consumers.lock().unwrap_or_else(PoisonError::into_inner);
        let mut places_of = |name: &String| {
            known.get(name).and_then(Weak::upgrade).unwrap_or_else(|| {
                let places = Arc::new(Places::new(self.keyed.limit));
                known.insert(name.clone(), Arc::downgrade(&places));
                places
            })
        };
        let places = consumers.iter().map(|consumer| places_of(&consumer.name)).collect();
        known.retain(|_, places| places.strong_count() > 0);
        places
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(places: &Arc<Places>) -> Claim {
        Claim::to(Arc::clone(places))
    }

    #[tokio::test]
    async fn places_are_given_in_the_order_of_asking() {
        let places = Arc::new(Places::new(1));
        let first = claim(&places).take().unwrap();
        let mut second = Box::pin(claim(&places).wait(2).unwrap().place());
        let mut third = Box::pin(claim(&places).wait(2).unwrap().place());
        assert!(claim(&places).wait(2).is_none(), "the queue is full");
        assert_eq!((places.taken(), places.waiting()), (1, 2));
        // Polled once each, they stand in line.
        assert!(futures_poll(&mut second).is_none() && futures_poll(&mut third).is_none());
        drop(first);
        assert!(claim(&places).take().is_err(), "who comes late takes no place from those who wait");
        assert!(futures_poll(&mut third).is_none());
        let second = futures_poll(&mut second).unwrap();
        drop(second);
        let third = futures_poll(&mut third).unwrap();
        assert_eq!((places.taken(), places.waiting()), (1, 0));
        drop(third);
        assert_eq!(places.taken(), 0);
    }

    fn futures_poll<T>(future: &mut std::pin::Pin<Box<impl Future<Output = Option<T>>>>) -> Option<T> {
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        match future.as_mut().poll(&mut cx) {
            std::task::Poll::Ready(done) => done,
            std::task::Poll::Pending => None,
        }
    }

    #[test]
    fn whoever_leaves_the_queue_keeps_no_place() {
        let places = Arc::new(Places::new(1));
        let first = claim(&places).take().unwrap();
        let mut second = Box::pin(claim(&places).wait(1).unwrap().place());
        assert!(futures_poll(&mut second).is_none());
        drop(first); // the place is the second one's, who has not looked yet
        drop(second);
        assert_eq!((places.taken(), places.waiting()), (0, 0));
    }

    #[test]
    fn a_limit_that_sinks_takes_places_as_they_are_given_back() {
        let places = Arc::new(Places::new(4));
        let mut slots: Vec<_> = (0..3).map(|_| claim(&places).take().unwrap()).collect();
        places.set_limit(1);
        assert_eq!(places.taken(), 3);
        assert!(claim(&places).take().is_err());
        slots.pop();
        slots.pop();
        assert!(claim(&places).take().is_err(), "one is taken, and there is one");
        places.set_limit(3);
        let more: Vec<_> = (0..2).map(|_| claim(&places).take().unwrap()).collect();
        assert!(claim(&places).take().is_err());
        places.set_limit(1);
        places.set_limit(2);
        drop((slots, more));
        let again: Vec<_> = (0..2).map(|_| claim(&places).take().unwrap()).collect();
        assert!(claim(&places).take().is_err());
        drop(again);
        assert_eq!(places.taken(), 0);
    }

    #[test]
    fn places_by_key_are_there_only_while_they_are_wanted() {
        let keyed = Arc::new(Keyed::new(1));
        let (a, b) = (Key::V4(1), Key::V4(2));
        let held = keyed.claim(&a).take().unwrap();
        assert!(keyed.claim(&a).take().is_err());
        let other = keyed.claim(&b).take().unwrap();
        assert_eq!(keyed.len(), 2);
        let waiter = keyed.claim(&a).wait(1).unwrap();
        drop(held);
        assert_eq!(keyed.len(), 2, "somebody waits");
        let mut place = Box::pin(waiter.place());
        let slot = futures_poll(&mut place).unwrap();
        drop(place);
        assert_eq!(keyed.len(), 2);
        drop((slot, other));
        assert_eq!(keyed.len(), 0);
    }

    /// Clients choose the keys: none may be left behind by two that leave at the same moment, each still holding the places.
    #[test]
    fn the_last_claim_forgets_its_key_whoever_else_holds_the_places() {
        let keyed = Arc::new(Keyed::new(1));
        let claim = keyed.claim(&Key::V4(1));
        let leaving = Arc::clone(&claim.places);
        drop(claim);
        assert_eq!(keyed.len(), 0);
        drop(leaving);
    }
}
