//! A histogram of times in fixed memory: HDR with three digits, with exact count, sum, sum of squares, minimum and
//! maximum.
//!
//! The layout is that of HdrHistogram with three significant digits. Each value below 2,048 has its own bucket; above
//! that, each power of two is divided into 1,024 buckets, so values are known to 1 in 1,024 (0.1 %). Mean and
//! standard deviation come from the exact sums, not from buckets. We do not use the crate of that name: here,
//! recording is a shift and four additions without an error path, and the saved form is a list that any JSON reader
//! can use.
//!
//! Methods that a load calls for each response or each second are inlined into weir-load, since the profile `release`
//! does not optimize this crate.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// Times in nanoseconds (or another unit if a field says so), in constant memory.
///
/// 264 KiB after the first value, none before. Values above [`Histogram::MOST`] (73 minutes in nanoseconds) go to the
/// last bucket; sum, minimum and maximum stay exact.
///
/// Invariant: the counts of all buckets add up to `count`.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "Saved", into = "Saved")]
#[schemars(with = "Saved")]
pub struct Histogram {
    counts: Vec<u64>,
    count: u64,
    sum: u64,
    squares: u128,
    min: u64,
    max: u64,
    /// It was read from a file whose minimum or maximum contradicts its buckets.
    is_contradictory: bool,
}

/// A histogram in saved form: sparse, but complete.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
struct Saved {
    /// Values recorded.
    count: u64,
    /// Exact sum of all values.
    sum: u64,
    /// Sum of the squares of all values, in double precision; for the standard deviation.
    sum_of_squares: f64,
    /// Smallest value; 0 if empty.
    min: u64,
    /// Largest value; 0 if empty.
    max: u64,
    /// Pairs of a bucket's lowest value and its count, ascending, without empty buckets. A bucket at `v` below 2048
    /// holds only `v`; from there on it holds `2^(floor(log2 v) - 10)` values.
    buckets: Vec<(u64, u64)>,
}

/// Buckets per power of two.
const SUB: u64 = 1024;

/// The highest power of two with its own buckets.
const TOP: u32 = 42;

/// Total number of buckets.
const BUCKETS: usize = ((TOP as u64 - 11 + 2) * SUB) as usize;

/// Buckets that [`Histogram::at_rank`] adds up at once.
const GROUP: usize = 256;

impl Histogram {
    /// The largest value with a bucket of its own: 2^42 - 1, or 73 minutes in nanoseconds.
    pub const MOST: u64 = (1 << TOP) - 1;

    /// Where the last bucket begins.
    pub(crate) const LAST: u64 = lowest_of(BUCKETS - 1);

    /// An empty histogram.
    pub const fn new() -> Self {
        Self { counts: Vec::new(), count: 0, sum: 0, squares: 0, min: 0, max: 0, is_contradictory: false }
    }

    /// Records one value. Inlined into weir-load, which records several for each response: 25 instructions each, a
    /// third of what [`Histogram::record_n`] takes.
    #[inline]
    pub fn record(&mut self, value: u64) {
        if self.count == 0 {
            self.begin(value);
        }
        if let Some(c) = self.counts.get_mut(bucket_of(value)) {
            *c += 1;
        }
        self.count += 1;
        self.sum = self.sum.saturating_add(value);
        self.squares += u128::from(value) * u128::from(value);
        self.min = self.min.min(value);
        self.max = self.max.max(value);
    }

    /// Prepares an empty histogram for its first value.
    #[cold]
    fn begin(&mut self, value: u64) {
        if self.counts.is_empty() {
            self.counts = vec![0; BUCKETS];
        }
        (self.min, self.max) = (value, value);
    }

    /// Records a value `n` times.
    #[inline]
    pub fn record_n(&mut self, value: u64, n: u64) {
        if n == 0 {
            return;
        }
        if self.count == 0 {
            self.begin(value);
        }
        if let Some(c) = self.counts.get_mut(bucket_of(value)) {
            *c += n;
        }
        self.count += n;
        self.sum = self.sum.saturating_add(value.saturating_mul(n));
        self.squares += u128::from(value) * u128::from(value) * u128::from(n);
        self.min = self.min.min(value);
        self.max = self.max.max(value);
    }

    /// Adds all values of another histogram.
    #[inline]
    pub fn add(&mut self, other: &Self) {
        if other.count == 0 {
            return;
        }
        if self.count == 0 {
            (self.min, self.max) = (other.min, other.max);
        }
        if self.counts.is_empty() {
            self.counts = vec![0; BUCKETS];
        }
        let span = other.span();
        let theirs = other.counts.get(span.clone()).unwrap_or_default();
        for (mine, theirs) in self.counts.get_mut(span).unwrap_or_default().iter_mut().zip(theirs) {
            *mine += theirs;
        }
        self.is_contradictory |= other.is_contradictory;
        self.count += other.count;
        self.sum = self.sum.saturating_add(other.sum);
        self.squares = self.squares.saturating_add(other.squares);
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
    }

    /// The rest after removing the values of `other`, all of which must have been recorded here. Minimum and maximum
    /// are then known to a bucket's width, unless they did not belong to `other`.
    #[inline]
    pub fn without(&self, other: &Self) -> Self {
        if other.count == 0 {
            return self.clone();
        }
        let mut left = self.clone();
        left.count = self.count.saturating_sub(other.count);
        left.sum = self.sum.saturating_sub(other.sum);
        left.squares = self.squares.saturating_sub(other.squares);
        let span = other.span();
        let theirs = other.counts.get(span.clone()).unwrap_or_default();
        for (mine, theirs) in left.counts.get_mut(span).unwrap_or_default().iter_mut().zip(theirs) {
            *mine = mine.saturating_sub(*theirs);
        }
        if left.count == 0 {
            return Self::new();
        }
        let low = left.buckets().next().map_or(0, |(from, _)| from);
        let high = left.buckets().last().map_or(0, |(from, _)| highest_of(from));
        left.min = low.max(self.min);
        left.max = high.min(self.max);
        left
    }

    /// Removes all values but keeps the memory.
    #[inline]
    pub fn clear(&mut self) {
        let span = self.span();
        self.counts.get_mut(span).unwrap_or_default().fill(0);
        *self = Self { counts: std::mem::take(&mut self.counts), ..Self::new() };
    }

    /// Values recorded.
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// Whether nothing has been recorded.
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Exact sum.
    pub const fn sum(&self) -> u64 {
        self.sum
    }

    /// Smallest value; 0 if empty.
    pub const fn min(&self) -> u64 {
        self.min
    }

    /// Largest value; 0 if empty.
    pub const fn max(&self) -> u64 {
        self.max
    }

    /// Exact mean; 0 if empty.
    pub fn mean(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.sum as f64 / self.count as f64 }
    }

    /// Standard deviation of the sample (divided by n - 1, as in wrk and ab); 0 for fewer than two values.
    #[inline]
    pub fn stdev(&self) -> f64 {
        if self.count < 2 {
            return 0.0;
        }
        let (n, sum) = (self.count as f64, self.sum as f64);
        ((self.squares as f64 - sum * sum / n) / (n - 1.0)).max(0.0).sqrt()
    }

    /// The value that at least the share `q` of all values does not exceed: 0.99 for the 99th percentile. Rounded up
    /// to the end of its bucket, but never above the maximum. 0 if empty.
    #[inline]
    pub fn quantile(&self, q: f64) -> u64 {
        // The small term keeps 0.99 × 100 at rank 99; in binary floating point it would be 99.00000000000001.
        self.at_rank((q.clamp(0.0, 1.0) * self.count as f64 - 1e-9).ceil() as u64)
    }

    /// Like [`Self::quantile`], with `beyond` additional values that are larger than all others; `None` if the result
    /// is one of those.
    pub fn quantile_with(&self, q: f64, beyond: u64) -> Option<u64> {
        let rank = (q.clamp(0.0, 1.0) * (self.count + beyond) as f64 - 1e-9).ceil() as u64;
        (rank <= self.count).then(|| self.at_rank(rank))
    }

    /// The value at a position in the sorted list, the first being 1. Rounded up to the end of its bucket, but never
    /// above the maximum. For tools with their own rule for the position of a percentile. 0 if empty.
    #[inline]
    pub fn at_rank(&self, rank: u64) -> u64 {
        if rank >= self.count {
            return self.max;
        }
        // Whole groups of buckets first, whose sum is a vector instruction for every four of them.
        let (mut seen, rank) = (0, rank.max(1));
        let from = self.span().start / GROUP * GROUP;
        for (group, counts) in (from / GROUP..).zip(self.counts.get(from..).unwrap_or_default().chunks(GROUP))
        {
            let all: u64 = counts.iter().sum();
            if seen + all < rank {
                seen += all;
                continue;
            }
            for (i, count) in counts.iter().enumerate() {
                seen += count;
                if seen >= rank {
                    return highest_of(lowest_of(group * GROUP + i)).clamp(self.min, self.max);
                }
            }
        }
        self.max
    }

    /// The share of values within `reach` of the mean, 0 to 1, computed from bucket middles. With the standard
    /// deviation as `reach` it is wrk's `+/- Stdev`.
    pub fn share_within(&self, reach: f64) -> f64 {
        if self.count == 0 {
            return 0.0;
        }
        let mean = self.mean();
        let near = |from: u64| {
            let middle = (from as f64 + highest_of(from) as f64) / 2.0;
            (middle - mean).abs() <= reach
        };
        let within: u64 = self.buckets().filter(|(from, _)| near(*from)).map(|(_, count)| count).sum();
        within as f64 / self.count as f64
    }

    /// Lowest value and count of each non-empty bucket, ascending.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> {
        let span = self.span();
        (span.start..)
            .zip(self.counts.get(span).unwrap_or_default())
            .filter(|(_, count)| **count > 0)
            .map(|(i, count)| (lowest_of(i), *count))
    }

    /// The buckets from that of the minimum to that of the maximum: a short run fills few of them, and looking at all
    /// took more time than its requests.
    fn span(&self) -> Range<usize> {
        match (self.count, self.is_contradictory) {
            (0, _) => 0..0,
            (_, true) => 0..self.counts.len(),
            _ => bucket_of(self.min)..bucket_of(self.max) + 1,
        }
    }

    /// Whether minimum, maximum and sum are possible with these buckets. Those of a peer need not be.
    pub fn is_sound(&self) -> bool {
        if self.count == 0 {
            return (self.sum, self.min, self.max) == (0, 0, 0);
        }
        if self.is_contradictory {
            return false;
        }
        let (mut low, mut high, mut first, mut last) = (0u128, 0u128, None, 0);
        for (from, to, count) in self.ranges() {
            low += u128::from(from) * u128::from(count);
            // The last possible bucket takes everything above it, and a sum that is too large stays at its limit.
            high += if from >= Self::LAST { u128::MAX >> 64 } else { u128::from(to) * u128::from(count) };
            first = first.or(Some(from));
            last = from;
        }
        let is_low = first.is_some_and(|first| bucket_of(self.min) == bucket_of(first));
        let is_sum = u128::from(self.sum) <= high && (u128::from(self.sum) >= low || self.sum == u64::MAX);
        is_low && bucket_of(self.max) == bucket_of(last) && is_sum
    }

    /// Lowest value, highest value and count of each non-empty bucket, ascending.
    pub fn ranges(&self) -> impl Iterator<Item = (u64, u64, u64)> {
        self.buckets().map(|(from, count)| (from, highest_of(from), count))
    }
}

impl Clone for Histogram {
    #[inline]
    fn clone(&self) -> Self {
        let Self { count, sum, squares, min, max, is_contradictory, .. } = *self;
        // Copies no empty buckets: the system hands out memory that is zero.
        let span = self.span();
        let mut counts = if count == 0 { Vec::new() } else { vec![0; BUCKETS] };
        let from = self.counts.get(span.clone()).unwrap_or_default();
        counts.get_mut(span).unwrap_or_default().copy_from_slice(from);
        Self { counts, count, sum, squares, min, max, is_contradictory }
    }
}

impl From<Histogram> for Saved {
    fn from(h: Histogram) -> Self {
        Self {
            count: h.count,
            sum: h.sum,
            sum_of_squares: h.squares as f64,
            min: h.min,
            max: h.max,
            buckets: h.buckets().collect(),
        }
    }
}

/// Most values in a saved histogram: the largest integer that JSON represents exactly. No run comes close.
const SAVED_MOST: u64 = 1 << 53;

impl TryFrom<Saved> for Histogram {
    type Error = String;

    /// Checks everything that the arithmetic relies on. Whether the values agree with each other is checked by
    /// `verify`.
    fn try_from(saved: Saved) -> Result<Self, String> {
        let Saved { sum, sum_of_squares, min, max, .. } = saved;
        if min > max {
            return Err(format!("min is {min}, which is above max, {max}"));
        }
        if !sum_of_squares.is_finite() || sum_of_squares < 0.0 {
            return Err(format!("sum_of_squares is {sum_of_squares}, expected 0 or more"));
        }
        let mut h = Self::new();
        let (mut first, mut before) = (None, None);
        for (from, count) in saved.buckets {
            let bucket = bucket_of(from);
            if lowest_of(bucket) != from {
                return Err(format!("buckets: {from} is where no bucket begins"));
            }
            if before.is_some_and(|before| before >= from) {
                return Err(format!("buckets: {from} follows a bucket that begins no lower"));
            }
            before = Some(from);
            first = first.or(before);
            h.count = h.count.saturating_add(count);
            if h.count > SAVED_MOST {
                return Err(format!("buckets: they hold more than {SAVED_MOST} values"));
            }
            if h.counts.is_empty() {
                h.counts = vec![0; BUCKETS];
            }
            if let Some(c) = h.counts.get_mut(bucket) {
                *c = count;
            }
        }
        (h.sum, h.squares, h.min, h.max) = (sum, sum_of_squares as u128, min, max);
        h.is_contradictory = first.is_some_and(|first| bucket_of(min) > bucket_of(first))
            || before.is_some_and(|last| bucket_of(max) < bucket_of(last));
        Ok(h)
    }
}

#[inline]
const fn bucket_of(value: u64) -> usize {
    let value = if value > Histogram::MOST { Histogram::MOST } else { value };
    if value < 2 * SUB {
        return value as usize;
    }
    let shift = 63 - value.leading_zeros() - 10;
    (shift as u64 * SUB + (value >> shift)) as usize
}

/// The lowest value of the bucket with this number.
const fn lowest_of(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < 2 * SUB {
        return bucket;
    }
    let shift = bucket / SUB - 1;
    (bucket - shift * SUB) << shift
}

/// The highest value of the bucket that begins at `from`; the last bucket, which also takes everything above, is an
/// exception.
pub(crate) const fn highest_of(from: u64) -> u64 {
    if from < 2 * SUB {
        return from;
    }
    from.saturating_add((1 << (63 - from.leading_zeros() - 10)) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_that_no_values_have_are_found() {
        let mut h = Histogram::new();
        assert!(h.is_sound());
        [1_000, 5_000, 5_001, Histogram::MOST * 8].iter().for_each(|value| h.record(*value));
        assert!(h.is_sound() && h.without(&h.clone()).is_sound());
        let mut more = h.clone();
        more.record(7_000);
        assert!(more.without(&h).is_sound());
        h.record_n(1 << 61, 9);
        assert!(h.is_sound(), "a sum at its limit");
        let mut h = Histogram::new();
        [1_000, 5_000].iter().for_each(|value| h.record(*value));
        for (key, wrong) in [("sum", 5_900), ("sum", 6_100), ("min", 999), ("max", 6_000), ("max", 4_000)] {
            let mut saved = serde_json::to_value(&h).unwrap();
            saved[key] = wrong.into();
            let read: Histogram = serde_json::from_value(saved).unwrap();
            assert!(!read.is_sound(), "{key} {wrong}");
        }
        let empty = r#"{"count":0,"sum":7,"sum_of_squares":0,"min":0,"max":0,"buckets":[]}"#;
        assert!(!serde_json::from_str::<Histogram>(empty).unwrap().is_sound());
    }

    #[test]
    fn every_value_is_in_the_bucket_that_begins_below_it() {
        for value in (0..5000).chain((12..43).flat_map(|p| [(1 << p) - 1, 1 << p, (1 << p) + 12345])) {
            let from = lowest_of(bucket_of(value));
            let value = value.min(Histogram::MOST);
            assert!(from <= value && value <= highest_of(from), "{value} in {from}..={}", highest_of(from));
            assert!((highest_of(from) - from) as f64 <= value as f64 / 1024.0, "{value}");
        }
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn quantiles_are_those_of_the_sorted_list() {
        // A fixed sequence with a long tail.
        let mut random = fastrand::Rng::with_seed(7);
        let mut values: Vec<u64> = (0..20_000)
            .map(|_| {
                let r = random.u64(..1 << 31);
                if r.is_multiple_of(100) { 100_000_000 + r % 1000 } else { 50_000 + r % 40_000 }
            })
            .collect();
        let mut h = Histogram::new();
        values.iter().for_each(|v| h.record(*v));
        values.sort_unstable();
        for q in [0.0, 0.1, 0.5, 0.9, 0.95, 0.99, 0.999, 1.0] {
            let want = values[((q * 20_000.0) as usize).clamp(1, 20_000) - 1];
            let got = h.quantile(q);
            assert!(got >= want && (got - want) as f64 <= want as f64 / 1000.0, "p{q}: {got}, want {want}");
        }
        assert_eq!((h.count(), h.min(), h.max()), (20_000, values[0], values[19_999]));
        assert_eq!(h.sum(), values.iter().sum::<u64>());
        let mean = h.mean();
        let by_hand = (values.iter().map(|v| (*v as f64 - mean).powi(2)).sum::<f64>() / 19_999.0).sqrt();
        assert!((h.stdev() - by_hand).abs() < by_hand * 1e-9, "{} {by_hand}", h.stdev());
    }

    #[test]
    fn a_rank_is_not_rounded_past_its_place() {
        let mut h = Histogram::new();
        (1..=100).for_each(|v| h.record(v));
        assert_eq!([0.5, 0.9, 0.99, 1.0].map(|q| h.quantile(q)), [50, 90, 99, 100]);
        assert_eq!([0, 1, 34, 100, 101].map(|rank| h.at_rank(rank)), [1, 1, 34, 100, 100]);
        assert_eq!(Histogram::new().quantile(0.5), 0);
    }

    #[test]
    fn what_is_saved_is_what_was_recorded() {
        let mut h = Histogram::new();
        [3, 3, 70_001, 1 << 24].iter().for_each(|v| h.record(*v));
        let text = serde_json::to_string(&h).unwrap();
        assert!(text.contains("[3,2]"), "{text}");
        let back: Histogram = serde_json::from_str(&text).unwrap();
        assert_eq!(back, h);
        assert_eq!(back.quantile(0.5), 3);
    }

    #[test]
    fn buckets_that_contradict_minimum_and_maximum_are_kept() {
        let text = r#"{"count":3,"sum":30,"sum_of_squares":300.0,"min":20,"max":20,"buckets":[[5,1],[20,1],[30,1]]}"#;
        let h: Histogram = serde_json::from_str(text).unwrap();
        let mut all = Histogram::new();
        all.record(7);
        all.add(&h.clone());
        let buckets = |h: &Histogram| h.buckets().map(|(from, _)| from).collect::<Vec<_>>();
        assert_eq!((buckets(&h), buckets(&all)), (vec![5, 20, 30], vec![5, 7, 20, 30]));
        all.clear();
        all.record(9);
        assert_eq!(buckets(&all), [9]);
    }

    #[test]
    fn parts_add_up_and_come_apart() {
        let (mut all, mut part) = (Histogram::new(), Histogram::new());
        (1..=1000).for_each(|v| all.record(v * 1000));
        (901..=1000).for_each(|v| part.record(v * 1000));
        let rest = all.without(&part);
        assert_eq!((rest.count(), rest.sum(), rest.min()), (900, 405_450_000, 1000));
        assert!((900_000..=900_900).contains(&rest.max()), "{}", rest.max());
        let mut again = rest.clone();
        again.add(&part);
        assert_eq!((again.count(), again.sum(), again.max()), (1000, all.sum(), all.max()));
        again.clear();
        assert_eq!((again.count(), again.quantile(0.5), again.max()), (0, 0, 0));
        assert_eq!(all.without(&all), Histogram::new());
    }

    #[test]
    fn a_share_within_one_deviation() {
        let mut h = Histogram::new();
        h.record_n(10, 98);
        h.record_n(1000, 2);
        assert!((h.share_within(h.stdev()) - 0.98).abs() < 1e-12);
    }
}
