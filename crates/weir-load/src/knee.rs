//! The highest rate that holds: a search by open loop, so that a target that falls behind shows it in the response time.
//!
//! A closed loop says first how much there is to be had at most, then rates are tried one after the other and the gap between those that hold
//! and those that do not is halved. `Search` decides; it knows neither clock nor target. `step` says whether a rate held, and whose limit it was if not.

mod html;
mod step;

pub use step::{Limit, Step};

use crate::layout::measured;
use crate::report::{Generator, Grade};
use crate::threshold::Threshold;
use crate::units::{self, grouped};
use crate::{Interrupt, Mistake, Options, Plan, verdict};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt::Write;
use std::time::Duration;

/// The version of the data model, in [`Knee::schema`].
pub const SCHEMA: &str = "weir.knee/1";

/// How near to each other the highest rate that held and the lowest that did not must be.
const NEAR: f64 = 1.05;

/// Most rates that are tried: a thousandfold search, twice over.
const TRIES_MOST: usize = 30;

/// Lowest and highest rate that is tried, whatever is asked.
const RATES: (f64, f64) = (1.0, 10e6);

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

/// What a search yields.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Knee {
    /// Version of the data model: `weir.knee/1`.
    pub schema: String,
    /// What must hold.
    pub conditions: Vec<String>,
    /// The highest rate that held, twice; none where none did.
    pub rate: Option<f64>,
    /// Whose limit the lowest rate is that did not hold; none where all held.
    pub limit: Option<Limit>,
    /// What a closed loop reached.
    pub closed_rate: f64,
    /// Responses that a step must have for these conditions to mean anything.
    pub needed: u64,
    /// The lowest rate at which the longest step has as many.
    pub rate_least: f64,
    /// Each rate tried, in the order of trying.
    pub steps: Vec<Step>,
    /// Whether it ended early because no response met the conditions, not even at a rate far below.
    pub hopeless: bool,
    /// Whether Ctrl-C ended it.
    pub interrupted: bool,
    /// The machine and version that made the load.
    pub generator: Generator,
}

impl Knee {
    /// Searches with the load of `options`, whose time and warm-up are those of a step. `conditions` are thresholds with commas between them. `on_step` is told each
    /// rate before it is tried.
    ///
    /// # Errors
    /// Conditions or options that cannot be run.
    pub fn find(
        options: &Options,
        conditions: &str,
        interrupt: &Interrupt,
        mut on_step: impl FnMut(f64),
    ) -> Result<std::io::Result<Self>, Vec<Mistake>> {
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
        let mut knee = Self { schema: SCHEMA.to_owned(), conditions, ..Self::default() };
        let report = match plan.run(interrupt, |_| ()) {
            Ok(report) => report,
            Err(e) => return Ok(Err(e)),
        };
        knee.closed_rate = report.rate();
        let none_met = step::none_meets(&report, &asked);
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
                let none_met = step::none_meets(&report, &asked);
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

    /// For machines.
    pub fn to_json(&self) -> String {
        // Numbers and texts: nothing in the model can fail to be written.
        let mut text = serde_json::to_string(self).unwrap_or_default();
        text.push('\n');
        text
    }

    /// For people: what was found, then latency over rate.
    pub fn to_text(&self) -> String {
        let mut out = self.found();
        let _ = writeln!(out, "\n{}/s in a closed loop\n", whole(self.closed_rate)); // a String takes everything
        let _ =
            writeln!(out, "{:>12} {:>12} {:>10} {:>10} {:>8}", "rate", "responses/s", "p50", "p99", "failed");
        for step in self.by_rate() {
            let _ = writeln!(
                out,
                "{:>12} {:>12} {:>10} {:>10} {:>6.2} %  {:<6} {:<24} {}",
                whole(step.rate),
                whole(step.responses_per_s),
                step.p50(),
                step.p99(),
                step.failed_share * 100.0,
                if step.held { "held" } else { "BROKEN" },
                bar(if step.knows_p99() { step.response.p99 } else { step.response.p50 }),
                step.told().join(" ")
            );
        }
        out
    }

    /// One page, with latency over rate as a plot.
    pub fn to_html(&self) -> String {
        html::print(self)
    }

    /// What was found, as a sentence.
    fn found(&self) -> String {
        let conditions = self.conditions.join(", ");
        let found = match self.rate {
            Some(rate) => format!("{}/s is the highest rate that holds {conditions}", whole(rate)),
            None if self.interrupted => "interrupted before a rate was found".to_owned(),
            None if self.steps.iter().any(|step| step.held) => {
                format!("no rate held {conditions} a second time in {} tries", self.steps.len())
            }
            None => return self.none_found(&conditions),
        };
        match self.first_broken().filter(|_| self.limit == Some(Limit::Generator)) {
            Some(step) => format!(
                "{found}; at {}/s it was the generator that could not ({}), so the target may hold more",
                whole(step.rate),
                step.of_generator().join(", ")
            ),
            None => found,
        }
    }

    /// That no rate holds, what was seen at the lowest that was tried, and why none below was.
    fn none_found(&self, conditions: &str) -> String {
        let mut text = format!("no rate holds {conditions}");
        let Some(lowest) = self.by_rate().first().copied() else { return text };
        let _ = write!(text, ": at {}/s, the lowest tried, {}", whole(lowest.rate), self.seen_at(lowest));
        if lowest.limit == Some(Limit::Generator) {
            let _ = write!(
                text,
                ", and the generator could not do better ({})",
                lowest.of_generator().join(", ")
            );
        }
        if self.hopeless {
            let none = if self.steps.iter().all(|step| step.responses == 0) { "came" } else { "met it" };
            let _ = write!(text, "; no response {none} at any rate tried, so the search ended early");
        } else if lowest.rate <= self.rate_least && self.rate_least > RATES.0 {
            let needed = grouped(self.needed);
            let _ = write!(
                text,
                "; below that a step has fewer than the {needed} responses it takes: a longer -d tries lower rates"
            );
        }
        text
    }

    /// What broke a step, as a part of a sentence.
    fn seen_at(&self, step: &Step) -> String {
        let error = step.error.as_deref();
        if step.responses == 0 {
            return error.map_or_else(|| "no response came".to_owned(), |e| format!("no response came: {e}"));
        }
        let broken = step.broken_by.iter().filter(|why| !self.hopeless || *why != step::TOO_FEW);
        let told = broken.map(|why| match (step.thresholds.iter().find(|t| t.threshold == *why), error) {
            (Some(t), _) => {
                format!("{} is {}", t.threshold.split(['<', '>']).next().unwrap_or_default(), measured(t))
            }
            (None, _) if why == step::TOO_FEW => {
                format!("{} of {} responses came", grouped(step.responses), grouped(self.needed))
            }
            (None, Some(error)) if why == "errors" => format!("errors ({error})"),
            (None, _) => why.clone(),
        });
        told.collect::<Vec<_>>().join(", ")
    }

    /// How far what was found can be believed, and why not: what speaks against a rate that held speaks against it, or where none held, what speaks
    /// against those tried.
    fn verdict(&self) -> (Grade, Vec<&str>) {
        let counts = |step: &&Step| step.held || self.rate.is_none();
        let all = self.steps.iter().filter(counts).flat_map(|step| &step.reasons);
        let mut codes: Vec<&str> = all.map(String::as_str).collect();
        codes.extend(self.interrupted.then_some("ended_early"));
        codes.sort_unstable();
        codes.dedup();
        (codes.iter().map(|code| verdict::grade_of(code)).max().unwrap_or_default(), codes)
    }

    /// The lowest rate that did not hold, nor when it was tried again.
    fn first_broken(&self) -> Option<&Step> {
        let held_later = |i: usize, rate: f64| {
            self.steps.iter().skip(i).any(|later| later.held && later.rate.total_cmp(&rate).is_eq())
        };
        let broken = self.steps.iter().enumerate().filter(|(i, s)| !s.held && !held_later(*i, s.rate));
        broken.map(|(_, step)| step).min_by(|a, b| a.rate.total_cmp(&b.rate))
    }

    fn by_rate(&self) -> Vec<&Step> {
        let mut steps: Vec<&Step> = self.steps.iter().collect();
        steps.sort_by(|a, b| a.rate.total_cmp(&b.rate));
        steps
    }
}

/// A time as options have it.
fn text_of(time: Duration) -> String {
    format!("{}ms", time.as_millis())
}

fn whole(rate: f64) -> String {
    if rate < 100.0 { format!("{rate:.1}") } else { grouped(rate.round() as u64) }
}

/// A bar as long as the logarithm of the time: 4 for each power of ten above 10 µs.
fn bar(ns: u64) -> String {
    let length = ((ns.max(1) as f64).log10() - 4.0) * 4.0;
    "#".repeat(length.clamp(0.0, 24.0).round() as usize)
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
    use crate::report::ThresholdResult;

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

    #[test]
    fn what_does_not_hold_is_told_with_what_was_seen() {
        let result = ThresholdResult {
            threshold: "p99<20ms".to_owned(),
            measured: Some(51e6),
            passed: false,
            ..Default::default()
        };
        let step = Step {
            rate: 220.0,
            responses: 900,
            broken_by: vec!["p99<20ms".to_owned()],
            limit: Some(Limit::Target),
            thresholds: vec![result],
            reasons: vec!["late_starts".to_owned()],
            ..Step::default()
        };
        let conditions = vec!["p99<20ms".to_owned()];
        let mut knee =
            Knee { conditions, steps: vec![step], needed: 1_000, rate_least: 220.0, ..Knee::default() };
        assert_eq!(
            knee.found(),
            "no rate holds p99<20ms: at 220/s, the lowest tried, p99 is 51.00 ms; below that a step has fewer than the 1,000 responses it takes: a longer -d tries lower rates"
        );
        knee.rate_least = 1.0;
        knee.steps[0].broken_by = vec![step::TOO_FEW.to_owned()];
        knee.steps[0].limit = Some(Limit::Generator);
        assert_eq!(
            knee.found(),
            "no rate holds p99<20ms: at 220/s, the lowest tried, 900 of 1,000 responses came, and the generator could not do better (late_starts)"
        );
        let refused = || Some("Connection refused (os error 111)".to_owned());
        knee.steps[0] = Step { rate: 220.0, responses: 900, error: refused(), ..Step::default() };
        knee.steps[0].broken_by = vec!["errors".to_owned()];
        assert_eq!(
            knee.found(),
            "no rate holds p99<20ms: at 220/s, the lowest tried, errors (Connection refused (os error 111))"
        );
        // Where nothing answers, that says all; the rest follows from it.
        knee.hopeless = true;
        knee.steps[0].responses = 0;
        knee.steps[0].broken_by =
            ["p99<20ms", "no_responses", "errors", step::TOO_FEW].map(str::to_owned).to_vec();
        assert_eq!(
            knee.found(),
            "no rate holds p99<20ms: at 220/s, the lowest tried, no response came: Connection refused (os error 111); no response came at any rate tried, so the search ended early"
        );
    }
}
