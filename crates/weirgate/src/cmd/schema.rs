//! `weir schema`: the JSON Schema of the config, for editors and config generators.

use super::print;
use anyhow::Result;
use std::process::ExitCode;
use weir_gateway::filters::KINDS;

pub(super) fn run() -> Result<ExitCode> {
    let filters: Vec<_> = KINDS.iter().map(|k| (k.name, (k.schema)())).collect();
    print(&format!("{:#}\n", weir_gateway::config::schema(&filters)));
    Ok(ExitCode::SUCCESS)
}
