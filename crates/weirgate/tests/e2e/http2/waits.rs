//! Exchanges that wait for a connection, a slot or a filter's answer; and clients that do not wait.

use std::time::Duration;

use weir_testkit::h2::{End, Frame, H2, H2Origin, Options, code, setting};
use weir_testkit::{Client, Upstream, Weir, black_hole, eventually};

use super::{BOTH, H2C, ask, metrics, weir};
use crate::cause::{PENDING_TIMEOUT, UPSTREAM_RESET};
use crate::support::{ALL_TO_UP, GET, OK_BODY};

// === Clients that leave ===

#[test]
fn a_request_canceled_while_connecting_ends_at_once() {
    let (_full, address) = black_hole();
    for settings in [H2C, "protocol: http1"] {
        let weir = weir(address, &format!("{settings}, timeouts: {{ connect: 60s }}"));
        let mut client = weir.h2();
        let stream = client.get("/");
        client.ping();
        client.reset(stream, code::CANCEL);
        weir.wait_stdout("client_closed");
    }
}

#[test]
fn a_request_canceled_at_the_gate_leaves_its_place() {
    let upstream = Upstream::listen();
    let weir = weir(upstream.address(), "limits: { connections: 1, pending: 1 }, timeouts: { connect: 60s }");
    let mut client = weir.h2();
    let first = client.get("/first");
    let mut conn = upstream.accept_request();
    let second = client.get("/second");
    client.ping();
    client.reset(second, code::CANCEL);
    weir.wait_stdout("client_closed");
    let third = client.get("/third");
    client.ping();
    conn.send(OK_BODY);
    client.message(first).expect_body("ok");
    assert_eq!(conn.read_request().head.line, "GET /third HTTP/1.1");
    conn.send(OK_BODY);
    client.message(third).expect_body("ok");
}

#[test]
fn a_client_of_http1_that_resets_at_the_gate_leaves_its_place() {
    let upstream = Upstream::listen();
    let weir = weir(upstream.address(), "limits: { connections: 1, pending: 1 }, timeouts: { connect: 60s }");
    let (mut first, mut conn) = weir.begin(&upstream, GET);
    let mut second = weir.client();
    second.send(GET);
    eventually("it waits", || {
        metrics(&weir).lines().any(|line| line == "weir_upstream_requests_pending{upstream=\"up\"} 1")
    });
    second.reset();
    weir.wait_stdout("client_closed");
    conn.send(OK_BODY);
    first.read_response().expect_body("ok");
}

#[test]
fn a_request_canceled_while_a_filter_asks_ends_at_once() {
    let service = Upstream::listen();
    let upstream = Upstream::listen();
    let weir = Weir::start(&format!(
        "{BOTH}\nupstreams:\n  up: {{ endpoints: [{}] }}\n  auth: {{ endpoints: [{}] }}\n\
         filters: [ {{ forward_auth: {{ upstream: auth, path: /check }} }} ]\n{ALL_TO_UP}\n",
        upstream.address(),
        service.address()
    ));
    let mut client = weir.h2();
    let stream = client.get("/");
    let mut conn = service.accept_request();
    client.reset(stream, code::CANCEL);
    conn.expect_close();
    // An HTTP/1.1 client too, once it has waited a moment.
    let (client, mut conn) = weir.begin(&service, GET);
    client.reset();
    conn.expect_close();
    upstream.expect_no_connection();
}

// === Slow upstreams ===

#[test]
fn an_upstream_that_takes_no_requests_is_not_dialled_for_each() {
    let upstream = Upstream::listen();
    let weir = weir(upstream.address(), "protocol: h2c, timeouts: { connect: 300ms }");
    let mut client = weir.h2();
    let streams = [client.get("/0"), client.get("/1"), client.get("/2")];
    let mut peer = H2::server(upstream.accept(), &Options::default().with(&[(setting::STREAMS, 0)]));
    for stream in streams {
        client.message(stream).expect_cause(PENDING_TIMEOUT);
    }
    upstream.expect_no_connection();
    // It may change its mind.
    peer.send(&Frame::settings(&[(setting::STREAMS, 10)]));
    peer.ping();
    let next = client.get("/next");
    let (seen, request) = peer.accept_whole();
    request.expect_header(":path", "/next");
    peer.respond(seen, &[(":status", "200")], "ok");
    client.message(next).expect_body("ok");
}

#[test]
fn an_endpoint_that_takes_no_requests_is_as_one_that_cannot_be_connected_to() {
    let (paused, good) = (Upstream::listen(), H2Origin::fixed("good"));
    let weir = Weir::start(&format!(
        "workers: 1\n{BOTH}\nupstreams: {{ up: {{ endpoints: [{}, {}], {H2C}, balancer: round_robin }} }}\n{ALL_TO_UP}\n",
        paused.address(),
        good.address()
    ));
    std::thread::scope(|scope| {
        let (tell, told) = std::sync::mpsc::channel();
        let peer = scope.spawn(move || {
            let mut peer = H2::server(paused.accept(), &Options::default().with(&[(setting::STREAMS, 0)]));
            told.recv().unwrap();
            peer.send(&Frame::settings(&[(setting::STREAMS, 10)]));
            let (stream, _) = peer.accept_whole();
            peer.respond(stream, &[(":status", "200")], "again");
            paused
        });
        let mut client = weir.client();
        for _ in 0..40 {
            client.ask(GET).expect_status(200).expect_body("good");
        }
        let line = weir.wait_log("endpoint out of rotation");
        assert_eq!(
            (line.field("reason"), line.field("cause")),
            (Some("unreachable"), Some("upstream_no_streams"))
        );
        tell.send(()).unwrap();
        eventually("it is asked again", || client.ask(GET).expect_status(200).text() == "again");
        let _ = peer.join().unwrap();
    });
}

#[test]
fn every_worker_has_a_connection_below_its_limit() {
    // One connection in total but two workers: each must get a turn, or the second would never be served.
    let origin = H2Origin::fixed("ok");
    let weir = Weir::start(&format!(
        "workers: 2\n{BOTH}\nupstreams: {{ up: {{ endpoints: [{}], {H2C}, limits: {{ connections: 1 }} }} }}\n{ALL_TO_UP}\n",
        origin.address()
    ));
    // Enough client connections for both workers to have some.
    let clients: Vec<Client> = (0..32).map(|_| weir.client()).collect();
    for mut client in clients {
        client.ask(GET).expect_status(200).expect_body("ok");
    }
    assert!(origin.connections() <= 2, "{}", origin.connections());
}

#[test]
fn a_connection_that_is_not_to_be_kept_ends_with_its_request() {
    let upstream = Upstream::listen();
    let weir = weir(upstream.address(), "protocol: h2c, keepalive: 0s");
    let mut client = weir.h2();
    for _ in 0..2 {
        let stream = client.get("/");
        let mut peer = H2::server(upstream.accept(), &Options::default());
        let (seen, _) = peer.accept_whole();
        peer.respond(seen, &[(":status", "200")], "ok");
        client.message(stream).expect_body("ok");
        peer.expect_end();
    }
}

// === Bodies that are sent again ===

#[test]
fn the_beginning_of_a_body_is_sent_again() {
    for go_away in [false, true] {
        let upstream = Upstream::listen();
        let weir = weir(upstream.address(), H2C);
        let mut client = weir.h2();
        let stream = client.post("/");
        client.data(stream, "some", false);
        let mut peer = H2::server(upstream.accept(), &Options::default());
        let (seen, _) = peer.accept();
        peer.wait(seen, "the body", |message| message.body == b"some");
        let (again, mut peer) = if go_away {
            peer.send(&Frame::go_away(0, code::NONE));
            let mut new = H2::server(upstream.accept(), &Options::default());
            (new.accept().0, new)
        } else {
            peer.reset(seen, code::REFUSED);
            (peer.accept().0, peer)
        };
        client.data(stream, " more", true);
        peer.message(again).expect_body("some more");
        peer.respond(again, &[(":status", "200")], "ok");
        client.message(stream).expect_status(200).expect_body("ok");
    }
}

#[test]
fn of_a_long_body_nothing_is_sent_again() {
    let upstream = Upstream::listen();
    let weir = weir(upstream.address(), H2C);
    let mut client = weir.h2();
    let stream = client.post("/");
    let body = vec![b'x'; 20_000];
    body.chunks(10_000).for_each(|piece| client.data(stream, piece, false));
    let mut peer = H2::server(upstream.accept(), &Options::default());
    let (seen, _) = peer.accept();
    peer.wait(seen, "the body", |message| message.body == body);
    peer.reset(seen, code::REFUSED);
    // The beginning is gone, because at most 16 KiB are kept.
    client.message(stream).expect_cause(UPSTREAM_RESET);
    upstream.expect_no_connection();
}

#[test]
fn a_body_is_not_sent_again_once_the_upstream_answers() {
    let upstream = Upstream::listen();
    let weir = weir(upstream.address(), H2C);
    let mut client = weir.h2();
    let stream = client.request(&ask("POST", "/", &[("expect", "100-continue")]), false);
    let mut peer = H2::server(upstream.accept(), &Options::default());
    let (seen, _) = peer.accept();
    peer.headers(seen, &[(":status", "100")], false);
    client.data(stream, "some", false);
    peer.wait(seen, "the body", |message| message.body == b"some");
    peer.reset(seen, code::REFUSED);
    let answer = client.message(stream);
    assert!(answer.status() == 502 || matches!(answer.end, Some(End::Reset(_))), "{answer:?}");
    peer.ping();
    assert!(peer.try_accept_whole(Duration::ZERO).is_none());
    upstream.expect_no_connection();
}
