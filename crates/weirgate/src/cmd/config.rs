//! `weir config adopt` and `weir config release`: move a named entry of a running Weir's config between the API
//! and your files.

use super::{AdminArgs, ConfigArgs, print};
use anyhow::{Result, bail};
use clap::{Args, Subcommand};
use std::process::ExitCode;
use weir_admin::client::escaped;

#[derive(Args)]
pub(super) struct Config {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Give the API an entry of a file: copies it, and the API owns it once you delete it from the file
    Adopt(Named),
    /// Give a file an entry that the API owns: prints the text to put there; run it again once the file has it
    Release(Named),
}

#[derive(Args)]
struct Named {
    /// Section and name, such as routes.orders
    name: String,
    #[command(flatten)]
    admin: AdminArgs,
}

impl Config {
    pub(super) const fn args(&mut self) -> &mut ConfigArgs {
        match &mut self.verb {
            Verb::Adopt(named) | Verb::Release(named) => &mut named.admin.config,
        }
    }

    pub(super) fn run(&self) -> Result<ExitCode> {
        let (Named { name, admin }, verb) = match &self.verb {
            Verb::Adopt(named) => (named, "adopt"),
            Verb::Release(named) => (named, "release"),
        };
        let Some((section, name)) = name.split_once('.') else {
            bail!("`{name}` is not a section and name; expected e.g. routes.orders");
        };
        let line =
            format!("POST /api/v1/config/{}/{}:{verb}", escaped(section), escaped(name).replace(':', "%3A"));
        let moved = admin.ask(&line)?.json();
        let text = moved["text"].as_str().unwrap_or_default();
        match moved["yaml"].as_str() {
            // Only the YAML goes to stdout, so that it can be appended to a file.
            Some(yaml) => {
                err!("{text}");
                print(yaml);
            }
            None => print(text),
        }
        Ok(ExitCode::SUCCESS)
    }
}
