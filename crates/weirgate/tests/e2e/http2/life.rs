//! How a connection of HTTP/2 begins, lives through reloads, and ends.

use std::time::{Duration, Instant};

use weir_testkit::h2::{Frame, H2, Kind, code, flag, setting};
use weir_testkit::{Client, Upstream, Weir, alone, eventually};

use super::{BOTH, H2C, get, weir};
use crate::cause::VERSION;
use crate::support::{ALL_TO_UP, GET, OK_BODY};

/// A gateway that itself answers `ok`; its listener has these settings.
#[track_caller]
fn listening(listener: &str) -> Weir {
    Weir::start(&saying(listener, "ok"))
}

fn saying(listener: &str, body: &str) -> String {
    format!(
        "listeners: {{ web: {{ address: 127.0.0.1:0, {listener} }} }}\n\
         routes: {{ all: {{ match: {{ path: \"/*\" }}, respond: {{ status: 200, body: {body} }} }} }}\n"
    )
}

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

// === The beginning ===

#[test]
fn both_protocols_on_one_port() {
    let weir = listening("protocols: [http1, h2]");
    weir.client().get("/").expect_status(200).expect_body("ok");
    let mut client = weir.h2();
    let stream = client.get("/");
    client.message(stream).expect_status(200).expect_body("ok").expect_frames(&["HEADERS", "DATA 2 END"]);
    assert_eq!(client.setting(setting::CONNECT), Some(1));
}

#[test]
fn a_preface_in_pieces() {
    let weir = listening("protocols: [http1, h2]");
    let mut client = weir.client();
    let first =
        [PREFACE, &Frame::settings(&[]).bytes(), &Frame::headers(1, &get(&[]), true).bytes()].concat();
    for byte in first {
        client.send([byte]);
    }
    let mut client = H2::raw(client);
    client.message(1).expect_status(200).expect_body("ok");
}

#[test]
fn what_begins_like_a_preface_may_be_http1() {
    let upstream = Upstream::fixed(OK_BODY);
    let weir = weir(upstream.address(), "");
    let mut client = weir.client();
    for byte in b"PRINT / HTTP/1.1\r\nHost: weir.test\r\n\r\n" {
        client.send([*byte]);
    }
    client.read_response().expect_status(200);
    assert_eq!(upstream.take_request().head.line, "PRINT / HTTP/1.1");
    // A preface after a request is not a preface.
    client.send(PREFACE);
    assert_eq!(client.read_response().status / 100, 4);
}

#[test]
fn http1_alone_knows_no_preface() {
    let weir = listening("protocols: [http1]");
    let mut client = weir.client();
    client.send(PREFACE);
    let status = client.read_response().status;
    assert!([400, 505].contains(&status), "{status}");
}

#[test]
fn h2_alone_refuses_http1() {
    let weir = listening("protocols: [h2]");
    let mut client = weir.client();
    client.send(GET);
    client.read_response().expect_cause(VERSION);
    client.expect_close();
    let mut client = weir.h2();
    let stream = client.get("/");
    client.message(stream).expect_status(200);
}

#[test]
fn half_a_preface_is_cut() {
    let _alone = alone();
    for listener in ["protocols: [h2]", "protocols: [http1, h2]"] {
        let weir = listening(&format!("{listener}, timeouts: {{ head: 100ms }}"));
        let mut client = weir.client();
        client.send(&PREFACE[..10]);
        let started = Instant::now();
        client.read_to_close();
        assert!(started.elapsed() < Duration::from_secs(2));
    }
}

#[test]
fn a_preface_and_nothing_more_is_cut() {
    let weir = listening("protocols: [h2], timeouts: { head: 100ms }");
    for more in [Vec::new(), Frame::settings(&[]).bytes()] {
        let mut client = weir.client();
        client.send([PREFACE, &more].concat());
        let mut client = H2::raw(client);
        client.expect_end();
        assert!(client.go_aways() > 0);
    }
}

#[test]
fn a_head_that_does_not_end_is_cut() {
    let _alone = alone();
    let weir = listening("protocols: [h2], timeouts: { head: 200ms }");
    for flags in [0, flag::END_STREAM] {
        let mut client = weir.h2();
        let served = client.get("/");
        client.message(served).expect_status(200);
        let stream = client.next_stream();
        client.send(&Frame::new(Kind::Headers, flags, stream, [0x82]));
        let started = Instant::now();
        client.expect_end();
        assert!(started.elapsed() < Duration::from_secs(3), "{:?}", started.elapsed());
        assert!(client.go_aways() > 0);
    }
    super::counted(&weir, "head_timeout");
}

// === The end ===

#[test]
fn an_idle_connection_says_goodbye() {
    let _alone = alone();
    let weir = listening("protocols: [h2], timeouts: { keepalive: 100ms }");
    let mut client = weir.h2();
    let started = Instant::now();
    let stream = client.get("/");
    client.message(stream).expect_status(200);
    client.ping();
    client.expect_end();
    let took = started.elapsed();
    assert!(took >= Duration::from_millis(100) && took < Duration::from_secs(2), "{took:?}");
    assert_eq!(client.go_away(client.go_aways() - 1), (stream, code::NONE));
}

#[test]
fn a_connection_that_is_used_is_not_idle() {
    let upstream = Upstream::listen();
    let weir = Weir::start(&format!(
        "listeners: {{ web: {{ address: 127.0.0.1:0, protocols: [h2], timeouts: {{ keepalive: 50ms }} }} }}\n\
         upstreams: {{ up: {{ endpoints: [{}] }} }}\n{ALL_TO_UP}\n",
        upstream.address()
    ));
    let mut client = weir.h2();
    let stream = client.get("/");
    let mut conn = upstream.accept_request();
    client.expect_quiet(Duration::from_millis(200));
    conn.send(OK_BODY);
    client.message(stream).expect_status(200);
    client.expect_end();
}

#[test]
fn a_drain_in_two_steps() {
    let upstream = Upstream::listen();
    let mut weir = weir(upstream.address(), "");
    let address = weir.address("web");
    let (mut client, mut idle) = (weir.h2(), weir.h2());
    idle.ping();
    let first = client.get("/first");
    let mut conn = upstream.accept_request();
    client.ping();
    weir.signal(libc::SIGTERM);
    assert_eq!(client.peek_go_away(), (0x7fff_ffff, code::NONE));
    // It was sent before the client could know: it is served anyway.
    let second = client.get("/second");
    let mut other = upstream.accept_request();
    client.take_pings();
    client.ping();
    assert_eq!(client.go_away(1), (second, code::NONE));
    eventually("nobody new is let in", || !Client::can_connect(&address));
    for conn in [&mut other, &mut conn] {
        conn.send(OK_BODY);
    }
    client.message(first).expect_body("ok");
    client.message(second).expect_body("ok");
    client.expect_end();
    idle.expect_end();
    assert!(idle.go_aways() > 0);
    weir.wait_exit(Duration::from_secs(5)).expect_code(0);
}

#[test]
fn a_drain_finishes_a_body_under_way() {
    let upstream = Upstream::listen();
    let mut weir = weir(upstream.address(), H2C);
    let mut client = weir.h2();
    let stream = client.post("/");
    client.data(stream, "ha", false);
    let mut peer = H2::server(upstream.accept(), &weir_testkit::h2::Options::default());
    let (seen, _) = peer.accept();
    weir.signal(libc::SIGTERM);
    client.go_away(0);
    client.data(stream, "lf", true);
    peer.message(seen).expect_body("half");
    peer.headers(seen, &[(":status", "200")], false);
    peer.data(seen, "whole", false);
    client.wait(stream, "the body", |message| message.body == b"whole");
    peer.headers(seen, &[("x-sum", "1")], true);
    let answer = client.message(stream);
    assert_eq!(answer.trailers, [("x-sum".to_owned(), "1".to_owned())]);
    client.expect_end();
    weir.wait_exit(Duration::from_secs(5)).expect_code(0);
}

#[test]
fn a_drain_has_a_deadline() {
    let upstream = Upstream::listen();
    let mut weir = super::weir_with(upstream.address(), "", "shutdown: { drain: 200ms }");
    let mut client = weir.h2();
    client.get("/");
    let mut conn = upstream.accept_request();
    weir.signal(libc::SIGTERM);
    weir.wait_exit(Duration::from_secs(5)).expect_code(0);
    client.expect_end();
    conn.expect_close();
}

// === Reloads ===

#[test]
fn a_reload_keeps_connections_and_streams() {
    let upstream = Upstream::listen();
    let endpoint = upstream.address();
    let weir = weir(endpoint, H2C);
    let mut client = weir.h2();
    let slow = client.get("/slow");
    let mut peer = H2::server(upstream.accept(), &weir_testkit::h2::Options::default());
    let (seen, _) = peer.accept_whole();
    peer.headers(seen, &[(":status", "200")], false);
    peer.data(seen, "be", false);
    client.wait(slow, "its beginning", |message| message.body == b"be");
    let own = "new: { match: { path: /new }, respond: { status: 200, body: new } }";
    weir.reload_with(&format!(
        "{BOTH}\nupstreams: {{ up: {{ endpoints: [{endpoint}], {H2C} }} }}\n\
         routes: {{ all: {{ match: {{ path: \"/*\" }}, upstream: up }}, {own} }}\n"
    ))
    .unwrap();
    let stream = client.get("/new");
    client.message(stream).expect_body("new");
    // The upstream's connection is kept too.
    let stream = client.get("/other");
    let (other, _) = peer.accept_whole();
    peer.respond(other, &[(":status", "200")], "other");
    client.message(stream).expect_body("other");
    peer.data(seen, "fore", true);
    client.message(slow).expect_body("before");
    assert_eq!((upstream.connections(), client.go_aways()), (1, 0));
}

/// Timeouts that a reload changes apply from a connection's next request, as on HTTP/1.1.
#[test]
fn new_timeouts_apply_from_the_next_request() {
    let settings =
        |keepalive: &str| format!("protocols: [http1, h2], timeouts: {{ keepalive: {keepalive} }}");
    let weir = listening(&settings("60s"));
    let (mut http1, mut client) = (weir.client(), weir.h2());
    http1.get("/").expect_body("ok");
    let stream = client.get("/");
    client.message(stream).expect_body("ok");
    weir.reload_with(&saying(&settings("100ms"), "new")).unwrap();
    client.expect_quiet(Duration::from_millis(200));
    http1.get("/").expect_body("new");
    http1.expect_eof();
    let stream = client.get("/");
    client.message(stream).expect_body("new");
    client.expect_end();
    assert_eq!(client.go_away(client.go_aways() - 1), (stream, code::NONE));
}

#[test]
fn a_listener_that_goes_says_goodbye() {
    let weir = listening("protocols: [http1, h2]");
    let mut client = weir.h2();
    let stream = client.get("/");
    client.message(stream).expect_status(200);
    let moved = saying("protocols: [http1, h2]", "ok")
        .replace("web:", "other:")
        .replace("127.0.0.1:0", "127.0.0.2:0");
    weir.reload_with(&moved).unwrap();
    client.go_away(0);
    client.expect_end();
}
