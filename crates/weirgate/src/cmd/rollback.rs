//! `weir rollback`: returns to an earlier revision.

use super::{AdminArgs, print};
use anyhow::{Result, anyhow};
use clap::Args;
use std::process::ExitCode;

#[derive(Args)]
pub(super) struct Rollback {
    /// The revision to return to [default: the one before the last]
    revision: Option<u64>,
    /// Reason for the change, kept in the history
    #[arg(short, long, default_value = "", hide_default_value = true)]
    message: String,
    #[command(flatten)]
    pub(super) admin: AdminArgs,
}

impl Rollback {
    pub(super) fn run(&self) -> Result<ExitCode> {
        let number = match self.revision {
            Some(number) => number,
            None => {
                let document = self.admin.ask("GET /api/v1/revisions")?.json();
                let before = document["revisions"][1]["number"].as_u64();
                before.ok_or_else(|| anyhow!("the history has no revision before this one"))?
            }
        };
        let line = format!("POST /api/v1/revisions/{number}:rollback");
        let answer = self.admin.change(&line, &self.message, None)?;
        let document = answer.json();
        print(document["text"].as_str().unwrap_or_default());
        let now = document["number"].as_u64().map_or_else(String::new, |now| format!(" as revision {now}"));
        print(&format!("revision {number} runs{now}\n"));
        Ok(ExitCode::SUCCESS)
    }
}
