//! The two ends talking to each other directly, without a gateway.

use std::panic::{self, AssertUnwindSafe};
use std::time::Duration;

use super::*;

#[test]
fn a_conversation() {
    let upstream = Upstream::listen();
    let mut client = Client::connect(upstream.address());
    client.send(
        "POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n2;x\r\nok\r\n0\r\nT: v\r\n\r\n",
    );
    let mut conn = upstream.accept();
    let request = conn.read_request();
    assert_eq!(request.head.line, "POST /a HTTP/1.1");
    assert_eq!((&request.body.bytes[..], &request.body.chunks[..]), (&b"ok"[..], &[2][..]));
    assert_eq!(request.body.trailers, [("T".to_owned(), "v".to_owned())]);
    conn.send("HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab");
    client.read_response().expect_status(103);
    client.read_response().expect_status(200).expect_body("ab").expect_no_header("x");
    conn.send("HTTP/1.1 200 OK\r\n\r\nto the end");
    conn.half_close();
    client.read_response().expect_body("to the end");
    client.expect_eof();
    upstream.expect_no_connection();
}

#[test]
fn what_is_cut_short_is_seen() {
    let upstream = Upstream::listen();
    for (answer, why) in [
        ("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab", "Closed after 2 of 3 body bytes"),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n", "Closed after 2 bytes"),
        ("HTTP/1.1 200", "Closed while reading the head"),
    ] {
        let mut client = Client::connect(upstream.address());
        let mut conn = upstream.accept();
        conn.send(answer);
        conn.close();
        let broken = client.try_read_response().unwrap_err();
        assert!(broken.why.starts_with(why), "{broken:?}");
    }
}

#[test]
fn a_failure_shows_the_transcript() {
    let upstream = Upstream::named("one");
    let text = panic::catch_unwind(AssertUnwindSafe(|| {
        let mut client = Client::connect(upstream.address());
        client.get("/x");
        client.set_deadline(Duration::from_millis(10));
        client.read_response();
    }));
    let text = table::panic_text(&*text.unwrap_err()).to_owned();
    assert!(text.starts_with("Deadline while reading the head of a response"), "{text}");
    assert!(text.contains("→ GET /x HTTP/1.1\\r\\n\n") && text.contains("← one\n"), "{text}");
}

#[test]
fn resets_are_told_from_closes() {
    let upstream = Upstream::listen();
    let mut client = Client::connect(upstream.address());
    upstream.accept().reset();
    assert!(panic::catch_unwind(AssertUnwindSafe(|| client.expect_eof())).is_err());
    let client = Client::connect(upstream.address());
    let mut conn = upstream.accept();
    client.reset();
    conn.expect_close();
}

#[test]
fn echo_and_its_records() {
    let upstream = Upstream::echo();
    let mut client = Client::connect(upstream.address());
    client
        .ask("PUT / HTTP/1.1\r\nContent-Length: 1\r\n\r\nx")
        .expect_body("PUT / HTTP/1.1\r\nContent-Length: 1\r\n\r\nx");
    assert_eq!(upstream.take_request().body.bytes, b"x");
    client.send("garbage");
    client.close();
    eventually("the garbage is recorded", || upstream.stray() == [(0, b"garbage".to_vec())]);
    upstream.verify();
}

#[test]
fn tls_both_ways() {
    let authority = Authority::new();
    let tls = ServerTls::demanding(&authority.rsa_leaf(&["a.test"]), &authority);
    let upstream = Upstream::fixed_tls(&tls, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    let me = authority.client("me");
    let trusting = Tls::new(&authority, "a.test").identity(&me).only_rsa();
    let mut client = Client::connect_tls(upstream.address(), &trusting);
    client.get("/").expect_status(200);
    assert_eq!((client.tls().version.as_str(), client.tls().resumed), ("TLSv1_3", false));
    let request = upstream.take_request();
    assert_eq!(request.server_name.as_deref(), Some("a.test"));
    assert_eq!(request.client_certificate.as_deref(), Some(&me.der[..]));
    let mut again = Client::connect_tls(upstream.address(), &trusting);
    again.get("/").expect_status(200);
    assert!(again.tls().resumed);

    let stranger = Tls::new(&Authority::new(), "a.test");
    assert!(Client::try_connect_tls(upstream.address(), &stranger).unwrap_err().contains("UnknownIssuer"));
}

#[test]
fn addresses_that_do_not_answer() {
    let (_refusing, address) = refusing_address();
    assert!(!Client::can_connect(address));
    let (_full, address) = black_hole();
    let connected = std::net::TcpStream::connect_timeout(&address, Duration::from_millis(50));
    assert_eq!(connected.unwrap_err().kind(), std::io::ErrorKind::TimedOut);
}
