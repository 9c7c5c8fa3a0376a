//! A listener whose policy changes closes the connections opened under the old one.

use std::time::Duration;
use weir_testkit::h2::H2;
use weir_testkit::{Authority, Client, Tls, Upstream, Weir, eventually_within};

use crate::upgrade::{AGREE, ASK};

const ROUTES: &str = "routes:\n  all: { match: { path: \"/*\" }, respond: { status: 200, body: ok } }\n";

/// A listener with these settings besides its address.
fn listening(settings: &str) -> String {
    format!(
        "workers: 1\ntrusted_proxies: [ 127.0.0.1/32 ]\nlisteners: {{ web: {{ address: 127.0.0.1:0{settings} }} }}\n{ROUTES}"
    )
}

#[test]
fn a_replaced_authority_ends_what_it_let_in() {
    let (authority, old, new) = (Authority::new(), Authority::new(), Authority::new());
    let leaf = authority.leaf(&["weir.test"]).yaml();
    let upstream = Upstream::listen();
    let yaml = |ca: &Authority| {
        let tls = format!(
            ", tls: {{ certificates: [ {leaf} ], client_auth: {{ mode: required, ca: {} }} }}",
            ca.file().display()
        );
        let up = format!(
            "  ws: {{ match: {{ path: /ws }}, upstream: up }}\nupstreams: {{ up: {{ endpoints: [ {} ] }} }}\n",
            upstream.address()
        );
        format!("{}{up}shutdown: {{ drain: 1s }}\n", listening(&tls))
    };
    let weir = Weir::start(&yaml(&old));
    let tls = Tls::new(&authority, "weir.test").identity(&old.client("shop"));
    let connect = || Client::connect_tls(weir.address("web"), &tls);
    let mut kept = connect();
    kept.get("/").expect_status(200);
    let mut unused = connect(); // it has shown its certificate, but sent no request yet
    let mut h2 = H2::client(Client::connect_tls(
        weir.address("web"),
        &Tls::new(&authority, "weir.test").identity(&old.client("shop")).alpn(&["h2"]),
    ));
    let first = h2.get("/");
    h2.message(first).expect_status(200);
    let mut tunnel = connect();
    tunnel.send(ASK);
    let mut conn = upstream.accept();
    conn.read_head();
    conn.send(AGREE);
    tunnel.read_response().expect_status(101);

    weir.reload_with(&yaml(&new)).unwrap();
    kept.expect_close();
    unused.expect_close();
    // A client that ignores GOAWAY is refused: it may repeat the request on another connection.
    h2.peek_go_away();
    let late = h2.get("/");
    h2.message(late).expect_reset(7);
    h2.take_pings();
    h2.expect_end();
    // A tunnel has the drain timeout, and no more.
    tunnel.send("still here");
    conn.expect("still here");
    tunnel.expect_close();
    conn.expect_close();

    // Nor does an old TLS session open anything now.
    if let Ok(mut again) = Client::try_connect_tls(weir.address("web"), &tls) {
        assert!(!again.tls().resumed);
        let _ = again.try_send("GET / HTTP/1.1\r\nHost: weir.test\r\n\r\n");
        assert!(again.try_read_response().is_err());
    }
    let tls = Tls::new(&authority, "weir.test").identity(&new.client("shop"));
    Client::connect_tls(weir.address("web"), &tls).get("/").expect_status(200);
    eventually_within(Duration::from_secs(5), "it is told", || {
        weir.logged("connections are drained: their listener is gone or now requires more of clients")
            .iter()
            .any(|line| line.field("listener") == Some("web"))
    });
}

/// Every part of a policy counts; other settings close no connection.
#[test]
fn what_a_policy_is() {
    let (authority, clients) = (Authority::new(), Authority::new());
    let (leaf, other) = (authority.leaf(&["weir.test"]).yaml(), authority.leaf(&["weir.test"]).yaml());
    let tls = |more: &str| format!(", tls: {{ certificates: [ {leaf} ]{more} }}");
    let auth =
        |mode: &str| tls(&format!(", client_auth: {{ mode: {mode}, ca: {} }}", clients.file().display()));
    for (what, before, after, ends) in [
        ("TLS", String::new(), tls(""), true),
        ("a PROXY header", String::new(), ", proxy_protocol: true".to_owned(), true),
        ("no TLS", tls(""), String::new(), true),
        ("certificates are asked for", tls(""), auth("optional"), true),
        ("certificates are required", auth("optional"), auth("required"), true),
        ("the least version", tls(""), tls(", min_version: \"1.3\""), true),
        ("protocols", String::new(), ", protocols: [ http1, h2 ]".to_owned(), true),
        ("another certificate is shown", tls(""), tls("").replace(&leaf, &other), false),
        ("times", tls(""), format!("{}, timeouts: {{ keepalive: 50s }}", tls("")), false),
        ("slashes", String::new(), ", slashes: keep".to_owned(), false),
        ("nothing", auth("optional"), auth("optional"), false),
    ] {
        let weir = Weir::start(&listening(&before));
        let mut client = if before.contains("tls") {
            Client::connect_tls(weir.address("web"), &Tls::new(&authority, "weir.test"))
        } else {
            weir.client()
        };
        client.get("/").expect_status(200);
        weir.reload_with(&listening(&after)).unwrap_or_else(|e| panic!("{what}: {e}"));
        if ends {
            client.expect_close();
        } else {
            client.get("/").expect_status(200);
        }
    }
}
