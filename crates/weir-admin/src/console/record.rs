//! Samples of the last 15 minutes, taken every few seconds, so that an operator who opens the console sees how a
//! problem developed.

mod things;

pub(crate) use things::{Things, ThingsLook};

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use weir_console::view::{Point, Pulse, Recent};
use weir_telemetry::cell::{BOUNDS_NS, BUCKETS};
use weir_telemetry::{HistogramTotals, RouteFigures};

/// Sampling interval.
pub(crate) const STEP: Duration = Duration::from_secs(5);

/// Number of samples kept: 15 minutes.
const KEPT: usize = 181;

/// Number of samples with counts per route: one minute. At worst 1,000 routes × 13 × 64 bytes.
const BY_ROUTE: usize = 13;

/// The samples, oldest first.
#[derive(Default)]
pub(crate) struct Record(Mutex<VecDeque<Look>>);

/// The counters at one moment.
#[derive(Clone, Debug)]
pub(crate) struct Look {
    at: Instant,
    requests: u64,
    failed: u64,
    active: u64,
    causes: BTreeMap<&'static str, u64>,
    buckets: [u64; BUCKETS],
    routes: HashMap<String, u64>,
}

// === impl Look ===

impl Look {
    pub(crate) fn of(figures: &[(String, RouteFigures)], at: Instant) -> Self {
        let mut look = Self {
            at,
            requests: 0,
            failed: 0,
            active: 0,
            causes: BTreeMap::new(),
            buckets: [0; BUCKETS],
            routes: HashMap::with_capacity(figures.len()),
        };
        for (name, route) in figures {
            let (requests, failed) = counted(route);
            look.requests += requests;
            look.failed += failed;
            look.active += u64::try_from(route.active).unwrap_or(0);
            route.causes.iter().for_each(|(cause, n)| *look.causes.entry(*cause).or_default() += n);
            look.buckets.iter_mut().zip(&route.duration.buckets).for_each(|(sum, n)| *sum += n);
            look.routes.insert(name.clone(), requests);
        }
        look
    }

    /// The increase since an earlier sample. The counts of routes that a reload removed are gone.
    fn since(&self, before: &Self) -> [u64; BUCKETS] {
        let mut buckets = self.buckets;
        buckets.iter_mut().zip(&before.buckets).for_each(|(now, then)| *now = now.saturating_sub(*then));
        buckets
    }

    fn point(&self, before: &Self) -> Point {
        let seconds = self.at.saturating_duration_since(before.at).as_secs_f64().max(0.001);
        Point {
            requests: self.requests.saturating_sub(before.requests) as f64 / seconds,
            failed: self.failed.saturating_sub(before.failed) as f64 / seconds,
            p50_ms: quantile(&self.since(before), 0.5),
            p95_ms: quantile(&self.since(before), 0.95),
            p99_ms: quantile(&self.since(before), 0.99),
        }
    }
}

// === impl Record ===

impl Record {
    pub(crate) fn add(&self, look: Look) {
        let mut looks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if looks.len() == KEPT {
            looks.pop_front();
        }
        if let Some(old) = looks.len().checked_sub(BY_ROUTE).and_then(|at| looks.get_mut(at)) {
            old.routes = HashMap::new();
        }
        looks.push_back(look);
    }

    /// The sample of a minute ago, or else the first one.
    fn minute_ago(looks: &VecDeque<Look>, now: Instant) -> Option<&Look> {
        let recent = |look: &&Look| now.saturating_duration_since(look.at) <= STEP * (BY_ROUTE as u32 - 1);
        looks.iter().find(recent).or(looks.back())
    }

    /// The figures of a page, with `now` as the newest sample.
    pub(crate) fn pulse(&self, now: &Look) -> Pulse {
        let looks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let points = looks.iter().zip(looks.iter().skip(1)).map(|(before, after)| after.point(before));
        let points = points.collect();
        let Some(before) = Self::minute_ago(&looks, now.at) else {
            return Pulse { points, step: STEP.as_secs(), ..Pulse::default() };
        };
        let buckets = now.since(before);
        let mut causes: Vec<(String, u64)> = now
            .causes
            .iter()
            .map(|(cause, n)| {
                ((*cause).to_owned(), n.saturating_sub(before.causes.get(cause).copied().unwrap_or(0)))
            })
            .filter(|(_, n)| *n > 0)
            .collect();
        causes.sort_by_key(|(_, n)| std::cmp::Reverse(*n));
        let recent = Recent {
            seconds: now.at.saturating_duration_since(before.at).as_secs(),
            requests: now.requests.saturating_sub(before.requests),
            failed: now.failed.saturating_sub(before.failed),
            p50_ms: quantile(&buckets, 0.5),
            p95_ms: quantile(&buckets, 0.95),
            p99_ms: quantile(&buckets, 0.99),
            causes,
            active: now.active,
        };
        Pulse { points, step: STEP.as_secs(), recent, ..Pulse::default() }
    }

    /// Requests per second of each route over the last minute.
    pub(crate) fn rates(&self, now: &Look) -> HashMap<String, f64> {
        let looks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(before) = Self::minute_ago(&looks, now.at) else { return HashMap::new() };
        let seconds = now.at.saturating_duration_since(before.at).as_secs_f64().max(0.001);
        let rate = |(name, n): (&String, &u64)| {
            let came = n.saturating_sub(before.routes.get(name).copied().unwrap_or(0));
            (name.clone(), came as f64 / seconds)
        };
        now.routes.iter().map(rate).collect()
    }
}

/// All responses, and those with 5xx.
pub(crate) fn counted(figures: &RouteFigures) -> (u64, u64) {
    let failed = figures.statuses.iter().filter(|(code, _)| (500..600).contains(*code)).map(|(_, n)| n).sum();
    (figures.statuses.values().sum(), failed)
}

/// The 99th percentile, in milliseconds.
pub(crate) fn p99(duration: &HistogramTotals) -> Option<f64> {
    quantile(&duration.buckets, 0.99)
}

/// The increase of a counter. A lower value means that it was reset, because a new entry has the same name.
fn grown(now: u32, then: u32) -> u64 {
    u64::from(if now >= then { now - then } else { now })
}

/// Quantiles of values in histogram buckets.
trait Quantile {
    /// The quantile, in milliseconds.
    fn quantile(&self, share: f64) -> Option<f64>;
}

impl Quantile for [u64; BUCKETS] {
    fn quantile(&self, share: f64) -> Option<f64> {
        quantile(self, share)
    }
}

/// Interpolates, assuming that values are evenly spread within a bucket.
fn quantile(buckets: &[u64; BUCKETS], share: f64) -> Option<f64> {
    let total: u64 = buckets.iter().sum();
    if total == 0 {
        return None;
    }
    let wanted = share * total as f64;
    let (mut sum, mut below) = (0.0, 0.0);
    for (at, n) in buckets.iter().enumerate() {
        let upper = BOUNDS_NS.get(at).map_or(below, |ns| *ns as f64 / 1e6);
        let n = *n as f64;
        if n > 0.0 && sum + n >= wanted {
            return Some(below + (upper - below) * ((wanted - sum) / n).clamp(0.0, 1.0));
        }
        sum += n;
        below = upper;
    }
    Some(below)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(requests: u64, failed: u64) -> Vec<(String, RouteFigures)> {
        let mut buckets = [0; BUCKETS];
        buckets[1] = requests;
        let duration = HistogramTotals { buckets, sum_ns: 0 };
        let statuses = [(200, requests - failed), (502, failed)].into();
        let causes = [("connect_refused", failed)].into();
        vec![(
            "a".to_owned(),
            RouteFigures { active: 2, statuses, causes, duration, ..RouteFigures::default() },
        )]
    }

    #[test]
    fn a_minute_and_a_quarter_of_an_hour() {
        let (record, start) = (Record::default(), Instant::now());
        let at = |step: u32| start + STEP * step;
        let early = Look::of(&figures(10, 1), start);
        assert_eq!(record.pulse(&early).recent, Recent::default());
        for step in 0..200 {
            record.add(Look::of(&figures(u64::from(step) * 50, u64::from(step)), at(step)));
        }
        let now = Look::of(&figures(10_050, 210), at(200));
        let pulse = record.pulse(&now);
        assert_eq!(pulse.points.len(), KEPT - 1);
        let point = pulse.points[7];
        assert!((point.requests - 10.0).abs() < 1e-9 && (point.failed - 0.2).abs() < 1e-9, "{point:?}");
        assert!(point.p99_ms.is_some_and(|ms| ms > 0.99 && ms <= 1.0), "{point:?}");
        assert_eq!((pulse.recent.seconds, pulse.recent.requests, pulse.recent.failed), (60, 650, 22));
        assert_eq!(pulse.recent.causes, [("connect_refused".to_owned(), 22)]);
        assert_eq!(pulse.recent.active, 2);
        let rate = record.rates(&now)["a"];
        assert!((rate - 650.0 / 60.0).abs() < 1e-9, "{rate}");
        let kept = record.0.lock().unwrap().iter().filter(|look| !look.routes.is_empty()).count();
        assert!(kept <= BY_ROUTE + 1, "{kept}");
    }

    #[test]
    fn a_reload_that_takes_routes_away_is_no_negative_rate() {
        let (record, start) = (Record::default(), Instant::now());
        record.add(Look::of(&figures(1000, 10), start));
        record.add(Look::of(&[], start + STEP));
        let pulse = record.pulse(&Look::of(&[], start + STEP * 2));
        assert_eq!(pulse.points, [Point::default()]);
        assert_eq!(pulse.recent.p99_ms, None);
    }

    #[test]
    fn quantiles() {
        let mut buckets = [0; BUCKETS];
        assert_eq!(quantile(&buckets, 0.5), None);
        buckets[0] = 100;
        assert_eq!(quantile(&buckets, 0.5), Some(0.25));
        buckets[BUCKETS - 1] = 100;
        assert_eq!(quantile(&buckets, 0.99), Some(30_000.0));
    }
}
