//! Conversations with the writer of statuses: differences, conflicts, other controllers.

use super::*;
use crate::api::watched;
use serde_json::json;

const SECOND: Duration = Duration::from_secs(1);
const US: &str = "weir.dev/gateway";

fn target(name: &str) -> Target {
    Target { kind: "HTTPRoute", key: Name::new("n", name) }
}

fn object(name: &str, version: u64, status: &Value) -> Object {
    let metadata =
        json!({ "namespace": "n", "name": name, "uid": name, "resourceVersion": version.to_string() });
    Object::new(watched("HTTPRoute").unwrap(), json!({ "metadata": metadata, "status": status })).unwrap()
}

fn wanted(reason: &str) -> Value {
    json!({ "reason": reason })
}

fn leader() -> Writer {
    let mut writer = Writer::new(US, 1);
    writer.on(Time::ZERO, "t", Event::Lead(true));
    writer
}

fn want(writer: &mut Writer, name: &str, status: &Value) -> Vec<Action> {
    writer.on(Time::ZERO, "t", Event::Want(target(name), Some(status.clone())))
}

fn see(writer: &mut Writer, name: &str, version: u64, status: &Value) -> Vec<Action> {
    writer.on(Time::ZERO, "t", Event::Seen(target(name), Some(object(name, version, status))))
}

#[test]
fn a_difference_is_written_once() {
    let mut writer = leader();
    assert_eq!(see(&mut writer, "a", 1, &json!({})), []);
    let write = want(&mut writer, "a", &wanted("x"));
    let expected = Action::Write { number: 1, target: target("a"), version: "1".into(), patch: wanted("x") };
    assert_eq!(write, [expected]);
    assert_eq!(want(&mut writer, "a", &wanted("x")), [], "under way");
    assert_eq!(writer.on(SECOND, "t", Event::Wrote(1, Ok(object("a", 2, &wanted("x"))))), []);
    assert_eq!(see(&mut writer, "a", 2, &wanted("x")), [], "our own write, seen by the watch");
    assert_eq!(see(&mut writer, "a", 1, &json!({})), [], "an older version, seen late");
    assert!(writer.is_settled());
}

#[test]
fn followers_write_nothing_and_a_new_leader_writes_what_differs() {
    let mut writer = Writer::new(US, 1);
    see(&mut writer, "a", 1, &json!({}));
    see(&mut writer, "b", 2, &wanted("x"));
    assert_eq!(want(&mut writer, "a", &wanted("x")), []);
    assert_eq!(want(&mut writer, "b", &wanted("x")), []);
    let writes = writer.on(SECOND, "t", Event::Lead(true));
    assert!(matches!(&writes[..], [Action::Write { target: t, .. }] if *t == target("a")), "{writes:?}");
    writer.on(SECOND, "t", Event::Lead(false));
    assert_eq!(want(&mut writer, "b", &wanted("y")), []);
}

#[test]
fn a_conflict_is_read_again_and_then_left_for_a_while() {
    let mut writer = leader();
    see(&mut writer, "a", 1, &json!({}));
    let mut actions = want(&mut writer, "a", &wanted("x"));
    for conflict in 1..=CONFLICTS {
        let [Action::Write { number, .. }] = actions[..] else { panic!("{actions:?}") };
        let read = writer.on(SECOND, "t", Event::Wrote(number, Err(ApiError::Conflict)));
        let [Action::Read(number, _)] = read[..] else { panic!("{read:?}") };
        let newer = object("a", 10 + u64::from(conflict), &json!({ "other": conflict }));
        actions = writer.on(SECOND, "t", Event::Read(number, Ok(newer)));
        let [Action::Write { ref version, ref patch, .. }] = actions[..] else { panic!("{actions:?}") };
        assert_eq!(**version, (10 + conflict).to_string());
        assert_eq!(*patch, wanted("x"), "of what is there now");
    }
    let [Action::Write { number, .. }] = actions[..] else { panic!("{actions:?}") };
    assert_eq!(writer.on(SECOND, "t", Event::Wrote(number, Err(ApiError::Conflict))), []);
    let next = writer.next();
    assert!(next > SECOND && next != Time::MAX, "{next:?}");
    assert!(matches!(writer.on(next, "t", Event::Tick)[..], [Action::Read(..)]));
}

#[test]
fn a_burst_is_limited_and_complete() {
    let mut writer = leader();
    let mut actions = Vec::new();
    for at in 0..100 {
        let name = format!("r{at}");
        actions.extend(see(&mut writer, &name, 1, &json!({})));
        actions.extend(want(&mut writer, &name, &wanted("x")));
    }
    let (mut written, mut under_way) = (0, actions);
    while !under_way.is_empty() {
        assert!(under_way.len() <= AT_ONCE);
        let Action::Write { number, target, .. } = under_way.remove(0) else { panic!("only writes") };
        written += 1;
        let stored = Ok(object(&target.key.name, 2, &wanted("x")));
        under_way.extend(writer.on(SECOND, "t", Event::Wrote(number, stored)));
    }
    assert!(written == 100 && writer.is_settled(), "{written}");
}

#[test]
fn two_controllers_do_not_fight_for_ever() {
    let mut writer = leader();
    want(&mut writer, "a", &wanted("x"));
    let (mut now, mut version, mut writes, mut said) = (Time::ZERO, 1, 0, 0);
    while now < 600 * SECOND {
        version += 1;
        let undone = Event::Seen(target("a"), Some(object("a", version, &wanted("theirs"))));
        let mut actions = writer.on(now, "t", undone);
        actions.extend(writer.on(now, "t", Event::Tick));
        for action in actions {
            match action {
                Action::Write { number, .. } => {
                    writes += 1;
                    version += 1;
                    writer.on(now, "t", Event::Wrote(number, Ok(object("a", version, &wanted("x")))));
                }
                Action::Say(Note::Undone(_)) => said += 1,
                other => panic!("{other:?}"),
            }
        }
        now += SECOND;
    }
    assert!((20..30).contains(&writes), "{writes} writes in ten minutes");
    assert!(said >= 1);
}

#[test]
fn what_we_may_not_write_is_said_once_a_kind_and_tried_rarely() {
    let mut writer = leader();
    let mut said = Vec::new();
    for name in ["a", "b"] {
        see(&mut writer, name, 1, &json!({}));
        let write = want(&mut writer, name, &wanted("x"));
        let [Action::Write { number, .. }] = write[..] else { panic!("{write:?}") };
        said.extend(writer.on(SECOND, "t", Event::Wrote(number, Err(ApiError::Forbidden("no".to_owned())))));
    }
    assert_eq!(said, [Action::Say(Note::Forbidden("patch", "HTTPRoute", "no".to_owned()))]);
    assert!(writer.next() >= 11 * SECOND);
    let next = writer.next();
    assert!(matches!(writer.on(next, "t", Event::Tick)[..], [Action::Write { .. }]));
}

/// A permission that no status waits for is not tried again, so nobody would notice that it has been granted.
#[test]
fn a_permission_is_missing_while_a_status_waits_for_it() {
    let missing = |writer: &Writer| writer.forbidden().collect::<Vec<_>>();
    let refused = || {
        let mut writer = leader();
        for name in ["a", "b"] {
            see(&mut writer, name, 1, &json!({}));
            let write = want(&mut writer, name, &wanted("x"));
            let [Action::Write { number, .. }] = write[..] else { panic!("{write:?}") };
            writer.on(SECOND, "t", Event::Wrote(number, Err(ApiError::Forbidden("no".to_owned()))));
        }
        assert_eq!(missing(&writer), [("patch", "HTTPRoute")]);
        writer
    };
    let mut writer = refused();
    writer.on(SECOND, "t", Event::Lead(false));
    assert_eq!(missing(&writer), [], "another replica writes");

    let mut writer = refused();
    writer.on(SECOND, "t", Event::Seen(target("a"), None));
    assert_eq!(missing(&writer).len(), 1, "the other one waits");
    writer.on(SECOND, "t", Event::Want(target("b"), None));
    assert_eq!(missing(&writer), [], "one is gone, and we have nothing to say about the other");

    let mut writer = refused();
    see(&mut writer, "a", 2, &wanted("x"));
    see(&mut writer, "b", 3, &wanted("x"));
    let next = writer.next() + 20 * SECOND;
    assert_eq!(writer.on(next, "t", Event::Tick), []);
    assert_eq!(missing(&writer), [], "somebody else has written both");

    // A RoleBinding may grant it in the namespace of one.
    let mut writer = refused();
    let next = writer.next() + 20 * SECOND;
    let writes = writer.on(next, "t", Event::Tick);
    let [Action::Write { number: first, .. }, Action::Write { number: second, .. }] = writes[..] else {
        panic!("{writes:?}")
    };
    let said = writer.on(next, "t", Event::Wrote(first, Ok(object("a", 2, &wanted("x")))));
    assert_eq!((said, missing(&writer).len()), (Vec::new(), 1));
    writer.on(next, "t", Event::Wrote(second, Err(ApiError::Conflict)));
    assert_eq!(missing(&writer), [], "who meets a conflict was permitted to write");
}

#[test]
fn an_object_that_is_gone_is_not_written() {
    let mut writer = leader();
    see(&mut writer, "a", 1, &json!({}));
    let write = want(&mut writer, "a", &wanted("x"));
    let [Action::Write { number, .. }] = write[..] else { panic!("{write:?}") };
    assert_eq!(writer.on(SECOND, "t", Event::Wrote(number, Err(ApiError::NotFound))), []);
    writer.on(SECOND, "t", Event::Seen(target("a"), None));
    writer.on(SECOND, "t", Event::Want(target("a"), None));
    assert!(writer.is_settled());
}

#[test]
fn an_object_that_came_back_under_its_name_is_written() {
    let mut writer = leader();
    see(&mut writer, "a", 1, &json!({}));
    let write = want(&mut writer, "a", &wanted("x"));
    let [Action::Write { number, .. }] = write[..] else { panic!("{write:?}") };
    writer.on(SECOND, "t", Event::Seen(target("a"), None));
    assert_eq!(see(&mut writer, "a", 3, &json!({})), [], "the write is under way");
    let next = writer.on(SECOND, "t", Event::Wrote(number, Err(ApiError::NotFound)));
    assert!(matches!(&next[..], [Action::Write { version, .. }] if **version == *"3"), "{next:?}");
}

#[test]
fn a_late_answer_about_an_earlier_object_changes_nothing() {
    let mut writer = leader();
    see(&mut writer, "a", 1, &json!({}));
    let write = want(&mut writer, "a", &wanted("x"));
    let [Action::Write { number, .. }] = write[..] else { panic!("{write:?}") };
    writer.on(SECOND, "t", Event::Seen(target("a"), None));
    let metadata = json!({ "namespace": "n", "name": "a", "uid": "another", "resourceVersion": "4" });
    let another = Object::new(watched("HTTPRoute").unwrap(), json!({ "metadata": metadata })).unwrap();
    writer.on(SECOND, "t", Event::Seen(target("a"), Some(another)));
    let next = writer.on(SECOND, "t", Event::Wrote(number, Ok(object("a", 2, &wanted("x")))));
    assert!(matches!(&next[..], [Action::Write { version, .. }] if **version == *"4"), "{next:?}");
}

/// The Lease may be lost while writes are under way: whatever their answers are, nothing follows them until this
/// replica leads again, and then only what differs is written.
#[test]
fn a_lease_lost_while_writing_ends_the_writes() {
    let answers: [fn() -> Result<Object, ApiError>; 3] = [
        || Ok(object("a", 2, &wanted("x"))),
        || Err(ApiError::Conflict),
        || Err(ApiError::Away("broken".to_owned(), None)),
    ];
    for answer in answers {
        let mut writer = leader();
        see(&mut writer, "a", 1, &json!({}));
        let write = want(&mut writer, "a", &wanted("x"));
        let [Action::Write { number, .. }] = write[..] else { panic!("{write:?}") };
        writer.on(SECOND, "t", Event::Lead(false));
        assert_eq!(want(&mut writer, "a", &wanted("y")), []);
        assert_eq!(writer.on(SECOND, "t", Event::Wrote(number, answer())), []);
        assert_eq!(writer.next(), Time::MAX, "nothing is tried again");
        // The other leader wrote what we want now.
        see(&mut writer, "a", 3, &wanted("y"));
        assert_eq!(writer.on(SECOND, "t", Event::Lead(true)), []);
        assert!(writer.is_settled());
        assert!(matches!(want(&mut writer, "a", &wanted("z"))[..], [Action::Write { .. }]));
    }
}
