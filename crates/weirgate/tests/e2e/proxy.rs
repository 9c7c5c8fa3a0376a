//! Plain proxying: each side receives what the other sends.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use weir_testkit::{Framing, Upstream, Weir, table};

use crate::cause::METHOD_REFUSED;
use crate::support::{GET, OK, OK_BODY, expect_lines};

// === One request, one response ===

#[test]
fn get_and_its_answer() {
    let upstream = Upstream::listen();
    let weir = Weir::in_front_of(&upstream);
    let mut client = weir.client();
    client.send("GET /a/b?c=d HTTP/1.1\r\nHost: weir.test\r\nX-One: 1\r\nAccept: */*\r\n\r\n");
    let mut conn = upstream.accept();
    let request = conn.read_request();
    expect_lines(&request.head.raw, &["GET /a/b?c=d HTTP/1.1", "Host: weir.test", "X-One: 1", "Accept: */*"]);
    conn.send(
        "HTTP/1.1 200 Fine\r\nX-Two: 2\r\nSet-Cookie: a\r\nSet-Cookie: b\r\nContent-Length: 5\r\n\r\nhello",
    );
    let response = client.read_response();
    response.expect_status(200).expect_header("x-two", "2").expect_body("hello");
    assert_eq!(response.head.all("set-cookie"), ["a", "b"]);
    assert_eq!(response.framing, Framing::Length(5));
}

#[test]
fn post_with_a_body() {
    let upstream = Upstream::listen();
    let weir = Weir::in_front_of(&upstream);
    let mut client = weir.client();
    client.send("POST /p HTTP/1.1\r\nHost: weir.test\r\nContent-Length: 11\r\n\r\nhello world");
    let mut conn = upstream.accept();
    let request = conn.read_request();
    assert_eq!(request.body.bytes, b"hello world");
    assert!(request.head.has_line("content-length: 11"));
    conn.send("HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n");
    client.read_response().expect_status(201).expect_body("");
}

#[test]
fn any_method_passes() {
    let upstream = Upstream::fixed(OK);
    let weir = Weir::in_front_of(&upstream);
    table(
        &["DELETE", "PATCH", "PUT", "OPTIONS", "PROPFIND", "X-OWN"],
        |method| *method,
        |method| {
            weir.client().request(method, "/m").expect_status(200);
            assert_eq!(upstream.take_request().head.line, format!("{method} /m HTTP/1.1"));
        },
    );
}

#[test]
fn options_for_the_server_itself() {
    let upstream = Upstream::fixed(OK);
    let weir = Weir::in_front_of(&upstream);
    let response = weir.client().request("OPTIONS", "*");
    // It is forwarded unchanged, or no route matches; it never becomes a path.
    match response.status {
        200 => assert_eq!(upstream.take_request().head.line, "OPTIONS * HTTP/1.1"),
        404 => {}
        other => panic!("{other}"),
    }
}

#[test]
fn connect_is_refused() {
    let upstream = Upstream::fixed(OK);
    let weir = Weir::in_front_of(&upstream);
    let response = weir.client().ask("CONNECT weir.test:443 HTTP/1.1\r\nHost: weir.test:443\r\n\r\n");
    response.expect_cause(METHOD_REFUSED);
    assert_eq!(upstream.connections(), 0);
}

// === Answers without a body ===

#[test]
fn a_response_without_a_date_gets_one() {
    let upstream = Upstream::listen();
    let weir = Weir::in_front_of(&upstream);
    let (mut client, mut conn) = weir.begin(&upstream, GET);
    conn.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    let date = client.read_response().head.all("date").join(", ");
    assert!(date.len() == 29 && date.ends_with(" GMT"), "{date}");
    client.send(GET);
    conn.read_request();
    conn.send("HTTP/1.1 200 OK\r\nDate: Tue, 15 Nov 1994 08:12:31 GMT\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(client.read_response().head.all("date"), ["Tue, 15 Nov 1994 08:12:31 GMT"]);
}

#[test]
fn head_has_no_body() {
    let upstream = Upstream::listen();
    let weir = Weir::in_front_of(&upstream);
    let mut client = weir.client();
    client.send("HEAD /h HTTP/1.1\r\nHost: weir.test\r\n\r\n");
    let mut conn = upstream.accept();
    assert_eq!(conn.read_request().head.line, "HEAD /h HTTP/1.1");
    conn.send("HTTP/1.1 200 OK\r\nContent-Length: 1234\r\n\r\n");
    client.read_response_to_head().expect_status(200).expect_header("content-length", "1234");
    // Both connections continue: neither side waits for 1234 bytes.
    client.send(GET);
    conn.read_request();
    conn.send(OK_BODY);
    client.read_response().expect_body("ok");
}

#[test]
fn statuses_without_a_body() {
    let upstream = Upstream::listen();
    let weir = Weir::in_front_of(&upstream);
    let (mut client, mut conn) = weir.begin(&upstream, GET);
    conn.send("HTTP/1.1 204 No Content\r\nX-A: b\r\n\r\n");
    client.read_response().expect_status(204).expect_header("x-a", "b").expect_no_header("transfer-encoding");
    client.send(GET);
    conn.read_request();
    conn.send("HTTP/1.1 304 Not Modified\r\nETag: \"x\"\r\nContent-Length: 77\r\n\r\n");
    client.read_response().expect_status(304).expect_header("etag", "\"x\"");
    client.send(GET);
    conn.read_request();
    conn.send(OK_BODY);
    client.read_response().expect_body("ok");
    assert_eq!(upstream.connections(), 1);
}

#[test]
fn an_empty_body_is_not_a_missing_one() {
    let upstream = Upstream::fixed(OK);
    let weir = Weir::in_front_of(&upstream);
    let response = weir.client().get("/");
    assert_eq!(response.framing, Framing::Length(0));
}

// === 1xx and Expect ===

#[test]
fn informational_answers_are_passed_on() {
    let upstream = Upstream::listen();
    let weir = Weir::in_front_of(&upstream);
    let (mut client, mut conn) = weir.begin(&upstream, GET);
    conn.send("HTTP/1.1 103 Early Hints\r\nLink: </s.css>\r\n\r\n");
    client.read_response().expect_status(103).expect_header("link", "</s.css>");
    conn.send("HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    client.read_response().expect_status(102);
    client.read_response().expect_status(200).expect_body("ok");
}

#[test]
fn informational_answers_are_not_for_http_1_0() {
    let upstream = Upstream::fixed(format!("HTTP/1.1 103 Early Hints\r\nLink: <x>\r\n\r\n{OK_BODY}"));
    let weir = Weir::in_front_of(&upstream);
    weir.client().ask("GET / HTTP/1.0\r\nHost: weir.test\r\n\r\n").expect_status(200).expect_body("ok");
}

#[test]
fn a_client_that_expects_100_gets_it_before_its_body() {
    let upstream = Upstream::listen();
    let weir = Weir::in_front_of(&upstream);
    let mut client = weir.client();
    client.send("PUT /e HTTP/1.1\r\nHost: weir.test\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n");
    // Whether Weir or the upstream sends the 100: the upstream is ready to.
    let mut conn = upstream.accept();
    let head = conn.read_head();
    if head.header("expect").is_some() {
        conn.send("HTTP/1.1 100 Continue\r\n\r\n");
    }
    client.read_response().expect_status(100);
    client.send("body");
    assert_eq!(conn.read_n(4), b"body");
    conn.send(OK_BODY);
    client.read_response().expect_status(200).expect_body("ok");
}

#[test]
fn a_client_that_expects_100_may_be_refused_without_its_body() {
    let upstream = Upstream::listen();
    let weir = Weir::start(&format!(
        "{}\nroutes: {{ no: {{ match: {{ path: /no }}, respond: {{ status: 403, body: no }} }} }}\n",
        crate::support::WEB
    ));
    let mut client = weir.client();
    client.send("PUT /no HTTP/1.1\r\nHost: weir.test\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n");
    client.read_response().expect_status(403);
    upstream.expect_no_connection();
}

#[test]
fn an_unknown_expectation_fails() {
    let upstream = Upstream::fixed(OK);
    let weir = Weir::in_front_of(&upstream);
    let response = weir.client().ask("GET / HTTP/1.1\r\nHost: weir.test\r\nExpect: magic\r\n\r\n");
    assert!(
        matches!(response.status, 200 | 417),
        "RFC 9110 §10.1.1: 417 or ignored, not {}",
        response.status
    );
}

// === Connections of the client ===

#[test]
fn keep_alive_carries_many_requests() {
    let upstream = Upstream::named("up");
    let weir = Weir::in_front_of(&upstream);
    let mut client = weir.client();
    for _ in 0..20 {
        client.get("/k").expect_status(200).expect_body("up").expect_no_header("connection");
    }
    assert_eq!(upstream.connections(), 1);
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let upstream = Upstream::echo();
    let weir = Weir::in_front_of(&upstream);
    let mut client = weir.client();
    client.send(
        "GET /1 HTTP/1.1\r\nHost: weir.test\r\n\r\nPOST /2 HTTP/1.1\r\nHost: weir.test\r\nContent-Length: 3\r\n\r\nabc\
         GET /3 HTTP/1.1\r\nHost: weir.test\r\n\r\n",
    );
    for path in ["GET /1 ", "POST /2 ", "GET /3 "] {
        let response = client.read_response();
        assert!(response.text().starts_with(path), "{}", response.text());
    }
}

/// A client with thousands of pipelined requests takes turns with others.
#[test]
fn a_pipeline_leaves_others_their_turn() {
    const AHEAD: usize = 5_000;
    let weir = Weir::start(
        "workers: 1\nlisteners: { web: { address: 127.0.0.1:0 } }\naccess_log: { output: stdout }\n\
         routes: { all: { match: { path: \"/*\" }, respond: { status: 200, body: ok } } }\n",
    );
    let mut neighbour = weir.client();
    neighbour.get("/warm").expect_status(200);
    let mut ahead = TcpStream::connect(weir.address("web")).unwrap();
    let mut answers = ahead.try_clone().unwrap();
    let (began, begins) = mpsc::channel();
    let reader = thread::spawn(move || {
        let mut piece = [0; 65536];
        while answers.read(&mut piece).unwrap() > 0 {
            let _ = began.send(());
        }
    });
    let requests = "GET /ahead HTTP/1.1\r\nHost: a\r\n\r\n".repeat(AHEAD);
    let writer = thread::spawn(move || {
        ahead.write_all(requests.as_bytes()).unwrap();
        ahead.write_all(b"GET /last HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
    });
    begins.recv().unwrap();
    neighbour.get("/neighbour").expect_status(200);
    writer.join().unwrap();
    reader.join().unwrap();
    weir.wait_stdout("/last");
    let log = weir.stdout();
    let behind = log.split_once("/neighbour").expect("it was logged").1;
    assert!(behind.matches("/ahead").count() > AHEAD / 4, "the neighbour waited for the whole pipeline");
}

#[test]
fn requests_may_come_in_single_bytes() {
    let upstream = Upstream::named("up");
    let weir = Weir::in_front_of(&upstream);
    let mut client = weir.client();
    for byte in
        b"POST / HTTP/1.1\r\nHost: weir.test\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"
    {
        client.send([*byte]);
    }
    client.read_response().expect_status(200).expect_body("up");
    assert_eq!(upstream.take_request().body.bytes, b"ok");
}

#[test]
fn empty_lines_before_a_request_are_skipped() {
    let upstream = Upstream::named("up");
    let weir = Weir::in_front_of(&upstream);
    let mut client = weir.client();
    // RFC 9112 §2.2: at least one empty line is ignored.
    client.ask(format!("\r\n{GET}")).expect_status(200);
}

#[test]
fn connection_close_closes() {
    let upstream = Upstream::named("up");
    let weir = Weir::in_front_of(&upstream);
    let mut client = weir.client();
    client.send("GET / HTTP/1.1\r\nHost: weir.test\r\nConnection: close\r\n\r\n");
    client.read_response().expect_status(200).expect_header("connection", "close").expect_body("up");
    client.expect_eof();
    // The option applied to the client's connection, not the upstream's.
    assert!(!upstream.take_request().head.has_line("connection: close"));
}

#[test]
fn http_1_0_closes_unless_it_asks_to_keep() {
    let upstream = Upstream::named("up");
    let weir = Weir::in_front_of(&upstream);
    let mut client = weir.client();
    client.ask("GET / HTTP/1.0\r\nHost: weir.test\r\n\r\n").expect_status(200).expect_body("up");
    client.expect_eof();
    let mut client = weir.client();
    let keep = "GET / HTTP/1.0\r\nHost: weir.test\r\nConnection: keep-alive\r\n\r\n";
    client.ask(keep).expect_header("connection", "keep-alive").expect_body("up");
    client.ask(keep).expect_body("up");
}

#[test]
fn http_1_0_never_gets_chunks() {
    let upstream = Upstream::fixed(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n",
    );
    let weir = Weir::in_front_of(&upstream);
    let mut client = weir.client();
    let response = client.ask("GET / HTTP/1.0\r\nHost: weir.test\r\nConnection: keep-alive\r\n\r\n");
    response.expect_status(200).expect_no_header("transfer-encoding").expect_body("abcde");
    assert_eq!(response.framing, Framing::Close);
}

#[test]
fn the_upstream_hears_http_1_1_from_an_http_1_0_client() {
    let upstream = Upstream::named("up");
    let weir = Weir::in_front_of(&upstream);
    weir.client().ask("GET /v HTTP/1.0\r\nHost: weir.test\r\n\r\n").expect_status(200);
    assert_eq!(upstream.take_request().head.line, "GET /v HTTP/1.1");
}

#[test]
fn a_client_that_has_said_all_still_hears_the_answer() {
    let upstream = Upstream::listen();
    let weir = Weir::in_front_of(&upstream);
    let mut client = weir.client();
    client.send(GET);
    client.half_close();
    let mut conn = upstream.accept_request();
    conn.send(OK_BODY);
    client.read_response().expect_status(200).expect_body("ok");
    client.expect_eof();
}

#[test]
fn a_client_that_resets_cancels_its_request() {
    let upstream = Upstream::listen();
    let weir = Weir::in_front_of(&upstream);
    let (client, mut conn) = weir.begin(&upstream, GET);
    client.reset();
    conn.expect_close();
}

#[test]
fn a_client_that_leaves_in_its_body_cancels_its_request() {
    let upstream = Upstream::listen();
    let weir = Weir::in_front_of(&upstream);
    let mut client = weir.client();
    client.send("POST / HTTP/1.1\r\nHost: weir.test\r\nContent-Length: 10\r\n\r\nhalf");
    let mut conn = upstream.accept();
    conn.read_head();
    client.close();
    // The part that exists may arrive; the rest never does, and no end is invented.
    let rest = conn.read_to_close();
    assert!(b"half".starts_with(&rest[..]), "{rest:?}");
}

#[test]
fn an_idle_client_costs_the_upstream_nothing() {
    let upstream = Upstream::listen();
    let weir = Weir::in_front_of(&upstream);
    let mut idle = weir.client();
    let mut half = weir.client();
    half.send("GET / HTTP/1.1\r\nHost: we");
    weir.client().close();
    idle.expect_silence(Duration::from_millis(50));
    upstream.expect_no_connection();
}
