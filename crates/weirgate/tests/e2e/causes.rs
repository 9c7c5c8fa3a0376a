//! The gateway's own answers state their cause, in the form that the client requested.

use weir_testkit::{Upstream, Weir, refusing_address};

use crate::cause::{BAD_HEAD, CONNECT_REFUSED, NO_ROUTE};
use crate::support::{OK, WEB, config};

fn nothing(expose: bool) -> Weir {
    Weir::start(&format!(
        "{WEB}\nroutes: {{ only: {{ match: {{ path: /only }}, respond: {{ status: 200, body: ok }} }} }}\nexpose_causes: {expose}\n"
    ))
}

#[test]
fn problem_json() {
    let weir = nothing(true);
    let response = weir.client().get("/nowhere");
    response.expect_cause(NO_ROUTE).expect_header("content-type", "application/problem+json");
    // RFC 9457 §3.
    let problem = response.json();
    assert_eq!(problem["status"], 404);
    assert!(problem["title"].as_str().is_some_and(|title| !title.is_empty()), "{problem}");
}

#[test]
fn html_for_browsers() {
    let weir = nothing(true);
    let browser =
        "GET /nowhere HTTP/1.1\r\nHost: h\r\nAccept: text/html,application/xhtml+xml,*/*;q=0.8\r\n\r\n";
    let response = weir.client().ask(browser);
    response.expect_cause(NO_ROUTE).expect_body_with("404");
    assert!(response.header("content-type").is_some_and(|kind| kind.starts_with("text/html")));
    let tool = "GET /nowhere HTTP/1.1\r\nHost: h\r\nAccept: */*\r\n\r\n";
    weir.client().ask(tool).expect_header("content-type", "application/problem+json");
}

#[test]
fn html_never_repeats_what_the_client_wrote() {
    let weir = nothing(true);
    let attack = "GET /<script>alert(1)</script> HTTP/1.1\r\nHost: h\r\nAccept: text/html\r\n\r\n";
    let text = weir.client().ask(attack).text();
    assert!(!text.contains("<script>alert"), "{text}");
}

#[test]
fn causes_are_shown_only_where_the_operator_says_so() {
    let weir = nothing(false);
    weir.client().get("/nowhere").expect_status(404).expect_no_header("x-weir-cause");
    let response = weir.client().ask("GET / HTTP/1.1\nHost: h\n\n");
    response.expect_status(BAD_HEAD.0).expect_no_header("x-weir-cause");
}

/// A body without its unique request id.
fn without_id(body: &str) -> String {
    match serde_json::from_str::<serde_json::Value>(body) {
        Ok(mut problem) => {
            problem
                .as_object_mut()
                .unwrap()
                .remove("request_id")
                .expect("a problem has the id of its request");
            problem.to_string()
        }
        Err(_) => body.lines().filter(|line| !line.starts_with("<p>Request:")).collect(),
    }
}

/// Only the operator may know whether the upstream refuses, hangs up or does not exist.
#[test]
fn strangers_do_not_learn_the_cause_from_words() {
    const ASKED: [(&str, &str); 3] = [
        ("problem", "GET / HTTP/1.1\r\nHost: h\r\n\r\n"),
        ("page", "GET / HTTP/1.1\r\nHost: h\r\nAccept: text/html\r\n\r\n"),
        (
            "gRPC",
            "POST /a.B/C HTTP/1.1\r\nHost: h\r\nContent-Type: application/grpc\r\nContent-Length: 0\r\n\r\n",
        ),
    ];
    let (_closed, refusing) = refusing_address();
    let hanging = Upstream::script(|conn| drop(conn.next_request()));
    let garbling = Upstream::fixed("garbage\r\n\r\n");
    // A new gateway for each request: a failed endpoint is not tried again immediately.
    let start = || {
        [refusing, hanging.address(), garbling.address()].map(|address| {
            Weir::start(&format!("{}expose_causes: false\n", config(&format!("endpoints: [{address}]"))))
        })
    };
    for (what, ask) in ASKED {
        let told = start().map(|weir| {
            let answer = weir.client().ask(ask);
            answer.expect_no_header("x-weir-cause");
            let fields =
                ["grpc-status", "grpc-message", "content-type"].map(|n| answer.header(n).map(str::to_owned));
            (answer.status, fields, without_id(&answer.text()))
        });
        assert_eq!(told[0], told[1], "{what}");
        assert_eq!(told[0], told[2], "{what}");
        let all = format!("{:?}", told[0]).to_ascii_lowercase();
        assert!(
            ["upstream", "refused", "connect", "_"].iter().all(|word| !all.contains(word)),
            "{what}: {all}"
        );
    }
    let weir = nothing(false);
    let bad = |ask: &str| without_id(&weir.client().ask(ask).expect_status(400).text());
    let path = bad("GET /a%2F..%2Fb HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_eq!(path, bad("GET / HTTP/1.1\nHost: h\n\n"), "paths and heads");
}

#[test]
fn an_upstreams_own_error_has_no_cause() {
    let upstream = Upstream::fixed("HTTP/1.1 502 Bad Gateway\r\nContent-Length: 4\r\n\r\nmine");
    let weir = Weir::in_front_of(&upstream);
    weir.client().get("/").expect_status(502).expect_no_header("x-weir-cause").expect_body("mine");
}

#[test]
fn an_upstream_cannot_lie_about_the_cause() {
    let upstream = Upstream::fixed("HTTP/1.1 200 OK\r\nx-weir-cause: no_route\r\nContent-Length: 0\r\n\r\n");
    let weir = Weir::in_front_of(&upstream);
    weir.client().get("/").expect_status(200).expect_no_header("x-weir-cause");
}

#[test]
fn head_gets_the_fields_alone() {
    let weir = nothing(true);
    let mut client = weir.client();
    client.send("HEAD /nowhere HTTP/1.1\r\nHost: h\r\n\r\n");
    client.read_response_to_head().expect_cause(NO_ROUTE);
    client.get("/only").expect_status(200).expect_body("ok");
}

#[test]
fn the_cause_is_in_the_log_line() {
    let (_closed, address) = refusing_address();
    let weir = Weir::start(&format!(
        "{}access_log: {{ output: stdout }}\nexpose_causes: false\n",
        config(&format!("endpoints: [{address}]"))
    ));
    weir.client().get("/").expect_status(502);
    let line = weir.wait_stdout("\"status\":502");
    assert!(line.contains(&format!("\"cause\":\"{}\"", CONNECT_REFUSED.1)), "{line}");
}

#[test]
fn the_cause_is_in_the_metrics() {
    let upstream = Upstream::fixed(OK);
    let weir = Weir::in_front_of(&upstream);
    weir.client().ask("GET / HTTP/1.1\nHost: h\n\n").expect_cause(BAD_HEAD);
    weir_testkit::eventually("the cause is counted", || {
        let metrics = weir
            .admin_client()
            .ask(format!("GET /metrics HTTP/1.1\r\nHost: {}\r\n\r\n", weir.admin()))
            .text();
        metrics.lines().any(|line| {
            line.starts_with("weir_causes_total") && line.contains("bad_head") && line.ends_with(" 1")
        })
    });
}
