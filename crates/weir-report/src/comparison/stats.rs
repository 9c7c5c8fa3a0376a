//! Bootstrap intervals as pure functions: the same samples and seed give the same interval.
//!
//! The bootstrap (Efron, *Bootstrap methods: another look at the jackknife*, 1979) assumes nothing about the
//! distribution of samples. With few samples its percentile interval is too narrow. It is widened as in Hesterberg
//! (*What teachers should know about the bootstrap*, 2015, §5.3), so that from five rounds on, about 95 of 100
//! intervals contain the truth.

pub use crate::interval::Interval;
use crate::interval::student;
use fastrand::Rng;

/// Number of resamples.
const RESAMPLES: usize = 2000;

/// The mean of samples; `None` without any.
pub(super) fn mean(samples: &[f64], seed: u64) -> Option<Interval> {
    interval(samples.len(), seed, |rows| rows.iter().map(|i| samples[*i]).sum::<f64>() / rows.len() as f64)
}

/// How much `b` exceeds `a`, over pairs that were measured side by side.
pub(crate) fn difference(pairs: &[(f64, f64)], seed: u64) -> Option<Interval> {
    let differences: Vec<f64> = pairs.iter().map(|(a, b)| b - a).collect();
    mean(&differences, seed)
}

/// The ratio of `b` to `a` over pairs that were measured side by side. It is the geometric mean of their ratios, so
/// the direction of the division does not matter. Values must be above 0.
pub(super) fn ratio(pairs: &[(f64, f64)], seed: u64) -> Option<Interval> {
    let logs: Vec<f64> = pairs.iter().map(|(a, b)| (b / a).ln()).collect();
    logs.iter().all(|l| l.is_finite()).then(|| mean(&logs, seed))?.map(|i| i.map(f64::exp))
}

/// The ratio of `b` to `a`, measured separately. The interval includes the variation of both, and is unknown if that
/// of either is. Values must be above 0.
pub(super) fn ratio_apart(a: &[f64], b: &[f64], seed: u64) -> Option<Interval> {
    let logs = |samples: &[f64]| -> Option<Vec<f64>> {
        let logs: Vec<f64> = samples.iter().map(|v| v.ln()).collect();
        logs.iter().all(|l| l.is_finite()).then_some(logs)
    };
    let (a, b) = (logs(a)?, logs(b)?);
    let (a, b) = (widened(&a, mean(&a, seed)?), widened(&b, mean(&b, seed.wrapping_add(1))?));
    let value = b.value - a.value;
    let range = a.range.zip(b.range).map(|(of_a, of_b)| {
        // The errors are independent, so their squares add up. Not by `hypot`: glibc 2.35 has a new one, and the binary
        // would not run on older systems. These are logarithms of ratios, far from any overflow.
        let both = |of_b: f64, of_a: f64| (of_b * of_b + of_a * of_a).sqrt();
        let low = both(b.value - of_b.0, of_a.1 - a.value);
        let high = both(of_b.1 - b.value, a.value - of_a.0);
        (value - low, value + high)
    });
    Some(Interval { value, range }.map(f64::exp))
}

/// An interval of a mean, wider if neighboring samples correlate.
fn widened(samples: &[f64], interval: Interval) -> Interval {
    let factor = inflation(samples).sqrt();
    let wide = |bound: f64| interval.value + (bound - interval.value) * factor;
    Interval { range: interval.range.map(|(low, high)| (wide(low), wide(high))), ..interval }
}

/// Fewest samples from which a correlation can be estimated.
const CORRELATED_SAMPLES: usize = 5;

/// If neighboring samples correlate more than this, they count as fewer independent ones.
pub(super) const CORRELATED: f64 = 0.5;

/// Larger correlations count as this: at 1, all samples would count as one, whose variation is unknown.
const CORRELATED_MOST: f64 = 0.95;

/// The correlation of neighboring samples; `None` for too few.
pub(super) fn correlation(samples: &[f64]) -> Option<f64> {
    let (mean, variance) = mean_and_variance(samples);
    if samples.len() < CORRELATED_SAMPLES || variance == 0.0 {
        return None;
    }
    let products: f64 = samples.windows(2).map(|pair| (pair[0] - mean) * (pair[1] - mean)).sum();
    Some(products / (variance * (samples.len() - 1) as f64))
}

/// By how much the variance of a mean grows because neighboring samples correlate. With a correlation r > 0.5, n
/// samples tell as much as n (1 - r) / (1 + r) independent ones.
pub(super) fn inflation(samples: &[f64]) -> f64 {
    let r = correlation(samples).filter(|r| *r > CORRELATED).unwrap_or(0.0).min(CORRELATED_MOST);
    (1.0 + r) / (1.0 - r)
}

/// The mean, and the variance of the sample.
pub(super) fn mean_and_variance(samples: &[f64]) -> (f64, f64) {
    let n = samples.len().max(1) as f64;
    let mean = samples.iter().sum::<f64>() / n;
    let squares: f64 = samples.iter().map(|value| (value - mean).powi(2)).sum();
    (mean, squares / (n - 1.0).max(1.0))
}

/// The estimate over all rows, with its interval from resampling them.
fn interval(n: usize, seed: u64, estimate: impl Fn(&[usize]) -> f64) -> Option<Interval> {
    if n == 0 {
        return None;
    }
    let all: Vec<usize> = (0..n).collect();
    let value = estimate(&all);
    if n == 1 {
        return Some(Interval { value, range: None });
    }
    let mut random = Rng::with_seed(seed);
    let mut rows = vec![0; n];
    let mut drawn: Vec<f64> = (0..RESAMPLES)
        .map(|_| {
            rows.iter_mut().for_each(|row| *row = random.usize(..n));
            estimate(&rows)
        })
        .collect();
    drawn.sort_unstable_by(f64::total_cmp);
    let (low, high) = (drawn[RESAMPLES / 40], drawn[RESAMPLES - 1 - RESAMPLES / 40]);
    let widen = (n as f64 / (n - 1) as f64).sqrt() * student(n - 1) / 1.96;
    Some(Interval { value, range: Some((value - (value - low) * widen, value + (high - value) * widen)) })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Above 0, and at most 1.
    fn uniform(random: &mut Rng) -> f64 {
        1.0 - random.f64()
    }

    /// Normal, by Box and Muller.
    fn normal(random: &mut Rng, mean: f64, deviation: f64) -> f64 {
        let (u, v) = (uniform(random), uniform(random));
        mean + deviation * (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
    }

    /// Share of 400 experiments whose interval contains the truth.
    fn coverage(truth: f64, experiment: impl Fn(&mut Rng, u64) -> Option<Interval>) -> f64 {
        let holds = (0..400u64).filter(|seed| {
            let (low, high) = experiment(&mut Rng::with_seed(seed * 7919), *seed).unwrap().range.unwrap();
            low <= truth && truth <= high
        });
        holds.count() as f64 / 400.0
    }

    #[test]
    fn intervals_hold_the_truth_as_often_as_they_say() {
        for n in [5, 8, 20] {
            let share = coverage(100.0, |random, seed| {
                let samples: Vec<f64> = (0..n).map(|_| normal(random, 100.0, 15.0)).collect();
                mean(&samples, seed)
            });
            assert!((0.92..=0.98).contains(&share), "normal, {n}: {share}");
        }
        let share = coverage(1.0, |random, seed| {
            let samples: Vec<f64> = (0..20).map(|_| -uniform(random).ln()).collect();
            mean(&samples, seed)
        });
        assert!((0.88..=0.98).contains(&share), "exponential: {share}");
    }

    #[test]
    fn pairs_are_not_fooled_by_what_befalls_both() {
        // A machine that slows down tenfold during the comparison; b is 3 % more, ± 1 %.
        let pairs = |random: &mut Rng| -> Vec<(f64, f64)> {
            let rounds = (0..8).map(|i| 1000.0 / (1.0 + f64::from(i)));
            rounds.map(|a| (a, a * normal(random, 1.03, 0.01))).collect()
        };
        let share = coverage(1.03, |random, seed| ratio(&pairs(random), seed));
        assert!((0.92..=0.99).contains(&share), "{share}");
        let one = ratio(&pairs(&mut Rng::with_seed(1)), 1).unwrap();
        assert!(one.spread().unwrap() < 0.02, "{one:?}");
        let turned: Vec<(f64, f64)> =
            pairs(&mut Rng::with_seed(1)).into_iter().map(|(a, b)| (b, a)).collect();
        let back = ratio(&turned, 1).unwrap().map(f64::recip);
        assert!((back.value - one.value).abs() < 1e-12, "{back:?} {one:?}");
    }

    #[test]
    fn what_was_measured_apart_varies_on_both_sides() {
        let share = coverage(0.5, |random, seed| {
            let mut samples =
                |mean: f64| -> Vec<f64> { (0..10).map(|_| normal(random, mean, mean / 20.0)).collect() };
            ratio_apart(&samples(10.0), &samples(5.0), seed)
        });
        assert!((0.92..=0.99).contains(&share), "{share}");
        // The variation of a single value is unknown, and so is that of the ratio.
        for (a, b) in [(&[10.0][..], &[5.0][..]), (&[10.0], &[4.0, 6.25]), (&[8.0, 12.5], &[5.0])] {
            let single = ratio_apart(a, b, 1).unwrap();
            assert!((single.value - 0.5).abs() < 1e-12 && single.range.is_none(), "{single:?}");
        }
    }

    #[test]
    fn neighbors_that_correlate_widen_the_interval() {
        let slow: Vec<f64> = (0..20).map(|i| 10.0 + (f64::from(i) / 6.0).sin()).collect();
        let quick: Vec<f64> = (0..20).map(|i| 10.0 + f64::from(i * 7 % 20) / 20.0).collect();
        let (r, other) = (correlation(&slow).unwrap(), correlation(&quick).unwrap());
        assert!(r > 0.7 && other < CORRELATED, "{r} {other}");
        assert!((inflation(&slow) - (1.0 + r) / (1.0 - r)).abs() < 1e-9);
        assert_eq!((inflation(&quick), correlation(&[1.0, 2.0, 3.0, 4.0])), (1.0, None));
        assert_eq!(correlation(&[1.0; 9]), None);
        let plain = mean(&slow, 1).unwrap();
        let wide = widened(&slow, plain);
        let width = |i: Interval| i.range.map(|(low, high)| high - low).unwrap();
        assert!((width(wide) / width(plain) - inflation(&slow).sqrt()).abs() < 1e-9, "{wide:?}");
    }

    #[test]
    fn a_seed_says_all_and_little_is_not_much() {
        let samples = [1.0, 2.0, 4.0, 8.0, 16.5, 3.25, 7.125, 11.0, 5.5];
        assert_eq!(mean(&samples, 5), mean(&samples, 5));
        assert_ne!(mean(&samples, 5), mean(&samples, 6));
        assert_eq!(mean(&[], 1), None);
        assert_eq!(mean(&[3.0], 1), Some(Interval { value: 3.0, range: None }));
        assert_eq!(mean(&[3.0; 6], 1).unwrap().range, Some((3.0, 3.0)));
        assert_eq!(difference(&[(1.0, 3.0), (2.0, 4.0)], 1).unwrap().value, 2.0);
        for bad in [&[(0.0, 1.0)][..], &[(1.0, 0.0)], &[]] {
            assert_eq!(ratio(bad, 1), None, "{bad:?}");
        }
        assert!(student(1) > student(30) && student(30) > student(31) && student(10_000) < 1.961);
    }
}
