//! Listeners with `sni`: the name in the ClientHello decides who gets a connection, and nobody else ends its TLS.

use std::time::Duration;

use weir_testkit::h2::H2;
use weir_testkit::{Authority, Client, Conn, ServerTls, Tls, Upstream, Weir, eventually, table};

use super::{expect_metric, line, metric};
use crate::cause::{MISDIRECTED, PLAIN_HTTP};

/// The parts of a config: an upstream with TLS of its own, and two listeners of HTTP.
struct Scene {
    authority: Authority,
    db: Upstream,
    web: String,
    tenants: String,
}

impl Scene {
    fn new() -> Self {
        let authority = Authority::new();
        let db = Upstream::listen_tls(&ServerTls::new(&authority.leaf(&["db.test"])));
        let tls = |names: &[&str]| format!("tls: {{ certificates: [ {} ] }}", authority.leaf(names).yaml());
        let (web, tenants) = (tls(&["web.test", "db.test"]), tls(&["*.tenants.test", "db.test"]));
        Self { authority, db, web, tenants }
    }

    /// The config with these settings of the listener `pg`, which has the names.
    fn yaml(&self, settings: &str) -> String {
        format!(
            "listeners:\n  pg: {{ address: 127.0.0.1:0, {settings} }}\n  web: {{ {} }}\n  tenants: {{ {} }}\n\
             upstreams: {{ db: {{ endpoints: [ {} ] }} }}\naccess_log: {{ output: stdout }}\n\
             routes:\n  web: {{ match: {{ path: \"/*\", listeners: [ web ] }}, respond: {{ status: 200, body: web }} }}\n\
             \x20 tenants: {{ match: {{ path: \"/*\", listeners: [ tenants ] }}, respond: {{ status: 200, body: tenants }} }}\n",
            self.web,
            self.tenants,
            self.db.address()
        )
    }

    /// Both ends of a connection that is passed on. The upstream ends TLS.
    fn passed_on(&self, weir: &Weir) -> (Client, Conn) {
        std::thread::scope(|threads| {
            let (address, tls) = (weir.address("pg"), Tls::new(&self.authority, "db.test"));
            let connects = threads.spawn(move || {
                let mut client = Client::connect_tls(address, &tls);
                client.send("hello");
                client
            });
            let mut conn = self.db.accept();
            conn.expect("hello");
            (connects.join().unwrap(), conn)
        })
    }

    fn client(&self, weir: &Weir, name: &str) -> Client {
        Client::connect_tls(weir.address("pg"), &Tls::new(&self.authority, name))
    }
}

const NAMES: &str = "sni: { db.test: { upstream: db }, \"*.tenants.test\": { listener: tenants }, web.test: { listener: web } }";

/// A ClientHello for this name, in records of at most this size.
fn hello(name: &str, record: usize) -> Vec<u8> {
    let long = |value: &[u8]| [&(value.len() as u16).to_be_bytes()[..], value].concat();
    let sni = [&[0, 0][..], &long(&long(&[&[0][..], &long(name.as_bytes())].concat()))].concat();
    let body = [&[3, 3][..], &[7; 32], &[0], &long(&[0x13, 0x01]), &[1, 0], &long(&sni)].concat();
    let message = [&[1, 0][..], &long(&body)].concat();
    message.chunks(record).flat_map(|part| [&[22, 3, 1][..], &long(part)].concat()).collect()
}

#[test]
fn the_name_decides() {
    let scene = Scene::new();
    let weir = Weir::start(&scene.yaml(&format!("{NAMES}, otherwise: {{ listener: web }}")));
    // An upstream ends its own TLS.
    drop(scene.passed_on(&weir));
    let line = line(&weir);
    assert_eq!(
        (&line["host"], &line["listener"], &line["upstream"]),
        (&"db.test".into(), &"pg".into(), &"db".into())
    );
    assert!(line.get("tls_version").is_none(), "TLS was not ours: {line}");
    for (name, expected) in
        [("a.tenants.test", "tenants"), ("B.Tenants.Test", "tenants"), ("web.test", "web")]
    {
        scene.client(&weir, name).get("/").expect_status(200).expect_body(expected);
    }
    // Nobody's name, and none at all.
    let stranger = Tls::new(&scene.authority, "db.test").without_sni();
    Client::connect_tls(weir.address("pg"), &stranger).get("/").expect_body("web");
    let mut h2 = H2::client(Client::connect_tls(
        weir.address("pg"),
        &Tls::new(&scene.authority, "a.tenants.test").alpn(&["h2"]),
    ));
    let stream = h2.get("/");
    h2.message(stream).expect_status(200);
    // Metrics name the listener that served.
    for (listener, count) in [("pg", 1.0), ("tenants", 3.0), ("web", 2.0)] {
        let series = format!("weir_connections_accepted_total{{listener=\"{listener}\"}}");
        expect_metric(&weir, &series, count);
    }
    eventually("none is counted as open twice", || {
        let open = |listener| metric(&weir, &format!("weir_connections_active{{listener=\"{listener}\"}}"));
        open("pg") == Some(0.0) && open("web") == Some(0.0)
    });
}

#[test]
fn without_a_destination_it_is_closed() {
    let scene = Scene::new();
    let weir = Weir::start(&scene.yaml(NAMES));
    let cases: &[(&str, Vec<u8>)] = &[
        ("an unknown name", hello("other.test", 16_384)),
        ("the parent of a wildcard", hello("tenants.test", 16_384)),
        ("an address", hello("127.0.0.1", 16_384)),
        ("a literal wildcard", hello("*.tenants.test", 16_384)),
        ("an empty name", hello("", 16_384)),
        ("no TLS", b"GET / HTTP/1.1\r\nHost: web.test\r\n\r\n".to_vec()),
        ("one wrong byte", b"\x80".to_vec()),
    ];
    table(
        cases,
        |(name, _)| *name,
        |(_, bytes)| {
            let mut client = Client::connect(weir.address("pg"));
            client.send(bytes);
            client.expect_close();
        },
    );
    let count = cases.len() as f64;
    expect_metric(&weir, "weir_causes_total{cause=\"sni_unknown\"}", count);
    expect_metric(&weir, "weir_connections_accepted_total{listener=\"pg\"}", count);
    let why = weir_testkit::run_weir(weir.dir(), &["why", "--admin", &weir.admin()]);
    assert!(why.stdout.contains("sni_unknown"), "{}", why.stdout);
}

#[test]
fn a_hello_in_pieces_arrives_whole() {
    let authority = Authority::new();
    let upstream = Upstream::listen();
    let weir = Weir::start(&format!(
        "listeners: {{ pg: {{ address: 127.0.0.1:0, sni: {{ db.test: {{ upstream: db }} }} }} }}\n\
         upstreams: {{ db: {{ endpoints: [ {} ] }} }}\n",
        upstream.address()
    ));
    drop(authority);
    for (record, segment) in [(1, 1000), (3, 7), (16_384, 1)] {
        let bytes = hello("DB.test.", record);
        let mut client = Client::connect(weir.address("pg"));
        for piece in bytes.chunks(segment) {
            client.send(piece);
            weir_testkit::pause(Duration::from_micros(200));
        }
        client.send("early data");
        let mut conn = upstream.accept();
        conn.expect(&bytes);
        conn.expect("early data");
        conn.send("answer");
        client.expect("answer");
    }
}

#[test]
fn a_hello_has_a_size_and_a_time() {
    let scene = Scene::new();
    let settings = format!("{NAMES}, otherwise: {{ listener: web }}, timeouts: {{ handshake: 400ms }}");
    let weir = Weir::start(&scene.yaml(&settings));
    let mut large = Client::connect(weir.address("pg"));
    large.send(b"\x16\x03\x01\x40\x00\x01\x00\xff\xff");
    large.expect_close();
    let mut slow = Client::connect(weir.address("pg"));
    slow.send(&hello("db.test", 16_384)[..20]);
    slow.expect_close();
    let mut silent = Client::connect(weir.address("pg"));
    silent.expect_close();
    // A port check, and half a hello, are no errors.
    drop(Client::connect(weir.address("pg")));
    let mut half = Client::connect(weir.address("pg"));
    half.send(&hello("db.test", 16_384)[..20]);
    half.half_close();
    half.expect_close();
    expect_metric(&weir, "weir_causes_total{cause=\"handshake_timeout\"}", 2.0);
    eventually("the others have ended", || {
        metric(&weir, "weir_causes_total{cause=\"handshake_failed\"}") == Some(3.0)
    });
    scene.db.expect_no_connection();
    expect_metric(&weir, "weir_connections_closed_total{listener=\"pg\",reason=\"handshake\"}", 5.0);
    expect_metric(&weir, "weir_tls_handshakes_total{listener=\"pg\",result=\"failed\"}", 5.0);
    assert_eq!(weir.logged("TLS handshake failed").len(), 3, "not the port check and the half hello");
}

#[test]
fn a_host_that_is_passed_on_is_misdirected() {
    let scene = Scene::new();
    let weir = Weir::start(&scene.yaml(&format!("{NAMES}, otherwise: {{ listener: web }}")));
    let ask = |client: &mut Client, host: &str| client.ask(format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n"));
    let mut client = scene.client(&weir, "web.test");
    for host in ["db.test", "DB.test:443", "db.test.", "a.tenants.test"] {
        ask(&mut client, host).expect_cause(MISDIRECTED);
    }
    ask(&mut client, "web.test").expect_status(200).expect_body("web");
    ask(&mut client, "other.test").expect_status(200).expect_body("web");
    let mut tenant = scene.client(&weir, "a.tenants.test");
    ask(&mut tenant, "b.tenants.test").expect_status(200);
    ask(&mut tenant, "web.test").expect_cause(MISDIRECTED);
    // The names of the running config count, on an open connection too.
    weir.reload_with(&scene.yaml("sni: { web.test: { listener: web }, a.test: { listener: tenants } }"))
        .unwrap();
    ask(&mut client, "db.test").expect_status(200);
}

#[test]
fn plain_clients_have_a_place_too() {
    let scene = Scene::new();
    let weir = Weir::start(&scene.yaml(&format!("{NAMES}, otherwise: {{ listener: web }}")));
    let plain = "GET / HTTP/1.1\r\nHost: web.test\r\n\r\n";
    Client::connect(weir.address("pg")).ask(plain).expect_cause(PLAIN_HTTP);
    let yaml = scene.yaml(&format!("{NAMES}, otherwise: {{ listener: open }}"));
    let yaml = yaml
        .replace("\n  tenants: { tls", "\n  open: {}\n  tenants: { tls")
        .replace("listeners: [ web ]", "listeners: [ web, open ]");
    weir.reload_with(&yaml).unwrap();
    Client::connect(weir.address("pg")).ask(plain).expect_status(200).expect_body("web");
    let host = plain.replace("web.test", "db.test");
    Client::connect(weir.address("pg")).ask(host).expect_cause(MISDIRECTED);
}

#[test]
fn the_outer_listener_has_the_proxy_header_and_the_limits() {
    let scene = Scene::new();
    let yaml = scene.yaml(&format!("{NAMES}, proxy_protocol: true, ip: {{ deny: [ 203.0.113.0/24 ] }}"));
    let yaml = yaml.replace("endpoints:", "proxy_protocol: v2, endpoints:");
    let weir = Weir::start(&format!("{yaml}trusted_proxies: [ 127.0.0.1/32 ]\n"));
    let mut denied = Client::connect(weir.address("pg"));
    denied.send("PROXY TCP4 203.0.113.7 198.51.100.1 51234 443\r\n");
    denied.send(hello("db.test", 16_384));
    denied.expect_close();
    scene.db.expect_no_connection();
    expect_metric(&weir, "weir_causes_total{cause=\"address_refused\"}", 1.0);
}

#[test]
fn a_reload_keeps_what_stays() {
    let scene = Scene::new();
    let all = format!("{NAMES}, otherwise: {{ listener: web }}");
    let weir = Weir::start(&scene.yaml(&all));
    let mut web = scene.client(&weir, "web.test");
    web.get("/").expect_status(200);
    let (mut db, mut conn) = scene.passed_on(&weir);
    let mut tenant = scene.client(&weir, "a.tenants.test");
    tenant.ask("GET / HTTP/1.1\r\nHost: a.tenants.test\r\n\r\n").expect_status(200);
    // Other names, and one listener less: only its own connections end.
    let less =
        scene.yaml("sni: { web.test: { listener: web } }").replace(&scene.tenants, "address: 127.0.0.1:0");
    weir.reload_with(&less).unwrap();
    tenant.expect_close();
    web.ask("GET / HTTP/1.1\r\nHost: web.test\r\n\r\n").expect_status(200);
    db.send("still here");
    conn.expect("still here");
}

#[test]
fn tls_may_end_here_for_bytes() {
    let authority = Authority::new();
    let upstream = Upstream::listen();
    let weir = Weir::start(&format!(
        "listeners:\n  pg: {{ address: 127.0.0.1:0, sni: {{ db.test: {{ listener: ended }} }} }}\n\
         \x20 ended: {{ tcp: {{ upstream: db }}, tls: {{ certificates: [ {} ] }} }}\n\
         upstreams: {{ db: {{ endpoints: [ {} ] }} }}\naccess_log: {{ output: stdout }}\n",
        authority.leaf(&["db.test"]).yaml(),
        upstream.address()
    ));
    let mut client = Client::connect_tls(weir.address("pg"), &Tls::new(&authority, "db.test"));
    client.send("hello");
    let mut conn = upstream.accept();
    conn.expect("hello");
    drop((client, conn));
    let line = line(&weir);
    assert_eq!((&line["listener"], &line["tls_version"]), (&"ended".into(), &"TLSv1.3".into()));
}
