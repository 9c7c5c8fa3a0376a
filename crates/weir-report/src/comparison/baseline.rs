//! Earlier runs of a plan, and whether a new run differs from them.
//!
//! Two runs of the same plan on the same host differ by more than the noise within each: the machine is in another
//! state, memory lies elsewhere. So a run is compared with several, and the variation among them counts (a
//! random-effects model: each run has its own true figure, drawn around that of the code). The new run's figure is
//! predicted from them. The 95 % interval of the difference comes from the variation between runs, the variation
//! between the blocks of each run, and Student's t of the number of runs. docs/reference/compare.md has the formulas.
//!
//! *Layout.* This file is the saved form; `judge` compares.

mod judge;

pub use judge::{RUNS_LEAST, judge};

use super::condition::key;
use super::figures::{FIGURES, Measured};
use crate::Report;
use crate::report::{Generator, Grade, PlanAsRun};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// The version of the data model, in [`Baseline::schema`].
const SCHEMA: &str = "weir.baseline/1";

/// Runs kept by default.
pub const KEEP: usize = 20;

/// Most runs kept; a run takes a few KiB.
pub const KEEP_MOST: usize = 1000;

/// Most blocks of a run, which bounds the file.
pub const ROUNDS_MOST: u64 = 1000;

/// Earlier runs of one plan, the oldest first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Baseline {
    /// Version of the data model: `weir.baseline/1`.
    pub schema: String,
    /// Digest of the plan that all runs have in common; see [`plan_digest`].
    pub plan: String,
    /// The runs.
    pub runs: Vec<BaselineRun>,
}

/// One run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct BaselineRun {
    /// What was measured, as `--commit` says; empty if it does not.
    pub commit: String,
    /// When measuring began: milliseconds since 1970 UTC.
    pub started_unix_ms: u64,
    /// The verdict.
    pub grade: Grade,
    /// The machine and version that generated the load. Only runs that agree in all of it are compared.
    pub host: Generator,
    /// The figures by name: times in nanoseconds, rates per second.
    pub figures: BTreeMap<String, RunFigure>,
}

/// A figure of one run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct RunFigure {
    /// Of the whole run.
    pub whole: f64,
    /// Of each block. Empty without `--rounds`, and if a block had too few responses for it.
    pub blocks: Vec<f64>,
}

impl Baseline {
    /// A baseline without runs, for this plan.
    pub fn new(plan: &str) -> Self {
        Self { schema: SCHEMA.to_owned(), plan: plan.to_owned(), runs: Vec::new() }
    }

    /// Reads a saved baseline.
    ///
    /// # Errors
    /// The text is not a baseline, or it holds figures that no run can have.
    pub fn read(text: &str) -> Result<Self, String> {
        let expected = "expected what `weir baseline add` writes";
        let value: Value = serde_json::from_str(text).map_err(|e| format!("{e}; {expected}"))?;
        let schema = value.get("schema").and_then(Value::as_str).unwrap_or_default();
        if schema != SCHEMA {
            return Err(format!("its schema is `{schema}`, not `{SCHEMA}`; {expected}"));
        }
        let baseline: Self = serde_json::from_value(value).map_err(|e| format!("{e}; {expected}"))?;
        let is_good = |value: &f64| value.is_finite() && *value > 0.0;
        for (i, run) in baseline.runs.iter().enumerate() {
            for (name, figure) in &run.figures {
                if !is_good(&figure.whole) || !figure.blocks.iter().all(is_good) {
                    return Err(format!("runs[{i}].figures.{name}: expected numbers above 0"));
                }
            }
        }
        Ok(baseline)
    }

    /// The baseline as JSON, a run per line, so that a version control system shows what was added.
    pub fn to_json(&self) -> String {
        // All maps have string keys, so serialization cannot fail.
        let text = |value: &dyn Fn() -> serde_json::Result<String>| value().unwrap_or_default();
        let runs: Vec<String> = self.runs.iter().map(|run| text(&|| serde_json::to_string(run))).collect();
        format!(
            "{{\"schema\":{},\"plan\":{},\"runs\":[\n{}\n]}}\n",
            text(&|| serde_json::to_string(&self.schema)),
            text(&|| serde_json::to_string(&self.plan)),
            runs.join(",\n")
        )
    }

    /// Whether a report is of the same plan.
    ///
    /// # Errors
    /// It is not; the message says so.
    pub fn fits(&self, digest: &str) -> Result<(), String> {
        match self.plan == digest {
            true => Ok(()),
            false => Err(format!(
                "it is of another plan ({}, this run is {}): the figures of different loads do not compare",
                short(&self.plan),
                short(digest)
            )),
        }
    }

    /// Adds a run as the newest, and drops the oldest beyond `keep`.
    ///
    /// # Errors
    /// The run is of another plan, or its result is INVALID, or it is in there already.
    pub fn add(&mut self, report: &Report, commit: &str, keep: usize) -> Result<(), String> {
        self.fits(&plan_digest(report))?;
        if report.verdict.grade == Grade::Invalid {
            let codes: Vec<&str> = report.verdict.reasons.iter().map(|r| r.code.as_str()).collect();
            return Err(format!("the result is INVALID ({}), so it is no baseline", codes.join(", ")));
        }
        let run = BaselineRun::of(report, commit);
        if self.runs.contains(&run) {
            return Err("this run is in the baseline already".to_owned());
        }
        self.runs.push(run);
        self.runs.drain(..self.runs.len().saturating_sub(keep.max(1)));
        Ok(())
    }
}

impl BaselineRun {
    /// The figures of a report.
    pub fn of(report: &Report, commit: &str) -> Self {
        Self {
            commit: commit.to_owned(),
            started_unix_ms: report.started_unix_ms,
            grade: report.verdict.grade,
            host: report.generator.clone(),
            figures: figures(report),
        }
    }
}

/// All figures of a report, as a whole and by block; of its scenarios and steps too, of the parts of its load only as a
/// whole, because a block lies anywhere in them.
fn figures(report: &Report) -> BTreeMap<String, RunFigure> {
    let blocks: Vec<Measured> =
        report.blocks.iter().map(|block| Measured::of_block(block, report.plan.timeout_ns)).collect();
    let mut all = BTreeMap::new();
    let mut add = |scope: Option<&str>, part: &Report, blocks: &[Measured]| {
        let mut whole = Measured::default();
        whole.add(part);
        for figure in FIGURES {
            let values: Option<Vec<f64>> = blocks.iter().map(|block| figure.of(block)).collect();
            if let Some(value) = figure.of(&whole) {
                all.insert(
                    key(scope, figure),
                    RunFigure { whole: value, blocks: values.unwrap_or_default() },
                );
            }
        }
    };
    add(None, report, &blocks);
    let steps = report.steps.iter().flat_map(|step| [step.name.clone(), step.full_name()]);
    let parts = report.parts.iter().map(|part| part.name.clone());
    let names = report.scenarios.iter().map(|s| s.name.clone()).chain(steps).chain(parts);
    for name in names.collect::<BTreeSet<String>>() {
        let Some(part) = report.part(&name) else { continue };
        let is_scenario = report.scenarios.iter().any(|s| s.name == name);
        let blocks: Option<Vec<Measured>> = report
            .blocks
            .iter()
            .map(|b| b.part(&name, is_scenario).map(|b| Measured::of_block(&b, report.plan.timeout_ns)))
            .collect();
        add(Some(&name), &part, &blocks.unwrap_or_default());
    }
    all
}

/// The figures of each block of a report, for `compare --against`; empty without blocks.
pub(super) fn by_block(report: &Report) -> BTreeMap<String, Vec<f64>> {
    let all = figures(report).into_iter().filter(|(_, figure)| !figure.blocks.is_empty());
    all.map(|(name, figure)| (name, figure.blocks)).collect()
}

/// The digest of everything in a plan that determines the load, in hex.
///
/// It leaves out names and addresses of the target (the same code is tested at changing places), the number of threads
/// (it follows the host) and the name of the run. It also leaves out values that were not set, so that a later version
/// with more settings has the same digest.
pub fn plan_digest(report: &Report) -> String {
    digest(&report.plan, report.warmup_ns)
}

/// [`plan_digest`] before the run.
pub fn digest(plan: &PlanAsRun, warmup_ns: u64) -> String {
    let mut value = serde_json::to_value(plan).unwrap_or_default(); // all maps have string keys
    if let Value::Object(map) = &mut value {
        for outside in ["name", "threads", "unequal_ok", "cached_ok", "streams_given"] {
            map.remove(outside);
        }
        map.insert("warmup_ns".to_owned(), warmup_ns.into());
        for target in map.get_mut("targets").and_then(Value::as_array_mut).into_iter().flatten() {
            let Value::Object(target) = target else { continue };
            for place in ["url", "host", "port", "addresses", "proxy", "odd_values"] {
                target.remove(place);
            }
            if let Some(Value::Array(fields)) = target.get_mut("headers") {
                let is_host = |field: &Value| {
                    field.get(0).and_then(Value::as_str).is_some_and(|name| name.eq_ignore_ascii_case("host"))
                };
                fields.retain(|field| !is_host(field));
            }
        }
    }
    prune(&mut value);
    hex(&Sha256::digest(value.to_string())) // keys are sorted
}

/// A digest of texts, in hex.
pub fn text_digest(parts: &[&str]) -> String {
    let mut digest = Sha256::new();
    for part in parts {
        digest.update(part.len().to_le_bytes());
        digest.update(part);
    }
    hex(&digest.finalize())
}

/// A digest of bytes, in hex.
pub fn bytes_digest(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// Removes values that say nothing: null, false, zero, and empty ones.
fn prune(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.values_mut().for_each(prune);
            map.retain(|_, value| match value {
                Value::Null | Value::Bool(false) => false,
                Value::Number(n) => n.as_f64() != Some(0.0),
                Value::String(text) => !text.is_empty(),
                Value::Array(items) => !items.is_empty(),
                Value::Object(map) => !map.is_empty(),
                Value::Bool(true) => true,
            });
        }
        Value::Array(items) => items.iter_mut().for_each(prune),
        _ => {}
    }
}

/// Bytes in hex.
pub(crate) fn hex(bytes: &[u8]) -> String {
    let mut out = String::new();
    bytes.iter().for_each(|byte| {
        let _ = write!(out, "{byte:02x}"); // infallible
    });
    out
}

/// The first characters of a digest.
fn short(digest: &str) -> &str {
    digest.get(..12).unwrap_or(digest)
}

#[cfg(test)]
mod tests;
