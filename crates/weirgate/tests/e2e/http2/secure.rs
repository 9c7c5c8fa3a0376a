//! The protocol chosen over TLS, on both sides, and which certificates are trusted.

use weir_testkit::h2::{H2, H2Origin, Options};
use weir_testkit::{Authority, Client, ServerTls, Tls, Upstream, Weir};

use crate::cause::UPSTREAM_TLS;
use crate::support::{ALL_TO_UP, GET, OK_BODY, WEB};

/// A gateway in front of one TLS endpoint, which it calls `up.test`.
#[track_caller]
fn before(endpoint: std::net::SocketAddr, authority: &Authority, protocol: &str) -> Weir {
    Weir::start(&format!(
        "{WEB}\nupstreams: {{ up: {{ endpoints: [{endpoint}], protocol: {protocol}, \
         tls: {{ ca: {}, server_name: up.test }} }} }}\n{ALL_TO_UP}\n",
        authority.file().display()
    ))
}

#[test]
fn clients_choose_by_alpn() {
    let authority = Authority::new();
    let leaf = authority.leaf(&["weir.test"]).yaml();
    for (protocols, offers) in [
        ("", &[(&["h2", "http/1.1"][..], Some("h2")), (&["http/1.1"], Some("http/1.1")), (&[], None)][..]),
        ("protocols: [http1, h2],", &[(&["h2", "http/1.1"], Some("http/1.1")), (&["h2"], Some("h2"))]),
        ("protocols: [h2],", &[(&["h2", "http/1.1"], Some("h2"))]),
        ("protocols: [http1],", &[(&["h2", "http/1.1"], Some("http/1.1"))]),
    ] {
        let weir = Weir::start(&format!(
            "listeners: {{ web: {{ address: 127.0.0.1:0, {protocols} tls: {{ certificates: [ {leaf} ] }} }} }}\n\
             routes: {{ all: {{ match: {{ path: \"/*\" }}, respond: {{ status: 200, body: ok }} }} }}\n"
        ));
        for (offered, chosen) in offers {
            let tls = Tls::new(&authority, "weir.test").alpn(offered);
            let mut client = Client::connect_tls(weir.address("web"), &tls);
            assert_eq!(client.tls().alpn.as_deref(), *chosen, "{protocols} {offered:?}");
            if *chosen == Some("h2") {
                let mut client = H2::client(client);
                let stream = client.get("/");
                client.message(stream).expect_status(200).expect_body("ok");
            } else {
                client.get("/").expect_status(200).expect_body("ok");
            }
        }
    }
}

#[test]
fn the_scheme_is_told() {
    let authority = Authority::new();
    let leaf = authority.leaf(&["weir.test"]).yaml();
    let upstream = Upstream::fixed(OK_BODY);
    let weir = Weir::start(&format!(
        "listeners: {{ web: {{ address: 127.0.0.1:0, tls: {{ certificates: [ {leaf} ] }} }} }}\n\
         upstreams: {{ up: {{ endpoints: [{}] }} }}\n{ALL_TO_UP}\n",
        upstream.address()
    ));
    let tls = Tls::new(&authority, "weir.test").alpn(&["h2"]);
    let mut client = H2::client(Client::connect_tls(weir.address("web"), &tls));
    let stream = client.request(
        &[(":method", "GET"), (":scheme", "https"), (":authority", "weir.test"), (":path", "/")],
        true,
    );
    client.message(stream).expect_status(200);
    assert_eq!(upstream.take_request().head.all("x-forwarded-proto"), ["https"]);
}

#[test]
fn auto_takes_what_the_upstream_chooses() {
    let authority = Authority::new();
    let tls = ServerTls::new(&authority.leaf(&["up.test"]));
    let origin = H2Origin::tls(&tls.clone().alpn(&["h2"]), Options::default(), |peer, stream, request| {
        request.expect_header(":scheme", "https");
        peer.answer(stream, &[(":status", "200")], "by h2");
    });
    let weir = before(origin.address(), &authority, "auto");
    for _ in 0..3 {
        weir.client().ask(GET).expect_body("by h2");
    }
    assert_eq!(origin.connections(), 1);
    origin.verify();
    let plain = Upstream::fixed_tls(&tls, OK_BODY);
    let weir = before(plain.address(), &authority, "auto");
    for _ in 0..3 {
        weir.client().ask(GET).expect_body("ok");
    }
    assert_eq!(plain.connections(), 1);
}

#[test]
fn auto_without_tls_is_http1() {
    let upstream = Upstream::fixed(OK_BODY);
    let weir = super::weir(upstream.address(), "protocol: auto");
    weir.client().ask(GET).expect_body("ok");
    assert!(upstream.stray().is_empty());
}

#[test]
fn h2_verifies_certificates() {
    let (authority, other) = (Authority::new(), Authority::new());
    for (leaf, right) in [
        (authority.leaf(&["up.test"]), true),
        (other.leaf(&["up.test"]), false),
        (authority.leaf(&["other.test"]), false),
    ] {
        let tls = ServerTls::new(&leaf).alpn(&["h2"]);
        let origin = H2Origin::tls(&tls, Options::default(), |peer, stream, _| {
            peer.answer(stream, &[(":status", "200")], "ok");
        });
        for protocol in ["h2", "auto"] {
            let weir = before(origin.address(), &authority, protocol);
            let answer = weir.client().ask(GET);
            if right {
                answer.expect_body("ok");
            } else {
                answer.expect_cause(UPSTREAM_TLS);
            }
        }
        assert_eq!(origin.requests(), if right { 2 } else { 0 });
    }
}

#[test]
fn h2_takes_nothing_else() {
    let authority = Authority::new();
    let tls = ServerTls::new(&authority.leaf(&["up.test"]));
    // One insists on HTTP/1.1 in ALPN, and one does not support ALPN.
    let insisting = Upstream::fixed_tls(&tls, OK_BODY);
    let weir = before(insisting.address(), &authority, "h2");
    let answer = weir.client().ask(GET);
    assert_eq!(answer.status, 502);
    let unknowing = Upstream::fixed_tls(&tls.alpn(&[]), OK_BODY);
    let weir = before(unknowing.address(), &authority, "h2");
    weir.client().ask(GET).expect_cause((502, "upstream_protocol"));
    assert!(unknowing.requests().is_empty());
}

#[test]
fn upstreams_of_different_protocols_at_one_address() {
    // They share an endpoint, but not a connection.
    let authority = Authority::new();
    let tls = ServerTls::new(&authority.leaf(&["up.test"])).alpn(&["h2", "http/1.1"]);
    let upstream = Upstream::listen_tls(&tls);
    let endpoint = upstream.address();
    let settings = format!("tls: {{ ca: {}, server_name: up.test }}", authority.file().display());
    let weir = Weir::start(&format!(
        "{WEB}\nupstreams:\n  one: {{ endpoints: [{endpoint}], protocol: http1, {settings} }}\n  \
         two: {{ endpoints: [{endpoint}], protocol: auto, {settings} }}\n\
         routes:\n  one: {{ match: {{ path: /one }}, upstream: one }}\n  two: {{ match: {{ path: /two }}, upstream: two }}\n"
    ));
    let (mut client, mut conn) = weir.begin(&upstream, "GET /one HTTP/1.1\r\nHost: h\r\n\r\n");
    conn.send(OK_BODY);
    client.read_response().expect_body("ok");
    client.send("GET /two HTTP/1.1\r\nHost: h\r\n\r\n");
    let mut peer = H2::server(upstream.accept(), &Options::default());
    let (stream, _) = peer.accept_whole();
    peer.respond(stream, &[(":status", "200")], "two");
    client.read_response().expect_body("two");
    client.send("GET /one HTTP/1.1\r\nHost: h\r\n\r\n");
    conn.read_request();
    conn.send(OK_BODY);
    client.read_response().expect_body("ok");
}

#[test]
fn a_reload_changes_the_protocol() {
    let upstream = Upstream::listen();
    let endpoint = upstream.address();
    let weir = super::weir(endpoint, "");
    let (mut client, mut conn) = weir.begin(&upstream, GET);
    conn.send(OK_BODY);
    client.read_response().expect_body("ok");
    weir.reload_with(&format!(
        "{}\nupstreams: {{ up: {{ endpoints: [{endpoint}], protocol: h2c }} }}\n{ALL_TO_UP}\n",
        super::BOTH
    ))
    .unwrap();
    client.send(GET);
    let mut peer = H2::server(upstream.accept(), &Options::default());
    let (stream, _) = peer.accept_whole();
    peer.respond(stream, &[(":status", "200")], "by h2");
    client.read_response().expect_body("by h2");
}
