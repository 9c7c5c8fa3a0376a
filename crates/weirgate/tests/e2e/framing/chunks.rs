//! Chunked bodies that are refused. Their head is valid, so the upstream may already know the request. It must never
//! see it as complete.

use weir_testkit::{Upstream, Weir, table};

use crate::cause::{BAD_CHUNK, BAD_RESPONSE};
use crate::support::{GET, OK};

/// What is wrong, and the body. Each is refused from both sides.
const ROWS: &[(&str, &[u8])] = &[
    ("no size", b"\r\na\r\n0\r\n\r\n"),
    ("a size that is no number", b"g\r\na\r\n0\r\n\r\n"),
    ("a sign", b"+1\r\na\r\n0\r\n\r\n"),
    ("a negative size", b"-1\r\na\r\n0\r\n\r\n"),
    ("a prefix", b"0x1\r\na\r\n0\r\n\r\n"),
    ("an underscore", b"1_0\r\naaaaaaaaaaaaaaaa\r\n0\r\n\r\n"),
    ("a space before the size", b" 1\r\na\r\n0\r\n\r\n"),
    ("a space after the size", b"1 \r\na\r\n0\r\n\r\n"),
    ("a tab after the size", b"1\t\r\na\r\n0\r\n\r\n"),
    ("a size that overflows", b"11111111111111111\r\na\r\n0\r\n\r\n"),
    ("a size that would wrap to 1", b"10000000000000001\r\na\r\n0\r\n\r\n"),
    ("bare LF after the size", b"1\na\r\n0\r\n\r\n"),
    ("bare CR after the size", b"1\ra\r\n0\r\n\r\n"),
    ("bare LF in an extension", b"1;a\nb\r\na\r\n0\r\n\r\n"),
    ("bare CR in an extension", b"1;a\rb\r\na\r\n0\r\n\r\n"),
    ("NUL in an extension", b"1;a\0\r\na\r\n0\r\n\r\n"),
    ("a comma for the semicolon", b"1,a\r\na\r\n0\r\n\r\n"),
    ("more data than the size", b"1\r\nab\r\n0\r\n\r\n"),
    ("no CRLF after the data", b"1\r\na0\r\n\r\n"),
    ("bare LF after the data", b"1\r\na\n0\r\n\r\n"),
    ("bare CR after the data", b"1\r\na\r0\r\n\r\n"),
    ("bare LF after the last chunk", b"1\r\na\r\n0\n\r\n"),
    ("bare LF as the last line", b"1\r\na\r\n0\r\n\n"),
    ("a trailer without a colon", b"1\r\na\r\n0\r\nabc\r\n\r\n"),
    ("a space before a trailer's colon", b"1\r\na\r\n0\r\nA : b\r\n\r\n"),
    ("a folded trailer", b"1\r\na\r\n0\r\nA: b\r\n c\r\n\r\n"),
    ("a NUL in a trailer", b"1\r\na\r\n0\r\nA: \0\r\n\r\n"),
    ("bare LF after a trailer", b"1\r\na\r\n0\r\nA: b\n\r\n"),
];

#[test]
fn from_a_client() {
    let upstream = Upstream::fixed(OK);
    let weir = Weir::in_front_of(&upstream);
    table(
        ROWS,
        |(what, _)| *what,
        |(_, body)| {
            let mut client = weir.client();
            client.send("POST /chunks HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n");
            let _ = client.try_send(body);
            client.read_response().expect_cause(BAD_CHUNK);
            client.expect_close();
        },
    );
    weir.client().get("/sentinel").expect_status(200);
    let whole: Vec<_> = upstream.requests().into_iter().filter(|request| request.complete).collect();
    assert_eq!(whole.len(), 1, "{whole:#?}");
    assert_eq!(whole[0].head.line, "GET /sentinel HTTP/1.1");
}

#[test]
fn from_an_upstream() {
    let upstream = Upstream::listen();
    let weir = Weir::in_front_of(&upstream);
    table(
        ROWS,
        |(what, _)| *what,
        |(_, body)| {
            upstream.forget();
            let (mut client, mut conn) = weir.begin(&upstream, GET);
            conn.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
            let _ = conn.try_send(body);
            // The head may already be on its way: then the body must look truncated.
            match client.try_read_response() {
                Ok(response) => {
                    response.expect_cause(BAD_RESPONSE);
                }
                Err(broken) => assert!(!broken.why.starts_with("Deadline"), "{broken:?}"),
            }
            conn.expect_close();
        },
    );
}

#[test]
fn a_body_that_never_ends_is_no_request() {
    let upstream = Upstream::fixed(OK);
    let weir = Weir::in_front_of(&upstream);
    for body in ["3\r\nabc\r\n", "3\r\nab", "3\r\nabc\r\n0\r\n", "3\r\nabc\r\n0\r\nA: b\r\n"] {
        let mut client = weir.client();
        client.send("POST /cut HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n");
        client.send(body);
        client.half_close();
        client.read_to_close();
    }
    weir.client().get("/sentinel").expect_status(200);
    assert_eq!(upstream.requests().iter().filter(|request| request.complete).count(), 1);
}
