//! Conversations with a coordinator: what it says to whom, and when it gives up.

use super::*;
use crate::message::Second;
use crate::teardown::OVER_AFTER;
use std::collections::BTreeMap;

const MS: fn(u64) -> Time = Duration::from_millis;

fn hello(protocol: u32) -> FromAgent {
    FromAgent::Hello(Box::new(Hello { protocol, ..Hello::default() }))
}

fn coordinator(agents: usize, on_loss: OnLoss) -> Coordinator {
    let expected = Expected { length: Some(MS(10_000)), grace: MS(1_000), ..Expected::default() };
    leading(agents, on_loss, expected)
}

fn leading(agents: usize, on_loss: OnLoss, expected: Expected) -> Coordinator {
    Coordinator::new(MS(0), vec![Offer::default(); agents], on_loss, expected)
}

/// Two agents whose load runs; their clocks are an hour and two ahead.
fn running(on_loss: OnLoss) -> (Coordinator, Vec<Action>) {
    prepared(coordinator(2, on_loss))
}

fn prepared(mut c: Coordinator) -> (Coordinator, Vec<Action>) {
    let agents = c.agents().len();
    for message in [hello(PROTOCOL), FromAgent::Ready, FromAgent::Prepared { kept: Value::Null }] {
        for i in 0..agents {
            c.on(MS(10), Event::Message(i, message.clone()));
        }
    }
    let (mut last, mut ms) = (Vec::new(), 10);
    for (i, hours) in (0..agents).zip(1..) {
        for number in 1..=EXCHANGES {
            // Each exchange takes a millisecond; the agent looks at its clock in the middle.
            let middle = MS(ms) + Duration::from_micros(500);
            ms += 1;
            let pong = FromAgent::Pong { number, at_ns: nanos(middle + MS(hours * 3_600_000)) };
            last = c.on(MS(ms), Event::Message(i, pong));
        }
    }
    (c, last)
}

/// Agent `i` begins on time.
fn started(c: &mut Coordinator, i: usize) {
    let at_ns = nanos(c.start_at().unwrap() + MS((i as u64 + 1) * 3_600_000));
    c.on(c.start_at().unwrap(), Event::Message(i, FromAgent::Started { at_ns }));
}

/// Agents beat from `now` on until the run is over, and `says` what else they say; returns when that is.
fn lives(
    c: &mut Coordinator,
    agents: &[usize],
    mut now: Time,
    mut says: impl FnMut(usize, Time) -> Option<FromAgent>,
) -> Time {
    while !c.is_over() && now < MS(4_000_000) {
        now += BEAT;
        for i in agents {
            c.on(now, Event::Message(*i, FromAgent::Beat));
            if let Some(message) = says(*i, now) {
                c.on(now, Event::Message(*i, message));
            }
        }
    }
    now
}

#[test]
fn who_fails_before_the_start_is_named_and_nothing_begins() {
    let mut c = coordinator(3, OnLoss::Abort);
    assert_eq!(c.on(MS(5), Event::Unreachable(0, "refused".to_owned())), []);
    // One of another version.
    assert_eq!(c.on(MS(6), Event::Message(1, hello(PROTOCOL + 1))), []);
    let told = c.on(MS(7), Event::Message(2, hello(PROTOCOL)));
    assert!(c.is_over() && told.contains(&Action::Send(2, ToAgent::Bye)), "{told:?}");
    assert!(!told.iter().any(|a| matches!(a, Action::Send(_, ToAgent::Offer(_)))), "{told:?}");
    let named: Vec<bool> = c.agents().iter().map(|agent| !agent.refused.is_empty()).collect();
    assert_eq!((named, c.has_started()), (vec![true, true, false], false));
    // Every refusal of an offer is heard too.
    let mut c = coordinator(2, OnLoss::Abort);
    (0..2).for_each(|i| drop(c.on(MS(1), Event::Message(i, hello(PROTOCOL)))));
    for i in 0..2 {
        assert!(!c.is_over());
        c.on(MS(2), Event::Message(i, FromAgent::Refused { why: vec!["no".to_owned()] }));
    }
    assert!(c.is_over() && c.agents().iter().all(|agent| !agent.refused.is_empty()));
    // One that never says hello.
    let mut c = coordinator(1, OnLoss::Abort);
    assert_eq!(c.next(), GREETING);
    c.on(GREETING, Event::Tick);
    assert!(c.is_over());
}

#[test]
fn all_begin_at_one_moment_of_their_clocks() {
    let (c, last) = running(OnLoss::Abort);
    let start = c.start_at().unwrap();
    let at = |hours: u64| nanos(start + MS(hours * 3_600_000));
    for (i, hours) in [(0, 1), (1, 2)] {
        let order = Action::Send(i, ToAgent::Start { at_ns: at(hours) });
        assert!(last.contains(&order), "{order:?} in {last:?}");
    }
}

#[test]
fn a_lost_agent_stops_the_others_or_not() {
    for (on_loss, stops) in [(OnLoss::Abort, true), (OnLoss::Continue, false)] {
        let (mut c, _) = running(on_loss);
        let told = c.on(MS(3_000), Event::Closed(1, "reset".to_owned()));
        let order = Action::Send(0, ToAgent::Beat { stop: Some(Stop::Now) });
        assert_eq!(told.contains(&order), stops, "{told:?}");
        assert_eq!(c.agents()[1].lost, Some((0, "reset".to_owned())));
        // What it says later does not count.
        c.on(MS(3_001), Event::Message(1, FromAgent::Ended(Box::default())));
        assert!(c.agents()[1].report.is_none());
    }
}

#[test]
fn nothing_waits_for_ever() {
    // An agent that lives and is never ready.
    let mut c = coordinator(1, OnLoss::Abort);
    c.on(MS(1), Event::Message(0, hello(PROTOCOL)));
    let mut now = MS(1);
    while !c.is_over() && now < PREPARATION * 2 {
        now += BEAT;
        c.on(now, Event::Message(0, FromAgent::Beat));
    }
    assert!(now <= PREPARATION + BEAT, "{now:?}");
    // One that lives and does not stop.
    let (mut c, _) = running(OnLoss::Abort);
    (0..2).for_each(|i| started(&mut c, i));
    c.on(MS(3_000), Event::Stop(Stop::Gracefully));
    let mut now = MS(3_000);
    while !c.is_over() && now < MS(60_000) {
        now += BEAT;
        (0..2).for_each(|i| drop(c.on(now, Event::Message(i, FromAgent::Beat))));
    }
    assert!(now <= MS(3_000) + MS(1_000) + SILENCE + BEAT, "{now:?}");
}

#[test]
fn an_agent_that_beats_and_does_not_end_is_given_up() {
    let planned = |length| Expected { length, grace: MS(1_000), ..Expected::default() };
    let why = |c: &Coordinator| c.agents()[1].lost.as_ref().unwrap().1.clone();
    // It counts its seconds, and its load has a planned end.
    let mut all = BTreeMap::new();
    let mut seconds = |i: usize, now: Time| {
        let (number, digest) = all.entry(i).or_insert((0u64, String::new()));
        let mut second = Second { number: *number, ..Second::default() };
        // One more request a second: such a load without an end would go on for ever.
        (second.counts.requests, second.tick.requests) = (*number + 1, 1);
        second.digest = crate::sum::digest(digest, &second);
        (*number, *digest) = (*number + 1, second.digest.clone());
        (now > MS(3_000)).then(|| FromAgent::Second(Box::new(second)))
    };
    let (mut c, _) = prepared(leading(2, OnLoss::Continue, planned(Some(MS(10_000)))));
    (0..2).for_each(|i| started(&mut c, i));
    let start = c.start_at().unwrap();
    let over = lives(&mut c, &[0, 1], start, |i, now| if i == 1 { seconds(i, now) } else { None });
    assert!(over <= start + MS(11_000) + ENDING + BEAT && over > start + QUIET, "{over:?}");
    assert!(why(&c).contains("was to end after 10 s, and 31 s later"), "{}", why(&c));
    // It says nothing of its load.
    let (mut c, _) = prepared(leading(2, OnLoss::Continue, planned(None)));
    (0..2).for_each(|i| started(&mut c, i));
    let over = lives(&mut c, &[0, 1], start, |_, _| None);
    assert!(
        over <= start + QUIET + BEAT && why(&c).contains("counted nothing for 30 s"),
        "{over:?} {}",
        why(&c)
    );
    // Its seconds are empty, and no end is planned.
    let (mut c, _) = prepared(leading(2, OnLoss::Continue, planned(None)));
    (0..2).for_each(|i| started(&mut c, i));
    let mut all: BTreeMap<usize, (u64, String)> = BTreeMap::new();
    let over = lives(&mut c, &[0, 1], start, |i, now| {
        let (number, digest) = all.entry(i).or_default();
        let mut second = Second { number: *number, ..Second::default() };
        second.digest = crate::sum::digest(digest, &second);
        (*number, *digest) = (*number + 1, second.digest.clone());
        (now > MS(3_000)).then(|| FromAgent::Second(Box::new(second)))
    });
    assert!(
        over <= start + IDLE + BEAT && why(&c).contains("began or ended for 600 s"),
        "{over:?} {}",
        why(&c)
    );
}

#[test]
fn a_teardown_has_an_end_and_a_successor() {
    let expected = Expected { length: Some(MS(5_000)), tears_down: true, ..Expected::default() };
    let (mut c, _) = prepared(leading(2, OnLoss::Continue, expected));
    (0..2).for_each(|i| started(&mut c, i));
    let start = c.start_at().unwrap();
    // The other one has its task as soon as the first is lost, and may run it once the first has certainly cut its load.
    let lost = start + MS(2_000);
    let told = c.on(lost, Event::Closed(0, "reset".to_owned()));
    let may = Action::Send(1, ToAgent::Teardown);
    assert!(told.contains(&Action::Send(1, ToAgent::Succeed)) && !told.contains(&may), "{told:?}");
    let (mut now, mut then) = (lost, Vec::new());
    while !then.contains(&may) && now < lost + OVER_AFTER * 2 {
        now += MS(500);
        then = c.on(now, Event::Message(1, FromAgent::Beat));
    }
    assert_eq!(now, lost + OVER_AFTER, "{then:?}");
    // The first one may only stand still: it must know before its connection ends.
    let at = |wanted: Action| told.iter().position(|action| *action == wanted);
    let retires = at(Action::Send(0, ToAgent::Retire));
    assert!(retires.is_some() && retires < at(Action::Close(0)), "{told:?}");
    assert!(c.has_missed_teardown());
    c.on(now, Event::Message(1, FromAgent::TornDown));
    c.on(now, Event::Message(1, FromAgent::Ended(Box::default())));
    assert!(c.is_over() && !c.has_missed_teardown());
    // The last one left does not end its teardown.
    let (mut c, _) = prepared(leading(2, OnLoss::Continue, expected));
    (0..2).for_each(|i| started(&mut c, i));
    (0..2).for_each(|i| drop(c.on(start + MS(4_000), Event::Message(i, FromAgent::Beat))));
    let told = c.on(start + MS(5_000), Event::Message(1, FromAgent::Ended(Box::default())));
    assert!(told.contains(&Action::Send(0, ToAgent::Teardown)), "{told:?}");
    let over = lives(&mut c, &[0], start + MS(5_000), |_, _| None);
    let why = &c.agents()[0].lost.as_ref().unwrap().1;
    assert!(why.contains("no end of `teardown` within 600 s") && c.has_missed_teardown(), "{why}");
    assert!(over <= start + MS(5_000) + QUIET + ENDING + TEARDOWN_WHOLE, "{over:?}");
}

/// Who was lost while `teardown` was its task, and may run it although another agent does.
#[test]
fn an_agent_that_may_run_teardown_unseen_is_told() {
    type Leaves = fn() -> Event;
    let closed: Leaves = || Event::Closed(0, "reset".to_owned());
    let cut_off: Leaves = || Event::Message(0, FromAgent::CutOff);
    let malformed: Leaves = || Event::Malformed(0, "a lie".to_owned());
    let failed: Leaves =
        || Event::Message(0, FromAgent::Failed { why: vec!["full".to_owned()], tears_down: false });
    for (agents, on_loss, event, may) in [
        (2, OnLoss::Abort, closed, true),
        (2, OnLoss::Abort, cut_off, true),
        (2, OnLoss::Abort, malformed, true),
        (2, OnLoss::Abort, failed, false),
        // Cut off, it leaves `teardown` to those that go on.
        (2, OnLoss::Continue, closed, false),
        (2, OnLoss::Continue, cut_off, false),
        (1, OnLoss::Continue, closed, true),
    ] {
        let expected = Expected { length: Some(MS(5_000)), tears_down: true, ..Expected::default() };
        let (mut c, _) = prepared(leading(agents, on_loss, expected));
        (0..agents).for_each(|i| started(&mut c, i));
        let now = c.start_at().unwrap() + MS(1_000);
        c.on(now, event());
        assert_eq!(c.agents()[0].may_tear_down, may, "{agents} {on_loss:?} {:?}", event());
        assert!(c.agents()[0].lost.is_some() && c.agents().iter().skip(1).all(|a| !a.may_tear_down));
    }
    // It was allowed to run it: it may have begun.
    let expected = Expected { length: Some(MS(5_000)), tears_down: true, ..Expected::default() };
    let (mut c, _) = prepared(leading(2, OnLoss::Continue, expected));
    (0..2).for_each(|i| started(&mut c, i));
    let now = c.start_at().unwrap() + MS(1_000);
    c.on(now, Event::Message(1, FromAgent::Ended(Box::default())));
    c.on(now, Event::Closed(0, "reset".to_owned()));
    assert!(c.is_over() && c.has_missed_teardown() && c.agents()[0].may_tear_down);
}

#[test]
fn a_run_that_is_stopped_before_its_start_ends_in_order() {
    let expected = Expected { tears_down: true, ..Expected::default() };
    let (mut c, _) = prepared(leading(2, OnLoss::Abort, expected));
    let mut now = c.start_at().unwrap() - MS(500);
    c.on(now, Event::Stop(Stop::Leaving));
    c.on(now, Event::Message(1, FromAgent::Ended(Box::default())));
    // The first one runs `teardown`, for longer than a load may be late.
    while now < c.start_at().unwrap() + SILENCE * 2 {
        now += BEAT;
        c.on(now, Event::Message(0, FromAgent::Beat));
    }
    c.on(now, Event::Message(0, FromAgent::TornDown));
    c.on(now, Event::Message(0, FromAgent::Ended(Box::default())));
    assert!(c.is_over() && !c.has_missed_teardown() && c.agents().iter().all(|a| a.lost.is_none()));
    // Nobody stops one that does not begin.
    let (mut c, _) = prepared(leading(2, OnLoss::Abort, expected));
    let due = c.start_at().unwrap() + SILENCE;
    let mut now = MS(1_000);
    while now < due {
        (0..2).for_each(|i| drop(c.on(now, Event::Message(i, FromAgent::Beat))));
        now += BEAT;
    }
    c.on(due, Event::Tick);
    assert!(c.agents().iter().all(|a| a.lost.as_ref().is_some_and(|(_, why)| why.contains("did not start"))));
}

#[test]
fn an_agent_that_does_not_stop_does_not_take_the_teardown_with_it() {
    let expected = Expected { grace: MS(1_000), tears_down: true, ..Expected::default() };
    let (mut c, _) = prepared(leading(2, OnLoss::Abort, expected));
    (0..2).for_each(|i| started(&mut c, i));
    let start = c.start_at().unwrap();
    c.on(start + MS(1_000), Event::Stop(Stop::Gracefully));
    let mut now = start + MS(1_000);
    let mut told = Vec::new();
    while told.is_empty() && now < start + MS(20_000) {
        now += BEAT;
        (0..2).for_each(|i| told.extend(c.on(now, Event::Message(i, FromAgent::Beat))));
        told.retain(|action| *action == Action::Send(0, ToAgent::Teardown));
    }
    assert!(c.agents()[1].lost.is_some() && c.agents()[0].lost.is_none() && !told.is_empty());
}

#[test]
fn what_cannot_be_cuts_the_agent() {
    type Lie = fn(Time) -> Event;
    let lies: [Lie; 4] = [
        |_| Event::Malformed(1, "a lie\x1b[2J".to_owned()),
        |now| Event::Message(1, FromAgent::Started { at_ns: nanos(now + MS(2 * 3_600_000 + 5_000)) }),
        |_| {
            let mut second = Second::default();
            second.tick.end_ns = 9_000_000_000;
            Event::Message(1, FromAgent::Second(Box::new(second)))
        },
        |_| {
            let report = Report { duration_ns: 9_000_000_000, ..Report::default() };
            Event::Message(1, FromAgent::Ended(Box::new(report)))
        },
    ];
    for lie in lies {
        let (mut c, _) = running(OnLoss::Abort);
        let now = c.start_at().unwrap() + MS(1_000);
        (0..2).for_each(|i| drop(c.on(now, Event::Message(i, FromAgent::Beat))));
        let told = c.on(now, lie(now));
        assert!(told.contains(&Action::Close(1)), "{told:?}");
        let seen = &c.agents()[1];
        let (why, lost) = (seen.mismatch.as_ref().unwrap(), &seen.lost.as_ref().unwrap().1);
        assert!(!why.contains('\x1b') && *lost == format!("it was cut: {why}"), "{why}, {lost}");
    }
    // Before the start, nothing began.
    let mut c = coordinator(1, OnLoss::Abort);
    c.on(MS(1), Event::Malformed(0, "no".to_owned()));
    assert!(c.is_over() && c.agents()[0].refused == ["it was cut: no"]);
}
