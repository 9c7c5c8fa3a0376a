//! `weir baseline`: keeps the figures of earlier runs, which `weir load --against` compares with.

use super::load::{lock_baseline, read_baseline};
use super::output_file::OutputFile;
use super::print;
use super::report::read_report;
use anyhow::Result;
use clap::{Args, Subcommand};
use std::path::PathBuf;
use std::process::ExitCode;
use weir_report::comparison::baseline::{Baseline, KEEP, KEEP_MOST, plan_digest};
use weir_report::units::counted;

#[derive(Args)]
pub(super) struct BaselineCommand {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Add a run to a baseline, and drop the oldest
    Add(Add),
}

#[derive(Args)]
struct Add {
    /// The baseline; it is written if there is none
    #[arg(value_name = "BASELINE")]
    baseline: PathBuf,
    /// A run: output of `weir load --save`
    #[arg(value_name = "REPORT")]
    report: PathBuf,
    /// Runs to keep
    #[arg(long, value_name = "K", default_value_t = KEEP)]
    keep: usize,
    /// What was measured, such as a commit
    #[arg(long, value_name = "TEXT", default_value = "")]
    commit: String,
}

impl BaselineCommand {
    pub(super) fn run(self) -> Result<ExitCode> {
        match self.command {
            Command::Add(add) => add.run(),
        }
    }
}

impl Add {
    fn run(self) -> Result<ExitCode> {
        let wrong = |hint: &str| {
            errln!("weir baseline: {hint}");
            Ok(ExitCode::from(2))
        };
        if !(1..=KEEP_MOST).contains(&self.keep) {
            return wrong(&format!("--keep {}: expected 1 to {KEEP_MOST}", self.keep));
        }
        let report = match read_report(&self.report) {
            Ok(report) => report,
            Err(hint) => return wrong(&format!("{}: {hint}", self.report.display())),
        };
        let (place, digest) = (self.baseline.display(), plan_digest(&report));
        // Two of these at once would each add to the same runs, and one run would be lost.
        let _lock = match lock_baseline(&self.baseline) {
            Ok(lock) => lock,
            Err(e) => return wrong(&format!("{place}: {e}")),
        };
        let found = match read_baseline(&self.baseline) {
            Ok(found) => found,
            Err(hint) => return wrong(&format!("{place}: {hint}")),
        };
        let mut baseline = found.unwrap_or_else(|| Baseline::new(&digest));
        if let Err(hint) = baseline.fits(&digest) {
            return wrong(&format!("{place}: {hint}"));
        }
        let file = match OutputFile::open(&self.baseline) {
            Ok(file) => file,
            Err(mistake) => return wrong(&mistake.to_string()),
        };
        if let Err(why) = baseline.add(&report, &self.commit, self.keep) {
            errln!("weir baseline: {}: {why}", self.report.display());
            return Ok(ExitCode::from(1));
        }
        file.write(&baseline.to_json())?;
        print(&format!("{place}: {}\n", counted(baseline.runs.len() as u64, "run")));
        Ok(ExitCode::SUCCESS)
    }
}
