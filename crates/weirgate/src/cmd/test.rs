//! `weir test`: asks the config, without running it, which routes take the requests of a list.

use super::{ConfigArgs, Format, print};
use anyhow::Result;
use clap::Args;
use serde::Deserialize;
use serde_json::json;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use weir_gateway::explain::Arriving;
use weir_gateway::snapshot::Snapshot;

/// Exit code for a list that cannot be read.
const COMMAND_LINE: u8 = 2;
/// The list beside the config.
const TESTS: &str = "tests.yaml";

/// What `weir test --help` says.
pub(super) const ABOUT: &str = "\
Ask the config which routes take the requests of a list, without running it.

The list has requests and the routes that must take them, such as the tests.yaml of `weir import`:

  tests:
  - { request: GET http://shop.example/cart, route: shop.cart }
  - { request: GET http://shop.example/.git/x, route: none }

An entry may also have `headers`, `listener` and `client`. Nothing is started or asked over the network: the
decision is that of `weir explain`.

Exit code: 0 if every request takes its route, 1 if one does not or the config is refused, 2 if the list cannot be
read.";

#[derive(Args)]
pub(super) struct Test {
    /// The list [default: tests.yaml beside the config]
    #[arg(value_name = "FILE")]
    tests: Option<PathBuf>,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    format: Format,
    #[command(flatten)]
    pub(super) config: ConfigArgs,
}

/// A list of requests.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct List {
    /// The requests.
    tests: Vec<Case>,
}

/// A request and the route that must take it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    /// `METHOD URL`.
    request: String,
    /// Fields of the request.
    #[serde(default)]
    headers: BTreeMap<String, String>,
    /// The listener that receives it. Default: the one that a client of the URL reaches.
    #[serde(default)]
    listener: Option<String>,
    /// The client's address. Default 127.0.0.1.
    #[serde(default)]
    client: Option<IpAddr>,
    /// The route that must take it; `none` for no route.
    route: String,
}

impl Test {
    pub(super) fn run(&self) -> Result<ExitCode> {
        let path = match &self.tests {
            Some(path) => path.clone(),
            None => {
                self.config.path().map_or_else(|| PathBuf::from(TESTS), |config| config.with_file_name(TESTS))
            }
        };
        let (read, diagnostics) = weir_gateway::config::read_document::<List>(&path);
        let Some((list, _)) = read.filter(|_| diagnostics.is_empty()) else {
            errln!("weir: {}", diagnostics.to_text().trim_end());
            return Ok(ExitCode::from(COMMAND_LINE));
        };
        if list.tests.is_empty() {
            errln!("weir: {}: the list has no requests", path.display());
            return Ok(ExitCode::from(COMMAND_LINE));
        }
        let checked = weir_gateway::check(&self.config.source(), &[]);
        let Some((_, snapshot)) = &checked.compiled else {
            err!("{}", checked.diagnostics.to_text());
            return Ok(ExitCode::from(1));
        };
        let wrong: Vec<(&Case, String)> =
            list.tests.iter().filter_map(|case| Some((case, case.ask(snapshot)?))).collect();
        match self.format {
            Format::Json => {
                let shown = |(case, took): &(&Case, String)| json!({ "request": case.request, "route": case.route, "takes": took });
                let wrong: Vec<_> = wrong.iter().map(shown).collect();
                print(&format!("{:#}\n", json!({ "asked": list.tests.len(), "wrong": wrong })));
            }
            Format::Text => {
                for (case, took) in &wrong {
                    print(&format!("{} takes {took}, not {}\n", case.request, case.route));
                }
                let count = list.tests.len();
                print(&match wrong.len() {
                    0 => format!("all {count} requests take the expected routes\n"),
                    differ => format!("{differ} of {count} requests take another route\n"),
                });
            }
        }
        Ok(ExitCode::from(u8::from(!wrong.is_empty())))
    }
}

impl Case {
    /// What takes the request, if that is wrong.
    fn ask(&self, snapshot: &Snapshot) -> Option<String> {
        let Some((method, url)) = self.request.split_once(' ') else {
            return Some("nothing: it is no METHOD and URL".to_owned());
        };
        let arriving = Arriving { listener: self.listener.as_deref(), client: self.client };
        let headers: Vec<(String, String)> =
            self.headers.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
        // An error: refused before any route.
        let winner = weir_gateway::explain::winner(snapshot, arriving, method, url.trim(), &headers);
        let took = winner.ok().flatten().unwrap_or_else(|| "none".to_owned());
        (took != self.route).then_some(took)
    }
}
