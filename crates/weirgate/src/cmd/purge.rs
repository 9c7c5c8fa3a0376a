//! `weir purge`: removes cached answers of a running Weir.

use super::{AdminArgs, Format, said, unanswered};
use anyhow::Result;
use clap::{ArgGroup, Args};
use std::process::ExitCode;

#[derive(Args)]
#[command(group(ArgGroup::new("what").required(true).multiple(true).args(["url", "prefix", "tag", "all"])))]
pub(super) struct Purge {
    /// Name of the store, as under `stores` of the config
    store: String,
    /// URL as clients request it, with its query; removes all variants. May be repeated
    #[arg(long, value_name = "URL")]
    url: Vec<String>,
    /// Prefix of URLs. May be repeated
    #[arg(long, value_name = "URL")]
    prefix: Vec<String>,
    /// A word of the answers' `surrogate-key` or `cache-tag`. May be repeated
    #[arg(long, value_name = "WORD")]
    tag: Vec<String>,
    /// Everything
    #[arg(long, conflicts_with_all = ["url", "prefix", "tag"])]
    all: bool,
    #[command(flatten)]
    pub(super) admin: AdminArgs,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

impl Purge {
    pub(super) fn run(&self) -> Result<ExitCode> {
        let place = self.admin.place()?;
        let of = |name: &'static str, values: &[String]| -> Vec<(&'static str, String)> {
            values.iter().map(|value| (name, value.clone())).collect()
        };
        let mut what = of("url", &self.url);
        what.extend(of("prefix", &self.prefix));
        what.extend(of("tag", &self.tag));
        if self.all {
            what.push(("all", "true".to_owned()));
        }
        let answer = weir_admin::client::purge(place.at(), place.token.as_deref(), &self.store, &what)
            .map_err(|e| unanswered(&e))?;
        said(&answer, self.format, |told| match told["purged"].as_u64() {
            Some(1) => format!("1 object removed from {}", self.store),
            count => format!("{} objects removed from {}", count.unwrap_or_default(), self.store),
        })
    }
}
