//! Requests and responses through the filter alone. Conversations with a real service are in `e2e/grpc_json.rs`.

use super::*;
use crate::testing::Stand;
use serde_json::{Value, json};
use std::path::PathBuf;
use tempfile::TempDir;

const PROTO: &str = "syntax = \"proto3\";\npackage t.v1;\nimport \"google/api/annotations.proto\";\n\
    service Greeter {\n\
      rpc Hello(Ask) returns (Reply) { option (google.api.http) = { get: \"/v1/hello/{name}\" additional_bindings { post: \"/v1/hello\" body: \"*\" } }; }\n\
      rpc Watch(Ask) returns (stream Reply) { option (google.api.http) = { get: \"/v1/watch\" }; }\n\
      rpc Many(stream Ask) returns (Reply) { option (google.api.http) = { post: \"/v1/many\" body: \"*\" }; }\n\
      rpc Chat(stream Ask) returns (stream Reply) { option (google.api.http) = { post: \"/v1/chat\" body: \"*\" }; }\n\
      rpc Exists(Ask) returns (Reply) { option (google.api.http) = { custom: { kind: \"HEAD\" path: \"/v1/exists/{name}\" } }; }\n\
    }\nmessage Ask { string name = 1; int32 times = 2; }\nmessage Reply { string message = 1; }\n";

/// A folder with a proto, and the settings that read it.
fn settings(more: Value) -> (TempDir, Value) {
    let dir = TempDir::new().unwrap();
    std::fs::write(dir.path().join("t.proto"), PROTO).unwrap();
    let mut settings = json!({ "proto": [dir.path().join("t.proto")] });
    for (key, value) in more.as_object().unwrap() {
        settings[key] = value.clone();
    }
    (dir, settings)
}

fn stand(more: Value) -> (TempDir, Stand) {
    let (dir, settings) = settings(more);
    (dir, Stand::new(&KIND, settings))
}

#[tokio::test]
async fn a_request_becomes_a_call() {
    let (_dir, mut stand) = stand(json!({}));
    let mut exchange = stand
        .build()
        .request("GET /v1/hello/a%20b?times=3\nAccept: application/json\nX-Tenant: 7\nGrpc-Status: 0")
        .await;
    exchange
        .expect_continue()
        .expect_target("/t.v1.Greeter/Hello")
        .expect_header("content-type", "application/grpc");
    exchange.expect_header("x-tenant", "7").expect_no_header("accept").expect_no_header("grpc-status");
    assert_eq!(exchange.head.method_name(), b"POST");
    assert_eq!(exchange.head.received_method(), b"GET");
    assert_eq!(exchange.cx.whole(), b"\0\0\0\0\x07\x10\x03\x0a\x03a b");
}

#[tokio::test]
async fn head_calls_where_a_rule_says_so() {
    let (_dir, mut stand) = stand(json!({}));
    let running = stand.build();
    let mut exchange = running.request("HEAD /v1/exists/a").await;
    exchange.expect_continue().expect_target("/t.v1.Greeter/Exists");
    assert_eq!((exchange.head.method_name(), exchange.head.received_method()), (&b"POST"[..], &b"HEAD"[..]));
}

#[tokio::test]
async fn metadata_passes_by_list() {
    let (_dir, mut stand) = stand(json!({ "metadata": { "request": ["x-tenant"] } }));
    let request = "GET /v1/hello/a\nX-Tenant: 7\nCookie: c\nGrpc-Timeout: 1S\nTraceparent: t";
    let mut exchange = stand.build().request(request).await;
    exchange.expect_continue().expect_header("x-tenant", "7").expect_no_header("cookie");
    exchange.expect_header("grpc-timeout", "1S").expect_header("traceparent", "t");
}

/// Rules that are not served are counted and named, for `weir status` and the metrics.
#[tokio::test]
async fn refused_rules_are_counted_and_named() {
    let dir = TempDir::new().unwrap();
    let proto = dir.path().join("t.proto");
    let text = PROTO
        .replace("/v1/watch", "/v1/watch/{nope}")
        .replace("post: \"/v1/many\" body: \"*\"", "post: \"/v1/many\"");
    std::fs::write(&proto, text).unwrap();
    let running = Stand::new(&KIND, json!({ "proto": [proto] })).build();
    let read: Vec<_> = running.readings().into_iter().map(|r| (r.figure.what, r.of, r.value)).collect();
    let want = [
        ("methods", "", 5),
        ("rules", "", 4),
        ("rules_refused", "", 2),
        ("refused", "t.v1.Greeter/Many", 1),
        ("refused", "t.v1.Greeter/Watch", 1),
    ];
    assert_eq!(read, want.map(|(what, of, value)| (what, of.to_owned(), value)));
    let mut exchange = running.request("GET /v1/watch/a").await;
    exchange.expect_status(501);
    assert_eq!(exchange.cx.because(), Some(&RULE_REFUSED));
    running.request("GET /v1/hello/a").await.expect_continue();
}

#[tokio::test]
async fn what_does_not_fit_is_answered() {
    let (_dir, mut stand) = stand(json!({}));
    let running = stand.build();
    for (request, body, status, wrong) in [
        ("GET /v1/hello/a?times=x", "", 400, "times: expected a whole number of 32 bits"),
        ("GET /v1/hello/a?nope=1", "", 400, "has no field `nope`"),
        ("POST /v1/hello\nContent-Length: 1", "{\"name\":1}", 400, "name: expected text"),
        ("POST /v1/hello\nContent-Length: 1", "{", 400, "this is not JSON"),
        ("POST /v1/hello\nContent-Length: 1\nContent-Encoding: br", "x", 400, "compressed"),
        ("POST /v1/hello\nContent-Length: 1\nContent-Encoding: gzip", "x", 400, "not gzip"),
        ("GET /v1/nope", "", 404, "No google.api.http rule"),
        ("PUT /v1/hello", "", 405, "known for POST"),
        ("HEAD /v1/hello/a", "", 405, "known for GET"),
        ("GET /v1/hello/a\nGrpc-Timeout: soon", "", 400, "grpc-timeout: expected up to eight digits"),
    ] {
        let mut exchange = if body.is_empty() {
            running.request(request).await
        } else {
            running.request_with(request, body).await
        };
        exchange.expect_status(status);
        let Flow::Answer(answer) = &exchange.flow else { panic!("{request}") };
        let Body::Bytes(told) = &answer.body else { panic!("{request}") };
        let told = String::from_utf8_lossy(told);
        assert!(told.contains(wrong), "{request}: {told}");
    }
    running.request("PUT /v1/hello").await.expect_status(405).expect_header("allow", "POST");
}

/// Bidirectional streams: the whole request is read, then sent.
#[tokio::test]
async fn a_conversation_has_its_whole_request_first() {
    let (_dir, mut stand) = stand(json!({}));
    let running = stand.build();
    let mut exchange =
        running.request_with("POST /v1/chat\nContent-Length: 1", "{\"name\":\"a\"}\n{\"name\":\"b\"}").await;
    exchange.expect_continue().expect_target("/t.v1.Greeter/Chat");
    assert_eq!(exchange.cx.whole(), b"\0\0\0\0\x03\x0a\x01a\0\0\0\0\x03\x0a\x01b");
    let response = exchange.response("200\ncontent-type: application/grpc\ntransfer-encoding: chunked");
    response.expect_header("content-type", "application/x-ndjson");
    let told = exchange.response_body(b"\0\0\0\0\x03\x0a\x01a", false).unwrap();
    assert_eq!(String::from_utf8(told).unwrap(), "{\"message\":\"a\"}\n");
}

#[tokio::test]
async fn what_is_grpc_already_passes() {
    let (_dir, mut stand) = stand(json!({}));
    let mut exchange = stand
        .build()
        .request("POST /t.v1.Greeter/Hello\nContent-Type: application/grpc\nContent-Length: 0")
        .await;
    exchange.expect_continue().expect_target("/t.v1.Greeter/Hello");
}

#[tokio::test]
async fn requests_that_nobody_names_may_pass() {
    let (_dir, mut stand) = stand(json!({ "unmatched": "pass" }));
    let running = stand.build();
    running.request("GET /other?a=1").await.expect_continue().expect_target("/other?a=1");
    running.request("DELETE /v1/hello").await.expect_status(405);
}

#[tokio::test]
async fn a_stream_of_requests_in_any_pieces() {
    let (_dir, mut stand) = stand(json!({}));
    let running = stand.build();
    let mut exchange = running.request("POST /v1/many\nTransfer-Encoding: chunked").await;
    exchange.expect_continue().expect_target("/t.v1.Greeter/Many");
    assert_eq!(exchange.body(b"[{\"na", false).unwrap(), b"");
    assert_eq!(exchange.body(b"me\":\"a\"},{\"name\"", false).unwrap(), b"\0\0\0\0\x03\x0a\x01a");
    assert_eq!(exchange.body(b":\"b\"}]", true).unwrap(), b"\0\0\0\0\x03\x0a\x01b");
    let mut exchange = running.request("POST /v1/many\nTransfer-Encoding: chunked").await;
    let refused = exchange.body(b"{\"name\":\"a\"}\n{\"nope\":1}\n", false);
    assert_eq!(refused.unwrap_err(), &REQUEST_MALFORMED);
}

#[tokio::test]
async fn answers_that_hold_a_status() {
    let (_dir, mut stand) = stand(json!({}));
    let running = stand.build();
    let mut exchange = running.request("GET /v1/hello/a").await;
    exchange.expect_continue();
    let mut head = head("200\ncontent-type: application/grpc\ngrpc-status: 5\ngrpc-message: no%20such");
    let flow = exchange.on_response(&mut head);
    let Flow::Answer(answer) = flow else { panic!("{flow:?}") };
    assert_eq!(answer.status, 404);
    let Body::Bytes(body) = &answer.body else { panic!() };
    let told: Value = serde_json::from_slice(body).unwrap();
    assert_eq!(told, json!({ "code": 5, "message": "no such", "details": [] }));
}

#[tokio::test]
async fn answers_that_are_no_grpc() {
    let (_dir, mut stand) = stand(json!({ "errors": "problem" }));
    let mut exchange = stand.build().request("GET /v1/hello/a").await;
    let flow = exchange.on_response(&mut head("200\ncontent-type: text/html"));
    let Flow::Answer(answer) = flow else { panic!("{flow:?}") };
    assert_eq!(answer.status, 502);
}

#[tokio::test]
async fn a_stream_of_answers() {
    let (_dir, mut stand) = stand(json!({}));
    let running = stand.build();
    for (accept, media, first, failed) in [
        ("*/*", "application/x-ndjson", "{\"message\":\"a\"}\n", "{\"error\":{\"code\":2,"),
        (
            "text/event-stream",
            "text/event-stream",
            "data: {\"message\":\"a\"}\n\n",
            "event: error\ndata: {\"code\":2,",
        ),
    ] {
        let mut exchange = running.request(&format!("GET /v1/watch\nAccept: {accept}")).await;
        exchange.expect_continue().expect_target("/t.v1.Greeter/Watch");
        let response = exchange.response("200\ncontent-type: application/grpc\ntransfer-encoding: chunked");
        response.expect_header("content-type", media);
        assert_eq!(response.body_use, Some(BodyUse::Change));
        assert_eq!(exchange.response_body(b"\0\0\0\0\x03", false).unwrap(), b"");
        let told = exchange.response_body(b"\x0a\x01a\0\0", false).unwrap();
        assert_eq!(String::from_utf8(told).unwrap(), first);
        assert_eq!(exchange.response_pause().unwrap(), b"");
        let told = exchange.response_body(b"\0\0\0", true).unwrap();
        let told = String::from_utf8(told).unwrap();
        assert!(told.contains(failed), "without a status it has failed: {told}");
    }
    let mut exchange = running.request("GET /v1/watch").await;
    exchange.response("200\ncontent-type: application/grpc\ntransfer-encoding: chunked");
    assert_eq!(exchange.response_body(b"\x01\0\0\0\x01x", false).unwrap_err(), &RESPONSE_MALFORMED);
}

#[tokio::test]
async fn the_api_is_described_where_it_is_asked() {
    let openapi = json!({ "openapi": { "path": "/openapi.json", "page": "/docs", "title": "Greetings" } });
    let (_dir, mut stand) = stand(openapi);
    let running = stand.build();
    let exchange = running.request("GET /openapi.json").await;
    let Flow::Answer(answer) = &exchange.flow else { panic!("{:?}", exchange.flow) };
    let Body::Bytes(body) = &answer.body else { panic!() };
    let described: Value = serde_json::from_slice(body).unwrap();
    assert_eq!(described["info"]["title"], "Greetings");
    let exchange = running.request("GET /docs").await;
    let Flow::Answer(answer) = &exchange.flow else { panic!("{:?}", exchange.flow) };
    let Body::Bytes(body) = &answer.body else { panic!() };
    assert!(String::from_utf8_lossy(body).contains("fetch(\"/openapi.json\")"));
    running.request("POST /openapi.json").await.expect_status(404);
}

#[test]
fn mistakes() {
    let (dir, sound) = settings(json!({}));
    let proto = dir.path().join("t.proto");
    let bad = |name: &str, text: &str| -> PathBuf {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let broken = bad("broken.proto", "syntax = \"proto3\";\nmessage M {\n  string s 1;\n}\n");
    let plain =
        bad("plain.proto", "syntax = \"proto3\";\nservice S { rpc A(M) returns (M); }\nmessage M {}\n");
    let wrong = bad(
        "wrong.proto",
        "syntax = \"proto3\";\nimport \"google/api/annotations.proto\";\nmessage M {}\nservice S {\n\
           rpc A(M) returns (M) { option (google.api.http) = { get: \"/{nope}\" }; }\n}\n",
    );
    for (settings, told) in [
        (json!({}), "nothing says what the service looks like"),
        (json!({ "proto": [proto], "reflection": true }), "exclude one another"),
        (json!({ "proto": [dir.path().join("none.proto")] }), "cannot be read"),
        (json!({ "proto": [broken] }), "broken.proto:3:12"),
        (json!({ "proto": [plain] }), "none of its methods has a rule"),
        (json!({ "proto": [wrong] }), "wrong.proto:5: S/A: GET /{nope}: M has no field `nope`"),
        (json!({ "descriptors": broken }), "not a set of descriptors"),
        (json!({ "proto": [proto], "services": ["t.v1.Nope"] }), "there is t.v1.Greeter"),
        (json!({ "proto": [proto], "refresh": "1m" }), "without reflection"),
        (json!({ "reflection": true, "refresh": "1ms" }), "shorter than 1s"),
        (json!({ "reflection": true, "upstream": "non" }), "no upstream `non`"),
        (json!({ "reflection": true }), "which upstream to ask"),
        (json!({ "proto": [proto], "limits": { "depth": 101 } }), "expected 1 to 100"),
        (json!({ "proto": [proto], "openapi": { "path": "docs" } }), "begins with /"),
        (json!({ "proto": [proto], "openapi": { "path": "/a", "page": "/a" } }), "path of the description"),
        (json!({ "proto": [proto], "json": { "nope": 1 } }), "nope"),
    ] {
        let mistakes = Stand::new(&KIND, settings.clone()).mistakes();
        assert!(mistakes.iter().any(|m| m.contains(told)), "{settings}: {mistakes:?}");
    }
    let mut stand = Stand::new(&KIND, sound);
    stand.build();
    assert_eq!(stand.watched()[0], proto);
}

/// The head of a response.
fn head(text: &str) -> ResponseHead {
    let (status, fields) = text.split_once('\n').unwrap_or((text, ""));
    let bytes = format!("HTTP/1.1 {status} Test\r\n{}\r\n\r\n", fields.replace('\n', "\r\n"));
    let mut head = ResponseHead::default();
    head.buffer_mut().extend_from_slice(bytes.as_bytes());
    let parsed = weir_h1::parse_response(&mut head, &weir_h1::Limits::default());
    assert_eq!(parsed, Ok(weir_h1::Progress::Complete));
    head
}
