//! `weir drain`: makes a running Weir finish what is under way and end.

use super::{AdminArgs, print};
use anyhow::{Result, anyhow};
use clap::Args;
use std::process::ExitCode;

#[derive(Args)]
pub(super) struct Drain {
    #[command(flatten)]
    pub(super) admin: AdminArgs,
}

impl Drain {
    pub(super) fn run(&self) -> Result<ExitCode> {
        let place = self.admin.place()?;
        let answer =
            weir_admin::client::drain(place.at(), place.token.as_deref()).map_err(|e| anyhow!("{e}"))?;
        print(&answer.body);
        Ok(ExitCode::from(u8::from(answer.status >= 300)))
    }
}
