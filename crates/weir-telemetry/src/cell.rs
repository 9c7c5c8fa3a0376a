//! Cells of one number each, written by a core and read by a scrape.
//!
//! Invariant: a cell has one writer at a time, its core. So a relaxed load and a relaxed store suffice, where a
//! shared counter would need a locked read-modify-write. Two writers would lose counts but do no other harm.

use std::sync::atomic::{
    AtomicI64, AtomicU16, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
};
use std::time::Duration;

/// Upper bounds of the buckets of every [`Histogram`], in nanoseconds; a value equal to a bound belongs to it.
///
/// From half a millisecond, the most that a gateway should add, to 30 s, its default response timeout. All series use
/// the same bounds, so that routes and upstreams can be added up. Invariant: each bound is at least twice the
/// previous one; `Histogram::observe` relies on it.
pub const BOUNDS_NS: [u64; 15] = [
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    25_000_000,
    50_000_000,
    100_000_000,
    250_000_000,
    500_000_000,
    1_000_000_000,
    2_500_000_000,
    5_000_000_000,
    10_000_000_000,
    30_000_000_000,
];

/// Number of buckets of a histogram, including the one without an upper bound.
pub const BUCKETS: usize = BOUNDS_NS.len() + 1;

/// Most distinct status codes of one [`StatusCounts`]; all others count together as `other`.
///
/// Upstreams choose codes freely between 100 and 999; this bounds what a hostile one can make us store and expose.
pub const STATUS_CODES: usize = 24;

/// A number that only grows, written by one core.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// A counter at zero.
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Adds `n`. Wraps at 2^64.
    #[inline]
    pub fn add(&self, n: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(n), Relaxed);
    }

    /// Adds one.
    #[inline]
    pub fn inc(&self) {
        self.add(1);
    }

    /// The count so far; any thread may read it.
    #[inline]
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// A number that goes up and down, written by one core.
///
/// The counted thing may move between cores (a connection handed to a less loaded core). Then one core's gauge may
/// become negative, and only the sum over the cores is meaningful. The exposition shows the sum.
#[derive(Debug, Default)]
pub struct Gauge(AtomicI64);

impl Gauge {
    /// A gauge at zero.
    pub const fn new() -> Self {
        Self(AtomicI64::new(0))
    }

    /// Adds one.
    #[inline]
    pub fn inc(&self) {
        self.add(1);
    }

    /// Subtracts one.
    #[inline]
    pub fn dec(&self) {
        self.add(-1);
    }

    /// Adds `n`, which may be negative.
    #[inline]
    pub fn add(&self, n: i64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(n), Relaxed);
    }

    /// Replaces the value.
    #[inline]
    pub fn set(&self, value: i64) {
        self.0.store(value, Relaxed);
    }

    /// The current value; any thread may read it.
    #[inline]
    pub fn get(&self) -> i64 {
        self.0.load(Relaxed)
    }
}

/// A distribution of durations in the fixed buckets of [`BOUNDS_NS`], written by one core. 136 bytes.
#[derive(Debug, Default)]
pub struct Histogram {
    buckets: [Counter; BUCKETS],
    sum_ns: Counter,
}

impl Histogram {
    /// Counts one duration. The sum wraps after 584 years.
    #[inline]
    pub fn observe(&self, value: Duration) {
        // Not `as_nanos`, which multiplies 128 bits.
        let ns = value.as_secs().saturating_mul(1_000_000_000).saturating_add(value.subsec_nanos().into());
        self.buckets[bucket(ns)].add(1);
        self.sum_ns.add(ns);
    }

    /// Adds this histogram to `totals`, as a scrape does for each core.
    pub fn add_to(&self, totals: &mut HistogramTotals) {
        for (total, bucket) in totals.buckets.iter_mut().zip(&self.buckets) {
            *total += bucket.get();
        }
        totals.sum_ns = totals.sum_ns.wrapping_add(self.sum_ns.get());
    }
}

/// The sum of histograms. Its count is the sum of the buckets, so that it always equals the last cumulative bucket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HistogramTotals {
    /// The number of values per bucket, not cumulative; the last one has no upper bound.
    pub buckets: [u64; BUCKETS],
    /// The sum of all values, in nanoseconds.
    pub sum_ns: u64,
}

impl HistogramTotals {
    /// The number of values.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }
}

/// Exact counts by status code, for at most [`STATUS_CODES`] distinct codes, written by one core. 336 bytes.
///
/// An open-addressing table, at most three quarters full. Slots are claimed once and never freed. The writer stores
/// the code with Release after its count, so a reader that sees the code sees a valid count.
#[derive(Debug, Default)]
pub struct StatusCounts {
    codes: [AtomicU16; SLOTS],
    counts: [Counter; SLOTS],
    claimed: Counter,
    other: Counter,
}

/// Slots of the table: a power of two above [`STATUS_CODES`], so that a probe always reaches a free one.
const SLOTS: usize = 32;

impl StatusCounts {
    /// Counts one response with this status code.
    #[inline]
    pub fn record(&self, code: u16) {
        // Codes in practice differ in their low bits and in their hundreds.
        let mut slot = (usize::from(code) ^ usize::from(code >> 5)) % SLOTS;
        loop {
            let held = self.codes[slot].load(Relaxed);
            if held == code && code != 0 {
                return self.counts[slot].inc();
            }
            if held == 0 {
                return self.claim(slot, code);
            }
            slot = (slot + 1) % SLOTS;
        }
    }

    /// Calls `f` with each observed code and its count, in no particular order; with `None` for the codes beyond the
    /// limit, if any.
    pub fn each(&self, mut f: impl FnMut(Option<u16>, u64)) {
        for (code, count) in self.codes.iter().zip(&self.counts) {
            let code = code.load(Acquire);
            if code != 0 {
                f(Some(code), count.get());
            }
        }
        if self.other.get() > 0 {
            f(None, self.other.get());
        }
    }

    /// The number of responses.
    pub fn total(&self) -> u64 {
        let mut total = 0;
        self.each(|_, n| total += n);
        total
    }

    #[cold]
    fn claim(&self, slot: usize, code: u16) {
        if code == 0 || self.claimed.get() >= STATUS_CODES as u64 {
            return self.other.inc();
        }
        self.claimed.inc();
        self.counts[slot].inc();
        self.codes[slot].store(code, Release);
    }
}

/// The bucket of a value: one table lookup by the position of its highest bit, one comparison, no branch.
///
/// A whole `observe` of unordered values costs 2.0 ns, with a scan of the bounds 9.3 (examples/measure.rs).
#[inline]
pub(crate) fn bucket(ns: u64) -> usize {
    let first = usize::from(FIRST[63 - (ns | 1).leading_zeros() as usize]);
    first + usize::from(ns > LIMITS[first % BUCKETS])
}

/// The bounds, plus one for the last bucket that nothing exceeds.
static LIMITS: [u64; BUCKETS] = {
    let mut limits = [u64::MAX; BUCKETS];
    let mut i = 0;
    while i < BOUNDS_NS.len() {
        limits[i] = BOUNDS_NS[i];
        i += 1;
    }
    limits
};

/// For each power of two, the first bound that is not below it. At most one bound lies between it and the next power.
static FIRST: [u8; 64] = {
    let mut table = [0; 64];
    let mut bit = 0;
    while bit < 64 {
        let mut i = 0;
        while i < BOUNDS_NS.len() && BOUNDS_NS[i] < 1 << bit {
            i += 1;
        }
        table[bit] = i as u8;
        bit += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    fn slow_bucket(ns: u64) -> usize {
        BOUNDS_NS.iter().take_while(|bound| ns > **bound).count()
    }

    #[test]
    fn each_bound_is_at_least_twice_the_one_before() {
        assert!(BOUNDS_NS.windows(2).all(|w| w[1] >= 2 * w[0]));
    }

    #[test]
    fn every_value_falls_in_the_bucket_a_scan_would_find() {
        let mut values = vec![0, 1, 2, u64::MAX];
        for bound in BOUNDS_NS {
            values.extend([bound - 1, bound, bound + 1]);
        }
        for bit in 0..64 {
            values.extend([(1u64 << bit) - 1, 1 << bit, (1 << bit) + 1]);
        }
        for ns in values {
            assert_eq!(bucket(ns), slow_bucket(ns), "{ns} ns");
        }
    }

    #[test]
    fn a_histogram_adds_up() {
        let h = Histogram::default();
        for ms in [0, 1, 3, 40, 40_000] {
            h.observe(Duration::from_millis(ms));
        }
        h.observe(Duration::MAX);
        let mut totals = HistogramTotals::default();
        h.add_to(&mut totals);
        h.add_to(&mut totals);
        assert_eq!(totals.count(), 12);
        assert_eq!(totals.buckets, [2, 2, 0, 2, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 4]);
    }

    #[test]
    fn codes_are_exact_until_the_limit_and_other_beyond() {
        let counts = StatusCounts::default();
        for code in 200..(200 + STATUS_CODES as u16) {
            for _ in 0..code {
                counts.record(code);
            }
        }
        for code in 600..700 {
            counts.record(code);
        }
        counts.record(0);
        counts.record(200);
        let mut seen = Vec::new();
        counts.each(|code, n| seen.push((code, n)));
        seen.sort();
        assert_eq!(seen.len(), STATUS_CODES + 1);
        assert_eq!(seen[0], (None, 101));
        assert_eq!(seen[1], (Some(200), 201));
        assert_eq!(seen[24], (Some(223), 223));
        assert_eq!(counts.total(), 101 + 201 + (201..224).sum::<u64>());
    }

    #[test]
    fn gauges_may_go_below_zero_on_one_core() {
        let gauge = Gauge::new();
        gauge.dec();
        gauge.dec();
        gauge.inc();
        assert_eq!(gauge.get(), -1);
        gauge.set(7);
        assert_eq!(gauge.get(), 7);
    }
}
