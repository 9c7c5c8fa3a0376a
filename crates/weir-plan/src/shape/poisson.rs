//! The places of a Poisson process with a known number of starts.
//!
//! Given their number N, the arrivals of a Poisson process are N independent uniform values in order. That is the same
//! as the partial sums of N + 1 exponential times, divided by their total. Summing them up to the k-th takes k steps,
//! so another machine could not compute a start without all before it. We divide instead: the middle of N ordered
//! uniform values has a beta distribution, and each half is again ordered and uniform between its neighbors. The value
//! at place `i` is drawn from a generator seeded by (seed, i). The k-th start thus takes log2 N steps, whoever asks.

/// The brackets that lead to the last place, so that the next one need not begin at the top.
#[derive(Clone, Debug, Default)]
pub struct Path(Vec<Bracket>);

/// Two places with their positions: known, and between which others lie.
#[derive(Clone, Copy, Debug)]
struct Bracket {
    low: (u64, f64),
    high: (u64, f64),
}

impl Bracket {
    /// All places 1 to `n`, between the two ends.
    const fn whole(n: u64) -> Self {
        Self { low: (0, 0.0), high: (n + 1, 1.0) }
    }

    /// The place in its middle.
    fn middle(&self, seed: u64) -> (u64, f64) {
        let (left, right) = (self.low.0, self.high.0);
        let place = left + (right - left) / 2;
        let mut random = fastrand::Rng::with_seed(mixed(seed ^ mixed(place)));
        let (a, b) = (gamma(place - left, &mut random), gamma(right - place, &mut random));
        let share = if a + b > 0.0 { a / (a + b) } else { 0.5 };
        (place, (self.high.1 - self.low.1).mul_add(share, self.low.1).clamp(self.low.1, self.high.1))
    }
}

impl Path {
    /// The position of the k-th of `n` starts, 0 to 1. Never falls as `k` grows.
    pub(super) fn position(&mut self, seed: u64, n: u64, k: u64) -> f64 {
        let wanted = k + 1;
        self.0.retain(|b| b.low.0 < wanted && wanted < b.high.0);
        let mut bracket = self.0.last().copied().unwrap_or_else(|| Bracket::whole(n));
        if self.0.is_empty() {
            self.0.push(bracket);
        }
        loop {
            let middle = bracket.middle(seed);
            match middle.0.cmp(&wanted) {
                std::cmp::Ordering::Equal => return middle.1,
                std::cmp::Ordering::Less => bracket.low = middle,
                std::cmp::Ordering::Greater => bracket.high = middle,
            }
            self.0.push(bracket);
        }
    }
}

/// How many of `n` starts lie where `is_before` holds, which is true up to a position and false after it.
pub(super) fn count(seed: u64, n: u64, is_before: impl Fn(f64) -> bool) -> u64 {
    let mut bracket = Bracket::whole(n);
    while bracket.high.0 - bracket.low.0 > 1 {
        let middle = bracket.middle(seed);
        *(if is_before(middle.1) { &mut bracket.low } else { &mut bracket.high }) = middle;
    }
    bracket.low.0
}

/// A number whose bits all depend on all bits of `x`: the finalizer of SplitMix64 (Steele, Lea, Flood: Fast splittable
/// pseudorandom number generators, 2014).
const fn mixed(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// A gamma-distributed value with shape `a`, at least 1 (Marsaglia and Tsang: A simple method for generating gamma
/// variables, 2000).
fn gamma(a: u64, random: &mut fastrand::Rng) -> f64 {
    if a == 1 {
        return -uniform(random).ln();
    }
    let d = a as f64 - 1.0 / 3.0;
    let c = 1.0 / (9.0 * d).sqrt();
    loop {
        let (x, y) = (uniform(random), random.f64());
        let normal = (-2.0 * x.ln()).sqrt() * (std::f64::consts::TAU * y).cos();
        let v = c.mul_add(normal, 1.0).powi(3);
        if v > 0.0 && uniform(random).ln() < (normal * normal).mul_add(0.5, d - d * v) + d * v.ln() {
            return d * v;
        }
    }
}

/// More than 0 and at most 1.
fn uniform(random: &mut fastrand::Rng) -> f64 {
    1.0 - random.f64()
}
