//! Counts per route and per upstream over the last 15 minutes, for their detail pages.

use super::{Quantile, grown};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use weir_console::view::{Quantiles, RoutePoint, RouteTrend, Seen, UpstreamPoint, UpstreamTrend};
use weir_telemetry::cell::BUCKETS;
use weir_telemetry::{Attempt, HistogramTotals, RouteFigures, UpstreamFigures};

/// Sampling interval.
pub(crate) const STEP: Duration = Duration::from_secs(15);

/// Number of samples kept: 15 minutes. At worst 61 × (1,000 routes × 200 bytes + 1,000 upstreams × 120 bytes), 20
/// MiB.
const KEPT: usize = 61;

/// The window of "the last minute".
const MINUTE: Duration = Duration::from_secs(62);

/// The samples, oldest first.
#[derive(Default)]
pub(crate) struct Things(Mutex<VecDeque<ThingsLook>>);

/// The counters at one moment.
pub(crate) struct ThingsLook {
    at: Instant,
    routes: HashMap<Arc<str>, RouteLook>,
    upstreams: HashMap<Arc<str>, UpstreamLook>,
}

/// A total may exceed 32 bits and wrap; the increase between two samples does not.
#[derive(Clone, Copy, Default)]
struct RouteLook {
    classes: [u32; 6],
    own: u32,
    duration: [u32; BUCKETS],
    first_byte: [u32; BUCKETS],
}

#[derive(Clone, Copy, Default)]
struct UpstreamLook {
    outcomes: [u32; Attempt::ALL.len()],
    errors: u32,
    answered: u32,
    first_byte: Duration,
}

// === impl ThingsLook ===

impl ThingsLook {
    pub(crate) fn of(
        routes: &[(String, RouteFigures)],
        upstreams: &BTreeMap<String, UpstreamFigures>,
        at: Instant,
    ) -> Self {
        let routes = routes.iter().map(|(name, figures)| (Arc::from(&**name), RouteLook::of(figures)));
        let upstreams = upstreams.iter().map(|(name, it)| (Arc::from(&**name), UpstreamLook::of(it)));
        Self { at, routes: routes.collect(), upstreams: upstreams.collect() }
    }

    fn route(&self, name: &str) -> RouteLook {
        self.routes.get(name).copied().unwrap_or_default()
    }

    fn upstream(&self, name: &str) -> UpstreamLook {
        self.upstreams.get(name).copied().unwrap_or_default()
    }

    /// The increase of several routes since an earlier sample.
    fn routes_since(&self, before: &Self, names: &[&str]) -> RouteGrowth {
        let mut sum = RouteGrowth::default();
        for name in names {
            let (now, then) = (self.route(name), before.route(name));
            add(&mut sum.classes, &now.classes, &then.classes);
            add(&mut sum.duration, &now.duration, &then.duration);
            add(&mut sum.first_byte, &now.first_byte, &then.first_byte);
            sum.own += grown(now.own, then.own);
        }
        sum
    }

    fn upstream_since(&self, before: &Self, name: &str) -> UpstreamGrowth {
        let (now, then) = (self.upstream(name), before.upstream(name));
        let mut outcomes = [0; Attempt::ALL.len()];
        add(&mut outcomes, &now.outcomes, &then.outcomes);
        UpstreamGrowth {
            outcomes,
            errors: grown(now.errors, then.errors),
            answered: grown(now.answered, then.answered),
            first_byte: now.first_byte.checked_sub(then.first_byte).unwrap_or(now.first_byte),
        }
    }

    fn seconds_since(&self, before: &Self) -> f64 {
        self.at.saturating_duration_since(before.at).as_secs_f64().max(0.001)
    }
}

impl RouteLook {
    fn of(figures: &RouteFigures) -> Self {
        let mut look = Self {
            own: figures.causes.values().sum::<u64>() as u32,
            duration: narrow(&figures.duration),
            first_byte: narrow(&figures.first_byte),
            ..Self::default()
        };
        for (code, count) in &figures.statuses {
            let class = usize::from(code / 100);
            let class = look.classes.get_mut(if class > 5 { 0 } else { class });
            if let Some(class) = class {
                *class = class.wrapping_add(*count as u32);
            }
        }
        look
    }
}

impl UpstreamLook {
    fn of(figures: &UpstreamFigures) -> Self {
        Self {
            outcomes: figures.attempts.map(|count| count as u32),
            errors: figures.errors as u32,
            answered: figures.answered as u32,
            first_byte: figures.first_byte,
        }
    }
}

fn narrow(totals: &HistogramTotals) -> [u32; BUCKETS] {
    totals.buckets.map(|count| count as u32)
}

fn add(sum: &mut [u64], now: &[u32], then: &[u32]) {
    for ((sum, now), then) in sum.iter_mut().zip(now).zip(then) {
        *sum += grown(*now, *then);
    }
}

/// The increase of routes between two samples.
#[derive(Default)]
struct RouteGrowth {
    classes: [u64; 6],
    own: u64,
    duration: [u64; BUCKETS],
    first_byte: [u64; BUCKETS],
}

/// The increase of an upstream between two samples.
struct UpstreamGrowth {
    outcomes: [u64; Attempt::ALL.len()],
    errors: u64,
    answered: u64,
    first_byte: Duration,
}

impl UpstreamGrowth {
    fn count(&self, outcome: Attempt) -> u64 {
        self.outcomes.get(outcome as usize).copied().unwrap_or(0)
    }

    fn failed(&self) -> u64 {
        let all: u64 = self.outcomes.iter().sum();
        all - self.count(Attempt::Answered) - self.count(Attempt::Canceled)
    }
}

fn quantiles(buckets: &[u64; BUCKETS]) -> Quantiles {
    let of = |share| buckets.quantile(share);
    Quantiles { p50: of(0.5), p95: of(0.95), p99: of(0.99) }
}

// === impl Things ===

impl Things {
    /// Stores a sample if one is due. `look` is called only then.
    pub(crate) fn add(&self, now: Instant, look: impl FnOnce() -> ThingsLook) {
        // Slightly early is fine, because the caller's timer is not exact.
        let early = Duration::from_secs(1);
        let due = |looks: &VecDeque<ThingsLook>| {
            looks.back().is_none_or(|last| now.saturating_duration_since(last.at) + early >= STEP)
        };
        if !due(&self.0.lock().unwrap_or_else(PoisonError::into_inner)) {
            return;
        }
        let look = look();
        let mut looks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if looks.len() == KEPT {
            looks.pop_front();
        }
        looks.push_back(look);
    }

    /// A route, with `now` as the newest sample.
    pub(crate) fn route(&self, now: &ThingsLook, name: &str) -> RouteTrend {
        let looks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let points = pairs(&looks, now).map(|(before, after)| {
            let (seconds, grown) = (after.seconds_since(before), after.routes_since(before, &[name]));
            RoutePoint {
                classes: grown.classes.map(|count| count as f64 / seconds),
                own: grown.own as f64 / seconds,
                duration: quantiles(&grown.duration),
                first_byte: quantiles(&grown.first_byte),
            }
        });
        let points = points.collect();
        let first = looks.front().unwrap_or(now);
        let whole = now.routes_since(first, &[name]);
        RouteTrend {
            points,
            step: STEP.as_secs(),
            seconds: now.at.saturating_duration_since(first.at).as_secs(),
            classes: whole.classes,
            own: whole.own,
            duration: quantiles(&whole.duration),
            first_byte: quantiles(&whole.first_byte),
            ..RouteTrend::default()
        }
    }

    /// An upstream, with `now` as the newest sample; `routes` lead to it.
    pub(crate) fn upstream(&self, now: &ThingsLook, name: &str, routes: &[&str]) -> UpstreamTrend {
        let looks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let points = pairs(&looks, now).map(|(before, after)| {
            let (seconds, grown) = (after.seconds_since(before), after.upstream_since(before, name));
            let answered = grown.count(Attempt::Answered).saturating_sub(grown.errors);
            UpstreamPoint {
                answered: answered as f64 / seconds,
                errors: grown.errors as f64 / seconds,
                failed: grown.failed() as f64 / seconds,
                first_byte: quantiles(&after.routes_since(before, routes).first_byte),
            }
        });
        let points = points.collect();
        let first = looks.front().unwrap_or(now);
        let whole = now.upstream_since(first, name);
        let outcomes = Attempt::ALL.iter().map(|outcome| (outcome.name(), whole.count(*outcome)));
        UpstreamTrend {
            points,
            step: STEP.as_secs(),
            seconds: now.at.saturating_duration_since(first.at).as_secs(),
            outcomes: outcomes.filter(|(_, count)| *count > 0).collect(),
            errors: whole.errors,
            first_byte: quantiles(&now.routes_since(first, routes).first_byte),
            routes: routes.iter().map(|name| (*name).to_owned()).collect(),
        }
    }

    /// The attempts at each upstream in the last minute.
    pub(crate) fn seen(&self, now: &ThingsLook) -> BTreeMap<String, Seen> {
        let looks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let recent = |look: &&ThingsLook| now.at.saturating_duration_since(look.at) <= MINUTE;
        let Some(before) = looks.iter().find(recent).or(looks.back()) else { return BTreeMap::new() };
        let seconds = now.seconds_since(before);
        let one = |name: &Arc<str>| {
            let grown = now.upstream_since(before, name);
            let attempts = grown.outcomes.iter().sum::<u64>() - grown.count(Attempt::Canceled);
            let seen = Seen {
                attempts,
                failed: grown.failed(),
                errors: grown.errors,
                rate: attempts as f64 / seconds,
                first_byte_ms: (grown.answered > 0)
                    .then(|| grown.first_byte.as_secs_f64() * 1e3 / grown.answered as f64),
            };
            (name.to_string(), seen)
        };
        now.upstreams.keys().map(one).collect()
    }
}

/// Each sample with its predecessor. `now` comes last, unless it is too close to the previous one.
fn pairs<'a>(
    looks: &'a VecDeque<ThingsLook>,
    now: &'a ThingsLook,
) -> impl Iterator<Item = (&'a ThingsLook, &'a ThingsLook)> {
    let last = looks.back().filter(|last| now.at.saturating_duration_since(last.at) >= STEP / 3);
    looks.iter().zip(looks.iter().skip(1)).chain(last.map(|last| (last, now)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn routes(requests: u64, failed: u64) -> Vec<(String, RouteFigures)> {
        let mut buckets = [0; BUCKETS];
        (buckets[1], buckets[5]) = (requests - failed, failed);
        let totals = HistogramTotals { buckets, sum_ns: 0 };
        let statuses = [(200, requests - failed), (502, failed)].into();
        let causes = [("connect_refused", failed)].into();
        vec![(
            "a".to_owned(),
            RouteFigures { statuses, causes, duration: totals.clone(), first_byte: totals, active: 0 },
        )]
    }

    fn upstreams(answered: u64, errors: u64, refused: u64) -> BTreeMap<String, UpstreamFigures> {
        let mut attempts = [0; Attempt::ALL.len()];
        attempts[Attempt::Answered as usize] = answered;
        attempts[Attempt::ConnectFailed as usize] = refused;
        attempts[Attempt::Canceled as usize] = 1000;
        let first_byte = Duration::from_millis(3 * answered);
        [("up".to_owned(), UpstreamFigures { attempts, errors, answered, first_byte })].into()
    }

    #[test]
    fn a_quarter_of_an_hour_of_each() {
        let (things, start) = (Things::default(), Instant::now());
        for n in 0..100 {
            let at = start + STEP * n;
            let n = u64::from(n);
            things.add(at, || {
                ThingsLook::of(&routes(n * 150, n * 15), &upstreams(n * 150, n * 15, n * 30), at)
            });
            // Called more often than the sampling interval.
            things.add(at + STEP / 3, || panic!("it is not time yet"));
        }
        let at = start + STEP * 100;
        let now = ThingsLook::of(&routes(15_000, 1_500), &upstreams(15_000, 1_500, 3_000), at);
        let route = things.route(&now, "a");
        assert_eq!((route.points.len(), route.step, route.seconds), (KEPT, 15, 61 * 15));
        let point = route.points[30];
        assert!((point.classes[2] - 9.0).abs() < 1e-9 && (point.classes[5] - 1.0).abs() < 1e-9, "{point:?}");
        assert!((point.own - 1.0).abs() < 1e-9);
        assert!(point.duration.p50.is_some_and(|ms| ms <= 1.0), "{point:?}");
        assert!(point.duration.p95.is_some_and(|ms| ms > 1.0), "{point:?}");
        assert_eq!((route.classes[2], route.classes[5], route.own), (61 * 135, 61 * 15, 61 * 15));
        let upstream = things.upstream(&now, "up", &["a"]);
        let point = upstream.points[30];
        assert!((point.answered - 9.0).abs() < 1e-9 && (point.errors - 1.0).abs() < 1e-9, "{point:?}");
        assert!((point.failed - 2.0).abs() < 1e-9 && point.first_byte.p50.is_some(), "{point:?}");
        assert_eq!(upstream.outcomes, [("answered", 61 * 150), ("connect_failed", 61 * 30)]);
        let seen = things.seen(&now)["up"];
        assert_eq!((seen.attempts, seen.failed, seen.errors), (720, 120, 60));
        assert!((seen.rate - 12.0).abs() < 1e-9 && seen.first_byte_ms == Some(3.0), "{seen:?}");
        let unknown = things.route(&now, "nothing");
        assert_eq!((unknown.classes, unknown.duration), ([0; 6], Quantiles::default()));
    }

    #[test]
    fn a_name_that_comes_back_counts_from_nothing() {
        let (things, start) = (Things::default(), Instant::now());
        things.add(start, || ThingsLook::of(&routes(1000, 0), &upstreams(1000, 0, 0), start));
        let now = ThingsLook::of(&routes(10, 0), &upstreams(10, 0, 0), start + STEP);
        assert_eq!(things.route(&now, "a").classes[2], 10);
        assert_eq!(things.seen(&now)["up"].attempts, 10);
        assert!(Things::default().seen(&now).is_empty());
    }
}
