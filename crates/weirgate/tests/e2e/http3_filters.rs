//! HTTP/3 where it meets filters and operators: gRPC-Web, bodies on disk, shadows, drains, new certificates.

use serde_json::json;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;
use tempfile::TempDir;
use weir_origin::{Options, Origin};
use weir_testkit::{Authority, H3, Tls, Upstream, Weir, eventually};

use crate::shadow::shadow;
use crate::support::OK_BODY;

fn config(authority: &Authority, rest: &str) -> String {
    let certificate = authority.leaf(&["a.test"]).yaml();
    format!(
        "listeners: {{ web: {{ address: \"127.0.0.1:0\", protocols: [h3, h2, http1], tls: {{ certificates: [ {certificate} ] }} }} }}\n\
         expose_causes: true\nadmin: {{ address: 127.0.0.1:0 }}\nwatch: false\n{rest}"
    )
}

/// The rest of a config: one route with these filters.
fn to(upstream: &Upstream, filters: &str) -> String {
    let address = upstream.address();
    format!(
        "upstreams: {{ up: {{ endpoints: [{address}] }} }}\n\
         routes: {{ all: {{ match: {{ path: \"/*\" }}, filters: [ {filters} ], upstream: up }} }}\n"
    )
}

fn client(weir: &Weir, authority: &Authority) -> H3 {
    H3::connect(&weir.udp_address(), &Tls::new(authority, "a.test"))
}

#[test]
fn a_browser_calls_grpc() {
    let authority = Authority::new();
    let address = "127.0.0.1:0".parse().unwrap();
    let origin = Origin::start(Options { address, ..Options::default() }).unwrap();
    let rest = format!(
        "upstreams: {{ up: {{ protocol: h2c, endpoints: [ {} ] }} }}\n\
         routes: {{ all: {{ match: {{ path: \"/*\" }}, filters: [ {{ grpc_web: {{}} }} ], upstream: up }} }}\n",
        origin.address()
    );
    let weir = Weir::start(&config(&authority, &rest));
    let client = client(&weir, &authority);
    let ask = |media: &str, body: &[u8]| {
        let head = format!(
            "POST /helloworld.v1.Greeter/SayHello HTTP/1.1\r\nHost: a.test\r\nContent-Type: {media}\r\n\
             Content-Length: {}\r\n\r\n",
            body.len()
        );
        client.start_with(&head, body).response()
    };
    let answer = ask("application/grpc-web+proto", b"\0\0\0\0\x05\x0a\x03Ann");
    answer.expect_status(200).expect_header("content-type", "application/grpc-web+proto");
    let text = String::from_utf8_lossy(&answer.body.bytes).into_owned();
    assert!(text.contains("hello Ann") && text.contains("grpc-status: 0\r\n"), "{text:?}");
    assert_eq!(answer.body.trailers, [], "browsers cannot read trailers");
    let answer = ask("application/grpc-web-text", b"AAAAAAUKA0Fubg==");
    assert!(answer.body.bytes.starts_with(b"AAAAAAsKCWhlbGxvIEFub"));
}

#[test]
fn bodies_are_buffered_in_both_directions() {
    let authority = Authority::new();
    let folder = TempDir::new().unwrap();
    let body: Vec<u8> = (0..8 << 20_u32).map(|n| (n % 251) as u8).collect();
    let answer = body.clone();
    let upstream = Upstream::script(move |conn| {
        while conn.next_request().is_some() {
            conn.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", answer.len()));
            conn.send(&answer[..]);
        }
    });
    let filter = format!(
        "{{ buffer: {{ request: 64KiB, response: 1MiB, disk: 64MiB, folder: {} }} }}",
        folder.path().display()
    );
    let weir = Weir::start(&config(&authority, &to(&upstream, &filter)));
    let client = client(&weir, &authority);
    let asked = client.open("POST /a HTTP/1.1\r\nHost: a.test\r\n\r\n", "first ");
    asked.send("second", true);
    assert!(asked.response().body.bytes == body);
    let request = upstream.take_request();
    assert_eq!(request.head.all("content-length"), ["12"]);
    assert_eq!(request.body.bytes, b"first second");
    // A download that its client gives up leaves no file behind.
    let given_up = client.start("GET /b HTTP/1.1\r\nHost: a.test\r\n\r\n");
    given_up.wait_begin();
    drop(given_up);
    assert!(client.get("/c").body.bytes == body);
    eventually("no file is left", || folder.path().read_dir().unwrap().next().is_none());
}

#[test]
fn a_long_cookie_in_pieces_becomes_one() {
    let authority = Authority::new();
    let upstream = Upstream::fixed(OK_BODY);
    let weir = Weir::start(&config(&authority, &to(&upstream, "")));
    let client = client(&weir, &authority);
    let pieces: Vec<String> = (0..40).map(|n| format!("c{n}={}", "x".repeat(300))).collect();
    let lines: String = pieces.iter().map(|piece| format!("Cookie: {piece}\r\n")).collect();
    client.ask(&format!("GET / HTTP/1.1\r\nHost: a.test\r\n{lines}\r\n")).expect_status(200);
    assert_eq!(upstream.take_request().head.all("cookie"), [pieces.join("; ")]);
    client.get("/next").expect_status(200);
}

#[test]
fn a_shadow_judges_requests_over_http3() {
    let authority = Authority::new();
    let upstream = Upstream::fixed(OK_BODY);
    let running = config(&authority, &to(&upstream, ""));
    let weir = Weir::start(&running);
    let judged = shadow(&weir, &running.replace("path: \"/*\"", "path: \"/a/*\""), json!({}));
    let client = client(&weir, &authority);
    client.get("/a/1").expect_status(200);
    client.get("/b/1").expect_status(200);
    let report = judged.end_after(2);
    assert_eq!((&report["judged"], &report["changed"]), (&json!(2), &json!(1)), "{report:#}");
    assert_eq!(upstream.requests().len(), 2, "a shadow sends nothing");
}

#[test]
fn uploads_end_while_the_gateway_drains() {
    let authority = Authority::new();
    let upstream = Upstream::listen();
    let mut weir = Weir::start(&config(&authority, &to(&upstream, "")));
    let client = client(&weir, &authority);
    let mut uploads: Vec<_> = (0..3)
        .map(|n| {
            let head = format!("POST /{n} HTTP/1.1\r\nHost: a.test\r\nContent-Length: 300000\r\n\r\n");
            (client.open(&head, vec![b'x'; 100_000]), upstream.accept())
        })
        .collect();
    weir.signal(libc::SIGTERM);
    weir.wait_log("draining");
    for (asked, _) in &uploads {
        asked.send(vec![b'y'; 100_000], false);
        asked.send(vec![b'z'; 100_000], true);
    }
    for (_, conn) in &mut uploads {
        assert_eq!(conn.read_request().body.bytes.len(), 300_000);
        conn.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    }
    for (asked, _) in uploads {
        asked.response().expect_body("ok");
    }
    assert_eq!(client.wait_end(), "the peer closed the connection with code 0x100");
    weir.wait_exit(Duration::from_secs(10)).expect_code(0);
}

/// Clients that shake hands while a reload changes the certificate get the old one or the new one, or are refused and
/// come again. None gets stuck.
#[test]
fn certificates_change_while_clients_shake_hands() {
    let authority = Authority::new();
    let rest = "routes: { all: { match: { path: \"/*\" }, respond: { body: ok } } }\n";
    let weir = Weir::start(&config(&authority, rest));
    let (is_over, address) = (AtomicBool::new(false), weir.udp_address());
    thread::scope(|scope| {
        let clients: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    while !is_over.load(Relaxed) {
                        let Ok(client) = H3::try_connect(&address, &Tls::new(&authority, "a.test")) else {
                            continue;
                        };
                        let _ = client.start("GET / HTTP/1.1\r\nHost: a.test\r\n\r\n").try_response();
                    }
                })
            })
            .collect();
        for _ in 0..5 {
            weir.reload_with(&config(&authority, rest)).unwrap();
            client(&weir, &authority).get("/").expect_body("ok");
        }
        is_over.store(true, Relaxed);
        clients.into_iter().for_each(|client| client.join().unwrap());
    });
    client(&weir, &authority).get("/").expect_body("ok");
}
