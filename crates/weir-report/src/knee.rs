//! The result of a search for the highest rate that holds: each rate tried, whether it held, and whose limit it hit
//! if not (`step`). `search` in weir-load tries them.

mod html;
mod step;

pub use step::{Limit, Step, none_meets};

use crate::layout::measured;
use crate::report::{Generator, Grade};
use crate::units::grouped;
use crate::verdict;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt::Write;

/// The version of the data model, in [`Knee::schema`].
pub const SCHEMA: &str = "weir.knee/1";

/// Lowest and highest rate that is ever tried.
pub const RATES: (f64, f64) = (1.0, 10e6);

/// The result of a search.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Knee {
    /// Version of the data model: `weir.knee/1`.
    pub schema: String,
    /// Conditions that a rate must meet.
    pub conditions: Vec<String>,
    /// The highest rate that held, twice; none if no rate held.
    pub rate: Option<f64>,
    /// Whose limit the lowest failed rate hit; none if all rates held.
    pub limit: Option<Limit>,
    /// The rate that a closed loop reached.
    pub closed_rate: f64,
    /// Responses that a step needs for these conditions to be meaningful.
    pub needed: u64,
    /// The lowest rate at which the longest step has that many.
    pub rate_least: f64,
    /// Each rate tried, in order.
    pub steps: Vec<Step>,
    /// Whether it ended early because no response met the conditions, even at a far lower rate.
    pub hopeless: bool,
    /// Whether Ctrl-C ended it.
    pub interrupted: bool,
    /// The machine and version that generated the load.
    pub generator: Generator,
}

impl Knee {
    /// The result as JSON.
    pub fn to_json(&self) -> String {
        // Only numbers and text, so serialization cannot fail.
        let mut text = serde_json::to_string(self).unwrap_or_default();
        text.push('\n');
        text
    }

    /// The result as text: the rate found, then latency by rate.
    pub fn to_text(&self) -> String {
        let mut out = self.found();
        let _ = writeln!(out, "\n{}/s in a closed loop\n", whole(self.closed_rate)); // infallible for a String
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
                step.reasons_shown().join(" ")
            );
        }
        out
    }

    /// The result as a sentence.
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

    /// Says that no rate holds, what happened at the lowest rate tried, and why no lower one was tried.
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

    /// What broke a step, as a phrase.
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

    /// How far the result can be believed, and why not. Reasons against a rate that held count; if none held, the
    /// reasons against all rates tried.
    fn verdict(&self) -> (Grade, Vec<&str>) {
        let counts = |step: &&Step| step.held || self.rate.is_none();
        let all = self.steps.iter().filter(counts).flat_map(|step| &step.reasons);
        let mut codes: Vec<&str> = all.map(String::as_str).collect();
        codes.extend(self.interrupted.then_some("ended_early"));
        codes.sort_unstable();
        codes.dedup();
        (codes.iter().map(|code| verdict::grade_of(code)).max().unwrap_or_default(), codes)
    }

    /// The lowest rate that failed, and failed again if repeated.
    pub fn first_broken(&self) -> Option<&Step> {
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

pub(super) fn whole(rate: f64) -> String {
    if rate < 100.0 { format!("{rate:.1}") } else { grouped(rate.round() as u64) }
}

/// A bar as long as the logarithm of the time: 4 for each power of ten above 10 µs.
fn bar(ns: u64) -> String {
    let length = ((ns.max(1) as f64).log10() - 4.0) * 4.0;
    "#".repeat(length.clamp(0.0, 24.0).round() as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::ThresholdResult;

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
        // If the target sent no response, everything else follows from that.
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
