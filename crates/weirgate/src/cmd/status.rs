//! `weir status`: what a running Weir says about itself.

use super::{AdminArgs, print};
use anyhow::{Result, anyhow};
use clap::Args;
use std::process::ExitCode;

#[derive(Args)]
pub(super) struct Status {
    #[command(flatten)]
    pub(super) admin: AdminArgs,
}

impl Status {
    pub(super) fn run(&self) -> Result<ExitCode> {
        let place = self.admin.place()?;
        let answer =
            weir_admin::client::status(&place.address, place.token.as_deref()).map_err(|e| anyhow!("{e}"))?;
        print(&answer.body);
        Ok(ExitCode::from(u8::from(answer.status >= 300)))
    }
}
