//! `weir upgrade`: a running Weir starts the program that lies at its path now, and gives way to it.

use super::{AdminArgs, print};
use anyhow::{Result, anyhow};
use clap::Args;
use std::process::ExitCode;

#[derive(Args)]
pub(super) struct Upgrade {
    #[command(flatten)]
    pub(super) admin: AdminArgs,
}

impl Upgrade {
    pub(super) fn run(&self) -> Result<ExitCode> {
        let place = self.admin.place()?;
        let answer =
            weir_admin::client::upgrade(place.at(), place.token.as_deref()).map_err(|e| anyhow!("{e}"))?;
        print(&answer.body);
        Ok(ExitCode::from(u8::from(answer.status >= 300)))
    }
}
