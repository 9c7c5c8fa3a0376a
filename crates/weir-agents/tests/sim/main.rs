//! Runs coordinator and agents, the real state machines, in a simulated world that one seed decides. Links delay,
//! reorder, lose and double messages, networks fail, and clocks differ. Agents crash, restart, stand still, lie, do not
//! end, or are ended by their operators. Strangers order agents about.

mod world;

use world::{Fault, World};

/// Seeds of each test. `WEIR_SEEDS` runs more.
fn seeds() -> u64 {
    std::env::var("WEIR_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(12)
}

fn all(fault: Fault) {
    for seed in 0..seeds() {
        if let Err(broken) = World::new(seed, fault).run() {
            panic!("{fault:?}, seed {seed}: {broken}");
        }
    }
}

#[test]
fn a_run_without_faults_adds_up() {
    all(Fault::None);
}

#[test]
fn a_link_that_loses_messages_is_noticed_or_does_no_harm() {
    all(Fault::Loss);
}

#[test]
fn an_agent_that_crashes_is_lost_and_does_not_rejoin() {
    all(Fault::Crash);
}

#[test]
fn the_others_go_on_where_they_should() {
    all(Fault::CrashAndContinue);
}

#[test]
fn an_agent_that_stands_still_is_lost() {
    all(Fault::Pause);
}

#[test]
fn nobody_sends_without_a_coordinator() {
    all(Fault::CoordinatorGone);
}

#[test]
fn an_order_to_stop_reaches_everyone() {
    all(Fault::Stop);
}

#[test]
fn a_lie_is_found() {
    all(Fault::Lie);
}

#[test]
fn an_agent_that_does_not_end_is_given_up() {
    all(Fault::Endless);
}

#[test]
fn an_agent_that_only_beats_is_given_up() {
    all(Fault::Mute);
}

#[test]
fn a_number_beyond_its_limit_cuts_the_agent() {
    all(Fault::Overflow);
}

#[test]
fn more_time_than_has_passed_cuts_the_agent() {
    all(Fault::Ahead);
}

#[test]
fn another_agent_tears_down_if_the_first_is_lost() {
    all(Fault::FirstLost);
}

#[test]
fn nobody_obeys_a_second_connection() {
    all(Fault::Strays);
}

#[test]
fn a_network_that_fails_runs_teardown_twice_only_if_that_is_told() {
    all(Fault::Partition);
}

#[test]
fn a_network_that_fails_leaves_teardown_to_the_agents_that_go_on() {
    all(Fault::PartitionAndContinue);
}

#[test]
fn an_agent_that_its_operator_ends_hands_teardown_back() {
    all(Fault::Leave);
}
