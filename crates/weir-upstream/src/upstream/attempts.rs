//! The attempts of one request: which endpoint gets the next one, and whether there is a next one.
//!
//! Three repeats are harmless and need no policy: a failed connect, for any method, at another endpoint; the
//! keep-alive race; and, once and at another endpoint, an idempotent request that was reset. `retry` decides all
//! others. The caller reports each attempt's result; nothing here reads or writes a connection.

use super::balance::Key;
use super::budget::Extra;
use super::connect::{Wanted, try_again};
use super::connection::ConnectError;
use super::endpoint::{Active, LocalEndpoint, Place};
use super::excluded::Excluded;
use super::local::LocalUpstream;
use super::retry::{Failed, Request};
use crate::error::{self, Cause};
use smallvec::SmallVec;
use std::net::IpAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};
use weir_h1::RequestHead;

/// The attempts of one request.
pub struct Attempts {
    endpoints: Rc<[LocalEndpoint]>,
    /// The key for `hash`.
    key: Option<Key>,
    /// Endpoints that were unreachable.
    unreached: Excluded,
    /// Endpoints at which an attempt failed; used again only if there is no other.
    failed: Excluded,
    /// Why the last endpoint was unreachable.
    last: &'static Cause,
    timed_out: u32,
    races: u32,
    /// Whether the next connection must not be from the pool.
    fresh: bool,
    /// Attempts that reached an endpoint, except races; hedged attempts are included.
    made: u32,
    hedges: u32,
    retries: u32,
    /// Whether an endpoint was tried, even if only by a failed connect.
    tried: bool,
    /// Where the next attempt goes, if already known.
    next: Option<usize>,
}

/// A request that its upstream has not processed, as far as can be known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Race {
    /// A reused connection ended before any byte of a response.
    KeptAlive,
    /// An HTTP/2 connection ended and said that it had not reached this stream (GOAWAY, RFC 9113 §6.8).
    LeftOut,
    /// The stream was refused, but its connection lives (RFC 9113 §8.7).
    Refused,
}

impl Race {
    /// Which race it was. `unseen`: the upstream said so; `reset`: only the stream was reset.
    pub const fn of(unseen: bool, reset: bool) -> Self {
        match (unseen, reset) {
            (true, true) => Self::Refused,
            (true, false) => Self::LeftOut,
            (false, _) => Self::KeptAlive,
        }
    }
}

/// How often a race is repeated on a pooled connection before a fresh one, which is the last. After a refused stream
/// the connection lives: opening another each time would answer load with load.
const MAX_RACES: u32 = 1;

/// Retries per request of an upstream without `retry`: the default of `retry.budget`.
const UNASKED: f64 = 0.2;

/// How many endpoints may let one request's connect time out: each costs a whole `timeouts.connect`.
const MAX_TIMED_OUT: u32 = 3;

impl Attempts {
    /// The attempts of a request that nothing ties to an endpoint.
    #[inline] // built in place instead of being copied
    pub fn new(upstream: &LocalUpstream) -> Self {
        upstream.arrivals.count(Instant::now);
        Self {
            endpoints: upstream.endpoints(),
            key: None,
            unreached: Excluded::default(),
            failed: Excluded::default(),
            last: &error::NO_ENDPOINT,
            timed_out: 0,
            races: 0,
            fresh: false,
            made: 0,
            hedges: 0,
            retries: 0,
            tried: false,
            next: None,
        }
    }

    /// The attempts of a request that may have a key for `hash`, or the cookie of `sticky`. `client` is its address.
    #[inline]
    pub fn of(upstream: &LocalUpstream, head: &RequestHead, client: impl FnOnce() -> IpAddr) -> Self {
        let mut attempts = Self::new(upstream);
        if let Some(hash) = &upstream.spec.balancer.hash {
            attempts.key = hash.by.key(head, client());
        }
        if upstream.spec.sticky.is_some() {
            attempts.next = upstream.stuck_to(&attempts.endpoints, head);
        }
        attempts
    }

    /// Where a second attempt goes while the first is slow: to another endpoint in rotation, or to the only one. The
    /// budget pays for it. `None` if the request has arrived as often as it may, no endpoint is left, or the budget
    /// is spent.
    pub fn hedge(&mut self, upstream: &LocalUpstream, first: &Active) -> Option<Active> {
        let hedge = upstream.spec.hedge.as_ref()?;
        let may_arrive = match &upstream.spec.retry {
            Some(retry) => self.made < retry.attempts,
            None => self.is_first(),
        };
        if !may_arrive {
            return None;
        }
        let mut tried = self.failed.union(&self.unreached);
        if self.endpoints.len() > 1 {
            tried.insert(first.index());
        }
        let index = upstream.pick_in_rotation(&self.endpoints, &tried, self.key)?;
        if hedge.budget <= 0.0 || !upstream.spec.budget.spend(Extra::Hedge, hedge.budget, Instant::now()) {
            upstream.cells.hedges_refused.inc();
            return None;
        }
        Some(Active::new(&self.endpoints, index))
    }

    /// Counts a second attempt that was sent: the request arrives once more.
    #[inline]
    pub fn hedged(&mut self) {
        self.made += 1;
        self.hedges += 1;
    }

    /// Whether the request was attempted only once, as far as an upstream without `retry` is concerned.
    #[inline]
    const fn is_first(&self) -> bool {
        self.retries + self.hedges == 0
    }

    /// Where the next attempt goes.
    ///
    /// # Errors
    /// Why there is none: no endpoint is left.
    #[inline]
    pub fn next(&mut self, upstream: &Rc<LocalUpstream>) -> Result<Active, &'static Cause> {
        let mut chosen = self.next.take();
        if chosen.is_none() && !self.unreached.is_empty() {
            chosen = self.pick_another(upstream);
        }
        if chosen.is_none() && !self.failed.is_empty() {
            chosen = self.pick_untried(upstream); // a race proves nothing about a zone
        }
        let chosen = chosen.or_else(|| upstream.pick(&self.endpoints, &self.unreached, self.key));
        while let Some(index) = upstream.take_trial() {
            try_again(upstream, &self.endpoints, index);
        }
        let index = chosen.ok_or_else(|| self.none())?;
        self.made += 1;
        Ok(Active::new(&self.endpoints, index))
    }

    /// Why there is no endpoint to try.
    #[cold]
    #[inline]
    fn none(&self) -> &'static Cause {
        let untried = *self.last == error::NO_ENDPOINT && !self.endpoints.is_empty();
        if untried { &error::NO_HEALTHY_ENDPOINT } else { self.last }
    }

    /// What the next attempt needs of a connection. `once` means that the request must not be sent twice.
    #[inline]
    pub const fn wanted(&self, once: bool) -> Wanted {
        Wanted { fresh: self.fresh, once, end: None, another: false, owner: None }
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
        if self.endpoints.len() < 2 || self.timed_out + 1 >= MAX_TIMED_OUT {
            return false;
        }
        let mut tried = self.unreached.clone();
        tried.insert(active.index());
        upstream.has_in_rotation(&self.endpoints, &tried)
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
        self.made -= 1;
        if let Some(outcome) = e.outcome {
            upstream.cells.attempt(outcome);
        }
        // The error of a real attempt says more than that of a skipped one.
        if e.outcome.is_some() || *self.last == error::NO_ENDPOINT {
            self.last = e.cause;
        }
        self.timed_out += u32::from(*e.cause == error::CONNECT_TIMEOUT);
        if !e.elsewhere || self.timed_out >= MAX_TIMED_OUT {
            return Err(e.cause);
        }
        self.unreached.insert(active.index());
        Ok(())
    }

    /// Notes a race. Returns whether the attempt is repeated immediately; if not, it counts as failed: see
    /// [`Self::again`].
    ///
    /// The keep-alive race is free: the last repeat gets a fresh connection, which has no such race. An upstream that
    /// refuses streams may refuse all of them. So each of those repeats is paid for and counts as an attempt towards
    /// the limit of `retry`.
    #[must_use]
    #[inline]
    pub fn raced(&mut self, upstream: &LocalUpstream, active: &Active, race: Race) -> bool {
        if self.races > MAX_RACES || (race != Race::KeptAlive && !self.pays_for_race(upstream)) {
            return false;
        }
        self.races += 1;
        self.made -= u32::from(race == Race::KeptAlive);
        self.fresh = self.races > MAX_RACES && race != Race::Refused;
        if race != Race::Refused {
            self.failed.insert(active.index());
        }
        true
    }

    /// Whether the budget pays for one more attempt at an upstream that has not processed the last one.
    #[inline]
    fn pays_for_race(&self, upstream: &LocalUpstream) -> bool {
        let retry = upstream.spec.retry.as_ref();
        retry.is_none_or(|retry| self.made < retry.attempts) && pays(upstream)
    }

    /// Notes that an attempt failed. Returns the pause before the next one, if there is one.
    #[inline]
    pub fn again(
        &mut self,
        upstream: &LocalUpstream,
        active: &Active,
        failed: Failed,
        request: Request,
    ) -> Option<Duration> {
        let Some(retry) = upstream.spec.retry.as_ref() else {
            return self.unasked(upstream, active, failed, request);
        };
        if !retry.wants(failed, request, self.made) {
            return None;
        }
        self.failed.insert(active.index());
        // Another endpoint needs no pause.
        let other = self.pick_another(upstream);
        let pause = match other {
            Some(_) => Duration::ZERO,
            None => retry.pause(failed, self.retries, upstream.resources.random())?,
        };
        if !pays(upstream) {
            upstream.cells.retries_refused.inc();
            return None;
        }
        self.next = other;
        self.retries += 1;
        self.fresh = false;
        Some(pause)
    }

    /// Without `retry`, a reset is repeated once if that is harmless, as nginx does: at another endpoint,
    /// immediately.
    #[inline]
    fn unasked(
        &mut self,
        upstream: &LocalUpstream,
        active: &Active,
        failed: Failed,
        request: Request,
    ) -> Option<Duration> {
        let harmless = failed == Failed::Reset && request.idempotent && request.kept;
        if !harmless || !self.is_first() {
            return None;
        }
        self.failed.insert(active.index());
        self.next = Some(self.pick_another(upstream)?);
        if !pays(upstream) {
            upstream.cells.retries_refused.inc();
            return None;
        }
        self.retries += 1;
        self.fresh = false;
        Some(Duration::ZERO)
    }

    /// An endpoint in rotation at which no attempt of this request has failed, in another zone if there is one.
    #[cold]
    #[inline]
    fn pick_another(&self, upstream: &LocalUpstream) -> Option<usize> {
        let closed = beyond_zones(&self.endpoints, &self.failed.union(&self.unreached));
        closed
            .and_then(|closed| upstream.pick_in_rotation(&self.endpoints, &closed, self.key))
            .or_else(|| self.pick_untried(upstream))
    }

    /// An endpoint in rotation at which no attempt of this request has failed.
    #[inline]
    fn pick_untried(&self, upstream: &LocalUpstream) -> Option<usize> {
        upstream.pick_in_rotation(&self.endpoints, &self.failed.union(&self.unreached), self.key)
    }
}

/// Whether the budget has one more retry.
#[cold]
#[inline]
fn pays(upstream: &LocalUpstream) -> bool {
    let share = upstream.spec.retry.as_ref().map_or(UNASKED, |retry| retry.budget);
    upstream.spec.budget.spend(Extra::Retry, share, Instant::now())
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
