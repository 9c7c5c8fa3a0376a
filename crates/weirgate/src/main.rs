//! The binary `weir`: the command line and its wiring, nothing else.
//!
//! Exit codes: 0 success; 1 a negative result; 2 a wrong command line.

#[macro_use]
mod stderr;
mod cmd;
mod proof;

use std::process::ExitCode;
use weir_wire::allocator::Allocator;

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

fn main() -> ExitCode {
    proof::as_part().unwrap_or_else(cmd::run)
}
