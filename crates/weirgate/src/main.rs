//! The binary `weir`: the command line and its wiring, nothing else.
//!
//! Exit codes: 0 done; 1 the thing asked about is bad; 2 the command line is wrong.

#[macro_use]
mod stderr;
mod cmd;

use std::process::ExitCode;

fn main() -> ExitCode {
    cmd::run()
}
