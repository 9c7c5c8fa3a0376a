//! The blocks of a run, and how its figures compare with earlier runs.

use super::Grade;
use crate::Histogram;
use crate::interval::Interval;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One of the equal parts into which `--rounds` cuts the measured time. Requests count where they end.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Block {
    /// Its end, from the start of measuring.
    pub end_ns: u64,
    /// Its actual length, the divisor of its rate.
    pub length_ns: u64,
    /// Complete responses before the planned end.
    pub in_window: u64,
    /// Requests that ended in an error. Those still open at the end of the run count in the last block.
    pub unanswered: u64,
    /// Response time of its complete responses.
    pub response: Histogram,
    /// Each step of scenarios; none in a plan with so many steps that their times are not kept by the second.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<BlockStep>,
}

/// A step in a block.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct BlockStep {
    /// Its scenario.
    pub scenario: String,
    /// Its name.
    pub step: String,
    /// Requests that ended in an error.
    pub unanswered: u64,
    /// Response time of its complete responses.
    pub response: Histogram,
}

impl Block {
    /// The steps of it with this name, as [`Report::part`](super::Report) names them; none if it has none of them.
    pub(crate) fn part(&self, name: &str, is_scenario: bool) -> Option<Self> {
        let belongs = |s: &&BlockStep| match is_scenario {
            true => s.scenario == name,
            false => s.step == name || format!("{}.{}", s.scenario, s.step) == name,
        };
        let mut part = Self { end_ns: self.end_ns, length_ns: self.length_ns, ..Self::default() };
        let mut has_any = false;
        for step in self.steps.iter().filter(belongs) {
            has_any = true;
            part.unanswered += step.unanswered;
            part.response.add(&step.response);
        }
        part.in_window = part.response.count();
        has_any.then_some(part)
    }
}

/// What a run was held against, besides its thresholds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Judgement {
    /// The lowest grade that `--require` accepts.
    pub required: Option<Grade>,
    /// The earlier runs that it was compared with.
    pub baseline: Option<BaselineUse>,
    /// Its figures beside theirs, in print order.
    pub changes: Vec<FigureChange>,
    /// The conditions of `--fail-if`, in the order given.
    pub gates: Vec<GateResult>,
}

/// The baseline of a comparison.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct BaselineUse {
    /// Its file, as given.
    pub file: String,
    /// Runs on the same host with the same version, which are the ones compared.
    pub runs: u64,
    /// Runs on other hosts or with other versions, which are not.
    pub others: u64,
    /// Why no comparison is possible; empty if it is.
    pub unknown: String,
}

/// How a figure differs from that of earlier runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Outlook {
    /// The whole interval is on the better side.
    Better,
    /// The interval includes no difference.
    #[default]
    NoDifference,
    /// The whole interval is on the worse side.
    Worse,
}

/// A figure of this run beside that of earlier runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct FigureChange {
    /// Its name: `p99`.
    pub figure: String,
    /// Whether it is a rate per second, of which more is better. Otherwise it is a time in nanoseconds.
    pub is_rate: bool,
    /// The mean of the earlier runs.
    pub before: f64,
    /// This run.
    pub now: f64,
    /// How much worse this run is, as a share of the earlier figure, with its 95 % interval. Negative if better.
    pub worse: Interval,
    /// The direction, if there surely is one.
    pub outlook: Outlook,
    /// The smallest difference that four of five such comparisons find, as a share.
    pub could_see: f64,
    /// Correlation of neighboring blocks of this run, if it is above 0.5 and widens the interval.
    pub correlation: Option<f64>,
}

/// Whether a gate holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum GateState {
    /// The whole interval is beyond the bound, or the result is INVALID.
    Broken,
    /// The interval reaches below the bound.
    Held,
    /// There are too few earlier runs, or the figure was not measured in them.
    #[default]
    Unknown,
}

/// The result of a condition on the difference from earlier runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct GateResult {
    /// As written: `p99 worse 10%`.
    pub condition: String,
    /// Whether it holds.
    pub state: GateState,
    /// The observation, in one line.
    pub text: String,
}

/// Another tool whose results became a report.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Source {
    /// Its name.
    pub tool: String,
    /// What its results do not say, so that nothing can be judged by it.
    pub unknown: Vec<String>,
}
