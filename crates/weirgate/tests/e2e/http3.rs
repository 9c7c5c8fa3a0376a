//! HTTP/3 to clients: the same exchanges as over HTTP/2, on connections that outlive reloads, workers and processes.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use weir_testkit::h2::H2;
use weir_testkit::{Authority, Client, H3, Tls, UdpPath, Upstream, Weir, eventually};

use crate::health::metric;
use crate::support::OK_BODY;

/// A config whose listener `web` at this address speaks HTTP/3.
fn config(authority: &Authority, address: &str, rest: &str) -> String {
    let certificate = authority.leaf(&["a.test"]).yaml();
    format!(
        "listeners: {{ web: {{ address: \"{address}\", protocols: [h3, h2, http1], tls: {{ certificates: [ {certificate} ] }} }} }}\n{rest}"
    )
}

/// The rest of a config: one route to an upstream.
fn to(upstream: &Upstream) -> String {
    let address = upstream.address();
    format!(
        "upstreams: {{ up: {{ endpoints: [{address}] }} }}\nroutes: {{ all: {{ match: {{ path: \"/*\" }}, upstream: up }} }}\n"
    )
}

/// The rest of a config: one route that answers.
const OK: &str = "routes: { all: { match: { path: \"/*\" }, respond: { body: ok } } }\n";

fn client(weir: &Weir, authority: &Authority) -> H3 {
    H3::connect(&weir.udp_address(), &Tls::new(authority, "a.test"))
}

// === Exchanges ===

#[test]
fn requests_and_responses_pass_whole() {
    let authority = Authority::new();
    let upstream = Upstream::listen();
    let weir = Weir::start(&config(&authority, "127.0.0.1:0", &to(&upstream)));
    let client = client(&weir, &authority);
    // Without a body.
    let asked = client.start("GET /a?b=1 HTTP/1.1\r\nHost: a.test\r\nX-One: 1\r\n\r\n");
    let mut conn = upstream.accept();
    let seen = conn.read_request();
    assert_eq!(seen.head.line, "GET /a?b=1 HTTP/1.1");
    assert_eq!(seen.head.header("x-one"), Some("1"));
    assert_eq!(seen.head.header("x-forwarded-proto"), Some("https"));
    conn.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-Two: 2\r\n\r\nok");
    asked.response().expect_status(200).expect_header("x-two", "2").expect_body("ok");
    // With a body larger than any window, in both directions, and trailers back.
    let large: Vec<u8> = (0..3_000_000_u32).map(|n| (n % 251) as u8).collect();
    let head = format!("POST /large HTTP/1.1\r\nHost: a.test\r\nContent-Length: {}\r\n\r\n", large.len());
    let asked = client.start_with(&head, large.clone());
    let seen = conn.read_request();
    assert!(seen.body.bytes == large);
    conn.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: x-sum\r\n\r\n");
    for piece in large.chunks(100_000) {
        conn.send(format!("{:x}\r\n", piece.len()));
        conn.send(piece);
        conn.send("\r\n");
    }
    conn.send("0\r\nX-Sum: 9\r\n\r\n");
    let response = asked.response();
    assert!(response.body.bytes == large);
    assert_eq!(response.body.trailers, [("x-sum".to_owned(), "9".to_owned())]);
    // A response without a body.
    let asked = client.start("HEAD /h HTTP/1.1\r\nHost: a.test\r\n\r\n");
    conn.read_request();
    conn.send("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n");
    asked.response().expect_status(200).expect_header("content-length", "9").expect_body("");
}

#[test]
fn many_requests_share_a_connection_and_none_waits_for_another() {
    let authority = Authority::new();
    let upstream = Upstream::listen();
    let weir = Weir::start(&config(&authority, "127.0.0.1:0", &to(&upstream)));
    let client = client(&weir, &authority);
    let asked: Vec<_> =
        (0..100).map(|n| client.start(&format!("GET /{n} HTTP/1.1\r\nHost: a.test\r\n\r\n"))).collect();
    let mut conns: Vec<_> = asked.iter().map(|_| upstream.accept()).collect();
    // The last one that arrived is answered first.
    while let Some(mut conn) = conns.pop() {
        let path = conn.read_request().head.line.split(' ').nth(1).unwrap_or_default().to_owned();
        conn.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{path}", path.len()));
    }
    for (n, asked) in asked.into_iter().enumerate() {
        asked.response().expect_status(200).expect_body(format!("/{n}"));
    }
    eventually("all are counted", || {
        metric(&weir, &["weir_connection_requests_total", "listener=\"web\"", "protocol=\"h3\""])
            == Some(100.0)
    });
    assert_eq!(metric(&weir, &["weir_connections_active", "listener=\"web\""]), Some(1.0));
}

#[test]
fn a_client_that_gives_up_frees_the_upstream() {
    let authority = Authority::new();
    let upstream = Upstream::listen();
    let weir = Weir::start(&config(&authority, "127.0.0.1:0", &to(&upstream)));
    let client = client(&weir, &authority);
    let asked = client.start("GET /slow HTTP/1.1\r\nHost: a.test\r\n\r\n");
    let mut conn = upstream.accept_request();
    drop(asked); // resets its stream
    conn.expect_close();
    // The connection lives on.
    let asked = client.start("GET /next HTTP/1.1\r\nHost: a.test\r\n\r\n");
    upstream.accept_request().send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    asked.response().expect_body("ok");
}

#[test]
fn an_upstream_that_breaks_off_resets_the_stream() {
    let authority = Authority::new();
    let upstream = Upstream::listen();
    let weir = Weir::start(&config(&authority, "127.0.0.1:0", &to(&upstream)));
    let client = client(&weir, &authority);
    let asked = client.start("GET /cut HTTP/1.1\r\nHost: a.test\r\n\r\n");
    let mut conn = upstream.accept_request();
    conn.send("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf");
    asked.wait_begin();
    drop(conn);
    let failed = asked.try_response().unwrap_err();
    assert!(failed.contains("Reset"), "{failed}");
}

#[test]
fn the_log_and_the_listener_know_http3() {
    let authority = Authority::new();
    let weir = Weir::start(&config(
        &authority,
        "127.0.0.1:0",
        "access_log: { format: json }\nroutes: { all: { match: { path: \"/*\" }, respond: { body: ok } } }\n",
    ));
    client(&weir, &authority).get("/logged").expect_body("ok");
    let line = weir.wait_stdout("/logged");
    assert!(line.contains("\"HTTP/3\""), "{line}");
    // The other protocols are served on the same port, and tell clients about HTTP/3.
    let tls = Tls::new(&authority, "a.test").alpn(&["h2"]);
    let mut h2 = H2::client(Client::connect_tls(weir.address("web"), &tls));
    let stream = h2.get("/");
    assert_eq!(h2.message(stream).status(), 200);
    Client::connect_tls(weir.address("web"), &Tls::new(&authority, "a.test")).get("/").expect_status(200);
}

#[test]
fn a_client_certificate_is_asked_for_and_passed_on() {
    let authority = Authority::new();
    let certificate = authority.leaf(&["a.test"]).yaml();
    let weir = Weir::start(&format!(
        "listeners: {{ web: {{ address: 127.0.0.1:0, protocols: [h3], tls: {{ certificates: [ {certificate} ], \
         client_auth: {{ ca: {}, mode: required }} }} }} }}\nfilters: [ {{ headers: {{ response: {{ set: {{ x-subject: \"{{tls_client_subject}}\" }} }} }} }} ]\n{OK}",
        authority.file().display()
    ));
    let tls = Tls::new(&authority, "a.test").identity(&authority.client("ann"));
    let known = H3::connect(&weir.udp_address(), &tls).get("/");
    known.expect_status(200).expect_header("x-subject", "CN=ann");
    // In TLS 1.3 the client may take itself for connected before it is refused.
    let unknown = H3::try_connect(&weir.udp_address(), &Tls::new(&authority, "a.test"));
    let refused = unknown
        .and_then(|client| client.start("GET / HTTP/1.1\r\nHost: a.test\r\n\r\n").try_response().map(drop));
    assert!(refused.is_err());
    // A listener with HTTP/3 alone has no TCP socket.
    assert!(std::net::TcpStream::connect(weir.udp_address()).is_err());
}

// === Early data ===

#[test]
fn early_requests_run_at_once_only_where_a_replay_is_harmless() {
    let authority = Authority::new();
    let upstream = Upstream::fixed(OK_BODY);
    let address = upstream.address();
    let config = config(
        &authority,
        "127.0.0.1:0",
        &format!(
            "upstreams: {{ up: {{ endpoints: [{address}] }} }}\nroutes:\n  \
             willing: {{ match: {{ path: \"/willing/*\" }}, early_data: true, upstream: up }}\n  \
             all: {{ match: {{ path: \"/*\" }}, upstream: up }}\n"
        ),
    )
    .replace("protocols:", "http3: { early_data: true }, protocols:");
    let weir = Weir::start(&config);
    // The field that the upstream sees, and whether the request arrived there before the handshake was complete.
    let ask = |head: &str| {
        let path = UdpPath::to(&weir.udp_address());
        let tls = Tls::new(&authority, "a.test");
        thread::scope(|scope| {
            let before = upstream.requests().len() + 1; // that of the first connection
            let asked = scope.spawn(|| H3::come_back(&path, &tls, head));
            eventually("the server has answered the first packet", || path.holds());
            if head.starts_with("GET /willing/") {
                eventually("the upstream has it", || upstream.requests().len() > before);
            }
            let is_early = upstream.requests().len() > before;
            path.let_go();
            asked.join().unwrap().expect_status(200);
            let told = upstream.requests()[before].head.header("early-data").map(str::to_owned);
            (told.unwrap_or_default(), is_early)
        })
    };
    let early = |head: &str| ask(&format!("{head} HTTP/1.1\r\nHost: a.test\r\nContent-Length: 0\r\n\r\n"));
    assert_eq!(early("GET /willing/"), ("1".to_owned(), true));
    // These wait until the handshake is complete.
    assert_eq!(early("GET /other"), (String::new(), false));
    assert_eq!(early("POST /willing/"), (String::new(), false));
    // Without the switch of the listener nothing is early.
    weir.reload_with(&config.replace("http3: { early_data: true }, ", "")).unwrap();
    let client = client(&weir, &authority);
    client.get("/willing/").expect_status(200);
    assert_eq!(upstream.requests().last().unwrap().head.header("early-data"), None);
}

// === What connections outlive ===

#[test]
fn a_reload_closes_no_connection() {
    let authority = Authority::new();
    let weir = Weir::start(&config(&authority, "127.0.0.1:0", OK));
    let client = client(&weir, &authority);
    client.get("/").expect_body("ok");
    for n in 0..5 {
        let rest = format!("routes: {{ all: {{ match: {{ path: \"/*\" }}, respond: {{ body: n{n} }} }} }}\n");
        weir.reload_with(&config(&authority, "127.0.0.1:0", &rest)).unwrap();
        client.get("/").expect_body(format!("n{n}"));
    }
    assert_eq!(metric(&weir, &["weir_connections_accepted_total", "listener=\"web\""]), Some(1.0));
}

#[test]
fn a_listener_without_h3_says_goodbye_and_closes_the_socket() {
    let authority = Authority::new();
    let weir = Weir::start(&config(&authority, "127.0.0.1:0", OK));
    let client = client(&weir, &authority);
    client.get("/").expect_body("ok");
    let udp = weir.udp_address();
    let without = config(&authority, "127.0.0.1:0", OK).replace("[h3, h2, http1]", "[h2, http1]");
    weir.reload_with(&without).unwrap();
    assert_eq!(client.wait_end(), "the peer closed the connection with code 0x100");
    eventually("the port is free", || std::net::UdpSocket::bind(&udp).is_ok());
    // And back again.
    weir.reload_with(&config(&authority, "127.0.0.1:0", OK)).unwrap();
    self::client(&weir, &authority).get("/").expect_body("ok");
}

/// Clients that ask all the time, each on connections that it replaces when they end. Returns the number of responses.
fn under_load(weir: &Weir, authority: &Authority, change: impl FnOnce(&AtomicUsize)) -> usize {
    let (over, answered) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        for requests in [1, 7, 1000] {
            let (over, answered) = (&over, &answered);
            let address = weir.udp_address();
            scope.spawn(move || {
                let tls = Tls::new(authority, "a.test");
                while !over.load(Relaxed) {
                    let client = H3::connect(&address, &tls);
                    for _ in 0..requests {
                        let asked = client.start("GET / HTTP/1.1\r\nHost: a.test\r\n\r\n").try_response();
                        match asked {
                            Ok(response) => drop(response.expect_status(200)),
                            // The server has said GOAWAY, and has not processed it: on a new connection then.
                            Err(why) if why.contains("Refused") || why.contains("takes no more requests") => {
                                break;
                            }
                            Err(why) => panic!("{why}"),
                        }
                        answered.fetch_add(1, Relaxed);
                        if over.load(Relaxed) {
                            break;
                        }
                    }
                }
            });
        }
        change(&answered);
        over.store(true, Relaxed);
    });
    answered.into_inner()
}

#[test]
fn ten_changes_of_workers_under_load_lose_nothing() {
    let authority = Authority::new();
    let config = |workers: usize| {
        config(&authority, "127.0.0.1:0", &format!("{OK}workers: {workers}\nshutdown: {{ drain: 3s }}\n"))
    };
    let weir = Weir::start(&config(2));
    let answered = under_load(&weir, &authority, |answered| {
        for workers in [4, 1, 3, 2, 4, 3, 1, 2, 1, 4] {
            let before = answered.load(Relaxed);
            weir.reload_with(&config(workers)).unwrap();
            eventually("requests are answered", || answered.load(Relaxed) > before + 20);
        }
    });
    assert!(answered > 200, "{answered}");
}

/// Sockets change hands between cores in every direction here. One that nobody reads any more would lose its share of
/// clients, as long as a request that is not over keeps it open.
#[test]
fn every_client_finds_a_core_after_each_change_of_workers() {
    let authority = Authority::new();
    let upstream = Upstream::listen();
    let routes = "routes: { all: { match: { path: \"/*\" }, respond: { body: ok } }, \
                  slow: { match: { path: /slow }, upstream: up } }\n";
    let config = |workers: usize| {
        let upstreams = format!("upstreams: {{ up: {{ endpoints: [{}] }} }}\n", upstream.address());
        config(&authority, "127.0.0.1:0", &format!("{upstreams}{routes}workers: {workers}\n"))
    };
    let weir = Weir::start(&config(2));
    let mut held = Vec::new();
    for workers in [4, 3, 1, 2, 3, 2, 1, 4, 2] {
        weir.reload_with(&config(workers)).unwrap();
        for _ in 0..12 {
            let client = client(&weir, &authority);
            client.start("GET / HTTP/1.1\r\nHost: a.test\r\n\r\n").response().expect_body("ok");
            let asked = client.start("GET /slow HTTP/1.1\r\nHost: a.test\r\n\r\n");
            held.push((upstream.accept_request(), asked, client));
        }
    }
    for (mut conn, asked, _client) in held {
        conn.send("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nslow");
        asked.response().expect_body("slow");
    }
}

#[test]
fn a_connection_on_a_core_that_leaves_ends_its_request() {
    let authority = Authority::new();
    let upstream = Upstream::listen();
    let config =
        |workers: usize| config(&authority, "127.0.0.1:0", &format!("{}workers: {workers}\n", to(&upstream)));
    let weir = Weir::start(&config(4));
    // Enough connections that each core has one.
    let clients: Vec<_> = (0..16).map(|_| client(&weir, &authority)).collect();
    let asked: Vec<_> = clients
        .iter()
        .map(|client| {
            let asked = client.start("GET / HTTP/1.1\r\nHost: a.test\r\n\r\n");
            (asked, upstream.accept_request())
        })
        .collect();
    weir.reload_with(&config(1)).unwrap();
    for (asked, mut conn) in asked {
        conn.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        asked.response().expect_body("ok");
    }
}

#[test]
fn an_upgrade_loses_no_request_and_new_clients_reach_the_new_process() {
    let authority = Authority::new();
    let weir = Weir::start_installed(&config(&authority, "127.0.0.1:0", &format!("{OK}workers: 2\n")));
    let answered = under_load(&weir, &authority, |answered| {
        for _ in 0..5 {
            let before = answered.load(Relaxed);
            weir.upgrade().unwrap();
            eventually("the new process answers", || answered.load(Relaxed) > before + 50);
        }
    });
    assert!(answered > 250, "{answered}");
}

#[test]
fn a_request_that_runs_during_an_upgrade_is_answered_by_the_process_that_has_it() {
    let authority = Authority::new();
    let upstream = Upstream::listen();
    let weir =
        Weir::start_installed(&config(&authority, "127.0.0.1:0", &format!("{}workers: 2\n", to(&upstream))));
    let clients: Vec<_> = (0..8).map(|_| client(&weir, &authority)).collect();
    let asked: Vec<_> = clients
        .iter()
        .map(|client| {
            let head = "POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 200000\r\n\r\n";
            let asked = client.open(head, vec![b'x'; 100_000]);
            (asked, upstream.accept())
        })
        .collect();
    weir.upgrade().unwrap();
    // The rest of the body reaches the sockets of the new process, which passes it on.
    for (asked, mut conn) in asked {
        asked.send(vec![b'y'; 100_000], true);
        assert_eq!(conn.read_request().body.bytes.len(), 200_000);
        conn.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        asked.response().expect_body("ok");
    }
    let asked = client(&weir, &authority).start("GET /new HTTP/1.1\r\nHost: a.test\r\n\r\n");
    upstream.accept_request().send("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nnew");
    asked.response().expect_body("new");
}

#[test]
fn a_client_that_moves_keeps_its_connection_and_is_known_by_its_new_address() {
    let authority = Authority::new();
    let upstream = Upstream::fixed(OK_BODY);
    let weir = Weir::start(&config(&authority, "127.0.0.1:0", &to(&upstream)));
    let path = UdpPath::to(&weir.udp_address());
    let client = H3::connect(&path.address, &Tls::new(&authority, "a.test"));
    client.get("/before").expect_status(200);
    path.move_to(IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2)));
    // The first request may run while the new address is being proved.
    eventually("the upstream is told the new address", || {
        client.get("/after").expect_status(200);
        upstream
            .requests()
            .last()
            .and_then(|r| r.head.header("x-forwarded-for").map(str::to_owned))
            .as_deref()
            == Some("127.0.0.2")
    });
    assert_eq!(metric(&weir, &["weir_connections_accepted_total", "listener=\"web\""]), Some(1.0));
}

/// A listener that another one sends clients to by name: its HTTP/3 is at the other's UDP port.
fn behind(authority: &Authority, more: &str) -> String {
    let certificate = authority.leaf(&["a.test"]).yaml();
    format!(
        "listeners:\n  names: {{ address: 127.0.0.1:0, sni: {{ a.test: {{ listener: inner }} }}{more} }}\n  \
         inner: {{ protocols: [h3, h2, http1], tls: {{ certificates: [ {certificate} ] }} }}\n{OK}"
    )
}

#[test]
fn a_listener_behind_names_is_reached_at_the_outer_port() {
    let authority = Authority::new();
    let weir = Weir::start(&behind(&authority, ""));
    let tcp = weir.address("names");
    assert_eq!(weir.udp_address(), tcp);
    let client = client(&weir, &authority);
    client.get("/").expect_body("ok");
    Client::connect_tls(&tcp, &Tls::new(&authority, "a.test")).get("/").expect_body("ok");
    weir.reload_with(&behind(&authority, "").replace("body: ok", "body: new")).unwrap();
    client.get("/").expect_body("new");
    // An address that the outer listener refuses.
    weir.reload_with(&behind(&authority, ", ip: { deny: [127.0.0.0/8] }")).unwrap();
    assert!(H3::try_connect(&weir.udp_address(), &Tls::new(&authority, "a.test")).is_err());
    client.wait_end();
}

#[test]
fn a_client_that_moves_must_be_admitted_by_both_listeners() {
    let authority = Authority::new();
    let weir = Weir::start(&behind(&authority, ", ip: { deny: [127.0.0.3] }"));
    let path = UdpPath::to(&weir.udp_address());
    let client = H3::connect(&path.address, &Tls::new(&authority, "a.test"));
    client.get("/").expect_body("ok");
    // A reload refuses one more address, and the client has asked for nothing since.
    weir.reload_with(&behind(&authority, ", ip: { deny: [127.0.0.2, 127.0.0.3] }")).unwrap();
    path.move_to(IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2)));
    // Requests may succeed until QUIC has validated the new address.
    eventually("the new address is refused", || {
        client.start("GET / HTTP/1.1\r\nHost: a.test\r\n\r\n").try_response().is_err()
    });
    assert!(metric(&weir, &["weir_causes_total", "cause=\"address_refused\""]).is_some_and(|n| n >= 1.0));
}

#[test]
fn a_reload_judges_a_client_that_moved_by_its_new_address() {
    let authority = Authority::new();
    let config = |denied: &str| {
        format!("{}access_log: {{}}\n", behind(&authority, &format!(", ip: {{ deny: [{denied}] }}")))
    };
    let weir = Weir::start(&config("127.0.0.3"));
    let path = UdpPath::to(&weir.udp_address());
    let client = H3::connect(&path.address, &Tls::new(&authority, "a.test"));
    client.get("/").expect_body("ok"); // a client may move once its handshake is confirmed
    path.move_to(IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2)));
    eventually("the new address is known", || {
        client.get("/").expect_body("ok");
        weir.stdout().contains("127.0.0.2")
    });
    weir.reload_with(&config("127.0.0.2")).unwrap();
    client.wait_end();
}

#[test]
fn a_drain_says_goodbye_after_the_response() {
    let authority = Authority::new();
    let upstream = Upstream::listen();
    let mut weir = Weir::start(&config(&authority, "127.0.0.1:0", &to(&upstream)));
    let client = client(&weir, &authority);
    let asked = client.start("GET / HTTP/1.1\r\nHost: a.test\r\n\r\n");
    let mut conn = upstream.accept_request();
    weir.signal(libc::SIGTERM);
    weir.wait_log("draining");
    conn.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    asked.response().expect_body("ok");
    assert_eq!(client.wait_end(), "the peer closed the connection with code 0x100");
    weir.wait_exit(Duration::from_secs(10)).expect_code(0);
}

#[test]
fn the_limit_of_connections_holds() {
    let authority = Authority::new();
    let limited =
        config(&authority, "127.0.0.1:0", OK).replace("protocols:", "limits: { connections: 2 }, protocols:");
    let weir = Weir::start(&limited);
    let (first, second) = (client(&weir, &authority), client(&weir, &authority));
    first.get("/").expect_status(200);
    second.get("/").expect_status(200);
    let third = H3::try_connect(&weir.udp_address(), &Tls::new(&authority, "a.test"));
    assert!(third.is_err());
    drop(first);
    eventually("there is room again", || {
        H3::try_connect(&weir.udp_address(), &Tls::new(&authority, "a.test")).is_ok()
    });
}

// === What an attack found ===

#[test]
fn a_handshake_that_a_reload_overtakes_proves_nothing() {
    let authority = Authority::new();
    let open = config(&authority, "127.0.0.1:0", OK);
    let weir = Weir::start(&open);
    let path = UdpPath::to(&weir.udp_address());
    path.hold_back();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let client = H3::try_connect(&path.address, &Tls::new(&authority, "a.test"))?;
            client.start("GET / HTTP/1.1\r\nHost: a.test\r\n\r\n").try_response()
        });
        eventually("the server has answered the first packet", || path.holds());
        let auth = format!("tls: {{ client_auth: {{ ca: {} }},", authority.file().display());
        weir.reload_with(&open.replace("tls: {", &auth)).unwrap();
        path.let_go();
        let asked = waiting.join().unwrap();
        assert!(asked.is_err(), "{asked:?}");
    });
}

#[test]
fn a_failed_upgrade_leaves_http3_as_it_was() {
    let authority = Authority::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let config = |admin: &str| {
        let rest = format!("{OK}workers: 2\nadmin: {{ address: \"{admin}\" }}\n");
        config(&authority, "127.0.0.1:0", &rest)
    };
    let weir = Weir::start_installed(&config("127.0.0.1:0"));
    let before = client(&weir, &authority);
    before.get("/").expect_body("ok");
    weir.write_config(&config(&taken.local_addr().unwrap().to_string()));
    assert!(weir.upgrade().is_err());
    before.get("/").expect_body("ok");
    for _ in 0..8 {
        client(&weir, &authority).get("/").expect_body("ok");
    }
}

#[test]
fn http3_that_is_switched_on_again_serves_while_old_requests_run() {
    let authority = Authority::new();
    let upstream = Upstream::listen();
    let on = config(&authority, "127.0.0.1:0", &format!("{}workers: 2\n", to(&upstream)));
    let weir = Weir::start(&on);
    let old: Vec<_> = (0..6).map(|_| client(&weir, &authority)).collect();
    let asked: Vec<_> = old
        .iter()
        .map(|client| (client.start("GET / HTTP/1.1\r\nHost: a.test\r\n\r\n"), upstream.accept_request()))
        .collect();
    weir.reload_with(&on.replace("[h3, h2, http1]", "[h2, http1]")).unwrap();
    let again = on.replace("127.0.0.1:0", &weir.address("web"));
    weir.reload_with(&again).unwrap();
    for _ in 0..12 {
        let client = client(&weir, &authority);
        let asked = client.start("GET /new HTTP/1.1\r\nHost: a.test\r\n\r\n");
        upstream.accept_request().send("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nnew");
        asked.response().expect_body("new");
    }
    for (asked, mut conn) in asked {
        conn.send("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nold");
        asked.response().expect_body("old");
    }
}

#[test]
fn an_upload_outlives_two_upgrades() {
    let authority = Authority::new();
    let upstream = Upstream::listen();
    let weir =
        Weir::start_installed(&config(&authority, "127.0.0.1:0", &format!("{}workers: 2\n", to(&upstream))));
    let client = client(&weir, &authority);
    let head = "POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 300000\r\n\r\n";
    let asked = client.open(head, vec![b'x'; 100_000]);
    let mut conn = upstream.accept();
    weir.upgrade().unwrap();
    asked.send(vec![b'y'; 100_000], false);
    weir.upgrade().unwrap();
    asked.send(vec![b'z'; 100_000], true);
    assert_eq!(conn.read_request().body.bytes.len(), 300_000);
    conn.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    asked.response().expect_body("ok");
}

/// How many descriptors of a process are sockets of UDP at this port.
pub(crate) fn udp_descriptors(weir: &Weir) -> usize {
    let port = format!(":{:04X}", weir.udp_address().rsplit_once(':').unwrap().1.parse::<u16>().unwrap());
    let table = std::fs::read_to_string("/proc/net/udp").unwrap();
    let ours =
        table.lines().filter(|line| line.split_whitespace().nth(1).is_some_and(|at| at.ends_with(&port)));
    let inodes: Vec<String> = ours
        .filter_map(|line| line.split_whitespace().nth(9))
        .map(|inode| format!("socket:[{inode}]"))
        .collect();
    let descriptors = std::fs::read_dir(format!("/proc/{}/fd", weir.pid())).unwrap().flatten();
    let names = descriptors.filter_map(|fd| std::fs::read_link(fd.path()).ok());
    names.filter(|name| inodes.iter().any(|inode| **inode == *name.to_string_lossy())).count()
}

#[test]
fn changes_of_workers_leave_no_copies_of_sockets() {
    let authority = Authority::new();
    let config = |workers: usize| config(&authority, "127.0.0.1:0", &format!("{OK}workers: {workers}\n"));
    let weir = Weir::start(&config(1));
    for workers in [4, 1, 4, 2, 3, 1, 4] {
        weir.reload_with(&config(workers)).unwrap();
        client(&weir, &authority).get("/").expect_body("ok");
    }
    eventually("each socket is open once", || udp_descriptors(&weir) == 4);
}
