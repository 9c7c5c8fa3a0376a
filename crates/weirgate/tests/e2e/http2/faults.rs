//! Failures between HTTP/1.1 clients and HTTP/2 upstreams: who gets an error, and that nothing keeps waiting.

use std::time::{Duration, Instant};

use weir_testkit::h2::{End, Frame, H2, H2Origin, Options, code, setting};
use weir_testkit::{Upstream, alone, refusing_address};

use super::{H2C, metrics, weir, weir_with};
use crate::cause::{BAD_CHUNK, CONNECT_REFUSED, CONNECT_TIMEOUT, NO_HEALTHY_ENDPOINT, RESPONSE_TIMEOUT};
use crate::support::GET;

fn server(upstream: &Upstream) -> H2<weir_testkit::Conn> {
    H2::server(upstream.accept(), &Options::default())
}

#[test]
fn a_request_cut_short_never_looks_whole() {
    for (head, half) in [("Content-Length: 10", "half"), ("Transfer-Encoding: chunked", "4\r\nhalf\r\n")] {
        for reset in [false, true] {
            let upstream = Upstream::listen();
            let weir = weir(upstream.address(), H2C);
            let mut client = weir.client();
            client.send(format!("POST / HTTP/1.1\r\nHost: h\r\n{head}\r\n\r\n{half}"));
            let mut peer = server(&upstream);
            let (seen, _) = peer.accept();
            peer.wait(seen, "the half", |message| message.body == b"half");
            if reset {
                client.reset()
            } else {
                client.close()
            }
            let request = peer.message(seen);
            assert!(matches!(request.end, Some(End::Reset(_))), "{head}: {request:?}");
            peer.ping();
        }
    }
}

#[test]
fn bad_chunks_never_look_whole() {
    let upstream = Upstream::listen();
    let weir = weir(upstream.address(), H2C);
    let mut client = weir.client();
    client.send("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n");
    let mut peer = server(&upstream);
    let (seen, _) = peer.accept();
    peer.wait(seen, "the half", |message| message.body == b"half");
    client.send("zz\r\n");
    client.read_response().expect_cause(BAD_CHUNK);
    let request = peer.message(seen);
    assert!(matches!(request.end, Some(End::Reset(_))), "{request:?}");
}

#[test]
fn an_upstream_that_does_not_answer() {
    let upstream = Upstream::listen();
    let weir = weir(upstream.address(), "protocol: h2c, timeouts: { response: 100ms }");
    let mut client = weir.h2();
    let stream = client.get("/");
    let mut peer = server(&upstream);
    let (seen, _) = peer.accept_whole();
    client.message(stream).expect_cause(RESPONSE_TIMEOUT);
    peer.message(seen).expect_reset(code::CANCEL);
    // The connection is still usable.
    let stream = client.get("/");
    let (seen, _) = peer.accept_whole();
    peer.respond(seen, &[(":status", "200")], "ok");
    client.message(stream).expect_body("ok");
}

#[test]
fn an_upstream_that_stops_in_the_middle() {
    let upstream = Upstream::listen();
    let weir = weir(upstream.address(), "protocol: h2c, timeouts: { body: 100ms }");
    let mut client = weir.h2();
    let stream = client.get("/");
    let mut peer = server(&upstream);
    let (seen, _) = peer.accept_whole();
    peer.headers(seen, &[(":status", "200")], false);
    peer.data(seen, "half", false);
    client.message(stream).expect_reset(code::INTERNAL);
    peer.message(seen).expect_reset(code::CANCEL);
    weir.wait_stdout("upstream_body_timeout");
}

#[test]
fn an_upstream_that_never_greets() {
    let _alone = alone();
    let upstream = Upstream::listen();
    let weir = weir(upstream.address(), "protocol: h2c, timeouts: { connect: 200ms }");
    let mut client = weir.h2();
    let streams: Vec<u32> = (0..20).map(|_| client.get("/")).collect();
    let started = Instant::now();
    for stream in streams {
        client.message(stream).expect_cause(CONNECT_TIMEOUT);
    }
    assert!(started.elapsed() < Duration::from_secs(2), "they wait together: {:?}", started.elapsed());
    assert!(upstream.connections() <= 2, "{} connections", upstream.connections());
}

#[test]
fn an_upstream_that_refuses_connections() {
    let (_closed, address) = refusing_address();
    let weir = weir(address, H2C);
    let mut client = weir.h2();
    let streams: Vec<u32> = (0..100).map(|_| client.get("/")).collect();
    let statuses: Vec<u16> = streams.into_iter().map(|stream| client.message(stream).status()).collect();
    // Those that waited for the dial, and later ones.
    let known = [CONNECT_REFUSED.0, NO_HEALTHY_ENDPOINT.0];
    assert!(statuses[0] == CONNECT_REFUSED.0 && statuses.iter().all(|s| known.contains(s)), "{statuses:?}");
}

#[test]
fn whoever_connects_may_leave() {
    // The first request connects, and its client gives up; the others use that connection.
    let upstream = Upstream::listen();
    let weir = weir(upstream.address(), H2C);
    let mut first = weir.h2();
    let dialling = first.get("/first");
    let conn = upstream.accept();
    let mut client = weir.h2();
    let stream = client.get("/second");
    client.ping();
    first.reset(dialling, code::CANCEL);
    first.ping();
    let mut peer = H2::server(conn, &Options::default());
    loop {
        let (seen, request) = peer.accept_whole();
        if request.header(":path") == Some("/second") {
            peer.respond(seen, &[(":status", "200")], "ok");
            break;
        }
    }
    client.message(stream).expect_body("ok");
    upstream.expect_no_connection();
}

#[test]
fn an_upstream_that_takes_more_than_it_said() {
    let upstream = Upstream::listen();
    let weir = weir(upstream.address(), "protocol: h2c, limits: { connections: 1 }");
    let mut client = weir.h2();
    let first = client.get("/first");
    let mut peer = H2::server(upstream.accept(), &Options::default().with(&[(setting::STREAMS, 1)]));
    let (seen_first, _) = peer.accept_whole();
    let second = client.get("/second");
    client.ping();
    peer.send(&Frame::settings(&[(setting::STREAMS, 10)]));
    let (seen, request) = peer.accept_whole();
    request.expect_header(":path", "/second");
    for stream in [seen, seen_first] {
        peer.respond(stream, &[(":status", "200")], "ok");
    }
    client.message(second).expect_body("ok");
    client.message(first).expect_body("ok");
}

#[test]
fn an_upstream_that_takes_nothing_yet() {
    let upstream = Upstream::listen();
    let weir = weir(upstream.address(), "protocol: h2c, limits: { connections: 1 }");
    let mut client = weir.client();
    client.send(GET);
    let mut peer = H2::server(upstream.accept(), &Options::default().with(&[(setting::STREAMS, 0)]));
    peer.ping();
    peer.send(&Frame::settings(&[(setting::STREAMS, 10)]));
    let (seen, _) = peer.accept_whole();
    peer.respond(seen, &[(":status", "200")], "ok");
    client.read_response().expect_body("ok");
}

#[test]
fn whatever_ends_badly_leaves_nothing_behind() {
    let ok = [(":status", "200")];
    let origin = H2Origin::new(Options::default(), move |peer, stream, request| {
        match request.header(":path").and_then(|path| path.chars().nth(1)) {
            Some('0') => peer.reset(stream, code::CANCEL),
            Some('1') => peer.reset(stream, code::REFUSED),
            Some('2') => {
                peer.headers(stream, &ok, false);
                peer.data(stream, "part", false);
                peer.reset(stream, code::INTERNAL);
            }
            Some('3') => peer.data(stream, "no head", true),
            Some('4') => (0..2).for_each(|_| peer.headers(stream, &ok, false)),
            Some('5') => {
                peer.headers(stream, &[(":status", "200"), ("content-length", "10")], false);
                peer.data(stream, "short", true);
            }
            Some('6') => {} // the client leaves
            Some('7') => (0..20).for_each(|_| peer.headers(stream, &[(":status", "103")], false)),
            Some('8') => {
                peer.headers(stream, &ok, true);
                peer.reset(stream, code::NONE);
                peer.data(stream, "late", false);
            }
            Some('9') => {
                peer.headers(stream, &[(":status", "200"), (":path", "/")], true);
                peer.send(&Frame::window(stream, 0));
            }
            _ => peer.answer(stream, &ok, "fine"),
        }
    });
    let limits = "limits: { h2: { resets: 1000000, errors: 1000000 } }";
    let weir = weir_with(origin.address(), H2C, limits);
    let mut client = weir.h2();
    for _ in 0..30 {
        let streams: Vec<u32> = (0..10).map(|n| client.get(&format!("/{n}"))).collect();
        let uploads = [client.post("/6"), client.post("/a"), client.post("/0"), client.post("/b")];
        client.data(uploads[0], vec![b'x'; 16_384], false);
        client.reset(uploads[0], code::CANCEL);
        client.data(uploads[1], vec![b'x'; 10_000], false);
        client.headers(uploads[1], &[("x-sum", "1")], false);
        client.reset(uploads[2], code::CANCEL);
        client.data(uploads[3], "body", true);
        for (n, stream) in streams.into_iter().enumerate() {
            if n == 6 {
                client.reset(stream, code::CANCEL);
            } else {
                client.message(stream);
            }
        }
        client.message(uploads[3]).expect_body("fine");
    }
    let stream = client.get("/a");
    client.message(stream).expect_body("fine");
    weir_testkit::eventually("nothing is under way", || {
        metrics(&weir)
            .lines()
            .filter(|line| line.contains("_active{") && !line.starts_with("weir_connections"))
            .all(|line| line.ends_with(" 0"))
    });
    assert_eq!(origin.connections(), 1);
}
