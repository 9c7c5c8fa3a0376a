//! `limits.per_client`: what one address may hold, whoever serves it and however its connections end.

use weir_testkit::h2::H2;
use weir_testkit::{Authority, Client, Tls, Upstream, Weir, eventually};

use crate::cause::CLIENT_CONNECTIONS;
use crate::health::metric;
use crate::support::{ALL_TO_UP, GET, OK};
use crate::upgrade::AGREE;

const OURS: &str = "routes: { all: { match: { path: \"/*\" }, respond: { body: ok } } }";

/// A gateway that itself answers, with these limits and trusted proxies, and a listener behind a balancer.
fn limited(workers: usize, per_client: &str, trusted: &str) -> Weir {
    Weir::start(&format!(
        "workers: {workers}\nlimits: {{ per_client: {{ {per_client} }} }}\ntrusted_proxies: [ {trusted} ]\nlisteners:\n  \
         web: {{ address: 127.0.0.1:0 }}\n  behind: {{ address: 127.0.0.1:0, proxy_protocol: true }}\n{OURS}\n"
    ))
}

/// A connection to the listener behind a balancer, for this client.
fn behind(weir: &Weir, client: &str) -> Client {
    let family = if client.contains(':') { 6 } else { 4 };
    let own = if family == 6 { "::1" } else { "127.0.0.1" };
    let mut connection = Client::connect(weir.address("behind"));
    connection.send(format!("PROXY TCP{family} {client} {own} 1 2\r\n"));
    connection
}

#[test]
fn connections_of_an_address() {
    let weir = limited(1, "connections: 2", "");
    let (mut one, mut two) = (weir.client(), weir.client());
    one.get("/").expect_status(200);
    two.get("/").expect_status(200);
    let mut third = weir.client();
    third.get("/").expect_cause(CLIENT_CONNECTIONS).expect_header("retry-after", "1");
    third.expect_close();
    assert_eq!(metric(&weir, &["weir_causes_total", "client_connections"]), Some(1.0));
    assert_eq!(metric(&weir, &["weir_limits_hit_total", "client_connections"]), Some(1.0));
    weir.wait_log("limits.per_client.connections reached: a client's new connections are turned away");
    one.close();
    eventually("a place becomes free", || weir.client().get("/").status == 200);
    two.get("/").expect_status(200);
    weir.reload_with(&format!("listeners: {{ web: {{ address: {} }} }}\n{OURS}", weir.address("web")))
        .unwrap();
    let mut more: Vec<_> = (0..5).map(|_| weir.client()).collect();
    for client in &mut more {
        client.get("/").expect_status(200);
    }
}

/// The address is the one in the PROXY header; IPv6 counts by its network, and trusted proxies do not count.
#[test]
fn whose_connections_count() {
    let weir = limited(1, "connections: 1", "127.0.0.0/8, 198.51.100.0/24");
    for (first, second, limited) in [
        ("192.0.2.1", "192.0.2.1", true),
        ("192.0.2.1", "192.0.2.2", false),
        ("2001:db8:0:1::1", "2001:db8:0:1:ffff::2", true),
        ("2001:db8:0:1::1", "2001:db8:0:2::1", false),
        ("::ffff:192.0.2.1", "::ffff:192.0.2.1", true),
        ("198.51.100.1", "198.51.100.1", false),
    ] {
        let mut one = behind(&weir, first);
        eventually("the first is let in", || {
            one.send(GET);
            let in_it = one.read_response().status == 200;
            if !in_it {
                one = behind(&weir, first);
            }
            in_it
        });
        let status = behind(&weir, second).get("/").status;
        assert_eq!(status, if limited { 429 } else { 200 }, "{first}, {second}");
    }
    // The balancer itself, also for its own health checks.
    let mut checks: Vec<_> = (0..3).map(|_| Client::connect(weir.address("behind"))).collect();
    for check in &mut checks {
        check.send("PROXY UNKNOWN\r\n");
        check.get("/").expect_status(200);
    }
    let mut own: Vec<_> = (0..3).map(|_| weir.client()).collect();
    for client in &mut own {
        client.get("/").expect_status(200);
    }
}

/// Exactly as many as the limit are served, whichever core accepts them and hands them on.
#[test]
fn all_cores_share_the_limit() {
    let weir = limited(3, "connections: 50", "");
    let mut clients: Vec<_> = (0..120).map(|_| weir.client()).collect();
    for client in &mut clients {
        client.send(GET);
    }
    let statuses: Vec<_> = clients.iter_mut().map(|client| client.read_response().status).collect();
    let of = |status| statuses.iter().filter(|&&s| s == status).count();
    assert_eq!((of(200), of(429)), (50, 70), "{statuses:?}");
    drop(clients);
    eventually("all places are free again", || {
        let mut clients: Vec<_> = (0..50).map(|_| weir.client()).collect();
        clients.iter_mut().all(|client| client.get("/").status == 200)
    });
}

/// However a connection ends, its place is free again.
#[test]
fn every_end_frees_the_place() {
    let upstream = Upstream::script(|conn| {
        while let Some(request) = conn.next_request() {
            match request.head.line.split(' ').nth(1).unwrap_or_default() {
                "/tunnel" => conn.send(AGREE),
                "/dies" => return conn.send("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n"),
                _ => conn.send(OK),
            }
        }
    });
    let authority = Authority::new();
    let weir = Weir::start(&format!(
        "workers: 2\nlimits: {{ per_client: {{ connections: 1 }} }}\nlisteners:\n  web: {{ address: 127.0.0.1:0, protocols: [ http1, h2 ] }}\n  \
         secure: {{ address: 127.0.0.1:0, tls: {{ certificates: [ {} ] }} }}\n\
         upstreams: {{ up: {{ endpoints: [{}] }} }}\n{ALL_TO_UP}",
        authority.leaf(&["weir.test"]).yaml(),
        upstream.address(),
    ));
    let upgrade = "GET /tunnel HTTP/1.1\r\nHost: weir.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                   Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n";
    let free = |what: &str| {
        eventually(&format!("{what} frees its place"), || {
            let mut client = weir.client();
            client.try_send(GET).is_ok()
                && client.try_read_response().is_ok_and(|answer| answer.status == 200)
        });
        let active = |listener| metric(&weir, &["weir_connections_active", listener]);
        eventually("all have left", || active("web") == Some(0.0) && active("secure") == Some(0.0));
    };
    let taken = || weir.client().get("/").expect_cause(CLIENT_CONNECTIONS).status;
    let mut tunnel = weir.client();
    tunnel.send(upgrade);
    assert!(tunnel.read_head().line.contains("101"));
    taken();
    tunnel.close();
    free("a tunnel");
    let mut reset = weir.client();
    reset.send("GET / HTTP/1.1\r\nHost: we");
    eventually("it is counted", || weir.client().get("/").status == 429);
    reset.reset();
    free("a reset in a head");
    weir.client().ask("nonsense\r\n\r\n");
    free("a refused head");
    let mut cut = weir.client();
    cut.send("GET /dies HTTP/1.1\r\nHost: weir.test\r\n\r\n");
    cut.read_head();
    drop(cut);
    free("a broken answer");
    let mut h2 = H2::client(weir.client());
    let stream = h2.get("/");
    h2.message(stream).expect_status(200);
    taken();
    drop(h2);
    free("a connection of HTTP/2");
    let tls = Tls::new(&authority, "weir.test").alpn(&["h2"]);
    let mut h2 = H2::client(Client::connect_tls(weir.address("secure"), &tls));
    let stream = h2.get("/");
    h2.message(stream).expect_status(200);
    assert!(Client::try_connect_tls(weir.address("secure"), &tls).is_err(), "not even a handshake");
    taken();
    drop(h2);
    free("a connection of HTTP/2 over TLS");
    let mut plain = Client::connect(weir.address("secure"));
    plain.get("/");
    drop(plain);
    free("plain HTTP on a TLS port");
    let mut silent = Client::connect(weir.address("secure"));
    silent.send("\x16\x03\x01\x00\x05hello");
    drop(silent);
    free("a broken handshake");
}

#[test]
fn handshakes_in_a_period() {
    let authority = Authority::new();
    let weir = Weir::start(&format!(
        "limits: {{ per_client: {{ handshakes: 3/h }} }}\ntrusted_proxies: [ 127.0.0.2 ]\nlisteners:\n  \
         web: {{ address: 127.0.0.1:0, tls: {{ certificates: [ {} ] }} }}\n  plain: {{ address: 127.0.0.1:0 }}\n{OURS}",
        authority.leaf(&["weir.test"]).yaml(),
    ));
    let tls = Tls::new(&authority, "weir.test");
    let connect = || Client::try_connect_tls(weir.address("web"), &tls);
    // A balancer that only checks whether the port is open begins none.
    (0..5).for_each(|_| Client::connect(weir.address("web")).close());
    let mut clients: Vec<_> = (0..3).map(|_| connect().unwrap()).collect();
    assert!(connect().is_err());
    for client in &mut clients {
        client.get("/").expect_status(200);
    }
    Client::connect(weir.address("plain")).get("/").expect_status(200);
    assert_eq!(metric(&weir, &["weir_causes_total", "client_handshakes"]), Some(1.0));
    assert_eq!(metric(&weir, &["weir_limits_hit_total", "client_handshakes"]), Some(1.0));
    weir.wait_log("limits.per_client.handshakes reached: a client's new connections are closed");
}

/// The counts live in the process: a reload keeps them, and one that changes the limit applies it to new connections.
#[test]
fn a_reload_keeps_the_counts() {
    let weir = limited(2, "connections: 2", "");
    let mut held: Vec<_> = (0..2).map(|_| weir.client()).collect();
    for client in &mut held {
        client.get("/").expect_status(200);
    }
    weir.reload().unwrap();
    weir.client().get("/").expect_cause(CLIENT_CONNECTIONS);
    let yaml = std::fs::read_to_string(weir.dir().join("weir.yaml")).unwrap();
    weir.reload_with(&yaml.replace("connections: 2", "connections: 3")).unwrap();
    held.push(weir.client());
    for client in &mut held {
        client.get("/").expect_status(200);
    }
    weir.client().get("/").expect_cause(CLIENT_CONNECTIONS);
}

/// A gateway that passes bytes on, by the listener alone (`pg`), behind a balancer (`behind`), and by name (`names`); `web`
/// answers itself. `trusted` are proxies.
fn passing(upstream: &Upstream, per_client: &str, trusted: &str) -> Weir {
    Weir::start(&format!(
        "workers: 2\nlimits: {{ per_client: {{ {per_client} }} }}\ntrusted_proxies: [ {trusted} ]\naccess_log: {{ \
         output: stdout }}\nlisteners:\n  pg: {{ address: 127.0.0.1:0, tcp: {{ upstream: db }} }}\n  \
         behind: {{ address: 127.0.0.1:0, proxy_protocol: true, tcp: {{ upstream: db }} }}\n  \
         names: {{ address: 127.0.0.1:0, sni: {{ db.test: {{ upstream: db }} }}, timeouts: {{ handshake: 1s }} }}\n  \
         web: {{ address: 127.0.0.1:0 }}\nupstreams: {{ db: {{ endpoints: [ {} ] }} }}\n{OURS}\n",
        upstream.address()
    ))
}

/// Connections whose bytes are passed on share the count of their client with those of HTTP. An excess one is closed
/// without a byte, and the upstream never hears of it.
#[test]
fn bytes_count_like_requests() {
    let upstream = Upstream::listen();
    let weir = passing(&upstream, "connections: 2", "");
    let mut one = Client::connect(weir.address("pg"));
    one.send("hello");
    let mut first = upstream.accept();
    first.expect("hello");
    let mut two = weir.client();
    two.get("/").expect_status(200);
    for _ in 0..3 {
        let mut excess = Client::connect(weir.address("pg"));
        excess.expect_close();
    }
    weir.client().get("/").expect_cause(CLIENT_CONNECTIONS);
    let refused = || metric(&weir, &["weir_causes_total", "client_connections"]);
    eventually("each is counted", || refused() == Some(4.0));
    assert_eq!(upstream.connections(), 1);
    weir.wait_log("limits.per_client.connections reached: a client's new connections are turned away");
    // A connection has its place until both sides have closed.
    first.close();
    one.expect_close();
    Client::connect(weir.address("pg")).expect_close();
    drop(one);
    eventually("the place is free", || {
        let _ = Client::connect(weir.address("pg")).try_send("again");
        upstream.connections() > 1
    });
}

/// Behind a balancer, the client that the PROXY header names is counted, and not the balancer.
#[test]
fn bytes_count_for_the_client_in_the_proxy_header() {
    let upstream = Upstream::listen();
    let weir = passing(&upstream, "connections: 1", "127.0.0.1");
    let connect = |client: &str| {
        let mut connection = Client::connect(weir.address("behind"));
        connection.send(format!("PROXY TCP4 {client} 127.0.0.1 1 2\r\nhello"));
        connection
    };
    let held = connect("192.0.2.1");
    let mut first = upstream.accept();
    first.expect("hello");
    connect("192.0.2.1").expect_close();
    let other = connect("192.0.2.2");
    upstream.accept().expect("hello");
    assert_eq!(upstream.connections(), 2);
    drop((held, other));
}

/// A client that sends its ClientHello slowly holds a place until `timeouts.handshake`, and no longer. Others are not
/// held up.
#[test]
fn a_slow_client_hello_holds_a_place() {
    let upstream = Upstream::listen();
    let weir = passing(&upstream, "connections: 2", "");
    let slow = || {
        let mut client = Client::connect(weir.address("names"));
        client.send(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03");
        client
    };
    let mut held = [slow(), slow()];
    let active = || metric(&weir, &["weir_connections_active", "names"]);
    eventually("both are open", || active() == Some(2.0));
    eventually("both are counted", || {
        let mut excess = weir.client();
        excess.get("/").status == 429
    });
    for client in &mut held {
        client.expect_close();
    }
    eventually("their places are free", || weir.client().get("/").status == 200);
    let late = || metric(&weir, &["weir_causes_total", "handshake_timeout"]);
    eventually("both were late", || late() == Some(2.0));
    assert_eq!(upstream.connections(), 0);
}
