//! Conversations with the election: one leads, and the other waits long enough.

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn seen(version: &str, holder: &str) -> Seen {
    Seen { version: version.to_owned(), holder: holder.to_owned(), duration: DURATION, transitions: 0 }
}

fn number_of(actions: &[Action]) -> u64 {
    let number = actions.iter().find_map(|action| match action {
        Action::Read(number) | Action::Write { number, .. } => Some(*number),
        _ => None,
    });
    number.unwrap_or_else(|| panic!("no request in {actions:?}"))
}

/// Leads from second 0 with version 1.
fn leader() -> Election {
    let mut a = Election::new("a", 1);
    let read = number_of(&a.on(Time::ZERO, Event::Tick));
    let create = a.on(Time::ZERO, Event::Read(read, Ok(None)));
    assert!(matches!(&create[..], [Action::Write { version: None, what: What::Acquire, .. }]));
    let won = a.on(Time::ZERO, Event::Wrote(number_of(&create), Ok(seen("1", "a"))));
    assert_eq!(won, [Action::Lead]);
    a
}

#[test]
fn a_leader_renews_and_leads_on() {
    let mut a = leader();
    let mut now = Time::ZERO;
    for version in 2..50 {
        now = a.next();
        let renew = a.on(now, Event::Tick);
        assert!(matches!(&renew[..], [Action::Write { what: What::Renew, .. }]), "{renew:?}");
        let wrote = Event::Wrote(number_of(&renew), Ok(seen(&version.to_string(), "a")));
        assert_eq!(a.on(now, wrote), []);
        assert!(a.leads(now));
    }
    assert!(now > 60 * SECOND);
}

#[test]
fn a_leader_without_a_server_stops_before_others_begin() {
    let mut a = leader();
    let mut now = Time::ZERO;
    while a.leads(now) {
        now = a.next();
        let actions = a.on(now, Event::Tick);
        if actions.contains(&Action::Yield) {
            break;
        }
        if !actions.is_empty() {
            a.on(now, Event::Read(number_of(&actions), Err(ApiError::Away(String::new(), None))));
            a.on(now, Event::Wrote(number_of(&actions), Err(ApiError::Away(String::new(), None))));
        }
    }
    assert_eq!(now, LEADS);

    // Another one saw the Lease at second 1 and takes it no earlier than 15 s later.
    let mut b = Election::new("b", 2);
    let mut now = SECOND;
    loop {
        let actions = b.on(now, Event::Tick);
        if let [Action::Read(number)] = actions[..] {
            let next = b.on(now, Event::Read(number, Ok(Some(seen("1", "a")))));
            if let [Action::Write { version, what, transitions, .. }] = &next[..] {
                assert_eq!((version.as_deref(), *what, *transitions), (Some("1"), What::Acquire, 1));
                break;
            }
        }
        now = b.next();
    }
    assert!((16 * SECOND..19 * SECOND).contains(&now), "{now:?}");
}

#[test]
fn a_renewal_counts_from_when_it_was_sent() {
    let mut a = leader();
    let sent = a.next();
    let renew = number_of(&a.on(sent, Event::Tick));
    let answered = sent + 3 * SECOND;
    a.on(answered, Event::Wrote(renew, Ok(seen("2", "a"))));
    assert!(a.leads(sent + LEADS - SECOND) && !a.leads(sent + LEADS));
}

#[test]
fn one_of_two_wins() {
    let (mut a, mut b) = (Election::new("a", 1), Election::new("b", 2));
    let now = Time::ZERO;
    let (read_a, read_b) = (number_of(&a.on(now, Event::Tick)), number_of(&b.on(now, Event::Tick)));
    let write_a = number_of(&a.on(now, Event::Read(read_a, Ok(None))));
    let write_b = number_of(&b.on(now, Event::Read(read_b, Ok(None))));
    assert_eq!(a.on(now, Event::Wrote(write_a, Ok(seen("1", "a")))), [Action::Lead]);
    assert_eq!(b.on(now, Event::Wrote(write_b, Err(ApiError::Exists))), []);
    assert!(a.leads(now) && !b.leads(now));
}

#[test]
fn another_holder_ends_the_lead_at_once() {
    let mut a = leader();
    let now = a.next();
    let renew = number_of(&a.on(now, Event::Tick));
    assert_eq!(a.on(now, Event::Wrote(renew, Err(ApiError::Conflict))), []);
    let now = a.next();
    let read = number_of(&a.on(now, Event::Tick));
    assert_eq!(a.on(now, Event::Read(read, Ok(Some(seen("9", "b"))))), [Action::Yield]);
    assert!(!a.leads(now));
}

#[test]
fn who_leaves_releases_the_lease() {
    let mut a = leader();
    let left = a.on(SECOND, Event::Leave);
    assert_eq!(left[0], Action::Yield);
    assert!(matches!(&left[1], Action::Write { what: What::Release, version: Some(v), .. } if v == "1"));
    assert_eq!((a.on(2 * SECOND, Event::Tick), a.next()), (Vec::new(), Time::MAX));

    let mut b = Election::new("b", 2);
    let read = number_of(&b.on(SECOND, Event::Tick));
    let taken = b.on(SECOND, Event::Read(read, Ok(Some(seen("2", "")))));
    assert!(matches!(&taken[..], [Action::Write { what: What::Acquire, .. }]), "without waiting");
}

#[test]
fn a_missing_permission_is_said_once() {
    let mut a = Election::new("a", 1);
    let mut said = Vec::new();
    for _ in 0..5 {
        let now = a.next();
        let read = number_of(&a.on(now, Event::Tick));
        said.extend(a.on(now, Event::Read(read, Err(ApiError::Forbidden("no".to_owned())))));
        assert!(a.next() >= now + 10 * SECOND);
    }
    assert_eq!(said, [Action::Refused("get", "no".to_owned())]);
}

#[test]
fn a_lease_that_claims_a_year_is_not_believed() {
    let mut b = Election::new("b", 2);
    let long = Seen { duration: 31_536_000 * SECOND, ..seen("1", "a") };
    let mut now = Time::ZERO;
    while now < 70 * SECOND {
        let read = number_of(&b.on(now, Event::Tick));
        if !b.on(now, Event::Read(read, Ok(Some(long.clone())))).is_empty() {
            return;
        }
        now = b.next();
    }
    panic!("it waits for a year");
}
