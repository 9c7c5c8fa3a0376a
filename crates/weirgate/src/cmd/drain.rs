//! `weir drain`: makes a running Weir finish its exchanges and exit.

use super::{AdminArgs, Format, said, unanswered};
use anyhow::Result;
use clap::Args;
use std::process::ExitCode;

#[derive(Args)]
pub(super) struct Drain {
    #[command(flatten)]
    pub(super) admin: AdminArgs,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

impl Drain {
    pub(super) fn run(&self) -> Result<ExitCode> {
        let place = self.admin.place()?;
        let answer =
            weir_admin::client::drain(place.at(), place.token.as_deref()).map_err(|e| unanswered(&e))?;
        said(&answer, self.format, |told| {
            let text = |key: &str| told[key].as_str().unwrap_or_default().to_owned();
            let refuses = match &*text("delay") {
                "0s" | "0" | "" => "from now on".to_owned(),
                delay => format!("in {delay}"),
            };
            let deadline = text("deadline");
            format!(
                "it refuses new connections {refuses}, and ends with its last exchange, {deadline} later at most"
            )
        })
    }
}
