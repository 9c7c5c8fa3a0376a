//! Whether a change made things worse: figures of before and after go in, evidence comes out. Pure, so that it can be tried on simulated
//! traffic.
//!
//! Each measure is a series of intervals with so many requests, of which so many were bad: answered by the gateway itself for one cause,
//! answered 5xx by the upstream, or slower than nearly all were before. Three things look like a bad change and are none, and each has its
//! answer here:
//!
//! - **Shares swing by themselves.** How much is estimated from the intervals before, and an interval counts only if such swings hardly ever
//!   reach it (Student's t on the logarithm of the share). Chance in counting comes on top (binomial).
//! - **Everything got worse at once**: a network, an upstream that all use. What the routes that the change did not touch show in the same
//!   intervals is taken off.
//! - **An incident that came by itself.** A bad change is bad from the first moment. So two bad intervals in a row are enough only at the
//!   start; later, it must last for five.

/// Fewest requests of an interval that says anything.
const REQUESTS: u64 = 200;

/// Fewest bad requests of the intervals together.
const BAD: u64 = 20;

/// By how much the share of bad requests must have grown, at least.
const EXCESS: f64 = 0.01;

/// How many times what it was the share must be, or grow by [`EXCESS_AT_ONCE`]: where many were bad before, twice as many never come.
const TIMES: f64 = 2.0;

/// See [`TIMES`].
const EXCESS_AT_ONCE: f64 = 0.035;

/// How unlikely each interval must be, if nothing had changed, and how unlikely all together.
const UNLIKELY: (f64, f64) = (0.01, 0.001);

/// Intervals in a row that must say the same: among the first [`AT_ONCE`] after the change, and later.
const IN_A_ROW: (usize, usize) = (2, 5);

/// See [`IN_A_ROW`]. The first interval may begin a second before the change.
const AT_ONCE: usize = 3;

/// Most intervals after a change that are looked at.
pub(super) const LOOKED_AT: usize = IN_A_ROW.1;

/// The swing of traffic that nothing is known of (the standard deviation of the logarithm of a share), and for how many intervals of
/// experience it counts. Few intervals before would else promise a calm that is luck.
const SWING: (f64, f64) = (0.2, 4.0);

/// So many measures are what [`UNLIKELY`] was chosen for; of more, each must be less likely.
const MEASURES: f64 = 6.0;

/// What an interval had.
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
    /// The same measure of the routes that the change did not touch, in the same intervals; empty where there are none.
    pub(crate) others: (&'a [Interval], &'a [Interval]),
    /// Of how many measures this is one.
    pub(crate) measures: usize,
}

/// That it is worse, in figures.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Evidence {
    /// Share of bad requests before.
    pub(crate) before: f64,
    /// The intervals that say so together.
    pub(crate) after: Interval,
}

impl Interval {
    fn share(self) -> f64 {
        if self.requests == 0 { 0.0 } else { self.bad as f64 / self.requests as f64 }
    }

    /// The logarithm of the share; of none that of half a request.
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

/// Says whether the last intervals `after` a change are worse than those `before`. Too little traffic, before or after, never is.
pub(crate) fn judge(case: &Case<'_>) -> Option<Evidence> {
    let usual = Usual::of(case.before)?;
    let in_a_row = if case.since <= AT_ONCE { IN_A_ROW.0 } else { IN_A_ROW.1 };
    let from = case.after.len().checked_sub(in_a_row)?;
    let last = case.after.get(from..)?;
    // Several measures are several chances to be wrong. Two intervals must agree, so each takes the root of it.
    let unlikely = UNLIKELY.0 * (MEASURES / (case.measures as f64).max(MEASURES)).sqrt();
    let rise = |at: usize| common_rise(case.others, from + at);
    let worse = last.iter().enumerate().all(|(at, interval)| usual.is_worse(*interval, rise(at), unlikely));
    let together = last.iter().copied().fold(Interval::default(), Interval::and);
    let proven = together.bad >= BAD && chance(together, usual.credit) <= UNLIKELY.1;
    (worse && proven).then_some(Evidence { before: usual.share, after: together })
}

/// By how much the share of bad requests of the other routes has grown in an interval: the difference of the logarithms. Nothing where it
/// fell, or where hardly anything is known.
fn common_rise((before, after): (&[Interval], &[Interval]), at: usize) -> f64 {
    let telling: Vec<f64> = telling(before).map(|interval| interval.log_share()).collect();
    match after.get(at) {
        Some(now) if now.requests >= REQUESTS && !telling.is_empty() => {
            (now.log_share() - mean(&telling)).max(0.0)
        }
        _ => 0.0,
    }
}

/// Those with enough traffic to say something of how shares swing.
fn telling(intervals: &[Interval]) -> impl Iterator<Item = &Interval> {
    intervals.iter().filter(|interval| interval.requests >= REQUESTS / 4)
}

/// What a measure was like before.
struct Usual {
    share: f64,
    /// Nearly the highest share: chance is given credit for what was seen, but for the one worst interval, which may be an accident.
    credit: f64,
    worst: f64,
    /// Mean of the logarithm of the share, its deviation for an interval to come, and how much experience that is.
    log_mean: f64,
    swing: f64,
    freedom: u32,
}

impl Usual {
    /// `None` where too little is known.
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

/// How likely a value this high or higher is by Student's t distribution, with so many degrees of freedom. Source: Abramowitz and Stegun,
/// Handbook of Mathematical Functions (1964), 26.7.3 and 26.7.4.
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

    fn case<'a>(before: &'a [Interval], after: &'a [Interval]) -> Case<'a> {
        Case { before, after, since: after.len(), measures: 6, ..Case::default() }
    }

    fn alone(before: &[Interval], after: &[Interval]) -> Option<Evidence> {
        judge(&case(before, after))
    }

    #[test]
    fn rules() {
        let calm: &[(u64, u64)] = &[(1000, 1), (1000, 0), (1000, 2)];
        for (what, before, after, worse) in [
            ("five percent, twice", calm, &[(400, 20), (400, 20)][..], true),
            ("once", calm, &[(400, 20)], false),
            ("once and well again", calm, &[(400, 20), (400, 0)], false),
            ("not yet again", calm, &[(400, 20), (400, 0), (400, 20)], false),
            ("twice, a little late", calm, &[(400, 0), (400, 20), (400, 20)], true),
            ("later, and not for long", calm, &[(400, 0), (400, 0), (400, 20), (400, 20)], false),
            (
                "later, and it lasts",
                calm,
                &[(400, 0), (400, 0), (400, 20), (400, 20), (400, 20), (400, 20), (400, 20)],
                true,
            ),
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
            ("bad already, and worse", &[(1000, 100); 10], &[(1000, 160), (1000, 160)], true),
            ("bad already, and no worse", &[(1000, 100); 10], &[(1000, 115), (1000, 115)], false),
            ("better", &[(1000, 500)], &[(1000, 10), (1000, 10)], false),
            ("everything", calm, &[(400, 400), (400, 400)], true),
        ] {
            assert_eq!(alone(&intervals(before), &intervals(after)).is_some(), worse, "{what}");
        }
        let evidence = alone(&intervals(calm), &intervals(&[(400, 20), (400, 24)])).unwrap();
        assert_eq!((evidence.before, evidence.now()), (0.001, 0.055));
    }

    #[test]
    fn what_all_routes_show_is_no_fault_of_one() {
        let calm = intervals(&[(1000, 3), (1000, 2), (1000, 4)]);
        let bad = intervals(&[(400, 20), (400, 20)]);
        let judged = |others: (&[(u64, u64)], &[(u64, u64)])| {
            let others = (intervals(others.0), intervals(others.1));
            judge(&Case { others: (&others.0, &others.1), ..case(&calm, &bad) }).is_some()
        };
        let was: &[(u64, u64)] = &[(5000, 10), (5000, 12), (5000, 9)];
        assert!(judged((&[], &[])));
        assert!(judged((was, &[(5000, 11), (5000, 8)])));
        assert!(judged((was, &[(5000, 0), (5000, 0)])), "what got better elsewhere makes nothing worse");
        assert!(!judged((was, &[(5000, 200), (5000, 210)])), "twenty times as many everywhere");
        assert!(judged((was, &[(199, 100), (199, 100)])), "hardly any traffic says nothing");
    }

    #[test]
    fn of_many_measures_each_must_be_clearer() {
        let before = intervals(&[(1000, 2), (1000, 6), (1000, 1), (1000, 9)]);
        let after = intervals(&[(400, 20), (400, 20)]);
        assert!(judge(&case(&before, &after)).is_some());
        assert!(judge(&Case { measures: 5000, ..case(&before, &after) }).is_none());
        let worse = intervals(&[(400, 380), (400, 380)]);
        assert!(judge(&Case { measures: 5000, ..case(&before, &worse) }).is_some());
    }

    #[test]
    fn tails() {
        // From tables of the t distribution.
        for (t, freedom, expected) in [
            (0.0, 1, 0.5),
            (31.821, 1, 0.01),
            (2.920, 2, 0.05),
            (4.541, 3, 0.01),
            (2.132, 4, 0.05),
            (3.143, 6, 0.01),
            (2.650, 13, 0.01),
            (4.221, 13, 0.0005),
            (-2.650, 13, 0.99),
        ] {
            let found = t_tail(t, freedom);
            assert!((found - expected).abs() < 2e-5, "{t} {freedom}: {found}");
        }

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
    }

    /// How noisy traffic is. All shares swing by a normal law of their logarithm.
    #[derive(Clone, Copy)]
    struct Noise {
        swing: f64,
        /// How much of a swing is left one interval later.
        memory: f64,
        /// How often an incident begins that makes six times as many requests bad, and how many intervals it lasts.
        incidents: (f64, f64),
        /// How often one begins that makes eight times as many bad of all routes, for three intervals.
        common: f64,
    }

    const NOISY: Noise = Noise { swing: 0.3, memory: 0.0, incidents: (0.003, 1.0), common: 0.0 };

    /// The traffic of a route, and of its neighbours.
    struct Traffic {
        noise: Noise,
        volume: f64,
        share: f64,
        swing: f64,
        left: u32,
    }

    impl Traffic {
        fn new(dice: &mut Dice, noise: Noise, volume: f64, share: f64) -> Self {
            Self { noise, volume, share, swing: dice.normal(), left: 0 }
        }

        fn interval(&mut self, dice: &mut Dice, times: f64) -> Interval {
            let Noise { swing, memory, incidents, .. } = self.noise;
            self.swing = memory * self.swing + (1.0 - memory * memory).sqrt() * dice.normal();
            self.left = self.left.saturating_sub(1);
            if self.left == 0 && dice.unit() < incidents.0 {
                self.left = 1 + lasting(dice, incidents.1);
            }
            let times = if self.left > 0 { 6.0 * times } else { times };
            let requests = (self.volume * (0.4 * dice.normal()).exp()).max(1.0) as u64;
            let share = (self.share * (swing * self.swing).exp() * times).min(0.9);
            Interval { requests, bad: dice.bad(requests, share) }
        }
    }

    /// How many further intervals an incident lasts that lasts so many on average.
    fn lasting(dice: &mut Dice, mean: f64) -> u32 {
        let mut more = 0;
        while mean > 1.0 && dice.unit() < 1.0 - 1.0 / mean {
            more += 1;
        }
        more
    }

    /// How many of so many harmless changes go back: six measures of three routes each, and other routes beside them.
    fn taken_back(dice: &mut Dice, noise: Noise, changes: usize) -> usize {
        let change = |dice: &mut Dice| {
            let volume = 10.0_f64.powf(1.5 + 2.0 * dice.unit());
            let share = 10.0_f64.powf(-4.0 + 2.3 * dice.unit());
            let mut left = 0;
            let common: Vec<f64> = (0..20)
                .map(|_| {
                    left = if dice.unit() < noise.common { 3 } else { u32::saturating_sub(left, 1) };
                    if left > 0 { 8.0 } else { 1.0 }
                })
                .collect();
            let series = |dice: &mut Dice, volume: f64| -> Vec<Interval> {
                let mut traffic = Traffic::new(dice, noise, volume, share);
                common.iter().map(|times| traffic.interval(dice, *times)).collect()
            };
            let others = series(dice, 3.0 * volume);
            (0..6).any(|_| {
                let all = series(dice, volume);
                let (before, after) = all.split_at(10);
                (1..=after.len()).any(|until| {
                    let others = (&others[..10], &others[10..10 + until]);
                    judge(&Case { others, ..case(before, &after[..until]) }).is_some()
                })
            })
        };
        (0..changes).filter(|_| change(dice)).count()
    }

    #[test]
    fn harmless_changes_stay() {
        let mut dice = Dice(0x5eed);
        // The last three are wilder than traffic is that somebody watches a change on: swings that last, incidents of some minutes, an
        // upstream of all routes that is unwell now and then. Without what is told above, 15 to 80 of 1000 would go back.
        for (what, noise, most) in [
            ("noisy", NOISY, 1),
            ("wide swings", Noise { swing: 0.6, ..NOISY }, 1),
            ("common incidents", Noise { common: 0.02, ..NOISY }, 1),
            ("swings that last", Noise { swing: 0.6, memory: 0.7, ..NOISY }, 8),
            ("incidents that last", Noise { incidents: (0.01, 3.0), ..NOISY }, 20),
            ("all of it", Noise { swing: 0.6, memory: 0.5, incidents: (0.01, 2.0), common: 0.01 }, 15),
        ] {
            let back = taken_back(&mut dice, noise, 1000);
            assert!(back <= most, "{what}: {back} of 1000 harmless changes were taken back");
        }
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
            missed += usize::from(alone(&before, &after).is_none());
        }
        assert!(missed <= 5, "{missed} of 1000 were missed");
    }
}
