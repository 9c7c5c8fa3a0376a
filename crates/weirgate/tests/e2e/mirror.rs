//! `mirror`: copies of requests that no client waits for.

use weir_testkit::{Upstream, Weir, eventually};

use crate::support::{OK, OK_BODY, WEB, expect_lines};

#[track_caller]
fn start(upstream: &Upstream, next: &str, settings: &str) -> Weir {
    Weir::start(&format!(
        "{WEB}\nadmin: {{ address: 127.0.0.1:0 }}\nupstreams: {{ up: {{ endpoints: [{}] }}, next: {{ endpoints: [{next}] }} }}\n\
         routes: {{ all: {{ match: {{ path: \"/*\" }}, filters: [ {{ mirror: {{ upstream: next{settings} }} }} ], upstream: up }} }}\n",
        upstream.address()
    ))
}

/// A metric of the filter.
fn reading(weir: &Weir, what: &str, of: &str) -> u64 {
    let metrics = weir.admin_client().ask("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").text();
    let line = metrics.lines().find(|line| {
        line.starts_with(&format!("weir_mirror_{what}_total{{"))
            && (of.is_empty() || line.contains(&format!("\"{of}\"")))
    });
    let Some(line) = line else { panic!("no {what} {of} in:\n{metrics}") };
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

#[test]
fn a_copy_has_all_that_the_request_has() {
    let upstream = Upstream::fixed(OK_BODY);
    let next =
        Upstream::fixed("HTTP/1.1 503 Busy\r\nSet-Cookie: never=seen\r\nContent-Length: 4\r\n\r\nbusy");
    let weir = start(&upstream, &next.address().to_string(), "");
    let mut client = weir.client();
    client.send("PUT /a?b=c HTTP/1.1\r\nHost: weir.test\r\nX-A: 1\r\nContent-Length: 5\r\n\r\nhello");
    client.read_response().expect_status(200).expect_body("ok").expect_no_header("set-cookie");
    let copy = next.take_request();
    let lines = ["PUT /a?b=c HTTP/1.1", "host: weir.test", "x-a: 1", "x-weir-mirror: 1", "content-length: 5"];
    expect_lines(&copy.head.raw, &lines);
    assert_eq!(copy.body.bytes, b"hello");
    assert_eq!(copy.head.header("x-forwarded-for"), Some("127.0.0.1"));
    assert_eq!(upstream.take_request().head.header("x-weir-mirror"), None);
    client.send("POST / HTTP/1.1\r\nHost: weir.test\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n");
    client.read_response().expect_status(200);
    assert_eq!(next.take_request().body.bytes, b"abcde");
    // A copy is never copied again, wherever it comes from.
    client.ask("GET / HTTP/1.1\r\nHost: weir.test\r\nX-Weir-Mirror: 1\r\n\r\n").expect_status(200);
    client.get("/last").expect_status(200);
    assert_eq!(next.take_request().head.line, "GET /last HTTP/1.1");
    eventually("the answers are counted", || reading(&weir, "answered", "5xx") == 3);
    assert_eq!(reading(&weir, "sent", ""), 3);
}

#[test]
fn a_mirror_that_is_away_or_asleep_is_not_felt() {
    let upstream = Upstream::fixed(OK);
    let (_socket, address) = weir_testkit::refusing_address();
    let weir = start(&upstream, &address.to_string(), "");
    weir.client().get("/").expect_status(200);
    eventually("the failure is counted", || reading(&weir, "failed", "") == 1);

    // It accepts but never answers: the slot stays taken until the timeout, and copies without a slot are dropped.
    let asleep = Upstream::listen();
    let weir = start(&upstream, &asleep.address().to_string(), ", queue: 1, timeout: 5m, body: 1KiB");
    let mut client = weir.client();
    client.get("/one").expect_status(200);
    client.get("/two").expect_status(200);
    assert_eq!(reading(&weir, "dropped", "queue"), 1);
    let body = "x".repeat(2048);
    client.send(format!("POST / HTTP/1.1\r\nHost: weir.test\r\nContent-Length: 2048\r\n\r\n{body}"));
    client.read_response().expect_status(200);
    assert_eq!(reading(&weir, "dropped", "body"), 1);
    assert_eq!(asleep.accept().read_request().head.line, "GET /one HTTP/1.1");
}

#[test]
fn a_long_answer_of_a_mirror_is_read_and_thrown_away() {
    let upstream = Upstream::fixed(OK);
    let long = format!("HTTP/1.1 200 OK\r\nContent-Length: 300000\r\n\r\n{}", "y".repeat(300_000));
    let next = Upstream::fixed(long);
    let weir = start(&upstream, &next.address().to_string(), "");
    let mut client = weir.client();
    for count in 1..=2 {
        client.get("/").expect_status(200);
        eventually("the answer is counted", || reading(&weir, "answered", "2xx") == count);
    }
    assert_eq!(next.connections(), 1, "what was read to its end is used again");
}
