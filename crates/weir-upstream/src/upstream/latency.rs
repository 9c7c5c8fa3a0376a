//! An endpoint's latency as one core sees it: a moving average that jumps to peaks and decays with time.
//!
//! A slower answer counts in full immediately; faster ones lower the average over [`DECAY`]. While no request waits
//! for the endpoint, the average fades, so that a once slow endpoint is tried again.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

/// The time in which an observation's weight falls to 37 % (1/e).
const DECAY: Duration = Duration::from_secs(10);

/// The least that a failed attempt counts as, so that an endpoint that fails fast does not look fast. An endpoint
/// also counts as this slow while its first answer is awaited.
const PENALTY: Duration = Duration::from_secs(1);

/// The latency of one endpoint.
#[derive(Debug, Default)]
pub(crate) struct Latency {
    /// In seconds, and when it was computed; `None` before the first answer.
    average: Cell<Option<(f64, Moment)>>,
    /// Attempts that wait for the first byte of their response.
    waiting: Cell<u32>,
}

/// Measures one attempt's latency. If dropped without a call, the attempt was given up: it took at least this long.
#[derive(Debug)]
pub struct Measurement {
    latency: Rc<Latency>,
    began: Instant,
    is_whole: bool,
    ended: Ended,
}

#[derive(Clone, Copy, Debug)]
enum Ended {
    Answered,
    Failed,
    GivenUp,
}

// === impl Latency ===

impl Latency {
    /// The expected latencies of two endpoints. If both or neither have requests waiting, it does not read the clock,
    /// which would cost as much as the rest of the choice.
    pub(super) fn compare(one: &Self, other: &Self) -> (f64, f64) {
        let asked = (one.waiting.get() > 0, other.waiting.get() > 0);
        match (asked, one.average.get(), other.average.get()) {
            // From the later of the two times, both fade alike.
            ((false, false), Some((a, at)), Some((b, since))) => {
                (a * weight_left(at, since), b * weight_left(since, at))
            }
            ((true, true), Some((a, _)), Some((b, _))) => (a, b),
            _ => {
                let now = moment(Instant::now());
                (one.expected(now), other.expected(now))
            }
        }
    }

    /// The endpoint's expected latency now, in seconds.
    fn expected(&self, now: Moment) -> f64 {
        match self.average.get() {
            // A hanging endpoint's average does not fade while requests wait for it.
            Some((average, _)) if self.waiting.get() > 0 => average,
            Some((average, at)) => average * weight_left(at, now),
            None if self.waiting.get() > 0 => PENALTY.as_secs_f64(),
            None => 0.0,
        }
    }

    #[inline]
    pub(super) fn observe(&self, took: Duration, now: Instant) {
        let (took, now) = (took.as_secs_f64(), moment(now));
        let average = match self.average.get() {
            Some((average, at)) if took < average => {
                let left = weight_left(at, now);
                average * left + took * (1.0 - left)
            }
            _ => took,
        };
        self.average.set(Some((average, now)));
    }

    #[inline]
    fn at_least(&self, took: Duration, now: Instant) {
        if self.average.get().is_none_or(|(average, _)| took.as_secs_f64() > average) {
            self.observe(took, now);
        }
    }
}

/// A time as a number for calculations: how many times [`DECAY`] since some origin.
type Moment = f64;

#[inline]
fn moment(at: Instant) -> Moment {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    at.saturating_duration_since(*START).as_secs_f64() / DECAY.as_secs_f64()
}

/// The weight now of an observation from then: from 1 down to 0.
///
/// Computes e^-x as (1 + x/16 + (x/16)²/2)^-16, a quarter of the cost of the exact value. It is off by 0.1 % at x =
/// 1, and by a third at x = 10, where little is left anyway.
#[inline]
fn weight_left(then: Moment, now: Moment) -> f64 {
    let part = (now - then).max(0.0) / 16.0;
    let mut grown = 1.0 + part + part * part / 2.0;
    for _ in 0..4 {
        grown *= grown;
    }
    1.0 / grown
}

// === impl Measurement ===

impl Measurement {
    /// Starts with an attempt. `is_whole` says that the whole request is ready to be sent. Otherwise the client's
    /// time is part of the answer's, and is not counted.
    pub(super) fn new(latency: &Rc<Latency>, began: Instant, is_whole: bool) -> Self {
        latency.waiting.set(latency.waiting.get() + 1);
        Self { latency: Rc::clone(latency), began, is_whole, ended: Ended::GivenUp }
    }

    /// The first byte of the response has arrived.
    #[inline]
    pub fn answered(mut self) {
        self.ended = Ended::Answered;
    }

    /// No response will come.
    #[inline]
    pub fn failed(mut self) {
        self.ended = Ended::Failed;
    }
}

impl Drop for Measurement {
    #[inline]
    fn drop(&mut self) {
        self.latency.waiting.set(self.latency.waiting.get() - 1);
        let now = Instant::now();
        let took = now.saturating_duration_since(self.began);
        match self.ended {
            Ended::Failed if self.is_whole => self.latency.observe(took.max(PENALTY), now),
            Ended::Failed => self.latency.at_least(PENALTY, now),
            _ if !self.is_whole => {}
            Ended::Answered => self.latency.observe(took, now),
            Ended::GivenUp => self.latency.at_least(took, now),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn is_near(latency: &Latency, at: Instant, expected: f64) -> bool {
        (latency.expected(moment(at)) - expected).abs() < expected / 100.0
    }

    #[test]
    fn peaks_count_at_once_and_are_forgiven_with_time() {
        moment(Instant::now()); // so that the origin is earlier
        let (latency, start) = (Latency::default(), Instant::now());
        assert!(latency.expected(moment(start)) == 0.0, "an endpoint nobody knows is to be tried");
        latency.observe(10 * MS, start);
        latency.observe(500 * MS, start);
        assert!(is_near(&latency, start, 0.5));
        latency.observe(10 * MS, start);
        assert!(is_near(&latency, start, 0.5), "one fast answer says little");
        latency.observe(10 * MS, start + DECAY);
        assert!(is_near(&latency, start + DECAY, 0.5 * 0.3679 + 0.01 * 0.6321));
        assert!(latency.expected(moment(start + 20 * DECAY)) < 0.000_001);
    }

    #[test]
    fn two_are_compared_as_they_are_now() {
        moment(Instant::now()); // so that the origin is earlier
        let (one, other, start) = (Rc::new(Latency::default()), Rc::new(Latency::default()), Instant::now());
        assert_eq!(Latency::compare(&one, &other), (0.0, 0.0));
        one.observe(100 * MS, start);
        other.observe(100 * MS, start + DECAY);
        let (a, b) = Latency::compare(&one, &other);
        assert!((a / b - 0.3679).abs() < 0.001, "what was seen earlier has faded more: {a} {b}");
        let waiting = Measurement::new(&one, start, false);
        let (a, _) = Latency::compare(&one, &other);
        assert!(a > 0.099, "what is asked does not fade: {a}");
        let also = Measurement::new(&other, start, false);
        assert_eq!(Latency::compare(&one, &other), (0.1, 0.1));
        drop((waiting, also));
    }

    #[test]
    fn an_endpoint_that_hangs_is_not_forgiven() {
        moment(Instant::now());
        let (latency, start) = (Rc::new(Latency::default()), Instant::now());
        let first = Measurement::new(&latency, start, true);
        assert!(is_near(&latency, start, 1.0), "its first answer is awaited");
        drop(first);
        latency.observe(100 * MS, Instant::now());
        let waiting = Measurement::new(&latency, start, false);
        let later = Instant::now() + 20 * DECAY;
        assert!(latency.expected(moment(later)) >= 0.1);
        drop(waiting);
        assert!(latency.expected(moment(later)) < 0.000_001);
    }

    #[test]
    fn failing_fast_is_not_being_fast() {
        let latency = Rc::new(Latency::default());
        Measurement::new(&latency, Instant::now(), true).failed();
        assert!(latency.average.get().is_some_and(|(average, _)| average >= 1.0));
        let upload = Rc::new(Latency::default());
        Measurement::new(&upload, Instant::now(), false).answered();
        assert!(upload.average.get().is_none(), "the time of an upload is the client's");
    }
}
