//! `weir diff`: compares two configs of a running Weir by meaning, not line by line.

use super::{AdminArgs, Format, print};
use anyhow::Result;
use clap::Args;
use std::process::ExitCode;

#[derive(Args)]
pub(super) struct Diff {
    /// The older side: a revision, `running` or `disk` [default: running]
    #[arg(value_name = "A")]
    from: Option<String>,
    /// The newer side [default: running if A is given, else disk]
    #[arg(value_name = "B")]
    to: Option<String>,
    /// Exit with 1 if anything differs
    #[arg(long)]
    exit_code: bool,
    #[command(flatten)]
    pub(super) admin: AdminArgs,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

impl Diff {
    pub(super) fn run(&self) -> Result<ExitCode> {
        let (from, to) = match (&self.from, &self.to) {
            (None, _) => ("running", "disk"),
            (Some(from), None) => (from.as_str(), "running"),
            (Some(from), Some(to)) => (from.as_str(), to.as_str()),
        };
        let escaped = weir_admin::client::escaped;
        let line = format!("GET /api/v1/revisions/{}..{}", escaped(from), escaped(to));
        let answer = self.admin.ask(&line)?;
        let document = answer.json();
        match self.format {
            Format::Json => print(&answer.body),
            Format::Text => print(document["text"].as_str().unwrap_or_default()),
        }
        let differs = document["things"].as_array().is_some_and(|things| !things.is_empty());
        Ok(ExitCode::from(u8::from(self.exit_code && differs)))
    }
}
