//! `weir report`: prints a saved result of `weir load` in any layout, or verifies its numbers.

use super::load::{GateArgs, format_named, show};
use super::print;
use anyhow::Result;
use clap::Args;
use serde::Deserialize;
use std::fmt::Write as _;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use weir_report::Report;
use weir_report::comparison::baseline::plan_digest;
use weir_report::layout::{Format, verify};
use weir_report::report::{GateResult, GateState};

#[derive(Args)]
pub(super) struct Saved {
    /// Output of `weir load --save` or `--format json`; `-` for stdin
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Output format: text, json, html, csv, csv-summary, junit, markdown, github, gitlab, or that of k6, k6-full,
    /// k6-json, wrk, wrk2, ab, ghz or oha-json
    #[arg(long, default_value = "text", value_name = "FORMAT", value_parser = format_named)]
    format: &'static Format,
    /// Recompute every number from the raw data, and exit with 1 if any differs
    #[arg(long, conflicts_with_all = ["format", "against"])]
    verify: bool,
    #[command(flatten)]
    gates: GateArgs,
}

impl Saved {
    pub(super) fn run(self) -> Result<ExitCode> {
        let text = match read(&self.file) {
            Ok(text) => text,
            Err(e) => return Ok(self.wrong(&e.to_string())),
        };
        let mut report = match parse(&text) {
            Ok(report) => report,
            Err(e) => return Ok(self.wrong(&e)),
        };
        if !self.verify {
            return Ok(self.judged(&mut report));
        }
        let differences = match verify(&text) {
            Ok(differences) => differences,
            Err(e) => return Ok(self.wrong(&e.to_string())),
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

    /// Holds the report against a baseline, if one is given, and prints it.
    fn judged(&self, report: &mut Report) -> ExitCode {
        let gates = self.gates.open(false).and_then(|gates| {
            let digest = plan_digest(report);
            let has_pid = report.target_cost.is_some();
            let rounds = report.blocks.len() as u64;
            let mistakes = gates.iter().flat_map(|gates| gates.mistakes(&digest, rounds, has_pid));
            let mistakes: Vec<_> = mistakes.collect();
            if mistakes.is_empty() { Ok(gates) } else { Err(mistakes) }
        });
        match gates {
            Ok(gates) => gates.iter().for_each(|gates| gates.judge(report)),
            Err(mistakes) => {
                mistakes.iter().for_each(|m| errln!("weir report: {m}"));
                return ExitCode::from(2);
            }
        }
        show(report, self.format);
        let is_broken = |gate: &GateResult| match gate.state {
            GateState::Broken => true,
            GateState::Held => false,
            GateState::Unknown => self.gates.fail_if_unknown,
        };
        let asked = !self.gates.fail_if.is_empty();
        let broken = report.judgement.iter().flat_map(|j| &j.gates).any(is_broken);
        ExitCode::from(u8::from(asked && broken))
    }

    fn wrong(&self, hint: &str) -> ExitCode {
        errln!("weir report: {}: {hint}", self.file.display());
        ExitCode::from(2)
    }
}

/// Reads a saved report from a file, or from stdin for `-`.
///
/// # Errors
/// The file cannot be read, or is no report.
pub(super) fn read_report(file: &Path) -> Result<Report, String> {
    read(file).map_err(|e| e.to_string()).and_then(|text| parse(&text))
}

fn read(file: &Path) -> std::io::Result<String> {
    if file.as_os_str() != "-" {
        return std::fs::read_to_string(file);
    }
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text)?;
    Ok(text)
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
