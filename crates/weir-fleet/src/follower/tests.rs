//! Conversations with a follower.

use super::*;
use crate::plan::{Author, Canary, publish};
use crate::pointer::Step;
use crate::report::NodeReport;

const fn at(ms: u64) -> Time {
    Duration::from_millis(ms)
}

fn d(n: u64) -> Digest {
    Digest::of(&[&n.to_be_bytes()])
}

fn follower() -> Follower {
    let settings = Settings { node: "n".to_owned(), labels: Labels::new(), spread: Duration::ZERO };
    Follower::new(settings, 1)
}

fn to(n: u64) -> Pointer {
    publish(None, d(n), None, &[], Author::default()).unwrap().0
}

fn seen(revision: u64, pointer: &Pointer) -> Seen {
    Seen { revision, modified: revision, pointer: Found::Pointer(Box::new(pointer.clone())) }
}

fn nothing(revision: u64) -> Seen {
    Seen { revision, modified: 0, pointer: Found::Nothing }
}

/// A follower that runs bundle 1 and watches.
fn settled() -> Follower {
    let mut follower = follower();
    assert_eq!(follower.on(at(0), Event::Begin(Some(d(1)))), [Action::Read(1)]);
    assert_eq!(
        follower.on(at(1), Event::Read(1, Ok(seen(5, &to(1))))),
        [Action::Report, Action::Watch(2, 6)]
    );
    assert_eq!(follower.on(at(2), Event::Watch(2, WatchEvent::Nothing)), []);
    follower
}

#[test]
fn from_nothing_to_a_bundle() {
    let mut follower = follower();
    assert_eq!(follower.on(at(0), Event::Begin(None)), [Action::Read(1)]);
    let read = follower.on(at(1), Event::Read(1, Ok(seen(5, &to(1)))));
    assert_eq!(read, [Action::Report, Action::Watch(2, 6), Action::Fetch(d(1))]);
    assert_eq!(follower.on(at(2), Event::Fetched(d(1), Ok(()))), [Action::Run(d(1))]);
    let ran = follower.on(at(3), Event::Ran(d(1), Outcome::Running));
    assert_eq!(ran, [Action::Say(Note::Runs(d(1))), Action::Keep(d(1)), Action::Report]);
    assert!(!follower.is_kept());
    assert_eq!(follower.on(at(4), Event::Kept(d(1), true)), [Action::Report]);
    assert!(follower.is_kept());
}

/// A full disk may have room later.
#[test]
fn what_was_not_kept_is_kept_later() {
    let mut follower = settled();
    follower.on(at(10), Event::Watch(2, WatchEvent::Changed(seen(6, &to(2)))));
    follower.on(at(11), Event::Fetched(d(2), Ok(())));
    follower.on(at(12), Event::Ran(d(2), Outcome::Running));
    let not_kept = follower.on(at(13), Event::Kept(d(2), false));
    assert_eq!(not_kept, [Action::Say(Note::NotKept(d(2))), Action::Report]);
    let again = follower.on(at(30_013), Event::Tick);
    assert!(again.contains(&Action::Keep(d(2))), "{again:?}");
    assert_eq!(follower.on(at(30_014), Event::Kept(d(2), false)), [Action::Report], "it is said once");
    assert!(follower.on(at(60_014), Event::Tick).contains(&Action::Keep(d(2))));
    follower.on(at(60_015), Event::Kept(d(2), true));
    assert!(follower.is_kept() && !follower.on(at(99_000), Event::Tick).contains(&Action::Keep(d(2))));
}

/// A watch message that a read has overtaken.
#[test]
fn an_old_word_says_nothing_new() {
    let mut follower = settled();
    follower.on(at(70_000), Event::Tick);
    // The pointer was changed at 7 and changed back at 8: nothing differs, so the watch stays.
    follower.on(at(70_001), Event::Read(3, Ok(seen(8, &to(1)))));
    assert_eq!(follower.on(at(70_002), Event::Watch(2, WatchEvent::Changed(seen(7, &to(2))))), []);
    assert_eq!((follower.wanted(), follower.modified()), (Some(d(1)), 8));
}

#[test]
fn a_change_is_told() {
    let mut follower = settled();
    let told = follower.on(at(9), Event::Watch(2, WatchEvent::Changed(seen(7, &to(2)))));
    assert_eq!(told, [Action::Report, Action::Fetch(d(2))]);
    // Another bundle during the fetch: the first is dropped.
    assert_eq!(follower.on(at(10), Event::Watch(2, WatchEvent::Changed(seen(8, &to(3))))), [Action::Report]);
    assert_eq!(follower.on(at(11), Event::Fetched(d(2), Ok(()))), [Action::Fetch(d(3))]);
    assert_eq!(follower.on(at(12), Event::Fetched(d(3), Ok(()))), [Action::Run(d(3))]);
    // And back, during compilation.
    assert_eq!(follower.on(at(13), Event::Watch(2, WatchEvent::Changed(seen(9, &to(1))))), [Action::Report]);
    let ran = follower.on(at(14), Event::Ran(d(3), Outcome::Running));
    assert_eq!(ran.last(), Some(&Action::Fetch(d(1))));
}

#[test]
fn compaction_changes_nothing() {
    let mut follower = settled();
    assert_eq!(follower.on(at(9), Event::Watch(2, WatchEvent::Ended("compacted".to_owned()))), []);
    let again = follower.next();
    assert!(again > at(9) && again <= at(259), "{again:?}");
    assert_eq!(follower.on(again, Event::Tick), [Action::Read(3)]);
    // The same pointer: only a new watch from there.
    assert_eq!(follower.on(again, Event::Read(3, Ok(seen(900, &to(1))))), [Action::Watch(4, 901)]);
}

#[test]
fn a_refused_bundle_is_not_tried_again() {
    let mut follower = settled();
    follower.on(at(9), Event::Watch(2, WatchEvent::Changed(seen(7, &to(2)))));
    follower.on(at(9), Event::Fetched(d(2), Ok(())));
    let refused = follower.on(at(9), Event::Ran(d(2), Outcome::Refused("line 1".to_owned())));
    assert_eq!(refused, [Action::Say(Note::Refused(d(2), "line 1".to_owned())), Action::Report]);
    assert_eq!(follower.refused().map(|r| &*r.why), Some("line 1"));
    for time in 1..200 {
        let todo = follower.on(at(time * 1000), Event::Tick);
        assert!(todo.iter().all(|action| !matches!(action, Action::Fetch(_) | Action::Run(_))), "{todo:?}");
    }
    assert_eq!(follower.running(), Some(d(1)));
    // Nor when another pointer names it again.
    let mut other = to(2);
    other.generation = 9;
    let number = follower.reading.map_or(0, |(number, _)| number);
    let todo = follower.on(at(200_000), Event::Read(number, Ok(seen(20, &other))));
    assert!(!todo.contains(&Action::Fetch(d(2))), "{todo:?}");
}

#[test]
fn what_stands_in_the_way_is_tried_again() {
    let mut follower = settled();
    follower.on(at(9), Event::Watch(2, WatchEvent::Changed(seen(7, &to(2)))));
    let missing = follower.on(at(9), Event::Fetched(d(2), Err("it is not there".to_owned())));
    assert_eq!(missing, [Action::Say(Note::Trouble(d(2), "it is not there".to_owned())), Action::Report]);
    let again = follower.next();
    assert_eq!(follower.on(again, Event::Tick), [Action::Fetch(d(2))]);
    assert_eq!(follower.on(again, Event::Fetched(d(2), Ok(()))), [Action::Run(d(2))]);
    let full = follower.on(again, Event::Ran(d(2), Outcome::Failed("no space".to_owned())));
    assert_eq!(full, [Action::Say(Note::Trouble(d(2), "no space".to_owned())), Action::Report]);
    assert_eq!(follower.trouble(), "no space");
    assert!(follower.next() > again);
}

#[test]
fn an_empty_source_takes_nothing_away() {
    let mut follower = settled();
    follower.on(at(9), Event::Watch(2, WatchEvent::Ended("reset".to_owned())));
    let again = follower.next();
    follower.on(again, Event::Tick);
    // Revisions start over.
    let empty = follower.on(again, Event::Read(3, Ok(nothing(1))));
    assert_eq!(empty, [Action::Say(Note::Empty), Action::Report, Action::Watch(4, 2)]);
    assert_eq!((follower.running(), follower.wanted()), (Some(d(1)), None));
    follower.on(again, Event::Watch(4, WatchEvent::Nothing));
    let told = follower.on(again, Event::Watch(4, WatchEvent::Changed(seen(2, &to(2)))));
    assert_eq!(told, [Action::Report, Action::Fetch(d(2))]);
}

#[test]
fn a_source_that_went_back_is_watched_anew() {
    let mut follower = settled();
    let due = follower.next();
    assert!(due >= at(30_001) && due <= at(60_001), "{due:?}");
    assert_eq!(follower.on(due, Event::Tick), [Action::Read(3)]);
    assert_eq!(follower.on(due, Event::Read(3, Ok(seen(3, &to(1))))), [Action::Watch(4, 4)]);
    // Messages from the old watch do not count.
    assert_eq!(follower.on(due, Event::Watch(2, WatchEvent::Changed(seen(7, &to(2))))), []);
}

#[test]
fn a_deaf_watch_is_found_out() {
    let mut follower = settled();
    let due = follower.next();
    follower.on(due, Event::Tick);
    let read = follower.on(due, Event::Read(3, Ok(seen(9, &to(2)))));
    assert_eq!(read, [Action::Report, Action::Watch(4, 10), Action::Fetch(d(2))]);
}

#[test]
fn a_silent_watch_is_opened_anew() {
    let mut follower = settled();
    let mut now = at(2);
    let mut reads = 0;
    while now < at(2) + SILENCE {
        now = follower.next();
        for action in follower.on(now, Event::Tick) {
            match action {
                Action::Read(number) => {
                    reads += 1;
                    assert_eq!(follower.on(now, Event::Read(number, Ok(seen(5, &to(1))))), []);
                }
                other => assert_eq!((other, now), (Action::Unwatch, at(2) + SILENCE)),
            }
        }
    }
    assert!((5..=10).contains(&reads), "{reads}");
}

#[test]
fn answers_that_come_late_say_nothing() {
    let mut follower = settled();
    let due = follower.next();
    assert_eq!(follower.on(due, Event::Tick), [Action::Read(3)]);
    // The watch was faster: the pointer read before it is older.
    follower.on(due, Event::Watch(2, WatchEvent::Changed(seen(7, &to(2)))));
    assert_eq!(follower.on(due, Event::Read(3, Ok(seen(6, &to(1))))), [Action::Read(4)]);
    assert_eq!(follower.wanted(), Some(d(2)));
    // No response in time.
    let todo = follower.on(due + PATIENCE, Event::Tick);
    assert_eq!(todo, [Action::Say(Note::Away("no answer in time".to_owned())), Action::Unwatch]);
    assert_eq!(follower.on(due + PATIENCE, Event::Read(4, Ok(seen(6, &to(1))))), []);
    assert_eq!(follower.wanted(), Some(d(2)));
}

#[test]
fn away_and_back_is_said_once() {
    let mut follower = follower();
    follower.on(at(0), Event::Begin(Some(d(1))));
    let away = follower.on(at(1), Event::Read(1, Err("refused".to_owned())));
    assert_eq!(away, [Action::Say(Note::Away("refused".to_owned()))]);
    let mut now = follower.next();
    for number in 2..20 {
        assert!(now <= at(200_000));
        assert_eq!(follower.on(now, Event::Tick), [Action::Read(number)]);
        assert_eq!(follower.on(now, Event::Read(number, Err("refused".to_owned()))), []);
        now = follower.next();
    }
    assert_eq!(follower.running(), Some(d(1)));
    follower.on(now, Event::Tick);
    let back = follower.on(now, Event::Read(20, Ok(seen(5, &to(1)))));
    assert_eq!(back[0], Action::Say(Note::Back));
    assert_eq!(follower.contact(), Some(now));
}

#[test]
fn an_unreadable_pointer_takes_nothing_away() {
    let mut follower = settled();
    let bad = Seen { revision: 8, modified: 8, pointer: Found::Unreadable("version 2".to_owned()) };
    let told = follower.on(at(9), Event::Watch(2, WatchEvent::Changed(bad)));
    assert_eq!(told, [Action::Say(Note::Unreadable("version 2".to_owned())), Action::Report]);
    assert_eq!(follower.wanted(), Some(d(1)));
    assert!(follower.trouble().contains("version 2"));
    let told = follower.on(at(9), Event::Watch(2, WatchEvent::Changed(seen(9, &to(2)))));
    assert_eq!(told, [Action::Report, Action::Fetch(d(2))]);
    assert_eq!(follower.trouble(), "");
}

#[test]
fn only_its_own_step_concerns_a_node() {
    let mut follower = settled();
    let canary = Step::Labels(Labels::from([("canary".to_owned(), "true".to_owned())]));
    let nodes = [NodeReport {
        node: "c".to_owned(),
        labels: Labels::from([("canary".to_owned(), "true".to_owned())]),
        ..NodeReport::default()
    }];
    let staged = Canary { steps: vec![canary], hold: Duration::ZERO };
    let mut pointer = publish(Some(&to(1)), d(2), Some(staged), &nodes, Author::default()).unwrap().0;
    assert_eq!(follower.on(at(9), Event::Watch(2, WatchEvent::Changed(seen(7, &pointer)))), [Action::Report]);
    pointer.rollout.open = 2;
    let told = follower.on(at(10), Event::Watch(2, WatchEvent::Changed(seen(8, &pointer))));
    assert_eq!(told, [Action::Report, Action::Fetch(d(2))]);
}

/// A large fleet does not come back all at the same time after its watches ended; a small one comes back soon.
#[test]
fn a_large_fleet_comes_back_in_turn() {
    let last = |nodes| {
        let mut pointer = to(1);
        pointer.nodes = nodes;
        let due = (0..300).map(|seed| {
            let settings = Settings { node: "n".to_owned(), labels: Labels::new(), spread: SPREAD };
            let mut follower = Follower::new(settings, seed);
            follower.on(at(0), Event::Begin(Some(d(1))));
            follower.on(at(0), Event::Read(1, Ok(seen(5, &pointer))));
            follower.on(at(0), Event::Watch(2, WatchEvent::Ended(String::new())));
            follower.next()
        });
        due.max().unwrap().as_millis()
    };
    for (nodes, from, to) in [(100, 200, 250), (750, 200, 250), (10_000, 3_800, 4_250)] {
        assert!((from..=to).contains(&last(nodes)), "{nodes}: {}", last(nodes));
    }
}

/// A large fleet takes longer, so that etcd has no more load at any time than with a small one; no node waits
/// forever.
#[test]
fn reads_of_a_large_fleet_are_spread_further() {
    let last = |nodes| {
        let mut pointer = to(1);
        pointer.nodes = nodes;
        let due = (0..300).map(|number| {
            let settings = Settings { node: format!("n{number}"), labels: Labels::new(), spread: SPREAD };
            let mut follower = Follower::new(settings, 1);
            follower.on(at(0), Event::Begin(None));
            follower.on(at(0), Event::Read(1, Ok(seen(5, &pointer))));
            follower.next()
        });
        due.max().unwrap().as_millis()
    };
    for (nodes, from, to) in
        [(0, 200, 300), (100, 200, 300), (10_000, 3_500, 4_000), (u32::MAX, 7_000, 8_000)]
    {
        assert!((from..=to).contains(&last(nodes)), "{nodes}: {}", last(nodes));
    }
}
