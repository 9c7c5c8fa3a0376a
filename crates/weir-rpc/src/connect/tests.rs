//! Calls and responses through the filter alone. Conversations with a real service are in `e2e/connect.rs`.

use super::*;
use crate::testing::{Exchange, Running, Stand};
use serde_json::{Value, json};
use tempfile::TempDir;
use weir_h1::{Limits, Progress, parse_response};

const PROTO: &str = "syntax = \"proto3\";\npackage t.v1;\nservice Greeter {\n\
      rpc Hello(Ask) returns (Reply) { option idempotency_level = NO_SIDE_EFFECTS; }\n\
      rpc Change(Ask) returns (Reply);\n\
      rpc Chat(stream Ask) returns (stream Reply);\n\
    }\nmessage Ask { string name = 1; int32 times = 2; }\nmessage Reply { string message = 1; }\n";

/// A filter with the service's descriptors.
fn knowing(more: Value) -> (TempDir, Stand) {
    let dir = TempDir::new().unwrap();
    std::fs::write(dir.path().join("t.proto"), PROTO).unwrap();
    let mut settings = json!({ "proto": [dir.path().join("t.proto")] });
    for (key, value) in more.as_object().unwrap() {
        settings[key] = value.clone();
    }
    (dir, Stand::new(&KIND, settings))
}

const UNARY: &str = "POST /t.v1.Greeter/Hello\nContent-Type: application/proto\nConnect-Protocol-Version: 1\nContent-Length: 3";
const JSON: &str = "POST /t.v1.Greeter/Hello\nContent-Type: application/json\nContent-Length: 3";
const STREAM: &str =
    "POST /t.v1.Greeter/Chat\nContent-Type: application/connect+proto\nTransfer-Encoding: chunked";
const JSON_STREAM: &str =
    "POST /t.v1.Greeter/Chat\nContent-Type: application/connect+json\nTransfer-Encoding: chunked";
const GRPC: &str = "200\ncontent-type: application/grpc\ntransfer-encoding: chunked";

fn head(text: &str) -> ResponseHead {
    let (status, fields) = text.split_once('\n').unwrap_or((text, ""));
    let fields: String = fields.lines().map(|line| format!("{line}\r\n")).collect();
    let mut head = ResponseHead::default();
    head.buffer_mut().extend_from_slice(format!("HTTP/1.1 {status} Test\r\n{fields}\r\n").as_bytes());
    assert_eq!(parse_response(&mut head, &Limits::default()), Ok(Progress::Complete), "{text}");
    head
}

/// The response that the filter gave: its status, fields and body.
fn answered(flow: &Flow) -> (u16, Vec<(String, String)>, Vec<u8>) {
    let Flow::Answer(answer) = flow else { panic!("{flow:?}") };
    let Body::Bytes(body) = &answer.body else { panic!("{flow:?}") };
    let fields = answer.headers.iter();
    let fields = fields.map(|(n, v)| (n.as_str().to_owned(), String::from_utf8_lossy(v).into_owned()));
    (answer.status, fields.collect(), body.to_vec())
}

fn told(flow: &Flow) -> Value {
    serde_json::from_slice(&answered(flow).2).unwrap()
}

/// The last message of a stream.
fn end_of(body: &[u8]) -> Value {
    assert_eq!(body.first(), Some(&2), "{body:?}");
    serde_json::from_slice(&body[5..]).unwrap()
}

async fn refused(running: &Running, request: &str, body: &str) -> (u16, Value) {
    let exchange = running.request_with(request, body).await;
    (answered(&exchange.flow).0, told(&exchange.flow))
}

#[tokio::test]
async fn a_unary_call_goes_on_as_grpc() {
    let running = Stand::new(&KIND, json!({})).build();
    let request = format!(
        "{UNARY}\nConnect-Timeout-Ms: 1500\nAccept-Encoding: gzip, br;q=0.5, x;q=0, *\nX-Tenant: 7\nGrpc-Timeout: 9S"
    );
    let mut exchange = running.request_with(&request, "\x0a\x01a").await;
    exchange
        .expect_continue()
        .expect_header("content-type", "application/grpc")
        .expect_header("grpc-timeout", "1500m")
        .expect_header("grpc-accept-encoding", "gzip,br")
        .expect_header("x-tenant", "7")
        .expect_no_header("connect-protocol-version")
        .expect_no_header("connect-timeout-ms")
        .expect_no_header("accept-encoding")
        .expect_no_header("grpc-encoding");
    assert_eq!(exchange.cx.whole(), b"\0\0\0\0\x03\x0a\x01a");
}

#[tokio::test]
async fn a_compressed_message_passes_as_it_is() {
    let running = Stand::new(&KIND, json!({})).build();
    let mut exchange = running.request_with(&format!("{UNARY}\nContent-Encoding: zstd"), "xyz").await;
    exchange.expect_continue().expect_header("grpc-encoding", "zstd").expect_no_header("content-encoding");
    assert_eq!(exchange.cx.whole(), b"\x01\0\0\0\x03xyz");
    let mut exchange = running.request(&format!("{STREAM}\nConnect-Content-Encoding: gzip")).await;
    exchange.expect_continue().expect_header("grpc-encoding", "gzip");
}

#[tokio::test]
async fn json_becomes_messages_and_messages_json() {
    let (_dir, mut stand) = knowing(json!({}));
    let running = stand.build();
    let mut exchange = running.request_with(JSON, "{\"name\":\"a\",\"later\":1}").await;
    exchange.expect_continue().expect_header("grpc-accept-encoding", "gzip");
    assert_eq!(exchange.cx.whole(), b"\0\0\0\0\x03\x0a\x01a");
    let (status, told) = refused(&running, JSON, "{\"name\":1}").await;
    assert_eq!((status, &told["code"]), (400, &json!("invalid_argument")), "{told}");
    assert_eq!(told["details"][0]["type"], "google.rpc.BadRequest");
    let (_dir, mut stand) = knowing(json!({ "json": { "unknown": "refuse" } }));
    assert_eq!(refused(&stand.build(), JSON, "{\"later\":1}").await.0, 400);
}

#[tokio::test]
async fn a_call_in_the_query() {
    let (_dir, mut stand) = knowing(json!({}));
    let running = stand.build();
    let path = "GET /t.v1.Greeter/Hello?connect=v1";
    for query in ["encoding=proto&base64=1&message=CgFh", "encoding=json&message=%7B%22name%22:%22a%22%7D"] {
        let mut exchange = running.request(&format!("{path}&{query}")).await;
        exchange.expect_continue().expect_target("/t.v1.Greeter/Hello");
        assert_eq!(exchange.head.method_name(), b"POST");
        assert_eq!(exchange.cx.whole(), b"\0\0\0\0\x03\x0a\x01a", "{query}");
    }
    for (request, status, code) in [
        ("GET /t.v1.Greeter/Change?connect=v1&encoding=proto&message=", 405, "unknown"),
        ("GET /t.v1.Greeter/Hello?connect=v2&encoding=proto&message=", 400, "invalid_argument"),
        ("GET /t.v1.Greeter/Hello?connect=v1&encoding=proto", 400, "invalid_argument"),
        ("GET /t.v1.Greeter/Hello?connect=v1&message=", 400, "invalid_argument"),
        ("GET /t.v1.Greeter/Hello?connect=v1&encoding=foo&message=", 415, "unknown"),
        ("GET /t.v1.Greeter/Hello?connect=v1&encoding=proto&base64=1&message=!", 400, "invalid_argument"),
        ("GET /t.v1.Greeter/Hello?encoding=json&compression=br&message=a", 501, "unimplemented"),
    ] {
        let exchange = running.request(request).await;
        assert_eq!(answered(&exchange.flow).0, status, "{request}");
        assert_eq!(told(&exchange.flow)["code"], code, "{request}");
    }
}

#[tokio::test]
async fn what_is_wrong_with_a_call() {
    let (_dir, mut stand) = knowing(json!({}));
    let knows = stand.build();
    let blind = Stand::new(&KIND, json!({})).build();
    for (running, request, status, code) in [
        (
            &blind,
            "POST /t.v1.Greeter/Hello\nContent-Type: application/json\nConnect-Protocol-Version: 1\nContent-Length: 2",
            415,
            "unknown",
        ),
        (
            &blind,
            "POST /a.B/C\nContent-Type: application/foo\nConnect-Protocol-Version: 1\nContent-Length: 2",
            415,
            "unknown",
        ),
        (&blind, "POST /a.B/C\nContent-Type: application/connect+foo\nContent-Length: 2", 415, "unknown"),
        (&blind, "DELETE /a.B/C\nContent-Type: application/proto\nContent-Length: 2", 405, "unknown"),
        (
            &blind,
            "POST /a.B/C\nContent-Type: application/proto\nConnect-Protocol-Version: 2\nContent-Length: 2",
            400,
            "invalid_argument",
        ),
        (
            &blind,
            "POST /a.B/C\nContent-Type: application/proto\nConnect-Timeout-Ms: 1s\nContent-Length: 2",
            400,
            "invalid_argument",
        ),
        (
            &knows,
            "POST /t.v1.Greeter/Nope\nContent-Type: application/proto\nContent-Length: 2",
            404,
            "unimplemented",
        ),
        (
            &knows,
            "POST /t.v1.Greeter/Hello\nContent-Type: application/json\nContent-Encoding: br\nContent-Length: 2",
            501,
            "unimplemented",
        ),
        (
            &knows,
            "POST /t.v1.Greeter/Hello\nContent-Type: application/json\nContent-Encoding: gzip\nContent-Length: 2",
            400,
            "invalid_argument",
        ),
    ] {
        let (actual, told) = refused(running, request, "{}").await;
        assert_eq!((actual, &told["code"]), (status, &json!(code)), "{request}: {told}");
    }
    // A stream gets the error in its last message.
    let exchange = knows.request(&format!("{STREAM}\nConnect-Protocol-Version: 2")).await;
    let (status, _, body) = answered(&exchange.flow);
    assert_eq!((status, &end_of(&body)["error"]["code"]), (200, &json!("invalid_argument")));
}

#[tokio::test]
async fn what_is_none_of_ours_passes() {
    let (_dir, mut stand) = knowing(json!({}));
    for running in [&stand.build(), &Stand::new(&KIND, json!({})).build()] {
        for request in [
            "GET /",
            "GET /t.v1.Greeter/Hello?name=a",
            "OPTIONS /t.v1.Greeter/Hello\nConnect-Protocol-Version: 1",
            "PUT /v1/hello\nContent-Type: application/json\nContent-Length: 0",
            "POST /v1/hello\nContent-Type: application/json\nContent-Length: 0",
            "POST /t.v1.Greeter/Hello\nContent-Type: application/grpc\nContent-Length: 0",
            "POST /t.v1.Greeter/Hello\nContent-Type: application/grpc-web\nConnect-Protocol-Version: 1\nContent-Length: 0",
            "POST /t.v1.Greeter/Hello\nContent-Type: image/png\nContent-Length: 0",
        ] {
            let mut exchange = running.request(request).await;
            exchange.expect_continue();
            let response =
                exchange.response("200\ncontent-type: application/grpc\ntransfer-encoding: chunked");
            assert_eq!(response.body_use, Some(BodyUse::Pass), "{request}");
        }
    }
}

#[tokio::test]
async fn a_failure_in_the_head() {
    let running = Stand::new(&KIND, json!({})).build();
    let failed =
        "200\ncontent-type: application/grpc\ngrpc-status: 5\ngrpc-message: no%20such\nx-cost: 7\ndate: x";
    let mut exchange = running.request_with(UNARY, "").await;
    let flow = exchange.on_response(&mut head(failed));
    let (status, fields, _) = answered(&flow);
    assert_eq!(status, 404);
    assert_eq!(told(&flow), json!({ "code": "not_found", "message": "no such" }));
    let has = |name: &str, value: &str| fields.contains(&(name.to_owned(), value.to_owned()));
    assert!(has("trailer-x-cost", "7") && has("date", "x") && has("content-type", "application/json"));
    let mut exchange = running.request(STREAM).await;
    let (status, fields, body) = answered(&exchange.on_response(&mut head(failed)));
    assert_eq!(status, 200);
    assert!(fields.contains(&("content-type".to_owned(), "application/connect+proto".to_owned())));
    let want =
        json!({ "error": { "code": "not_found", "message": "no such" }, "metadata": { "x-cost": ["7"] } });
    assert_eq!(end_of(&body), want);
}

#[tokio::test]
async fn answers_that_are_not_grpc() {
    let running = Stand::new(&KIND, json!({})).build();
    for (answer, status, code) in [
        ("503\ncontent-type: text/html", 503, "unavailable"),
        ("200\ncontent-type: text/html", 500, "unknown"),
    ] {
        let mut exchange = running.request_with(UNARY, "").await;
        let flow = exchange.on_response(&mut head(answer));
        assert_eq!((answered(&flow).0, &told(&flow)["code"]), (status, &json!(code)), "{answer}");
    }
}

/// A response stream, in pieces of this size.
fn streamed(exchange: &mut Exchange, body: &[u8], size: usize) -> Vec<u8> {
    let mut out = Vec::new();
    for piece in body.chunks(size) {
        out.extend(exchange.response_body(piece, false).unwrap());
    }
    out.extend(exchange.response_body(b"", true).unwrap());
    out
}

#[tokio::test]
async fn a_stream_of_answers_ends_with_its_status() {
    let (_dir, mut stand) = knowing(json!({}));
    let running = stand.build();
    let body = b"\0\0\0\0\x03\x0a\x01a\0\0\0\0\x03\x0a\x01b";
    for size in 1..=body.len() {
        let mut exchange = running.request(STREAM).await;
        let response = exchange.expect_continue().response(&format!("{GRPC}\ngrpc-encoding: zstd"));
        response.expect_header("content-type", "application/connect+proto");
        response.expect_header("connect-content-encoding", "zstd").expect_no_header("grpc-encoding");
        let out = streamed(&mut exchange, body, size);
        assert_eq!(&out[..body.len()], body);
        assert_eq!(end_of(&out[body.len()..])["error"]["code"], "unknown", "nobody said how it ended");
        let mut exchange = running.request(JSON_STREAM).await;
        exchange.response(GRPC).expect_header("content-type", "application/connect+json");
        let out = streamed(&mut exchange, body, size);
        let json = b"\0\0\0\0\x0f{\"message\":\"a\"}\0\0\0\0\x0f{\"message\":\"b\"}";
        assert_eq!(&out[..json.len()], json);
    }
    for request in [STREAM, JSON_STREAM] {
        let mut exchange = running.request(request).await;
        exchange.response(GRPC);
        assert_eq!(exchange.response_body(b"\0\0\0\0\x09x", true).unwrap_err(), &RESPONSE_MALFORMED);
    }
}

#[tokio::test]
async fn a_stream_of_requests_in_any_pieces() {
    let (_dir, mut stand) = knowing(json!({}));
    let running = stand.build();
    let body = b"\0\0\0\0\x0c{\"name\":\"a\"}\0\0\0\0\x02{}";
    for size in 1..=body.len() {
        let mut exchange = running.request(JSON_STREAM).await;
        exchange.expect_continue();
        let mut out = Vec::new();
        for piece in body.chunks(size) {
            out.extend(exchange.body(piece, false).unwrap());
        }
        out.extend(exchange.body(b"", true).unwrap());
        assert_eq!(out, b"\0\0\0\0\x03\x0a\x01a\0\0\0\0\0", "{size}");
    }
    for bad in [&b"\0\0\0\0\x02{]"[..], b"\0\0\0\0\x02{", b"\x01\0\0\0\x02{}", b"\0\xff\xff\xff\xff{}"] {
        let mut exchange = running.request(JSON_STREAM).await;
        assert_eq!(exchange.body(bad, true).unwrap_err(), &MALFORMED, "{bad:?}");
        let flow = exchange.on_response(&mut head("200\ncontent-type: application/grpc\ngrpc-status: 13"));
        let code = end_of(&answered(&flow).2)["error"]["code"].clone();
        assert!(code == "invalid_argument" || code == "resource_exhausted", "{bad:?}: {code}");
    }
}

#[tokio::test]
async fn settings_that_contradict() {
    let mistakes = |settings| Stand::new(&KIND, settings).upstream("up").mistakes();
    assert_eq!(mistakes(json!({ "services": ["a.B"] })).len(), 1);
    assert_eq!(mistakes(json!({ "proto": ["a.proto"], "reflection": true })).len(), 1);
    assert_eq!(mistakes(json!({ "refresh": "1m" })).len(), 1);
    assert_eq!(mistakes(json!({ "limits": { "message": "0B" } })).len(), 1);
}

#[tokio::test]
async fn both_ways_at_once_each_with_its_own_compression() {
    use std::io::Write;
    let (_dir, mut stand) = knowing(json!({}));
    let request = format!("{JSON_STREAM}\nConnect-Content-Encoding: gzip");
    let mut exchange = stand.build().request(&request).await;
    let mut encoder = flate2::write::GzEncoder::new(vec![1, 0, 0, 0, 0], flate2::Compression::default());
    encoder.write_all(b"{\"name\":\"a\"}").unwrap();
    let mut body = encoder.finish().unwrap();
    body[4] = u8::try_from(body.len() - 5).unwrap();
    let (begin, rest) = body.split_at(9);
    assert_eq!(exchange.body(begin, false).unwrap(), b"");
    // The response begins in the middle of a request message.
    exchange.response(GRPC);
    assert_eq!(exchange.body(rest, true).unwrap(), b"\0\0\0\0\x03\x0a\x01a");
}
