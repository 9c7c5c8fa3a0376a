//! `weir check`: reports everything that `run` would refuse, without running.

use super::{ConfigArgs, Format, print};
use anyhow::Result;
use clap::Args;
use std::process::ExitCode;

#[derive(Args)]
pub(super) struct Check {
    #[command(flatten)]
    pub(super) config: ConfigArgs,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    format: Format,
    /// Treat warnings as errors
    #[arg(long)]
    deny_warnings: bool,
}

impl Check {
    pub(super) fn run(&self) -> Result<ExitCode> {
        let source = self.config.source();
        let name =
            source.path().map_or_else(|| "the embedded default".to_owned(), |p| p.display().to_string());
        let checked = weir_gateway::check(&source, &[]);
        let found = &checked.diagnostics;
        let bad = checked.compiled.is_none() || (self.deny_warnings && found.warnings() > 0);
        match self.format {
            Format::Json => print(&format!("{:#}\n", found.to_json())),
            Format::Text => {
                print(&found.to_text());
                if let (false, Some((loaded, snapshot))) = (bad, &checked.compiled) {
                    for (place, filter, note) in snapshot.notes() {
                        print(&format!("{name}: {place}: {filter}: {note}\n"));
                    }
                    let c = &loaded.config;
                    let counted = [
                        (c.listeners.len(), "listener"),
                        (c.routes.len(), "route"),
                        (c.upstreams.len(), "upstream"),
                        (found.warnings(), "warning"),
                    ];
                    let counted =
                        counted.map(|(n, what)| format!("{n} {what}{}", if n == 1 { "" } else { "s" }));
                    print(&format!("{name}: good: {}\n", counted.join(", ")));
                }
            }
        }
        Ok(ExitCode::from(u8::from(bad)))
    }
}
