//! One endpoint's health, by a clock that is passed in.

use super::*;
use crate::error::CONNECT_REFUSED;
use weir_telemetry::{Setup, Telemetry};

const MS: Duration = Duration::from_millis(1);

fn health() -> Arc<Health> {
    Health::new("u".into(), "e".into(), Telemetry::new(Setup::default()).endpoint("u", "e"))
}

/// How many seconds until time alone changes something.
fn seconds_to(health: &Health, now: Instant) -> u64 {
    (health.due().unwrap() - clock(now)).div_ceil(1000)
}

fn reasons(health: &Health) -> Vec<&'static str> {
    health.whys().iter().map(|why| why.reason.name()).collect()
}

fn policy(errors: u32) -> Outlier {
    Outlier { errors, window: AVOIDED_AT_MOST, rate: None, eject: 10 * AVOIDED, max: 0.5 }
}

#[test]
fn is_avoided_for_twice_as_long_each_time() {
    let (health, mut now) = (health(), Instant::now());
    let mut waits = Vec::new();
    for _ in 0..7 {
        health.connect_failed(&CONNECT_REFUSED, now);
        let due = health.due().unwrap();
        waits.push(seconds_to(&health, now));
        now += Duration::from_millis(due - clock(now));
        assert!(!health.claim_trial(now - 5 * MS, MS), "too early");
        assert!(health.claim_trial(now + MS, 3 * AVOIDED));
        assert!(!health.claim_trial(now + AVOIDED, MS), "one trial at a time");
        now += 2 * AVOIDED;
    }
    assert_eq!(waits, [1, 2, 4, 8, 16, 30, 30]);
    assert!(!health.cells.healthy());
    health.connected(now);
    assert!(health.cells.healthy() && health.whys().is_empty() && health.due().is_none());
    // It must stay healthy for a while to be forgiven.
    health.connect_failed(&CONNECT_REFUSED, now + AVOIDED);
    assert_eq!(seconds_to(&health, now + AVOIDED), 30);
    health.connected(now + AVOIDED);
    health.connect_failed(&CONNECT_REFUSED, now + AVOIDED + FORGIVEN);
    assert_eq!(seconds_to(&health, now + AVOIDED + FORGIVEN), 1);
}

#[test]
fn failures_at_the_same_time_count_once() {
    let (health, now) = (health(), Instant::now());
    for i in 0..100 {
        health.connect_failed(&CONNECT_REFUSED, now + MS * i);
    }
    assert_eq!(seconds_to(&health, now), 1);
}

#[test]
fn is_dialled_once_in_a_while_when_all_are_out() {
    let (health, now) = (health(), Instant::now());
    assert!(health.may_dial(now) && health.may_dial(now));
    health.connect_failed(&CONNECT_REFUSED, now);
    let dials = (0..500).filter(|i| health.may_dial(now + MS * *i)).count();
    assert_eq!(dials, 4, "after 101, 202, 303 and 404 ms");
    health.connected(now);
    assert!(health.may_dial(now) && health.may_dial(now));
}

#[test]
fn every_change_is_seen() {
    let (health, now, before) = (health(), Instant::now(), changes());
    health.connect_failed(&CONNECT_REFUSED, now);
    let out = changes();
    health.connected(now);
    assert!(out > before && changes() > out);
}

#[test]
fn one_that_is_ejected_comes_back_in_time_and_not_by_a_connect() {
    let (health, now) = (health(), Instant::now());
    let policy = policy(2);
    let fail = || assert!(!health.answered(false, &policy, now, || (0, 3)));
    fail();
    assert!(!health.is_out());
    fail();
    assert_eq!(health.standing(), RotationState::Suspect);
    assert!(health.may_dial(now) && health.may_dial(now));
    assert_eq!(health.whys()[0].cause, "errors_in_a_row");
    health.connected(now);
    health.tick(now + 9 * AVOIDED);
    assert!(health.is_out(), "it takes connections, and answers badly");
    let back = now + 11 * AVOIDED;
    health.tick(back);
    assert!(!health.is_out());
    let fail = || assert!(!health.answered(false, &policy, back, || (0, 3)));
    fail();
    fail();
    assert_eq!(seconds_to(&health, back), 20, "twice as long");
}

#[test]
fn one_beyond_the_ceiling_is_spared() {
    let (health, now) = (health(), Instant::now());
    let policy = policy(1);
    assert!(health.answered(false, &policy, now, || (1, 2)), "half of two may be out, and is");
    assert!(!health.answered(false, &policy, now, || (0, 1)) && !health.is_out(), "the only one");
    assert!(!health.answered(true, &policy, now, || (0, 2)) && !health.is_out(), "it answered well");
    assert!(!health.answered(false, &policy, now, || (0, 2)) && health.is_out(), "nobody else is out");
}

#[test]
fn an_ejection_is_short_when_all_answer_badly() {
    let (health, now) = (health(), Instant::now());
    let policy = policy(1);
    let eject = |at| assert!(!health.answered(false, &policy, at, || (0, 4)));
    eject(now);
    health.doubt_ejection(now);
    assert_eq!(seconds_to(&health, now), 2);
    health.doubt_ejection(now + AVOIDED);
    assert_eq!(seconds_to(&health, now), 2, "it is not put off");
    let back = now + 3 * AVOIDED;
    health.tick(back);
    assert!(!health.is_out());
    eject(back);
    assert_eq!(seconds_to(&health, back), 10, "the one before does not count");
    let other = self::health();
    other.doubt_ejection(now);
    assert!(!other.is_out());
    other.put(ByHand::Out(60 * AVOIDED), now);
    other.doubt_ejection(now);
    assert_eq!(seconds_to(&other, now), 60, "an operator's word stands");
}

#[test]
fn one_whose_time_is_over_is_to_be_tried() {
    let (health, now) = (health(), Instant::now());
    assert!(!health.is_to_be_tried(now));
    health.connect_failed(&CONNECT_REFUSED, now);
    let due = now + AVOIDED + MS;
    assert!(!health.is_to_be_tried(now) && health.is_to_be_tried(due));
    for at in (0..2_000).step_by(3).map(|tenths| now + AVOIDED - 100 * MS + tenths * MS / 10) {
        assert_eq!(health.whys()[0].left(at).is_none(), health.is_to_be_tried(at), "one clock for both");
    }
    assert!(health.claim_trial(due, AVOIDED) && !health.claim_trial(due, AVOIDED), "by one");
    health.connect_failed(&CONNECT_REFUSED, due);
    assert!(!health.is_to_be_tried(due), "it is avoided for longer");
    health.probe_failed("probe_status", "it answered 503", due);
    assert!(!health.is_to_be_tried(due + 5 * AVOIDED), "that is not all that is wrong with it");
    health.probe_passed(due);
    health.connected(due);
    assert!(!health.is_out() && !health.is_to_be_tried(due + 5 * AVOIDED));
}

#[test]
fn several_reasons_hold_side_by_side() {
    let (health, now) = (health(), Instant::now());
    health.connect_failed(&CONNECT_REFUSED, now);
    health.put(ByHand::Drain(5 * AVOIDED), now);
    assert_eq!(reasons(&health), ["draining", "unreachable"]);
    assert_eq!(health.standing(), RotationState::Draining);
    health.connected(now);
    assert_eq!(reasons(&health), ["draining"]);
    health.put(ByHand::Out(20 * AVOIDED), now);
    assert_eq!(
        (reasons(&health), health.standing()),
        (vec!["out"], RotationState::Out),
        "one takes the other's place"
    );
    health.tick(now + 19 * AVOIDED);
    assert!(health.is_out() && !health.cells.healthy());
    health.tick(now + 21 * AVOIDED);
    assert!(!health.is_out() && health.cells.healthy(), "it ends by itself");
}

#[test]
fn an_operator_ends_all_but_what_probes_say() {
    let (health, now) = (health(), Instant::now());
    health.connect_failed(&CONNECT_REFUSED, now);
    health.probe_failed("probe_status", "it answered 503", now);
    assert!(!health.answered(false, &policy(1), now, || (0, 3)));
    health.put(ByHand::Drain(AVOIDED), now);
    health.put(ByHand::In, now);
    assert_eq!(reasons(&health), ["probe_failed"]);
    health.probe_passed(now);
    assert!(!health.is_out());
}

#[test]
fn what_is_known_goes_to_the_next_process() {
    let telemetry = Telemetry::new(Setup::default());
    let cells = |endpoint: &str| telemetry.endpoint("u", endpoint);
    let (now, upstream): (_, Arc<str>) = (Instant::now(), "u".into());
    let (one, two): (Arc<str>, Arc<str>) = ("1".into(), "2".into());
    let old = Healths::default();
    let (a, b) = (old.of(&upstream, &one, &cells("1")), old.of(&upstream, &two, &cells("2")));
    assert!(old.save().is_empty(), "all is well");
    assert!(!a.answered(false, &policy(1), now, || (0, 3)));
    a.put(ByHand::Drain(60 * AVOIDED), now);
    b.probe_failed("probe_status", "it answered 503", now);
    let new = Healths::default();
    new.inherit(&old.save());
    let again = new.of(&upstream, &one, &cells("1"));
    assert_eq!(reasons(&again), ["draining", "ejected"]);
    assert!((8..=10).contains(&seconds_to(&again, now)), "the rest of the ejection");
    let (was, is) = (a.whys()[0].since, again.whys()[0].since);
    assert!(was.duration_since(is).unwrap_or_default() < MS);
    assert_eq!(reasons(&new.of(&upstream, &two, &cells("2"))), ["probe_failed"]);
    assert!(Arc::ptr_eq(&again, &new.of(&upstream, &one, &cells("1"))), "there is one for each address");
    drop(again);
    assert!(reasons(&new.of(&upstream, &one, &cells("1"))).is_empty(), "it was forgotten with its endpoint");
    new.inherit(b"[{]");
}

#[test]
fn what_an_operator_said_stays_when_the_upstream_is_renamed() {
    let telemetry = Telemetry::new(Setup::default());
    let now = Instant::now();
    let of = |healths: &Healths, upstream: &str| {
        healths.of(&upstream.into(), &"1".into(), &telemetry.endpoint(upstream, "1"))
    };
    let begin = |healths: &Healths, upstreams: &[&str]| healths.begin(upstreams.iter().copied());
    let healths = Healths::default();
    begin(&healths, &["old", "other"]);
    let old = of(&healths, "old");
    old.put(ByHand::Drain(60 * AVOIDED), now);
    old.probe_failed("probe_status", "it answered 503", now);
    assert!(reasons(&of(&healths, "other")).is_empty(), "both are there: it is no other name");

    begin(&healths, &["new"]);
    let new = of(&healths, "new");
    assert_eq!(reasons(&new), ["draining"], "what probes say is theirs to say again");
    assert!([&old, &new].into_iter().all(|health| health.whys()[0].left(now).is_some()));

    // In an upgrade too.
    let next = Healths::default();
    next.inherit(&healths.save());
    begin(&next, &["newer"]);
    assert!(reasons(&of(&next, "newer")).is_empty(), "two are gone that have it: nobody knows which it was");
    drop(old);
    let next = Healths::default();
    next.inherit(&healths.save());
    begin(&next, &["newer"]);
    assert_eq!(reasons(&of(&next, "newer")), ["draining"]);
}

#[test]
fn one_that_is_gone_is_not_counted_as_unwell() {
    let cells = Telemetry::new(Setup::default()).endpoint("u", "e");
    let health = Health::new("u".into(), "e".into(), cells.clone());
    health.put(ByHand::Out(AVOIDED), Instant::now());
    assert!(!cells.healthy());
    drop(health);
    assert!(cells.healthy());
}
