//! Tests the bound on a simulated upstream: requests and failures on a clock that is passed in.

use super::*;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

const SECOND: u64 = 1_000_000;

/// The ways an upstream fails, and how long each takes, in microseconds.
const FAILURES: [(&str, u64); 3] = [("at once", 1_000), ("slowly", 300_000), ("silently", SECOND)];

/// An upstream, the cores that use it, and when each attempt arrived, in microseconds.
struct Outage {
    began: Instant,
    budget: Arc<Budget>,
    cores: Vec<Arc<Arrivals>>,
    requests: Vec<u64>,
    attempts: Vec<u64>,
}

impl Outage {
    /// This many cores, after this many healthy seconds at this rate.
    fn after(health: u64, rate: u64, cores: usize) -> Self {
        let began = Instant::now();
        let budget = Budget::new(began);
        let cores: Vec<_> = (0..cores).map(|_| budget.join()).collect();
        for second in 1..=health {
            for i in 0..rate {
                let at = (second - 1) * SECOND + i * SECOND / rate;
                cores[i as usize % cores.len()].count(|| began + Duration::from_micros(at));
            }
            budget.mark(began + Duration::from_secs(second));
        }
        let began = began + Duration::from_secs(health);
        Self { began, budget, cores, requests: Vec::new(), attempts: Vec::new() }
    }

    /// Makes all requests that arrive at these times fail; each is attempted up to three times.
    fn run(&mut self, arrivals: impl Iterator<Item = u64>, fails_after: u64, share: f64) {
        let mut due: BinaryHeap<Reverse<(u64, u32)>> = BinaryHeap::new();
        let mut arrivals = arrivals.peekable();
        let mut turn = 0;
        let mut marked = 0;
        loop {
            let failure = due.peek().map(|Reverse((at, _))| *at);
            let (at, made) = match (arrivals.peek(), failure) {
                (Some(next), failure) if failure.is_none_or(|failure| *next <= failure) => {
                    let at = *next;
                    arrivals.next();
                    (at, 0)
                }
                _ => match due.pop() {
                    Some(Reverse(next)) => next,
                    None => return,
                },
            };
            let now = self.began + Duration::from_micros(at);
            if at - marked >= SECOND {
                self.budget.mark(now);
                marked = at;
            }
            if made == 0 {
                turn += 1;
                self.cores[turn % self.cores.len()].count(|| now);
                self.requests.push(at);
            } else if made == 3 || !self.budget.spend(Extra::Retry, share, now) {
                continue;
            }
            self.attempts.push(at);
            due.push(Reverse((at + fails_after, made + 1)));
        }
    }

    /// The second with more attempts than `share` allows, and the excess. Checks the second after every attempt.
    fn excess(&self, share: f64) -> Option<(u64, f64)> {
        let within = |times: &[u64], from: u64| {
            let first = times.partition_point(|at| *at < from);
            times.partition_point(|at| *at < from + SECOND) - first
        };
        let last = *self.requests.last()?;
        let starts = self.attempts.iter().copied().filter(|at| at + SECOND <= last);
        starts
            .map(|from| {
                let allowed = (1.0 + share) * within(&self.requests, from) as f64 + 3.0;
                (from, within(&self.attempts, from) as f64 - allowed)
            })
            .find(|(_, over)| *over > 0.0)
    }

    fn ratio(&self) -> f64 {
        self.attempts.len() as f64 / self.requests.len() as f64
    }
}

fn evenly(rate: u64, seconds: u64) -> impl Iterator<Item = u64> {
    (0..rate * seconds).map(move |i| i * SECOND / rate)
}

#[test]
fn an_outage_after_an_hour_of_health_is_not_multiplied() {
    for rate in [20, 100, 300, 1_000] {
        for (cores, health) in [(1, 60), (2, 3_600), (8, 60)] {
            for (how, fails_after) in FAILURES {
                let mut outage = Outage::after(health, rate, cores);
                outage.run(evenly(rate, 12), fails_after, 0.2);
                assert_eq!(outage.excess(0.2), None, "{rate} requests a second that fail {how}");
                let ratio = outage.ratio();
                assert!(
                    (1.1..=1.2).contains(&ratio),
                    "the budget is used: {ratio} at {rate} that fail {how}"
                );
            }
        }
    }
}

#[test]
fn what_came_before_a_pause_pays_for_nothing_behind_it() {
    for (paused, cores) in [(1_000, 1), (1_000, 2), (1_100, 2), (1_500, 8), (1_900, 2)] {
        for rate in [20, 100, 300, 1_000] {
            for (how, fails_after) in FAILURES {
                // The control thread made its mark right before the requests came, and makes the next a second later.
                let mut outage = Outage::after(10, rate, cores);
                let marked = outage.began;
                for i in 0..1_000 {
                    outage.cores[i % cores].count(|| marked);
                }
                outage.budget.mark(marked + Duration::from_secs(1));
                outage.began = marked + Duration::from_millis(paused);
                outage.run(evenly(rate, 4), fails_after, 0.2);
                let case =
                    format!("{rate} requests a second on {cores} cores that fail {how}, after {paused} ms");
                assert_eq!(outage.excess(0.2), None, "{case}");
            }
        }
    }
}

#[test]
fn the_bound_holds_however_requests_arrive() {
    // A linear congruential generator: each run is the same.
    let mut seed = 1_u64;
    let mut random = move || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as f64 / f64::from(1_u32 << 31)
    };
    for (rate, cores) in [(20, 1), (100, 2), (300, 4), (1_000, 8)] {
        for (how, fails_after) in FAILURES {
            let mut at = 0.0;
            let arrivals: Vec<u64> = std::iter::from_fn(|| {
                at -= (1.0 - random()).ln() * SECOND as f64 / rate as f64;
                (at < 12.0 * SECOND as f64).then_some(at as u64)
            })
            .collect();
            let mut outage = Outage::after(60, rate, cores);
            outage.run(arrivals.into_iter(), fails_after, 0.2);
            assert_eq!(outage.excess(0.2), None, "{rate} requests a second that fail {how}");
        }
    }
}

#[test]
fn few_requests_have_three_retries_a_second() {
    for rate in [1, 5, 14] {
        let mut outage = Outage::after(0, rate, 1);
        outage.run(evenly(rate, 30), 1_000, 0.2);
        assert_eq!(outage.excess(0.2), None, "{rate}");
        let retries = outage.attempts.len() - outage.requests.len();
        assert!(retries >= 30 * if rate == 1 { 1 } else { 2 }, "{retries} at {rate}");
    }
}

#[test]
fn what_dies_with_requests_under_way_costs_none_of_them() {
    let outage = Outage::after(10, 1_000, 2);
    let granted = (0..300).filter(|_| outage.budget.spend(Extra::Retry, 0.2, outage.began)).count();
    // Up to twice 32 requests at the start of the window are in doubt.
    assert!((160..=200).contains(&granted), "the share of the last second: {granted}");
    let later = |ms| outage.began + Duration::from_millis(ms);
    assert!(!outage.budget.spend(Extra::Retry, 0.2, later(900)));
    let granted = (0..300).filter(|_| outage.budget.spend(Extra::Retry, 0.2, later(10_000))).count();
    assert_eq!(granted, 3, "nothing stays saved up");
}

#[test]
fn hedges_and_retries_share_what_is_free() {
    let now = Instant::now() + Duration::from_secs(5);
    let budget = Budget::new(now - Duration::from_secs(5));
    let spend = |extra, share| budget.spend(extra, share, now);
    assert!(spend(Extra::Hedge, 0.05) && spend(Extra::Retry, 0.2) && spend(Extra::Hedge, 0.05));
    assert!(!spend(Extra::Hedge, 0.05) && !spend(Extra::Retry, 0.2));
    let core = budget.join();
    (0..100).for_each(|_| core.count(|| now));
    let granted = |extra, share| (0..100).filter(|_| spend(extra, share)).count();
    assert_eq!(
        (granted(Extra::Hedge, 0.05), granted(Extra::Retry, 0.2)),
        (3, 19),
        "each up to its own share"
    );
}

#[test]
fn cores_that_leave_take_no_request_along() {
    let now = Instant::now();
    let budget = Budget::new(now);
    let first = budget.join();
    (0..50).for_each(|_| first.count(|| now));
    drop(first);
    let second = budget.join();
    (0..50).for_each(|_| second.count(|| now));
    let books = budget.books();
    assert_eq!((books.requests(), books.cores.len()), (100, 1));
}

/// A busy hour of marks and extra attempts leaves only the slots of one second.
#[test]
fn the_books_stay_short() {
    let began = Instant::now();
    let budget = Budget::new(began);
    let core = budget.join();
    let most = usize::try_from(WINDOW / SLOT).unwrap() + 3;
    for i in 0..100_000 {
        let now = began + Duration::from_millis(i);
        core.count(|| now);
        let _ = budget.spend(Extra::Retry, 1.0, now);
        let books = budget.books();
        assert!(books.marks.len() <= most && books.spent.len() <= most, "{i}: {books:?}");
    }
}
