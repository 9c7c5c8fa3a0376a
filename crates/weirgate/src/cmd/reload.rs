//! `weir reload`: makes a running Weir load its config again.

use super::{AdminArgs, print};
use anyhow::{Result, anyhow};
use clap::Args;
use std::process::ExitCode;

#[derive(Args)]
pub(super) struct Reload {
    #[command(flatten)]
    admin: AdminArgs,
}

impl Reload {
    pub(super) fn run(&self) -> Result<ExitCode> {
        let token = self.admin.token();
        let answer =
            weir_admin::client::reload(&self.admin.admin, token.as_deref()).map_err(|e| anyhow!("{e}"))?;
        print(&answer.body);
        Ok(ExitCode::from(u8::from(answer.status >= 300)))
    }
}
