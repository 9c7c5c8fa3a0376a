//! Bodies from an HTTP/2 client: length, end, and that a truncated body never looks complete.

use weir_testkit::h2::{End, Frame, H2, Kind, Options, code, flag};
use weir_testkit::{Upstream, table};

use super::{H2C, ask, weir, weir_with};
use crate::cause::{BODY_TIMEOUT, BODY_TOO_LARGE};
use crate::support::{OK, OK_BODY};

#[test]
fn a_body_of_known_length() {
    let upstream = Upstream::fixed(OK_BODY);
    let weir = weir(upstream.address(), "");
    let mut client = weir.h2();
    let stream = client.request(&ask("POST", "/", &[("content-length", "8")]), false);
    client.data(stream, "some", false);
    client.data(stream, "", false);
    client.data(stream, "body", true);
    client.message(stream).expect_status(200);
    let request = upstream.take_request();
    assert_eq!((request.head.all("content-length"), request.body.raw), (vec!["8"], b"somebody".to_vec()));
    assert_eq!(request.head.header("transfer-encoding"), None);
}

#[test]
fn a_body_of_unknown_length_is_chunked() {
    let upstream = Upstream::fixed(OK_BODY);
    let weir = weir(upstream.address(), "");
    let mut client = weir.h2();
    let stream = client.post("/");
    client.data(stream, "some", false);
    client.data(stream, "body", false);
    client.data(stream, "", true);
    client.message(stream).expect_status(200);
    let request = upstream.take_request();
    assert_eq!(request.head.all("transfer-encoding"), ["chunked"]);
    assert_eq!((request.head.header("content-length"), request.body.bytes), (None, b"somebody".to_vec()));
}

#[test]
fn no_body_is_no_body() {
    let upstream = Upstream::fixed(OK_BODY);
    let weir = weir(upstream.address(), "");
    let mut client = weir.h2();
    for (method, length, seen) in [
        ("GET", None, None),
        ("POST", None, Some("0")),
        ("POST", Some("0"), Some("0")),
        ("DELETE", None, None),
    ] {
        upstream.forget();
        let more: Vec<_> = length.map(|length| ("content-length", length)).into_iter().collect();
        let stream = client.request(&ask(method, "/", &more), true);
        client.message(stream).expect_status(200);
        let head = upstream.take_request().head;
        assert_eq!(head.header("transfer-encoding"), None);
        // RFC 9110 §8.6: a POST without a body states this if the client did, and should otherwise.
        let length = head.header("content-length");
        assert!(length == seen || (method == "POST" && length.is_none()), "{method}: {length:?}");
    }
    // An end in a separate frame.
    upstream.forget();
    let stream = client.post("/");
    client.data(stream, "", true);
    client.message(stream).expect_status(200);
    assert!(upstream.take_request().body.bytes.is_empty());
}

#[test]
fn padding_is_not_body() {
    let upstream = Upstream::fixed(OK_BODY);
    let weir = weir(upstream.address(), "");
    let mut client = weir.h2();
    let stream = client.request(&ask("POST", "/", &[("content-length", "4")]), false);
    client.send(&Frame::new(
        Kind::Data,
        flag::END_STREAM | flag::PADDED,
        stream,
        [&[7][..], b"body", &[0; 7]].concat(),
    ));
    client.message(stream).expect_status(200);
    assert_eq!(upstream.take_request().body.raw, b"body");
}

/// A request whose frames contradict its content-length: refused, and never complete at the upstream.
#[test]
fn lengths_that_lie() {
    type Fields = &'static [(&'static str, &'static str)];
    type Pieces = &'static [(&'static str, bool)];
    let rows: &[(&str, Fields, Pieces)] = &[
        ("too long at once", &[("content-length", "3")], &[("hello", true)]),
        ("too long at last", &[("content-length", "3")], &[("he", false), ("llo", true)]),
        ("too long by a byte", &[("content-length", "3")], &[("hel", false), ("l", false)]),
        ("too short", &[("content-length", "5")], &[("hel", true)]),
        ("too short by all", &[("content-length", "5")], &[("", true)]),
        ("two lengths", &[("content-length", "5"), ("content-length", "6")], &[("hello", true)]),
        ("a sign", &[("content-length", "+5")], &[("hello", true)]),
        ("a list", &[("content-length", "5, 5")], &[("hello", true)]),
        ("empty", &[("content-length", "")], &[("hello", true)]),
        ("hexadecimal", &[("content-length", "0x5")], &[("hello", true)]),
        ("beyond 64 bits", &[("content-length", "18446744073709551621")], &[("hello", true)]),
    ];
    for back in ["", H2C] {
        table(
            rows,
            |(name, ..)| format!("{name} {back}"),
            |(_, fields, pieces)| {
                let upstream = Upstream::listen();
                let weir = weir(upstream.address(), back);
                let mut client = weir.h2();
                let stream = client.request(&ask("POST", "/", fields), false);
                for (data, end) in *pieces {
                    client.data(stream, data, *end);
                }
                let answer = client.message(stream);
                assert!(
                    answer.end == Some(End::Reset(code::PROTOCOL)) || answer.status() == 400,
                    "it is refused: {answer:?}"
                );
                drop(client);
                let stopped = weir.stop();
                stopped.expect_code(0);
                // If anything reached the upstream, it is incomplete.
                while let Some(mut conn) = upstream.try_accept() {
                    if back.is_empty() {
                        assert!(conn.next_request().is_none());
                    } else {
                        let mut peer = H2::server(conn, &Options::default());
                        peer.expect_end();
                        assert_ne!(peer.so_far(1).end, Some(End::Stream));
                    }
                }
                assert!(!upstream.requests().iter().any(|request| request.complete));
            },
        );
    }
}

#[test]
fn a_length_without_a_body() {
    let upstream = Upstream::fixed(OK_BODY);
    let weir = weir(upstream.address(), "");
    let mut client = weir.h2();
    for method in ["GET", "POST"] {
        let stream = client.request(&ask(method, "/", &[("content-length", "5")]), true);
        client.message(stream).expect_reset(code::PROTOCOL);
    }
    assert!(upstream.requests().is_empty());
}

#[test]
fn a_body_that_the_client_resets() {
    for (back, length) in [("", None), ("", Some("10")), (H2C, None), (H2C, Some("10"))] {
        let upstream = Upstream::listen();
        let weir = weir(upstream.address(), back);
        let mut client = weir.h2();
        let more: Vec<_> = length.map(|length| ("content-length", length)).into_iter().collect();
        let stream = client.request(&ask("POST", "/", &more), false);
        client.data(stream, "half", false);
        let mut conn = upstream.accept();
        if back.is_empty() {
            conn.read_head();
            conn.read_until("half");
            client.reset(stream, code::CANCEL);
            let rest = conn.read_to_close();
            assert!(rest.is_empty() || rest == b"\r\n", "the end of a body that did not end: {rest:?}");
        } else {
            let mut peer = H2::server(conn, &Options::default());
            let (seen, _) = peer.accept();
            peer.wait(seen, "the half", |message| message.body == b"half");
            client.reset(stream, code::CANCEL);
            let request = peer.message(seen);
            assert!(matches!(request.end, Some(End::Reset(_))), "{request:?}");
            // The connection serves other requests.
            let next = client.get("/next");
            let (seen, _) = peer.accept_whole();
            peer.respond(seen, &[(":status", "200")], "ok");
            client.message(next).expect_body("ok");
        }
        weir.wait_stdout("client_closed");
    }
}

#[test]
fn a_large_body_each_way() {
    let body: Vec<u8> = (0..3_000_000u32).map(|n| (n % 251) as u8).collect();
    for back in ["", H2C] {
        let upstream = Upstream::script({
            let h2 = back == H2C;
            move |conn| {
                if h2 {
                    let mut peer = H2::server(conn, &Options::default());
                    let (stream, request) = peer.accept_whole();
                    peer.respond(stream, &[(":status", "200")], request.body);
                    peer.message(stream + 2); // until weir exits
                } else if let Some(request) = conn.next_request() {
                    conn.send(format!(
                        "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n",
                        request.body.bytes.len()
                    ));
                    conn.send(request.body.bytes);
                }
            }
        });
        let weir = weir(upstream.address(), back);
        let mut client = weir.h2();
        let stream = client.post("/");
        client.body(stream, &body, true);
        let answer = client.message(stream);
        answer.expect_status(200);
        assert!(answer.body == body, "{} bytes came back", answer.body.len());
    }
}

#[test]
fn a_body_beyond_the_limit() {
    let upstream = Upstream::listen();
    let weir = weir_with(upstream.address(), "", "limits: { body_bytes: 1KiB }");
    let mut client = weir.h2();
    let stream = client.request(&ask("POST", "/", &[("content-length", "2000")]), false);
    client.message(stream).expect_cause(BODY_TOO_LARGE);
    let stream = client.post("/");
    client.data(stream, [b'x'; 2000], false);
    client.message(stream).expect_cause(BODY_TOO_LARGE);
    drop((client, weir));
    while let Some(mut conn) = upstream.try_accept() {
        assert!(conn.next_request().is_none());
    }
}

#[test]
fn a_body_that_stops() {
    let upstream = Upstream::listen();
    let weir = weir_at(&upstream, "timeouts: { body: 100ms }");
    let mut client = weir.h2();
    let stream = client.post("/");
    client.data(stream, "half", false);
    client.message(stream).expect_cause(BODY_TIMEOUT);
    let mut conn = upstream.accept();
    assert!(conn.next_request().is_none());
    // The connection serves other requests.
    let stream = client.get("/");
    let mut conn = upstream.accept_request();
    conn.send(OK);
    client.message(stream).expect_status(200);
}

/// A gateway whose listener has these settings.
#[track_caller]
fn weir_at(upstream: &Upstream, listener: &str) -> weir_testkit::Weir {
    weir_testkit::Weir::start(&format!(
        "listeners: {{ web: {{ address: 127.0.0.1:0, protocols: [http1, h2], {listener} }} }}\n\
         upstreams: {{ up: {{ endpoints: [{}] }} }}\n{}\n",
        upstream.address(),
        crate::support::ALL_TO_UP
    ))
}

#[test]
fn an_answer_before_the_end_of_the_request() {
    // The answer arrives complete; then the client learns that the rest is not needed (RFC 9113 §8.1). The connection
    // stays.
    let upstream = Upstream::listen();
    let weir = weir(upstream.address(), "");
    let mut client = weir.h2();
    let stream = client.post("/");
    client.data(stream, "half", false);
    let mut conn = upstream.accept();
    conn.read_head();
    conn.read_until("half");
    conn.send("HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno");
    conn.close();
    client.wait(stream, "the answer", |message| message.body == b"no");
    let answer = client.message(stream);
    assert_eq!((answer.status(), answer.text()), (413, "no".to_owned()));
    let stream = client.get("/next");
    let mut conn = upstream.accept_request();
    conn.send(OK_BODY);
    client.message(stream).expect_status(200);
}
