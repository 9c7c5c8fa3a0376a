//! When to eject an endpoint that answers badly: the policy and its counts. The time is passed in.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;
use weir_telemetry::Ejection;

/// `upstreams.*.health.outlier`, compiled.
#[derive(Clone, Debug, PartialEq)]
pub struct Outlier {
    /// Errors in a row within `window` that eject.
    pub errors: u32,
    /// The period in which errors are counted.
    pub window: Duration,
    /// The share of errors within `window`, of at least `FEWEST` requests, that ejects: from 0 to 1.
    pub rate: Option<f64>,
    /// For how long the first ejection lasts; each further one lasts that much longer.
    pub eject: Duration,
    /// The largest share of an upstream's endpoints that may be out when one is ejected, from 0 to 1.
    pub max: f64,
}

/// With fewer requests in a window, the share of errors is not significant.
const FEWEST: u32 = 20;

/// An endpoint's counts over all cores. Touched only if there is a policy.
#[derive(Debug, Default)]
pub(super) struct Tally {
    in_a_row: AtomicU32,
    row_began: AtomicU64,
    requests: AtomicU32,
    errors: AtomicU32,
    window_began: AtomicU64,
}

impl Outlier {
    /// Whether another of this many endpoints may be ejected.
    pub(super) fn may_eject(&self, out: usize, of: usize) -> bool {
        // A single endpoint is never ejected; of several, one always may be.
        let most = ((of as f64 * self.max) as usize).max(usize::from(self.max > 0.0));
        of > 1 && out < most
    }

    /// How long an endpoint's nth ejection lasts, counting from 1.
    pub(super) fn ejected_for(&self, nth: u32) -> Duration {
        self.eject.saturating_mul(nth.clamp(1, 10))
    }
}

impl Tally {
    /// Counts an answer at this time, in milliseconds. Returns why the endpoint should be ejected, if so.
    pub(super) fn note(&self, ok: bool, policy: &Outlier, now: u64) -> Option<Ejection> {
        let window = u64::try_from(policy.window.as_millis()).unwrap_or(u64::MAX);
        let by_rate = policy.rate.is_some_and(|rate| self.note_in_window(ok, rate, window, now));
        if ok {
            if self.in_a_row.load(Ordering::Relaxed) != 0 {
                self.in_a_row.store(0, Ordering::Relaxed);
            }
            return None;
        }
        if now.saturating_sub(self.row_began.load(Ordering::Relaxed)) > window {
            self.in_a_row.store(0, Ordering::Relaxed);
        }
        let row = self.in_a_row.fetch_add(1, Ordering::Relaxed) + 1;
        if row == 1 {
            self.row_began.store(now, Ordering::Relaxed);
        }
        match (row >= policy.errors, by_rate) {
            (true, _) => Some(Ejection::ErrorsInARow),
            (false, true) => Some(Ejection::ErrorRate),
            (false, false) => None,
        }
    }

    fn note_in_window(&self, ok: bool, rate: f64, window: u64, now: u64) -> bool {
        let began = self.window_began.load(Ordering::Relaxed);
        if now.saturating_sub(began) > window
            && self.window_began.compare_exchange(began, now, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        {
            self.requests.store(0, Ordering::Relaxed);
            self.errors.store(0, Ordering::Relaxed);
        }
        let requests = self.requests.fetch_add(1, Ordering::Relaxed) + 1;
        let errors = self.errors.fetch_add(u32::from(!ok), Ordering::Relaxed) + u32::from(!ok);
        requests >= FEWEST && f64::from(errors) >= rate * f64::from(requests)
    }

    /// Resets the counts when the endpoint is ejected.
    pub(super) fn clear(&self) {
        for count in [&self.in_a_row, &self.requests, &self.errors] {
            count.store(0, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy() -> Outlier {
        let (window, eject) = (Duration::from_secs(10), Duration::from_secs(30));
        Outlier { errors: 3, window, rate: None, eject, max: 0.5 }
    }

    #[test]
    fn errors_in_a_row_within_the_window_eject() {
        let (tally, policy) = (Tally::default(), policy());
        let note = |ok, at| tally.note(ok, &policy, at).is_some();
        assert!(!note(false, 100) && !note(false, 200) && note(false, 300));
        tally.clear();
        assert!(
            !note(false, 400) && !note(false, 500) && !note(true, 600) && !note(false, 700),
            "one was well"
        );
        tally.clear();
        assert!(!note(false, 1_000) && !note(false, 2_000) && !note(false, 12_000), "not within the window");
    }

    #[test]
    fn a_share_of_errors_ejects_from_a_number_of_requests_on() {
        let policy = Outlier { errors: 1_000, rate: Some(0.5), ..policy() };
        let tally = Tally::default();
        let found = (1..100).find(|i| tally.note(i % 2 == 0, &policy, 1_000 + i).is_some());
        assert_eq!(found, Some(21), "of 21 the 11 errors are more than half");
        let good = Tally::default();
        assert!((1..1000).all(|i| good.note(i % 3 != 0, &policy, 1_000 + i).is_none()));
    }

    #[test]
    fn never_all_of_them() {
        let policy = policy();
        let may = |out, of| policy.may_eject(out, of);
        assert!(!may(0, 1) && may(0, 2) && !may(1, 2) && may(0, 3) && !may(1, 3) && may(1, 4) && !may(2, 4));
        assert!(!Outlier { max: 0.0, ..policy }.may_eject(0, 10));
    }

    #[test]
    fn each_time_for_longer() {
        let seconds: Vec<u64> = [1, 2, 3, 99].iter().map(|n| policy().ejected_for(*n).as_secs()).collect();
        assert_eq!(seconds, [30, 60, 90, 300]);
    }
}
