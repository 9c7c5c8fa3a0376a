//! WebSocket and other upgrades: a tunnel opens only after the upstream's 101.

use std::time::Duration;

use weir_origin::{Options, Origin};
use weir_testkit::{Client, Conn, Upstream, Weir};

use crate::support::{GET, OK_BODY, WEB, config};

pub(crate) const ASK: &str = "GET /ws HTTP/1.1\r\nHost: weir.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                   Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

pub(crate) const AGREE: &str = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                     Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";

/// Both ends of an open tunnel.
#[track_caller]
pub(crate) fn tunnel(weir: &Weir, upstream: &Upstream) -> (Client, Conn) {
    tunnel_to(weir, upstream, "/ws")
}

/// Like [`tunnel`], opened by a request for this target.
#[track_caller]
pub(crate) fn tunnel_to(weir: &Weir, upstream: &Upstream, target: &str) -> (Client, Conn) {
    let mut client = weir.client();
    client.send(ASK.replace("/ws", target));
    let mut conn = upstream.accept();
    let head = conn.read_head();
    assert_eq!(head.all("upgrade"), ["websocket"]);
    assert!(
        head.all("connection").iter().any(|value| value.eq_ignore_ascii_case("upgrade")),
        "{:?}",
        head.headers
    );
    assert_eq!(head.all("sec-websocket-key"), ["dGhlIHNhbXBsZSBub25jZQ=="]);
    conn.send(AGREE);
    let response = client.read_response();
    response.expect_status(101).expect_header("upgrade", "websocket");
    response.expect_header("sec-websocket-accept", "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    assert!(response.head.all("connection").iter().any(|value| value.eq_ignore_ascii_case("upgrade")));
    (client, conn)
}

#[test]
fn bytes_pass_both_ways() {
    let upstream = Upstream::listen();
    let weir = Weir::in_front_of(&upstream);
    let (mut client, mut conn) = tunnel(&weir, &upstream);
    client.send(b"\x81\x85\x01\x02\x03\x04any bytes\0\xff");
    conn.expect(b"\x81\x85\x01\x02\x03\x04any bytes\0\xff");
    conn.send("GET / HTTP/1.1\r\n\r\n");
    client.expect("GET / HTTP/1.1\r\n\r\n");
    conn.send(vec![b'x'; 1_000_000]);
    assert_eq!(client.read_n(1_000_000).len(), 1_000_000);
}

#[test]
fn bytes_behind_the_101_are_the_tunnels() {
    let upstream = Upstream::listen();
    let weir = Weir::in_front_of(&upstream);
    let mut client = weir.client();
    client.send(ASK);
    let mut conn = upstream.accept();
    conn.read_head();
    conn.send(format!("{AGREE}first frame"));
    client.read_response().expect_status(101);
    client.expect("first frame");
}

#[test]
fn nothing_passes_before_the_101() {
    let upstream = Upstream::listen();
    let weir = Weir::in_front_of(&upstream);
    let mut client = weir.client();
    client.send(format!("{ASK}early bytes"));
    let mut conn = upstream.accept();
    conn.read_head();
    conn.expect_silence(Duration::from_millis(50));
    conn.send(AGREE);
    client.read_response().expect_status(101);
    conn.expect("early bytes");
}

#[test]
fn a_refused_upgrade_stays_http() {
    let upstream = Upstream::listen();
    let weir = Weir::in_front_of(&upstream);
    let mut client = weir.client();
    client.send(ASK);
    let mut conn = upstream.accept();
    conn.read_head();
    conn.send("HTTP/1.1 426 Upgrade Required\r\nContent-Length: 2\r\n\r\nno");
    client.read_response().expect_status(426).expect_body("no");
    // The client's next bytes are a request, and are parsed as one.
    client.send("GET /next HTTP/1.1\r\nHost: weir.test\r\nX-A: b\x01\r\n\r\n");
    client.read_response().expect_status(400);
}

#[test]
fn a_refused_upgrade_and_what_the_client_smuggled_behind_it() {
    let upstream = Upstream::listen();
    let weir = Weir::in_front_of(&upstream);
    let mut client = weir.client();
    client.send(format!("{ASK}GET /behind HTTP/1.1\r\nHost: weir.test\r\nTransfer-Encoding: gzip\r\n\r\n"));
    let mut conn = upstream.accept();
    conn.read_head();
    conn.send(OK_BODY);
    client.read_response().expect_status(200).expect_body("ok");
    client.read_response().expect_status(400);
    assert!(upstream.requests().len() <= 1, "what was behind never arrived");
}

#[test]
fn h2c_is_not_passed_on() {
    let upstream = Upstream::fixed(OK_BODY);
    let weir = Weir::in_front_of(&upstream);
    let ask = "GET / HTTP/1.1\r\nHost: weir.test\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n\r\n";
    weir.client().ask(ask).expect_status(200);
    let head = upstream.take_request().head;
    assert_eq!((head.header("upgrade"), head.header("http2-settings")), (None, None));
}

#[test]
fn the_client_says_all() {
    let upstream = Upstream::listen();
    let weir = Weir::in_front_of(&upstream);
    let (mut client, mut conn) = tunnel(&weir, &upstream);
    client.send("last words");
    client.half_close();
    conn.expect("last words");
    conn.expect_eof();
    conn.send("and the answer");
    conn.half_close();
    client.expect("and the answer");
    client.expect_eof();
}

#[test]
fn the_upstream_says_all() {
    let upstream = Upstream::listen();
    let weir = Weir::in_front_of(&upstream);
    let (mut client, mut conn) = tunnel(&weir, &upstream);
    conn.send("last words");
    conn.half_close();
    client.expect("last words");
    client.expect_eof();
    client.send("and the answer");
    client.half_close();
    conn.expect("and the answer");
    conn.expect_eof();
}

#[test]
fn one_side_resets() {
    let upstream = Upstream::listen();
    let weir = Weir::in_front_of(&upstream);
    let (client, mut conn) = tunnel(&weir, &upstream);
    client.reset();
    conn.expect_close();
    let (mut client, conn) = tunnel(&weir, &upstream);
    conn.reset();
    client.expect_close();
}

#[test]
fn a_tunnel_is_never_pooled() {
    let upstream = Upstream::listen();
    let weir = Weir::in_front_of(&upstream);
    let (client, mut conn) = tunnel(&weir, &upstream);
    client.close();
    conn.expect_close();
    let (mut client, mut conn) = weir.begin(&upstream, GET);
    conn.send(OK_BODY);
    client.read_response().expect_body("ok");
}

/// The reload removes an upstream, whose idle connection must close although a tunnel is open.
#[test]
fn a_tunnel_does_not_keep_the_config_before_a_reload() {
    let (upstream, other) = (Upstream::listen(), Upstream::listen());
    let yaml = |upstreams: &str, routes: &str| {
        format!(
            "workers: 1\n{WEB}\nupstreams: {{ up: {{ endpoints: [ {} ] }}{upstreams} }}\n\
             routes: {{ ws: {{ match: {{ path: /ws }}, upstream: up }}{routes} }}\n",
            upstream.address()
        )
    };
    let more = format!(", other: {{ endpoints: [ {} ] }}", other.address());
    let weir = Weir::start(&yaml(&more, ", other: { match: { path: / }, upstream: other }"));
    let mut client = weir.client();
    client.send(GET);
    let mut idle = other.accept_request();
    idle.send(OK_BODY);
    client.read_response().expect_status(200);
    let (mut client, mut conn) = tunnel(&weir, &upstream);
    weir.reload_with(&yaml("", "")).unwrap();
    idle.expect_eof();
    client.send("still there");
    conn.expect("still there");
}

#[test]
fn a_websocket_through_weir_to_the_origin() {
    let origin = Origin::start(Options::default()).unwrap();
    let weir = Weir::start(&config(&format!("endpoints: [{}]", origin.address())));
    let mut client = weir.client();
    client.ask(ASK).expect_status(101);
    client.send([0x81, 0x82, 0, 0, 0, 0, b'h', b'i']);
    client.expect([0x81, 2, b'h', b'i']);
    client.send([0x88, 0x80, 0, 0, 0, 0]);
    client.expect([0x88, 0]);
    client.expect_close();
}
