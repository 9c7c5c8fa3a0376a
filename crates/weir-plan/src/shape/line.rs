//! A stretch of time over which a value follows one formula, and the area below it as an integer.

use super::course::{Level, ONE, value};
use std::f64::consts::TAU;

/// The area of one request: a level of one for a second.
pub(super) const REQUEST: i128 = ONE as i128 * 1_000_000_000;

/// Steps of one nanosecond that correct an estimate in floating point, before bisection takes over. Estimates are
/// off by a few.
const STEPS: usize = 64;

/// One stretch. Times are nanoseconds.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Line {
    pub(super) begin_ns: u64,
    /// More than 0.
    pub(super) length_ns: u64,
    /// The area of all lines before it.
    pub(super) area_before: i128,
    pub(super) curve: Curve,
}

/// The formula of a stretch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Curve {
    /// This many requests, evenly spaced.
    Count(u64),
    /// From one level to another.
    Straight(Level, Level),
    /// A sine that begins at its mean and rises. `swing` is at most `mean`.
    Wave { mean: Level, swing: Level, every_ns: u64 },
}

impl Line {
    /// The area in its first `t` nanoseconds, rounded up. `t` is at most its length.
    ///
    /// Invariant: never falls as `t` grows, except within a wave by less than the error of a cosine.
    pub(super) fn area(&self, t: u64) -> i128 {
        let (t, length) = (i128::from(t), i128::from(self.length_ns));
        match self.curve {
            // n·REQUEST·t / length, without a product above 2^127.
            Curve::Count(n) => {
                let (whole, rest) = (t * i128::from(n) / length, t * i128::from(n) % length);
                whole * REQUEST + up(rest * REQUEST, length)
            }
            Curve::Straight(from, to) if from == to => i128::from(from) * t,
            Curve::Straight(from, to) => {
                let change = i128::from(to) - i128::from(from);
                let (whole, rest) = (t * t / (2 * length), t * t % (2 * length));
                i128::from(from) * t + change * whole + up(change * rest, 2 * length)
            }
            Curve::Wave { mean, swing, every_ns } => {
                let phase = t % i128::from(every_ns);
                let turn = TAU * phase as f64 / every_ns as f64;
                let rise = swing as f64 * every_ns as f64 / TAU * (1.0 - turn.cos());
                i128::from(mean) * t + rise.round() as i128
            }
        }
    }

    /// The last of its nanoseconds, 0 to its length, at which the area is at most `area`, which is at least 0.
    pub(super) fn last_at(&self, area: i128) -> u64 {
        let length = i128::from(self.length_ns);
        let exact = match self.curve {
            Curve::Count(0) | Curve::Straight(0, 0) => length,
            Curve::Count(n) => {
                let (whole, rest) = (area / REQUEST, area % REQUEST);
                if whole >= i128::from(n) {
                    length
                } else {
                    (whole * length + rest * length / REQUEST) / i128::from(n)
                }
            }
            Curve::Straight(from, to) if from == to => area / i128::from(from),
            Curve::Straight(from, to) => {
                // a t² + b t = c, in the form that is accurate for small a.
                let (b, c) = (from as f64, area as f64);
                let a = (to as f64 - from as f64) / (2.0 * self.length_ns as f64);
                let root = (b * b + 4.0 * a * c).max(0.0).sqrt();
                let t = if b + root > 0.0 { 2.0 * c / (b + root) } else { 0.0 };
                return self.corrected(t, area);
            }
            Curve::Wave { mean, swing, every_ns } => {
                // The sine adds between 0 and swing·every/π to the area of the mean.
                let (mean, swing, every) = (mean as f64, swing as f64, every_ns as f64);
                let latest = area as f64 / mean;
                let earliest = latest - swing * every / (mean * TAU / 2.0);
                let mut t = f64::midpoint(earliest.max(0.0), latest);
                for _ in 0..8 {
                    let turn = TAU * (t % every) / every;
                    let rate = (swing.mul_add(turn.sin(), mean)).max(mean * 0.05);
                    let off = mean.mul_add(t, swing * every / TAU * (1.0 - turn.cos())) - area as f64;
                    t = (t - off / rate).clamp(earliest.max(0.0), latest);
                }
                return self.corrected(t, area);
            }
        };
        exact.clamp(0, length) as u64
    }

    /// The moment near the estimate `t` that [`Line::last_at`] wants.
    fn corrected(&self, t: f64, area: i128) -> u64 {
        let mut t = (t as u64).min(self.length_ns); // what is below 0 becomes 0
        for _ in 0..STEPS {
            if t > 0 && self.area(t) > area {
                t -= 1;
            } else if t < self.length_ns && self.area(t + 1) <= area {
                t += 1;
            } else {
                return t;
            }
        }
        let (mut low, mut high) = (0, self.length_ns + 1);
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            *(if self.area(middle) <= area { &mut low } else { &mut high }) = middle;
        }
        low
    }

    /// The largest value.
    pub(super) fn highest(&self) -> f64 {
        match self.curve {
            Curve::Count(n) => n as f64 * 1e9 / self.length_ns as f64,
            Curve::Straight(from, to) => value(from.max(to)),
            Curve::Wave { mean, swing, .. } => value(mean + swing),
        }
    }
}

/// A quotient, rounded up.
const fn up(a: i128, b: i128) -> i128 {
    a.div_euclid(b) + (a.rem_euclid(b) > 0) as i128
}
