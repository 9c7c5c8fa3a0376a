//! `weir endpoint`: drains an endpoint of a running Weir, puts it out, or puts it back in.

use super::{AdminArgs, print};
use anyhow::{Result, anyhow};
use clap::{Args, ValueEnum};
use std::process::ExitCode;

#[derive(Args)]
pub(super) struct Endpoint {
    /// What to do with it
    #[arg(value_enum)]
    what: What,
    /// Name of the upstream
    upstream: String,
    /// Address of the endpoint as `weir status` shows it, or as the config has it
    address: String,
    /// For how long, such as 10m; then it is back by itself [default: 1h]
    #[arg(long = "for", value_name = "TIME")]
    time: Option<String>,
    #[command(flatten)]
    pub(super) admin: AdminArgs,
}

#[derive(Clone, Copy, ValueEnum)]
enum What {
    /// No new exchanges; those under way end, and sessions that stick to it go on
    Drain,
    /// Back into rotation
    In,
    /// No new exchanges whatever
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
            .map_err(|e| anyhow!("{e}"))?;
        if answer.is_success() {
            print(&answer.body);
            return Ok(ExitCode::SUCCESS);
        }
        Err(anyhow!("{}", answer.explanation()))
    }
}
