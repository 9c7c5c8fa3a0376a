//! Response heads as transcripts: the bytes, and the expected reading or error.
//!
//! Sections are of RFC 9112 unless another is named. The body is that of an answer to GET. Every row also runs byte
//! by byte, and cut in two at every position.

mod common;

use common::{Head, Row, run, run_owned};
use weir_h1::{BodyKind, Kind, Limits, Method, Progress, ResponseHead, parse_response};

/// §4: the status line.
const STATUS_LINE: &[Row] = &[
    (b"HTTP/1.1 200 OK\r\n\r\n", Ok("200 OK until-close")),
    (b"HTTP/1.1 200 OK\r\n\r\nbody", Ok("200 OK until-close || body")),
    (b"HTTP/1.1 404 Not Found\r\n\r\n", Ok("404 Not Found until-close")),
    (b"HTTP/1.1 200 \r\n\r\n", Ok("200  until-close")),
    (b"HTTP/1.1 200\r\n\r\n", Ok("200  until-close")), // no space: common and harmless
    (b"HTTP/1.1 200  \t two  words \r\n\r\n", Ok("200  \\t two  words  until-close")),
    (b"HTTP/1.1 200 \xd6k\r\n\r\n", Ok("200 \\xd6k until-close")), // obs-text
    (b"HTTP/1.1 599 x\r\n\r\n", Ok("599 x until-close")),
    // RFC 9110 §15: 100 to 599
    (b"HTTP/1.1 099 x\r\n\r\n", Err(Kind::StartLine)),
    (b"HTTP/1.1 000 x\r\n\r\n", Err(Kind::StartLine)),
    (b"HTTP/1.1 600 x\r\n\r\n", Err(Kind::StartLine)),
    (b"HTTP/1.1 999 x\r\n\r\n", Err(Kind::StartLine)),
    (b"HTTP/1.1 2000 x\r\n\r\n", Err(Kind::StartLine)),
    (b"HTTP/1.1 20 x\r\n\r\n", Err(Kind::StartLine)),
    (b"HTTP/1.1 20\r\n\r\n", Err(Kind::StartLine)),
    (b"HTTP/1.1 2x0 x\r\n\r\n", Err(Kind::StartLine)),
    (b"HTTP/1.1 -20 x\r\n\r\n", Err(Kind::StartLine)),
    (b"HTTP/1.1 +20 x\r\n\r\n", Err(Kind::StartLine)),
    (b"HTTP/1.1 0x1 x\r\n\r\n", Err(Kind::StartLine)),
    (b"HTTP/1.1 200OK\r\n\r\n", Err(Kind::StartLine)),
    (b"HTTP/1.1 200\tOK\r\n\r\n", Err(Kind::StartLine)),
    (b"HTTP/1.1  200 OK\r\n\r\n", Err(Kind::StartLine)),
    (b"HTTP/1.1\t200 OK\r\n\r\n", Err(Kind::StartLine)),
    (b"HTTP/1.1200 OK\r\n\r\n", Err(Kind::StartLine)),
    (b"HTTP/1.1 OK\r\n\r\n", Err(Kind::StartLine)),
    (b"HTTP/1.1\r\n\r\n", Err(Kind::StartLine)),
    // §2.3: the version
    (b"HTTP/1.0 200 OK\r\n\r\n", Ok("200 OK 1.0 until-close close")),
    (b"HTTP/1.2 200 OK\r\n\r\n", Err(Kind::Version)),
    (b"HTTP/0.9 200 OK\r\n\r\n", Err(Kind::Version)),
    (b"HTTP/2 200\r\n\r\n", Err(Kind::Version)),
    (b"HTTP/2.0 200 OK\r\n\r\n", Err(Kind::Version)),
    (b"HTTP/1.10 200 OK\r\n\r\n", Err(Kind::StartLine)),
    (b"http/1.1 200 OK\r\n\r\n", Err(Kind::StartLine)),
    (b"ICY 200 OK\r\n\r\n", Err(Kind::StartLine)),
    (b"<html>hello</html>", Err(Kind::StartLine)), // HTTP/0.9
    // §2.2: nothing before it, no bare CR or LF
    (b"\r\nHTTP/1.1 200 OK\r\n\r\n", Err(Kind::StartLine)),
    (b" HTTP/1.1 200 OK\r\n\r\n", Err(Kind::StartLine)),
    (b"\0HTTP/1.1 200 OK\r\n\r\n", Err(Kind::StartLine)),
    (b"HTTP/1.1 200 OK\n\r\n", Err(Kind::LineEnd)),
    (b"HTTP/1.1 200\n\r\n", Err(Kind::LineEnd)),
    (b"HTTP/1.1 200 OK\r\r\n\r\n", Err(Kind::LineEnd)),
    (b"HTTP/1.1 200 O\rK\r\n\r\n", Err(Kind::LineEnd)),
    (b"HTTP/1.1 200 O\0K\r\n\r\n", Err(Kind::ControlByte)),
    (b"HTTP/1.1 200 O\x7fK\r\n\r\n", Err(Kind::ControlByte)),
    (b"HTTP/1.1 200 O\x1bK\r\n\r\n", Err(Kind::ControlByte)),
    // RFC 9110 §15.2: interim answers; the final one stays behind
    (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n\r\n", Ok("100 Continue || HTTP/1.1 200 OK\\r\\n\\r\\n")),
    (b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n", Ok("103 Early Hints | Link: x")),
    (b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\nX: 1\r\n\r\n\x81\x00",
        Ok("101 Switching Protocols upgrade=websocket | X: 1 || \\x81\\x00")),
    (b"HTTP/1.1 101 x\r\nUpgrade: websocket\r\n\r\n", Ok("101 x")),
    (b"HTTP/1.1 101 x\r\nConnection: upgrade\r\n\r\n", Ok("101 x")),
    (b"HTTP/1.0 101 x\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n", Ok("101 x 1.0 close")),
    // RFC 9110 §8.6 and §6.1: 1xx and 204 have no body and no Content-Length, whatever they say
    (b"HTTP/1.1 204 No Content\r\n\r\n", Ok("204 No Content")),
    (b"HTTP/1.1 204 x\r\nContent-Length: 5\r\nX: 1\r\n\r\n", Ok("204 x | X: 1")),
    (b"HTTP/1.1 204 x\r\nContent-Length: 0\r\n\r\n", Ok("204 x")),
    (b"HTTP/1.1 204 x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", Ok("204 x || 0\\r\\n\\r\\n")),
    (b"HTTP/1.1 100 x\r\nContent-Length: 5\r\n\r\n", Ok("100 x")),
    (b"HTTP/1.1 101 x\r\nContent-Length: 5\r\n\r\n", Ok("101 x")),
    (b"HTTP/1.1 204 x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n", Err(Kind::ContentLength)),
    (b"HTTP/1.1 204 x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", Err(Kind::Framing)),
    // RFC 9110 §15.4.5: 304 has none, but may say how long it would be
    (b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", Ok("304 Not Modified | Content-Length: 5")),
    (b"HTTP/1.1 304 x\r\nTransfer-Encoding: chunked\r\n\r\n", Ok("304 x")),
    // RFC 9110 §15.3.6: 205 is framed like any other
    (b"HTTP/1.1 205 x\r\nContent-Length: 0\r\n\r\n", Ok("205 x | Content-Length: 0")),
    (b"HTTP/1.1 205 x\r\n\r\n", Ok("205 x until-close")),
];

/// Field lines of `HTTP/1.1 200 OK`. Expected: their difference from `200 OK`.
const FIELDS: &[Row] = &[
    // §6.3: where the body ends
    (b"Content-Length: 5\r\n", Ok("length=5 | Content-Length: 5")),
    (b"Content-Length: 0\r\n", Ok("| Content-Length: 0")),
    (b"Transfer-Encoding: chunked\r\n", Ok("chunked")),
    (b"Transfer-Encoding: Chunked\r\n", Ok("chunked")),
    (b"", Ok("until-close")),
    (b"Content-Length: 5\r\nContent-Length: 5\r\n", Err(Kind::ContentLength)),
    (b"Content-Length: 5\r\nContent-Length: 6\r\n", Err(Kind::ContentLength)),
    (b"Content-Length: 5, 5\r\n", Err(Kind::ContentLength)),
    (b"Content-Length: +5\r\n", Err(Kind::ContentLength)),
    (b"Content-Length: 05\r\n", Err(Kind::ContentLength)),
    (b"Content-Length: 00\r\n", Err(Kind::ContentLength)),
    (b"Content-Length:\r\n", Err(Kind::ContentLength)),
    (b"Content-Length: 99999999999999999999\r\n", Err(Kind::ContentLength)),
    (b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", Err(Kind::Framing)),
    (b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", Err(Kind::Framing)),
    (b"Transfer-Encoding: gzip\r\n", Err(Kind::TransferEncoding)),
    (b"Transfer-Encoding: gzip, chunked\r\n", Err(Kind::TransferEncoding)),
    (b"Transfer-Encoding: identity\r\n", Err(Kind::TransferEncoding)),
    (b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", Err(Kind::TransferEncoding)),
    (b"Transfer-Encoding:\r\n", Err(Kind::TransferEncoding)),
    // §5, §5.1, §5.2: as in requests; white space before a colon is refused, not removed
    (b"A : 1\r\n", Err(Kind::FieldName)),
    (b"Content-Length : 5\r\n", Err(Kind::FieldName)),
    (b"Transfer-Encoding : chunked\r\n", Err(Kind::FieldName)),
    (b" A: 1\r\n", Err(Kind::Fold)),
    (b"A: 1\r\n 2\r\n", Err(Kind::Fold)),
    (b"A: 1\n", Err(Kind::LineEnd)),
    (b"A: 1\rB: 2\r\n", Err(Kind::LineEnd)),
    (b"A: \0\r\n", Err(Kind::ControlByte)),
    (b"A\r\n", Err(Kind::FieldName)),
    (b"Set-Cookie: a\r\nSet-Cookie: b\r\n", Ok("until-close | Set-Cookie: a | Set-Cookie: b")),
    // §9.3
    (b"Connection: close\r\n", Ok("until-close close")),
    (
        b"Connection: Keep-Alive\r\nKeep-Alive: timeout=5\r\nContent-Length: 1\r\n",
        Ok("length=1 | Content-Length: 1"),
    ),
    // RFC 9110 §7.6.1
    (b"Connection: X-A\r\nX-A: 1\r\nX-B: 2\r\n", Ok("until-close | X-B: 2")),
    (
        b"Connection: Content-Length, Content-Type\r\nContent-Length: 5\r\nContent-Type: x\r\n",
        Ok("length=5 | Content-Length: 5 | Content-Type: x"),
    ),
    (b"Connection: Set-Cookie\r\nSet-Cookie: a\r\n", Ok("until-close | Set-Cookie: a")),
    (b"TE: trailers\r\nUpgrade: h2\r\nProxy-Connection: x\r\nTrailer: X\r\n", Ok("until-close | Trailer: X")),
    // of requests only: here they say nothing
    (b"Host: a\r\nHost: b c\r\nExpect: x\r\n", Ok("until-close | Host: a | Host: b c | Expect: x")),
];

/// HTTP/1.0.
const HTTP10: &[Row] = &[
    (
        b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nab",
        Ok("200 OK 1.0 length=2 | Content-Length: 2 || ab"),
    ),
    (b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", Err(Kind::Framing)),
    (b"HTTP/1.0 204 OK\r\nTransfer-Encoding: chunked\r\n\r\n", Err(Kind::Framing)),
];

#[test]
fn status_lines() {
    run::<ResponseHead>(STATUS_LINE);
}

#[test]
fn field_lines() {
    let rows = FIELDS.iter().map(|&(lines, want)| {
        let bytes = [&b"HTTP/1.1 200 OK\r\n"[..], lines, b"\r\n"].concat();
        (bytes, want.map(|w| format!("200 OK {w}")))
    });
    run_owned::<ResponseHead>(rows.collect());
}

#[test]
fn http_1_0() {
    run::<ResponseHead>(HTTP10);
}

fn head(bytes: &[u8]) -> ResponseHead {
    let mut head = ResponseHead::default();
    head.buffer_mut().extend_from_slice(bytes);
    assert_eq!(parse_response(&mut head, &Limits::default()), Ok(Progress::Complete));
    head
}

/// §6.3, rule 1: the answer to HEAD ends with its head.
#[test]
fn answers_to_head_have_no_body() {
    for fields in ["Content-Length: 5\r\n", "Transfer-Encoding: chunked\r\n", ""] {
        let head = head(format!("HTTP/1.1 200 OK\r\n{fields}\r\n").as_bytes());
        assert_eq!(head.body(Method::Head), BodyKind::Empty);
        assert_ne!(head.body(Method::Get), BodyKind::Empty);
    }
    assert_eq!(head(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n").content_length(), Some(5));
    assert_eq!(head(b"HTTP/1.1 304 x\r\nContent-Length: 5\r\n\r\n").content_length(), Some(5));
    assert_eq!(head(b"HTTP/1.1 204 x\r\nContent-Length: 5\r\n\r\n").content_length(), None);
}

/// A filter that answers 200 with 304 does not make the bytes of the body the next response.
#[test]
fn another_status_does_not_change_the_framing() {
    let mut head = head(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello");
    head.set_status(304);
    assert_eq!((head.status(), head.reason()), (304, &b""[..]));
    assert_eq!(head.body(Method::Get), BodyKind::Length(5));
}

#[test]
fn limits_hold() {
    let limits = Limits::default();
    let kind = |bytes: &[u8]| match common::read::<ResponseHead>(bytes, &[], &limits).0 {
        common::Read::Refused(kind) => Some(kind),
        _ => None,
    };
    let long = format!("HTTP/1.1 200 {}", "x".repeat(40_000));
    assert_eq!(kind(long.as_bytes()), Some(Kind::HeadTooLarge));
    let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "A: 1\r\n".repeat(101));
    assert_eq!(kind(many.as_bytes()), Some(Kind::TooManyFields));
}

#[test]
fn interim_and_final_answers_are_read_one_after_another() {
    let mut head =
        head(b"HTTP/1.1 100 Continue\r\nX: 1\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 ");
    assert_eq!(head.status(), 100);
    head.recycle(0);
    assert_eq!(parse_response(&mut head, &Limits::default()), Ok(Progress::Complete));
    assert_eq!(head.told(), "200 OK length=2 | Content-Length: 2 || okHTTP/1.1 ");
    head.recycle(2);
    assert_eq!((head.status(), head.reason(), head.headers.len()), (0, &b""[..], 0));
    assert_eq!(parse_response(&mut head, &Limits::default()), Ok(Progress::Partial));
    head.buffer_mut().extend_from_slice(b"204\r\n\r\n");
    assert_eq!(parse_response(&mut head, &Limits::default()), Ok(Progress::Complete));
    head.recycle(usize::MAX);
    assert!(head.rest().is_empty());
}
