//! Searches the highest rate that holds, by open loop, so that a target that falls behind shows it in the response time.
//!
//! A closed loop says first how much there is to be had at most, then rates are tried one after the other and the gap between those that hold
//! and those that do not is halved. `Search` decides; it knows neither clock nor target. `knee` says whether a rate held, and is what is found.

use crate::{Interrupt, Options, Plan};
use std::io;
use std::time::Duration;
use weir_report::Mistake;
use weir_report::Threshold;
use weir_report::knee::{Knee, Limit, RATES, SCHEMA, Step, none_meets};
use weir_report::units;

/// How near to each other the highest rate that held and the lowest that did not must be.
const NEAR: f64 = 1.05;

/// Most rates that are tried: a thousandfold search, twice over.
const TRIES_MOST: usize = 30;

/// Length of a step where nothing is said: the first, or as much longer as it takes for enough responses, up to the second.
const STEP: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(60));

/// After how many rates in a row at which no response met the conditions it is asked whether any ever does.
const HOPELESS: u32 = 2;

/// The rate at which that is asked, for as long as the first step is: a few responses say it.
const PROBE_RATE: f64 = 4.0;

/// Responses that are planned for, for each that is needed: some may be missing.
const SPARE: f64 = 1.1;

/// Warm-up of a step, and how long it waits for late responses, where nothing is said.
const AROUND: (&str, &str) = ("1s", "2s");

/// Connections of the closed loop that says where to begin, where nothing is said.
const CONNECTIONS: u64 = 50;

/// Searches with the load of `options`, whose time and warm-up are those of a step. `conditions` are thresholds with commas between them. `on_step` is told each
/// rate before it is tried.
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
        // Mistakes in them are told above; here they say whether they need what is not there.
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
    knee.rate_least = (planned / told.unwrap_or(STEP.1).as_secs_f64()).clamp(RATES.0, RATES.1);
    // Where a closed loop got nothing, from the lowest rate: a target that hangs under all it can be given may hold a little.
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
            // A look at a rate that showed a good response is no try of it.
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

/// A time as options have it.
fn text_of(time: Duration) -> String {
    format!("{}ms", time.as_millis())
}

/// Which rate to try next.
#[derive(Debug)]
struct Search {
    at: Option<f64>,
    /// The lowest rate that it may try.
    least: f64,
    /// Rates that held, ascending.
    held: Vec<f64>,
    /// The lowest that did not.
    broke: Option<f64>,
    tries: usize,
    /// Rates in a row at which no response met the conditions.
    none_met: u32,
    /// Whether the rate is only looked at: does any response meet them?
    probe: bool,
    probed: bool,
    /// None does.
    hopeless: bool,
    /// The rate that was tried once more because it was the generator that failed.
    excused: Option<f64>,
    /// What was found: held in the search, and again at its end.
    found: Option<f64>,
}

impl Search {
    /// `none_met`: no response of the closed loop met the conditions.
    fn begin(rate: f64, least: f64, none_met: bool) -> Self {
        // From the lowest rate, which takes longest, not before it is known that there is something to be had.
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

    /// The rate to try; none when the search is over.
    fn next(&self) -> Option<f64> {
        self.at.filter(|_| self.tries < TRIES_MOST)
    }

    /// Whether the rate is tried once more: the generator failed at it, which may be for a moment that somebody else had the processor.
    fn excuse(&mut self) -> bool {
        let first = self.excused != self.at;
        self.excused = self.at;
        self.tries += usize::from(first);
        first
    }

    /// What became of it, and whether no response met the conditions.
    fn tell(&mut self, held: bool, none_met: bool) {
        let Some(at) = self.at else { return };
        self.tries += 1;
        if std::mem::take(&mut self.probe) && !held {
            self.hopeless = none_met;
            // Where there is something to be had the search goes on from where it was.
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
            // One that held before does not hold after all, and none above it does.
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

    /// The rate after one that did not hold where none has held yet.
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

    /// Searches a target for which `holds` decides; what was found, and the tries.
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
        /// The rates tried on a target of which the given rates have a good response, and whether it was given up.
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
        // Something is to be had: the search goes on from where it was, and looks only once.
        let halved = vec![80.0, 40.0, 10.0, 20.0, 10.0];
        assert_eq!(tried(80.0, false, |rate| rate < 20.0), (halved, false));
        assert_eq!(tried(0.0, true, |_| true), (vec![10.0, 10.0], false));
        assert_eq!(tried(15.0, false, |_| false), (vec![15.0, 10.0], false));
    }
}
