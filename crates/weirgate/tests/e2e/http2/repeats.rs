//! Heads that repeat on a connection. What Weir remembers of them never reaches another user or a later config.

use weir_testkit::Weir;
use weir_testkit::h2::{H2Origin, Message, Options};

use super::{BOTH, H2C, get, weir_with};
use crate::cause::TOO_MANY_HEADERS;
use crate::support::ALL_TO_UP;

/// Users with names of one length, so that their heads differ in few bytes.
const USERS: [&str; 3] = ["alice", "bobby", "carol"];

/// The fields by which an upstream may tell users apart.
const APART: [&str; 6] = [":authority", ":path", "authorization", "cookie", "x-first", "x-key"];

/// The value of such a field in a request of this user.
fn value_of(name: &str, user: &str) -> String {
    match name {
        ":authority" => format!("{user}.test"),
        ":path" => format!("/{user}"),
        "authorization" => format!("Bearer {user}"),
        "cookie" => format!("session={user}"),
        _ => user.to_owned(),
    }
}

/// A request that differs from those of others in this field only.
fn request<'a>(name: &'a str, value: &'a str) -> Vec<(&'a str, &'a str)> {
    let mut fields =
        get(&[("x-first", "-"), ("x-apart", name), ("user-agent", "somebody"), ("accept", "*/*")]);
    match fields.iter_mut().find(|(known, _)| *known == name) {
        Some(field) => field.1 = value,
        None => fields.push((name, value)),
    }
    fields
}

#[track_caller]
fn expect_nobody_but(user: &str, seen: &Message) {
    let text = format!("{seen:?}");
    for other in USERS.iter().filter(|other| **other != user) {
        assert!(!text.contains(other), "{user} sees {other}:\n{text}");
    }
}

/// Each client's connection remembers that client's heads, and the one to the upstream remembers those of all.
#[test]
fn nobody_gets_the_head_of_another() {
    let origin = H2Origin::new(Options::default(), |peer, stream, request| {
        let name = request.header("x-apart").unwrap_or_default().to_owned();
        let value = request.header(&name).unwrap_or_default().to_owned();
        let user = USERS.into_iter().find(|user| value.contains(user)).expect("a user");
        expect_nobody_but(user, &request);
        let mut fields = vec![(":status", "200"), ("content-type", "text/plain"), ("x-told", &value)];
        if name == "cookie" {
            fields.push(("set-cookie", &value));
        }
        peer.answer(stream, &fields, value.as_str());
    });
    let weir = weir_with(origin.address(), H2C, "workers: 1");
    let mut clients = USERS.map(|_| weir.h2());
    for name in APART {
        for _ in 0..3 {
            for (user, client) in USERS.iter().zip(&mut clients) {
                let value = value_of(name, user);
                // A head is known from its third time on.
                for _ in 0..4 {
                    let stream = client.request(&request(name, &value), true);
                    let answer = client.message(stream);
                    answer.expect_status(200).expect_header("x-told", &value).expect_body(&value);
                    assert_eq!(answer.header("set-cookie").is_some(), name == "cookie");
                    expect_nobody_but(user, &answer);
                }
            }
        }
    }
    assert_eq!((origin.connections(), origin.requests()), (1, APART.len() * 3 * 3 * 4));
    origin.verify();
}

/// Routes, filters and limits of the current config apply to a head that was remembered under another one.
#[test]
fn a_known_head_meets_the_config_of_its_time() {
    let origin = H2Origin::answering(|request| {
        let told = |name| request.header(name).unwrap_or("-");
        format!("{} {}", told("x-set"), told("x-forwarded-for")).into()
    });
    let config = |more: &str| {
        let endpoint = origin.address();
        format!(
            "workers: 1\n{BOTH}\nupstreams: {{ up: {{ endpoints: [{endpoint}], {H2C} }} }}\n{ALL_TO_UP}\n{more}\n"
        )
    };
    let setting =
        |value: &str| format!("filters: [ {{ headers: {{ request: {{ set: {{ x-set: {value} }} }} }} }} ]");
    let trusting = "trusted_proxies: [ 127.0.0.1 ]\n";
    let weir = Weir::start(&config(""));
    let mut client = weir.h2();
    let mut ask = |count: usize| {
        let asked = get(&[("x-forwarded-for", "203.0.113.7"), ("accept", "*/*")]);
        let streams: Vec<u32> = (0..count).map(|_| client.request(&asked, true)).collect();
        streams.into_iter().map(|stream| client.message(stream)).collect::<Vec<_>>()
    };
    let claimed = "203.0.113.7, 127.0.0.1";
    for (more, told) in [
        (trusting.to_owned() + &setting("one"), format!("one {claimed}")),
        (trusting.to_owned() + &setting("two"), format!("two {claimed}")),
        (setting("two"), "two 127.0.0.1".to_owned()),
        (trusting.to_owned(), format!("- {claimed}")),
    ] {
        weir.reload_with(&config(&more)).unwrap();
        for answer in ask(4) {
            answer.expect_status(200).expect_body(&told);
        }
    }
    weir.reload_with(&config("limits: { headers: 2 }")).unwrap();
    for answer in ask(2) {
        answer.expect_cause(TOO_MANY_HEADERS);
    }
    weir.reload_with(&config("limits: { headers: 3 }")).unwrap();
    for answer in ask(2) {
        answer.expect_status(200).expect_body("- 127.0.0.1");
    }
    origin.verify();
}
