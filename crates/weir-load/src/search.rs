//! Searches for the highest rate that holds, with an open loop, so that a target that falls behind shows it in its
//! response time.
//!
//! A closed loop first measures the most that the target can do. The search then tries rates and halves the gap
//! between those that hold and those that do not. `Search` decides and knows neither clock nor target. weir-report's
//! `knee` judges whether a rate held, and is the result.

use crate::{Interrupt, Options, Plan};
use std::io;
use std::time::Duration;
use weir_report::Mistake;
use weir_report::Threshold;
use weir_report::knee::{Knee, Limit, RATES, SCHEMA, Step, none_meets};
use weir_report::units;

/// The search ends when the lowest rate that failed is within this factor of the highest that held.
const NEAR: f64 = 1.05;

/// Most rates tried: enough to search a thousandfold range twice.
const TRIES_MOST: usize = 30;

/// Default length of a step: the first, or longer if it takes more time to get enough responses, up to the second.
const STEP: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(60));

/// After this many rates in a row without a response that met the conditions, a probe checks whether any ever does.
const HOPELESS: u32 = 2;

/// The rate of this probe, which is as short as the first step: a few responses are enough.
const PROBE_RATE: f64 = 4.0;

/// Planned responses for each needed one, since some may be missing.
const SPARE: f64 = 1.1;

/// Default warm-up of a step, and default wait for late responses.
const AROUND: (&str, &str) = ("1s", "2s");

/// Default connections of the closed loop that finds the starting rate.
const CONNECTIONS: u64 = 50;

/// Says that steps of this length have too few responses for the conditions even at `rate`, the most that the target
/// does in a closed loop.
fn too_short(step: Duration, planned: f64, rate: f64) -> Option<Mistake> {
    let needed = planned / rate;
    (rate > 0.0 && step.as_secs_f64() < needed).then(|| {
        let longer = Duration::from_secs_f64(needed.min(86_400.0)).as_millis() + 1;
        Mistake::new(
            &format!("-d {}", units::time(step.as_nanos() as f64)),
            &format!(
                "the conditions need {planned:.0} responses in each step, and the target makes {rate:.0} a second in a closed loop: use at least -d {longer}ms"
            ),
        )
    })
}

/// Searches with the load of `options`, whose time and warm-up are those of a step. `conditions` are thresholds
/// separated by commas. Calls `on_step` with each rate before it is tried.
///
/// # Errors
/// Conditions or options that cannot be run.
pub fn find_knee(
    options: &Options,
    conditions: &str,
    interrupt: &Interrupt,
    mut on_step: impl FnMut(f64),
) -> Result<io::Result<Knee>, Vec<Mistake>> {
    let conditions: Vec<String> = conditions.split(',').map(|c| c.trim().to_owned()).collect();
    let (mut asked, mut mistakes) = (Vec::new(), Vec::new());
    for condition in &conditions {
        match Threshold::parse("--find-knee", condition) {
            Ok(threshold) if threshold.is_of_replay() => {
                let hint = "is a figure of `weir replay`, which has something recorded to compare with";
                mistakes.push(Mistake::new(&format!("--find-knee {condition}"), hint));
            }
            Ok(threshold) => asked.push(threshold),
            Err(mistake) => mistakes.push(mistake),
        }
    }
    let or =
        |value: &Option<String>, default: &str| Some(value.clone().unwrap_or_else(|| default.to_owned()));
    let step = Options {
        duration: or(&options.duration, &text_of(STEP.0)),
        warmup: or(&options.warmup, AROUND.0),
        graceful_stop: or(&options.graceful_stop, AROUND.1),
        ..options.clone()
    };
    let closed = Options {
        connections: Some(options.connections.unwrap_or(CONNECTIONS)),
        // Mistakes in the conditions are reported above. Here they only show whether they need something that is
        // missing.
        thresholds: if mistakes.is_empty() { conditions.clone() } else { Vec::new() },
        ..step.clone()
    };
    let plan = match (Plan::new(&closed), mistakes.is_empty()) {
        (Ok(plan), true) => plan,
        (plan, _) => {
            mistakes.extend(plan.err().into_iter().flatten());
            return Err(mistakes);
        }
    };
    let mut knee = Knee { schema: SCHEMA.to_owned(), conditions, ..Knee::default() };
    let report = match plan.run(interrupt, |_| ()) {
        Ok(report) => report,
        Err(e) => return Ok(Err(e)),
    };
    knee.closed_rate = report.rate();
    let none_met = none_meets(&report, &asked);
    knee.generator = report.generator;
    knee.needed = asked.iter().map(Threshold::needs).max().unwrap_or_default();
    let told = options.duration.as_deref().and_then(units::duration);
    let planned = knee.needed as f64 * SPARE;
    if let Some(mistake) = told.and_then(|told| too_short(told, planned, knee.closed_rate)) {
        return Err(vec![mistake]);
    }
    knee.rate_least = (planned / told.unwrap_or(STEP.1).as_secs_f64()).clamp(RATES.0, RATES.1);
    // Without responses in the closed loop, start at the lowest rate: a target that hangs under full load may still
    // hold a little.
    let mut search = Search::begin(knee.closed_rate / 2.0, knee.rate_least, none_met);
    while let Some(rate) = search.next().filter(|_| !interrupt.is_ended()) {
        on_step(rate);
        let thresholds = knee.conditions.clone();
        let length = told.unwrap_or_else(|| match search.probe {
            true => STEP.0,
            false => Duration::from_secs_f64(planned / rate).clamp(STEP.0, STEP.1),
        });
        let plan = Plan::new(&Options {
            rate: Some(format!("{rate:.3}/s")),
            duration: Some(text_of(length)),
            thresholds,
            ..step.clone()
        })?;
        let report = match plan.run(interrupt, |_| ()) {
            Ok(report) => report,
            Err(e) => return Ok(Err(e)),
        };
        if !interrupt.is_ended() {
            let none_met = none_meets(&report, &asked);
            let step = Step::of(rate, report, &asked);
            // A probe that found a good response does not count as a try of its rate.
            let counts = step.held || none_met || !search.probe;
            if step.limit != Some(Limit::Generator) || !search.excuse() {
                search.tell(step.held, none_met);
            }
            knee.steps.extend(counts.then_some(step));
        }
    }
    knee.interrupted = interrupt.is_ended();
    knee.rate = search.found;
    knee.hopeless = search.hopeless;
    knee.limit = knee.first_broken().and_then(|step| step.limit);
    Ok(Ok(knee))
}

/// A time in the form that options use.
fn text_of(time: Duration) -> String {
    format!("{}ms", time.as_millis())
}

/// Decides which rate to try next.
#[derive(Debug)]
struct Search {
    at: Option<f64>,
    /// The lowest rate to try.
    least: f64,
    /// Rates that held, ascending.
    held: Vec<f64>,
    /// The lowest rate that did not hold.
    broke: Option<f64>,
    tries: usize,
    /// Rates in a row without a response that met the conditions.
    none_met: u32,
    /// Whether this step is only a probe: does any response meet them?
    probe: bool,
    probed: bool,
    /// No response does.
    hopeless: bool,
    /// The rate that was tried again because the generator failed.
    excused: Option<f64>,
    /// The result: held in the search, and again at its end.
    found: Option<f64>,
}

impl Search {
    /// `none_met`: no response of the closed loop met the conditions.
    fn begin(rate: f64, least: f64, none_met: bool) -> Self {
        // The lowest rate takes longest, so probe first whether any response can meet the conditions.
        let probe = none_met && rate <= least;
        Self {
            at: Some(if probe { least.max(PROBE_RATE) } else { rate.max(least) }),
            none_met: u32::from(none_met),
            probe,
            probed: probe,
            hopeless: false,
            least,
            held: Vec::new(),
            broke: None,
            tries: 0,
            excused: None,
            found: None,
        }
    }

    /// The rate to try; `None` when the search is over.
    fn next(&self) -> Option<f64> {
        self.at.filter(|_| self.tries < TRIES_MOST)
    }

    /// Whether to try the rate again: the generator failed, perhaps because another process briefly had the
    /// processor.
    fn excuse(&mut self) -> bool {
        let first = self.excused != self.at;
        self.excused = self.at;
        self.tries += usize::from(first);
        first
    }

    /// Takes a step's outcome: whether the rate held, and whether no response met the conditions.
    fn tell(&mut self, held: bool, none_met: bool) {
        let Some(at) = self.at else { return };
        self.tries += 1;
        if std::mem::take(&mut self.probe) && !held {
            self.hopeless = none_met;
            // If a response met them, the search continues from where it was.
            let goes_on = || self.broke.map_or(Some(self.least), |broke| self.below(broke));
            self.at = if none_met { None } else { goes_on() };
            return;
        }
        self.none_met = if none_met { self.none_met + 1 } else { 0 };
        let again = self.held.last() == Some(&at);
        if held && again {
            self.found = Some(at);
            self.at = None;
            return;
        }
        if held {
            self.held.push(at);
        } else {
            // A rate that held before fails now, so no higher one counts either.
            self.held.retain(|rate| *rate < at);
            self.broke = Some(at);
        }
        self.at = match (self.held.last(), self.broke) {
            (Some(low), Some(high)) if high / low <= NEAR => Some(*low),
            (Some(low), Some(high)) => Some((low * high).sqrt()),
            (Some(low), None) => Some((low * 2.0).min(RATES.1)),
            (None, _) => self.lower(at),
        };
    }

    /// The rate after a failed one while none has held yet.
    fn lower(&mut self, at: f64) -> Option<f64> {
        let look = self.least.max(PROBE_RATE);
        if self.none_met >= HOPELESS && !self.probed && look < at {
            (self.probe, self.probed) = (true, true);
            return Some(look);
        }
        self.below(at)
    }

    fn below(&self, rate: f64) -> Option<f64> {
        Some((rate / 2.0).max(self.least)).filter(|lower| *lower < rate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_needs_enough_responses() {
        let step = Duration::from_millis(20);
        let told = too_short(step, 1_100.0, 10_000.0).unwrap().to_string();
        assert!(
            told.starts_with("-d 20.00 ms: the conditions need 1100 responses") && told.ends_with("-d 111ms"),
            "{told}"
        );
        assert!(too_short(step, 1_100.0, 60_000.0).is_none() && too_short(step, 1_100.0, 0.0).is_none());
    }

    /// Searches a target for which `holds` decides; returns the result and the number of tries.
    fn search(begin: f64, mut holds: impl FnMut(f64) -> bool) -> (Option<f64>, usize) {
        let mut search = Search::begin(begin, RATES.0, false);
        while let Some(rate) = search.next() {
            search.tell(holds(rate), false);
        }
        (search.found, search.tries)
    }

    #[test]
    fn the_knee_is_found_from_any_beginning() {
        for knee in [3.0, 120.0, 5_000.0, 1_000_000.0] {
            for begin in [knee / 50.0, knee * 0.5, knee, knee * 3.0, knee * 200.0] {
                let (found, tries) = search(begin, |rate| rate <= knee);
                let found = found.unwrap_or_else(|| panic!("{knee} from {begin}"));
                assert!(found <= knee && found * NEAR >= knee * 0.999, "{knee} from {begin}: {found}");
                assert!(tries <= 16, "{knee} from {begin}: {tries} tries");
            }
        }
    }

    #[test]
    fn what_held_by_chance_does_not_count() {
        let mut lucky = true;
        // Above 1,000 it holds once.
        let (found, _) = search(900.0, |rate| rate <= 1000.0 || std::mem::take(&mut lucky));
        assert!(found.is_some_and(|rate| rate <= 1000.0 && rate > 940.0), "{found:?}");
    }

    #[test]
    fn a_generator_that_fails_once_is_tried_again() {
        let mut search = Search::begin(1000.0, RATES.0, false);
        assert!(search.excuse() && search.next() == Some(1000.0));
        assert!(!search.excuse(), "and not for ever");
        search.tell(false, false);
        assert!(search.excuse() && search.tries == 3, "{search:?}");

        let step =
            |rate: f64, limit: Option<Limit>| Step { rate, held: limit.is_none(), limit, ..Step::default() };
        let generator = Some(Limit::Generator);
        let mut knee = Knee { steps: vec![step(9.0, generator), step(9.0, None)], ..Knee::default() };
        assert_eq!(knee.first_broken(), None);
        knee.steps.extend([step(20.0, Some(Limit::Target)), step(12.0, generator), step(12.0, generator)]);
        assert_eq!(knee.first_broken().map(|s| s.rate), Some(12.0));
    }

    #[test]
    fn a_search_ends() {
        assert_eq!(search(1000.0, |_| false), (None, 11));
        assert_eq!(search(1000.0, |_| true), (Some(RATES.1), 16));
    }

    #[test]
    fn no_rate_is_tried_that_has_too_few_responses() {
        let mut search = Search::begin(700.0, 220.0, false);
        let mut tried = Vec::new();
        while let Some(rate) = search.next() {
            tried.push(rate);
            search.tell(false, false);
        }
        assert_eq!(tried, [700.0, 350.0, 220.0]);
        assert_eq!(Search::begin(3.0, 220.0, false).next(), Some(220.0));
    }

    #[test]
    fn what_no_response_meets_is_given_up_early() {
        /// The rates tried on a target that gives a good response at the rates that `some_met` accepts, and whether
        /// the search gave up.
        fn tried(begin: f64, closed: bool, some_met: impl Fn(f64) -> bool) -> (Vec<f64>, bool) {
            let mut search = Search::begin(begin, 10.0, closed);
            let mut tried = Vec::new();
            while let Some(rate) = search.next() {
                tried.push(rate);
                search.tell(false, !some_met(rate));
            }
            (tried, search.hopeless)
        }
        assert_eq!(tried(8000.0, false, |_| false), (vec![8000.0, 4000.0, 10.0], true));
        assert_eq!(tried(8000.0, true, |_| false), (vec![8000.0, 10.0], true));
        assert_eq!(tried(0.0, true, |_| false), (vec![10.0], true));
        // A response met the conditions: the search continues from where it was, and probes only once.
        let halved = vec![80.0, 40.0, 10.0, 20.0, 10.0];
        assert_eq!(tried(80.0, false, |rate| rate < 20.0), (halved, false));
        assert_eq!(tried(0.0, true, |_| true), (vec![10.0, 10.0], false));
        assert_eq!(tried(15.0, false, |_| false), (vec![15.0, 10.0], false));
    }
}
