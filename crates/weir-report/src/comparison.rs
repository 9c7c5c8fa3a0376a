//! What a comparison of targets found, and how it is computed from rounds and printed.
//!
//! A round yields one value of each figure and target; estimates are means over rounds, ratios are taken within rounds, intervals come
//! from `stats`.
//!
//! *Layout.* `figures` is what is compared, `condition` is `p99 worse 5%`, `text` and `html` print; `set` is several comparisons of one
//! bench file, beside what others have published.

mod condition;
mod figures;
mod html;
mod set;
pub(crate) mod stats;
pub(crate) mod text;

pub use condition::Condition;
pub use figures::{Figure, Measured};
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

/// How many mean response times a block must hold at least.
const TURNS_LEAST: f64 = 10.0;

/// The reason against blocks that are shorter, or too short to judge what the processor did. docs/explain/verdict.md has it with the others.
const SHORT_BLOCKS: &str = "short_blocks";

/// How they take turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// In blocks: A B B A.
    Blocks,
    /// Request by request, in the one plan that the first contender has.
    Requests,
}

/// What a comparison yields.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Comparison {
    /// Version of the data model: `weir.compare/1`.
    pub schema: String,
    /// The worst verdict of any block, and INVALID where the work is not equal.
    pub grade: Grade,
    /// How the work of the others differs from that of the first.
    pub unequal: Vec<String>,
    /// Whether that was said to be meant.
    pub unequal_ok: bool,
    /// The load, the same on each target; that of the first block.
    pub load: PlanAsRun,
    /// The order of blocks in a round; request by request where there is one block.
    pub order: Vec<String>,
    /// Length of a block.
    pub block_ns: u64,
    /// Warm-up of each block, not counted.
    pub warmup_ns: u64,
    /// Complete rounds.
    pub rounds: u64,
    /// Seed of the bootstrap.
    pub seed: u64,
    /// Why it ended.
    pub end: CompareEnd,
    /// The targets; the first is what the others are compared with.
    pub targets: Vec<TargetResult>,
    /// Conditions, in the order given.
    pub conditions: Vec<ConditionResult>,
    /// The machine and version that made the load.
    pub generator: Generator,
}

/// Why a comparison ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CompareEnd {
    /// Ctrl-C.
    Interrupted,
    /// Intervals were narrow enough.
    Narrow,
    /// A target did not answer at all.
    NoResponse,
    /// The time was up.
    #[default]
    Time,
}

/// What one target did.
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
    /// Codes of reasons against its results, and in how many blocks each was found.
    pub reasons: BTreeMap<String, u64>,
    /// One value for each round, by figure: what all else is computed from. Times in nanoseconds, rates a second. A figure that a round lacks is left out.
    pub rounds: BTreeMap<String, Vec<f64>>,
    /// The means over rounds.
    pub figures: BTreeMap<String, Interval>,
    /// Ratios to the first target; empty for that one.
    pub ratios: BTreeMap<String, Interval>,
    /// What it adds to the first target's times, request by request; with a direct upstream only.
    pub added: BTreeMap<String, Interval>,
    /// Latency of all rounds: response time, and with a direct upstream service time.
    pub latency: Histogram,
    /// What it was made to do.
    pub work: Work,
}

/// What became of a condition on one target.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ConditionResult {
    /// As written: `p99 worse 5%`.
    pub condition: String,
    /// The target it is about.
    pub target: String,
    /// How much worse it is than the first, as a share; none when there was nothing to measure, which breaks the condition.
    pub worse: Option<Interval>,
    /// Whether it is not worse, or so little or so uncertain that it may pass.
    pub passed: bool,
}

/// The names of all figures, for messages.
pub fn figure_names() -> String {
    FIGURES.iter().map(|figure| figure.name).collect::<Vec<_>>().join(", ")
}

/// Whether there is a figure of this name, such as `p99`, and whether it is one a second; the others are times.
pub fn figure_is_rate(name: &str) -> Option<bool> {
    Figure::named(name).map(Figure::is_rate)
}

impl Comparison {
    /// What a block says about the whole.
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

    /// Holds the work of all targets against that of the first; one that a saved result of an older version says nothing of has no responses.
    pub fn weigh(&mut self) {
        self.unequal = work::unequal(self.targets.iter().map(|t| (t.name.as_str(), &t.work)));
        if !self.unequal.is_empty() && !self.unequal_ok {
            self.grade = Grade::Invalid;
        }
    }

    /// Holds the length of blocks against what they were to measure. In a closed loop a block holds a whole number of responses of each connection, so its
    /// rate is wrong by up to one of them; and what the processor did in a short one is not judged.
    pub fn measure_blocks(&mut self, live: usize, way: Way) {
        let of_each = self.rounds * if way == Way::Blocks && self.order.len() > 1 { 2 } else { 1 };
        let is_closed = self.load.pace.is_closed();
        for target in self.targets.iter_mut().skip(live).filter(|t| t.responses > 0) {
            let turns = if is_closed { TURNS_LEAST * target.latency.mean() } else { 0.0 };
            if self.block_ns < verdict::JUDGED_NS || (self.block_ns as f64) < turns {
                target.reasons.insert(SHORT_BLOCKS.to_owned(), of_each);
                self.grade = self.grade.max(Grade::Suspect);
            }
        }
    }

    /// What is told of unequal work, each in one line.
    pub(super) fn unequal_told(&self) -> impl Iterator<Item = String> {
        let meant = if self.unequal_ok { ", as --unequal ok allows" } else { "" };
        self.unequal.iter().map(move |text| format!("unequal_work: {text}{meant}"))
    }

    /// Whether it fails whoever asked: a condition is broken, a target gave no answer, or a condition is asked of work that is not the same.
    pub fn has_failed(&self) -> bool {
        let is_unequal = !self.unequal.is_empty() && !self.unequal_ok;
        self.conditions.iter().any(|c| !c.passed || is_unequal) || self.end == CompareEnd::NoResponse
    }

    /// Reasons against its blocks, those that weigh most first: the target, the code, and in how many blocks it was found.
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
            // What was measured before keeps the figures it had.
            if !(apart && number == 0) {
                // Values are paired by round: a figure that one round lacks has none.
                target.rounds.retain(|_, values| values.len() == rounds);
                let mean =
                    |(name, values): (&String, &Vec<f64>)| Some((name.clone(), stats::mean(values, seed)?));
                target.figures = target.rounds.iter().filter_map(mean).collect();
            }
            for (name, values) in target.rounds.iter().filter(|_| number > 0) {
                // Asked in turn, both have the same rate whatever they are.
                let same = way == Way::Requests && name == "rate";
                let Some(base) = first.get(name).filter(|_| !same) else { continue };
                let pairs: Vec<(f64, f64)> = base.iter().copied().zip(values.iter().copied()).collect();
                let ratio = match apart {
                    true => stats::ratio_apart(base, values, seed),
                    // A figure that one of them lacks in some round has no pairs.
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

    /// For machines, and for `--against`.
    pub fn to_json(&self) -> String {
        // Maps with string keys and numbers: nothing in the model can fail to be written.
        let mut text = serde_json::to_string(self).unwrap_or_default();
        text.push('\n');
        text
    }
}

impl TargetResult {
    /// One round more.
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

    /// A run of `weir load`, as what there was before: one value for each figure.
    pub fn of(report: &Report) -> Self {
        let mut measured = Measured::default();
        measured.add(report);
        let url = report.plan.targets.first().map(|t| t.url.clone()).unwrap_or_default();
        let mut target = Self { name: "before".to_owned(), url, ..Self::default() };
        target.add(&measured);
        let whole = |(name, values): (&String, &Vec<f64>)| Some((name.clone(), stats::mean(values, 0)?));
        target.figures = target.rounds.iter().filter_map(whole).collect();
        target
    }
}

#[cfg(test)]
mod tests;
