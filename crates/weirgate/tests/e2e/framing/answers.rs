//! Invalid responses of an upstream: the client gets 502, and the connection is dropped.

use weir_testkit::{Authority, ServerTls, Upstream, Weir, table};

use crate::cause::{BAD_RESPONSE, UPGRADE_REFUSED};
use crate::support::{GET, OK_BODY, weir_with};

/// What is wrong, and the bytes.
const HEADS: &[(&str, &[u8])] = &[
    ("bare LF after the status line", b"HTTP/1.1 200 OK\nContent-Length: 0\r\n\r\n"),
    ("bare LF after a field", b"HTTP/1.1 200 OK\r\nContent-Length: 0\nA: b\r\n\r\n"),
    ("nothing but bare LF", b"HTTP/1.1 200 OK\nContent-Length: 0\n\n"),
    ("bare CR in a value", b"HTTP/1.1 200 OK\r\nA: b\rc\r\nContent-Length: 0\r\n\r\n"),
    ("bare CR in the reason", b"HTTP/1.1 200 O\rK\r\nContent-Length: 0\r\n\r\n"),
    ("NUL in a value", b"HTTP/1.1 200 OK\r\nA: b\0c\r\nContent-Length: 0\r\n\r\n"),
    ("NUL in the reason", b"HTTP/1.1 200 O\0K\r\nContent-Length: 0\r\n\r\n"),
    ("control byte in a value", b"HTTP/1.1 200 OK\r\nA: \x01\r\nContent-Length: 0\r\n\r\n"),
    ("folded by a space", b"HTTP/1.1 200 OK\r\nA: b\r\n c\r\nContent-Length: 0\r\n\r\n"),
    ("folded by a tab", b"HTTP/1.1 200 OK\r\nA: b\r\n\tc\r\nContent-Length: 0\r\n\r\n"),
    ("space before the first field", b"HTTP/1.1 200 OK\r\n A: b\r\nContent-Length: 0\r\n\r\n"),
    ("space before a colon", b"HTTP/1.1 200 OK\r\nContent-Length : 0\r\n\r\n"),
    ("no colon", b"HTTP/1.1 200 OK\r\nabc\r\nContent-Length: 0\r\n\r\n"),
    ("no name", b"HTTP/1.1 200 OK\r\n: b\r\nContent-Length: 0\r\n\r\n"),
    ("space in a name", b"HTTP/1.1 200 OK\r\nA b: c\r\nContent-Length: 0\r\n\r\n"),
    ("two lengths", b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab"),
    ("two equal lengths", b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\na"),
    ("a list of lengths", b"HTTP/1.1 200 OK\r\nContent-Length: 1, 1\r\n\r\na"),
    ("a sign", b"HTTP/1.1 200 OK\r\nContent-Length: +1\r\n\r\na"),
    ("a negative length", b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n"),
    ("an empty length", b"HTTP/1.1 200 OK\r\nContent-Length:\r\n\r\n"),
    ("too many digits", b"HTTP/1.1 200 OK\r\nContent-Length: 18446744073709551617\r\n\r\na"),
    (
        "a length and chunked",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    ),
    ("chunked in HTTP/1.0", b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    ("gzip", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n"),
    ("chunked, then gzip", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n"),
    ("chunked twice", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n"),
    ("almost chunked", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n"),
    ("an empty coding", b"HTTP/1.1 200 OK\r\nTransfer-Encoding:\r\n\r\n"),
    ("a status of two digits", b"HTTP/1.1 20 OK\r\nContent-Length: 0\r\n\r\n"),
    ("a status of four digits", b"HTTP/1.1 2000 OK\r\nContent-Length: 0\r\n\r\n"),
    ("a status that is not a number", b"HTTP/1.1 2xx OK\r\nContent-Length: 0\r\n\r\n"),
    ("no space before the status", b"HTTP/1.1200 OK\r\nContent-Length: 0\r\n\r\n"),
    ("two spaces before the status", b"HTTP/1.1  200 OK\r\nContent-Length: 0\r\n\r\n"),
    ("a version of its own", b"HTTP/2 200 OK\r\nContent-Length: 0\r\n\r\n"),
    ("lower-case version", b"http/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"),
    ("another protocol", b"ICY 200 OK\r\nContent-Length: 0\r\n\r\n"),
    ("no head at all", b"hello\r\n\r\n"),
];

#[test]
fn heads() {
    let upstream = Upstream::listen();
    let weir = Weir::in_front_of(&upstream);
    table(
        HEADS,
        |(what, _)| *what,
        |(_, bytes)| {
            upstream.forget();
            let (mut client, mut conn) = weir.begin(&upstream, GET);
            conn.send(bytes);
            client.read_response().expect_cause(BAD_RESPONSE);
            conn.expect_close();
            // Nothing of it remains: the client continues, over another connection.
            client.send(GET);
            let mut conn = upstream.accept_request();
            conn.send(OK_BODY);
            client.read_response().expect_status(200).expect_body("ok");
            conn.close();
        },
    );
}

#[test]
fn an_upgrade_that_nobody_asked_for() {
    let upstream = Upstream::listen();
    let weir = Weir::in_front_of(&upstream);
    let (mut client, mut conn) = weir.begin(&upstream, GET);
    conn.send("HTTP/1.1 101 Switching Protocols\r\nUpgrade: evil\r\nConnection: Upgrade\r\n\r\n");
    client.read_response().expect_cause(UPGRADE_REFUSED);
    conn.expect_close();
}

/// Two upstreams, in cleartext and over TLS, each with a gateway in front.
fn plain_and_secure() -> [(Upstream, Weir); 2] {
    let authority = Authority::new();
    let secure = Upstream::listen_tls(&ServerTls::new(&authority.leaf(&["up.test"])));
    let tls = format!("tls: {{ ca: {}, server_name: up.test }}", authority.file().display());
    let (in_front, plain) = (weir_with(&secure, &tls), Upstream::listen());
    let weir = Weir::in_front_of(&plain);
    [(plain, weir), (secure, in_front)]
}

/// A response that nobody has asked for.
const EVIL: &str = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil";

#[test]
fn what_follows_a_response_is_never_the_next_one() {
    for (upstream, weir) in plain_and_secure() {
        let (mut client, mut conn) = weir.begin(&upstream, GET);
        conn.send(format!("{OK_BODY}{EVIL}"));
        client.read_response().expect_body("ok");
        conn.expect_close();
        client.send(GET);
        let mut conn = upstream.accept_request();
        conn.send(OK_BODY);
        client.read_response().expect_body("ok");
    }
}

/// The response is as long as the buffer it is read into, so the bytes behind it stay where they are: in the socket, or
/// decrypted in the TLS session.
#[test]
fn what_follows_a_response_that_fills_its_buffer_is_never_the_next_one() {
    for (upstream, weir) in plain_and_secure() {
        let (mut client, mut conn) = weir.begin(&upstream, GET);
        let head = "HTTP/1.1 200 OK\r\nContent-Length: 16342\r\n\r\n";
        let body = "b".repeat(16 * 1024 - head.len());
        conn.send(format!("{head}{body}{EVIL}"));
        client.read_response().expect_body(&body);
        client.send(GET);
        let mut other = upstream.accept_request();
        other.send(OK_BODY);
        client.read_response().expect_body("ok");
        conn.expect_close();
    }
}

#[test]
fn a_body_where_none_can_be_is_never_the_next_response() {
    let upstream = Upstream::listen();
    let weir = Weir::in_front_of(&upstream);
    table(
        &[
            "HTTP/1.1 204 No Content\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil",
            "HTTP/1.1 304 Not Modified\r\nContent-Length: 4\r\n\r\nevil",
        ],
        |answer| *answer,
        |answer| {
            upstream.forget();
            let (mut client, mut conn) = weir.begin(&upstream, GET);
            conn.send(answer);
            let status = client.read_response().status;
            assert!(matches!(status, 204 | 304), "{status}");
            conn.expect_close();
            client.send(GET);
            let mut conn = upstream.accept_request();
            conn.send(OK_BODY);
            client.read_response().expect_body("ok");
            conn.close();
        },
    );
}

#[test]
fn an_answer_before_the_question_is_not_taken() {
    for (upstream, weir) in plain_and_secure() {
        let (mut client, mut conn) = weir.begin(&upstream, GET);
        conn.send(OK_BODY);
        client.read_response();
        // It sends data while idle in the pool: the connection closes, and the next request uses another.
        conn.send(EVIL);
        conn.expect_close();
        client.send(GET);
        let mut conn = upstream.accept_request();
        conn.send(OK_BODY);
        client.read_response().expect_body("ok");
    }
}

#[test]
fn sixteen_interim_responses_are_passed_on_and_no_more() {
    for (interim, last) in [(16, 200), (17, BAD_RESPONSE.0)] {
        let upstream = Upstream::fixed(
            ["HTTP/1.1 103 Early Hints\r\nA: b\r\n\r\n".repeat(interim), OK_BODY.into()].concat(),
        );
        let weir = Weir::in_front_of(&upstream);
        let mut client = weir.client();
        client.send(GET);
        for _ in 0..16 {
            client.read_response().expect_status(103);
        }
        client.read_response().expect_status(last);
        let metrics = weir.admin_client().ask("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").text();
        let outcome = if last == 200 { "answered" } else { "protocol_error" };
        let counted = format!("weir_upstream_attempts_total{{upstream=\"up\",outcome=\"{outcome}\"}} 1\n");
        assert!(metrics.contains(&counted), "{metrics}");
    }
}

#[test]
fn an_endless_row_of_1xx_has_an_end() {
    let upstream = Upstream::script(|conn| {
        conn.next_request();
        while conn.try_send("HTTP/1.1 103 Early Hints\r\nA: b\r\n\r\n").is_ok() {}
    });
    let weir = Weir::in_front_of(&upstream);
    let mut client = weir.client();
    client.send(GET);
    for _ in 0..1000 {
        match client.try_read_response() {
            Ok(response) if response.status == 103 => {}
            Ok(response) => {
                response.expect_cause(BAD_RESPONSE);
                return;
            }
            Err(broken) => return assert!(!broken.why.starts_with("Deadline"), "{broken:?}"),
        }
    }
    panic!("a thousand, and no end in sight");
}
