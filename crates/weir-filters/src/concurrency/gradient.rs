//! Finds out from latencies how many requests an upstream can handle at the same time.
//!
//! An upstream with spare capacity takes as long for ten concurrent requests as for five. A saturated upstream takes
//! longer with each added request, without answering more in total. So the limit follows the gradient of the latency,
//! as in Netflix's concurrency-limits (Gradient2) and Envoy's adaptive concurrency:
//!
//! ```text
//!   gradient = tolerance × calm / now, at least 1/2, at most 1       calm, now: mean times to the head of a response
//!   limit    = limit × gradient + √limit        down to a lower one it goes half way at a time
//! ```
//! *now* is the mean of a window; *calm* is the mean of windows in which less than half of the limit was in use.
//! After [`CALM_FOR`] without such a window, the limit is briefly halved to measure again. An average over all
//! windows would take a long overload for normal and let the limit grow with it. Means are geometric, so that a few
//! slow requests among many do not make the upstream look slow.

use super::super::prelude::Portable;
use super::places::Places;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Shortest window. A window also lasts until it has seen this many responses.
const WINDOW: Duration = Duration::from_millis(100);
const SAMPLES: u64 = 20;

/// How long a calm measurement stays valid while the upstream is busy.
const CALM_FOR: Duration = Duration::from_secs(10);

/// How soon the first measurement is repeated.
const FIRST_LOOK: Duration = Duration::from_secs(1);

/// Weight of a new window in the mean of the calm ones.
const WEIGHT: f64 = 0.3;

/// Logarithms are summed as multiples of this fraction, so that adding one is a single atomic operation.
const SCALE: f64 = 65536.0;

/// Upper bound on the logarithm of a latency in microseconds.
const LOG_MAX: f64 = 64.0;

/// The initial limit, within the bounds.
const BEGIN: usize = 20;

/// The range of the limit, and how much slower than in calm an upstream may get.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Bounds {
    pub(super) minimum: usize,
    pub(super) maximum: usize,
    pub(super) tolerance: f64,
}

/// The adaptive limit.
#[derive(Debug)]
pub(super) struct Gradient {
    bounds: Bounds,
    /// For this window: the sum of the latencies' logarithms, their number, and the most concurrent requests.
    sum: AtomicU64,
    count: AtomicU64,
    busiest: AtomicUsize,
    /// The earliest end of the window, in nanoseconds.
    ends: AtomicU64,
    limit: Mutex<Limit>,
}

#[derive(Debug)]
struct Limit {
    value: f64,
    /// The mean logarithm in calm, and when it was last measured.
    calm: Option<f64>,
    measured: Duration,
    look: Look,
}

/// The phase of a measurement at half the limit.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Look {
    None,
    /// Requests above half of the limit are still under way. Holds the full limit.
    Draining(f64),
    Measuring(f64),
}

impl Bounds {
    pub(super) fn begin(&self) -> usize {
        BEGIN.clamp(self.minimum, self.maximum)
    }
}

impl Gradient {
    pub(super) fn new(bounds: Bounds) -> Self {
        let limit =
            Limit { value: bounds.begin() as f64, calm: None, measured: Duration::ZERO, look: Look::None };
        Self {
            bounds,
            sum: AtomicU64::new(0),
            count: AtomicU64::new(0),
            busiest: AtomicUsize::new(0),
            ends: AtomicU64::new(0),
            limit: Mutex::new(limit),
        }
    }

    /// Records the latency of a response; at the end of a window, adjusts the limit. `now` is relative to any fixed
    /// moment.
    pub(super) fn sample(&self, took: Duration, now: Duration, places: &Places) {
        let micros = took.as_secs_f64() * 1e6;
        self.sum.fetch_add((micros.max(1.0).log2() * SCALE) as u64, Relaxed);
        self.busiest.fetch_max(places.taken(), Relaxed);
        let count = self.count.fetch_add(1, Relaxed) + 1;
        if self.ends.load(Relaxed) == 0 {
            self.ends.store(nanos(now + WINDOW), Relaxed);
        }
        if count < SAMPLES || nanos(now) < self.ends.load(Relaxed) {
            return;
        }
        // If another core holds the lock, it ends the window and this core has nothing to do.
        let Ok(mut limit) = self.limit.try_lock() else { return };
        let (sum, count) = (self.sum.swap(0, Relaxed), self.count.swap(0, Relaxed));
        let busiest = self.busiest.swap(0, Relaxed);
        if count > 0 {
            self.ends.store(nanos(now + WINDOW), Relaxed);
            limit.window(sum as f64 / SCALE / count as f64, busiest as f64, now, &self.bounds);
            places.set_limit(limit.value.round() as usize);
        }
    }

    /// Whether the limit was made with these bounds.
    pub(super) fn is_within(&self, bounds: Bounds) -> bool {
        self.bounds == bounds
    }

    /// The current limit.
    pub(super) fn limit(&self) -> usize {
        self.limit.lock().unwrap_or_else(PoisonError::into_inner).value.round() as usize
    }

    /// Loads what [`Portable::save`] wrote in the previous process, within these bounds.
    pub(super) fn load(saved: &[u8], bounds: Bounds) -> Option<Self> {
        let (value, rest) = saved.split_first_chunk()?;
        let (calm, rest) = rest.split_first_chunk()?;
        let [value, calm] = [value, calm].map(|bytes| f64::from_be_bytes(*bytes));
        if !value.is_finite() || !rest.is_empty() {
            return None;
        }
        let gradient = Self::new(bounds);
        {
            let mut limit = gradient.limit.lock().unwrap_or_else(PoisonError::into_inner);
            limit.value = value.clamp(bounds.minimum as f64, bounds.maximum as f64);
            // The clock of this process has just started, so the measurement stays valid for `CALM_FOR`.
            limit.calm = Some(calm).filter(|calm| (0.0..=LOG_MAX).contains(calm));
        }
        Some(gradient)
    }
}

/// The limit and the mean in calm; NaN stands for no mean.
impl Portable for Gradient {
    fn save(&self) -> Vec<u8> {
        let limit = self.limit.lock().unwrap_or_else(PoisonError::into_inner);
        let value = match limit.look {
            Look::None => limit.value,
            Look::Draining(before) | Look::Measuring(before) => before,
        };
        [value, limit.calm.unwrap_or(f64::NAN)].into_iter().flat_map(f64::to_be_bytes).collect()
    }
}

fn nanos(at: Duration) -> u64 {
    u64::try_from(at.as_nanos()).unwrap_or(u64::MAX)
}

impl Limit {
    fn window(&mut self, mean: f64, busiest: f64, now: Duration, bounds: &Bounds) {
        match self.look {
            Look::Draining(before) => {
                self.look = Look::Measuring(before);
                return;
            }
            Look::Measuring(before) => {
                // Earlier measurements are out of date; otherwise there would have been no need to measure.
                (self.calm, self.measured) = (Some(mean), now);
                (self.value, self.look) = (before, Look::None);
                return;
            }
            Look::None => {}
        }
        let busy = busiest * 2.0 >= self.value;
        let calm = *self.calm.get_or_insert_with(|| {
            // The fast responses among the first requests came before the slow ones, so the measurement is repeated
            // soon.
            self.measured = now.saturating_sub(CALM_FOR - FIRST_LOOK);
            mean
        });
        if !busy || mean < calm {
            self.calm = Some(calm + (mean - calm) * WEIGHT);
            self.measured = now;
        } else if now.saturating_sub(self.measured) > CALM_FOR {
            self.look = Look::Draining(self.value);
            self.value = (self.value / 2.0).max(bounds.minimum as f64);
            return;
        }
        let slower = (mean - self.calm.unwrap_or(mean)).exp2();
        let gradient = (bounds.tolerance / slower).clamp(0.5, 1.0);
        let next = self.value * gradient + self.value.sqrt();
        // A limit that was not reached says nothing about a higher one.
        if busy || next < self.value {
            let next = if next < self.value { self.value.midpoint(next) } else { next };
            self.value = next.clamp(bounds.minimum as f64, bounds.maximum as f64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::places::{Claim, Slot};
    use super::*;
    use std::cmp::Reverse;
    use std::collections::{BinaryHeap, VecDeque};
    use std::sync::Arc;

    const BOUNDS: Bounds = Bounds { minimum: 4, maximum: 1000, tolerance: 1.5 };

    /// The result of a simulated load.
    #[derive(Debug)]
    struct Outcome {
        /// Responses per second within ten times the service time.
        useful: f64,
        /// 99th percentile of the time of admitted requests, in ms.
        p99: f64,
        limit: usize,
    }

    /// A simulated upstream: `workers` requests run at a time, about `service` ms each, and the rest wait in a queue.
    /// The load is open-loop, whatever the latency, with the limit, if any, in between. Times are exponential, from a
    /// fixed seed.
    struct Upstream {
        workers: usize,
        service: f64,
        gradient: Option<(Gradient, Arc<Places>)>,
        random: u64,
    }

    impl Upstream {
        fn new(workers: usize, service: f64, limited: bool) -> Self {
            let gradient = limited.then(|| (Gradient::new(BOUNDS), Arc::new(Places::new(BOUNDS.begin()))));
            Self { workers, service, gradient, random: 7 }
        }

        fn exponential(&mut self, mean: f64) -> f64 {
            self.random =
                self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            -mean * (((self.random >> 11) as f64 + 1.0) / (1u64 << 53) as f64).ln()
        }

        /// Sends `rate` requests per second for `seconds`. The first tenth is not counted.
        fn load(&mut self, rate: f64, seconds: f64) -> Outcome {
            let (mut now, mut next, end) = (0.0, 0.0, seconds * 1000.0);
            let mut working: BinaryHeap<(Reverse<u64>, u64)> = BinaryHeap::new();
            let mut queue: VecDeque<(f64, Option<Slot>)> = VecDeque::new();
            let mut begun: Vec<(f64, Option<Slot>)> = Vec::new();
            let mut took = Vec::new();
            while now < end {
                let done = working.peek().map(|(Reverse(at), _)| *at as f64 / 1000.0);
                now = done.filter(|at| *at < next).unwrap_or(next);
                if now == next {
                    next += self.exponential(1000.0 / rate);
                    match &self.gradient {
                        Some((_, places)) => {
                            if let Ok(slot) = Claim::to(Arc::clone(places)).take() {
                                queue.push_back((now, Some(slot)));
                            }
                        }
                        None => queue.push_back((now, None)),
                    }
                } else if let Some((_, index)) = working.pop() {
                    let (came, slot) = &mut begun[index as usize];
                    let latency = f64::max(now - *came, 0.0);
                    if let Some((gradient, places)) = &self.gradient {
                        let at = Duration::from_secs_f64(now / 1000.0);
                        gradient.sample(Duration::from_secs_f64(latency / 1000.0), at, places);
                    }
                    drop(slot.take());
                    if now > end / 10.0 {
                        took.push(latency);
                    }
                }
                while working.len() < self.workers
                    && let Some(one) = queue.pop_front()
                {
                    let ends = now + self.exponential(self.service);
                    working.push((Reverse((ends * 1000.0) as u64), begun.len() as u64));
                    begun.push(one);
                }
            }
            took.sort_by(f64::total_cmp);
            let useful = took.iter().filter(|ms| **ms < self.service * 10.0).count();
            Outcome {
                useful: useful as f64 / (seconds * 0.9),
                p99: took[took.len() * 99 / 100],
                limit: self.gradient.as_ref().map_or(0, |(gradient, _)| gradient.limit()),
            }
        }
    }

    /// The figures of docs/guide/limits.md, which `--nocapture` prints. 16 workers of 10 ms can handle 1,600 requests
    /// per second; twice as many arrive for a minute.
    #[test]
    fn a_saturating_upstream_is_protected() {
        let without = Upstream::new(16, 10.0, false).load(3200.0, 60.0);
        assert!(without.useful < 100.0 && without.p99 > 20_000.0, "{without:?}");
        let with = Upstream::new(16, 10.0, true).load(3200.0, 60.0);
        println!("without: {without:?}\nwith: {with:?}");
        assert!(with.useful > 1600.0 * 0.95, "{with:?}");
        assert!(with.p99 < 80.0, "{with:?}");
        assert!((16..64).contains(&with.limit), "{with:?}");
    }

    #[test]
    fn an_upstream_with_room_is_not_held_back() {
        let with = Upstream::new(400, 10.0, true).load(20_000.0, 30.0);
        assert!(with.useful > 20_000.0 * 0.97, "{with:?}");
    }

    #[test]
    fn a_long_overload_does_not_pass_for_the_rule() {
        let with = Upstream::new(8, 5.0, true).load(8000.0, 120.0);
        assert!(with.useful > 1600.0 * 0.9 && with.p99 < 50.0, "{with:?}");
    }

    #[test]
    fn what_was_found_out_travels() {
        let old = Gradient::new(BOUNDS);
        {
            let mut limit = old.limit.lock().unwrap();
            *limit = Limit { value: 30.0, calm: Some(13.0), measured: CALM_FOR, look: Look::Measuring(60.4) };
        }
        let saved = old.save();
        let new = Gradient::load(&saved, BOUNDS).unwrap();
        assert_eq!((new.limit(), new.limit.lock().unwrap().calm), (60, Some(13.0)));
        let narrow = Bounds { maximum: 50, ..BOUNDS };
        assert_eq!(Gradient::load(&saved, narrow).unwrap().limit(), 50);
        let fresh = Gradient::load(&Gradient::new(BOUNDS).save(), BOUNDS).unwrap();
        assert_eq!((fresh.limit(), fresh.limit.lock().unwrap().calm), (BEGIN, None));
        let no_number = f64::NAN.to_be_bytes().repeat(2);
        for wrong in [Vec::new(), saved[..15].to_vec(), [&saved[..], b"x"].concat(), no_number] {
            assert!(Gradient::load(&wrong, BOUNDS).is_none(), "{wrong:?}");
        }
    }

    #[test]
    fn the_limit_stays_within_its_bounds() {
        let bounds = Bounds { minimum: 4, maximum: 30, tolerance: 1.5 };
        let mut limit = Limit { value: 20.0, calm: None, measured: Duration::ZERO, look: Look::None };
        let mut window = |mean: f64, at: u64| {
            limit.window(mean, 30.0, Duration::from_millis(at * 100), &bounds);
            limit.value
        };
        for at in 0..50 {
            window(10.0, at);
        }
        assert!((window(10.0, 50) - 30.0).abs() < 0.1);
        for at in 51..90 {
            window(16.0, at);
        }
        assert!((window(16.0, 90) - 4.0).abs() < 0.1);
    }
}
