//! Seeds that run with every change; `make conformance` runs a thousand.

#![allow(clippy::unwrap_used, reason = "this is test code: a panic is how a test fails")]

use std::time::Duration;
use weir_sim::{Settings, World, run, run_limits};

/// Seeds that once failed, with the bug. A seed's run changes with the simulation, so weir-fleet tests each bug too.
const FOUND: &[u64] = &[
    // After a full disk, unsaved data was never saved (`what_was_not_kept_is_kept_later`).
    411, 431, 435, 456, 466, 482, 498,
    // A step halted and resumed unseen by its coordinator stayed on hold (`what_is_resumed_holds_anew`).
    6, 20, 138, 228, 265, 280, 335, 395, 413, 521, 876, 1086, 1399,
];

fn all(seeds: impl Iterator<Item = u64>) {
    let broken: Vec<String> =
        seeds.filter_map(|seed| run(seed).err()).map(|broken| broken.to_string()).collect();
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn twenty_seeds() {
    all(0..20);
}

#[test]
fn seeds_that_found_something() {
    all(FOUND.iter().copied());
}

#[test]
fn a_seed_says_all() {
    let tell = |seed| format!("{:?}", run(seed).unwrap());
    assert_eq!(tell(3), tell(3));
}

/// With realistic delays of the network and of compiling.
#[test]
fn a_change_reaches_five_hundred_nodes() {
    let outcome = World::new(1, Settings::calm(500)).run().unwrap();
    assert!(outcome.runs >= 1_000, "{outcome:?}");
    assert!(outcome.spread < Duration::from_secs(1), "{outcome:?}");
}

#[test]
fn limits_hold_while_coordinators_die() {
    let mut terms = 0;
    for seed in 0..20 {
        let passed = run_limits(seed).unwrap_or_else(|broken| panic!("{broken}"));
        terms += passed.terms;
    }
    assert!(terms > 60, "{terms}");
}
