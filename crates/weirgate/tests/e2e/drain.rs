//! Draining: no client is cut off that can still be served, and the process ends in time.

use std::time::{Duration, Instant};

use weir_testkit::{Authority, Client, Tls, Upstream, Weir, eventually, run_weir};

use crate::support::{ALL_TO_UP, GET, OK_BODY};
use crate::upgrade::tunnel_to;

#[test]
fn sigterm_and_sigint_end_it() {
    let upstream = Upstream::fixed(OK_BODY);
    for signal in [libc::SIGTERM, libc::SIGINT] {
        let mut weir = Weir::in_front_of(&upstream);
        let address = weir.address("web");
        let mut client = weir.client();
        client.get("/").expect_status(200);
        weir.signal(signal);
        weir.wait_exit(Duration::from_secs(5)).expect_code(0);
        // An idle connection closes silently.
        client.expect_eof();
        assert!(!Client::can_connect(address));
    }
}

/// A gateway that answers by itself over HTTP and over TLS, with these settings of `shutdown`.
struct Both {
    weir: Weir,
    tls: Tls,
    /// The same, for HTTP/2.
    http2: Tls,
}

impl Both {
    fn start(shutdown: &str) -> Self {
        let authority = Authority::new();
        let leaf = authority.leaf(&["weir.test"]).yaml();
        let tls = Tls::new(&authority, "weir.test");
        let http2 = Tls::new(&authority, "weir.test").alpn(&["h2"]);
        let weir = Weir::start(&format!(
            "workers: 1\nlisteners:\n  web: {{ address: 127.0.0.1:0 }}\n  \
             secure: {{ address: 127.0.0.1:0, tls: {{ certificates: [ {leaf} ] }} }}\n\
             routes: {{ all: {{ match: {{ path: \"/*\" }}, respond: {{ body: ok }} }} }}\n\
             shutdown: {{ {shutdown} }}\n"
        ));
        Self { weir, tls, http2 }
    }

    fn connect(&self) -> [Client; 2] {
        [self.weir.client(), Client::connect_tls(self.weir.address("secure"), &self.tls)]
    }

    /// Clients that have got an answer, and others that have sent nothing yet.
    fn idle(&self) -> Vec<Client> {
        let mut used = self.connect();
        for client in &mut used {
            client.get("/").expect_status(200).expect_no_header("connection");
        }
        used.into_iter().chain(self.connect()).collect()
    }
}

/// A client that is about to send finds its connection open, whether or not it has sent a request before.
#[test]
fn an_idle_connection_may_bring_one_more_request() {
    let mut both = Both::start("idle: 1m");
    let address = both.weir.address("web");
    let mut clients = both.idle();
    both.weir.signal(libc::SIGTERM);
    eventually("nobody new is let in", || !Client::can_connect(&address));
    for client in &mut clients {
        client.get("/").expect_status(200).expect_header("connection", "close");
        client.expect_close();
    }
    both.weir.wait_exit(Duration::from_secs(5)).expect_code(0);
}

#[test]
fn connections_that_stay_idle_do_not_hold_up_the_end() {
    let mut both = Both::start("idle: 100ms");
    let mut clients = both.idle();
    let secure = both.weir.address("secure");
    clients.push(Client::connect(&secure)); // it has not even begun its handshake
    clients.push(Client::connect_tls(&secure, &both.http2));
    let started = Instant::now();
    both.weir.signal(libc::SIGTERM);
    for client in &mut clients {
        client.read_to_close();
    }
    both.weir.wait_exit(Duration::from_secs(5)).expect_code(0);
    assert!(started.elapsed() >= Duration::from_millis(100));
}

/// Requests that have arrived are answered even if nobody has seen them yet: closing their connections would reset them.
#[test]
fn a_request_that_has_arrived_is_answered() {
    let mut both = Both::start("idle: 0s");
    let mut clients: Vec<Client> = (0..150).flat_map(|_| both.connect()).collect();
    for client in &mut clients {
        client.get("/").expect_status(200);
    }
    both.weir.signal(libc::SIGSTOP);
    for client in &mut clients {
        client.send(GET);
    }
    both.weir.signal(libc::SIGTERM);
    both.weir.signal(libc::SIGCONT);
    for client in &mut clients {
        client.read_response().expect_status(200);
    }
    both.weir.wait_exit(Duration::from_secs(5)).expect_code(0);
}

#[test]
fn an_exchange_under_way_is_finished() {
    let upstream = Upstream::listen();
    let mut weir = Weir::in_front_of(&upstream);
    let address = weir.address("web");
    let (mut client, mut conn) = weir.begin(&upstream, GET);
    weir.signal(libc::SIGTERM);
    eventually("nobody new is let in", || !Client::can_connect(&address));
    conn.send(OK_BODY);
    client.read_response().expect_status(200).expect_body("ok").expect_header("connection", "close");
    client.expect_eof();
    weir.wait_exit(Duration::from_secs(5)).expect_code(0);
}

#[test]
fn a_body_under_way_is_finished() {
    let upstream = Upstream::listen();
    let mut weir = Weir::in_front_of(&upstream);
    let address = weir.address("web");
    let mut client = weir.client();
    client.send("POST / HTTP/1.1\r\nHost: weir.test\r\nContent-Length: 4\r\n\r\nha");
    let mut conn = upstream.accept();
    conn.read_head();
    weir.signal(libc::SIGTERM);
    eventually("nobody new is let in", || !Client::can_connect(&address));
    client.send("lf");
    conn.expect("half");
    conn.send("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nha");
    client.read_until("ha");
    conn.send("lf");
    client.expect("lf");
    weir.wait_exit(Duration::from_secs(5)).expect_code(0);
}

#[test]
fn the_deadline_ends_what_does_not_end() {
    let upstream = Upstream::listen();
    let mut weir = Weir::in_front_of_with(&upstream, "shutdown: { drain: 200ms }");
    let (mut client, mut conn) = weir.begin(&upstream, GET);
    let started = Instant::now();
    weir.signal(libc::SIGTERM);
    weir.wait_exit(Duration::from_secs(5)).expect_code(0);
    assert!(started.elapsed() >= Duration::from_millis(200));
    client.read_to_close();
    conn.expect_close();
}

#[test]
fn a_second_sigint_ends_at_once() {
    let upstream = Upstream::listen();
    let mut weir = Weir::in_front_of(&upstream);
    let address = weir.address("web");
    let (_client, mut conn) = weir.begin(&upstream, GET);
    weir.signal(libc::SIGINT);
    eventually("the drain began", || !Client::can_connect(&address));
    assert!(weir.is_running());
    weir.signal(libc::SIGINT);
    weir.wait_exit(Duration::from_secs(2));
    conn.expect_close();
}

#[test]
fn readiness_turns_off_first() {
    let upstream = Upstream::fixed(OK_BODY);
    let mut weir = Weir::in_front_of_with(&upstream, "shutdown: { delay: 500ms, drain: 5s }");
    let mut admin = weir.admin_client();
    admin.get("/readyz").expect_status(200);
    weir.signal(libc::SIGTERM);
    eventually("it says that it is not ready", || weir.admin_client().get("/readyz").status == 503);
    // During the delay it still serves, for load balancers that have not noticed yet.
    weir.client().get("/").expect_status(200);
    weir.admin_client().get("/healthz").expect_status(200);
    weir.wait_exit(Duration::from_secs(5)).expect_code(0);
}

/// Clients with open connections go elsewhere during the delay, so that no connection closes while one sends. Clients
/// that still come are served as ever.
#[test]
fn open_connections_are_told_to_go_during_the_delay() {
    let upstream = Upstream::fixed(OK_BODY);
    let weir = Weir::in_front_of_with(&upstream, "shutdown: { delay: 1h, drain: 5s }");
    let mut client = weir.client();
    client.get("/").expect_status(200);
    weir.signal(libc::SIGTERM);
    weir.wait_log("draining");
    let is_told = || client.get("/").expect_status(200).header("connection") == Some("close");
    eventually("its answer says that it must go", is_told);
    client.expect_close();
    let mut fresh = weir.client();
    for _ in 0..3 {
        assert_eq!(fresh.get("/").expect_status(200).header("connection"), None);
    }
}

#[test]
fn a_tunnel_has_until_the_deadline() {
    let upstream = Upstream::listen();
    let mut weir = Weir::in_front_of_with(&upstream, "shutdown: { drain: 300ms }");
    let address = weir.address("web");
    let (mut client, mut conn) = crate::upgrade::tunnel(&weir, &upstream);
    weir.signal(libc::SIGTERM);
    eventually("the drain began", || !Client::can_connect(&address));
    client.send("still");
    conn.expect("still");
    weir.wait_exit(Duration::from_secs(5)).expect_code(0);
    client.expect_close();
}

#[test]
fn what_the_deadline_cuts_is_told() {
    let upstream = Upstream::listen();
    let mut weir = Weir::start(&format!(
        "listeners: {{ web: {{ address: 127.0.0.1:0, protocols: [http1, h2] }} }}\n\
         upstreams: {{ up: {{ endpoints: [{}] }} }}\n{ALL_TO_UP}\n\
         shutdown: {{ drain: 200ms }}\naccess_log: {{ output: stdout }}\n",
        upstream.address()
    ));
    let (_tunnel, mut tunnelled) = tunnel_to(&weir, &upstream, "/tunnel");
    tunnelled.send("12345");
    let (_waits, _asked) = weir.begin(&upstream, GET.replace("GET /", "GET /waits"));
    let (mut events, mut sent) = weir.begin(&upstream, GET.replace("GET /", "GET /events"));
    sent.send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n");
    events.read_until("abc");
    let mut client = weir.h2();
    let stream = client.get("/h2");
    let mut slow = upstream.accept_request();
    slow.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n1234");
    client.wait(stream, "the first bytes", |message| message.body == b"1234");
    weir.signal(libc::SIGTERM);
    weir.wait_exit(Duration::from_secs(5)).expect_code(0);
    for (uri, status, bytes) in [("/waits", 0, 0), ("/events", 200, 3), ("/h2", 200, 4), ("/tunnel", 101, 5)]
    {
        let line = weir.stdout().lines().find(|line| line.contains(uri)).map(str::to_owned);
        let line: serde_json::Value = serde_json::from_str(&line.expect(uri)).unwrap();
        assert_eq!(line["cause"], "shutdown", "{line}");
        assert_eq!(line["status"].as_u64().unwrap_or(0), status, "{line}"); // status 0 has no field
        assert!(line["bytes_out"].as_u64() >= Some(bytes), "{line}");
    }
}

#[test]
fn by_the_command() {
    let upstream = Upstream::fixed(OK_BODY);
    let mut weir = Weir::in_front_of(&upstream);
    run_weir(weir.dir(), &["drain", "--admin", &weir.admin()]).expect_code(0);
    weir.wait_exit(Duration::from_secs(5)).expect_code(0);
}
