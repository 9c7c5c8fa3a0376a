//! `weir check`: reports everything that `run` would refuse, without running. `fix` rewrites deprecated keys.

mod fix;

use super::{ConfigArgs, Format, print};
use anyhow::{Result, bail};
use clap::Args;
use std::process::ExitCode;
use weir_gateway::config::fix::{Fixes, fixes};
use weir_gateway::config::{Source, load};
use weir_report::units;

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
    /// Write the new names of deprecated keys into the config's files, then check them. Nothing else in them changes.
    #[arg(long)]
    fix: bool,
    /// With --fix: write nothing; print the changed lines as a diff, with secrets masked
    #[arg(long, requires = "fix")]
    diff: bool,
}

impl Check {
    pub(super) fn run(&self) -> Result<ExitCode> {
        let source = self.config.source();
        if self.fix {
            let Some(fixes) = self.fixes(&source)? else { return Ok(ExitCode::from(1)) };
            fix::tell_left(&fixes);
            if self.diff {
                fixes.files.iter().for_each(|fix| print(&fix.diff()));
                return Ok(ExitCode::SUCCESS);
            }
            fix::write(&fixes)?;
        }
        self.check(&source)
    }

    /// What `--fix` would change; `None` if a file cannot be read, which this has told.
    fn fixes(&self, source: &Source) -> Result<Option<Fixes>> {
        if source.is_embedded() {
            bail!("there is no file to fix: without `-c` and ./weir.yaml, Weir uses its embedded default");
        }
        match load(source) {
            Ok(loaded) => Ok(Some(fixes(&loaded.texts))),
            Err(unreadable) => {
                match self.format {
                    Format::Json => print(&format!("{:#}\n", unreadable.diagnostics.to_json())),
                    Format::Text => print(&unreadable.diagnostics.to_text()),
                }
                Ok(None)
            }
        }
    }

    fn check(&self, source: &Source) -> Result<ExitCode> {
        let name =
            source.path().map_or_else(|| "the embedded default".to_owned(), |p| p.display().to_string());
        let checked = weir_gateway::check(source, &[]);
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
                    let counted = counted.map(|(n, what)| units::counted(n as u64, what));
                    print(&format!("{name}: good: {}\n", counted.join(", ")));
                }
            }
        }
        Ok(ExitCode::from(u8::from(bad)))
    }
}
