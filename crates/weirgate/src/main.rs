//! The binary `weir`: the command line and its wiring, nothing else.
//!
//! Exit codes: 0 success; 1 a negative result; 2 a wrong command line.

#[macro_use]
mod stderr;
mod cmd;

use std::process::ExitCode;

fn main() -> ExitCode {
    cmd::run()
}
