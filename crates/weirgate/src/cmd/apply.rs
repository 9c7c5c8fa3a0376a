//! `weir apply`: adds, replaces and removes named config entries of a running Weir, all or nothing.

use super::{AdminArgs, Format, print};
use anyhow::{Context, Result, bail};
use clap::Args;
use std::io::Read;
use std::path::PathBuf;
use std::process::ExitCode;

/// Largest body that the admin listener accepts.
const MOST_BYTES: u64 = 16 << 20;

#[derive(Args)]
pub(super) struct Apply {
    /// Named entries in config syntax, `-` for standard input; null removes an entry
    file: PathBuf,
    /// Only print what would happen
    #[arg(long)]
    dry_run: bool,
    /// Watch the change for this long, such as 5m, and revert it if failures rise, unless it restricts access
    #[arg(long, value_name = "TIME")]
    watch: Option<String>,
    /// Revert the change automatically unless `weir confirm` accepts it within this time
    #[arg(long, value_name = "TIME")]
    confirm: Option<String>,
    /// Reason for the change, kept in the history
    #[arg(short, long, default_value = "", hide_default_value = true)]
    message: String,
    #[command(flatten)]
    pub(super) admin: AdminArgs,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

impl Apply {
    pub(super) fn run(&self) -> Result<ExitCode> {
        let text = self.read()?;
        let escaped = weir_admin::client::escaped;
        let term =
            |name, time: &Option<String>| time.as_ref().map(|time| format!("{name}={}", escaped(time)));
        let terms = [term("watch", &self.watch), term("confirm", &self.confirm)].into_iter().flatten();
        let words: Vec<String> =
            self.dry_run.then(|| "dry_run".to_owned()).into_iter().chain(terms).collect();
        let mark = if words.is_empty() { "" } else { "?" };
        let line = format!("POST /api/v1/config:apply{mark}{}", words.join("&"));
        let answer = self.admin.try_change(&line, &self.message, Some(&text))?;
        let shown = match self.format {
            Format::Json => answer.body.clone(),
            Format::Text => format!("{}\n", answer.explanation()),
        };
        print(&self.with_our_name(&shown));
        if answer.is_success() && self.format == Format::Text {
            let document = answer.json();
            let touched = &document["touched"];
            let number = document["number"].as_u64().map_or_else(String::new, |n| format!(": revision {n}"));
            let done = if self.dry_run { "would be applied".to_owned() } else { format!("applied{number}") };
            print(&format!(
                "{done}; touches {} routes with {} exchanges under way, {} listeners with {} connections\n",
                touched["routes"].as_array().map_or(0, Vec::len),
                touched["exchanges"],
                touched["listeners"].as_array().map_or(0, Vec::len),
                touched["connections"],
            ));
        }
        Ok(ExitCode::from(u8::from(!answer.is_success())))
    }

    fn read(&self) -> Result<Vec<u8>> {
        let mut text = Vec::new();
        if self.file.as_os_str() == "-" {
            std::io::stdin().lock().take(MOST_BYTES + 1).read_to_end(&mut text)?;
        } else {
            let named = || self.file.display().to_string();
            let file = std::fs::File::open(&self.file).with_context(named)?;
            file.take(MOST_BYTES + 1).read_to_end(&mut text).with_context(named)?;
        }
        if text.len() as u64 > MOST_BYTES {
            bail!("{} is larger than {MOST_BYTES} bytes", self.file.display());
        }
        Ok(text)
    }

    /// Mistakes are located in `(request)`; this puts our file name there instead.
    fn with_our_name(&self, text: &str) -> String {
        const REQUEST: &str = "(request)";
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(at) = rest.find(REQUEST) {
            let before = rest.get(..at).unwrap_or_default();
            let begin = before.rfind([' ', '"', '\n']).map_or(0, |space| space + 1);
            out.push_str(before.get(..begin).unwrap_or_default());
            out.push_str(&self.file.display().to_string());
            rest = rest.get(at + REQUEST.len()..).unwrap_or_default();
        }
        out.push_str(rest);
        out
    }
}
