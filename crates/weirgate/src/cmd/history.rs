//! `weir history`: the revisions of a running Weir's config, newest first.

use super::{AdminArgs, Format, print};
use anyhow::Result;
use clap::Args;
use serde_json::Value;
use std::fmt::Write;
use std::process::ExitCode;

#[derive(Args)]
pub(super) struct History {
    #[command(flatten)]
    pub(super) admin: AdminArgs,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

impl History {
    pub(super) fn run(&self) -> Result<ExitCode> {
        let answer = self.admin.ask("GET /api/v1/revisions")?;
        match self.format {
            Format::Json => print(&answer.body),
            Format::Text => print(&in_words(&answer.json())),
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// One line per revision, and one for its message.
fn in_words(document: &Value) -> String {
    let mut out = String::new();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    if let Some(number) = document["pinned"].as_u64() {
        let why = text(&document["why"]);
        // Writing to a String cannot fail.
        let _ = writeln!(out, "the files do not run: revision {number} runs in their place, since {why}");
    }
    for revision in document["revisions"].as_array().into_iter().flatten() {
        let mark = if revision["number"] == document["running"] { '*' } else { ' ' };
        let changed = revision["changed"].as_array().map_or(0, Vec::len);
        let _ = writeln!(
            out,
            "{mark}{:>5}  {}  {}  {:<8} {}, {changed} changed, {}",
            revision["number"].to_string(),
            text(&revision["hash"]),
            text(&revision["time"]),
            text(&revision["source"]),
            text(&revision["author"]),
            text(&revision["verdict"]),
        );
        let message = text(&revision["message"]);
        if !message.is_empty() {
            let _ = writeln!(out, "        {message}");
        }
    }
    out
}
