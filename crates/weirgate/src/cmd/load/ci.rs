//! The options for CI systems: blocks, a baseline with gates, and the files that such systems read.

use super::outputs::Summary;
use crate::cmd::load::ExitCodes;
use crate::cmd::output_file::OutputFile;
use anyhow::{Context as _, Result};
use clap::{Args, ValueEnum};
use std::path::{Path, PathBuf};
use weir_load::Plan;
use weir_report::comparison::Condition;
use weir_report::comparison::baseline::{Baseline, KEEP, digest, judge, plan_digest};
use weir_report::layout::{Format, render};
use weir_report::report::{BaselineUse, End, GateResult, GateState, Grade, Judgement};
use weir_report::{Mistake, Report};

/// Fewest blocks of a run that is gated.
const ROUNDS_LEAST: u64 = 5;

#[derive(Args)]
pub(super) struct CiArgs {
    #[command(flatten)]
    pub(super) gates: GateArgs,
    /// Write the first baseline if there is no file yet
    #[arg(long, value_enum, value_name = "write", requires = "against", help_heading = "Judgement")]
    baseline_if_missing: Option<IfMissing>,
    /// What is measured, such as a commit, for a baseline that is written
    #[arg(long, value_name = "TEXT", requires = "baseline_if_missing", help_heading = "Judgement")]
    commit: Option<String>,
    /// Also write JUnit XML: a test case for the verdict, each threshold, gate and check
    #[arg(long, value_name = "FILE", help_heading = "Report")]
    pub(super) junit: Option<PathBuf>,
    /// Also append a summary in Markdown, at most 1 MiB, for "$GITHUB_STEP_SUMMARY"
    #[arg(long, value_name = "FILE", help_heading = "Report")]
    pub(super) summary: Option<PathBuf>,
    /// Print annotations of GitHub Actions to stderr, if it runs there (GITHUB_ACTIONS=true)
    #[arg(long, help_heading = "Report")]
    annotations: bool,
}

/// A baseline and what it decides.
#[derive(Args)]
pub(in crate::cmd) struct GateArgs {
    /// Compare with a baseline of earlier runs, as `weir baseline add` writes it
    #[arg(long, value_name = "FILE", help_heading = "Judgement")]
    pub(in crate::cmd) against: Option<PathBuf>,
    /// Exit with 1 if the run is surely worse than the baseline by more than this, such as 'p99 worse 10%'; may be
    /// repeated
    #[arg(long = "fail-if", value_name = "CONDITION", requires = "against", help_heading = "Judgement")]
    pub(in crate::cmd) fail_if: Vec<String>,
    /// Also exit with 1 if the baseline has too few runs of this host to judge a --fail-if
    #[arg(long, requires = "fail_if", help_heading = "Judgement")]
    pub(in crate::cmd) fail_if_unknown: bool,
}

/// What to do without a baseline.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum IfMissing {
    /// Write one with this run
    Write,
}

/// A baseline that has been read, and the conditions on it.
pub(in crate::cmd) struct Gates {
    file: String,
    baseline: Option<Baseline>,
    conditions: Vec<Condition>,
}

impl GateArgs {
    /// Reads the baseline and the conditions; `None` without `--against`.
    ///
    /// # Errors
    /// All mistakes. A missing file is one, unless it `may_be_missing`.
    pub(in crate::cmd) fn open(&self, may_be_missing: bool) -> Result<Option<Gates>, Vec<Mistake>> {
        let Some(path) = &self.against else { return Ok(None) };
        let mut mistakes = Vec::new();
        let mut conditions = Vec::new();
        for text in &self.fail_if {
            match Condition::of_run(text) {
                Ok(condition) => conditions.push(condition),
                Err(mistake) => mistakes.push(mistake),
            }
        }
        let baseline = match read(path) {
            Ok(None) if !may_be_missing => {
                let hint = "there is no such file; --baseline-if-missing write makes the first one";
                mistakes.push(Mistake::new(&place(path), hint));
                None
            }
            Ok(baseline) => baseline,
            Err(hint) => {
                mistakes.push(Mistake::new(&place(path), &hint));
                None
            }
        };
        let file = path.display().to_string();
        if mistakes.is_empty() { Ok(Some(Gates { file, baseline, conditions })) } else { Err(mistakes) }
    }
}

fn place(path: &Path) -> String {
    format!("--against {}", path.display())
}

/// The baseline in a file; `None` if there is no such file.
pub(in crate::cmd) fn read(path: &Path) -> Result<Option<Baseline>, String> {
    match std::fs::read_to_string(path) {
        Ok(text) => Baseline::read(&text).map(Some),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e.to_string()),
    }
}

/// Holds a lock while one process reads, changes and writes a baseline. It is on the folder: the file itself is
/// replaced, and a lock on it would be on the old one. Dropped, or at the end of the process, it is free.
pub(in crate::cmd) fn lock(baseline: &Path) -> std::io::Result<std::fs::File> {
    let real = std::fs::canonicalize(baseline).unwrap_or_else(|_| baseline.to_owned()); // it may not be there yet
    let folder = real.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."));
    let folder = std::fs::File::open(folder)?;
    folder.lock()?;
    Ok(folder)
}

impl Gates {
    /// What keeps a run with this plan from being judged. If it `has_no_blocks`, the variation between runs decides
    /// alone.
    pub(in crate::cmd) fn mistakes(
        &self,
        digest: &str,
        rounds: u64,
        has_no_blocks: bool,
        has_pid: bool,
    ) -> Vec<Mistake> {
        let mut mistakes = Vec::new();
        if let Some(Err(hint)) = self.baseline.as_ref().map(|baseline| baseline.fits(digest)) {
            mistakes.push(Mistake::new(&format!("--against {}", self.file), &hint));
        }
        if !self.conditions.is_empty() && !has_no_blocks && rounds < ROUNDS_LEAST {
            let hint =
                format!("needs --rounds {ROUNDS_LEAST} or more: nobody knows the noise within one block");
            mistakes.push(Mistake::new("--fail-if", &hint));
        }
        if self.conditions.iter().any(|c| c.figure.name == "cost") && !has_pid {
            let hint = "a condition on `cost` needs the target's process: --pid auto";
            mistakes.push(Mistake::new("--fail-if", hint));
        }
        mistakes
    }

    /// Adds the comparison to a report.
    pub(in crate::cmd) fn judge(&self, report: &mut Report) {
        let judged = match &self.baseline {
            Some(baseline) => judge(baseline, &self.file, report, &self.conditions),
            None => {
                let text = "not enough to judge: there is no baseline yet";
                let gate = |c: &Condition| GateResult {
                    condition: c.text.clone(),
                    state: GateState::Unknown,
                    text: text.to_owned(),
                };
                Judgement {
                    baseline: Some(BaselineUse {
                        file: self.file.clone(),
                        unknown: text.to_owned(),
                        ..BaselineUse::default()
                    }),
                    gates: self.conditions.iter().map(gate).collect(),
                    ..Judgement::default()
                }
            }
        };
        let required = report.judgement.as_ref().and_then(|j| j.required);
        report.judgement = Some(Judgement { required, ..judged });
    }
}

/// Everything that CI options ask for, open.
pub(super) struct Ci {
    gates: Option<Gates>,
    summary: Option<Summary>,
    /// The baseline to write, if there is none yet.
    first: Option<OutputFile>,
    commit: String,
    annotates: bool,
}

impl CiArgs {
    /// Reads and opens what the options name. Before the run: a run whose result cannot be judged is not worth
    /// making.
    pub(super) fn open(&self, plan: Option<&Plan>, by_agents: bool) -> Result<Ci, Vec<Mistake>> {
        let mut mistakes = Vec::new();
        let gates = self.gates.open(self.baseline_if_missing.is_some()).unwrap_or_else(|found| {
            mistakes.extend(found);
            None
        });
        if let (Some(gates), Some(plan)) = (&gates, plan) {
            let warmup_ns = u64::try_from(plan.warmup().as_nanos()).unwrap_or(u64::MAX);
            let digest = digest(&plan.as_run, warmup_ns);
            mistakes.extend(gates.mistakes(
                &digest,
                plan.as_run.rounds,
                plan.has_no_blocks() || by_agents, // agents have no common blocks
                plan.watches_target(),
            ));
        }
        let mut open = |path: &Path| OutputFile::open(path).map_err(|mistake| mistakes.push(mistake)).ok();
        let is_missing = gates.as_ref().is_some_and(|gates| gates.baseline.is_none());
        let first = self.gates.against.as_deref().filter(|_| is_missing).and_then(&mut open);
        // Only to see that it can be written.
        let summary = self.summary.as_deref().filter(|path| open(path).is_some()).map(Summary::new);
        let annotates = self.annotations && std::env::var_os("GITHUB_ACTIONS").is_some_and(|on| on == "true");
        let commit = self.commit.clone().unwrap_or_default();
        if mistakes.is_empty() { Ok(Ci { gates, summary, first, commit, annotates }) } else { Err(mistakes) }
    }
}

impl Ci {
    /// Adds to a report what it is held against.
    pub(super) fn judge(&self, report: &mut Report, required: Option<Grade>) {
        if required.is_some() {
            report.judgement.get_or_insert_default().required = required;
        }
        if let Some(gates) = &self.gates {
            gates.judge(report);
        }
    }

    /// Writes the first baseline, the summary and the annotations.
    ///
    /// # Errors
    /// The first file that could not be written; the others are written nevertheless.
    pub(super) fn end(self, report: &Report) -> Result<()> {
        let summary = self.summary.map_or(Ok(()), |summary| summary.append(report));
        let first = self.first.map_or(Ok(()), |file| {
            // Another run may have written the first one meanwhile.
            let path = file.path().to_owned();
            let _lock = lock(&path).with_context(|| path.display().to_string())?;
            let found = read(&path).map_err(|hint| anyhow::anyhow!("{}: {hint}", path.display()))?;
            let mut baseline = found.unwrap_or_else(|| Baseline::new(&plan_digest(report)));
            match baseline.add(report, &self.commit, KEEP) {
                Ok(()) => file.write(&baseline.to_json()),
                Err(why) => {
                    errln!("weir load: --baseline-if-missing: nothing was written: {why}");
                    Ok(())
                }
            }
        });
        if self.annotates
            && let Some(format) = Format::named("github")
        {
            err!("{}", render(report, format));
        }
        summary.and(first)
    }
}

/// Why a run fails, in the order of the codes of `--exit-codes split`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::cmd) enum Failure {
    Threshold = 10,
    Regression = 11,
    Verdict = 12,
    NoResponse = 13,
    Aborted = 14,
    Interrupted = 130,
}

/// Everything that makes a run fail, the smallest code first.
pub(in crate::cmd) fn failures(report: &Report, fail_if_unknown: bool) -> Vec<Failure> {
    let judgement = report.judgement.as_ref();
    let is_broken = |gate: &GateResult| match gate.state {
        GateState::Broken => true,
        GateState::Held => false,
        GateState::Unknown => fail_if_unknown,
    };
    let required = judgement.and_then(|j| j.required);
    [
        (Failure::Threshold, report.thresholds.iter().any(|t| !t.passed)),
        (Failure::Regression, judgement.is_some_and(|j| j.gates.iter().any(is_broken))),
        (Failure::Verdict, required.is_some_and(|required| report.verdict.grade > required)),
        (Failure::NoResponse, report.counts.responses == 0),
        (Failure::Aborted, matches!(report.end, End::Aborted { .. } | End::Failed { .. })),
        (Failure::Interrupted, report.end == End::Interrupted),
    ]
    .into_iter()
    .filter_map(|(failure, has)| has.then_some(failure))
    .collect()
}

/// The exit code for these failures.
pub(super) fn code(failures: &[Failure], whose: ExitCodes) -> u8 {
    let has = |failure| failures.contains(&failure);
    match whose {
        ExitCodes::K6 if has(Failure::Threshold) || has(Failure::Aborted) => 99,
        ExitCodes::K6 if has(Failure::Interrupted) => 105,
        // k6 ignores a run without any response.
        ExitCodes::K6 => u8::from(has(Failure::Regression) || has(Failure::Verdict)),
        ExitCodes::Split => failures.iter().min().map_or(0, |failure| *failure as u8),
        ExitCodes::Weir => u8::from(failures.iter().any(|failure| *failure != Failure::Interrupted)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_several_failures_the_smallest_code_is_told() {
        use Failure::{Aborted, Interrupted, NoResponse, Regression, Threshold, Verdict};
        for (failures, weir, split, k6) in [
            (&[][..], 0, 0, 0),
            (&[Threshold, Regression], 1, 10, 99),
            (&[Regression, Verdict], 1, 11, 1),
            (&[Verdict, NoResponse], 1, 12, 1),
            (&[NoResponse, Interrupted], 1, 13, 105),
            (&[NoResponse], 1, 13, 0),
            (&[Aborted], 1, 14, 99),
            (&[Interrupted], 0, 130, 105),
        ] {
            let told = [ExitCodes::Weir, ExitCodes::Split, ExitCodes::K6].map(|whose| code(failures, whose));
            assert_eq!(told, [weir, split, k6], "{failures:?}");
        }
    }
}
