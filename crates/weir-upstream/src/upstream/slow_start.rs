//! Slow start: an endpoint that has just entered rotation gets its share gradually.
//!
//! The balancer chooses as usual. An endpoint that warms up accepts the request with a chance that grows with time;
//! otherwise the balancer chooses again without it. So this works with every balancer and costs nothing while no
//! endpoint warms up.

use super::balance::{Key, Random, digest, mix};
use super::endpoint::LocalEndpoint;
use super::excluded::Excluded;
use super::health::{changes, clock};
use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

/// The slow start of one upstream on one core.
pub(super) struct SlowStart {
    /// How long it lasts, in milliseconds.
    lasts: u64,
    /// The value of [`changes`] when `until` was computed; 0 before that.
    seen: Cell<u64>,
    /// When the last endpoint will have warmed up, on [`clock`]; 0 while none is warming up.
    until: Cell<u64>,
    random: RefCell<Random>,
}

/// The share that an endpoint starts with: enough to warm its caches and its compiler.
const FIRST: f64 = 0.1;

/// How often endpoints that warm up may decline a request. If all do, one of them must accept it.
const MAX_TURNED_AWAY: u32 = 3;

impl SlowStart {
    pub(super) fn new(lasts: Duration, seed: u64) -> Self {
        let lasts = u64::try_from(lasts.as_millis()).unwrap_or(u64::MAX).max(1);
        Self { lasts, seen: Cell::new(0), until: Cell::new(0), random: RefCell::new(Random::new(seed)) }
    }

    /// Called when the endpoints have changed.
    #[inline]
    pub(super) fn update(&self) {
        self.seen.set(0);
    }

    /// Where a request goes if the balancer chose this endpoint. `again` chooses without the tried ones.
    pub(super) fn consider(
        &self,
        chosen: usize,
        endpoints: &[LocalEndpoint],
        tried: &Excluded,
        key: Option<Key>,
        again: impl Fn(&Excluded) -> Option<usize>,
    ) -> usize {
        let changes = changes();
        if self.seen.get() != changes {
            let latest = endpoints.iter().map(since).max().unwrap_or(0);
            self.until.set(if latest == 0 { 0 } else { latest.saturating_add(self.lasts) });
            self.seen.set(changes);
        }
        if self.until.get() == 0 {
            return chosen;
        }
        let now = clock(Instant::now());
        if self.until.get() <= now {
            self.until.set(0);
            return chosen;
        }
        let (mut chosen, mut tried) = (chosen, tried.clone());
        for _ in 0..MAX_TURNED_AWAY {
            let endpoint = &endpoints[chosen];
            if self.chance(endpoint, key) < self.share(endpoint, now) {
                break;
            }
            tried.insert(chosen);
            match again(&tried) {
                Some(other) => chosen = other,
                None => break,
            }
        }
        chosen
    }

    /// The fraction of its share that an endpoint gets.
    fn share(&self, endpoint: &LocalEndpoint, now: u64) -> f64 {
        match since(endpoint) {
            0 => 1.0,
            since => FIRST + (1.0 - FIRST) * now.saturating_sub(since) as f64 / self.lasts as f64,
        }
    }

    /// A number from 0 to 1. With a key it is always the same, so that a key moves to the endpoint once and stays.
    fn chance(&self, endpoint: &LocalEndpoint, key: Option<Key>) -> f64 {
        let number = match key {
            Some(key) => mix(key.get() ^ digest(endpoint.endpoint.label.as_bytes())),
            None => self.random.borrow_mut().next(),
        };
        (number >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// When an endpoint entered rotation, on [`clock`]; 0 if it has been there from the start.
fn since(endpoint: &LocalEndpoint) -> u64 {
    endpoint.joined.max(endpoint.endpoint.health.back_since())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::balance::testing::endpoints;

    /// How many of 1,000 requests meant for an endpoint it gets, this long after it entered.
    fn taken(seconds: u64, keyed: bool) -> usize {
        let (now, slow) = (clock(Instant::now()), SlowStart::new(Duration::from_secs(1000), 7));
        let mut endpoints = endpoints(&[1]);
        endpoints[0].joined = now;
        let share = slow.share(&endpoints[0], now + seconds * 1000);
        let mut random = Random::new(3);
        let mut key = || if keyed { Key::new(random.next()) } else { None };
        (0..1000).filter(|_| slow.chance(&endpoints[0], key()) < share).count()
    }

    #[test]
    fn the_share_grows_from_a_tenth_to_all() {
        for keyed in [false, true] {
            assert!((70..130).contains(&taken(0, keyed)), "{}", taken(0, keyed));
            assert!((500..600).contains(&taken(500, keyed)), "{}", taken(500, keyed));
            assert_eq!(taken(1000, keyed), 1000);
        }
    }

    #[test]
    fn others_take_what_it_does_not() {
        let mut endpoints = endpoints(&[1, 1]);
        endpoints[0].joined = clock(Instant::now());
        let slow = SlowStart::new(Duration::from_secs(10_000), 7);
        let none = Excluded::default();
        let consider = |again: Option<usize>| slow.consider(0, &endpoints, &none, None, |_| again);
        let kept = (0..1000).filter(|_| consider(Some(1)) == 0).count();
        assert!((70..130).contains(&kept), "{kept}");
        assert!((0..100).all(|_| consider(None) == 0), "there is no other");
        // A key moves once: after that it always goes to the new endpoint.
        let key = |n| Key::new(mix(n));
        let goes = |n| slow.consider(0, &endpoints, &none, key(n), |_| Some(1));
        assert!((0..100).all(|n| goes(n) == goes(n)));
    }

    #[test]
    fn who_was_there_from_the_beginning_has_its_share() {
        let endpoints = endpoints(&[1, 1]);
        let slow = SlowStart::new(Duration::from_secs(10_000), 7);
        let none = Excluded::default();
        let unasked = |_: &Excluded| -> Option<usize> { unreachable!("nobody warms up") };
        assert!((0..100).all(|_| slow.consider(0, &endpoints, &none, None, unasked) == 0));
        assert_eq!(slow.until.get(), 0);
    }
}
