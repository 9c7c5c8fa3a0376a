//! `weir bench`: what the load tester itself can do on this machine.

use super::load::end_on_ctrl_c;
use super::print;
use anyhow::Result;
use clap::Args;
use std::process::ExitCode;
use weir_load::{Interrupt, ceiling};

#[derive(Args)]
pub(super) struct Bench {
    /// Measure the generator against a sink that answers without looking
    #[arg(long = "self", required = true)]
    generator: bool,
    /// Seconds for each way of sending
    #[arg(short = 'd', long, value_name = "SECONDS", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=600))]
    duration: u64,
}

impl Bench {
    pub(super) fn run(&self) -> Result<ExitCode> {
        let interrupt = Interrupt::default();
        end_on_ctrl_c(&interrupt)?;
        let found = ceiling::ceilings(&format!("{}s", self.duration), &interrupt)?;
        print(&ceiling::to_text(&found));
        Ok(ExitCode::SUCCESS)
    }
}
