//! `weir endpoint`: drains an endpoint of a running Weir, takes it out of rotation, or puts it back.

use super::{AdminArgs, Format, said, unanswered};
use anyhow::Result;
use clap::{Args, ValueEnum};
use serde_json::Value;
use std::process::ExitCode;

#[derive(Args)]
pub(super) struct Endpoint {
    /// Action
    #[arg(value_enum)]
    what: What,
    /// Name of the upstream
    upstream: String,
    /// Address of the endpoint, as `weir status` or the config shows it
    address: String,
    /// How long, such as 10m; after that the endpoint returns automatically [default: 1h]
    #[arg(long = "for", value_name = "TIME")]
    time: Option<String>,
    #[command(flatten)]
    pub(super) admin: AdminArgs,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

#[derive(Clone, Copy, ValueEnum)]
enum What {
    /// No new exchanges; running ones finish, and sticky sessions stay
    Drain,
    /// Put it back into rotation
    In,
    /// No new exchanges at all, including sticky sessions
    Out,
}

impl Endpoint {
    pub(super) fn run(&self) -> Result<ExitCode> {
        let verb = match self.what {
            What::Drain => "drain",
            What::In => "in",
            What::Out => "out",
        };
        let place = self.admin.place()?;
        let (token, endpoint) = (place.token.as_deref(), (&*self.upstream, &*self.address));
        let time = self.time.as_deref();
        let answer = weir_admin::client::endpoint(place.at(), token, endpoint, verb, time)
            .map_err(|e| unanswered(&e))?;
        said(&answer, self.format, |told| {
            let endpoints = told["endpoints"].as_array().into_iter().flatten();
            let lines = endpoints.map(|endpoint| {
                let text = |value: &Value| value.as_str().map(str::to_owned);
                let until =
                    endpoint["reasons"].as_array().into_iter().flatten().find_map(|why| text(&why["until"]));
                let until = until.map_or_else(String::new, |until| format!(" until {until}"));
                let text = |key: &str| text(&endpoint[key]).unwrap_or_default();
                format!("{} of {} is {}{until}", text("address"), self.upstream, text("state"))
            });
            lines.collect::<Vec<_>>().join("\n")
        })
    }
}
