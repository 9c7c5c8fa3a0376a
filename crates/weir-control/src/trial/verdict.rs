//! Decides whether a change made things worse: takes figures from before and after, returns evidence. Pure, so that
//! it can be tested on simulated traffic.
//!
//! Each measure is a series of intervals with a number of requests, some of them bad. Bad means, by measure: answered
//! by the gateway itself for one cause, answered with 5xx by the upstream, or slower than nearly all were before.
//! Three things look like a bad change but are not, and each is handled here:
//!
//! - **Shares fluctuate.** How much is estimated from the intervals before. An interval counts only if such
//!   fluctuations hardly ever reach it (Student's t on the logarithm of the share). Random counting errors are added
//!   (binomial).
//! - **Everything got worse at the same time**: a network, a shared upstream. The increase on routes that the change
//!   did not touch is subtracted.
//! - **An unrelated incident.** A bad change is bad from the first moment. So two bad intervals in a row suffice only
//!   at the start; later, five are required.

/// Fewest requests of a significant interval.
const REQUESTS: u64 = 200;

/// Fewest bad requests of all intervals together.
const BAD: u64 = 20;

/// The least growth of the share of bad requests.
const EXCESS: f64 = 0.01;

/// The least factor by which the share must grow, or else grow by [`EXCESS_AT_ONCE`]: if many were bad before, they
/// can never double.
const TIMES: f64 = 2.0;

/// See [`TIMES`].
const EXCESS_AT_ONCE: f64 = 0.035;

/// The significance level for each interval, and for all together.
const UNLIKELY: (f64, f64) = (0.01, 0.001);

/// How many intervals in a row must agree: among the first [`AT_ONCE`] after the change, and later.
const IN_A_ROW: (usize, usize) = (2, 5);

/// See [`IN_A_ROW`]. The first interval may begin a second before the change.
const AT_ONCE: usize = 3;

/// Most intervals after a change that are examined.
pub(super) const LOOKED_AT: usize = IN_A_ROW.1;

/// The assumed fluctuation of unknown traffic (the standard deviation of the logarithm of a share), and how many
/// intervals of experience it counts as. Otherwise a few calm intervals by luck would promise calm.
const SWING: (f64, f64) = (0.2, 4.0);

/// The number of measures for which [`UNLIKELY`] was chosen. With more, each must be less likely.
const MEASURES: f64 = 6.0;

/// The counts of an interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Interval {
    pub(crate) requests: u64,
    pub(crate) bad: u64,
}

/// One measure of one route, before and after a change.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Case<'a> {
    pub(crate) before: &'a [Interval],
    /// The last intervals since the change.
    pub(crate) after: &'a [Interval],
    /// How many intervals there were since the change.
    pub(crate) since: usize,
    /// The same measure for routes that the change did not touch, in the same intervals; empty if there are none.
    pub(crate) others: (&'a [Interval], &'a [Interval]),
    /// How many measures are examined together.
    pub(crate) measures: usize,
}

/// The figures that show that it is worse.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Evidence {
    /// Share of bad requests before.
    pub(crate) before: f64,
    /// The sum of the intervals that show it.
    pub(crate) after: Interval,
}

impl Interval {
    fn share(self) -> f64 {
        if self.requests == 0 { 0.0 } else { self.bad as f64 / self.requests as f64 }
    }

    /// The logarithm of the share; with no bad request, that of half a request.
    fn log_share(self) -> f64 {
        ((self.bad as f64 + 0.5) / (self.requests as f64 + 1.0)).ln()
    }

    pub(crate) const fn and(self, other: Self) -> Self {
        Self { requests: self.requests + other.requests, bad: self.bad + other.bad }
    }
}

impl Evidence {
    /// The share of bad requests now.
    pub(crate) fn now(&self) -> f64 {
        self.after.share()
    }
}

/// Whether the last intervals `after` a change are worse than those `before`. Never with too little traffic on either
/// side.
pub(crate) fn judge(case: &Case<'_>) -> Option<Evidence> {
    let usual = Usual::of(case.before)?;
    let in_a_row = if case.since <= AT_ONCE { IN_A_ROW.0 } else { IN_A_ROW.1 };
    let from = case.after.len().checked_sub(in_a_row)?;
    let last = case.after.get(from..)?;
    // Several measures mean several chances of error. Two intervals must agree, so each gets the square root of the
    // factor.
    let unlikely = UNLIKELY.0 * (MEASURES / (case.measures as f64).max(MEASURES)).sqrt();
    let rise = |at: usize| common_rise(case.others, from + at);
    let worse = last.iter().enumerate().all(|(at, interval)| usual.is_worse(*interval, rise(at), unlikely));
    let together = last.iter().copied().fold(Interval::default(), Interval::and);
    let proven = together.bad >= BAD && chance(together, usual.credit) <= UNLIKELY.1;
    (worse && proven).then_some(Evidence { before: usual.share, after: together })
}

/// How much the other routes' share of bad requests has grown in an interval: the difference of the logarithms. Zero
/// if it fell, or if too little is known.
fn common_rise((before, after): (&[Interval], &[Interval]), at: usize) -> f64 {
    let telling: Vec<f64> = telling(before).map(|interval| interval.log_share()).collect();
    match after.get(at) {
        Some(now) if now.requests >= REQUESTS && !telling.is_empty() => {
            (now.log_share() - mean(&telling)).max(0.0)
        }
        _ => 0.0,
    }
}

/// The intervals with enough traffic to show fluctuations.
fn telling(intervals: &[Interval]) -> impl Iterator<Item = &Interval> {
    intervals.iter().filter(|interval| interval.requests >= REQUESTS / 4)
}

/// The usual values of a measure before the change.
struct Usual {
    share: f64,
    /// Nearly the highest share: random fluctuation is measured from what was seen, except the one worst interval,
    /// which may be an accident.
    credit: f64,
    worst: f64,
    /// Mean of the logarithm of the share, its deviation for a future interval, and the degrees of freedom.
    log_mean: f64,
    swing: f64,
    freedom: u32,
}

impl Usual {
    /// `None` if too little is known.
    fn of(before: &[Interval]) -> Option<Self> {
        let all = before.iter().copied().fold(Interval::default(), Interval::and);
        if all.requests < REQUESTS {
            return None;
        }
        let share = all.share();
        let mut shares: Vec<f64> = telling(before).map(|interval| interval.share()).collect();
        shares.sort_by(f64::total_cmp);
        let mut logs: Vec<f64> = telling(before).map(|interval| interval.log_share()).collect();
        if logs.is_empty() {
            logs.push(all.log_share());
        }
        let log_mean = mean(&logs);
        let squares: f64 = logs.iter().map(|log| (log - log_mean).powi(2)).sum();
        let freedom = SWING.1 + logs.len() as f64 - 1.0;
        let variance = (SWING.1 * SWING.0.powi(2) + squares) / freedom;
        Some(Self {
            share,
            credit: shares.iter().rev().nth(1).copied().unwrap_or(share).max(share),
            worst: shares.last().copied().unwrap_or(share),
            log_mean,
            swing: (variance * (1.0 + 1.0 / logs.len() as f64)).sqrt(),
            freedom: freedom as u32,
        })
    }

    fn is_worse(&self, interval: Interval, rise: f64, unlikely: f64) -> bool {
        let (share, grown) = (interval.share(), interval.share() - self.credit);
        let swings = (interval.log_share() - rise - self.log_mean) / self.swing;
        interval.requests >= REQUESTS
            && share > self.worst
            && grown >= EXCESS
            && (share >= TIMES * self.credit || grown >= EXCESS_AT_ONCE)
            && chance(interval, self.credit) <= UNLIKELY.0
            && t_tail(swings, self.freedom) <= unlikely
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// The probability of a value at least this high in Student's t distribution with these degrees of freedom. Source:
/// Abramowitz and Stegun, Handbook of Mathematical Functions (1964), 26.7.3 and 26.7.4.
fn t_tail(t: f64, freedom: u32) -> f64 {
    let angle = (t / f64::from(freedom).sqrt()).atan();
    let (sin, cos) = angle.sin_cos();
    let odd = freedom % 2 == 1;
    let (mut term, mut sum) = if odd { (cos, cos) } else { (1.0, 1.0) };
    let mut at = if odd { 3 } else { 2 };
    while at + 1 < freedom {
        term *= f64::from(at - 1) / f64::from(at) * cos * cos;
        sum += term;
        at += 2;
    }
    let within = match (odd, freedom) {
        (true, 1) => std::f64::consts::FRAC_2_PI * angle,
        (true, _) => std::f64::consts::FRAC_2_PI * (angle + sin * sum),
        (false, _) => sin * sum,
    };
    (1.0 - within) / 2.0
}

/// The probability of at least this many bad requests if each is bad with this probability: the upper tail of the
/// binomial distribution.
fn chance(interval: Interval, share: f64) -> f64 {
    let (n, k) = (interval.requests as f64, interval.bad);
    // One bad request before proves hardly more than none, so assume at least half a request.
    let p = share.max(0.5 / n).min(1.0);
    if k == 0 || p >= 1.0 {
        return 1.0;
    }
    // Far above the mean, terms fall at least by half; the sum stops where they no longer matter.
    let mut term = ln_binomial(n, k as f64) + k as f64 * p.ln() + (n - k as f64) * (1.0 - p).ln();
    let mut sum = 0.0;
    let mut at = k as f64;
    while at <= n {
        let now = term.exp();
        sum += now;
        if now < sum * 1e-12 && at > n * p {
            break;
        }
        term += ((n - at) / (at + 1.0)).ln() + (p / (1.0 - p)).ln();
        at += 1.0;
    }
    sum.min(1.0)
}

/// The logarithm of n over k.
fn ln_binomial(n: f64, k: f64) -> f64 {
    ln_factorial(n) - ln_factorial(k) - ln_factorial(n - k)
}

/// The logarithm of n!. Below 32 exactly; above by Stirling's series, whose error is below 1e-12 there.
fn ln_factorial(n: f64) -> f64 {
    if n < 32.0 {
        let mut sum = 0.0;
        let mut i = 2.0;
        while i <= n {
            sum += f64::ln(i);
            i += 1.0;
        }
        return sum;
    }
    let series = 1.0 / (12.0 * n) - 1.0 / (360.0 * n.powi(3)) + 1.0 / (1260.0 * n.powi(5));
    n * n.ln() - n + 0.5 * (std::f64::consts::TAU * n).ln() + series
}

#[cfg(test)]
mod tests;
