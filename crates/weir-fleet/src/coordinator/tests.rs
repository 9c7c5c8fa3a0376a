//! Conversations with a coordinator.

use super::*;
use crate::digest::Digest;
use crate::plan::{Author, Canary, publish};
use crate::pointer::{Labels, Step};
use crate::report::Reason;

const fn at(seconds: u64) -> Time {
    Duration::from_secs(seconds)
}

fn d(n: u64) -> Digest {
    Digest::of(&[&n.to_be_bytes()])
}

fn node(name: &str, canary: bool, running: u64) -> NodeReport {
    let labels = canary.then(|| ("canary".to_owned(), "true".to_owned()));
    NodeReport {
        node: name.to_owned(),
        labels: labels.into_iter().collect(),
        running: Some(d(running)),
        generation: 2,
        boot: 1,
        ..NodeReport::default()
    }
}

fn rollout(hold: u64) -> Pointer {
    let labels = Labels::from([("canary".to_owned(), "true".to_owned())]);
    let canary = Canary { steps: vec![Step::Labels(labels)], hold: at(hold) };
    let first = publish(None, d(1), None, &[], Author::default()).unwrap().0;
    publish(Some(&first), d(2), Some(canary), &[node("c", true, 1)], Author::default()).unwrap().0
}

/// A coordinator that holds the key and has looked once.
fn leading(pointer: &Pointer) -> Coordinator {
    let mut coordinator = Coordinator::new(1);
    assert_eq!(coordinator.on(at(0), Event::Lease(Some(7))), None);
    coordinator.on(at(0), Event::Pointer(Some(Box::new((pointer.clone(), 40)))));
    assert_eq!(coordinator.on(at(3), Event::Tick), Some(Action::Campaign(7)));
    let look = coordinator.on(at(3), Event::Campaigned(Ok(Campaigned::Ours(7, 41))));
    assert_eq!(look, Some(Action::Look));
    coordinator
}

fn nodes(nodes: &[NodeReport]) -> Event {
    Event::Nodes(Ok(Looked { nodes: nodes.to_vec(), silent: Vec::new() }))
}

fn halts(action: Option<Action>) -> String {
    match action {
        Some(Action::Move { pointer, .. }) => {
            assert_eq!((pointer.rollout.state, pointer.rollout.open), (State::Halted, 0));
            pointer.rollout.why
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn steps_open_one_after_the_other() {
    let mut pointer = rollout(10);
    let mut coordinator = leading(&pointer);
    assert_eq!(coordinator.on(at(4), nodes(&[node("a", false, 1), node("c", true, 1)])), None);
    assert_eq!(coordinator.on(at(5), Event::Tick), Some(Action::Look));
    let there = [node("a", false, 1), node("c", true, 2)];
    assert_eq!(coordinator.on(at(5), nodes(&there)), None);
    assert_eq!(coordinator.on(at(14), Event::Tick), Some(Action::Look));
    assert_eq!(coordinator.on(at(14), nodes(&there)), None);
    assert_eq!(coordinator.on(at(15), Event::Tick), Some(Action::Look));
    let Some(Action::Move { pointer: next, revision: 40, key: 41 }) = coordinator.on(at(15), nodes(&there))
    else {
        panic!("it holds for 10 s only")
    };
    assert_eq!((next.rollout.open, next.rollout.state), (2, State::Running));
    assert_eq!(coordinator.on(at(16), Event::Moved(Ok(true))), Some(Action::Look));
    pointer = *next;
    coordinator.on(at(16), Event::Pointer(Some(Box::new((pointer.clone(), 42)))));
    assert_eq!(coordinator.on(at(17), nodes(&there)), None);
    coordinator.on(at(18), Event::Tick);
    let all = [node("a", false, 2), node("c", true, 2)];
    assert_eq!(coordinator.on(at(18), nodes(&all)), None);
    coordinator.on(at(28), Event::Tick);
    let Some(Action::Move { pointer: next, revision: 42, key: 41 }) = coordinator.on(at(28), nodes(&all))
    else {
        panic!("all run it")
    };
    assert_eq!(next.rollout.state, State::Done);
}

#[test]
fn gates() {
    let bad = |change: fn(&mut NodeReport)| {
        let pointer = rollout(10);
        let mut coordinator = leading(&pointer);
        coordinator.on(at(4), nodes(&[node("c", true, 2)]));
        coordinator.on(at(5), Event::Tick);
        let mut canary = node("c", true, 2);
        change(&mut canary);
        coordinator.on(at(5), nodes(&[canary]))
    };
    let why = halts(bad(|c| c.refused = Some(Reason::new(d(2), "line 3"))));
    assert_eq!(why, "step 1: c refused it: line 3");
    let why = halts(bad(|c| c.unwell = Some(Reason::new(d(2), "5xx"))));
    assert_eq!(why, "step 1: c does badly with it: 5xx");
    assert_eq!(halts(bad(|c| c.boot = 2)), "step 1: c started anew with it");
    assert_eq!(halts(bad(|c| c.node = "other".to_owned())), "step 1: c took it and went silent");
    // A complaint about another bundle does not count.
    assert_eq!(bad(|c| c.refused = Some(Reason::new(d(1), "line 3"))), None);
}

/// What the previous coordinator saw but did not live to judge.
#[test]
fn what_happened_before_it_led() {
    let pointer = rollout(0);
    let looks = |canary: NodeReport, silent: Vec<NodeReport>| {
        let mut coordinator = leading(&pointer);
        coordinator.on(at(4), Event::Nodes(Ok(Looked { nodes: vec![canary], silent })))
    };
    // The pointer was written at 40.
    let began =
        |bundle: u64, began_at: u64| NodeReport { began: Some(d(bundle)), began_at, ..node("c", true, 2) };
    let opens = |action: Option<Action>| matches!(action, Some(Action::Move { pointer, .. }) if pointer.rollout.open == 2);
    assert_eq!(halts(looks(began(2, 40), vec![])), "step 1: c started anew with it");
    assert!(opens(looks(began(2, 39), vec![])), "its process was there before the step was opened");
    assert!(opens(looks(began(1, 41), vec![])), "it is a process that began with the bundle before");
    let silent =
        |canary: bool, running: u64, tries: u64| vec![NodeReport { tries, ..node("s", canary, running) }];
    let there = || node("c", true, 2);
    assert_eq!(halts(looks(there(), silent(true, 2, 40))), "step 1: s took it and went silent");
    assert_eq!(halts(looks(there(), silent(true, 1, 40))), "step 1: s was to take it and went silent");
    assert!(opens(looks(there(), silent(true, 2, 38))), "it was silent already when somebody resumed");
    assert!(opens(looks(there(), silent(false, 1, 0))), "it is none of this step");
}

#[test]
fn who_goes_silent_while_it_compiles() {
    let pointer = rollout(10);
    let mut coordinator = leading(&pointer);
    coordinator.on(at(4), nodes(&[node("c", true, 1), node("e", true, 2)]));
    coordinator.on(at(5), Event::Tick);
    let why = halts(coordinator.on(at(5), nodes(&[node("e", true, 2)])));
    assert_eq!(why, "step 1: c was to take it and went silent");
}

#[test]
fn a_step_of_nobody_does_not_pass() {
    let pointer = rollout(0);
    let mut coordinator = leading(&pointer);
    assert_eq!(coordinator.on(at(4), nodes(&[node("a", false, 1)])), None);
    coordinator.on(at(5), Event::Tick);
    assert_eq!(coordinator.on(at(5), nodes(&[])), None);
}

#[test]
fn who_holds_no_key_moves_nothing() {
    let pointer = rollout(0);
    let mut coordinator = leading(&pointer);
    // It loses its lease during a look.
    assert_eq!(coordinator.on(at(4), Event::Lease(None)), None);
    assert_eq!(coordinator.on(at(4), nodes(&[node("c", true, 2)])), None);
    assert!(!coordinator.leads());
    assert_eq!(coordinator.on(at(5), Event::Lease(Some(8))), Some(Action::Campaign(8)));
    // The key of the previous lease still exists.
    assert_eq!(coordinator.on(at(5), Event::Campaigned(Ok(Campaigned::Theirs))), None);
    assert_eq!(coordinator.on(at(9), Event::Tick), None);
    assert_eq!(coordinator.on(at(20), Event::Tick), Some(Action::Campaign(8)));
}

#[test]
fn a_move_that_was_not_made_is_looked_at_again() {
    let pointer = rollout(0);
    let mut coordinator = leading(&pointer);
    let there = [node("c", true, 2)];
    assert!(matches!(coordinator.on(at(4), nodes(&there)), Some(Action::Move { .. })));
    assert_eq!(coordinator.on(at(4), Event::Moved(Ok(false))), None);
    assert_eq!(coordinator.on(at(7), Event::Tick), Some(Action::Campaign(7)));
}

#[test]
fn who_comes_later_tries_it_as_long() {
    let pointer = rollout(10);
    let mut coordinator = leading(&pointer);
    coordinator.on(at(4), nodes(&[node("c", true, 2)]));
    coordinator.on(at(12), Event::Tick);
    let both = [node("c", true, 2), node("e", true, 2)];
    assert_eq!(coordinator.on(at(12), nodes(&both)), None);
    coordinator.on(at(15), Event::Tick);
    assert_eq!(coordinator.on(at(15), nodes(&both)), None, "e has run it for 3 s");
    coordinator.on(at(22), Event::Tick);
    assert!(matches!(coordinator.on(at(22), nodes(&both)), Some(Action::Move { .. })));
}

/// A rollout is halted and resumed, and this node sees only the second change: the step's hold time starts over.
#[test]
fn what_is_resumed_holds_anew() {
    let pointer = rollout(10);
    let mut coordinator = leading(&pointer);
    let there = [node("c", true, 2)];
    assert_eq!(coordinator.on(at(4), nodes(&there)), None);
    let look = coordinator.on(at(12), Event::Pointer(Some(Box::new((pointer, 60)))));
    assert_eq!(look, Some(Action::Look));
    assert_eq!(coordinator.on(at(15), nodes(&there)), None, "it held for 10 s, but not since it was resumed");
    coordinator.on(at(25), Event::Tick);
    let moved = coordinator.on(at(25), nodes(&there));
    assert!(matches!(moved, Some(Action::Move { revision: 60, .. })), "{moved:?}");
}

#[test]
fn nothing_is_asked_without_a_rollout() {
    let first = publish(None, d(1), None, &[], Author::default()).unwrap().0;
    let mut coordinator = Coordinator::new(1);
    coordinator.on(at(0), Event::Lease(Some(7)));
    assert_eq!(coordinator.on(at(0), Event::Pointer(Some(Box::new((first, 3))))), None);
    assert_eq!(coordinator.on(at(1000), Event::Tick), None);
    assert_eq!(coordinator.next(), Time::MAX);
    assert_eq!(coordinator.on(at(1001), Event::Pointer(None)), None);
}
