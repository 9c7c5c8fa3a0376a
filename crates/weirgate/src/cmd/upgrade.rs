//! `weir upgrade`: replaces a running Weir with the binary now at its path.

use super::{AdminArgs, Format, said, unanswered};
use anyhow::Result;
use clap::Args;
use std::process::ExitCode;

#[derive(Args)]
pub(super) struct Upgrade {
    #[command(flatten)]
    pub(super) admin: AdminArgs,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

impl Upgrade {
    pub(super) fn run(&self) -> Result<ExitCode> {
        let place = self.admin.place()?;
        let answer =
            weir_admin::client::upgrade(place.at(), place.token.as_deref()).map_err(|e| unanswered(&e))?;
        said(&answer, self.format, |told| {
            let (pid, was, text) = (&told["pid"], &told["was"], told["text"].as_str().unwrap_or_default());
            let told = format!("process {pid} serves now; process {was} finishes its exchanges\n{text}");
            told.trim_end().to_owned()
        })
    }
}
