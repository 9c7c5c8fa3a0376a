//! `weir report`: prints a saved result of `weir load`, or results of another tool, in any layout; verifies its
//! numbers; adds up the results of several generators.

use super::load::{Failure, GateArgs, Intended, Require, failures, format_named, show};
use super::output_file::OutputFile;
use super::print;
use anyhow::Result;
use clap::Args;
use serde::Deserialize;
use std::fmt::Write as _;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use weir_report::comparison::baseline::plan_digest;
use weir_report::layout::{Format, render, verify};
use weir_report::{Report, Threshold, foreign, merge};

#[derive(Args)]
pub(super) struct Saved {
    /// Output of `weir load --save` or `--format json`; or results of JMeter (JTL, CSV or XML), k6 (--out json),
    /// vegeta (vegeta encode) or wrk2 (--latency); `-` for stdin
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Add up several runs of one plan exactly, as if one generator had made them
    #[arg(long)]
    merge: bool,
    /// Accept runs at different times; otherwise they must have 90 % of their time in common
    #[arg(long, value_enum, value_name = "ok", requires = "merge")]
    apart: Option<Intended>,
    /// Also save the whole report
    #[arg(long, value_name = "FILE", conflicts_with = "verify")]
    save: Option<PathBuf>,
    /// Output format: text, json, html, csv, csv-summary, junit, markdown, github, gitlab, or that of k6, k6-full,
    /// k6-json, wrk, wrk2, ab, ghz or oha-json
    #[arg(long, default_value = "text", value_name = "FORMAT", value_parser = format_named)]
    format: &'static Format,
    /// Recompute every number from the raw data, and exit with 1 if any differs
    #[arg(long, conflicts_with_all = ["format", "against", "merge"])]
    verify: bool,
    /// Judge the result by this condition, such as 'p99<20ms', instead of the run's own; exit with 1 if it fails; may
    /// be repeated
    #[arg(long = "threshold", value_name = "CONDITION", conflicts_with = "verify")]
    thresholds: Vec<String>,
    /// Exit with 1 if the verdict is worse than this
    #[arg(long, value_enum, value_name = "GRADE", conflicts_with = "verify")]
    require: Option<Require>,
    #[command(flatten)]
    gates: GateArgs,
}

impl Saved {
    pub(super) fn run(self) -> Result<ExitCode> {
        let [file] = self.files.as_slice() else { return self.several() };
        if self.merge {
            return self.several();
        }
        let bytes = match read(file) {
            Ok(bytes) => bytes,
            Err(e) => return Ok(wrong(file, &e.to_string())),
        };
        let read = foreign::read(&bytes).filter(|_| !self.verify);
        let text = String::from_utf8_lossy(&bytes);
        let mut report = match read.unwrap_or_else(|| parse(&text)) {
            Ok(report) => report,
            Err(e) => return Ok(wrong(file, &e)),
        };
        if !self.verify {
            return self.judged(&mut report);
        }
        let differences = match verify(&text) {
            Ok(differences) => differences,
            Err(e) => return Ok(wrong(file, &e.to_string())),
        };
        let mut out = String::new();
        for difference in &differences {
            let _ = writeln!(out, "{difference}"); // a String takes everything
        }
        if differences.is_empty() {
            out += "every number follows from the raw data\n";
        }
        print(&out);
        Ok(ExitCode::from(u8::from(!differences.is_empty())))
    }

    /// Merges several reports and prints the sum.
    fn several(&self) -> Result<ExitCode> {
        let said = |hint: &str| {
            errln!("weir report: {hint}");
            Ok(ExitCode::from(2))
        };
        if !self.merge {
            return said("several files are added up with --merge");
        }
        let mut reports = Vec::new();
        for file in &self.files {
            match read_report(file) {
                Ok(report) => reports.push(report),
                Err(e) => return Ok(wrong(file, &e)),
            }
        }
        match merge::merge(&reports, self.apart.is_some()) {
            Ok(mut all) => self.judged(&mut all),
            Err(hint) => said(&format!("--merge: {hint}")),
        }
    }

    /// Holds the report against a baseline, if one is given, and prints it.
    fn judged(&self, report: &mut Report) -> Result<ExitCode> {
        let save = match self.save.as_deref().map(OutputFile::open).transpose() {
            Ok(save) => save,
            Err(mistake) => {
                errln!("weir report: {mistake}");
                return Ok(ExitCode::from(2));
            }
        };
        let mut wrong = Vec::new();
        let mut thresholds = Vec::new();
        for text in &self.thresholds {
            match Threshold::parse("--threshold", text) {
                Ok(threshold) => thresholds.push(threshold),
                Err(mistake) => wrong.push(mistake),
            }
        }
        if !wrong.is_empty() {
            wrong.iter().for_each(|m| errln!("weir report: {m}"));
            return Ok(ExitCode::from(2));
        }
        // Those of the run were judged by it; asked for again, these decide.
        if !thresholds.is_empty() {
            report.thresholds = thresholds.iter().map(|t| t.judge(report)).collect();
        }
        if let Some(required) = self.require {
            report.judgement.get_or_insert_default().required = Some(required.grade());
        }
        let gates = self.gates.open(false).and_then(|gates| {
            let digest = plan_digest(report);
            let has_pid = report.target_cost.is_some();
            let rounds = report.blocks.len() as u64;
            let has_no_blocks =
                !report.parts.is_empty() || report.replay.is_some() || !report.agents.is_empty();
            let mistakes =
                gates.iter().flat_map(|gates| gates.mistakes(&digest, rounds, has_no_blocks, has_pid));
            let mistakes: Vec<_> = mistakes.collect();
            if mistakes.is_empty() { Ok(gates) } else { Err(mistakes) }
        });
        match gates {
            Ok(gates) => gates.iter().for_each(|gates| gates.judge(report)),
            Err(mistakes) => {
                mistakes.iter().for_each(|m| errln!("weir report: {m}"));
                return Ok(ExitCode::from(2));
            }
        }
        show(report, self.format);
        if let (Some(file), Some(json)) = (save, Format::named("json")) {
            file.write(&render(report, json))?;
        }
        let asked = |failure: &Failure| match failure {
            Failure::Threshold => !self.thresholds.is_empty(),
            Failure::Regression => !self.gates.fail_if.is_empty(),
            Failure::Verdict => self.require.is_some(),
            Failure::Aborted | Failure::Interrupted | Failure::NoResponse => false,
        };
        let is_broken = failures(report, self.gates.fail_if_unknown).iter().any(asked);
        Ok(ExitCode::from(u8::from(is_broken)))
    }
}

fn wrong(file: &Path, hint: &str) -> ExitCode {
    errln!("weir report: {}: {hint}", file.display());
    ExitCode::from(2)
}

/// Reads a saved report from a file, or from stdin for `-`.
///
/// # Errors
/// The file cannot be read, or is no report.
pub(super) fn read_report(file: &Path) -> Result<Report, String> {
    let bytes = read(file).map_err(|e| e.to_string())?;
    parse(&String::from_utf8_lossy(&bytes))
}

/// Reads a file, or stdin for `-`.
fn read(file: &Path) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let most = foreign::BYTES_MOST;
    let length = match file.as_os_str() == "-" {
        true => std::io::stdin().take(most + 1).read_to_end(&mut bytes)?,
        false => std::fs::File::open(file)?.take(most + 1).read_to_end(&mut bytes)?,
    };
    if length as u64 > most {
        return Err(std::io::Error::other("it is longer than 2 GiB"));
    }
    Ok(bytes)
}

/// Parses a saved report.
///
/// # Errors
/// The text is not a report, or its schema is unknown.
pub(super) fn parse(text: &str) -> Result<Report, String> {
    /// The kind of document. Parsed first, because the fields of another kind do not fit.
    #[derive(Deserialize)]
    struct Kind {
        schema: String,
    }
    let expected = "expected what `weir load --save` writes";
    let kind: Kind = serde_json::from_str(text).map_err(|e| format!("{e}; {expected}"))?;
    if kind.schema != weir_report::report::SCHEMA {
        return Err(format!(
            "its schema is `{}`, not `{}`; {expected}",
            kind.schema,
            weir_report::report::SCHEMA
        ));
    }
    weir_report::layout::read(text).map_err(|e| format!("{e}; {expected}"))
}
