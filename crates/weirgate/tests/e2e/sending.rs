//! What an endpoint learns besides the request: the remaining time and the client; and the source address of
//! connections.

use std::net::SocketAddr;
use weir_testkit::{Client, Conn, Upstream, Weir};

use crate::support::{GET, OK_BODY, config, config_for, weir_with};

// === The deadline ===

/// The deadlines that the endpoint received, in milliseconds.
fn told(upstream: &Upstream) -> Vec<Option<u64>> {
    let number = |text: &str| text.parse().unwrap();
    upstream.requests().iter().map(|request| request.head.header("x-timeout-ms").map(number)).collect()
}

#[test]
fn what_is_left_is_told() {
    let upstream = Upstream::fixed(OK_BODY);
    let weir = weir_with(
        &upstream,
        "deadline_header: x-timeout-ms, timeouts: { response: 5s, connect: 5s, exchange: 10s }",
    );
    let mut client = weir.client();
    for (asked, least, most) in
        [("", 5_000, 10_000), ("500", 500, 500), ("99999", 5_000, 10_000), ("soon", 5_000, 10_000)]
    {
        let line = if asked.is_empty() { String::new() } else { format!("X-Timeout-Ms: {asked}\r\n") };
        client.ask(format!("GET / HTTP/1.1\r\nHost: h\r\n{line}\r\n")).expect_status(200);
        let told = told(&upstream).last().copied().flatten().unwrap();
        assert!((least..=most).contains(&told), "asked {asked:?}, told {told}");
    }
}

#[test]
fn the_next_attempt_has_less_time() {
    let (stuck, good) = (Upstream::listen(), Upstream::fixed(OK_BODY));
    let weir = Weir::start(&config(&format!(
        "endpoints: [{}, {}], balancer: round_robin, deadline_header: x-timeout-ms, \
         retry: {{ on: [timeout], per_try: 200ms }}, timeouts: {{ response: 5s, exchange: 10s }}",
        stuck.address(),
        good.address()
    )));
    // One of two requests tries the stuck one first.
    for _ in 0..2 {
        weir.client().get("/").expect_status(200);
    }
    let first = stuck.accept().read_request();
    let first: u64 = first.head.header("x-timeout-ms").unwrap().parse().unwrap();
    let least = told(&good).into_iter().flatten().min().unwrap();
    assert!(least + 190 <= first, "first {first}, then {least}");
}

#[test]
fn without_a_deadline_nothing_is_changed() {
    let upstream = Upstream::fixed(OK_BODY);
    let weir = weir_with(&upstream, "deadline_header: x-timeout-ms");
    let mut client = weir.client();
    client.get("/").expect_status(200);
    client.ask("GET / HTTP/1.1\r\nHost: h\r\nX-Timeout-Ms: 7\r\n\r\n").expect_status(200);
    assert_eq!(told(&upstream), [None, Some(7)]);
}

/// A field that an upstream may read as the deadline does not pass beside ours, nor as a trailer.
#[test]
fn nobody_else_tells_the_deadline() {
    let upstream = Upstream::fixed(OK_BODY);
    let weir = weir_with(&upstream, "deadline_header: x-timeout-ms, timeouts: { exchange: 10s }");
    let request = "POST / HTTP/1.1\r\nHost: h\r\nX_Timeout_Ms: 5\r\nX-Timeout_Ms: 5\r\nTransfer-Encoding: chunked\r\n\r\n\
                   1\r\na\r\n0\r\nX-Timeout-Ms: 6\r\nX_Timeout_Ms: 6\r\nX-Other: 7\r\n\r\n";
    weir.client().ask(request).expect_status(200);
    let request = upstream.take_request();
    let left: u64 = request.head.header("x-timeout-ms").unwrap().parse().unwrap();
    assert!((11..=10_000).contains(&left), "{left}");
    for twin in ["x_timeout_ms", "x-timeout_ms"] {
        assert_eq!(request.head.header(twin), None);
    }
    assert_eq!(request.body.trailers, [("X-Other".to_owned(), "7".to_owned())]);
}

// === The PROXY header ===

/// An endpoint that expects a PROXY line of version 1 before the requests.
fn behind_proxy() -> Upstream {
    Upstream::script(|conn| {
        let line = conn.read_until("\r\n");
        while conn.next_request().is_some() {
            let length = line.len();
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n");
            conn.send([head.as_bytes(), &line].concat());
        }
    })
}

fn line_of(client: &Client, weir: &Weir) -> String {
    let (from, to) = (client.local_address(), weir.address("web").parse::<SocketAddr>().unwrap());
    format!("PROXY TCP4 {} {} {} {}\r\n", from.ip(), to.ip(), from.port(), to.port())
}

#[test]
fn each_client_has_connections_of_its_own() {
    let upstream = behind_proxy();
    let weir = weir_with(&upstream, "proxy_protocol: v1");
    let mut clients = [weir.client(), weir.client()];
    for _ in 0..3 {
        for client in &mut clients {
            let line = line_of(client, &weir);
            client.get("/").expect_status(200).expect_body(&line);
        }
    }
    assert_eq!(upstream.connections(), 2, "a client's own connection is used again");
}

/// A core serves one connection after another in the same memory, but PROXY headers name one client.
#[test]
fn the_next_client_has_an_upstream_connection_of_its_own() {
    let upstream = behind_proxy();
    let weir = Weir::start(&format!("workers: 1\n{}", config_for(&upstream, "proxy_protocol: v1")));
    for _ in 0..3 {
        let mut client = weir.client();
        let line = line_of(&client, &weir);
        client
            .ask("GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
            .expect_status(200)
            .expect_body(&line);
        client.expect_close();
    }
    assert_eq!(upstream.connections(), 3);
}

#[test]
fn a_connection_ends_with_its_client() {
    let upstream = Upstream::listen();
    let weir = weir_with(&upstream, "proxy_protocol: v1");
    let mut client = weir.client();
    client.send(GET);
    let mut conn = upstream.accept();
    conn.read_until("\r\n");
    conn.read_request();
    conn.send(OK_BODY);
    client.read_response().expect_status(200);
    client.close();
    conn.expect_close();
}

#[test]
fn the_binary_form_comes_before_the_request() {
    let upstream = Upstream::listen();
    let weir = weir_with(&upstream, "proxy_protocol: v2");
    let mut client = weir.client();
    client.send(GET);
    let mut conn = upstream.accept();
    let web: SocketAddr = weir.address("web").parse().unwrap();
    let (from, to) = (client.local_address().port().to_be_bytes(), web.port().to_be_bytes());
    let addresses = [127, 0, 0, 1, 127, 0, 0, 1, from[0], from[1], to[0], to[1]];
    conn.expect([&b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c"[..], &addresses].concat());
    conn.read_request();
    conn.send(OK_BODY);
    client.read_response().expect_status(200);
}

#[test]
fn what_a_balancer_told_is_told_on() {
    let upstream = behind_proxy();
    let yaml = config_for(&upstream, "proxy_protocol: v1")
        .replace("127.0.0.1:0 }", "127.0.0.1:0, proxy_protocol: true }");
    let weir = Weir::start(&format!("{yaml}trusted_proxies: [127.0.0.0/8]\n"));
    let mut client = weir.client();
    client.send("PROXY TCP4 203.0.113.7 198.51.100.1 51234 443\r\n");
    let web: SocketAddr = weir.address("web").parse().unwrap();
    let line = format!("PROXY TCP4 203.0.113.7 127.0.0.1 51234 {}\r\n", web.port());
    client.get("/").expect_status(200).expect_body(line);
}

#[test]
fn a_balancer_that_names_no_client_vouches_for_nobody() {
    let upstream = Upstream::fixed(OK_BODY);
    let yaml = config_for(&upstream, "").replace("127.0.0.1:0 }", "127.0.0.1:0, proxy_protocol: true }");
    let weir = Weir::start(&format!("{yaml}trusted_proxies: [127.0.0.0/8]\n"));
    let ask =
        "GET / HTTP/1.1\r\nHost: h\r\nX-Forwarded-For: 203.0.113.5\r\nForwarded: for=203.0.113.5\r\n\r\n";
    let local = b"\r\n\r\n\0\r\nQUIT\n\x20\x00\x00\x00".to_vec();
    let unix = [b"\r\n\r\n\0\r\nQUIT\n\x21\x31\x00\xd8".to_vec(), vec![0; 216]].concat();
    for header in [b"PROXY UNKNOWN\r\n".to_vec(), local, unix] {
        let mut client = weir.client();
        client.send(header);
        for _ in 0..2 {
            client.ask(ask).expect_status(200);
            let head = upstream.take_request().head;
            assert_eq!(head.all("x-forwarded-for"), ["127.0.0.1"]);
            assert!(!head.all("forwarded").concat().contains("203.0.113.5"), "{head:?}");
            weir.reload().unwrap(); // which renews the decision whom to trust
        }
    }
    // A PROXY header that names the client passes on what this trusted proxy reports about it.
    let mut client = weir.client();
    client.send("PROXY TCP4 127.0.0.9 127.0.0.1 1 2\r\n");
    client.ask(ask).expect_status(200);
    assert_eq!(upstream.take_request().head.all("x-forwarded-for"), ["203.0.113.5, 127.0.0.9"]);
}

#[test]
fn streams_of_http2_are_of_one_client() {
    let upstream = behind_proxy();
    let yaml = config_for(&upstream, "proxy_protocol: v1")
        .replace("127.0.0.1:0 }", "127.0.0.1:0, protocols: [h2] }");
    let weir = Weir::start(&yaml);
    let client = weir.client();
    let line = line_of(&client, &weir);
    let mut client = weir_testkit::h2::H2::client(client);
    for _ in 0..2 {
        let stream = client.get("/");
        assert_eq!(client.message(stream).text(), line);
    }
    assert_eq!(upstream.connections(), 1);
}

#[test]
fn a_limit_of_connections_serves_one_client_after_the_other() {
    let upstream = behind_proxy();
    let weir = weir_with(&upstream, "proxy_protocol: v1, limits: { connections: 1 }");
    let (mut one, mut other) = (weir.client(), weir.client());
    for _ in 0..3 {
        let (first, second) = (line_of(&one, &weir), line_of(&other, &weir));
        one.get("/").expect_body(&first);
        other.get("/").expect_body(&second);
    }
}

// === The source address ===

#[test]
fn connections_come_from_the_source_address() {
    let upstream = Upstream::listen();
    let weir = weir_with(&upstream, "source: 127.0.0.9");
    let mut client = weir.client();
    client.send(GET);
    let mut conn: Conn = upstream.accept();
    assert_eq!(conn.peer_address().ip().to_string(), "127.0.0.9");
    conn.read_request();
    conn.send(OK_BODY);
    client.read_response().expect_status(200);
}

#[test]
fn an_address_that_is_not_ours_blames_no_endpoint() {
    let upstream = Upstream::fixed(OK_BODY);
    let weir = weir_with(&upstream, "source: 192.0.2.1");
    weir.client().get("/").expect_cause(crate::cause::CONNECT_FAILED);
    let line = weir.wait_log("upstream failed");
    assert!(line.field("error").unwrap().contains("192.0.2.1"), "{line:?}");
    assert!(!weir.stderr().contains("out of rotation"));
}
