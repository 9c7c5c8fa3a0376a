//! `weir config adopt` and `weir config release`: who owns a named thing of a running Weir's config, its API or a file of people.

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
    /// Let the API have what stands in a file: it is copied, and belongs to the API once you delete it in the file
    Adopt(Named),
    /// Let a file have what the API owns: prints what to write there; once it is there, say it again
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
            bail!("`{name}` is no section and name; expected e.g. routes.orders");
        };
        let line =
            format!("POST /api/v1/config/{}/{}:{verb}", escaped(section), escaped(name).replace(':', "%3A"));
        let moved = admin.ask(&line)?.json();
        let text = moved["text"].as_str().unwrap_or_default();
        match moved["yaml"].as_str() {
            // What is to be written alone on stdout, so that it can be appended to a file.
            Some(yaml) => {
                err!("{text}");
                print(yaml);
            }
            None => print(text),
        }
        Ok(ExitCode::SUCCESS)
    }
}
