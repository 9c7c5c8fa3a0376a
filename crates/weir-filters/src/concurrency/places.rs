//! Places for requests: how many exist, and which requests hold or wait for one.
//!
//! ```text
//!   State ─┬─ all: Places              everybody together
//!          ├─ consumers: Places each   by name
//!          └─ Keyed ─ Places each      by a key that clients choose: kept only while a place is held or wanted
//! ```
//! A place is a [`Slot`], and dropping the slot frees it. The end of an exchange, a panic and a client that leaves
//! all drop the slot, so each place is freed exactly once.
//!
//! The shared places and those of consumers are found without a lock, and taking a free one is one atomic operation.
//! Places by key are split into 64 shards; finding one holds the lock of its shard for a look-up.

use super::super::shared::by::Key;
use foldhash::quality::RandomState;
use std::collections::HashMap;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use tokio::sync::{Semaphore, SemaphorePermit};
use weir_filter::filter::Consumers;

/// Shards of the keyed places, each with its own lock.
const SHARDS: usize = 64;

/// Places under one limit.
#[derive(Debug)]
pub(super) struct Places {
    /// Free places. The semaphore serves waiters first in, first out, on any core.
    free: Semaphore,
    limit: AtomicUsize,
    /// Places to remove as soon as they are freed, because the limit sank below the number taken.
    owed: AtomicUsize,
    waiting: AtomicUsize,
}

/// The right of a request to ask for a place.
#[derive(Debug)]
pub(super) struct Claim {
    pub(super) places: Arc<Places>,
    home: Option<(Arc<Keyed>, u64)>,
}

/// A taken place.
#[derive(Debug)]
pub(super) struct Slot(Claim);

/// A request in the queue.
#[derive(Debug)]
pub(super) struct Waiter(Claim);

/// Places by the hash of their key, with the number of claims to them, which changes only under the lock.
type Shard = HashMap<u64, (usize, Arc<Places>)>;

/// Places by key.
#[derive(Debug)]
pub(super) struct Keyed {
    hasher: RandomState,
    shards: [Mutex<Shard>; SHARDS],
    limit: usize,
}

/// The state that survives a reload.
#[derive(Debug)]
pub(super) struct State {
    pub(super) all: Arc<Places>,
    keyed: Arc<Keyed>,
    /// By name, because positions change with the config. Locked while a snapshot is built, never by a request.
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

    /// The limit.
    pub(super) fn limit(&self) -> usize {
        self.limit.load(Relaxed)
    }

    /// How many places are taken.
    pub(super) fn taken(&self) -> usize {
        let there = self.limit.load(Relaxed) + self.owed.load(Relaxed);
        there.saturating_sub(self.free.available_permits())
    }

    /// How many requests wait for a place.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        self.waiting.load(Relaxed)
    }

    /// Changes the limit. Only one thread at a time may call it.
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

    /// Removes a freed place if places are still to be removed.
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
    /// A claim to places that live as long as the filter.
    pub(super) const fn to(places: Arc<Places>) -> Self {
        Self { places, home: None }
    }

    /// Takes a place if one is free and no request is waiting.
    pub(super) fn take(self) -> Result<Slot, Self> {
        let taken = self.places.free.try_acquire().map(SemaphorePermit::forget).is_ok();
        if taken { Ok(Slot(self)) } else { Err(self) }
    }

    /// Joins the queue if fewer than `queue` requests wait.
    pub(super) fn wait(self, queue: usize) -> Option<Waiter> {
        let waiter = Waiter(self); // dropping it decrements the count
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
    /// Waits for a place; earlier waiters go first.
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

    /// The claim for a key. Two keys with the same 64-bit hash share their places: among a million clients the chance
    /// of one such pair is one in 10^7.
    pub(super) fn claim(self: &Arc<Self>, key: &Key<'_>) -> Claim {
        let hash = self.hasher.hash_one(key);
        let mut shard = self.shard(hash);
        let (claims, places) = shard.entry(hash).or_insert_with(|| (0, Arc::new(Places::new(self.limit))));
        *claims += 1;
        Claim { places: Arc::clone(places), home: Some((Arc::clone(self), hash)) }
    }

    /// Drops places with their last claim.
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

    /// The places of each consumer, keeping those that exist.
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
        // Polled once each, both are in the queue.
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
        drop(first); // the place belongs to the second, which has not been polled yet
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

    /// Clients choose the keys, so none may be left behind when two claims leave at the same moment, each still
    /// holding the places.
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
