//! Request heads from an HTTP/2 client to an HTTP/1.1 upstream: what passes, in which form, and what never does (RFC
//! 9113 §8).

use weir_testkit::{Upstream, table};

use super::{ask, get, weir, weir_with};
use crate::cause::{
    BAD_HOST, BAD_PATH, BAD_TARGET, Cause, HEADER_TOO_LARGE, METHOD_REFUSED, TARGET_TOO_LONG,
    TOO_MANY_HEADERS,
};
use crate::support::{OK_BODY, expect_lines};

type Fields = Vec<(&'static str, &'static str)>;

/// How a request is refused.
#[derive(Clone, Copy)]
enum Refused {
    /// By an answer.
    Answer(Cause),
    /// As a malformed stream.
    Stream,
}
use Refused::{Answer, Stream};

/// Sends each head and expects a refusal. Nothing of it may arrive, and the connection must still work.
#[track_caller]
fn refused(rows: &[(&'static str, Fields, Refused)]) {
    let upstream = Upstream::fixed(OK_BODY);
    let weir = weir(upstream.address(), "");
    table(
        rows,
        |(name, ..)| *name,
        |(_, fields, how)| {
            let mut client = weir.h2();
            let stream = client.request(fields, true);
            let answer = client.message(stream);
            match how {
                Answer(cause) => {
                    answer.expect_cause(*cause);
                }
                Stream => {
                    answer.expect_malformed();
                }
            }
            // Whatever happened on one stream, the connection survives.
            let next = client.get("/next");
            client.message(next).expect_status(200);
        },
    );
    for request in upstream.requests() {
        assert_eq!(request.head.line, "GET /next HTTP/1.1");
    }
    assert_eq!(upstream.requests().len(), rows.len());
    assert!(upstream.stray().is_empty());
}

/// A GET with different pseudo-fields.
fn pseudo(fields: &[(&'static str, &'static str)]) -> Fields {
    fields.to_vec()
}

#[test]
fn fields_of_a_connection_are_refused() {
    refused(&[
        ("connection", get(&[("connection", "close")]), Stream),
        ("keep-alive", get(&[("keep-alive", "timeout=5")]), Stream),
        ("proxy-connection", get(&[("proxy-connection", "keep-alive")]), Stream),
        ("transfer-encoding", get(&[("transfer-encoding", "chunked")]), Stream),
        ("upgrade", get(&[("upgrade", "websocket")]), Stream),
        ("te but trailers", get(&[("te", "gzip")]), Stream),
        ("te and trailers", get(&[("te", "trailers, deflate")]), Stream),
    ]);
}

#[test]
fn pseudo_fields_are_strict() {
    const M: (&str, &str) = (":method", "GET");
    const S: (&str, &str) = (":scheme", "http");
    const A: (&str, &str) = (":authority", "weir.test");
    const P: (&str, &str) = (":path", "/");
    refused(&[
        ("no method", pseudo(&[S, A, P]), Stream),
        ("no scheme", pseudo(&[M, A, P]), Stream),
        ("no path", pseudo(&[M, S, A]), Stream),
        ("empty path", pseudo(&[M, S, A, (":path", "")]), Stream),
        ("empty method", pseudo(&[(":method", ""), S, A, P]), Stream),
        ("two methods", pseudo(&[M, M, S, A, P]), Stream),
        ("two paths", pseudo(&[M, S, A, P, (":path", "/b")]), Stream),
        ("two schemes", pseudo(&[M, S, S, A, P]), Stream),
        ("two authorities", pseudo(&[M, S, A, A, P]), Stream),
        ("unknown", pseudo(&[M, S, A, P, (":unknown", "x")]), Stream),
        ("of a response", pseudo(&[M, S, A, P, (":status", "200")]), Stream),
        (":protocol without CONNECT", pseudo(&[M, S, A, P, (":protocol", "websocket")]), Stream),
        ("after a field", pseudo(&[M, S, A, ("x-a", "b"), P]), Stream),
        ("no authority, no host", pseudo(&[M, S, P]), Answer(BAD_HOST)),
        ("a path without a slash", pseudo(&[M, S, A, (":path", "a")]), Stream),
        ("a path that is a URL", pseudo(&[M, S, A, (":path", "http://other.test/")]), Stream),
        ("* for GET", pseudo(&[M, S, A, (":path", "*")]), Answer(BAD_TARGET)),
        ("upper-case pseudo-field", pseudo(&[(":Method", "GET"), S, A, P]), Stream),
    ]);
}

#[test]
fn names_and_values_are_strict() {
    refused(&[
        ("upper case", get(&[("X-Upper", "a")]), Stream),
        ("an empty name", get(&[("", "a")]), Stream),
        ("a space in a name", get(&[("x a", "b")]), Stream),
        ("a colon in a name", get(&[("x:a", "b")]), Stream),
        ("CR LF in a name", get(&[("x\r\ny", "b")]), Stream),
        ("LF in a value", get(&[("x-a", "b\nx-b: c")]), Stream),
        ("CR in a value", get(&[("x-a", "b\rx-b: c")]), Stream),
        ("CR LF in a value", get(&[("x-a", "b\r\n\r\nGET /evil HTTP/1.1\r\nHost: h\r\n\r\n")]), Stream),
        ("NUL in a value", get(&[("x-a", "b\0c")]), Stream),
        ("a control character", get(&[("x-a", "b\x01c")]), Stream),
        ("DEL", get(&[("x-a", "b\x7fc")]), Stream),
        ("CR LF in a cookie", get(&[("cookie", "a=b"), ("cookie", "c\r\nx-evil: 1")]), Stream),
    ]);
}

#[test]
fn nothing_is_smuggled_in_a_request_line() {
    let path = |path| {
        pseudo(&[(":method", "GET"), (":scheme", "http"), (":authority", "weir.test"), (":path", path)])
    };
    let scheme = |scheme| {
        pseudo(&[(":method", "GET"), (":scheme", scheme), (":authority", "weir.test"), (":path", "/")])
    };
    let method = |method| ask(method, "/", &[]);
    let authority =
        |host| pseudo(&[(":method", "GET"), (":scheme", "http"), (":authority", host), (":path", "/")]);
    refused(&[
        ("CR LF in the path", path("/ HTTP/1.1\r\nHost: evil\r\n\r\nGET /evil"), Stream),
        ("LF in the path", path("/a\nb"), Stream),
        ("NUL in the path", path("/a\0b"), Stream),
        ("a space in the path", path("/a HTTP/1.1"), Stream),
        ("a tab in the path", path("/a\tb"), Stream),
        ("CR LF in the method", method("GET / HTTP/1.1\r\nHost: evil\r\n\r\nGET"), Stream),
        ("a space in the method", method("GET /evil"), Stream),
        ("NUL in the method", method("GE\0T"), Stream),
        ("CR LF in the authority", authority("weir.test\r\nx-evil: 1"), Stream),
        ("a space in the authority", authority("weir.test evil"), Stream),
        ("a slash in the authority", authority("weir.test/evil"), Answer(BAD_HOST)),
        ("userinfo", authority("user@weir.test"), Answer(BAD_HOST)),
        ("a port that is none", authority("weir.test:99999"), Answer(BAD_HOST)),
        ("a path above the root", path("/../a"), Answer(BAD_PATH)),
        ("an escaped NUL", path("/a%00"), Answer(BAD_PATH)),
        ("a fragment", path("/a#b"), Answer(BAD_TARGET)),
        ("a backslash", path("/a\\b"), Answer(BAD_PATH)),
        ("another scheme", scheme("ftp"), Answer(BAD_TARGET)),
        ("no scheme's name", scheme(""), Answer(BAD_TARGET)),
        ("a URL in the scheme", scheme("http://evil.test/?"), Answer(BAD_TARGET)),
        ("CR LF in the scheme", scheme("http\r\nx-evil: 1"), Stream),
    ]);
}

#[test]
fn authority_and_host() {
    let upstream = Upstream::fixed(OK_BODY);
    let weir = weir(upstream.address(), "");
    let (m, s, p) = ((":method", "GET"), (":scheme", "http"), (":path", "/"));
    let a = |name| (":authority", name);
    for (fields, seen) in [
        (vec![m, s, a("weir.test"), p], Ok("weir.test")),
        (vec![m, s, a("weir.test"), p, ("host", "weir.test")], Ok("weir.test")),
        (vec![m, s, a("weir.test"), p, ("host", "WEIR.test")], Ok("weir.test")),
        (vec![m, s, p, ("host", "weir.test:8080")], Ok("weir.test:8080")),
        (vec![m, s, a("weir.test"), p, ("host", "evil.test")], Err(BAD_HOST)),
        (vec![m, s, a("weir.test"), p, ("host", "weir.test"), ("host", "evil.test")], Err(BAD_HOST)),
        (vec![m, s, a("weir.test"), p, ("host", "weir.test"), ("host", "weir.test")], Err(BAD_HOST)),
        (vec![m, s, p, ("host", "weir.test"), ("host", "weir.test")], Err(BAD_HOST)),
        (vec![m, s, a("weir.test"), p, ("host", "")], Err(BAD_HOST)),
        (vec![m, s, p, ("host", "")], Err(BAD_HOST)),
    ] {
        upstream.forget();
        let mut client = weir.h2();
        let stream = client.request(&fields, true);
        let answer = client.message(stream);
        match seen {
            Ok(host) => {
                answer.expect_status(200);
                assert_eq!(upstream.take_request().head.all("host"), [host], "{fields:?}");
            }
            Err(cause) => {
                assert_eq!(answer.status(), 400, "{fields:?}");
                answer.expect_cause(cause);
                assert!(upstream.requests().is_empty());
            }
        }
    }
}

#[test]
fn a_head_becomes_one_of_http1() {
    let upstream = Upstream::fixed(OK_BODY);
    let weir = weir(upstream.address(), "");
    let mut client = weir.h2();
    let stream = client.request(
        &ask(
            "PATCH",
            "/a/%7Euser/./b?q=1&r=%2f",
            &[
                ("cookie", "a=1"),
                ("x-one", "1"),
                ("cookie", "b=2"),
                ("x-one", "2"),
                ("cookie", "c=3"),
                ("te", "trailers"),
                ("accept", "*/*"),
            ],
        ),
        true,
    );
    client.message(stream).expect_status(200);
    let request = upstream.take_request();
    expect_lines(
        &request.head.raw,
        &[
            "PATCH /a/~user/b?q=1&r=%2f HTTP/1.1",
            "host: weir.test",
            "cookie: a=1; b=2; c=3",
            "x-one: 1",
            "x-one: 2",
            "accept: */*",
            "connection: te",
            "te: trailers",
            "content-length: 0",
        ],
    );
    assert_eq!(request.head.all("x-forwarded-proto"), ["http"]);
}

#[test]
fn paths_have_one_form() {
    let upstream = Upstream::fixed(OK_BODY);
    let weir = weir(upstream.address(), "");
    let mut client = weir.h2();
    for (path, seen) in [
        ("/", "/"),
        ("/a/../b", "/b"),
        ("/a//b", "/a/b"),
        ("/%41", "/A"),
        ("/a%2fb", "/a%2Fb"),
        ("/?", "/?"),
        ("/a;b=c,d'(e)", "/a;b=c,d'(e)"),
        ("/a%C3%A4", "/a%C3%A4"),
    ] {
        upstream.forget();
        let stream = client.get(path);
        client.message(stream).expect_status(200);
        assert_eq!(upstream.take_request().head.line, format!("GET {seen} HTTP/1.1"), "{path}");
    }
}

#[test]
fn connect_is_refused() {
    let upstream = Upstream::fixed(OK_BODY);
    let weir = weir(upstream.address(), "");
    let mut client = weir.h2();
    let stream = client.request(&[(":method", "CONNECT"), (":authority", "other.test:443")], false);
    client.message(stream).expect_cause(METHOD_REFUSED);
    let stream = client.get("/next");
    client.message(stream).expect_status(200);
    assert_eq!(upstream.requests().len(), 1);
}

#[test]
fn options_for_all() {
    let upstream = Upstream::fixed(OK_BODY);
    let weir = weir(upstream.address(), "");
    let mut client = weir.h2();
    let stream = client.request(&ask("OPTIONS", "*", &[]), true);
    client.message(stream).expect_status(200);
    assert_eq!(upstream.take_request().head.line, "OPTIONS * HTTP/1.1");
}

#[test]
fn heads_have_limits() {
    let upstream = Upstream::fixed(OK_BODY);
    let weir = weir_with(upstream.address(), "", "limits: { header_bytes: 8KiB, headers: 20 }");
    let mut client = weir.h2();
    let long = "x".repeat(5000);
    // More than is allowed, and more than is decoded.
    let stream = client.request(&get(&[("x-a", &long), ("x-b", &long)]), true);
    client.message(stream).expect_cause(HEADER_TOO_LARGE);
    let stream = client.request(&get(&[("x-a", &long), ("x-b", &long), ("x-c", &long)]), true);
    client.message(stream).expect_cause(HEADER_TOO_LARGE);
    let huge = "x".repeat(4000);
    let many: Vec<_> = (0..30).map(|_| ("x-a", huge.as_str())).collect();
    let fields = get(&many);
    let stream = client.next_stream();
    client.headers_in_pieces(stream, &fields, 16_000, true);
    let answer = client.message(stream);
    answer.expect_cause(HEADER_TOO_LARGE);
    let many: Vec<_> = (0..25).map(|_| ("x-a", "b")).collect();
    let stream = client.request(&get(&many), true);
    client.message(stream).expect_cause(TOO_MANY_HEADERS);
    let path = format!("/{}", "x".repeat(8200));
    let stream = client.request(&ask("GET", &path, &[]), true);
    let answer = client.message(stream);
    assert!([TARGET_TOO_LONG.0, 431].contains(&answer.status()), "{answer:?}");
    let stream = client.get("/next");
    client.message(stream).expect_status(200);
    assert_eq!(upstream.requests().len(), 1);
}

#[test]
fn a_head_in_many_pieces() {
    let upstream = Upstream::fixed(OK_BODY);
    let weir = weir(upstream.address(), "");
    let mut client = weir.h2();
    let fields = get(&[("x-a", "some value"), ("x-b", "another value")]);
    let stream = client.next_stream();
    client.headers_in_pieces(stream, &fields, 20, true);
    client.message(stream).expect_status(200);
    let head = upstream.take_request().head;
    assert_eq!((head.header("x-a"), head.header("x-b")), (Some("some value"), Some("another value")));
}

#[test]
fn a_refused_head_is_logged() {
    let upstream = Upstream::fixed(OK_BODY);
    let weir = weir(upstream.address(), "");
    let mut client = weir.h2();
    let stream = client.request(&get(&[("host", "evil.test")]), true);
    client.message(stream).expect_cause(BAD_HOST);
    let line = weir.wait_stdout("bad_host");
    assert!(line.contains("HTTP/2"), "{line}");
}
