//! `weir-sim`: runs seeds of the simulation and tells which broke what.
//!
//! usage: weir-sim [FROM [TO]]      seeds FROM up to, and without, TO; 0 to 1000 by default
//!        weir-sim calm NODES       so many nodes, and nothing breaks: how long a change takes

use std::process::ExitCode;
use weir_sim::{Settings, World, run};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let numbers: Vec<u64> = args.iter().filter_map(|arg| arg.parse().ok()).collect();
    if args.first().is_some_and(|arg| arg == "calm") {
        let nodes = numbers.first().map_or(10_000, |n| usize::try_from(*n).unwrap_or(10_000));
        return match World::new(1, Settings::calm(nodes)).run() {
            Ok(outcome) => {
                println!("PASS {nodes} nodes: {outcome:?}");
                ExitCode::SUCCESS
            }
            Err(broken) => {
                println!("FAIL {broken}");
                ExitCode::FAILURE
            }
        };
    }
    let (from, to) = match numbers.as_slice() {
        [] => (0, 1000),
        [one] => (*one, one + 1),
        [from, to, ..] => (*from, *to),
    };
    let mut bad = 0;
    let mut events = 0;
    for seed in from..to {
        match run(seed) {
            Ok(outcome) => events += outcome.events,
            Err(broken) => {
                bad += 1;
                println!("FAIL {broken}");
            }
        }
    }
    println!("{} {} seeds, {events} events, {bad} broken", if bad == 0 { "PASS" } else { "FAIL" }, to - from);
    if bad == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
