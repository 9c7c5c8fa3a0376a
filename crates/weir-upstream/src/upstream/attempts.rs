//! The attempts of one request: which endpoint gets the next one, if `retry` decides to make one.
//!
//! Three repeats are harmless and need no policy: a failed connect, for any method, at another endpoint; the
//! keep-alive race; and, once and at another endpoint, an idempotent request that was reset. `retry` decides all
//! others. The caller reports each attempt's result; nothing here reads or writes a connection.

use super::balance::{Key, address_key};
use super::budget::Extra;
use super::connect::{Wanted, try_again};
use super::connection::ConnectError;
use super::endpoint::{Active, LocalEndpoint, Place};
use super::excluded::Excluded;
use super::local::LocalUpstream;
use super::retry::{Decision, Lost, Tally, World};
use crate::error::{self, Cause};
use smallvec::SmallVec;
use std::net::IpAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};
use weir_h1::RequestHead;

/// The attempts of one request.
pub struct Attempts {
    places: Places,
    /// The counts by which `retry` decides.
    tally: Tally,
    /// Why the last endpoint was unreachable.
    last: &'static Cause,
    /// Whether an endpoint was tried, even if only by a failed connect.
    tried: bool,
    /// Where the next attempt goes, if already known.
    next: Option<usize>,
}

/// The endpoints that attempts can use.
struct Places {
    endpoints: Rc<[LocalEndpoint]>,
    /// The key for `hash`.
    key: Option<Key>,
    /// Endpoints that were unreachable.
    unreached: Excluded,
    /// Endpoints at which an attempt failed; used again only if there is no other.
    failed: Excluded,
}

impl Attempts {
    /// The attempts of a request that nothing ties to an endpoint.
    #[inline] // built in place instead of being copied
    pub fn new(upstream: &LocalUpstream) -> Self {
        upstream.arrivals.count(Instant::now);
        let places = Places {
            endpoints: upstream.endpoints(),
            key: None,
            unreached: Excluded::default(),
            failed: Excluded::default(),
        };
        Self { places, tally: Tally::default(), last: &error::NO_ENDPOINT, tried: false, next: None }
    }

    /// Ties the attempts of a request to the endpoint that its key for `hash` or the cookie of `sticky` leads to.
    /// `client` is its address, `computed` the text of [`By::Computed`](super::balance::By::Computed).
    ///
    /// After [`Attempts::new`] instead of in place of it, because a struct that is returned changed is copied.
    #[inline]
    pub fn tie(
        &mut self,
        upstream: &LocalUpstream,
        head: &RequestHead,
        client: impl FnOnce() -> IpAddr,
        computed: impl FnOnce() -> Option<Vec<u8>>,
    ) {
        if let Some(hash) = &upstream.spec.balancer.hash {
            self.places.key = hash.by.key(head, client, computed);
        }
        if upstream.spec.sticky.is_some() {
            self.next = upstream.stuck_to(&self.places.endpoints, head);
        }
    }

    /// The attempts of a connection that carries bytes, of a client at this address.
    pub fn of_address(upstream: &LocalUpstream, client: IpAddr) -> Self {
        let mut attempts = Self::new(upstream);
        // Bytes have nothing else to hash.
        attempts.places.key = upstream.spec.balancer.hash.as_ref().and_then(|_| address_key(client));
        attempts
    }

    /// Where a second attempt goes while the first is slow: to another endpoint in rotation, or to the only one. The
    /// budget pays for it. `None` if the request has arrived as often as it may, no endpoint is left, or the budget
    /// is spent.
    pub fn hedge(&mut self, upstream: &LocalUpstream, first: &Active) -> Option<Active> {
        let hedge = upstream.spec.hedge.as_ref()?;
        if !self.tally.may_hedge(upstream.spec.retry.as_ref()) {
            return None;
        }
        let Places { endpoints, key, .. } = &self.places;
        let mut tried = self.places.tried();
        if endpoints.len() > 1 {
            tried.insert(first.index());
        }
        let index = upstream.pick_in_rotation(endpoints, &tried, *key)?;
        if hedge.budget <= 0.0 || !upstream.spec.budget.spend(Extra::Hedge, hedge.budget, Instant::now()) {
            upstream.cells.hedges_refused.inc();
            return None;
        }
        Some(Active::new(endpoints, index))
    }

    /// Counts a second attempt that was sent: the request arrives once more.
    #[inline]
    pub fn hedged(&mut self) {
        self.tally.hedged();
    }

    /// Where the next attempt goes.
    ///
    /// # Errors
    /// Why there is none: no endpoint is left.
    #[inline]
    pub fn next(&mut self, upstream: &Rc<LocalUpstream>) -> Result<Active, &'static Cause> {
        let places = &self.places;
        let mut chosen = self.next.take();
        if chosen.is_none() && !places.unreached.is_empty() {
            chosen = places.another(upstream);
        }
        if chosen.is_none() && !places.failed.is_empty() {
            chosen = places.untried(upstream); // a race does not implicate a zone
        }
        let chosen = chosen.or_else(|| upstream.pick(&places.endpoints, &places.unreached, places.key));
        while let Some(index) = upstream.take_trial() {
            try_again(upstream, &places.endpoints, index);
        }
        let index = chosen.ok_or_else(|| self.none())?;
        self.tally.begin();
        Ok(Active::new(&self.places.endpoints, index))
    }

    /// Why no endpoint is left.
    #[cold]
    #[inline]
    fn none(&self) -> &'static Cause {
        let untried = *self.last == error::NO_ENDPOINT && !self.places.endpoints.is_empty();
        if untried { &error::NO_HEALTHY_ENDPOINT } else { self.last }
    }

    /// What the next attempt needs of a connection. `once` means that the request must not be sent twice.
    #[inline]
    pub const fn wanted(&self, once: bool) -> Wanted {
        Wanted { fresh: self.tally.wants_fresh(), once, end: None, another: false, owner: None }
    }

    /// Counts an attempt as a retry unless it is the first. At an avoided endpoint nothing was tried, so it does not
    /// count.
    #[inline]
    pub fn count(&mut self, upstream: &LocalUpstream) {
        if std::mem::replace(&mut self.tried, true) {
            upstream.cells.retries.inc();
        }
    }

    /// Whether another endpoint in rotation can be tried if this one is unreachable.
    #[inline]
    pub fn has_another(&self, upstream: &LocalUpstream, active: &Active) -> bool {
        let Places { endpoints, unreached, .. } = &self.places;
        if endpoints.len() < 2 || !self.tally.may_time_out() {
            return false;
        }
        let mut tried = unreached.clone();
        tried.insert(active.index());
        upstream.has_in_rotation(endpoints, &tried)
    }

    /// Notes that there was no connection.
    ///
    /// # Errors
    /// Why the request fails, if no other endpoint is to be tried.
    #[inline]
    pub fn unreached(
        &mut self,
        upstream: &LocalUpstream,
        active: &Active,
        e: ConnectError,
    ) -> Result<(), &'static Cause> {
        if let Some(outcome) = e.outcome {
            upstream.cells.attempt(outcome);
        }
        // The error of a real attempt says more than that of a skipped one.
        if e.outcome.is_some() || *self.last == error::NO_ENDPOINT {
            self.last = e.cause;
        }
        if !self.tally.unreached(e.elsewhere, *e.cause == error::CONNECT_TIMEOUT) {
            return Err(e.cause);
        }
        self.places.unreached.insert(active.index());
        Ok(())
    }

    /// Records a failed attempt. Returns the pause before the next one, if there is one. `end` is the exchange's
    /// deadline.
    pub fn again(
        &mut self,
        upstream: &LocalUpstream,
        active: &Active,
        lost: Lost,
        end: Option<Instant>,
    ) -> Option<Duration> {
        let world = &mut Here { upstream, places: &mut self.places, active, end };
        match self.tally.again(upstream.spec.retry.as_ref(), lost, world) {
            Decision::Again { at, pause } => {
                self.next = at;
                Some(pause)
            }
            Decision::Never => None,
            Decision::Unpaid => {
                upstream.cells.retries_refused.inc();
                None
            }
        }
    }
}

// === impl Places ===

impl Places {
    /// An endpoint in rotation at which no attempt of this request has failed, in another zone if there is one.
    #[cold]
    #[inline]
    fn another(&self, upstream: &LocalUpstream) -> Option<usize> {
        let closed = beyond_zones(&self.endpoints, &self.tried());
        closed
            .and_then(|closed| upstream.pick_in_rotation(&self.endpoints, &closed, self.key))
            .or_else(|| self.untried(upstream))
    }

    /// An endpoint in rotation at which no attempt of this request has failed.
    #[inline]
    fn untried(&self, upstream: &LocalUpstream) -> Option<usize> {
        upstream.pick_in_rotation(&self.endpoints, &self.tried(), self.key)
    }

    fn tried(&self) -> Excluded {
        self.failed.union(&self.unreached)
    }
}

/// The upstream's answers to `retry` about one failed attempt.
struct Here<'a> {
    upstream: &'a LocalUpstream,
    places: &'a mut Places,
    active: &'a Active,
    end: Option<Instant>,
}

impl World for Here<'_> {
    fn avoid(&mut self) {
        self.places.failed.insert(self.active.index());
    }

    fn another(&mut self) -> Option<usize> {
        self.places.another(self.upstream)
    }

    fn random(&mut self) -> u32 {
        self.upstream.resources.random()
    }

    fn has_time_for(&mut self, pause: Duration) -> bool {
        self.end.is_none_or(|end| Instant::now() + pause < end)
    }

    fn pays(&mut self, share: f64) -> bool {
        self.upstream.spec.budget.spend(Extra::Retry, share, Instant::now())
    }
}

/// The tried endpoints, and all others except those of the same priority in another zone: what takes one endpoint
/// down often takes its zone. `None` if no tried endpoint has a zone, or no zone is left. Examines all endpoints, so
/// it is for rare cases.
#[inline]
fn beyond_zones(endpoints: &[LocalEndpoint], tried: &Excluded) -> Option<Excluded> {
    let place = |i: usize| &endpoints[i].endpoint.place;
    let all = || 0..endpoints.len();
    let left: SmallVec<[&Place; 4]> =
        all().filter(|i| tried.contains(*i)).map(place).filter(|place| place.zone.is_some()).collect();
    let first = left.first()?;
    let is_beyond = |i: &usize| {
        let it = place(*i);
        it.priority == first.priority && left.iter().all(|other| other.zone != it.zone)
    };
    all().any(|i| is_beyond(&i)).then(|| all().filter(|i| tried.contains(*i) || !is_beyond(i)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::balance::testing::endpoints;
    use std::sync::Arc;

    #[test]
    fn another_zone_of_the_same_priority_is_left() {
        let zones = [(0, "a"), (0, "a"), (0, "b"), (0, ""), (1, "c"), (1, "d")];
        let mut endpoints = endpoints(&[1; 6]);
        for (local, (priority, zone)) in endpoints.iter_mut().zip(zones) {
            let zone = (!zone.is_empty()).then(|| zone.into());
            Arc::get_mut(&mut local.endpoint).unwrap().place = Place { priority, zone, elsewhere: false };
        }
        let left = |tried: &[usize]| {
            let closed = beyond_zones(&endpoints, &tried.iter().copied().collect())?;
            Some((0..6).filter(|i| !closed.contains(*i)).collect::<Vec<_>>())
        };
        assert_eq!(left(&[0]), Some(vec![2, 3]));
        assert_eq!(left(&[0, 2]), Some(vec![3]));
        assert_eq!(left(&[4]), Some(vec![5]));
        assert_eq!(left(&[4, 5]), None, "no zone is left");
        assert_eq!(left(&[3]), None, "it has no zone");
    }
}
