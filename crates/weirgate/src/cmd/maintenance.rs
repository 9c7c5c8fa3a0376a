//! `weir maintenance`: switches the `maintenance` filters of a running Weir on for a while, or off.

use super::{AdminArgs, Format, said, unanswered};
use anyhow::Result;
use clap::{Args, ValueEnum};
use std::process::ExitCode;

#[derive(Args)]
pub(super) struct Maintenance {
    /// Action
    #[arg(value_enum)]
    what: What,
    /// Name of the switch, as under `switch` of the filter
    switch: String,
    /// How long, such as 30m; after that the switch turns off automatically [default: 1h]
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
    /// Serve requests again
    Off,
    /// Answer requests with 503, and the filter's page if it has one
    On,
}

impl Maintenance {
    pub(super) fn run(&self) -> Result<ExitCode> {
        let verb = match self.what {
            What::Off => "off",
            What::On => "on",
        };
        let place = self.admin.place()?;
        let time = self.time.as_deref();
        let token = place.token.as_deref();
        let answer = weir_admin::client::maintenance(place.at(), token, &self.switch, verb, time)
            .map_err(|e| unanswered(&e))?;
        said(&answer, self.format, |told| match told["until"].as_str() {
            Some(until) => format!("{} is on until {until}", self.switch),
            None => format!("{} is off", self.switch),
        })
    }
}
