//! `weir-soak`: applies all faults to a running gateway, and accounts for every request.
//!
//! ```text
//!   clients (client.rs) ──► weir ──► origins, processes of this program (origin.rs)
//!      each request has an id         each writes the ids it gets into its ledger
//!                └────────► account.rs compares both ◄────────┘
//! ```
//! `plan.rs` schedules the faults, `faults.rs` applies them, `report.rs` prints the result. Everything runs on
//! loopback and in bounded time, and every process that it starts ends with it. `make soak` runs it for ten
//! minutes, the test `soak` for half a minute.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    missing_docs,
    reason = "a test that is a program"
)]

mod account;
mod client;
mod faults;
mod names;
mod origin;
mod plan;
mod process;
mod report;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// The command line.
struct Options {
    /// Total duration of the faults.
    length: Duration,
    /// The folder for the report.
    report: Option<PathBuf>,
}

const USAGE: &str = "weir-soak [--seconds N] [--report FOLDER]    WEIR_BIN names the gateway";

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let mut options = Options { length: Duration::from_secs(600), report: None };
    while let Some(arg) = args.next() {
        match (arg.as_str(), args.next()) {
            ("origin", Some(address)) => {
                let ledger = args.next().expect("an origin has a ledger");
                origin::serve(&address, &ledger);
                return ExitCode::SUCCESS;
            }
            ("--seconds", Some(seconds))
                if seconds.parse::<u64>().is_ok_and(|n| (15..=86_400).contains(&n)) =>
            {
                options.length = Duration::from_secs(seconds.parse().unwrap());
            }
            ("--report", Some(folder)) => options.report = Some(folder.into()),
            _ => {
                eprintln!("usage: {USAGE}; N from 15 to 86400");
                return ExitCode::from(2);
            }
        }
    }
    let outcome = plan::run(options.length);
    let text = report::text(&outcome, options.length);
    println!("{text}");
    if let Some(folder) = options.report {
        let file = folder.join(report::file_name());
        std::fs::write(&file, &text).unwrap();
        println!("written to {}", file.display());
    }
    ExitCode::from(u8::from(!outcome.wrong().is_empty()))
}
