//! `weir reload`: makes a running Weir reload its config.

use super::{AdminArgs, Format, print, unanswered};
use anyhow::Result;
use clap::Args;
use std::process::ExitCode;
use weir_admin::client::Answer;

#[derive(Args)]
pub(super) struct Reload {
    #[command(flatten)]
    pub(super) admin: AdminArgs,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

impl Reload {
    pub(super) fn run(&self) -> Result<ExitCode> {
        let place = self.admin.place()?;
        let answer =
            weir_admin::client::reload(place.at(), place.token.as_deref()).map_err(|e| unanswered(&e))?;
        match self.format {
            Format::Json => print(&answer.body),
            Format::Text => print(&in_words(&answer)),
        }
        Ok(ExitCode::from(u8::from(answer.status >= 300)))
    }
}

/// The mistakes of a refused config as `weir check` prints them, or the revision and warnings of the new one.
fn in_words(answer: &Answer) -> String {
    let mut text = answer.explanation();
    if !text.is_empty() {
        text.push('\n');
    }
    if answer.is_success() {
        let document = answer.json();
        let revision = document.get("revision").and_then(|revision| revision.as_str()).unwrap_or("unknown");
        text.push_str(&format!("reloaded: revision {revision}\n"));
    }
    text
}
