//! WebSocket over HTTP/2 (RFC 8441), in every pair of protocols.

use weir_origin::{Options as OriginOptions, Origin};
use weir_testkit::h2::{End, H2, Options, code, setting};
use weir_testkit::{Upstream, Weir};

use super::{H2C, weir};
use crate::cause::METHOD_REFUSED;
use crate::support::OK_BODY;

const CONNECT: &[(&str, &str)] = &[
    (":method", "CONNECT"),
    (":protocol", "websocket"),
    (":scheme", "http"),
    (":authority", "weir.test"),
    (":path", "/ws?a=b"),
    ("sec-websocket-version", "13"),
    ("origin", "http://weir.test"),
];

const ASK: &str = "GET /ws HTTP/1.1\r\nHost: weir.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                   Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

fn willing() -> Options {
    Options::default().with(&[(setting::CONNECT, 1)])
}

#[test]
fn from_http2_to_http1() {
    let origin = Origin::start(OriginOptions::default()).unwrap();
    let weir = weir(origin.address(), "");
    let mut client = weir.h2();
    let stream = client.request(&[CONNECT, &[]].concat(), false);
    let head = client.wait(stream, "the head", |message| message.status() == 200);
    for name in ["upgrade", "connection", "sec-websocket-accept", "transfer-encoding"] {
        head.expect_no_header(name);
    }
    client.data(stream, [0x81, 0x82, 0, 0, 0, 0, b'h', b'i'], false);
    client.wait(stream, "the echo", |message| message.body == [0x81, 2, b'h', b'i']);
    // Another stream meanwhile.
    let other = client.get("/");
    assert_ne!(client.message(other).status(), 0);
    client.data(stream, [0x88, 0x80, 0, 0, 0, 0], false);
    let all = client.message(stream);
    assert_eq!((all.body, all.end), ([0x81, 2, b'h', b'i', 0x88, 0].to_vec(), Some(End::Stream)));
}

/// weir-h1 takes both fields out of a head, so conditions must read them from elsewhere. The routes refuse, because over
/// HTTP/2 a 2xx would open a WebSocket.
#[test]
fn conditions_see_an_upgrade() {
    let weir = Weir::start(
        r#"
listeners: { web: { address: 127.0.0.1:0, protocols: [http1, h2] } }
routes:
  field: { match: { path: "/field", headers: { upgrade: websocket } }, respond: { status: 403 } }
  when: { match: { path: "/when", when: 'request.headers["upgrade"] == "websocket"' }, respond: { status: 403 } }
  option:
    match: { path: "/option", when: 'request.headers["connection"].matches("(?i)upgrade")' }
    respond: { status: 403 }
  filter:
    match: { path: "/filter" }
    filters:
      - when: { is: 'request.headers["Upgrade"].lowerAscii() == "websocket"', filters: [ { respond: { status: 403 } } ] }
    respond: { status: 404 }
"#,
    );
    for path in ["/field", "/when", "/option", "/filter"] {
        weir.client().ask(ASK.replace("/ws", path)).expect_status(403);
        let plain = ASK.replace("/ws", path).replace("Connection: Upgrade\r\nUpgrade: websocket\r\n", "");
        weir.client().ask(plain).expect_status(404);
        let mut client = weir.h2();
        let mut connect = CONNECT.to_vec();
        connect[4].1 = path;
        let stream = client.request(&connect, false);
        client.wait(stream, path, |message| message.status() == 403);
    }
}

#[test]
fn what_http1_is_asked() {
    let upstream = Upstream::listen();
    let weir = weir(upstream.address(), "");
    let mut client = weir.h2();
    let stream = client.request(CONNECT, false);
    let mut conn = upstream.accept();
    let head = conn.read_head();
    assert_eq!(head.line, "GET /ws?a=b HTTP/1.1");
    for (name, value) in [
        ("host", "weir.test"),
        ("upgrade", "websocket"),
        ("sec-websocket-version", "13"),
        ("origin", "http://weir.test"),
    ] {
        assert_eq!(head.all(name), [value]);
    }
    assert!(head.all("connection").iter().any(|value| value.eq_ignore_ascii_case("upgrade")));
    assert_eq!(head.header("sec-websocket-key").map(str::len), Some(24));
    assert_eq!((head.header("content-length"), head.header("transfer-encoding")), (None, None));
    // A refusal passes, with its body.
    conn.send("HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno");
    client.wait(stream, "the refusal", |message| message.status() == 403 && message.body == b"no");
}

#[test]
fn a_length_that_no_body_follows() {
    // An upstream that learned of it would mistake the next request on the connection for its data.
    let upstream = Upstream::listen();
    let weir = weir(upstream.address(), "");
    let mut client = weir.h2();
    let stream = client.request(&[CONNECT, &[("content-length", "5")]].concat(), false);
    let mut conn = upstream.accept();
    assert_eq!(conn.read_head().header("content-length"), None);
    // Only a 101 opens the tunnel; the client would take any 2xx for success.
    conn.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    client.wait(stream, "the refusal", |message| message.status() == 502);
}

#[test]
fn from_http1_to_http2() {
    let upstream = Upstream::listen();
    let weir = weir(upstream.address(), H2C);
    let mut client = weir.client();
    client.send(ASK);
    let mut peer = H2::server(upstream.accept(), &willing());
    let (seen, request) = peer.accept();
    request.expect_header(":method", "CONNECT").expect_header(":protocol", "websocket");
    request
        .expect_header(":path", "/ws")
        .expect_header(":scheme", "http")
        .expect_header(":authority", "weir.test");
    request.expect_header("sec-websocket-version", "13");
    for name in ["sec-websocket-key", "upgrade", "connection", "host"] {
        request.expect_no_header(name);
    }
    peer.headers(seen, &[(":status", "200")], false);
    let response = client.read_response();
    response.expect_status(101).expect_header("upgrade", "websocket");
    response.expect_header("sec-websocket-accept", "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    client.send("up");
    peer.wait(seen, "what went up", |message| message.body == b"up");
    peer.data(seen, "down", false);
    client.expect("down");
    peer.data(seen, "last", true);
    client.expect("last");
    client.expect_eof();
    drop(client);
    assert!(peer.message(seen).end.is_some());
}

#[test]
fn from_http2_to_http2() {
    let upstream = Upstream::listen();
    let weir = weir(upstream.address(), H2C);
    let mut client = weir.h2();
    let stream = client.request(CONNECT, false);
    let mut peer = H2::server(upstream.accept(), &willing());
    let (seen, request) = peer.accept();
    request.expect_header(":protocol", "websocket").expect_header(":path", "/ws?a=b");
    peer.headers(seen, &[(":status", "200"), ("sec-websocket-protocol", "chat")], false);
    let head = client.wait(stream, "the head", |message| message.status() == 200);
    head.expect_header("sec-websocket-protocol", "chat");
    client.data(stream, "up", false);
    peer.wait(seen, "what went up", |message| message.body == b"up");
    peer.data(seen, "down", false);
    client.wait(stream, "what came down", |message| message.body == b"down");
    client.data(stream, "last", true);
    let request = peer.message(seen);
    assert_eq!((request.text(), request.end), ("uplast".to_owned(), Some(End::Stream)));
    peer.data(seen, " too", true);
    let answer = client.message(stream);
    assert_eq!((answer.text(), answer.end), ("down too".to_owned(), Some(End::Stream)));
}

#[test]
fn an_upstream_that_does_not_know_it() {
    let upstream = Upstream::listen();
    let weir = weir(upstream.address(), H2C);
    let mut plain = weir.client();
    plain.send(ASK);
    let mut peer = H2::server(upstream.accept(), &Options::default());
    plain.read_response().expect_cause((502, "upstream_protocol"));
    let mut client = weir.h2();
    let stream = client.request(CONNECT, false);
    let answer = client.wait(stream, "the refusal", |message| message.status() != 0);
    assert_eq!(answer.status(), 502);
    // The upstream has seen neither, and serves other requests.
    let stream = client.get("/");
    let (seen, request) = peer.accept_whole();
    request.expect_header(":method", "GET");
    peer.respond(seen, &[(":status", "200")], "ok");
    client.message(stream).expect_body("ok");
}

#[test]
fn a_protocol_that_nobody_knows() {
    let upstream = Upstream::fixed(OK_BODY);
    let weir = weir(upstream.address(), "");
    let mut client = weir.h2();
    let mut fields = CONNECT.to_vec();
    fields[1] = (":protocol", "connect-udp");
    fields[3] = (":authority", "weir.test:80");
    let stream = client.request(&fields, false);
    client.message(stream).expect_cause(METHOD_REFUSED);
    assert!(upstream.requests().is_empty());
}

#[test]
fn a_tunnel_that_the_client_resets() {
    let upstream = Upstream::listen();
    let weir = weir(upstream.address(), H2C);
    let mut client = weir.h2();
    let stream = client.request(CONNECT, false);
    let mut peer = H2::server(upstream.accept(), &willing());
    let (seen, _) = peer.accept();
    peer.headers(seen, &[(":status", "200")], false);
    client.wait(stream, "the head", |message| message.status() == 200);
    client.reset(stream, code::CANCEL);
    assert!(matches!(peer.message(seen).end, Some(End::Reset(_))));
    let other = client.get("/");
    let (seen, _) = peer.accept_whole();
    peer.respond(seen, &[(":status", "200")], "ok");
    client.message(other).expect_body("ok");
}
