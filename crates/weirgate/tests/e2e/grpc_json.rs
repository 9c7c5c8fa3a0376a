//! REST for gRPC services: the filter `grpc_json` in front of the built-in origin's greeter, and of upstreams that
//! misbehave.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use tempfile::TempDir;
use weir_origin::{Handle, Options as OriginOptions, Origin};
use weir_testkit::h2::{Frame, H2Origin, Options, code};
use weir_testkit::{Response, Weir, eventually, run_weir, unused_address};

use crate::cause::{
    BODY_TOO_LARGE, GRPC_NO_METHOD, GRPC_NOT_DESCRIBED, GRPC_REQUEST_MALFORMED, GRPC_RESPONSE_MALFORMED,
    GRPC_RULE_REFUSED, GRPC_WRONG_METHOD,
};
use crate::connect::breaks_off;

/// The origin's greeter, with rules.
const PROTO: &str = r#"syntax = "proto3";
package helloworld.v1;
import "google/api/annotations.proto";
service Greeter {
  // Says hello.
  rpc SayHello(HelloRequest) returns (HelloReply) {
    option (google.api.http) = { get: "/v1/hello/{name}" additional_bindings { post: "/v1/hello" body: "*" } };
  }
  rpc LotsOfReplies(HelloRequest) returns (stream HelloReply) {
    option (google.api.http) = { get: "/v1/replies/{name}" };
  }
  rpc LotsOfGreetings(stream HelloRequest) returns (HelloReply) {
    option (google.api.http) = { post: "/v1/greetings" body: "*" };
  }
  rpc BidiHello(stream HelloRequest) returns (stream HelloReply) {
    option (google.api.http) = { post: "/v1/chat" body: "*" };
  }
}
message HelloRequest { string name = 1; uint32 code = 2; uint32 delay_ms = 3; uint32 replies = 4; bool echo_metadata = 5; }
message HelloReply { string message = 1; repeated string metadata = 2; }
"#;

fn origin() -> Handle {
    let address = "127.0.0.1:0".parse().unwrap();
    Origin::start(OriginOptions { address, ..OriginOptions::default() }).unwrap()
}

/// A config whose catch-all route has `grpc_json` with these settings, and the folder of its proto.
fn config(upstream: impl ToString, settings: &str, route: &str) -> (TempDir, String) {
    let dir = TempDir::new().unwrap();
    let proto = dir.path().join("greeter.proto");
    fs::write(&proto, PROTO).unwrap();
    let settings = settings.replace("PROTO", &format!("proto: [ {} ]", proto.display()));
    let config = format!(
        "listeners: {{ web: {{ address: 127.0.0.1:0, protocols: [http1, h2] }} }}\nexpose_causes: true\nupstreams: {{ up: {{ protocol: h2c, endpoints: [ {} ] }} }}\n\
         routes: {{ all: {{ match: {{ path: \"/*\" }}, {route} filters: [ {{ grpc_json: {{ {settings} }} }} ], upstream: up }} }}\n",
        upstream.to_string()
    );
    (dir, config)
}

fn weir(upstream: impl ToString, settings: &str) -> (TempDir, Weir) {
    let (dir, config) = config(upstream, settings, "");
    (dir, Weir::start(&config))
}

fn post(path: &str, body: &str) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nHost: weir.test\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

#[test]
fn one_service_as_rest() {
    let origin = origin();
    let (_dir, weir) = weir(origin.address(), "PROTO");
    let mut client = weir.client();
    let hello = client.get("/v1/hello/Ann%20B");
    hello.expect_status(200).expect_header("content-type", "application/json");
    assert!(hello.header("date").is_some(), "{}", hello.text());
    assert_eq!(hello.json(), json!({ "message": "hello Ann B" }));
    hello.expect_no_header("grpc-status").expect_no_header("trailer");
    let hello = client.ask(post("/v1/hello", "{\"name\":\"Bob\"}"));
    assert_eq!(hello.expect_status(200).json(), json!({ "message": "hello Bob" }));
    // The same over HTTP/2, and gRPC itself on the same route.
    let mut h2 = weir.h2();
    let stream = h2.get("/v1/hello/Ann");
    let answer = h2.message(stream);
    answer.expect_status(200).expect_body("{\"message\":\"hello Ann\"}");
    assert_eq!(answer.trailers, [], "a client of REST knows no trailers");
    let fields = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", "/helloworld.v1.Greeter/SayHello"),
        (":authority", "weir.test"),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
    ];
    let stream = h2.request(&fields, false);
    h2.data(stream, b"\0\0\0\0\x05\x0a\x03Ann", true);
    let answer = h2.message(stream);
    answer.expect_status(200).expect_body(b"\0\0\0\0\x0b\x0a\x09hello Ann");
    assert!(answer.trailers.contains(&("grpc-status".to_owned(), "0".to_owned())), "{:?}", answer.trailers);
}

#[test]
fn statuses_become_statuses() {
    let origin = origin();
    for (settings, code, status, field) in [
        ("PROTO", 5, 404, "code"),
        ("PROTO", 9, 400, "code"),
        ("PROTO", 14, 503, "code"),
        ("PROTO, errors: kratos", 9, 412, "reason"),
        ("PROTO, errors: sponge", 5, 200, "msg"),
        ("PROTO, errors: sponge", 13, 500, "msg"),
        ("PROTO, errors: problem", 7, 403, "detail"),
    ] {
        let (_dir, weir) = weir(origin.address(), settings);
        let answer = weir.client().get(&format!("/v1/hello/a?code={code}"));
        answer.expect_status(status);
        assert!(!answer.json()[field].is_null(), "{settings} {code}: {}", answer.text());
    }
}

#[test]
fn a_stream_of_replies_as_lines_and_as_events() {
    let origin = origin();
    let (_dir, weir) = weir(origin.address(), "PROTO");
    let mut client = weir.client();
    let lines = client.get("/v1/replies/a?replies=3");
    lines.expect_status(200).expect_header("content-type", "application/x-ndjson");
    let all: Vec<Value> = lines.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(all.len(), 3, "{all:?}");
    assert!(all.iter().all(|reply| reply["message"].is_string()), "{all:?}");
    let events = client
        .ask("GET /v1/replies/a?replies=2 HTTP/1.1\r\nHost: weir.test\r\nAccept: text/event-stream\r\n\r\n");
    events.expect_status(200).expect_header("content-type", "text/event-stream");
    assert_eq!(events.text().matches("data: {").count(), 2, "{}", events.text());
    let failed = client.get("/v1/replies/a?replies=1&code=8");
    let told = failed.text();
    assert!(failed.status == 429 || told.contains("{\"error\":{\"code\":8,"), "{} {told}", failed.status);
}

#[test]
fn a_stream_of_requests_from_an_array_or_lines() {
    let origin = origin();
    let (_dir, weir) = weir(origin.address(), "PROTO");
    let mut client = weir.client();
    for body in ["[{\"name\":\"a\"},{\"name\":\"b\"}]", "{\"name\":\"a\"}\n{\"name\":\"b\"}\n"] {
        let answer = client.ask(post("/v1/greetings", body));
        let told = answer.expect_status(200).json()["message"].as_str().unwrap_or_default().to_owned();
        assert!(told.contains('a') && told.contains('b'), "{told}");
    }
    let chunked = "POST /v1/greetings HTTP/1.1\r\nHost: weir.test\r\nTransfer-Encoding: chunked\r\n\r\n\
                   8\r\n{\"name\":\r\n4\r\n\"x\"}\r\n0\r\n\r\n";
    weir.client().ask(chunked).expect_status(200);
    let answer = weir.client().ask(post("/v1/greetings", "[{\"nope\":1}]"));
    answer.expect_cause(GRPC_REQUEST_MALFORMED);
    assert!(answer.text().contains("has no field `nope`"), "{}", answer.text());
}

/// A method with streams both ways, such as etcd's watch: its whole request is read, then sent; answers arrive as
/// lines.
#[test]
fn a_conversation_with_a_finite_request() {
    let origin = origin();
    let (_dir, weir) = weir(origin.address(), "PROTO");
    let mut client = weir.client();
    for body in ["[{\"name\":\"a\"},{\"name\":\"b\"}]", "{\"name\":\"a\"}\n{\"name\":\"b\"}\n"] {
        let answer = client.ask(post("/v1/chat", body));
        answer.expect_status(200).expect_header("content-type", "application/x-ndjson");
        assert_eq!(answer.text(), "{\"message\":\"hello a\"}\n{\"message\":\"hello b\"}\n");
    }
    client.ask(post("/v1/chat", "")).expect_status(200).expect_body("");
    client.ask(post("/v1/chat", "[{\"nope\":1}]")).expect_cause(GRPC_REQUEST_MALFORMED);
    let mut h2 = weir.h2();
    let fields =
        [(":method", "POST"), (":scheme", "http"), (":path", "/v1/chat"), (":authority", "weir.test")];
    let stream = h2.request(&fields, false);
    h2.data(stream, b"{\"name\":\"a\"}", true);
    h2.message(stream).expect_status(200).expect_body("{\"message\":\"hello a\"}\n");
}

/// A rule for HEAD: the call is a POST, and no body follows the answer's head, or the next answer would be misread.
#[test]
fn head_is_answered_without_a_body() {
    let origin = origin();
    let (dir, config) = config(origin.address(), "PROTO", "");
    let rules = [
        (
            "{ get: \"/v1/hello/{name}\"",
            "{ custom: { kind: \"HEAD\" path: \"/v1/hello/{name}\" } additional_bindings { get: \"/v1/hello/{name}\" }",
        ),
        ("{ get: \"/v1/replies/{name}\" }", "{ custom: { kind: \"HEAD\" path: \"/v1/replies/{name}\" } }"),
    ];
    let proto = rules.iter().fold(PROTO.to_owned(), |proto, (from, to)| proto.replace(from, to));
    fs::write(dir.path().join("greeter.proto"), proto).unwrap();
    let weir = Weir::start(&config);
    let mut client = weir.client();
    for (path, status) in [
        ("/v1/hello/Ann", 200),
        ("/v1/replies/Ann", 200),
        ("/v1/hello/Ann?code=5", 404),
        ("/v1/hello/Ann?code=x", 400),
    ] {
        client.request("HEAD", path).expect_status(status).expect_body("");
        // No body is left on the connection; one with a malformed request is closed.
        if status == 400 {
            client = weir.client();
        }
        client.get("/v1/hello/Bob").expect_status(200).expect_body("{\"message\":\"hello Bob\"}");
    }
    let mut h2 = weir.h2();
    let fields =
        [(":method", "HEAD"), (":scheme", "http"), (":path", "/v1/hello/A"), (":authority", "weir.test")];
    let stream = h2.request(&fields, true);
    h2.message(stream).expect_status(200).expect_body("");
}

#[test]
fn what_does_not_fit_is_told_with_its_path() {
    let (_dir, weir) = weir(unused_address(), "PROTO");
    let told = |answer: Response| answer.json()["message"].as_str().unwrap_or_default().to_owned();
    let answer = weir.client().get("/v1/hello/a?code=x");
    answer.expect_cause(GRPC_REQUEST_MALFORMED);
    assert_eq!(told(answer), "code: expected a whole number of 32 bits, not negative, found \"x\"");
    let answer = weir.client().ask(post("/v1/hello", "{\"nope\":1}"));
    answer.expect_cause(GRPC_REQUEST_MALFORMED);
    let violation = &answer.json()["details"][0]["fieldViolations"][0]["field"];
    assert_eq!(violation, "nope", "{}", answer.text());
    weir.client().ask(post("/v1/hello", "{")).expect_cause(GRPC_REQUEST_MALFORMED);
    weir.client().ask(post("/v1/hello", &"[".repeat(5000))).expect_cause(GRPC_REQUEST_MALFORMED);
    weir.client().get("/nothing").expect_cause(GRPC_NO_METHOD);
    weir.client()
        .ask(post("/v1/hello/a", "{}"))
        .expect_cause(GRPC_WRONG_METHOD)
        .expect_header("allow", "GET");
    // Nobody listens: the gateway's own answer is JSON too.
    let answer = weir.client().get("/v1/hello/a");
    answer.expect_cause((502, "connect_refused"));
    assert_eq!(answer.json()["code"], 14);
}

#[test]
fn a_body_has_a_limit_and_may_be_compressed() {
    use std::io::Write;
    let origin = origin();
    let (_dir, weir) = weir(origin.address(), "PROTO, limits: { message: 1KiB }");
    let zip = |text: &str| {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(text.as_bytes()).unwrap();
        encoder.finish().unwrap()
    };
    let ask = |body: &[u8]| {
        let head = format!(
            "POST /v1/hello HTTP/1.1\r\nHost: weir.test\r\nContent-Encoding: gzip\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        weir.client().ask([head.as_bytes(), body].concat())
    };
    assert_eq!(ask(&zip("{\"name\":\"z\"}")).expect_status(200).json()["message"], "hello z");
    ask(&zip(&format!("{{\"name\":\"{}\"}}", "z".repeat(100_000)))).expect_cause(GRPC_REQUEST_MALFORMED);
    ask(b"not gzip").expect_cause(GRPC_REQUEST_MALFORMED);
    let long = format!("{{\"name\":\"{}\"}}", "z".repeat(2000));
    // A request refused before it became a call gets an answer in the same form.
    let refused = weir.client().ask(post("/v1/hello", &long));
    refused.expect_cause(BODY_TOO_LARGE).expect_header("content-type", "application/json");
    assert_eq!(refused.json()["code"], 8, "{}", refused.text());
}

/// An upstream that answers calls with this body and these trailers.
pub(crate) fn peer(body: &'static [u8], trailers: &'static [(&str, &str)]) -> H2Origin {
    H2Origin::new(Options::default(), move |peer, stream, _| {
        let head = [(":status", "200"), ("content-type", "application/grpc"), ("x-head", "h")];
        peer.send(&Frame::headers(stream, &head, false));
        peer.send(&Frame::data(stream, body, trailers.is_empty()));
        if !trailers.is_empty() {
            peer.send(&Frame::headers(stream, trailers, true));
        }
    })
}

#[test]
fn answers_that_are_none() {
    const FINE: &[(&str, &str)] = &[("grpc-status", "0")];
    for (what, body, trailers) in [
        ("no status", &b"\0\0\0\0\0"[..], &[][..]),
        ("no message", b"", FINE),
        ("two messages", b"\0\0\0\0\0\0\0\0\0\0", FINE),
        ("cut", b"\0\0\0\0\x05abc", FINE),
        ("compressed", b"\x01\0\0\0\x01x", FINE),
        ("no such message", b"\0\0\0\0\x02\x0a\x09", FINE),
        ("not UTF-8", b"\0\0\0\0\x03\x0a\x01\xff", FINE),
        ("a length that lies", b"\0\xff\xff\xff\xff", FINE),
    ] {
        let upstream = peer(body, trailers);
        let (_dir, weir) = weir(upstream.address(), "PROTO");
        let answer = weir.client().get("/v1/hello/a");
        assert_eq!(answer.status, 502, "{what}: {}", answer.text());
        assert_eq!(answer.header("x-weir-cause"), Some(GRPC_RESPONSE_MALFORMED.1), "{what}");
        assert!(answer.json()["code"].is_u64(), "{what}: {}", answer.text());
    }
    let html = H2Origin::fixed("<html>");
    let (_dir, weir) = weir(html.address(), "PROTO");
    weir.client().get("/v1/hello/a").expect_cause(GRPC_RESPONSE_MALFORMED);
}

#[test]
fn a_stream_that_breaks_is_cut() {
    let upstream = peer(b"\0\0\0\0\x03\x0a\x01a\x01\0\0\0\x01x", &[("grpc-status", "0")]);
    let (_dir, weir) = weir(upstream.address(), "PROTO");
    let mut client = weir.client();
    client.send("GET /v1/replies/a HTTP/1.1\r\nHost: weir.test\r\n\r\n");
    assert!(client.try_read_response().is_err(), "nobody may take it for whole");
}

#[test]
fn details_and_trailers_reach_the_client() {
    // google.rpc.Status with code 5, message `no`, and an ErrorInfo with reason `R`.
    const DETAILS: &str = "CAUSAm5vGi8KKHR5cGUuZ29vZ2xlYXBpcy5jb20vZ29vZ2xlLnJwYy5FcnJvckluZm8SAwoBUg==";
    let failed = peer(
        b"",
        &[("grpc-status", "5"), ("grpc-message", "no%20such"), ("grpc-status-details-bin", DETAILS)],
    );
    let (_dir, weir) = weir(failed.address(), "PROTO");
    let answer = weir.client().get("/v1/hello/a");
    answer.expect_status(404).expect_header("x-head", "h").expect_no_header("grpc-message");
    let want = json!({
        "code": 5, "message": "no such",
        "details": [{ "@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "R" }]
    });
    assert_eq!(answer.json(), want);
    let fine = peer(b"\0\0\0\0\x03\x0a\x01a", &[("grpc-status", "0"), ("x-cost", "7"), ("x-other", "8")]);
    let (_dir, weir) = self::weir(fine.address(), "PROTO, metadata: { response: [ x-cost ] }");
    let answer = weir.client().get("/v1/hello/a");
    answer
        .expect_status(200)
        .expect_header("x-cost", "7")
        .expect_no_header("x-other")
        .expect_header("x-head", "h");
}

#[test]
fn deadlines_reach_the_service_and_hold() {
    let upstream = H2Origin::new(Options::default(), |peer, stream, request| {
        let timeout = request.header("grpc-timeout").unwrap_or("none").to_owned();
        let head = [(":status", "200"), ("content-type", "application/grpc"), ("x-timeout", &timeout)];
        peer.send(&Frame::headers(stream, &head, false));
        peer.send(&Frame::data(stream, b"\0\0\0\0\0", false));
        peer.send(&Frame::headers(stream, &[("grpc-status", "0")], true));
    });
    let (_dir, config) = config(upstream.address(), "PROTO", "timeouts: { exchange: 100s },");
    let weir = Weir::start(&config);
    let ms = |answer: &Response| {
        let text = answer.expect_status(200).header("x-timeout").unwrap().to_owned();
        text.strip_suffix('m').unwrap_or_else(|| panic!("{text}")).parse::<u64>().unwrap()
    };
    let own = ms(&weir.client().get("/v1/hello/a"));
    assert!((1..=100_000).contains(&own), "the route's: {own}");
    let asked = "GET /v1/hello/a HTTP/1.1\r\nHost: weir.test\r\nGrpc-Timeout: 90000m\r\n\r\n";
    assert_eq!(ms(&weir.client().ask(asked)), 90_000, "the client's is shorter");
    let origin = origin();
    let (_dir, weir) = self::weir(origin.address(), "PROTO");
    let late = "GET /v1/hello/a?delayMs=60000 HTTP/1.1\r\nHost: weir.test\r\nGrpc-Timeout: 50m\r\n\r\n";
    let answer = weir.client().ask(late);
    answer.expect_status(504);
    assert_eq!(answer.json()["code"], 4);
}

/// A stream that breaks off ends with a line or an event that says so. If a server resets a call at its deadline, the
/// deadline was missed.
#[test]
fn a_stream_that_is_cut_tells_so() {
    for (resets, timeout, code) in [(false, "300m", 4), (true, "5m", 4), (true, "100S", 14)] {
        let upstream = breaks_off(false, resets);
        let (_dir, weir) = weir(upstream.address(), "PROTO");
        let ask = |accept: &str| {
            let head = format!(
                "GET /v1/replies/Ann HTTP/1.1\r\nHost: weir.test\r\nAccept: {accept}\r\nGrpc-Timeout: {timeout}\r\n\r\n"
            );
            weir.client().ask(head)
        };
        let answer = ask("*/*");
        // If not even its head had arrived by then, the answer is an error.
        if answer.status == 200 {
            let text = answer.text();
            let last: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
            assert_eq!(last["error"]["code"], code, "{text}");
        } else {
            assert_eq!(answer.json()["code"], code);
        }
        let answer = ask("text/event-stream");
        let text = answer.text();
        let told = text.contains(&format!("\"code\":{code}"));
        assert!(told && (answer.status != 200 || text.contains("event: error\ndata: {")), "{text}");
    }
}

/// A unary call that its server resets at the deadline missed it; one that is reset long before did not.
#[test]
fn a_reset_at_the_deadline_is_told_as_such() {
    let upstream = H2Origin::new(Options::default(), |peer, stream, _| peer.reset(stream, code::CANCEL));
    let (_dir, weir) = weir(upstream.address(), "PROTO");
    for (timeout, status, told) in [("5m", 504, 4), ("100S", 502, 14)] {
        let answer = weir
            .client()
            .ask(format!("GET /v1/hello/a HTTP/1.1\r\nHost: weir.test\r\nGrpc-Timeout: {timeout}\r\n\r\n"));
        assert_eq!(answer.expect_status(status).json()["code"], told, "{timeout}");
    }
    // The same over gRPC itself.
    let mut h2 = weir.h2();
    for (timeout, told) in [("5m", "4"), ("100S", "14")] {
        let fields = [
            (":method", "POST"),
            (":scheme", "http"),
            (":path", "/helloworld.v1.Greeter/SayHello"),
            (":authority", "weir.test"),
            ("content-type", "application/grpc"),
            ("grpc-timeout", timeout),
        ];
        let id = h2.request(&fields, false);
        h2.data(id, b"\0\0\0\0\0", true);
        assert_eq!(h2.message(id).header("grpc-status"), Some(told), "{timeout}");
    }
}

#[test]
fn a_service_tells_of_itself() {
    let origin = origin();
    let address = origin.address();
    let (_dir, weir) =
        weir(address, "reflection: true, unannotated: true, services: [ helloworld.v1.Greeter ]");
    let ask = |weir: &Weir| weir.client().ask(post("/helloworld.v1.Greeter/SayHello", "{\"name\":\"Ann\"}"));
    assert_eq!(ask(&weir).expect_status(200).json(), json!({ "message": "hello Ann" }));
    // Its description stays known after it has stopped.
    origin.stop();
    let answer = ask(&weir);
    assert!(matches!(answer.status, 502..=504), "{}", answer.status);
    assert!(answer.json()["code"].is_u64(), "{}", answer.text());
    weir.client().get("/nothing").expect_cause(GRPC_NO_METHOD);
}

#[test]
fn a_service_that_does_not_tell() {
    let (_dir, weir) = weir(unused_address(), "reflection: true");
    weir.client().get("/v1/hello/a").expect_cause(GRPC_NOT_DESCRIBED);
    weir.wait_log("a service did not describe its methods");
}

/// If causes are not exposed, a client learns its request's id and the mistakes in its own message, but nothing about
/// the upstream.
#[test]
fn strangers_get_neutral_words() {
    let start = |settings: &str, more: &str| {
        let (dir, config) = config(unused_address(), settings, "");
        (
            dir,
            Weir::start(&format!("{}{more}", config.replace("expose_causes: true", "expose_causes: false"))),
        )
    };
    let told = |answer: &Response| {
        let json = answer.json();
        let detail =
            json["details"].as_array().and_then(|details| details.last()).cloned().unwrap_or_default();
        assert_eq!(detail["@type"], "type.googleapis.com/google.rpc.RequestInfo", "{}", answer.text());
        let id = detail["requestId"].as_str().unwrap_or_default().to_owned();
        (json["message"].as_str().unwrap_or_default().to_owned(), id)
    };
    let neutral = "The service is not available now.";
    let (_dir, weir) = start("reflection: true", "access_log: { output: stdout }\n");
    let answer = weir.client().get("/v1/hello/a");
    answer.expect_status(503).expect_no_header("x-weir-cause");
    let (message, id) = told(&answer);
    assert_eq!(message, neutral);
    let line = weir.wait_stdout("grpc_not_described");
    assert!(line.contains(&format!("\"request_id\":\"{id}\"")) && id.len() == 32, "{line}");
    // Nobody listens, and the request does not fit, or its path does not exist.
    let (_dir, weir) = start("PROTO", "");
    let ask = |path: &str| told(&weir.client().get(path)).0;
    assert_eq!(ask("/v1/hello/a"), "The service gave no valid answer.");
    assert_eq!(ask("/nothing"), "There is nothing here.");
    assert!(ask("/v1/hello/a?code=x").starts_with("code: expected a whole number"));
}

#[test]
fn it_is_described_and_explained() {
    let origin = origin();
    let openapi = "PROTO, openapi: { path: /openapi.json, page: /docs, title: Greetings }";
    let (dir, config) = config(origin.address(), openapi, "");
    let weir = Weir::start(&config);
    let described = weir.client().get("/openapi.json");
    let described = described.expect_status(200).expect_header("content-type", "application/json").json();
    assert_eq!(described["openapi"], "3.1.0");
    assert_eq!(described["paths"]["/v1/hello/{name}"]["get"]["summary"], "Says hello.");
    weir.client().get("/docs").expect_status(200).expect_body_with("/openapi.json");
    fs::write(dir.path().join("weir.yaml"), &config).unwrap();
    let explain =
        |method: &str, path: &str| run_weir(dir.path(), &["explain", "-c", "weir.yaml", method, path]);
    explain("GET", "/v1/hello/a")
        .expect_code(0)
        .expect_text("calls /helloworld.v1.Greeter/SayHello by GET /v1/hello/{name} (greeter.proto:7)");
    explain("PUT", "/v1/hello").expect_text("405 grpc_wrong_method: the path is known for POST");
}

#[test]
fn a_refused_rule_costs_its_own_method_only() {
    let origin = origin();
    let (dir, config) = config(origin.address(), "PROTO", "");
    let proto = dir.path().join("greeter.proto");
    let refused = PROTO.replace("/v1/replies/{name}", "/v1/replies/{nope}");
    let refused = refused.replace("{ post: \"/v1/greetings\" body: \"*\" }", "{ post: \"/v1/greetings\" }");
    fs::write(&proto, refused).unwrap();
    fs::write(dir.path().join("weir.yaml"), &config).unwrap();
    run_weir(dir.path(), &["check", "-c", "weir.yaml"])
        .expect_code(0)
        .expect_text("grpc-rule")
        .expect_text("greeter.proto:10: helloworld.v1.Greeter/LotsOfReplies: GET /v1/replies/{nope}")
        .expect_text("helloworld.v1.Greeter/LotsOfGreetings: POST /v1/greetings");
    run_weir(dir.path(), &["explain", "-c", "weir.yaml", "GET", "/v1/replies/Ann"])
        .expect_text("501 grpc_rule_refused: greeter.proto:10: helloworld.v1.Greeter/LotsOfReplies");
    let weir = Weir::start(&config);
    weir.client().get("/v1/hello/Ann").expect_status(200);
    weir.client().get("/v1/replies/Ann").expect_cause(GRPC_RULE_REFUSED);
    weir.client().ask(post("/v1/greetings", "[]")).expect_cause(GRPC_RULE_REFUSED);
    // If no method is left, the config is refused.
    fs::write(&proto, PROTO.replace("{name}", "{nope}").replace("\"*\"", "\"nope\"")).unwrap();
    run_weir(dir.path(), &["check", "-c", "weir.yaml"])
        .expect_code(1)
        .expect_text("helloworld.v1.Greeter/SayHello: GET /v1/hello/{nope}");
}

/// A service's self-description is not config: its valid rules are served, and the log and `weir status` name the
/// others.
#[test]
fn a_refused_rule_of_reflection_is_named() {
    let dir = TempDir::new().unwrap();
    let proto = dir.path().join("t.proto");
    let text = "syntax = \"proto3\"; package t; import \"google/api/annotations.proto\"; message M { string a = 1; }\n\
        service G {\n  rpc A(M) returns (M) { option (google.api.http) = { get: \"/v1/a\" }; }\n\
          rpc B(M) returns (M) { option (google.api.http) = { get: \"/v1/{b}\" }; } }";
    fs::write(&proto, text).unwrap();
    let api = concat!(env!("CARGO_MANIFEST_DIR"), "/../weir-transcode/protos");
    let mut compiler = protox::Compiler::new([dir.path(), Path::new(api)]).unwrap();
    compiler.include_imports(true).open_file(&proto).unwrap();
    let (set, mut files) = (compiler.encode_file_descriptor_set(), Vec::new());
    let mut rest = &set[..];
    while !rest.is_empty() {
        // Each file of the set follows its tag and its length.
        let digits = rest.iter().skip(1).take_while(|byte| **byte > 127).count() + 1;
        let length =
            rest.iter().skip(1).take(digits).rev().fold(0, |n, byte| n << 7 | usize::from(byte & 127));
        let (file, after) = rest.split_at(1 + digits).1.split_at(length);
        files.push(file.to_vec());
        rest = after;
    }
    let upstream = telling(move || Some(files.clone()));
    let (_dir, weir) = weir(upstream.address(), "reflection: true, services: [ t.G ]");
    weir.client().get("/v1/a").expect_status(200).expect_body("{\"a\":\"a\"}");
    weir.client().get("/v1/x").expect_cause(GRPC_RULE_REFUSED);
    let line = weir.wait_log("a google.api.http rule is not served");
    let why = line.field("why").unwrap_or_default();
    assert!(why.contains("t.G/B: GET /v1/{b}: t.M has no field `b`"), "{line:?}");
}

/// A service with the closure's descriptors; `None` makes reflection fail. Every other call is answered.
fn telling(files: impl Fn() -> Option<Vec<Vec<u8>>> + Send + Sync + 'static) -> H2Origin {
    let field = |number: u8, bytes: &[u8]| {
        let mut out = vec![number << 3 | 2];
        let mut length = bytes.len();
        while length > 127 {
            out.push(u8::try_from(length & 127).unwrap() | 128);
            length >>= 7;
        }
        out.push(u8::try_from(length).unwrap());
        out.extend_from_slice(bytes);
        out
    };
    H2Origin::new(Options::default(), move |peer, stream, request| {
        let asks = request.header(":path").is_some_and(|path| path.ends_with("/ServerReflectionInfo"));
        let answer = if asks {
            files().map(|files| field(4, &files.iter().flat_map(|file| field(1, file)).collect::<Vec<u8>>()))
        } else {
            Some(field(1, b"a"))
        };
        let head = [(":status", "200"), ("content-type", "application/grpc")];
        peer.send(&Frame::headers(stream, &head, false));
        let status = if let Some(message) = answer {
            let length = u32::try_from(message.len()).unwrap().to_be_bytes();
            peer.send(&Frame::data(stream, [&[0], &length[..], &message].concat(), false));
            "0"
        } else {
            "14"
        };
        peer.send(&Frame::headers(stream, &[("grpc-status", status)], true));
    })
}

#[test]
fn a_service_that_changes_under_load() {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    let dir = TempDir::new().unwrap();
    let compiled = |methods: &str| {
        let proto = dir.path().join("t.proto");
        let text = format!(
            "syntax = \"proto3\"; package t; service G {{ {methods} }} message M {{ string a = 1; }}"
        );
        fs::write(&proto, text).unwrap();
        let mut compiler = protox::Compiler::new([dir.path()]).unwrap();
        let set = compiler.open_file(&proto).unwrap().encode_file_descriptor_set();
        // The set's only file, without tag and length.
        set.get(2..).unwrap().to_vec()
    };
    let files = [compiled("rpc A(M) returns (M);"), compiled("rpc A(M) returns (M); rpc B(M) returns (M);")];
    assert!(files.iter().all(|file| file.len() < 128), "a length of one byte");
    let at = Arc::new(AtomicUsize::new(0));
    let told = Arc::clone(&at);
    let upstream = telling(move || Some(vec![files.get(told.load(Ordering::SeqCst))?.clone()]));
    let (_dir, weir) =
        weir(upstream.address(), "reflection: true, unannotated: true, refresh: 1s, services: [ t.G ]");
    weir.client().ask(post("/t.G/A", "{}")).expect_status(200).expect_body("{\"a\":\"a\"}");
    weir.client().ask(post("/t.G/B", "{}")).expect_cause(GRPC_NO_METHOD);
    /// Stops the callers, even if an assertion fails.
    struct Over<'a>(&'a AtomicBool);
    impl Drop for Over<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let ends = Over(&over);
        let callers: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    let mut client = weir.client();
                    while !over.load(Ordering::SeqCst) {
                        client.ask(post("/t.G/A", "{}")).expect_status(200);
                    }
                })
            })
            .collect();
        at.store(1, Ordering::SeqCst);
        eventually("the new method is there", || {
            let status = weir.client().ask(post("/t.G/B", "{}")).status;
            assert!(matches!(status, 200 | 404), "{status}");
            status == 200
        });
        // Reflection fails from now on: the known description stays.
        at.store(2, Ordering::SeqCst);
        weir.wait_log("a service did not describe its methods");
        weir.client().ask(post("/t.G/B", "{}")).expect_status(200);
        // And fewer methods: the method is gone.
        at.store(0, Ordering::SeqCst);
        eventually("the method is gone", || weir.client().ask(post("/t.G/B", "{}")).status == 404);
        drop(ends);
        callers.into_iter().for_each(|caller| caller.join().unwrap());
    });
}
