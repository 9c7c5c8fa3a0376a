//! Request heads that are refused: bytes in, cause out, the connection closes, and nothing reaches the upstream.

use weir_testkit::{Upstream, Weir, table};

use crate::cause::{
    BAD_FRAMING, BAD_HEAD, BAD_HOST, BAD_PATH, BAD_TARGET, Cause, METHOD_REFUSED, UNEXPECTED_TLS, VERSION,
};
use crate::support::OK;

/// What is wrong, the bytes, and the cause.
type Row = (&'static str, &'static [u8], Cause);

const LINES: &[Row] = &[
    ("bare LF after the request line", b"GET / HTTP/1.1\nHost: h\r\n\r\n", BAD_HEAD),
    ("bare LF after a field", b"GET / HTTP/1.1\r\nHost: h\nA: b\r\n\r\n", BAD_HEAD),
    ("bare LF as the empty line", b"GET / HTTP/1.1\r\nHost: h\r\n\n", BAD_HEAD),
    ("nothing but bare LF", b"GET / HTTP/1.1\nHost: h\n\n", BAD_HEAD),
    ("bare CR after the request line", b"GET / HTTP/1.1\rHost: h\r\n\r\n", BAD_HEAD),
    ("bare CR in a value", b"GET / HTTP/1.1\r\nHost: h\r\nA: b\rc\r\n\r\n", BAD_HEAD),
    ("bare CR at the end of a value", b"GET / HTTP/1.1\r\nHost: h\r\nA: b\r\r\n\r\n", BAD_HEAD),
    ("bare CR before a request line", b"\rGET / HTTP/1.1\r\nHost: h\r\n\r\n", BAD_HEAD),
    ("NUL in a value", b"GET / HTTP/1.1\r\nHost: h\r\nA: b\0c\r\n\r\n", BAD_HEAD),
    ("NUL in a name", b"GET / HTTP/1.1\r\nHost: h\r\nA\0: b\r\n\r\n", BAD_HEAD),
    ("NUL before a request line", b"\0GET / HTTP/1.1\r\nHost: h\r\n\r\n", BAD_HEAD),
    ("control byte in a value", b"GET / HTTP/1.1\r\nHost: h\r\nA: \x01\r\n\r\n", BAD_HEAD),
    ("vertical tab in a value", b"GET / HTTP/1.1\r\nHost: h\r\nA: b\x0bc\r\n\r\n", BAD_HEAD),
    ("DEL in a value", b"GET / HTTP/1.1\r\nHost: h\r\nA: b\x7f\r\n\r\n", BAD_HEAD),
    ("folded by a space", b"GET / HTTP/1.1\r\nHost: h\r\nA: b\r\n c\r\n\r\n", BAD_HEAD),
    ("folded by a tab", b"GET / HTTP/1.1\r\nHost: h\r\nA: b\r\n\tc\r\n\r\n", BAD_HEAD),
    ("folded to nothing", b"GET / HTTP/1.1\r\nHost: h\r\n \r\n\r\n", BAD_HEAD),
    ("space before the first field", b"GET / HTTP/1.1\r\n Host: h\r\n\r\n", BAD_HEAD),
    ("tab before the first field", b"GET / HTTP/1.1\r\n\tA: b\r\nHost: h\r\n\r\n", BAD_HEAD),
    ("space before a colon", b"GET / HTTP/1.1\r\nHost : h\r\n\r\n", BAD_HEAD),
    ("tab before a colon", b"GET / HTTP/1.1\r\nHost: h\r\nA\t: b\r\n\r\n", BAD_HEAD),
    ("space in a name", b"GET / HTTP/1.1\r\nHost: h\r\nA b: c\r\n\r\n", BAD_HEAD),
    ("no colon", b"GET / HTTP/1.1\r\nHost: h\r\nAbc\r\n\r\n", BAD_HEAD),
    ("no name", b"GET / HTTP/1.1\r\nHost: h\r\n: b\r\n\r\n", BAD_HEAD),
    ("separator in a name", b"GET / HTTP/1.1\r\nHost: h\r\nA(b): c\r\n\r\n", BAD_HEAD),
    ("high byte in a name", b"GET / HTTP/1.1\r\nHost: h\r\nA\xe9: c\r\n\r\n", BAD_HEAD),
];

const REQUEST_LINES: &[Row] = &[
    ("no version", b"GET /\r\nHost: h\r\n\r\n", BAD_TARGET),
    ("two spaces after the method", b"GET  / HTTP/1.1\r\nHost: h\r\n\r\n", BAD_TARGET),
    ("two spaces after the target", b"GET /  HTTP/1.1\r\nHost: h\r\n\r\n", BAD_HEAD),
    ("tab after the method", b"GET\t/ HTTP/1.1\r\nHost: h\r\n\r\n", BAD_HEAD),
    ("space after the version", b"GET / HTTP/1.1 \r\nHost: h\r\n\r\n", BAD_HEAD),
    ("space before the method", b" GET / HTTP/1.1\r\nHost: h\r\n\r\n", BAD_HEAD),
    ("separator in the method", b"GE(T / HTTP/1.1\r\nHost: h\r\n\r\n", BAD_HEAD),
    ("lower-case version", b"GET / http/1.1\r\nHost: h\r\n\r\n", BAD_HEAD),
    ("two-digit version", b"GET / HTTP/1.10\r\nHost: h\r\n\r\n", BAD_HEAD),
    ("version without a dot", b"GET / HTTP/11\r\nHost: h\r\n\r\n", BAD_HEAD),
    ("version 2.0", b"GET / HTTP/2.0\r\nHost: h\r\n\r\n", VERSION),
    ("version 0.9", b"GET / HTTP/0.9\r\nHost: h\r\n\r\n", VERSION),
    ("TRACE", b"TRACE / HTTP/1.1\r\nHost: h\r\n\r\n", METHOD_REFUSED),
    ("CONNECT", b"CONNECT h:443 HTTP/1.1\r\nHost: h:443\r\n\r\n", METHOD_REFUSED),
    ("not HTTP at all: TLS", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", UNEXPECTED_TLS),
    ("not HTTP at all: SSH", b"SSH-2.0-OpenSSH_9.6\r\n\r\n", BAD_HEAD),
];

const LENGTHS: &[Row] = &[
    (
        "two equal lengths",
        b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\na",
        BAD_FRAMING,
    ),
    (
        "two lengths",
        b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        BAD_FRAMING,
    ),
    ("a list of lengths", b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1, 1\r\n\r\na", BAD_FRAMING),
    ("a zero in front", b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 01\r\n\r\na", BAD_FRAMING),
    ("a sign", b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: +1\r\n\r\na", BAD_FRAMING),
    ("a negative length", b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: -1\r\n\r\n", BAD_FRAMING),
    ("a hexadecimal length", b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 0x1\r\n\r\na", BAD_FRAMING),
    ("a fraction", b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1.0\r\n\r\na", BAD_FRAMING),
    ("a space within", b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1 1\r\n\r\na", BAD_FRAMING),
    ("an empty length", b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length:\r\n\r\n", BAD_FRAMING),
    (
        "too many digits",
        b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 18446744073709551617\r\n\r\na",
        BAD_FRAMING,
    ),
    ("a word", b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: one\r\n\r\na", BAD_FRAMING),
    ("a bad length on GET", b"GET / HTTP/1.1\r\nHost: h\r\nContent-Length: x\r\n\r\n", BAD_FRAMING),
];

const CODINGS: &[Row] = &[
    (
        "length, then chunked",
        b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        BAD_FRAMING,
    ),
    (
        "chunked, then length",
        b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
        BAD_FRAMING,
    ),
    (
        "chunked in HTTP/1.0",
        b"POST / HTTP/1.0\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        BAD_FRAMING,
    ),
    ("gzip", b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip\r\n\r\n", BAD_FRAMING),
    ("identity", b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: identity\r\n\r\n", BAD_FRAMING),
    ("chunked, then gzip", b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n", BAD_FRAMING),
    ("gzip, then chunked", b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", BAD_FRAMING),
    ("chunked twice", b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n", BAD_FRAMING),
    (
        "chunked in two fields",
        b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        BAD_FRAMING,
    ),
    (
        "identity hides chunked",
        b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
        BAD_FRAMING,
    ),
    ("almost chunked", b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", BAD_FRAMING),
    ("quoted chunked", b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: \"chunked\"\r\n\r\n0\r\n\r\n", BAD_FRAMING),
    ("chunked with a parameter", b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked;a=b\r\n\r\n0\r\n\r\n", BAD_FRAMING),
    ("chunked and an empty coding", b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked,\r\n\r\n0\r\n\r\n", BAD_FRAMING),
    ("an empty coding", b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding:\r\n\r\n", BAD_FRAMING),
    ("chunked after a vertical tab", b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n", BAD_HEAD),
    ("a space before its colon", b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n", BAD_HEAD),
    ("chunked on the next line", b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n", BAD_FRAMING),
];

const HOSTS: &[Row] = &[
    ("no Host", b"GET / HTTP/1.1\r\nA: b\r\n\r\n", BAD_HOST),
    ("two Hosts", b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", BAD_HOST),
    ("the same Host twice", b"GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", BAD_HOST),
    ("two Hosts in HTTP/1.0", b"GET / HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n", BAD_HOST),
    ("a list", b"GET / HTTP/1.1\r\nHost: a, b\r\n\r\n", BAD_HOST),
    ("a space", b"GET / HTTP/1.1\r\nHost: a b\r\n\r\n", BAD_HOST),
    ("userinfo", b"GET / HTTP/1.1\r\nHost: a@b\r\n\r\n", BAD_HOST),
    ("a path", b"GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", BAD_HOST),
    ("a query", b"GET / HTTP/1.1\r\nHost: a?b\r\n\r\n", BAD_HOST),
    ("a fragment", b"GET / HTTP/1.1\r\nHost: a#b\r\n\r\n", BAD_HOST),
    ("a scheme", b"GET / HTTP/1.1\r\nHost: http://a\r\n\r\n", BAD_HOST),
    ("a port that is none", b"GET / HTTP/1.1\r\nHost: a:b\r\n\r\n", BAD_HOST),
    ("two ports", b"GET / HTTP/1.1\r\nHost: a:1:2\r\n\r\n", BAD_HOST),
    ("an open bracket", b"GET / HTTP/1.1\r\nHost: [::1\r\n\r\n", BAD_HOST),
    ("a bracket without an address", b"GET / HTTP/1.1\r\nHost: [x]\r\n\r\n", BAD_HOST),
    ("a quote", b"GET / HTTP/1.1\r\nHost: a\"b\r\n\r\n", BAD_HOST),
    ("a high byte", b"GET / HTTP/1.1\r\nHost: \xe9\r\n\r\n", BAD_HOST),
    ("a target that disagrees", b"GET http://a/ HTTP/1.1\r\nHost: b\r\n\r\n", BAD_HOST),
    ("a target with another port", b"GET http://a:1/ HTTP/1.1\r\nHost: a:2\r\n\r\n", BAD_HOST),
];

const TARGETS: &[Row] = &[
    ("no slash", b"GET a HTTP/1.1\r\nHost: h\r\n\r\n", BAD_TARGET),
    ("an asterisk for GET", b"GET * HTTP/1.1\r\nHost: h\r\n\r\n", BAD_TARGET),
    ("an authority for GET", b"GET h:80 HTTP/1.1\r\nHost: h:80\r\n\r\n", BAD_TARGET),
    ("another scheme", b"GET ftp://h/ HTTP/1.1\r\nHost: h\r\n\r\n", BAD_TARGET),
    ("no authority", b"GET http:/// HTTP/1.1\r\nHost: h\r\n\r\n", BAD_TARGET),
    ("userinfo", b"GET http://u@h/ HTTP/1.1\r\nHost: h\r\n\r\n", BAD_TARGET),
    ("a control byte", b"GET /a\x01b HTTP/1.1\r\nHost: h\r\n\r\n", BAD_TARGET),
    ("a NUL", b"GET /a\0b HTTP/1.1\r\nHost: h\r\n\r\n", BAD_TARGET),
    ("a DEL", b"GET /a\x7fb HTTP/1.1\r\nHost: h\r\n\r\n", BAD_TARGET),
    ("a high byte", b"GET /a\xe9 HTTP/1.1\r\nHost: h\r\n\r\n", BAD_TARGET),
    ("a tab", b"GET /a\tb HTTP/1.1\r\nHost: h\r\n\r\n", BAD_TARGET),
    ("a control byte in the query", b"GET /a?\x02 HTTP/1.1\r\nHost: h\r\n\r\n", BAD_TARGET),
];

/// Paths of an otherwise valid request.
const PATHS: &[(&str, &str)] = &[
    ("above the root", "/.."),
    ("above the root on a way round", "/a/../../b"),
    ("above the root, escaped", "/%2e%2e/a"),
    ("above the root, half escaped", "/.%2E/a"),
    ("dot-dot before an escaped slash", "/a/..%2fb"),
    ("dot-dot after an escaped slash", "/a%2F../b"),
    ("dot-dot between escaped slashes", "/a%2f..%2Fb"),
    ("escaped dots beside an escaped slash", "/a/%2e%2e%2fb"),
    ("an escape cut short", "/a%4"),
    ("an escape without digits", "/a%"),
    ("an escape that is none", "/a%zz"),
    ("an escaped NUL", "/a%00"),
    ("an escaped LF", "/a%0ab"),
    ("an escaped CR", "/a%0Db"),
    ("an escaped DEL", "/a%7f"),
    ("a backslash", "/a\\b"),
    ("an escaped backslash", "/a%5cb"),
    ("a fragment", "/a#b"),
];

#[test]
fn lines() {
    refused(LINES);
}

#[test]
fn request_lines() {
    refused(REQUEST_LINES);
}

#[test]
fn lengths() {
    refused(LENGTHS);
}

#[test]
fn codings() {
    refused(CODINGS);
}

#[test]
fn hosts() {
    refused(HOSTS);
}

#[test]
fn targets() {
    refused(TARGETS);
}

#[test]
fn paths() {
    let upstream = Upstream::fixed(OK);
    let weir = Weir::in_front_of(&upstream);
    table(
        PATHS,
        |(what, path)| format!("{what}: {path}"),
        |(_, path)| {
            let mut client = weir.client();
            let response = client.ask(format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n"));
            // Which of the two is reported depends on where the error is found.
            assert!(
                [BAD_PATH, BAD_TARGET]
                    .contains(&(response.status, response.header("x-weir-cause").unwrap_or("")))
            );
            client.expect_close();
        },
    );
    nothing_arrived(&weir, &upstream);
}

#[test]
fn the_same_after_a_good_request() {
    let upstream = Upstream::fixed(OK);
    let weir = Weir::in_front_of(&upstream);
    table(
        LENGTHS,
        |(what, ..)| *what,
        |(_, bytes, cause)| {
            upstream.forget();
            // In the same packet, so that the bad request is read while the good one is in flight.
            let mut client = weir.client();
            client.send([b"GET /first HTTP/1.1\r\nHost: h\r\n\r\n", *bytes].concat());
            client.read_response().expect_status(200);
            client.read_response().expect_cause(*cause);
            client.expect_close();
            assert_eq!(upstream.take_request().head.line, "GET /first HTTP/1.1");
        },
    );
}

#[test]
fn a_refused_request_ends_what_follows_it() {
    let upstream = Upstream::fixed(OK);
    let weir = Weir::in_front_of(&upstream);
    let mut client = weir.client();
    client.send(
        "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    );
    client.send("GET /smuggled HTTP/1.1\r\nHost: h\r\n\r\n");
    client.read_response().expect_cause(BAD_FRAMING).expect_header("connection", "close");
    client.expect_close();
    nothing_arrived(&weir, &upstream);
}

#[track_caller]
fn refused(rows: &[Row]) {
    let upstream = Upstream::fixed(OK);
    let weir = Weir::in_front_of(&upstream);
    table(
        rows,
        |(what, ..)| *what,
        |(_, bytes, cause)| {
            let mut client = weir.client();
            client.ask(bytes).expect_cause(*cause);
            client.expect_close();
        },
    );
    nothing_arrived(&weir, &upstream);
}

/// Nothing has reached the upstream. A good request proves it: it is the first, on the first connection.
#[track_caller]
fn nothing_arrived(weir: &Weir, upstream: &Upstream) {
    weir.client().get("/sentinel").expect_status(200);
    let lines: Vec<_> = upstream.requests().into_iter().map(|request| request.head.line).collect();
    assert_eq!(lines, ["GET /sentinel HTTP/1.1"]);
    assert_eq!(upstream.connections(), 1);
    assert_eq!(upstream.stray(), []);
}
