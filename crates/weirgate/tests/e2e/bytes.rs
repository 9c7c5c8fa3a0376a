//! Listeners with `tcp`: bytes pass both ways, and each end of a connection learns how the other ended.

mod by_name;

use std::net::SocketAddr;
use std::time::Duration;

use weir_testkit::{
    Authority, Client, Conn, ServerTls, Tls, Upstream, Weir, eventually, refusing_address, unused_address,
};

/// A gateway with a listener `pg` that passes bytes to an upstream with these endpoints and settings.
fn config(tcp: &str, upstream: &str, more: &str) -> String {
    format!(
        "workers: 1\nlisteners: {{ pg: {{ address: 127.0.0.1:0, {tcp} }} }}\n\
         upstreams: {{ db: {{ {upstream} }} }}\naccess_log: {{ output: stdout }}\n{more}\n"
    )
}

/// The usual config in front of one endpoint.
fn usual(upstream: &Upstream) -> String {
    config("tcp: { upstream: db }", &format!("endpoints: [ {} ]", upstream.address()), "")
}

/// Both ends of a connection by the listener `pg`.
#[track_caller]
pub(super) fn connect(weir: &Weir, upstream: &Upstream) -> (Client, Conn) {
    let mut client = Client::connect(weir.address("pg"));
    client.send("hello");
    let mut conn = upstream.accept();
    conn.expect("hello");
    (client, conn)
}

/// The fields of the log line of the only connection.
#[track_caller]
pub(super) fn line(weir: &Weir) -> serde_json::Value {
    let text = weir.wait_stdout("\"protocol\":\"TCP\"");
    let line = text.lines().find(|line| line.contains("\"protocol\":\"TCP\"")).unwrap();
    serde_json::from_str(line).unwrap()
}

#[track_caller]
pub(super) fn metric(weir: &Weir, series: &str) -> Option<f64> {
    let text = weir.admin_client().ask("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").text();
    let line = text.lines().find(|line| line.strip_prefix(series).is_some_and(|rest| rest.starts_with(' ')));
    line.and_then(|line| line.rsplit(' ').next()?.parse().ok())
}

/// Waits for a counter: some are counted when the client has already seen the end.
#[track_caller]
pub(super) fn expect_metric(weir: &Weir, series: &str, value: f64) {
    eventually(&format!("{series} is {value}"), || metric(weir, series) == Some(value));
}

// === bytes ===

#[test]
fn bytes_pass_both_ways() {
    let upstream = Upstream::listen();
    let weir = Weir::start(&usual(&upstream));
    let (mut client, mut conn) = connect(&weir, &upstream);
    conn.send(b"\x00\xff any bytes\r\n\r\n");
    client.expect(b"\x00\xff any bytes\r\n\r\n");
    let large: Vec<u8> = (0..3_000_000u32).map(|n| (n % 251) as u8).collect();
    let (mut client, mut back) = std::thread::scope(|threads| {
        let sends = threads.spawn(|| {
            conn.send(&large);
            conn
        });
        assert!(client.read_n(large.len()) == large, "the bytes differ");
        let mut conn = sends.join().unwrap();
        let sends = threads.spawn(|| {
            client.send(&large);
            client
        });
        assert!(conn.read_n(large.len()) == large, "the bytes differ");
        (sends.join().unwrap(), conn)
    });
    client.half_close();
    back.expect_eof();
    back.send("last");
    back.close();
    client.expect("last");
    client.expect_close();
    let line = line(&weir);
    assert_eq!(line["listener"], "pg");
    assert_eq!(line["upstream"], "db");
    assert_eq!(line["endpoint"], upstream.address().to_string());
    assert_eq!(line["bytes_in"], 5 + large.len());
    assert_eq!(line["bytes_out"], 16 + large.len() + 4);
    assert_eq!(line["attempts"], 1);
    assert!(line.get("cause").is_none() && line.get("status").is_none(), "{line}");
}

#[test]
fn the_server_may_speak_first() {
    let upstream = Upstream::listen();
    let weir = Weir::start(&usual(&upstream));
    let mut client = Client::connect(weir.address("pg"));
    let mut conn = upstream.accept();
    conn.send("220 ready\r\n");
    client.expect("220 ready\r\n");
}

#[test]
fn each_side_may_close_first() {
    let upstream = Upstream::listen();
    let weir = Weir::start(&usual(&upstream));
    let (mut client, mut conn) = connect(&weir, &upstream);
    conn.send("bye");
    conn.half_close();
    client.expect("bye");
    client.expect_eof();
    client.send("more of the request");
    conn.expect("more of the request");
    client.half_close();
    conn.expect_eof();
}

#[test]
fn a_reset_is_passed_on() {
    let upstream = Upstream::listen();
    let weir = Weir::start(&usual(&upstream));
    let (mut client, conn) = connect(&weir, &upstream);
    conn.reset();
    assert!(client.try_send("x").is_err() || client.read_to_close().is_empty());
    eventually("the reset is logged", || weir.stdout().contains("\"cause\":\"upstream_reset\""));
    let (client, mut conn) = connect(&weir, &upstream);
    client.reset();
    conn.expect_close();
    eventually("that of the client too", || weir.stdout().contains("\"cause\":\"client_closed\""));
}

#[test]
fn an_idle_connection_ends() {
    let upstream = Upstream::listen();
    let settings = format!("endpoints: [ {} ]", upstream.address());
    let weir = Weir::start(&config("tcp: { upstream: db, idle: 300ms }", &settings, ""));
    let (mut client, mut conn) = connect(&weir, &upstream);
    client.expect_close();
    conn.expect_close();
    assert_eq!(line(&weir)["cause"], "tcp_idle");
    expect_metric(&weir, "weir_connections_closed_total{listener=\"pg\",reason=\"timeout\"}", 1.0);
}

#[test]
fn a_slow_reader_slows_the_writer_down() {
    let upstream = Upstream::listen();
    let weir = Weir::start(&usual(&upstream));
    let (mut client, mut conn) = connect(&weir, &upstream);
    let before = weir.rss_kib();
    let total = 64 << 20;
    let writer = std::thread::spawn(move || {
        conn.send(vec![7; total]);
        conn
    });
    weir_testkit::pause(Duration::from_millis(300));
    assert!(!writer.is_finished(), "nobody reads");
    assert!(weir.rss_kib() < before + 4096, "{} KiB before, {} now", before, weir.rss_kib());
    assert_eq!(client.read_n(total).len(), total);
    drop(writer.join());
}

// === upstreams ===

#[test]
fn another_endpoint_is_tried() {
    let upstream = Upstream::listen();
    let (_socket, refuses) = refusing_address();
    let settings = format!("balancer: round_robin, endpoints: [ {refuses}, {} ]", upstream.address());
    let weir = Weir::start(&config("tcp: { upstream: db }", &settings, ""));
    for _ in 0..4 {
        drop(connect(&weir, &upstream));
    }
    eventually("the log names the failed attempt", || {
        weir.stdout().contains(&format!("\"failed_attempts\":\"{refuses} connect_refused"))
    });
    assert_eq!(
        metric(&weir, "weir_upstream_retries_total{upstream=\"db\"}"),
        Some(1.0),
        "then it is avoided"
    );
}

#[test]
fn nobody_answers() {
    let address = unused_address();
    let weir = Weir::start(&config("tcp: { upstream: db }", &format!("endpoints: [ {address} ]"), ""));
    let mut client = Client::connect(weir.address("pg"));
    client.expect_close();
    assert_eq!(line(&weir)["cause"], "connect_refused");
    let why = weir_testkit::run_weir(weir.dir(), &["why", "--admin", &weir.admin()]);
    assert!(why.stdout.contains("connect_refused"), "{}", why.stdout);
}

#[test]
fn the_endpoint_with_the_fewest_connections_gets_the_next() {
    let (one, two) = (Upstream::listen(), Upstream::listen());
    let settings = |more: &str| {
        let settings =
            format!("balancer: least_requests, endpoints: [ {}, {} ]{more}", one.address(), two.address());
        config("tcp: { upstream: db }", &settings, "")
    };
    let weir = Weir::start(&settings(""));
    let mut open = Vec::new();
    let connect = |open: &mut Vec<Client>| {
        let mut client = Client::connect(weir.address("pg"));
        client.send("x");
        open.push(client);
    };
    (0..6).for_each(|_| connect(&mut open));
    eventually("half of them at each", || (one.connections(), two.connections()) == (3, 3));
    // The counts of open connections survive a reload that changes the upstream.
    let held: Vec<Conn> = (0..3).map(|_| one.accept()).collect();
    weir.reload_with(&settings(", keepalive: 59s")).unwrap();
    held.into_iter().for_each(Conn::close);
    let mut ends: Vec<Client> = Vec::new();
    for _ in 0..3 {
        weir_testkit::pause(Duration::from_millis(20));
        connect(&mut ends);
    }
    eventually("the free one gets the next three", || (one.connections(), two.connections()) == (6, 3));
}

#[test]
fn a_limit_of_the_upstream_holds() {
    let upstream = Upstream::listen();
    let settings = format!("endpoints: [ {} ], limits: {{ connections: 1 }}", upstream.address());
    let weir = Weir::start(&config("tcp: { upstream: db, connect: 10s }", &settings, ""));
    let (client, conn) = connect(&weir, &upstream);
    let mut waiting = Client::connect(weir.address("pg"));
    waiting.send("second");
    upstream.expect_no_connection();
    drop((client, conn));
    upstream.accept().expect("second");
}

#[test]
fn the_proxy_header_goes_in_and_out() {
    let upstream = Upstream::listen();
    let settings = format!("endpoints: [ {} ], proxy_protocol: v1", upstream.address());
    let tcp = "proxy_protocol: true, tcp: { upstream: db }";
    let weir = Weir::start(&config(tcp, &settings, "trusted_proxies: [ 127.0.0.1/32 ]"));
    let mut client = Client::connect(weir.address("pg"));
    client.send("PROXY TCP4 203.0.113.7 198.51.100.1 51234 5432\r\nhello");
    let mut conn = upstream.accept();
    let port = weir.address("pg").parse::<SocketAddr>().unwrap().port();
    conn.expect(format!("PROXY TCP4 203.0.113.7 127.0.0.1 51234 {port}\r\nhello"));
    drop((client, conn));
    assert_eq!(line(&weir)["client"], "203.0.113.7");
    let mut stranger = Client::connect(weir.address("pg"));
    stranger.send("hello there\r\n");
    stranger.expect_close();
    upstream.expect_no_connection();
}

#[test]
fn tls_ends_here_and_begins_there() {
    let authority = Authority::new();
    // An upstream that would refuse another protocol than its own.
    let server = ServerTls::new(&authority.leaf(&["db.test"])).alpn(&["postgresql"]);
    let upstream = Upstream::listen_tls(&server);
    let settings = format!(
        "endpoints: [ {} ], tls: {{ ca: {}, server_name: db.test }}",
        upstream.address(),
        authority.file().display()
    );
    let tcp = format!(
        "tcp: {{ upstream: db }}, tls: {{ certificates: [ {} ] }}",
        authority.leaf(&["weir.test"]).yaml()
    );
    let weir = Weir::start(&config(&tcp, &settings, ""));
    let mut client = Client::connect_tls(weir.address("pg"), &Tls::new(&authority, "weir.test"));
    client.send("hello");
    let mut conn = upstream.accept();
    conn.expect("hello");
    conn.send("world");
    client.expect("world");
    client.half_close();
    conn.expect_eof();
    conn.close();
    client.expect_close();
    assert_eq!(line(&weir)["tls_version"], "TLSv1.3");
    // Plain HTTP gets no answer: this is no listener of HTTP.
    let mut plain = Client::connect(weir.address("pg"));
    plain.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let answer = plain.read_to_close();
    assert!(!answer.starts_with(b"HTTP"), "{answer:?}");
}

// === limits ===

#[test]
fn addresses_are_refused() {
    let upstream = Upstream::listen();
    let endpoints = format!("endpoints: [ {} ]", upstream.address());
    let of = |ip: &str| {
        config(&format!("tcp: {{ upstream: db }}, ip: {ip}"), &endpoints, "shutdown: { drain: 200ms }")
    };
    let weir = Weir::start(&of("{ deny: [ 10.0.0.0/8 ] }"));
    let (mut client, mut conn) = connect(&weir, &upstream);
    // A list that still admits the client leaves its connection alone; one that does not ends it.
    weir.reload_with(&of("{ allow: [ 127.0.0.0/8 ] }")).unwrap();
    client.send("still here");
    conn.expect("still here");
    weir.reload_with(&of("{ allow: [ 10.0.0.0/8 ] }")).unwrap();
    client.expect_close();
    let mut refused = Client::connect(weir.address("pg"));
    refused.expect_close();
    upstream.expect_no_connection();
    expect_metric(&weir, "weir_causes_total{cause=\"address_refused\"}", 1.0);
}

#[test]
fn a_listener_has_a_limit() {
    let upstream = Upstream::listen();
    let endpoints = format!("endpoints: [ {} ]", upstream.address());
    let yaml = config("tcp: { upstream: db }, limits: { connections: 2 }", &endpoints, "");
    let weir = Weir::start(&yaml);
    let first = connect(&weir, &upstream);
    let _second = connect(&weir, &upstream);
    weir.reload_with(&format!("{yaml}dns: {{ max_ttl: 59s }}\n")).unwrap();
    let mut third = Client::connect(weir.address("pg"));
    third.expect_close();
    drop(first);
    eventually("a place is free again", || {
        metric(&weir, "weir_connections_active{listener=\"pg\"}") == Some(1.0)
    });
    drop(connect(&weir, &upstream));
}

// === reload, drain, upgrade ===

#[test]
fn a_reload_keeps_connections() {
    let (one, two) = (Upstream::listen(), Upstream::listen());
    let weir = Weir::start(&usual(&one));
    let (mut client, mut conn) = connect(&weir, &one);
    weir.reload_with(&usual(&two)).unwrap();
    client.send("where it was");
    conn.expect("where it was");
    drop(connect(&weir, &two));
    // Its listener goes: the connection has the drain timeout.
    let gone = "listeners: { web: { address: 127.0.0.1:0 } }\nshutdown: { drain: 200ms }\n\
                routes: { all: { match: { path: \"/*\" }, respond: { status: 204 } } }\n";
    weir.reload_with(gone).unwrap();
    client.send("once more");
    conn.expect("once more");
    client.expect_close();
    conn.expect_close();
}

#[test]
fn a_drain_waits_and_then_cuts() {
    let upstream = Upstream::listen();
    let yaml = format!("{}shutdown: {{ drain: 500ms }}\n", usual(&upstream));
    let mut weir = Weir::start(&yaml);
    let (mut client, mut conn) = connect(&weir, &upstream);
    weir.signal(libc::SIGTERM);
    client.send("during the drain");
    conn.expect("during the drain");
    client.expect_close();
    conn.expect_close();
    weir.wait_exit(Duration::from_secs(10)).expect_code(0);
    assert_eq!(line(&weir)["cause"], "shutdown");
}

#[test]
fn an_upgrade_keeps_connections() {
    let upstream = Upstream::listen();
    let weir = Weir::start_installed(&usual(&upstream));
    let (mut client, mut conn) = connect(&weir, &upstream);
    weir.upgrade().unwrap();
    client.send("in the old process");
    conn.expect("in the old process");
    drop(connect(&weir, &upstream));
    client.half_close();
    conn.expect_eof();
    conn.close();
    client.expect_close();
}

// === what operators see ===

#[test]
fn status_names_it() {
    let upstream = Upstream::listen();
    let weir = Weir::start(&usual(&upstream));
    let _open = connect(&weir, &upstream);
    let status = weir.admin_client().ask("GET /status HTTP/1.1\r\nHost: localhost\r\n\r\n").json();
    assert_eq!(status["listeners"]["pg"]["passes"], "tcp to db");
    assert_eq!(status["listeners"]["pg"]["connections"], 1);
    let printed = weir_testkit::run_weir(weir.dir(), &["status", "--admin", &weir.admin()]);
    assert!(printed.stdout.contains("tcp to db"), "{}", printed.stdout);
    assert_eq!(
        metric(&weir, "weir_connection_received_bytes_total{listener=\"pg\"}"),
        Some(5.0),
        "while it is open"
    );
    let url = format!("http://{}/", weir.address("pg"));
    let port = weir.address("pg");
    let yaml = usual(&upstream).replace("127.0.0.1:0", &port);
    weir.write_config(&yaml);
    let explained = weir_testkit::run_weir(weir.dir(), &["explain", "GET", &url]);
    assert!(explained.stdout.contains("as bytes: no request is read"), "{}", explained.stdout);
}
