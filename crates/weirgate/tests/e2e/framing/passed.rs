//! Accepted messages, and their canonical form on the other side.

use weir_testkit::{Upstream, Weir, table};

use crate::support::{GET, OK, OK_BODY, expect_lines};

/// The topic, the request head without its empty line, and the lines that reach the upstream.
const HEADS: &[(&str, &str, &[&str])] = &[
    ("nothing to change", "GET / HTTP/1.1\r\nHost: h\r\nA: b", &["GET / HTTP/1.1", "Host: h", "A: b"]),
    (
        "white space around values",
        "GET / HTTP/1.1\r\nHost:h\r\nA: \t b  c \t",
        &["GET / HTTP/1.1", "Host: h", "A: b  c"],
    ),
    ("an empty value", "GET / HTTP/1.1\r\nHost: h\r\nA:", &["GET / HTTP/1.1", "Host: h", "A: "]),
    (
        "the same field twice",
        "GET / HTTP/1.1\r\nHost: h\r\nA: 1\r\nA: 2",
        &["GET / HTTP/1.1", "Host: h", "A: 1", "A: 2"],
    ),
    (
        "keep-alive",
        "GET / HTTP/1.1\r\nHost: h\r\nConnection: keep-alive\r\nKeep-Alive: 5",
        &["GET / HTTP/1.1", "Host: h"],
    ),
    (
        "a nominated field",
        "GET / HTTP/1.1\r\nHost: h\r\nConnection: X-Mine\r\nX-Mine: 1\r\nB: 2",
        &["GET / HTTP/1.1", "Host: h", "B: 2"],
    ),
    (
        "nominated in two fields and any case",
        "GET / HTTP/1.1\r\nHost: h\r\nConnection: x-a\r\nX-A: 1\r\nX-B: 2\r\nConnection: close, X-b",
        &["GET / HTTP/1.1", "Host: h"],
    ),
    (
        "Proxy-Connection",
        "GET / HTTP/1.1\r\nHost: h\r\nProxy-Connection: keep-alive",
        &["GET / HTTP/1.1", "Host: h"],
    ),
    ("TE", "GET / HTTP/1.1\r\nHost: h\r\nConnection: TE\r\nTE: gzip", &["GET / HTTP/1.1", "Host: h"]),
    (
        "an upgrade without its option",
        "GET / HTTP/1.1\r\nHost: h\r\nUpgrade: websocket",
        &["GET / HTTP/1.1", "Host: h"],
    ),
    (
        "Host cannot be nominated",
        "GET / HTTP/1.1\r\nHost: h\r\nConnection: Host",
        &["GET / HTTP/1.1", "Host: h"],
    ),
    (
        "authentication cannot be nominated",
        "GET / HTTP/1.1\r\nHost: h\r\nConnection: Authorization, Cookie\r\nAuthorization: a\r\nCookie: c=d",
        &["GET / HTTP/1.1", "Host: h", "Authorization: a", "Cookie: c=d"],
    ),
    ("a host with a port", "GET / HTTP/1.1\r\nHost: h:8080", &["GET / HTTP/1.1", "Host: h:8080"]),
    ("an IPv6 host", "GET / HTTP/1.1\r\nHost: [::1]:80", &["GET / HTTP/1.1", "Host: [::1]:80"]),
    ("absolute form", "GET http://h/a?b HTTP/1.1\r\nHost: h", &["GET /a?b HTTP/1.1", "Host: h"]),
    ("absolute form in any case", "GET HTTP://H/a HTTP/1.1\r\nHost: h", &["GET /a HTTP/1.1", "Host: h"]),
    ("absolute form without a path", "GET http://h HTTP/1.1\r\nHost: h", &["GET / HTTP/1.1", "Host: h"]),
    (
        "absolute form with a query alone",
        "GET http://h?q HTTP/1.1\r\nHost: h",
        &["GET /?q HTTP/1.1", "Host: h"],
    ),
];

/// A target, and the one that reaches the upstream.
const TARGETS: &[(&str, &str)] = &[
    ("/", "/"),
    ("/a/b", "/a/b"),
    ("/a/", "/a/"),
    ("/a?", "/a?"),
    ("/a?b=%zz&c", "/a?b=%zz&c"),
    ("/%61%7e", "/a~"),
    ("/a%2fb", "/a%2Fb"),
    ("/%c3%a9", "/%C3%A9"),
    ("/a%20b", "/a%20b"),
    ("/a/./b/.", "/a/b/"),
    ("/a/../b", "/b"),
    ("/a/b/..", "/a/"),
    ("/a/%2e%2E/b", "/b"),
    ("/a/%2e/b", "/a/b"),
    ("//a///b//", "/a/b/"),
    ("/a//../b", "/b"),
    ("/...", "/..."),
    ("/a..b", "/a..b"),
    ("/%252e%252e/", "/%252e%252e/"),
    ("/a?../../b//%2e", "/a?../../b//%2e"),
    ("/a;b=c/d,e:f@g", "/a;b=c/d,e:f@g"),
];

#[test]
fn heads() {
    let upstream = Upstream::fixed(OK);
    let weir = Weir::in_front_of(&upstream);
    table(
        HEADS,
        |(what, ..)| *what,
        |(_, head, lines)| {
            upstream.forget();
            weir.client().ask(format!("{head}\r\n\r\n")).expect_status(200);
            expect_lines(&upstream.take_request().head.raw, lines);
        },
    );
}

#[test]
fn targets() {
    let upstream = Upstream::fixed(OK);
    let weir = Weir::in_front_of(&upstream);
    table(
        TARGETS,
        |(target, _)| *target,
        |(target, canonical)| {
            upstream.forget();
            weir.client().ask(format!("GET {target} HTTP/1.1\r\nHost: h\r\n\r\n")).expect_status(200);
            assert_eq!(upstream.take_request().head.line, format!("GET {canonical} HTTP/1.1"));
        },
    );
}

#[test]
fn slashes_are_kept_where_the_listener_says_so() {
    let upstream = Upstream::fixed(OK);
    let weir = Weir::start(&format!(
        "listeners: {{ web: {{ address: 127.0.0.1:0, slashes: keep }} }}\n\
         upstreams: {{ up: {{ endpoints: [{}] }} }}\n{}\n",
        upstream.address(),
        crate::support::ALL_TO_UP
    ));
    weir.client().get("//a///b").expect_status(200);
    assert_eq!(upstream.take_request().head.line, "GET //a///b HTTP/1.1");
}

#[test]
fn obs_text_is_passed_as_it_is() {
    let upstream = Upstream::fixed(OK);
    let weir = Weir::in_front_of(&upstream);
    weir.client().ask(b"GET / HTTP/1.1\r\nHost: h\r\nA: caf\xe9\r\n\r\n").expect_status(200);
    let raw = upstream.take_request().head.raw;
    assert!(raw.windows(4).any(|bytes| bytes == b"caf\xe9"), "{}", raw.escape_ascii());
}

#[test]
fn an_http_1_0_request_without_a_host_is_served() {
    let upstream = Upstream::fixed(OK);
    let weir = Weir::in_front_of(&upstream);
    weir.client().ask("GET / HTTP/1.0\r\n\r\n").expect_status(200);
    // HTTP/1.1 towards the upstream, which requires exactly one Host (RFC 9112 §3.2).
    assert_eq!(upstream.take_request().head.all("host").len(), 1);
}

#[test]
fn the_framing_cannot_be_nominated() {
    let upstream = Upstream::fixed(OK);
    let weir = Weir::in_front_of(&upstream);
    let nominated =
        "POST / HTTP/1.1\r\nHost: h\r\nConnection: Content-Length\r\nContent-Length: 3\r\n\r\nabc";
    let response = weir.client().ask(nominated);
    if response.status == 200 {
        assert_eq!(upstream.take_request().body.bytes, b"abc");
    } else {
        response.expect_status(400);
    }
}

#[test]
fn a_body_of_a_get_is_passed_on() {
    let upstream = Upstream::fixed(OK);
    let weir = Weir::in_front_of(&upstream);
    let mut client = weir.client();
    client.ask("GET / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc").expect_status(200);
    assert_eq!(upstream.take_request().body.bytes, b"abc");
    client.get("/").expect_status(200);
}

#[test]
fn hop_by_hop_fields_of_an_answer_stay_here() {
    let upstream = Upstream::listen();
    let weir = Weir::in_front_of(&upstream);
    let (mut client, mut conn) = weir.begin(&upstream, GET);
    conn.send(
        "HTTP/1.1 200 OK\r\nConnection: close, X-Mine\r\nX-Mine: 1\r\nKeep-Alive: timeout=5\r\n\
         Proxy-Connection: close\r\nUpgrade: h2c\r\nX-Ours: 2\r\nContent-Length: 2\r\n\r\nok",
    );
    let response = client.read_response();
    response.expect_status(200).expect_header("x-ours", "2").expect_body("ok");
    for gone in ["connection", "x-mine", "keep-alive", "proxy-connection", "upgrade"] {
        response.expect_no_header(gone);
    }
    // It closes its own connection, not the client's.
    conn.expect_close();
    client.send(GET);
    let mut conn = upstream.accept_request();
    conn.send(OK_BODY);
    client.read_response().expect_body("ok");
}
