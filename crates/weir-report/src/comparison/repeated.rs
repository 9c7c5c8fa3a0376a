//! Blocks that were measured again, as chosen by `verdict::spoilt_from_outside`. A comparison lists each with its first
//! figures, so that readers can check the choice.

use super::figures::FIGURES;
use super::{Comparison, Measured};
use crate::Report;
use crate::report::Grade;
use crate::units::counted;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// A block that was measured again.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct RepeatedBlock {
    /// Its round, from 1.
    pub round: u64,
    /// Its target.
    pub target: String,
    /// Codes of the reasons against it.
    pub reasons: Vec<String>,
    /// What spoilt it.
    pub cause: String,
    /// What it had measured. Times are in nanoseconds, rates per second.
    pub figures: BTreeMap<String, f64>,
}

impl RepeatedBlock {
    /// The block that this report is of.
    pub fn new(round: u64, target: String, report: &Report, cause: String) -> Self {
        let mut measured = Measured::default();
        measured.add(report);
        let against = report.verdict.reasons.iter().filter(|reason| reason.grade > Grade::Valid);
        Self {
            round,
            target,
            reasons: against.map(|reason| reason.code.clone()).collect(),
            cause,
            figures: FIGURES.iter().filter_map(|f| Some((f.name.to_owned(), f.of(&measured)?))).collect(),
        }
    }
}

impl Comparison {
    /// How many blocks were measured again, of which targets and why; none if none was.
    pub(super) fn repeated_words(&self) -> Option<String> {
        let mut by_target: BTreeMap<&str, (u64, BTreeSet<&str>)> = BTreeMap::new();
        for block in &self.repeated {
            let (n, reasons) = by_target.entry(&block.target).or_default();
            *n += 1;
            reasons.extend(block.reasons.iter().map(String::as_str));
        }
        let of = |(target, (n, reasons)): (&str, (u64, BTreeSet<&str>))| {
            format!("{n} of {target} ({})", reasons.into_iter().collect::<Vec<_>>().join(", "))
        };
        let all: Vec<String> = by_target.into_iter().map(of).collect();
        (!all.is_empty()).then(|| {
            format!(
                "{} of at most {} measured again, because something outside of the test had spoilt the first \
                 measurement: {}",
                counted(self.repeated.len() as u64, "block"),
                self.repeat_blocks,
                all.join(", ")
            )
        })
    }

    /// A warning if only the earlier result or only this comparison could repeat blocks that other programs spoilt.
    pub(super) fn one_sided_repeats(&self) -> Option<String> {
        let (with, without) = match (self.before_repeat_blocks?, self.repeat_blocks) {
            (0, 1..) => ("this comparison", "`before`"),
            (1.., 0) => ("`before`", "this comparison"),
            _ => return None,
        };
        Some(format!(
            "one_sided_repeats: {with} was measured with --repeat-blocks and {without} without, so interference from \
             other programs counts against one side only; measure both the same way"
        ))
    }
}
