//! HTTP/3 where it meets the rest: tunnels, gRPC, filters that hold bodies, answers before the request has ended,
//! addresses that change, and what the operator sees of all that.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use weir_testkit::h2::{End, H2, Options};
use weir_testkit::{
    Asked, Authority, Client, H3, Response, Tls, UdpPath, Upstream, Weir, eventually, run_weir,
};

use crate::health::metric;
use crate::support::OK_BODY;
use crate::upgrade::AGREE;

/// A config whose listener `web` speaks HTTP/3, with the log as JSON and causes on answers.
fn config(authority: &Authority, listener: &str, rest: &str) -> String {
    let certificate = authority.leaf(&["a.test", "b.test"]).yaml();
    format!(
        "listeners: {{ web: {{ address: \"127.0.0.1:0\", protocols: [h3, h2, http1], {listener} tls: {{ certificates: [ {certificate} ] }} }} }}\n\
         expose_causes: true\naccess_log: {{ format: json }}\nadmin: {{ address: 127.0.0.1:0 }}\n{rest}"
    )
}

/// The rest of a config: one route with these settings to an upstream with these.
fn to(upstream: &Upstream, up: &str, route: &str) -> String {
    let address = upstream.address();
    format!(
        "upstreams: {{ up: {{ endpoints: [{address}], {up} }} }}\nroutes: {{ all: {{ match: {{ path: \"/*\" }}, {route} upstream: up }} }}\n"
    )
}

fn client(weir: &Weir, authority: &Authority) -> H3 {
    H3::connect(&weir.udp_address(), &Tls::new(authority, "a.test"))
}

/// The line of the access log for a path.
fn logged(weir: &Weir, path: &str) -> serde_json::Value {
    serde_json::from_str(&weir.wait_stdout(path)).unwrap()
}

// === Tunnels ===

const ASK: &str = "GET /ws HTTP/1.1\r\nHost: a.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                   Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

/// A tunnel that is open, and its upstream's side.
fn tunnel(client: &H3, upstream: &Upstream) -> (Asked, weir_testkit::Conn) {
    let asked = client.open(ASK, "");
    let mut conn = upstream.accept();
    let head = conn.read_head();
    assert_eq!(head.line, "GET /ws HTTP/1.1");
    assert_eq!(head.header("upgrade"), Some("websocket"));
    conn.send(AGREE);
    let begun = String::from_utf8(asked.wait_begin()).unwrap();
    assert!(begun.starts_with("HTTP/1.1 101"), "{begun}");
    (asked, conn)
}

#[track_caller]
fn passes(asked: &Asked, conn: &mut weir_testkit::Conn) {
    asked.send("ping", false);
    conn.expect("ping");
    conn.send("pong");
    assert_eq!(asked.wait_begin(), b"pong");
}

#[test]
fn a_websocket_ends_from_either_side() {
    let authority = Authority::new();
    let upstream = Upstream::listen();
    let weir = Weir::start(&config(&authority, "", &to(&upstream, "", "")));
    let client = client(&weir, &authority);
    let (asked, mut conn) = tunnel(&client, &upstream);
    passes(&asked, &mut conn);
    // The client ends its direction; the upstream still speaks, and ends.
    asked.send("bye", true);
    conn.expect("bye");
    conn.expect_close();
    conn.send("last");
    assert_eq!(asked.wait_begin(), b"last");
    drop(conn);
    asked.wait_end();
    assert_eq!(logged(&weir, "/ws")["status"], 101);
    // The upstream breaks off.
    let (asked, mut conn) = tunnel(&client, &upstream);
    passes(&asked, &mut conn);
    conn.reset();
    asked.wait_over();
    // The client resets its stream.
    let (asked, mut conn) = tunnel(&client, &upstream);
    passes(&asked, &mut conn);
    drop(asked);
    conn.expect_close();
}

#[test]
fn a_websocket_outlives_reloads_and_upgrades() {
    let authority = Authority::new();
    let upstream = Upstream::listen();
    let rest = to(&upstream, "", "");
    let weir = Weir::start_installed(&config(&authority, "", &format!("{rest}workers: 2\n")));
    let client = client(&weir, &authority);
    let (asked, mut conn) = tunnel(&client, &upstream);
    passes(&asked, &mut conn);
    weir.reload_with(&config(&authority, "", &format!("{rest}workers: 2\nmaps: {{}}\n"))).unwrap();
    passes(&asked, &mut conn);
    weir.reload_with(&config(&authority, "", &format!("{rest}workers: 1\n"))).unwrap();
    passes(&asked, &mut conn);
    weir.upgrade().unwrap();
    passes(&asked, &mut conn);
    asked.send("", true);
    conn.expect_close();
}

#[test]
fn a_drain_ends_websockets_at_its_deadline() {
    let authority = Authority::new();
    let upstream = Upstream::listen();
    let rest = format!("{}shutdown: {{ drain: 1s }}\n", to(&upstream, "", ""));
    let mut weir = Weir::start(&config(&authority, "", &rest));
    let client = client(&weir, &authority);
    let (asked, mut conn) = tunnel(&client, &upstream);
    weir.signal(libc::SIGTERM);
    weir.wait_log("draining");
    passes(&asked, &mut conn);
    conn.expect_close();
    client.wait_end();
    weir.wait_exit(Duration::from_secs(10));
}

// === gRPC ===

const CALL: &str =
    "POST /p.S/M HTTP/1.1\r\nHost: a.test\r\nContent-Type: application/grpc\r\nTE: trailers\r\n";

#[test]
fn grpc_calls_have_trailers_deadlines_and_cancels() {
    let authority = Authority::new();
    let upstream = Upstream::listen();
    let address = upstream.address();
    let weir = Weir::start(&config(
        &authority,
        "",
        &format!(
            "upstreams: {{ up: {{ endpoints: [{address}], protocol: h2c }} }}\nroutes: {{ all: {{ match: {{ path: \"/*\" }}, upstream: up }} }}\n"
        ),
    ));
    let client = client(&weir, &authority);
    let asked = client.start_with(&format!("{CALL}\r\n"), [0, 0, 0, 0, 1, 7]);
    let mut h2 = H2::server(upstream.accept(), &Options::default());
    let (stream, call) = h2.accept_whole();
    assert_eq!(call.body, [0, 0, 0, 0, 1, 7]);
    call.expect_header("te", "trailers");
    h2.headers(stream, &[(":status", "200"), ("content-type", "application/grpc")], false);
    h2.data(stream, [0, 0, 0, 0, 0], false);
    h2.headers(stream, &[("grpc-status", "5"), ("grpc-message", "none")], true);
    let response = asked.response();
    response.expect_status(200);
    let trailer = |response: &Response, name: &str| {
        response.body.trailers.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone())
    };
    assert_eq!(trailer(&response, "grpc-status").as_deref(), Some("5"));
    // The deadline of the call.
    let late = client.start_with(&format!("{CALL}grpc-timeout: 200m\r\n\r\n"), [0, 0, 0, 0, 0]);
    let (stream, _) = h2.accept_whole();
    let response = late.response();
    let status = response.header("grpc-status").map(str::to_owned).or(trailer(&response, "grpc-status"));
    assert_eq!((response.status, status.as_deref()), (200, Some("4")));
    h2.wait(stream, "the reset", |message| matches!(message.end, Some(End::Reset(_))));
    // A call that the client gives up.
    let given_up = client.start_with(&format!("{CALL}\r\n"), [0, 0, 0, 0, 0]);
    let (stream, _) = h2.accept_whole();
    drop(given_up);
    h2.wait(stream, "the reset", |message| matches!(message.end, Some(End::Reset(_))));
}

// === Answers before the request has ended ===

#[test]
fn an_answer_may_come_before_the_body_has_ended() {
    let authority = Authority::new();
    let upstream = Upstream::fixed(OK_BODY);
    let filters =
        "filters: [ { key_auth: {} }, { body_limit: { max: 1KiB } }, { buffer: { request: 1KiB } } ],";
    let rest = format!(
        "{}consumers: {{ shop: {{ key_auth: [ \"a-key-of-the-shop\" ] }} }}\n",
        to(&upstream, "", filters)
    );
    let weir = Weir::start(&config(&authority, "", &rest));
    let client = client(&weir, &authority);
    let key = "X-API-Key: a-key-of-the-shop\r\n";
    // Without a credential, and with a length that is refused: nothing of the body is needed.
    for (head, status) in [
        ("POST /a HTTP/1.1\r\nHost: a.test\r\nContent-Length: 1000000\r\n\r\n".to_owned(), 401),
        (format!("POST /b HTTP/1.1\r\nHost: a.test\r\n{key}Content-Length: 1000000\r\n\r\n"), 413),
        (format!("POST /c HTTP/1.1\r\nHost: a.test\r\n{key}Transfer-Encoding: chunked\r\n\r\n"), 413),
    ] {
        let asked = client.open(&head, vec![b'x'; 300_000]);
        asked.response().expect_status(status);
        // What still comes of it, and the next request, disturb nobody.
        client.ask(&format!("GET /ok HTTP/1.1\r\nHost: a.test\r\n{key}\r\n")).expect_status(200);
    }
    assert!(upstream.requests().iter().all(|request| request.head.line.starts_with("GET /ok ")));
    assert_eq!(metric(&weir, &["weir_connections_accepted_total", "listener=\"web\""]), Some(1.0));
}

#[test]
fn connect_trace_and_large_heads_are_refused() {
    let authority = Authority::new();
    let upstream = Upstream::fixed(OK_BODY);
    let rest = format!("{}limits: {{ header_bytes: 4KiB, headers: 20 }}\n", to(&upstream, "", ""));
    let weir = Weir::start(&config(&authority, "", &rest));
    let client = client(&weir, &authority);
    client.ask("TRACE / HTTP/1.1\r\nHost: a.test\r\n\r\n").expect_status(501);
    let long = "x".repeat(5000);
    client.ask(&format!("GET / HTTP/1.1\r\nHost: a.test\r\nX-Long: {long}\r\n\r\n")).expect_status(431);
    let many: String = (0..30).map(|n| format!("x-{n}: 1\r\n")).collect();
    client.ask(&format!("GET / HTTP/1.1\r\nHost: a.test\r\n{many}\r\n")).expect_status(431);
    // A cookie may come in pieces (RFC 9114 §4.2.1).
    client.ask("GET /c HTTP/1.1\r\nHost: a.test\r\nCookie: a=1\r\nCookie: b=2\r\n\r\n").expect_status(200);
    let seen = upstream.requests();
    assert_eq!(seen.len(), 1);
    assert_eq!(seen[0].head.all("cookie"), ["a=1; b=2"]);
}

// === Filters ===

#[test]
fn a_cache_keeps_users_heads_and_ranges_apart() {
    let authority = Authority::new();
    let upstream = Upstream::script(|conn| {
        while let Some(request) = conn.next_request() {
            let who = request.head.header("authorization").unwrap_or("nobody").to_owned();
            let open = request.head.line.contains("/open");
            let control = if open { "public, max-age=60" } else { "max-age=60" };
            conn.send(format!(
                "HTTP/1.1 200 OK\r\nCache-Control: {control}\r\nETag: \"1\"\r\nContent-Length: {}\r\n\r\n{who}",
                who.len()
            ));
        }
    });
    let rest = format!(
        "{}stores: {{ pages: {{ memory: 16MiB }} }}\n",
        to(&upstream, "", "filters: [ { cache: { store: pages } } ],")
    );
    let weir = Weir::start(&config(&authority, "", &rest));
    let (ann, bob) = (client(&weir, &authority), client(&weir, &authority));
    let of = |path: &str, user: &str| {
        format!("GET {path} HTTP/1.1\r\nHost: a.test\r\nAuthorization: {user}\r\n\r\n")
    };
    ann.ask(&of("/own", "ann")).expect_body("ann");
    bob.ask(&of("/own", "bob")).expect_body("bob");
    bob.ask("GET /own HTTP/1.1\r\nHost: a.test\r\n\r\n").expect_body("nobody");
    ann.get("/open").expect_body("nobody");
    let before = upstream.requests().len();
    ann.ask("HEAD /open HTTP/1.1\r\nHost: a.test\r\n\r\n")
        .expect_body("")
        .expect_header("content-length", "6");
    bob.ask("GET /open HTTP/1.1\r\nHost: a.test\r\nRange: bytes=1-3\r\n\r\n")
        .expect_status(206)
        .expect_body("obo");
    bob.ask("GET /open HTTP/1.1\r\nHost: a.test\r\nIf-None-Match: \"1\"\r\n\r\n").expect_status(304);
    // Over another protocol it is the same page.
    let mut h1 =
        Client::connect_tls(weir.address("web"), &Tls::new(&authority, "a.test").alpn(&["http/1.1"]));
    h1.ask("GET /open HTTP/1.1\r\nHost: a.test\r\n\r\n").expect_body("nobody");
    assert_eq!(upstream.requests().len(), before);
}

#[test]
fn a_mirror_gets_bodies_and_a_reset_stream_no_half_of_one() {
    let authority = Authority::new();
    let (upstream, next) = (Upstream::fixed(OK_BODY), Upstream::fixed(OK_BODY));
    let rest = to(&upstream, "", "filters: [ { mirror: { upstream: next } } ],");
    let rest =
        rest.replace("upstreams: {", &format!("upstreams: {{ next: {{ endpoints: [{}] }},", next.address()));
    let weir = Weir::start(&config(&authority, "", &rest));
    let client = client(&weir, &authority);
    client
        .start_with("POST /a HTTP/1.1\r\nHost: a.test\r\nContent-Length: 5\r\n\r\n", "hello")
        .response()
        .expect_status(200);
    assert_eq!(next.take_request().body.bytes, b"hello");
    let half = client.open("POST /half HTTP/1.1\r\nHost: a.test\r\nContent-Length: 9\r\n\r\n", "half");
    drop(half);
    client.get("/last").expect_status(200);
    assert_eq!(next.take_request().head.line, "GET /last HTTP/1.1");
}

// === Addresses ===

/// The PROXY header that the upstream is sent.
fn proxy_line(conn: &mut weir_testkit::Conn) -> String {
    String::from_utf8(conn.read_until("\r\n")).unwrap()
}

#[test]
fn what_is_told_and_allowed_follows_the_proved_address() {
    let authority = Authority::new();
    let told = Arc::new(Mutex::new(Vec::new()));
    let upstream = Upstream::script({
        let told = Arc::clone(&told);
        move |conn| {
            told.lock().unwrap().push(proxy_line(conn));
            if conn.next_request().is_some() {
                conn.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok");
            }
        }
    });
    let rest = to(&upstream, "proxy_protocol: v1", "filters: [ { ip: { allow: [127.0.0.1, 127.0.0.3] } } ],");
    let weir = Weir::start(&config(&authority, "", &rest));
    let path = UdpPath::to(&weir.udp_address());
    let client = H3::connect(&path.address, &Tls::new(&authority, "a.test"));
    let last = || told.lock().unwrap().last().cloned().unwrap_or_default();
    client.get("/first").expect_status(200);
    assert!(last().starts_with("PROXY TCP4 127.0.0.1 127.0.0.1 "), "{}", last());
    // The first request may run while the new address is being proved.
    path.move_to(IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2)));
    eventually("the new address is known and refused", || client.get("/refused").status == 403);
    assert!(last().starts_with("PROXY TCP4 127.0.0.1 "), "{}", last());
    let line = weir.wait_stdout("ip_not_allowed");
    assert!(line.contains("\"127.0.0.2\""), "{line}");
    path.move_to(IpAddr::V4(Ipv4Addr::new(127, 0, 0, 3)));
    eventually("the third address is known and told", || {
        client.get("/third").status == 200 && last().starts_with("PROXY TCP4 127.0.0.3 ")
    });
    assert_eq!(metric(&weir, &["weir_connections_accepted_total", "listener=\"web\""]), Some(1.0));
}

/// A listener that another one sends clients to by name; a second one and an upstream have the other names.
fn behind(authority: &Authority, otherwise: &str) -> String {
    let certificate = authority.leaf(&["a.test", "b.test"]).yaml();
    format!(
        "listeners:\n  names: {{ address: 127.0.0.1:0, sni: {{ a.test: {{ listener: inner }}, b.test: {{ listener: second }}, c.test: {{ upstream: raw }} }}{otherwise} }}\n  \
         inner: {{ protocols: [h3, h2, http1], tls: {{ certificates: [ {certificate} ] }} }}\n  \
         second: {{ tls: {{ certificates: [ {certificate} ], client_auth: {{ ca: {} }} }} }}\n\
         expose_causes: true\nadmin: {{ address: 127.0.0.1:0 }}\nupstreams: {{ raw: {{ endpoints: [127.0.0.1:9] }} }}\n\
         routes: {{ all: {{ match: {{ path: \"/*\" }}, respond: {{ body: ok }} }} }}\n",
        authority.file().display()
    )
}

#[test]
fn a_name_that_leads_elsewhere_is_not_served_over_udp() {
    let authority = Authority::new();
    let weir = Weir::start(&behind(&authority, ""));
    let ask = |name: &str, host: &str| {
        let client = H3::try_connect(&weir.udp_address(), &Tls::new(&authority, name))?;
        client.start(&format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n")).try_response()
    };
    ask("a.test", "a.test").unwrap().expect_status(200);
    // `second` asks for client certificates, and nobody without one may be served as if there.
    for host in ["b.test", "a.test", "c.test"] {
        assert!(ask("b.test", host).is_err(), "{host}");
    }
    eventually("the cause is counted", || metric(&weir, &["weir_causes_total", "sni_unknown"]) == Some(3.0));
    for host in ["b.test", "B.TEST:443", "b.test.", "c.test"] {
        ask("a.test", host).unwrap().expect_status(421);
    }
    // With `otherwise`, names that are not listed lead to it.
    weir.reload_with(&behind(&authority, ", otherwise: { listener: inner }")).unwrap();
    assert!(ask("b.test", "b.test").is_err());
    ask("a.test", "a.test").unwrap().expect_status(200);
    weir.reload_with(&behind(&authority, ", otherwise: { listener: second }")).unwrap();
    ask("a.test", "a.test").unwrap().expect_status(200);
}

// === What the operator sees ===

#[test]
fn the_log_and_why_know_what_became_of_a_stream() {
    let authority = Authority::new();
    let upstream = Upstream::listen();
    let weir = Weir::start(&config(&authority, "", &to(&upstream, "", "")));
    let client = client(&weir, &authority);
    let asked = client.start("GET /given-up HTTP/1.1\r\nHost: a.test\r\n\r\n");
    let conn = upstream.accept_request();
    drop(asked);
    let line = logged(&weir, "/given-up");
    assert_eq!((&line["status"], &line["cause"]), (&499.into(), &"client_closed".into()), "{line}");
    assert_eq!(
        (&line["tls_version"], &line["tls_cipher"]),
        (&"TLSv1.3".into(), &"TLS13_AES_256_GCM_SHA384".into())
    );
    drop(conn);
    let why =
        weir.admin_client().ask("GET /api/v1/why?cause=client_closed HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_eq!(why.json()["found"][0]["request"]["path"], "/given-up", "{}", why.text());
}

#[test]
fn explain_shows_what_runs_early() {
    let authority = Authority::new();
    let upstream = Upstream::fixed(OK_BODY);
    let rest = to(&upstream, "", "early_data: true,");
    let dir = std::env::temp_dir().join(format!("weir-e2e-explain-early-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let explain = |listener: &str, method: &str| {
        std::fs::write(dir.join("weir.yaml"), config(&authority, listener, &rest)).unwrap();
        run_weir(&dir, &["explain", "-c", "weir.yaml", method, "https://a.test/"])
    };
    explain("http3: { early_data: true },", "GET")
        .expect_text("0-RTT    runs before the handshake is complete");
    explain("http3: { early_data: true },", "POST").expect_text("0-RTT    waits for the handshake: only GET");
    let off = explain("", "GET");
    assert!(!off.stdout.contains("0-RTT"), "{}", off.stdout);
    let _ = std::fs::remove_dir_all(dir);
}

// === Handshakes of one client ===

/// A path that loses everything the server sends after the Retry packet: the client has proved its address, and its
/// handshake goes nowhere.
#[test]
fn handshakes_that_are_begun_count_for_their_client() {
    let authority = Authority::new();
    let rest = "limits: { per_client: { handshakes: 3/h } }\nroutes: { all: { match: { path: \"/*\" }, respond: { body: ok } } }\n";
    let weir = Weir::start(&config(&authority, "http3: { retry: always },", rest));
    for n in 1..=3 {
        let path = UdpPath::to(&weir.udp_address());
        path.pass_only(1);
        let (address, tls) = (path.address.clone(), Tls::new(&authority, "a.test"));
        std::thread::spawn(move || H3::try_connect(&address, &tls));
        eventually("the server answers after the Retry packet", || path.lost() > 0);
        drop((n, path));
    }
    let refused = H3::try_connect(&weir.udp_address(), &Tls::new(&authority, "a.test"));
    assert!(refused.is_err());
    assert!(metric(&weir, &["weir_causes_total", "client_handshakes"]) >= Some(1.0));
}
