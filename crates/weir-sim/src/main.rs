//! `weir-sim`: runs seeds of the simulation and reports which of them broke an invariant.
//!
//! usage: weir-sim [FROM [TO]]      seeds FROM to TO, without TO; by default 0 to 1000
//!        weir-sim limits [FROM [TO]]   the same for limits that nodes share
//!        weir-sim calm NODES       how long a change takes with NODES nodes and no faults

use std::process::ExitCode;
use std::time::Duration;
use weir_sim::{Settings, World, run, run_limits};

/// The longest that a change in a calm fleet may take, and the most reads per second that it may cause at etcd.
const CHANGE: Duration = Duration::from_secs(5);
const READS: u64 = 5_000;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let numbers: Vec<u64> = args.iter().filter_map(|arg| arg.parse().ok()).collect();
    if args.first().is_some_and(|arg| arg == "calm") {
        let nodes = numbers.first().map_or(10_000, |n| usize::try_from(*n).unwrap_or(10_000));
        return calm(nodes);
    }
    let (from, to) = match numbers.as_slice() {
        [] => (0, 1000),
        [one] => (*one, one + 1),
        [from, to, ..] => (*from, *to),
    };
    let of_limits = args.first().is_some_and(|arg| arg == "limits");
    let mut bad = 0;
    let mut events = 0;
    for seed in from..to {
        let ran = if of_limits {
            run_limits(seed).map(|passed| passed.events)
        } else {
            run(seed).map(|o| o.events)
        };
        match ran {
            Ok(count) => events += count,
            Err(broken) => {
                bad += 1;
                println!("FAIL {broken}");
            }
        }
    }
    println!("{} {} seeds, {events} events, {bad} broken", if bad == 0 { "PASS" } else { "FAIL" }, to - from);
    if bad == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn calm(nodes: usize) -> ExitCode {
    match World::new(1, Settings::calm(nodes)).run() {
        Ok(outcome) => {
            let good = outcome.spread < CHANGE && outcome.reads_at_once <= READS;
            let word = if good { "PASS" } else { "FAIL" };
            println!(
                "{word} {nodes} nodes: a change reaches the last one after {:?}, with at most {} reads of etcd in a second",
                outcome.spread, outcome.reads_at_once
            );
            if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(broken) => {
            println!("FAIL {broken}");
            ExitCode::FAILURE
        }
    }
}
