//! `weir confirm`: accepts a change on trial.

use super::{AdminArgs, print};
use anyhow::{Result, anyhow};
use clap::Args;
use std::process::ExitCode;

#[derive(Args)]
pub(super) struct Confirm {
    /// The revision to accept [default: the one on trial]
    revision: Option<u64>,
    #[command(flatten)]
    pub(super) admin: AdminArgs,
}

impl Confirm {
    pub(super) fn run(&self) -> Result<ExitCode> {
        let number = match self.revision {
            Some(number) => number,
            None => {
                let status = self.admin.ask("GET /status")?.json();
                status["trial"]["number"].as_u64().ok_or_else(|| anyhow!("no change is on trial"))?
            }
        };
        self.admin.change(&format!("POST /api/v1/revisions/{number}:confirm"), "", None)?;
        print(&format!("revision {number} stays\n"));
        Ok(ExitCode::SUCCESS)
    }
}
