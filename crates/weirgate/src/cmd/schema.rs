//! `weir schema`: the JSON Schema of the config, for editors and config generators.

use super::print;
use anyhow::Result;
use std::process::ExitCode;

pub(super) fn run() -> Result<ExitCode> {
    print(&format!("{:#}\n", weir_gateway::schema()));
    Ok(ExitCode::SUCCESS)
}
