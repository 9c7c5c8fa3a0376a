//! How long an endpoint takes to answer, as one core sees it: a moving average that jumps to peaks and decays with time.
//!
//! A slower answer counts in full at once; faster ones bring the average down over [`DECAY`]. While nobody waits for the
//! endpoint, the average fades to nothing, so that an endpoint that was slow is asked again.

use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// In this time what was seen loses its weight to 37 % (1/e).
const DECAY: Duration = Duration::from_secs(10);

/// The least that a failed attempt counts as, so that an endpoint that fails fast does not look fast. Also what an
/// endpoint counts as while its very first answer is awaited.
const PENALTY: Duration = Duration::from_secs(1);

/// The latency of one endpoint.
#[derive(Debug, Default)]
pub(crate) struct Latency {
    /// In seconds, and when it was found; `None` before the first answer.
    average: Cell<Option<(f64, Instant)>>,
    /// Attempts that wait for the first byte of their response.
    waiting: Cell<u32>,
}

/// An attempt whose latency is measured. Dropped without a word, it was given up: it took at least this long.
#[derive(Debug)]
pub(crate) struct Measurement {
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
    /// What to expect of the endpoint now, in seconds.
    pub(super) fn expected(&self, now: Instant) -> f64 {
        match self.average.get() {
            // An endpoint that hangs is not forgiven while requests wait for it.
            Some((average, _)) if self.waiting.get() > 0 => average,
            Some((average, at)) => average * weight_left(at, now),
            None if self.waiting.get() > 0 => PENALTY.as_secs_f64(),
            None => 0.0,
        }
    }

    pub(super) fn observe(&self, took: Duration, now: Instant) {
        let took = took.as_secs_f64();
        let average = match self.average.get() {
            Some((average, at)) if took < average => {
                let left = weight_left(at, now);
                average * left + took * (1.0 - left)
            }
            _ => took,
        };
        self.average.set(Some((average, now)));
    }

    fn at_least(&self, took: Duration, now: Instant) {
        if self.average.get().is_none_or(|(average, _)| took.as_secs_f64() > average) {
            self.observe(took, now);
        }
    }
}

/// How much of what was seen then counts now: from 1 down to 0.
fn weight_left(then: Instant, now: Instant) -> f64 {
    (-now.saturating_duration_since(then).as_secs_f64() / DECAY.as_secs_f64()).exp()
}

// === impl Measurement ===

impl Measurement {
    /// Begins with an attempt. `is_whole`: all of the request is there to be sent. Otherwise the time until the answer is
    /// the client's too, and is not counted.
    pub(super) fn new(latency: &Rc<Latency>, began: Instant, is_whole: bool) -> Self {
        latency.waiting.set(latency.waiting.get() + 1);
        Self { latency: Rc::clone(latency), began, is_whole, ended: Ended::GivenUp }
    }

    /// The first byte of a response is here.
    pub(crate) fn answered(mut self) {
        self.ended = Ended::Answered;
    }

    /// There will be no response.
    pub(crate) fn failed(mut self) {
        self.ended = Ended::Failed;
    }
}

impl Drop for Measurement {
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
        (latency.expected(at) - expected).abs() < expected / 100.0
    }

    #[test]
    fn peaks_count_at_once_and_are_forgiven_with_time() {
        let (latency, start) = (Latency::default(), Instant::now());
        assert!(latency.expected(start) == 0.0, "an endpoint nobody knows is to be tried");
        latency.observe(10 * MS, start);
        latency.observe(500 * MS, start);
        assert!(is_near(&latency, start, 0.5));
        latency.observe(10 * MS, start);
        assert!(is_near(&latency, start, 0.5), "one fast answer says little");
        latency.observe(10 * MS, start + DECAY);
        assert!(is_near(&latency, start + DECAY, 0.5 * 0.3679 + 0.01 * 0.6321));
        assert!(latency.expected(start + 20 * DECAY) < 0.000_001);
    }

    #[test]
    fn an_endpoint_that_hangs_is_not_forgiven() {
        let (latency, start) = (Rc::new(Latency::default()), Instant::now());
        let first = Measurement::new(&latency, start, true);
        assert!(is_near(&latency, start, 1.0), "its first answer is awaited");
        drop(first);
        latency.observe(100 * MS, Instant::now());
        let waiting = Measurement::new(&latency, start, false);
        let later = Instant::now() + 20 * DECAY;
        assert!(latency.expected(later) >= 0.1);
        drop(waiting);
        assert!(latency.expected(later) < 0.000_001);
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
