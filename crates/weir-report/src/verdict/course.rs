//! Whether the run was steady: its start, a step, a drift.
//!
//! A figure of the whole run describes none of its parts if they differ. The ticks are compared: in a closed loop by
//! their rates, with a fixed rate by their median service times. The best split in two decides: where both sides
//! differ most, weighted by their sizes (as in CUSUM). The bounds are our guess: wide enough that a busy machine does
//! not cross them by chance.

use crate::Report;
use crate::report::Pace;
use crate::units::time;

/// Fewest complete ticks in which a course can be seen.
const TICKS: usize = 6;

/// How much slower one side must be, as a ratio of rates or of times.
const CHANGE: f64 = 1.20;

/// The same where one side is a single tick.
const CHANGE_OF_ONE: f64 = 1.35;

/// Share of the pairs, one tick of each side, that must differ in the same direction.
const ORDERED: f64 = 0.95;

/// A start ends in this part of the run.
const START: f64 = 0.34;

/// Median service times below this differ by what a scheduler does, not by what a target does: 200 µs.
const TIMES_LEAST_NS: f64 = 200_000.0;

/// How a run changed.
struct Change {
    /// Ticks before the change.
    before: usize,
    /// Medians before and after, as slowness: nanoseconds per response or of service time.
    slowness: (f64, f64),
    /// Whether it went on over the whole run.
    gradual: bool,
    /// Length of a tick.
    tick_ns: u64,
}

/// The start was slower than the rest: connections, caches and compilers of the target were cold.
pub(super) fn cold_start(r: &Report) -> Option<String> {
    let change = change(r)?;
    change.is_start(ticks(r).len()).then(|| {
        format!(
            "the first {} were {} slower than the rest: use a{} --warmup",
            time(change.tick_ns as f64 * change.before as f64),
            change.shown(),
            if r.warmup_ns > 0 { " longer" } else { "" }
        )
    })
}

/// The run has two parts with different figures.
pub(super) fn changed_midway(r: &Report) -> Option<String> {
    let change = change(r)?;
    let is_step = !change.gradual && !change.is_start(ticks(r).len());
    is_step.then(|| {
        format!(
            "after {} the target was {} {}: the figures are a mixture of both parts",
            time(change.tick_ns as f64 * change.before as f64),
            change.shown(),
            change.direction()
        )
    })
}

/// The target became slower or faster all the time.
pub(super) fn drifted(r: &Report) -> Option<String> {
    let change = change(r)?;
    (change.gradual && !change.is_start(ticks(r).len())).then(|| {
        format!(
            "the target became steadily {}, by {} between the halves of the run: a longer run gives other figures",
            change.direction(),
            change.shown()
        )
    })
}

impl Change {
    fn is_start(&self, ticks: usize) -> bool {
        self.slowness.0 > self.slowness.1 && self.before as f64 <= START * ticks as f64
    }

    /// By how much the slower side is slower.
    fn shown(&self) -> String {
        let (slow, fast) = (self.slowness.0.max(self.slowness.1), self.slowness.0.min(self.slowness.1));
        format!("{:.0} %", (slow / fast - 1.0) * 100.0)
    }

    const fn direction(&self) -> &'static str {
        if self.slowness.1 > self.slowness.0 { "slower" } else { "faster" }
    }
}

/// The slowness of each complete tick; empty if the plan itself changes the load.
fn ticks(r: &Report) -> Vec<f64> {
    let closed = match r.plan.pace {
        // Pauses and steps of different length change a scenario's rate, not what a step takes.
        Pace::AsFastAsPossible => !r.is_journey(),
        Pace::Rate { .. } => false,
        Pace::Replay { .. } | Pace::Shape { .. } | Pace::Stages { .. } => return Vec::new(),
    };
    let end = r.window.map_or(u64::MAX, |window| window.length_ns);
    let whole = |t: &&crate::report::Tick| t.length_ns * 10 >= r.series.tick_ns * 9 && t.end_ns <= end;
    let of = |t: &crate::report::Tick| {
        let n = t.responses.max(1) as f64;
        if closed { t.length_ns as f64 / n } else { (t.service.p50 as f64).max(TIMES_LEAST_NS) }
    };
    let enough = r.series.ticks.iter().filter(whole).all(|t| t.responses >= 10);
    if enough { r.series.ticks.iter().filter(whole).map(of).collect() } else { Vec::new() }
}

fn change(r: &Report) -> Option<Change> {
    let all = ticks(r);
    if all.len() < TICKS {
        return None;
    }
    let n = all.len();
    // Means find the place of a step, which medians see only within half a side; medians say how large it is.
    let mean = |side: &[f64]| side.iter().map(|v| v.ln()).sum::<f64>() / side.len() as f64;
    let score = |before: usize| {
        let (left, right) = all.split_at(before);
        (mean(left) - mean(right)).abs() * ((before * (n - before)) as f64 / n as f64).sqrt()
    };
    let before = (1..n).max_by(|a, b| score(*a).total_cmp(&score(*b)))?;
    let (left, right) = all.split_at(before);
    let slowness = (median(left), median(right));
    let (slow, fast) = (slowness.0.max(slowness.1), slowness.0.min(slowness.1));
    let least = if before == 1 || before == n - 1 { CHANGE_OF_ONE } else { CHANGE };
    // A last slow tick is the end of the run, not a change.
    if before == n - 1 || slow / fast < least {
        return None;
    }
    let is_slower = slowness.1 > slowness.0;
    let pairs = left.iter().flat_map(|l| right.iter().map(move |r| (*r > *l) == is_slower && r != l));
    let ordered = pairs.filter(|same| *same).count() as f64 / (before * (n - before)) as f64;
    (ordered >= ORDERED).then(|| Change {
        before,
        slowness,
        gradual: is_gradual(&all),
        tick_ns: r.series.tick_ns,
    })
}

/// Whether the quarters go in one direction and no two neighbours make up most of the way.
fn is_gradual(all: &[f64]) -> bool {
    let quarter =
        |i: usize| median(&all[all.len() * i / 4..(all.len() * (i + 1) / 4).max(all.len() * i / 4 + 1)]);
    let quarters: Vec<f64> = (0..4).map(|i| quarter(i).ln()).collect();
    let way = quarters[3] - quarters[0];
    let steps: Vec<f64> = quarters.windows(2).map(|pair| (pair[1] - pair[0]) / way).collect();
    way != 0.0 && steps.iter().all(|step| (0.1..0.6).contains(step))
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() % 2 {
        0 => (sorted[middle - 1] + sorted[middle]) / 2.0,
        _ => sorted[middle],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Series, Tick};

    /// The codes of a closed loop with these responses per second.
    fn told(rates: &[u64]) -> Vec<&'static str> {
        let tick = |(i, n): (usize, &u64)| Tick {
            end_ns: (i as u64 + 1) * 1_000_000_000,
            length_ns: 1_000_000_000,
            responses: *n,
            ..Tick::default()
        };
        let ticks = rates.iter().enumerate().map(tick).collect();
        let r = Report { series: Series { tick_ns: 1_000_000_000, ticks }, ..Report::default() };
        let looks = [
            ("cold_start", cold_start(&r)),
            ("changed_midway", changed_midway(&r)),
            ("drifted", drifted(&r)),
        ];
        looks.into_iter().filter_map(|(code, text)| text.map(|_| code)).collect()
    }

    #[test]
    fn each_course_has_its_name() {
        let cases: &[(&[u64], &[&str])] = &[
            (&[1000; 10], &[]),
            (&[1000, 1010, 980, 1000, 1100, 950, 1000, 1020, 990, 1000], &[]),
            (&[600, 1000, 1010, 990, 1000, 1000, 1000, 1000, 1000, 1000], &["cold_start"]),
            (&[500, 600, 800, 1000, 1010, 990, 1000, 1000, 1000, 1000], &["cold_start"]),
            (&[1000, 1010, 990, 1000, 1000, 700, 690, 710, 700, 700], &["changed_midway"]),
            (&[700, 710, 690, 700, 700, 1000, 1000, 1000, 1000, 1000], &["changed_midway"]),
            (&[1000, 960, 920, 880, 840, 800, 760, 720, 680, 640], &["drifted"]),
            (&[1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000, 400], &[]),
            (&[1000, 1400, 700, 1300, 800, 1500, 700, 1000, 1200, 900], &[]),
            (&[500, 1000, 1000, 1000, 1000], &[]),
        ];
        for (rates, codes) in cases {
            assert_eq!(told(rates), *codes, "{rates:?}");
        }
    }

    #[test]
    fn a_fixed_rate_is_judged_by_times() {
        let tick = |(i, p50): (usize, &u64)| {
            let mut tick = Tick { length_ns: 1_000_000_000, responses: 100, ..Tick::default() };
            (tick.end_ns, tick.service.p50) = ((i as u64 + 1) * 1_000_000_000, *p50);
            tick
        };
        let run = |p50s: &[u64]| {
            let ticks = p50s.iter().enumerate().map(tick).collect();
            let mut r = Report { series: Series { tick_ns: 1_000_000_000, ticks }, ..Report::default() };
            r.plan.pace = Pace::Rate { per_second: 100.0 };
            r
        };
        let mut times = [2_000_000; 12];
        assert!(change(&run(&times)).is_none());
        times[7..].fill(3_000_000);
        assert!(changed_midway(&run(&times)).unwrap().contains("50 % slower"));
        let fast: Vec<u64> = times.iter().map(|t| t / 50).collect();
        assert!(change(&run(&fast)).is_none(), "microseconds are the scheduler's");
    }
}
