//! The figures of every route over some minutes, so that a change can be compared with the time before.

use super::ALL;
use super::verdict::{self, Case, Interval};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_telemetry::RouteFigures;
use weir_telemetry::cell::{BOUNDS_NS, BUCKETS};

/// How many samples are kept: those of each second, and those of every tenth.
const FINE: usize = 30;
const COARSE: usize = 36;

/// The seconds between coarse samples.
const STEP: u64 = 10;

/// Most routes with figures; by default at most as many have their own metric series. About 250 bytes for each sample
/// in which one changed: 16 MiB at worst.
const ROUTES: usize = 1000;

/// A route's counters so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Figures {
    pub(crate) requests: u64,
    /// Answers with 5xx that are not the gateway's own.
    pub(crate) failed: u64,
    /// The gateway's own failures, by cause.
    pub(crate) causes: Vec<(&'static str, u64)>,
    /// Refusals by cause. They never count against a change, because anybody can provoke them.
    pub(crate) refused: Vec<(&'static str, u64)>,
    pub(crate) buckets: [u64; BUCKETS],
}

/// All routes at one moment. Unchanged routes are shared with the previous sample.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    pub(crate) at: Instant,
    pub(crate) routes: HashMap<Arc<str>, Arc<Figures>>,
}

/// The last minutes.
#[derive(Debug, Default)]
pub(crate) struct Record {
    fine: VecDeque<Arc<Sample>>,
    coarse: VecDeque<Arc<Sample>>,
    ticks: u64,
}

/// What can get better or worse on a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Measure {
    /// The gateway's own failures for this cause.
    Cause(&'static str),
    /// 5xx of the upstream.
    Failed,
    /// Refusals for this cause: only for a warning.
    Refused(&'static str),
    /// Slower than this bucket's bound.
    Slower(usize),
}

// === impl Figures ===

impl Figures {
    /// From counters. A cause says why the gateway answered, whatever the status; so 5xx without a cause came from
    /// upstreams.
    pub(crate) fn of(
        counted: &RouteFigures,
        is_error: impl Fn(&str) -> bool,
        is_failure: impl Fn(&str) -> bool,
    ) -> Self {
        let errors: u64 = counted.statuses.iter().filter(|(code, _)| **code >= 500).map(|(_, n)| n).sum();
        let own: u64 = counted.causes.iter().filter(|(cause, _)| is_error(cause)).map(|(_, n)| n).sum();
        let own_causes = counted.causes.iter().map(|(cause, n)| (*cause, *n));
        let (causes, refused) = own_causes.partition(|(cause, _)| is_failure(cause));
        Self {
            requests: counted.statuses.values().sum(),
            failed: errors.saturating_sub(own),
            causes,
            refused,
            buckets: counted.duration.buckets,
        }
    }

    /// Adds another route's figures.
    pub(crate) fn add(&mut self, other: &Self) {
        self.requests += other.requests;
        self.failed += other.failed;
        for (sums, others) in [(&mut self.causes, &other.causes), (&mut self.refused, &other.refused)] {
            for (cause, n) in others {
                match sums.iter_mut().find(|(known, _)| known == cause) {
                    Some((_, sum)) => *sum += n,
                    None => sums.push((cause, *n)),
                }
            }
        }
        self.buckets.iter_mut().zip(&other.buckets).for_each(|(sum, n)| *sum += n);
    }

    /// Subtracts a route's figures from the total.
    fn without(&mut self, other: &Self) {
        self.requests = self.requests.saturating_sub(other.requests);
        self.failed = self.failed.saturating_sub(other.failed);
        for (sums, others) in [(&mut self.causes, &other.causes), (&mut self.refused, &other.refused)] {
            for (cause, sum) in sums {
                *sum = sum.saturating_sub(count(others, cause));
            }
        }
        self.buckets.iter_mut().zip(&other.buckets).for_each(|(sum, n)| *sum = sum.saturating_sub(*n));
    }

    fn bad(&self, measure: Measure) -> u64 {
        match measure {
            Measure::Cause(cause) => count(&self.causes, cause),
            Measure::Failed => self.failed,
            Measure::Refused(cause) => count(&self.refused, cause),
            Measure::Slower(bucket) => self.buckets.iter().skip(bucket + 1).sum(),
        }
    }

    /// How many requests were not refused.
    pub(crate) fn let_through(&self) -> u64 {
        self.requests.saturating_sub(self.refused.iter().map(|(_, n)| n).sum())
    }

    /// The difference between `earlier` and now.
    pub(crate) fn since(&self, earlier: &Self, measure: Measure) -> Interval {
        let requests = match measure {
            // Tunnels have no duration.
            Measure::Slower(_) => {
                self.buckets.iter().sum::<u64>().saturating_sub(earlier.buckets.iter().sum())
            }
            _ => self.requests.saturating_sub(earlier.requests),
        };
        Interval { requests, bad: self.bad(measure).saturating_sub(earlier.bad(measure)) }
    }

    /// The bucket beyond which a request is slow, from what came between `earlier` and this: twice the 99th
    /// percentile of that time, and at least 20 ms above it. None with too few requests, or if no bucket is slower.
    pub(crate) fn slow(&self, earlier: &Self) -> Option<usize> {
        /// The fewest requests with a meaningful 99th percentile.
        const FEWEST: u64 = 200;
        const ABOVE_NS: u64 = 20_000_000;
        let counts: Vec<u64> =
            self.buckets.iter().zip(&earlier.buckets).map(|(now, then)| now.saturating_sub(*then)).collect();
        let total: u64 = counts.iter().sum();
        if total < FEWEST {
            return None;
        }
        let mut sum = 0;
        let p99 = counts.iter().position(|n| {
            sum += n;
            sum * 100 >= total * 99
        })?;
        let p99 = *BOUNDS_NS.get(p99)?;
        let bound = (2 * p99).max(p99 + ABOVE_NS);
        BOUNDS_NS.iter().position(|ns| *ns >= bound)
    }
}

fn count(counted: &[(&'static str, u64)], cause: &str) -> u64 {
    counted.iter().find(|(known, _)| *known == cause).map_or(0, |(_, n)| *n)
}

// === impl Record ===

impl Record {
    /// Adds a sample.
    pub(crate) fn add(
        &mut self,
        at: Instant,
        routes: impl Iterator<Item = (Arc<str>, Figures)>,
    ) -> Arc<Sample> {
        let last = self.fine.back().cloned();
        let routes = routes.take(ROUTES).map(|(name, figures)| {
            let same = last.as_ref().and_then(|last| last.routes.get_key_value(&name));
            match same.filter(|(_, then)| ***then == figures) {
                Some((name, then)) => (Arc::clone(name), Arc::clone(then)),
                None => (name, Arc::new(figures)),
            }
        });
        let sample = Arc::new(Sample { at, routes: routes.collect() });
        if self.ticks.is_multiple_of(STEP) {
            push(&mut self.coarse, Arc::clone(&sample), COARSE);
        }
        self.ticks += 1;
        push(&mut self.fine, Arc::clone(&sample), FINE);
        sample
    }

    /// Samples about `interval` apart, the newest last: at most `most` intervals.
    pub(crate) fn last(&self, interval: Duration, most: usize) -> Vec<Arc<Sample>> {
        let from = if interval >= Duration::from_secs(STEP) { &self.coarse } else { &self.fine };
        let mut found: Vec<Arc<Sample>> = self.fine.back().into_iter().cloned().collect();
        for sample in from.iter().rev() {
            let far =
                found.last().is_some_and(|newer| newer.at.saturating_duration_since(sample.at) >= interval);
            if far && found.len() <= most {
                found.push(Arc::clone(sample));
            }
        }
        found.reverse();
        found
    }
}

fn push(samples: &mut VecDeque<Arc<Sample>>, sample: Arc<Sample>, most: usize) {
    samples.push_back(sample);
    while samples.len() > most {
        samples.pop_front();
    }
}

/// The measures that are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compared {
    /// Failures, 5xx of upstreams, and slow answers.
    Failures,
    /// Refusals of requests that used to be admitted: more are refused, and fewer admitted.
    Refusals,
}

/// If the rate of admitted requests falls below this share of the earlier rate, callers who were served are now
/// refused.
const LET_THROUGH: f64 = 0.95;

/// How many requests per second were admitted between the first and the last of these samples.
fn let_through(series: &[Arc<Figures>], samples: &[Arc<Sample>]) -> Option<f64> {
    let (first, last) = (samples.first()?, samples.last()?);
    let seconds = last.at.saturating_duration_since(first.at).as_secs_f64();
    let passed = series.last()?.let_through().saturating_sub(series.first()?.let_through());
    (seconds > 0.0).then(|| passed as f64 / seconds)
}

/// What is worse than before, over all measures of the affected routes: the first finding. `before` and `after` are
/// samples, oldest first. `since` is the number of intervals since the change, of which `after` holds the last ones.
pub(crate) fn compare(
    compared: Compared,
    routes: &[Arc<str>],
    (before, after): (&[Arc<Sample>], &[Arc<Sample>]),
    since: usize,
) -> Option<(Arc<str>, Measure, verdict::Evidence)> {
    let (was, is) = (untouched(routes, before), untouched(routes, after));
    let cases: Vec<_> = routes
        .iter()
        .filter_map(|route| {
            let (was, is) = (series(route, before), series(route, after));
            let (first, last, now) = (was.first()?, was.last()?, is.last()?);
            let measures: Vec<Measure> = match compared {
                Compared::Failures => {
                    let causes = now.causes.iter().map(|(cause, _)| Measure::Cause(cause));
                    causes.chain([Measure::Failed]).chain(last.slow(first).map(Measure::Slower)).collect()
                }
                // The previous process's baseline has no times for a rate.
                Compared::Refusals
                    if let_through(&was, before)
                        .zip(let_through(&is, after))
                        .is_some_and(|(was, is)| is >= was * LET_THROUGH) =>
                {
                    return None;
                }
                Compared::Refusals => now.refused.iter().map(|(cause, _)| Measure::Refused(cause)).collect(),
            };
            Some((route, was, is, measures))
        })
        .collect();
    let measures = cases.iter().map(|(.., measures)| measures.len()).sum();
    for (route, before, after, of_route) in cases {
        for measure in of_route {
            let others = (intervals(&was, measure), intervals(&is, measure));
            let case = Case {
                before: &intervals(&before, measure),
                after: &intervals(&after, measure),
                since,
                others: (&others.0, &others.1),
                measures,
            };
            if let Some(evidence) = verdict::judge(&case) {
                return Some((Arc::clone(route), measure, evidence));
            }
        }
    }
    None
}

/// A route's counters at each sample.
fn series(route: &Arc<str>, samples: &[Arc<Sample>]) -> Vec<Arc<Figures>> {
    samples.iter().map(|sample| sample.routes.get(route).cloned().unwrap_or_default()).collect()
}

/// The counters at each sample of the routes that a change does not touch.
fn untouched(touched: &[Arc<str>], samples: &[Arc<Sample>]) -> Vec<Arc<Figures>> {
    let rest = |sample: &Arc<Sample>| {
        let mut rest = sample.routes.get(ALL).map_or_else(Figures::default, |all| Figures::clone(all));
        let touched = touched.iter().filter(|route| ***route != *ALL);
        touched.filter_map(|route| sample.routes.get(route)).for_each(|figures| rest.without(figures));
        Arc::new(rest)
    };
    samples.iter().map(rest).collect()
}

fn intervals(figures: &[Arc<Figures>], measure: Measure) -> Vec<Interval> {
    let pairs = figures.windows(2);
    pairs.filter_map(|pair| Some(pair.last()?.since(pair.first()?, measure))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(requests: u64, failed: u64, slow: u64) -> Figures {
        let mut buckets = [0; BUCKETS];
        buckets[2] = requests - slow;
        buckets[9] = slow;
        Figures {
            requests,
            failed,
            causes: vec![("connect_refused", failed / 2)],
            refused: Vec::new(),
            buckets,
        }
    }

    fn sample(second: u64, figures: Figures) -> Arc<Sample> {
        let at = Instant::now() + Duration::from_secs(second);
        Arc::new(Sample { at, routes: HashMap::from([("a".into(), Arc::new(figures))]) })
    }

    #[test]
    fn each_measure_is_compared() {
        let route: Arc<str> = "a".into();
        let before: Vec<_> = (0..5).map(|n| sample(n, figures(1000 * n, n, n))).collect();
        let after = |failed: u64, slow: u64| -> Vec<_> {
            (0..3).map(|n| sample(4 + n, figures(4000 + 400 * n, 4 + failed * n, 4 + slow * n))).collect()
        };
        let found = |failed, slow| {
            let found =
                compare(Compared::Failures, &[Arc::clone(&route)], (&before, &after(failed, slow)), 2);
            found.map(|(_, measure, _)| measure)
        };
        assert_eq!(found(0, 0), None);
        assert_eq!(found(60, 0), Some(Measure::Cause("connect_refused")));
        assert_eq!(found(18, 0), Some(Measure::Failed));
        // The 99th percentile was at most 2.5 ms; so slow means above 25 ms.
        assert_eq!(found(0, 40), Some(Measure::Slower(5)));
        let other: Arc<str> = "b".into();
        assert!(compare(Compared::Failures, &[other], (&before, &after(400, 400)), 2).is_none());
    }

    #[test]
    fn what_happens_to_the_others_too_is_no_fault_of_the_change() {
        let all = |n: u64, mine: u64, others: u64| {
            let routes = [
                (Arc::from("a"), Arc::new(figures(1000 * n, mine, 0))),
                (Arc::from(ALL), Arc::new(figures(4000 * n, mine + others, 0))),
            ];
            let at = Instant::now() + Duration::from_secs(n);
            Arc::new(Sample { at, routes: HashMap::from(routes) })
        };
        let before: Vec<_> = (0..5).map(|n| all(n, n, 3 * n)).collect();
        let after = |mine: u64, others: u64| -> Vec<_> {
            (0..3).map(|n| all(4 + n, 4 + mine * n, 12 + others * n)).collect()
        };
        let routes: [Arc<str>; 2] = ["a".into(), ALL.into()];
        let found = |mine, others| {
            compare(Compared::Failures, &routes, (&before, &after(mine, others)), 2).map(|(route, ..)| route)
        };
        assert_eq!(found(60, 3), Some("a".into()));
        assert_eq!(found(60, 180), None);
        assert_eq!(found(1, 180), None, "nor is what happens to the others alone");
    }

    #[test]
    fn samples_are_kept_for_some_minutes() {
        let mut record = Record::default();
        let start = Instant::now();
        for second in 0..1000 {
            let all = std::iter::once((Arc::from("a"), figures(second / 100, 0, 0)));
            record.add(start + Duration::from_secs(second), all);
        }
        let ages = |interval, most| -> Vec<u64> {
            let samples = record.last(Duration::from_secs(interval), most);
            samples.iter().map(|sample| 999 - (sample.at - start).as_secs()).collect()
        };
        assert_eq!(ages(1, 3), [3, 2, 1, 0]);
        assert_eq!(ages(30, 3), [99, 69, 39, 0], "the coarse ones are at full tens");
        assert_eq!(ages(30, 100).len(), 12);
        assert_eq!(record.fine.len() + record.coarse.len(), FINE + COARSE);
        let held = |sample: &Sample| Arc::as_ptr(&sample.routes["a"]);
        let last = record.last(Duration::from_secs(1), 1);
        assert_eq!(held(&last[0]), held(&last[1]), "what has not changed is shared");
    }
}
