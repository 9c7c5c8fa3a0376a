//! `respond` as a mock of a service, and the filter `fault`: answers, delays and failures by share.

use std::time::{Duration, Instant};

use weir_testkit::{Upstream, Weir};

use crate::cause::{EXCHANGE_TIMEOUT, FAULT_ABORT, FAULT_MALFORMED};
use crate::support::{OK, WEB};

#[track_caller]
fn start(routes: &str) -> Weir {
    Weir::start(&format!(
        "{WEB}\nadmin: {{ address: 127.0.0.1:0 }}\nexpose_causes: true\nroutes:\n{routes}\n"
    ))
}

#[test]
fn placeholders_are_escaped_for_what_the_body_is() {
    let weir = start(
        "  user:\n    match: { path: \"/users/{id}\" }\n    respond:\n      headers: { content-type: application/json, location: \"{scheme}://{authority}/u/{id}\" }\n      \
         body: '{\"id\":\"{id}\",\"q\":\"{query}\",\"method\":\"{method}\",\"literal\":\"{{id}}\",\"nested\":{\"a\":{}}}'\n  \
         page: { match: { path: /page }, respond: { headers: { content-type: text/html }, body: \"<b>{query}</b>\" } }\n  \
         text: { match: { path: /text }, respond: { body: \"{query} {client}\\n\" } }\n  \
         plain: { match: { path: /plain }, respond: { body: \"a { b } c\" } }",
    );
    let answer = weir.client().get("/users/7?a=%22\"<b");
    answer.expect_status(200).expect_header("location", "http://weir.test/u/7");
    let expected = serde_json::json!({
        "id": "7", "q": "a=%22\"<b", "method": "GET", "literal": "{id}", "nested": { "a": {} }
    });
    assert_eq!(answer.json(), expected);
    weir.client().get("/page?<script>").expect_body("<b>&lt;script&gt;</b>");
    weir.client()
        .get("/text?<x>")
        .expect_body("<x> 127.0.0.1\n")
        .expect_header("content-type", "text/plain; charset=utf-8");
    weir.client().get("/plain").expect_body("a { b } c");
    let head = weir.client().request("HEAD", "/text?abc");
    head.expect_status(200).expect_header("content-length", "14").expect_body("");
}

#[test]
fn late_answers() {
    let weir = start(
        "  late: { match: { path: /late }, respond: { body: late, delay: 50ms..60ms } }\n  \
         cut: { match: { path: /cut }, filters: [ { timeout: { exchange: 30ms } } ], respond: { delay: 10m } }\n  \
         soon: { match: { path: /soon }, respond: { body: soon } }",
    );
    let began = Instant::now();
    let mut client = weir.client();
    client.get("/late").expect_status(200).expect_body("late");
    assert!(began.elapsed() >= Duration::from_millis(50));
    client.get("/cut").expect_cause(EXCHANGE_TIMEOUT);
    // A client that leaves ends its exchange; otherwise the drain at the end of the test would wait for it.
    let mut gone = weir.client();
    gone.send("GET /cut HTTP/1.1\r\nHost: weir.test\r\n\r\n");
    gone.close();
    weir.client().get("/soon").expect_body("soon");
}

#[test]
fn a_mix_of_answers() {
    let weir = start(
        "  mix:\n    match: { path: \"/*\" }\n    respond:\n      body: fine\n      mix: [ { share: 30%, status: 503, body: busy }, { share: 20%, status: 429, headers: { retry-after: \"1\" } } ]\n",
    );
    let mut client = weir.client();
    let mut counts = [0; 3];
    for _ in 0..600 {
        let answer = client.get("/");
        match answer.status {
            200 => counts[0] += usize::from(answer.text() == "fine"),
            503 => counts[1] += usize::from(answer.text() == "busy"),
            429 => counts[2] += usize::from(answer.header("retry-after") == Some("1")),
            other => panic!("{other}"),
        }
    }
    // Seven standard deviations: one run in a hundred thousand million would be outside.
    for (count, share) in counts.iter().zip([0.5_f64, 0.3, 0.2]) {
        let spread = 7.0 * (600.0 * share * (1.0 - share)).sqrt();
        assert!((*count as f64 - 600.0 * share).abs() < spread, "{counts:?}");
    }
}

#[test]
fn faults_by_share_and_by_header() {
    let upstream = Upstream::fixed(OK);
    let weir = Weir::start(&format!(
        "listeners: {{ web: {{ address: 127.0.0.1:0, protocols: [http1, h2] }} }}\nadmin: {{ address: 127.0.0.1:0 }}\nexpose_causes: true\nupstreams: {{ up: {{ endpoints: [{}] }} }}\nroutes:\n  \
         all: {{ match: {{ path: /all }}, filters: [ {{ fault: {{ delay: 30ms, status: 504 }} }} ], upstream: up }}\n  \
         none: {{ match: {{ path: /none }}, filters: [ {{ fault: {{ share: 0%, status: 503 }} }} ], upstream: up }}\n  \
         ask: {{ match: {{ path: /ask }}, filters: [ {{ fault: {{ share: 0%, ask: x-weir-fault }} }} ], upstream: up }}\n",
        upstream.address()
    ));
    let began = Instant::now();
    weir.client().get("/all").expect_cause((504, FAULT_ABORT.1));
    assert!(began.elapsed() >= Duration::from_millis(30));
    assert!(upstream.requests().is_empty(), "what fails is not sent on");
    // Clients cannot request a fault unless the config allows it; otherwise the field has no meaning.
    let mut client = weir.client();
    client
        .ask("GET /none HTTP/1.1\r\nHost: weir.test\r\nX-Weir-Fault: status=503\r\n\r\n")
        .expect_status(200);
    assert_eq!(upstream.take_request().head.header("x-weir-fault"), Some("status=503"));
    let asked = |text: &str| format!("GET /ask HTTP/1.1\r\nHost: weir.test\r\nX-Weir-Fault: {text}\r\n\r\n");
    client.ask(asked("status=503")).expect_cause(FAULT_ABORT);
    client.ask(asked("delay=1ms")).expect_status(200);
    assert_eq!(upstream.take_request().head.header("x-weir-fault"), None);
    client.ask(asked("status=teapot")).expect_cause(FAULT_MALFORMED);
    let mut grpc = weir.h2();
    let fields = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", "/all"),
        (":authority", "weir.test"),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
    ];
    let stream = grpc.request(&fields, true);
    grpc.message(stream).expect_status(200).expect_header("grpc-status", "4");
    let metrics = weir.admin_client().ask("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").text();
    assert!(metrics.contains("weir_causes_total{cause=\"fault_abort\"} 3"), "{metrics}");
}
