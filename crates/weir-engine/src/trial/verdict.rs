//! Whether a change made things worse: figures of before and after go in, evidence comes out. Pure, so that it can be tried on simulated
//! traffic.
//!
//! Each measure is a series of intervals with so many requests, of which so many were bad: answered by the gateway itself for one cause,
//! answered 5xx by the upstream, or slower than nearly all were before. It is worse when two intervals in a row say so, each for itself,
//! against nearly the worst interval of before.

/// Fewest requests of an interval that says anything.
const REQUESTS: u64 = 200;

/// Fewest bad requests of the two intervals together.
const BAD: u64 = 20;

/// By how much the share of bad requests must have grown, at least.
const EXCESS: f64 = 0.01;

/// How many times what it was the share must be, or grow by [`EXCESS_AT_ONCE`]: where many were bad before, twice as many never come.
const TIMES: f64 = 2.0;

/// See [`TIMES`].
const EXCESS_AT_ONCE: f64 = 0.035;

/// How unlikely each interval must be, if nothing had changed, and how unlikely both together.
const UNLIKELY: (f64, f64) = (0.01, 0.001);

/// Intervals in a row that must say the same.
const IN_A_ROW: usize = 2;

/// What an interval had.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Interval {
    pub(crate) requests: u64,
    pub(crate) bad: u64,
}

/// That it is worse, in figures.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Evidence {
    /// Share of bad requests before.
    pub(crate) before: f64,
    /// The last two intervals together.
    pub(crate) after: Interval,
}

impl Interval {
    fn share(self) -> f64 {
        if self.requests == 0 { 0.0 } else { self.bad as f64 / self.requests as f64 }
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

/// Says whether the last intervals `after` a change are worse than those `before`. Too little traffic, before or after, never is.
pub(crate) fn judge(before: &[Interval], after: &[Interval]) -> Option<Evidence> {
    let all = before.iter().copied().fold(Interval::default(), Interval::and);
    if all.requests < REQUESTS {
        return None;
    }
    let usual = all.share();
    // Traffic is noisier than coins, so chance is given credit for what was seen: but for the one worst interval, which may be an accident,
    // and but for intervals with hardly any traffic, which say nothing about it.
    let telling = before.iter().filter(|interval| interval.requests >= REQUESTS / 4);
    let mut shares: Vec<f64> = telling.map(|interval| interval.share()).collect();
    shares.sort_by(f64::total_cmp);
    let worst = shares.last().copied().unwrap_or(usual);
    let credit = shares.iter().rev().nth(1).copied().unwrap_or(usual).max(usual);
    let last = after.get(after.len().checked_sub(IN_A_ROW)?..)?;
    let together = last.iter().copied().fold(Interval::default(), Interval::and);
    let worse = last.iter().all(|interval| is_worse(*interval, credit) && interval.share() > worst);
    let proven = together.bad >= BAD && chance(together, credit) <= UNLIKELY.1;
    (worse && proven).then_some(Evidence { before: usual, after: together })
}

fn is_worse(interval: Interval, credit: f64) -> bool {
    let grown = interval.share() - credit;
    interval.requests >= REQUESTS
        && grown >= EXCESS
        && (interval.share() >= TIMES * credit || grown >= EXCESS_AT_ONCE)
        && chance(interval, credit) <= UNLIKELY.0
}

/// How likely so many bad requests or more are, where each is bad with this probability: the upper tail of the binomial distribution.
fn chance(interval: Interval, share: f64) -> f64 {
    let (n, k) = (interval.requests as f64, interval.bad);
    // One bad request before says hardly more than none: never less than one in so many.
    let p = share.max(0.5 / n).min(1.0);
    if k == 0 || p >= 1.0 {
        return 1.0;
    }
    // Terms fall at least by half once they are far above the mean; summing stops where they no longer count.
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
mod tests {
    use super::*;

    fn intervals(pairs: &[(u64, u64)]) -> Vec<Interval> {
        pairs.iter().map(|(requests, bad)| Interval { requests: *requests, bad: *bad }).collect()
    }

    #[test]
    fn rules() {
        let calm: &[(u64, u64)] = &[(1000, 1), (1000, 0), (1000, 2)];
        for (what, before, after, worse) in [
            ("five percent, twice", calm, &[(400, 20), (400, 20)][..], true),
            ("once", calm, &[(400, 20)], false),
            ("once and well again", calm, &[(400, 20), (400, 0)], false),
            ("not yet again", calm, &[(400, 20), (400, 0), (400, 20)], false),
            ("twice in the end", calm, &[(400, 0), (400, 20), (400, 20)], true),
            ("too few requests", calm, &[(199, 100), (199, 100)], false),
            ("too few bad ones", calm, &[(400, 9), (400, 10)], false),
            ("less than a percentage point", calm, &[(10_000, 90), (10_000, 90)], false),
            ("nothing is known of before", &[], &[(400, 400), (400, 400)], false),
            ("hardly anything is", &[(100, 0)], &[(400, 400), (400, 400)], false),
            (
                "as bad as the worst of before",
                &[(1000, 0), (1000, 60), (1000, 0)],
                &[(400, 24), (400, 25)],
                false,
            ),
            ("bad already, and worse", &[(1000, 100), (1000, 100)], &[(1000, 150), (1000, 150)], true),
            ("bad already, and no worse", &[(1000, 100), (1000, 100)], &[(1000, 115), (1000, 115)], false),
            ("better", &[(1000, 500)], &[(1000, 10), (1000, 10)], false),
            ("everything", calm, &[(400, 400), (400, 400)], true),
        ] {
            assert_eq!(judge(&intervals(before), &intervals(after)).is_some(), worse, "{what}");
        }
        let evidence = judge(&intervals(calm), &intervals(&[(400, 20), (400, 24)])).unwrap();
        assert_eq!((evidence.before, evidence.now()), (0.001, 0.055));
    }

    #[test]
    fn tails() {
        // By hand, and from tables of the binomial distribution.
        for (requests, bad, share, expected) in [
            (10, 10, 0.5, 0.000_976_562_5),
            (10, 1, 0.1, 0.651_321_559_9),
            (20, 5, 0.1, 0.043_174_496_7),
            (100, 60, 0.5, 0.028_443_966_8),
            (1000, 1, 0.001, 0.632_304_575_2),
        ] {
            let found = chance(Interval { requests, bad }, share);
            assert!((found - expected).abs() < 1e-8, "{requests} {bad} {share}: {found}");
        }
        assert!(chance(Interval { requests: 1_000_000, bad: 1_000_000 }, 0.5) < 1e-300);
        assert!(chance(Interval { requests: 1_000_000, bad: 500_000 }, 0.5) > 0.5);
    }

    /// Random numbers that are the same in each run (xorshift64*; Marsaglia 2003, Vigna 2016).
    struct Dice(u64);

    impl Dice {
        fn unit(&mut self) -> f64 {
            self.0 ^= self.0 >> 12;
            self.0 ^= self.0 << 25;
            self.0 ^= self.0 >> 27;
            (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11) as f64 / (1_u64 << 53) as f64
        }

        /// About normal: the sum of twelve.
        fn normal(&mut self) -> f64 {
            (0..12).map(|_| self.unit()).sum::<f64>() - 6.0
        }

        /// How many of these are bad: by Poisson's law where they are few, by the normal one where they are many.
        fn bad(&mut self, requests: u64, share: f64) -> u64 {
            let mean = requests as f64 * share;
            if mean > 30.0 {
                let found = mean + self.normal() * (mean * (1.0 - share)).sqrt();
                return (found.round().max(0.0) as u64).min(requests);
            }
            let (least, mut product, mut count) = ((-mean).exp(), self.unit(), 0);
            while product > least {
                product *= self.unit();
                count += 1;
            }
            requests.min(count)
        }

        /// An interval of noisy traffic: its volume swings, its share of errors too, and now and then it is a burst of them.
        fn interval(&mut self, volume: f64, share: f64, broken: f64) -> Interval {
            let requests = (volume * (0.4 * self.normal()).exp()).max(1.0) as u64;
            let burst = if self.unit() < 0.003 { 6.0 } else { 1.0 };
            let share = (share * (0.3 * self.normal()).exp() * burst).min(0.9);
            Interval { requests, bad: self.bad(requests, share + broken) }
        }
    }

    #[test]
    fn harmless_changes_stay() {
        let mut dice = Dice(0x5eed);
        let mut back = 0;
        for _ in 0..1000 {
            let volume = 10.0_f64.powf(1.5 + 2.0 * dice.unit());
            let share = 10.0_f64.powf(-4.0 + 2.3 * dice.unit());
            // Six measures of three routes, as one change is judged by.
            let gone = (0..6).any(|_| {
                let before: Vec<_> = (0..10).map(|_| dice.interval(volume, share, 0.0)).collect();
                let after: Vec<_> = (0..10).map(|_| dice.interval(volume, share, 0.0)).collect();
                (1..=after.len()).any(|until| judge(&before, &after[..until]).is_some())
            });
            back += usize::from(gone);
        }
        assert!(back <= 1, "{back} of 1000 harmless changes were taken back");
    }

    #[test]
    fn a_change_that_breaks_a_twentieth_is_back_after_two_intervals() {
        let mut dice = Dice(0xbad);
        let mut missed = 0;
        for _ in 0..1000 {
            let share = 10.0_f64.powf(-4.0 + 1.5 * dice.unit());
            let steady = |dice: &mut Dice, broken: f64| {
                let requests = 400 + (600.0 * dice.unit()) as u64;
                let bad = dice.bad(requests, share + broken);
                Interval { requests, bad }
            };
            let before: Vec<_> = (0..10).map(|_| steady(&mut dice, 0.0)).collect();
            let after = [steady(&mut dice, 0.05), steady(&mut dice, 0.05)];
            missed += usize::from(judge(&before, &after).is_none());
        }
        assert!(missed <= 5, "{missed} of 1000 were missed");
    }
}
