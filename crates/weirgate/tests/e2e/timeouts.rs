//! Every wait is limited, and each limit has a cause.

use std::time::{Duration, Instant};

use weir_testkit::{Client, Upstream, Weir, alone, black_hole, eventually};

use crate::cause::{BODY_TIMEOUT, CONNECT_TIMEOUT, EXCHANGE_TIMEOUT, HEAD_TIMEOUT, RESPONSE_TIMEOUT};
use crate::health::metric;
use crate::support::{GET, OK, WEB, config, weir_with};

/// A gateway whose listener has these timeouts.
#[track_caller]
fn listening(upstream: &Upstream, timeouts: &str) -> Weir {
    Weir::start(&format!(
        "listeners: {{ web: {{ address: 127.0.0.1:0, timeouts: {{ {timeouts} }} }} }}\n\
         upstreams: {{ up: {{ endpoints: [{}] }} }}\n{}\n",
        upstream.address(),
        crate::support::ALL_TO_UP
    ))
}

// === The client's ===

#[test]
fn a_head_that_does_not_end() {
    let upstream = Upstream::fixed(OK);
    let weir = listening(&upstream, "head: 100ms");
    let mut client = weir.client();
    client.send("GET / HTTP/1.1\r\nHost: weir.test\r\n");
    client.read_response().expect_cause(HEAD_TIMEOUT);
    client.expect_close();
    assert_eq!(upstream.connections(), 0);
}

#[test]
fn a_head_in_drops_has_no_more_time_than_one_at_rest() {
    let upstream = Upstream::fixed(OK);
    let weir = listening(&upstream, "head: 200ms");
    let mut client = weir.client();
    client.set_deadline(Duration::from_millis(5));
    let started = Instant::now();
    // A byte every 5 ms, until the answer ends it.
    let answer = loop {
        let _ = client.try_send("G");
        if let Ok(response) = client.try_read_response() {
            break response;
        }
        assert!(started.elapsed() < Duration::from_secs(5), "{}", client.transcript());
    };
    answer.expect_cause(HEAD_TIMEOUT);
}

#[test]
fn the_second_head_has_a_timeout_too() {
    let upstream = Upstream::fixed(OK);
    let weir = listening(&upstream, "head: 100ms");
    let mut client = weir.client();
    client.get("/").expect_status(200);
    client.send("GET / HT");
    client.read_response().expect_cause(HEAD_TIMEOUT);
    client.expect_close();
}

#[test]
fn a_body_that_stops() {
    let upstream = Upstream::listen();
    let weir = listening(&upstream, "body: 100ms");
    let mut client = weir.client();
    client.send("POST / HTTP/1.1\r\nHost: weir.test\r\nContent-Length: 10\r\n\r\nhalf");
    client.read_response().expect_cause(BODY_TIMEOUT);
    client.expect_close();
    // The upstream never sees a complete request.
    drop(weir);
    assert!(upstream.requests().iter().all(|request| !request.complete));
}

#[test]
fn an_idle_connection_is_closed_without_a_word() {
    let upstream = Upstream::fixed(OK);
    let weir = listening(&upstream, "keepalive: 100ms");
    let mut client = weir.client();
    client.get("/").expect_status(200);
    client.expect_eof();
}

#[test]
fn a_connection_that_never_speaks_is_closed() {
    let upstream = Upstream::fixed(OK);
    let weir = listening(&upstream, "head: 100ms, keepalive: 100ms");
    let mut client = weir.client();
    // Closed, with or without a 408.
    client.read_to_close();
}

#[test]
fn a_connection_after_one_that_was_late_is_not_late() {
    let upstream = Upstream::fixed(OK);
    let weir = listening(&upstream, "head: 100ms");
    weir.client().read_to_close();
    for _ in 0..10 {
        Client::connect(weir.address("web")).reset();
    }
    let closed = |reason| metric(&weir, &["weir_connections_closed_total", reason]);
    eventually("all are gone", || closed("\"client\"") == Some(10.0));
    assert_eq!(closed("\"timeout\""), Some(1.0));
}

#[test]
fn a_handshake_that_does_not_begin() {
    let authority = weir_testkit::Authority::new();
    let weir = Weir::start(&format!(
        "listeners: {{ web: {{ address: 127.0.0.1:0, tls: {{ certificates: [ {} ] }}, timeouts: {{ handshake: 100ms }} }} }}\n\
         routes: {{ all: {{ match: {{ path: \"/*\" }}, respond: {{ status: 200, body: ok }} }} }}\n",
        authority.leaf(&["weir.test"]).yaml()
    ));
    let mut client = weir.client();
    client.expect_close();
}

// === The upstream's ===

#[test]
fn a_connect_that_is_not_answered() {
    let (_full, address) = black_hole();
    let weir = Weir::start(&config(&format!("endpoints: [{address}], timeouts: {{ connect: 100ms }}")));
    weir.client().get("/").expect_cause(CONNECT_TIMEOUT);
}

#[test]
fn an_answer_that_does_not_come() {
    let _alone = alone();
    let upstream = Upstream::listen();
    let weir = weir_with(&upstream, "timeouts: { response: 150ms }");
    let mut client = weir.client();
    let started = Instant::now();
    client.send(GET);
    let mut conn = upstream.accept_request();
    client.read_response().expect_cause(RESPONSE_TIMEOUT);
    let took = started.elapsed();
    assert!((150..1000).contains(&took.as_millis()), "{took:?}");
    conn.expect_close();
}

#[test]
fn an_answer_that_begins_and_stops_in_its_head() {
    let upstream = Upstream::listen();
    let weir = weir_with(&upstream, "timeouts: { response: 150ms }");
    let (mut client, mut conn) = weir.begin(&upstream, GET);
    conn.send("HTTP/1.1 200 OK\r\nContent-Le");
    client.read_response().expect_cause(RESPONSE_TIMEOUT);
    conn.expect_close();
}

#[test]
fn a_1xx_is_no_answer() {
    let upstream = Upstream::listen();
    let weir = weir_with(&upstream, "timeouts: { response: 150ms }");
    let (mut client, mut conn) = weir.begin(&upstream, GET);
    conn.send("HTTP/1.1 103 Early Hints\r\n\r\n");
    client.read_response().expect_status(103);
    client.read_response().expect_cause(RESPONSE_TIMEOUT);
}

#[test]
fn a_slow_request_does_not_use_up_the_time_of_the_answer() {
    let upstream = Upstream::listen();
    let weir = weir_with(&upstream, "timeouts: { response: 300ms }");
    let mut client = weir.client();
    client.send("POST / HTTP/1.1\r\nHost: weir.test\r\nContent-Length: 6\r\n\r\nabc");
    let mut conn = upstream.accept();
    conn.read_head();
    conn.expect("abc");
    conn.expect_silence(Duration::from_millis(400));
    client.send("def");
    conn.expect("def");
    conn.send(OK);
    client.read_response().expect_status(200);
}

#[test]
fn an_answer_that_stops_in_its_body_looks_cut_short() {
    let upstream = Upstream::listen();
    let weir = weir_with(&upstream, "timeouts: { body: 100ms }");
    let (mut client, mut conn) = weir.begin(&upstream, GET);
    conn.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf");
    let broken = client.try_read_response().expect_err("cut short");
    assert_eq!(broken.body, b"half");
    assert!(!broken.why.starts_with("Deadline"), "{broken:?}");
    conn.expect_close();
}

#[test]
fn the_whole_exchange() {
    let upstream = Upstream::listen();
    let weir = weir_with(&upstream, "timeouts: { exchange: 200ms, response: 10s }");
    let (mut client, mut conn) = weir.begin(&upstream, GET);
    client.read_response().expect_cause(EXCHANGE_TIMEOUT);
    conn.expect_close();
}

/// A request that waits for a connection under the limit has only the exchange's time for it.
#[test]
fn the_whole_exchange_where_no_connection_is_free() {
    let upstream = Upstream::listen();
    let weir = Weir::start(&format!(
        "{WEB}\nupstreams: {{ up: {{ endpoints: [{}], limits: {{ connections: 1 }}, timeouts: {{ connect: 60s }} }} }}\n\
         routes:\n  slow: {{ match: {{ path: /slow }}, upstream: up }}\n  quick: {{ match: {{ path: /quick }}, \
         filters: [ {{ timeout: {{ exchange: 200ms }} }} ], upstream: up }}\n",
        upstream.address()
    ));
    let (mut slow, mut conn) = weir.begin(&upstream, "GET /slow HTTP/1.1\r\nHost: weir.test\r\n\r\n");
    weir.client().get("/quick").expect_cause(EXCHANGE_TIMEOUT);
    conn.send(OK);
    slow.read_response().expect_status(200);
}

#[test]
fn a_tunnel_that_falls_silent() {
    let upstream = Upstream::listen();
    let weir = weir_with(&upstream, "timeouts: { tunnel: 150ms }");
    let (mut client, mut conn) = crate::upgrade::tunnel(&weir, &upstream);
    client.send("one");
    conn.expect("one");
    client.expect_close();
    conn.expect_close();
}

#[test]
fn a_peer_that_connects_and_leaves_is_no_error() {
    let upstream = Upstream::fixed(OK);
    let weir = Weir::in_front_of(&upstream);
    for _ in 0..10 {
        Client::connect(weir.address("web")).reset();
    }
    weir.client().get("/").expect_status(200);
    assert!(!weir.stderr().contains("ERROR"), "{}", weir.stderr());
}
