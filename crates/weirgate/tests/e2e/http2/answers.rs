//! Responses: from an HTTP/1.1 upstream to an HTTP/2 client, and from an HTTP/2 upstream to an HTTP/1.1 client.

use weir_testkit::h2::{H2, Options, code};
use weir_testkit::{Conn, Framing, Upstream, Weir, table};

use super::{H2C, ask, get, weir};
use crate::support::GET;

type Fields = &'static [(&'static str, &'static str)];

/// An HTTP/2 upstream that the test plays, and a gateway in front of it.
#[track_caller]
fn before_h2() -> (Upstream, Weir) {
    let upstream = Upstream::listen();
    let weir = weir(upstream.address(), H2C);
    (upstream, weir)
}

#[track_caller]
fn accept(upstream: &Upstream) -> H2<Conn> {
    H2::server(upstream.accept(), &Options::default())
}

#[test]
fn a_head_becomes_one_of_http2() {
    let upstream = Upstream::fixed(
        "HTTP/1.1 200 Fine\r\nX-Upper: Case\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\nConnection: keep-alive, X-Hop\r\n\
         X-Hop: gone\r\nKeep-Alive: timeout=5\r\nProxy-Connection: keep-alive\r\nContent-Length: 2\r\n\r\nok",
    );
    let weir = weir(upstream.address(), "");
    let mut client = weir.h2();
    let stream = client.get("/");
    let answer = client.message(stream);
    answer.expect_status(200).expect_body("ok").expect_header("x-upper", "Case");
    answer.expect_header("content-length", "2").expect_frames(&["HEADERS", "DATA 2 END"]);
    assert_eq!(answer.all("set-cookie"), ["a=1", "b=2"]);
    for name in ["connection", "x-hop", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade"] {
        answer.expect_no_header(name);
    }
}

/// HTTP/1.1 answers as frames.
#[test]
fn bodies_and_their_ends() {
    let rows: &[(&str, &str, u16, &str, &[&str])] = &[
        ("GET", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", 200, "", &["HEADERS END"]),
        ("GET", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", 200, "ok", &["HEADERS", "DATA 2 END"]),
        (
            "GET",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
            200,
            "ok",
            &["HEADERS", "DATA 2 END"],
        ),
        ("GET", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 200, "", &["HEADERS END"]),
        ("GET", "HTTP/1.1 204 No Content\r\n\r\n", 204, "", &["HEADERS END"]),
        ("GET", "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", 304, "", &["HEADERS END"]),
        ("HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", 200, "", &["HEADERS END"]),
        ("HEAD", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", 200, "", &["HEADERS END"]),
    ];
    table(
        rows,
        |(method, answer, ..)| format!("{method} {answer:?}"),
        |(method, answer, status, body, frames)| {
            let upstream = Upstream::fixed(answer);
            let weir = weir(upstream.address(), "");
            let mut client = weir.h2();
            let stream = client.request(&ask(method, "/", &[]), true);
            client.message(stream).expect_status(*status).expect_body(body).expect_frames(frames);
            let stream = client.request(&ask(method, "/", &[]), true);
            client.message(stream).expect_status(*status);
            assert_eq!(upstream.connections(), 1, "the upstream's connection is kept");
        },
    );
}

#[test]
fn a_body_that_the_connection_ends() {
    let upstream = Upstream::script(|conn| {
        conn.next_request();
        let _ = conn.try_send("HTTP/1.0 200 OK\r\n\r\nto the end");
    });
    let weir = weir(upstream.address(), "");
    let mut client = weir.h2();
    for _ in 0..2 {
        let stream = client.get("/");
        client.message(stream).expect_status(200).expect_body("to the end");
    }
}

#[test]
fn a_body_cut_short_is_a_reset() {
    for answer in [
        "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n",
    ] {
        let upstream = Upstream::listen();
        let weir = weir(upstream.address(), "");
        let mut client = weir.h2();
        let stream = client.get("/");
        let mut conn = upstream.accept_request();
        conn.send(answer);
        client.wait(stream, "the half of it", |message| message.body == b"half");
        conn.close();
        client.message(stream).expect_reset(code::INTERNAL);
        let stream = client.get("/");
        let mut conn = upstream.accept_request();
        conn.send("HTTP/1.1 204 No Content\r\n\r\n");
        client.message(stream).expect_status(204);
        weir.wait_stdout("truncated");
    }
}

#[test]
fn interim_responses_to_an_h2_client() {
    let upstream = Upstream::listen();
    let weir = weir(upstream.address(), "");
    let mut client = weir.h2();
    let stream =
        client.request(&ask("PUT", "/", &[("expect", "100-continue"), ("content-length", "4")]), false);
    let mut conn = upstream.accept();
    let head = conn.read_head();
    assert_eq!(head.all("expect"), ["100-continue"]);
    conn.send("HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n");
    let so_far = client.wait(stream, "two heads", |message| message.interim.len() == 2);
    assert!(so_far.interim[0].contains(&("link".to_owned(), "</a.css>".to_owned())));
    assert_eq!(so_far.interim[1], [(":status".to_owned(), "100".to_owned())]);
    client.data(stream, "body", true);
    conn.expect("body");
    conn.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    client.message(stream).expect_status(200).expect_body("ok");
}

#[test]
fn interim_responses_from_an_h2_upstream() {
    let (upstream, weir) = before_h2();
    let mut client = weir.client();
    client.send("PUT / HTTP/1.1\r\nHost: weir.test\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n");
    let mut peer = accept(&upstream);
    let (stream, request) = peer.accept();
    request.expect_header("expect", "100-continue");
    peer.headers(stream, &[(":status", "103"), ("link", "</a.css>")], false);
    peer.headers(stream, &[(":status", "100")], false);
    client.read_response().expect_status(103).expect_header("link", "</a.css>");
    client.read_response().expect_status(100);
    client.send("body");
    peer.message(stream).expect_body("body");
    peer.respond(stream, &[(":status", "200"), ("content-length", "2")], "ok");
    client.read_response().expect_status(200).expect_body("ok");
}

#[test]
fn an_h2_answer_becomes_one_of_http1() {
    let (upstream, weir) = before_h2();
    let mut client = weir.client();
    client.send("GET /a?b HTTP/1.1\r\nHost: weir.test\r\nCookie: a=1; b=2\r\nConnection: x-hop\r\nX-Hop: 1\r\nTE: trailers\r\nX-Upper: Case\r\n\r\n");
    let mut peer = accept(&upstream);
    let (stream, request) = peer.accept_whole();
    request.expect_frames(&["HEADERS END"]);
    request.expect_header(":method", "GET").expect_header(":path", "/a?b").expect_header(":scheme", "http");
    request.expect_header(":authority", "weir.test").expect_header("x-upper", "Case");
    for name in ["host", "connection", "x-hop", "transfer-encoding", "keep-alive"] {
        request.expect_no_header(name);
    }
    assert_eq!(request.all("cookie").join("; "), "a=1; b=2");
    peer.headers(stream, &[(":status", "201"), ("set-cookie", "a"), ("set-cookie", "b")], false);
    peer.data(stream, "some", false);
    peer.data(stream, "thing", true);
    let answer = client.read_response();
    answer.expect_status(201).expect_body("something");
    assert_eq!((answer.framing, answer.head.all("set-cookie")), (Framing::Chunked, vec!["a", "b"]));
    // The client's connection and the upstream's are kept.
    client.send(GET);
    let (stream, _) = peer.accept_whole();
    peer.respond(stream, &[(":status", "200"), ("content-length", "2")], "ok");
    let answer = client.read_response();
    answer.expect_body("ok");
    assert_eq!(answer.framing, Framing::Length(2));
}

#[test]
fn h2_answers_without_a_body() {
    let rows: &[(&str, Fields, Option<&str>)] = &[
        ("GET", &[(":status", "200")], Some("0")),
        ("GET", &[(":status", "200"), ("content-length", "0")], Some("0")),
        ("GET", &[(":status", "204")], None),
        ("GET", &[(":status", "304"), ("content-length", "5")], Some("5")),
        ("HEAD", &[(":status", "200"), ("content-length", "5")], Some("5")),
        ("HEAD", &[(":status", "200")], None),
    ];
    let (upstream, weir) = before_h2();
    let mut client = weir.client();
    let mut peer = None;
    for (method, fields, length) in rows {
        client.send(format!("{method} / HTTP/1.1\r\nHost: weir.test\r\n\r\n"));
        let peer = peer.get_or_insert_with(|| accept(&upstream));
        let (stream, _) = peer.accept_whole();
        peer.headers(stream, fields, true);
        let answer = if *method == "HEAD" { client.read_response_to_head() } else { client.read_response() };
        let what = format!("{method} {fields:?}");
        assert_eq!(answer.header("content-length"), *length, "{what}");
        answer.expect_no_header("transfer-encoding");
    }
}

#[test]
fn an_upstream_that_breaks_the_rules() {
    let rows: &[(&str, Fields)] = &[
        ("no status", &[("x-a", "b")]),
        ("a status that is none", &[(":status", "20")]),
        ("an upper-case name", &[(":status", "200"), ("X-Upper", "a")]),
        ("CR LF in a value", &[(":status", "200"), ("x-a", "b\r\nx-evil: 1")]),
        ("NUL in a value", &[(":status", "200"), ("x-a", "b\0")]),
        ("connection", &[(":status", "200"), ("connection", "close")]),
        ("transfer-encoding", &[(":status", "200"), ("transfer-encoding", "chunked")]),
        ("a length and no body", &[(":status", "200"), ("content-length", "5")]),
        ("101", &[(":status", "101")]),
        ("two lengths", &[(":status", "200"), ("content-length", "1"), ("content-length", "2")]),
        ("a length that is none", &[(":status", "200"), ("content-length", "+1")]),
        ("a zero before a length", &[(":status", "200"), ("content-length", "02")]),
    ];
    let upstream = Upstream::listen();
    table(
        rows,
        |(name, _)| *name,
        |(_, fields)| {
            upstream.forget();
            let weir = weir(upstream.address(), H2C);
            for front in ["h1", "h2"] {
                let (mut plain, mut framed) = (weir.client(), weir.h2());
                let asked = if front == "h1" {
                    plain.send(GET);
                    0
                } else {
                    framed.request(&get(&[]), true)
                };
                let mut peer = accept(&upstream);
                let (stream, _) = peer.accept_whole();
                peer.headers(stream, fields, true);
                if front == "h1" {
                    plain.read_response().expect_cause(crate::cause::BAD_RESPONSE);
                } else {
                    framed.message(asked).expect_cause(crate::cause::BAD_RESPONSE);
                }
                drop((peer, plain, framed));
            }
        },
    );
}

#[test]
fn an_upstream_that_breaks_its_length() {
    for (body, shows) in [("ab", "too short"), ("abcdef", "too long")] {
        let (upstream, weir) = before_h2();
        let mut client = weir.client();
        client.send(GET);
        let mut peer = accept(&upstream);
        let (stream, _) = peer.accept_whole();
        peer.headers(stream, &[(":status", "200"), ("content-length", "4")], false);
        client.read_until("\r\n\r\n");
        peer.data(stream, body, true);
        // Whatever arrived, it is less than announced, and the connection ends.
        let rest = client.read_to_close();
        assert!(rest.len() < 4, "{shows}: {rest:?}");
        weir.wait_stdout("truncated");
    }
}

#[test]
fn a_reset_by_the_upstream() {
    // Before the head: an error. After it: cut.
    for front in ["h1", "h2"] {
        let (upstream, weir) = before_h2();
        let (mut plain, mut framed) = (weir.client(), weir.h2());
        let mut asked = 0;
        let mut send = |plain: &mut weir_testkit::Client, framed: &mut H2<weir_testkit::Client>| {
            if front == "h1" {
                plain.send(GET)
            } else {
                asked = framed.get("/")
            }
            asked
        };
        let asked = send(&mut plain, &mut framed);
        let mut peer = accept(&upstream);
        let (stream, _) = peer.accept_whole();
        peer.reset(stream, code::INTERNAL);
        if front == "h1" {
            plain.read_response().expect_cause(crate::cause::UPSTREAM_RESET);
        } else {
            framed.message(asked).expect_cause(crate::cause::UPSTREAM_RESET);
        }
        let asked = send(&mut plain, &mut framed);
        let (stream, _) = peer.accept_whole();
        peer.headers(stream, &[(":status", "200")], false);
        peer.data(stream, "half", false);
        if front == "h1" {
            plain.read_until("half\r\n");
            peer.reset(stream, code::INTERNAL);
            let rest = plain.read_to_close();
            assert!(rest.is_empty(), "a body cut short must not look whole: {rest:?}");
        } else {
            framed.wait(asked, "the half of it", |message| message.body == b"half");
            peer.reset(stream, code::INTERNAL);
            framed.message(asked).expect_reset(code::INTERNAL);
        }
        peer.ping();
    }
}

#[test]
fn a_refusal_takes_two_frames() {
    let upstream = Upstream::listen();
    let weir = super::weir_with(upstream.address(), "", "limits: { header_bytes: 1KiB }");
    let mut client = weir.h2();
    let long = "x".repeat(1500);
    let stream = client.request(&get(&[("x-a", &long)]), true);
    let answer = client.message(stream);
    answer.expect_status(431);
    assert_eq!(answer.frames.len(), 2, "{answer:?}");
}
