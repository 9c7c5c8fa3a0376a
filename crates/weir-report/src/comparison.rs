//! The results of comparing targets: computed from rounds, and printed.
//!
//! A round yields one value per figure and target. Estimates are means over rounds, ratios are taken within rounds,
//! intervals come from `stats`.
//!
//! *Layout.* `baseline` compares a run with earlier ones. `figures` defines the compared figures, `condition` is
//! `p99 worse 5%`, `text` and `html` print, `repeated` is for blocks that were measured again. `set` holds the
//! comparisons of one bench file, beside figures that others have published.

pub mod baseline;
mod condition;
mod figures;
mod html;
mod repeated;
mod set;
pub(crate) mod stats;
pub(crate) mod text;

pub use condition::Condition;
pub use figures::{Figure, Measured};
pub use repeated::RepeatedBlock;
pub use set::{ComparisonSet, LeftOut, Published, Workload};
pub use stats::Interval;

use crate::report::{Generator, Grade, PlanAsRun, Report};
use crate::work::{self, Work};
use crate::{Histogram, verdict};
use figures::{FIGURES, Unit};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// The version of the data model, in [`Comparison::schema`].
pub const SCHEMA: &str = "weir.compare/1";

/// The reason against shorter blocks, and against those too short to judge processor use. docs/explain/verdict.md
/// lists it with the others.
const SHORT_BLOCKS: &str = "short_blocks";

/// How targets take turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// In blocks: A B B A.
    Blocks,
    /// Request by request, in the first contender's single plan.
    Requests,
}

/// The result of a comparison.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Comparison {
    /// Version of the data model: `weir.compare/1`.
    pub schema: String,
    /// The worst verdict of any block; INVALID if the work is unequal.
    pub grade: Grade,
    /// How the other targets' work differs from the first's.
    pub unequal: Vec<String>,
    /// Whether unequal work was declared intended.
    pub unequal_ok: bool,
    /// The load, which is the same for each target; taken from the first block.
    pub load: PlanAsRun,
    /// The order of blocks in a round; with a single block, targets alternate request by request.
    pub order: Vec<String>,
    /// Length of a block.
    pub block_ns: u64,
    /// Warm-up of each block, not counted.
    pub warmup_ns: u64,
    /// Complete rounds.
    pub rounds: u64,
    /// Blocks that were measured again, because something outside of the test had spoilt them. Their figures are only
    /// here.
    pub repeated: Vec<RepeatedBlock>,
    /// Most blocks that could be measured again.
    pub repeat_blocks: u64,
    /// Most blocks that could be measured again for the earlier result; 0 if that was a single run. None without one.
    pub before_repeat_blocks: Option<u64>,
    /// Seed of the bootstrap.
    pub seed: u64,
    /// Why it ended.
    pub end: CompareEnd,
    /// The targets; the others are compared with the first.
    pub targets: Vec<TargetResult>,
    /// Conditions, in the order given.
    pub conditions: Vec<ConditionResult>,
    /// The machine and version that generated the load.
    pub generator: Generator,
}

/// Why a comparison ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CompareEnd {
    /// Ctrl-C.
    Interrupted,
    /// The intervals were narrow enough.
    Narrow,
    /// A target sent no response at all.
    NoResponse,
    /// The time was over.
    #[default]
    Time,
}

/// One target's results.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct TargetResult {
    /// Its name.
    pub name: String,
    /// Its URL.
    pub url: String,
    /// Complete responses in all rounds.
    pub responses: u64,
    /// Requests that ended in an error.
    pub errors: u64,
    /// Codes of reasons against its results, and the number of blocks with each.
    pub reasons: BTreeMap<String, u64>,
    /// One value per round, by figure; everything else is computed from these. Times are in nanoseconds, rates per
    /// second. A figure that is missing in some round is left out.
    pub rounds: BTreeMap<String, Vec<f64>>,
    /// The means over rounds.
    pub figures: BTreeMap<String, Interval>,
    /// Ratios to the first target; empty for the first target.
    pub ratios: BTreeMap<String, Interval>,
    /// Latency added to the first target's, request by request; only with a direct upstream.
    pub added: BTreeMap<String, Interval>,
    /// Latency over all rounds: response time, or service time with a direct upstream.
    pub latency: Histogram,
    /// The work that it did.
    pub work: Work,
}

/// A condition's result for one target.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ConditionResult {
    /// As written: `p99 worse 5%`.
    pub condition: String,
    /// The target.
    pub target: String,
    /// How much worse it is than the first, as a share; none if nothing could be measured, which violates the
    /// condition.
    pub worse: Option<Interval>,
    /// Whether it is not worse, or so slightly or uncertainly worse that it passes.
    pub passed: bool,
}

/// The names of all figures, for messages.
pub fn figure_names() -> String {
    FIGURES.iter().map(|figure| figure.name).collect::<Vec<_>>().join(", ")
}

/// Whether the figure of this name, such as `p99`, is a rate per second and not a time. None for unknown names.
pub fn figure_is_rate(name: &str) -> Option<bool> {
    Figure::named(name).map(Figure::is_rate)
}

impl Comparison {
    /// Adds a block's results.
    pub fn note(&mut self, report: &Report, target: usize, way: Way) {
        if self.rounds == 0 && self.generator == Generator::default() {
            self.load = PlanAsRun { targets: Vec::new(), name: String::new(), ..report.plan.clone() };
            self.generator = report.generator.clone();
        }
        for reason in &report.verdict.reasons {
            self.grade = self.grade.max(reason.grade);
            let of = if way == Way::Blocks { target..target + 1 } else { 0..self.targets.len() };
            for target in &mut self.targets[of] {
                *target.reasons.entry(reason.code.clone()).or_default() += 1;
            }
        }
    }

    /// Compares the work of all targets with the first's. A target without work data, from a result saved by an older
    /// version, counts as having no responses.
    pub fn weigh(&mut self) {
        self.unequal = work::unequal(self.targets.iter().map(|t| (t.name.as_str(), &t.work)));
        if !self.unequal.is_empty() && !self.unequal_ok {
            self.grade = Grade::Invalid;
        }
    }

    /// Checks that blocks are long enough. In a closed loop a block holds a whole number of responses per connection,
    /// so its rate is off by up to one of them. Blocks that are too short are not judged by processor use.
    pub fn measure_blocks(&mut self, live: usize, way: Way) {
        let of_each = self.rounds * if way == Way::Blocks && self.order.len() > 1 { 2 } else { 1 };
        let is_closed = self.load.pace.is_closed();
        for target in self.targets.iter_mut().skip(live).filter(|t| t.responses > 0) {
            let turns = if is_closed { verdict::TURNS_LEAST * target.latency.mean() } else { 0.0 };
            if self.block_ns < verdict::JUDGED_NS || (self.block_ns as f64) < turns {
                target.reasons.insert(SHORT_BLOCKS.to_owned(), of_each);
                self.grade = self.grade.max(Grade::Suspect);
            }
        }
    }

    /// The differences in work, one line each.
    pub(super) fn unequal_lines(&self) -> impl Iterator<Item = String> {
        let meant = if self.unequal_ok { ", as --unequal ok allows" } else { "" };
        self.unequal.iter().map(move |text| format!("unequal_work: {text}{meant}"))
    }

    /// Whether the command should fail: a condition is violated, a target sent no response, or a condition refers to
    /// unequal work.
    pub fn has_failed(&self) -> bool {
        let is_unequal = !self.unequal.is_empty() && !self.unequal_ok;
        self.conditions.iter().any(|c| !c.passed || is_unequal) || self.end == CompareEnd::NoResponse
    }

    /// Reasons against its blocks, the most serious first: target, code, and number of blocks.
    pub(super) fn reasons(&self) -> Vec<(&str, &str, u64)> {
        let mut all = Vec::new();
        for target in &self.targets {
            all.extend(target.reasons.iter().map(|(code, n)| (target.name.as_str(), code.as_str(), *n)));
        }
        all.sort_by_key(|(_, code, _)| Reverse(verdict::grade_of(code)));
        all
    }

    /// Figures, ratios and differences from the values of all rounds.
    pub fn compute(&mut self, apart: bool, way: Way) {
        let first = self.targets.first().map(|t| t.rounds.clone()).unwrap_or_default();
        let (seed, rounds) = (self.seed, self.rounds as usize);
        for (number, target) in self.targets.iter_mut().enumerate() {
            target.ratios.clear();
            target.added.clear();
            // An earlier result keeps its figures.
            if !(apart && number == 0) {
                // Values are paired by round, so a figure missing in one round has no pairs.
                target.rounds.retain(|_, values| values.len() == rounds);
                let mean =
                    |(name, values): (&String, &Vec<f64>)| Some((name.clone(), stats::mean(values, seed)?));
                target.figures = target.rounds.iter().filter_map(mean).collect();
            }
            for (name, values) in target.rounds.iter().filter(|_| number > 0) {
                // When requests alternate, both targets have the same rate by construction.
                let same = way == Way::Requests && name == "rate";
                let Some(base) = first.get(name).filter(|_| !same) else { continue };
                let pairs: Vec<(f64, f64)> = base.iter().copied().zip(values.iter().copied()).collect();
                let ratio = match apart {
                    true => stats::ratio_apart(base, values, seed),
                    // If one of them lacks the figure in some round, there are no pairs.
                    false if base.len() != values.len() => None,
                    false => stats::ratio(&pairs, seed),
                };
                target.ratios.extend(ratio.map(|ratio| (name.clone(), ratio)));
                let is_time = FIGURES.iter().any(|f| f.name == *name && f.unit == Unit::Latency);
                if way == Way::Requests && is_time {
                    target.added.extend(stats::difference(&pairs, seed).map(|d| (name.clone(), d)));
                }
            }
        }
    }

    /// The comparison as JSON, which `--against` reads.
    pub fn to_json(&self) -> String {
        // All maps have string keys, so serialization cannot fail.
        let mut text = serde_json::to_string(self).unwrap_or_default();
        text.push('\n');
        text
    }
}

impl TargetResult {
    /// Adds a round.
    pub fn add(&mut self, measured: &Measured) {
        self.responses += measured.responses;
        self.errors += measured.errors;
        self.latency.add(&measured.latency);
        self.work.add(&measured.work);
        for figure in FIGURES {
            if let Some(value) = figure.of(measured) {
                self.rounds.entry(figure.name.to_owned()).or_default().push(value);
            }
        }
    }

    /// A report of `weir load` as an earlier result: one value per figure and block, or one per figure without
    /// `--rounds`.
    pub fn of(report: &Report) -> Self {
        let mut measured = Measured::default();
        measured.add(report);
        let url = report.plan.targets.first().map(|t| t.url.clone()).unwrap_or_default();
        let mut target = Self { name: "before".to_owned(), url, ..Self::default() };
        target.add(&measured);
        let whole = |(name, values): (&String, &Vec<f64>)| Some((name.clone(), stats::mean(values, 0)?));
        target.figures = target.rounds.iter().filter_map(whole).collect();
        // Its blocks say how much a figure varies.
        target.rounds.extend(baseline::by_block(report));
        target
    }
}

#[cfg(test)]
mod tests;
