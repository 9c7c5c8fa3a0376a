//! Tests of `validate`: bodies that fit, that do not, and that lie; schemas that are wrong.

use super::super::testing::{Stand, run};
use super::*;
use serde_json::{Value, json};
use std::fs;
use tempfile::TempDir;

const ORDER: &str = r##"{
    "type": "object", "required": ["id", "items"], "additionalProperties": false,
    "properties": {
        "id": { "type": "integer", "minimum": 1 },
        "mail": { "type": "string", "format": "email" },
        "items": { "type": "array", "minItems": 1, "items": { "$ref": "#/$defs/item" } }
    },
    "$defs": { "item": { "required": ["sku"], "properties": { "sku": { "pattern": "^[A-Z]{3}$" } } } }
}"##;

const POST: &str = "POST /orders\nContent-Type: application/json\nContent-Length: 1";

fn folder(files: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    folder
}

fn settings(folder: &TempDir, others: &Value) -> Value {
    let mut all = json!({ "schema": folder.path().join("order.json").to_str().unwrap() });
    for (key, value) in others.as_object().unwrap() {
        all[key] = value.clone();
    }
    all
}

fn stand(others: &Value) -> (TempDir, Stand) {
    let folder = folder(&[("order.json", ORDER)]);
    let stand = Stand::new(&KIND, settings(&folder, others));
    (folder, stand)
}

/// The status and the faults of an answer.
fn problem(flow: &Flow) -> (u16, Value) {
    let Flow::Answer(answer) = flow else { panic!("expected an answer, got {flow:?}") };
    let Body::Bytes(body) = &answer.body else { panic!("{answer:?}") };
    let problem: Value = serde_json::from_slice(body).unwrap();
    assert_eq!(problem["status"], answer.status);
    (answer.status, problem["errors"].clone())
}

#[tokio::test]
async fn what_fits_passes() {
    let (_folder, mut stand) = stand(&json!({}));
    let filter = stand.build();
    for (request, body) in [
        (POST, r#"{"id":1,"items":[{"sku":"ABC"}]}"#),
        (
            "PUT /\nContent-Type: application/x+json; charset=UTF-8\nContent-Length: 1",
            r#"{"id":1,"items":[{"sku":"ABC"}]}"#,
        ),
        (
            "PATCH /\nContent-Type: text/json\nTransfer-Encoding: chunked",
            r#" {"mail":"a@b.example","id":1e0,"items":[{"sku":"ABC"}]} "#,
        ),
        ("DELETE /\nContent-Type: application/json\nTransfer-Encoding: chunked", ""),
    ] {
        let mut exchange = filter.request_with(request, body).await;
        exchange.expect_continue();
        if !body.is_empty() {
            assert_eq!(exchange.cx.whole(), body.as_bytes(), "unchanged");
        }
    }
    for request in ["GET /", "DELETE /orders/1", "HEAD /", "OPTIONS /"] {
        filter.request(request).await.expect_continue();
    }
}

#[tokio::test]
async fn each_fault_is_named() {
    let (_folder, mut stand) = stand(&json!({}));
    let filter = stand.build();
    let body = r#"{"id":0,"mail":"secret","items":[{"sku":"ABC"},{},{"sku":"abc"}],"more":1}"#;
    let exchange = filter.request_with(POST, body).await;
    let (status, mut faults) = problem(&exchange.flow);
    faults.as_array_mut().unwrap().sort_by_key(|fault| fault["pointer"].to_string());
    let at = |pointer: &str, detail: &str| json!({ "in": "body", "pointer": pointer, "detail": detail });
    assert_eq!(
        (status, faults),
        (
            400,
            json!([
                at("#", "Additional properties are not allowed ('more' was unexpected)"),
                at("#/id", "the value is less than the minimum of 1"),
                at("#/items/1", "\"sku\" is a required property"),
                at("#/items/2/sku", "the value does not match \"^[A-Z]{3}$\""),
                at("#/mail", "the value is not a \"email\""),
            ])
        )
    );
    let mut exchange = exchange;
    exchange
        .expect_header("content-type", "application/problem+json")
        .expect_header("cache-control", "no-store");
    assert_eq!(exchange.cx.because().map(|cause| cause.code), Some("validate_refused"));
    assert_eq!(filter.readings().iter().map(|r| r.value).collect::<Vec<_>>(), [0, 1, 0, 0, 0, 0, 0]);
}

#[tokio::test]
async fn bodies_that_lie_are_refused() {
    let (_folder, mut stand) = stand(&json!({ "depth": 5, "body": "1KiB" }));
    let filter = stand.build();
    let good = r#"{"id":1,"items":[{"sku":"ABC"}]}"#;
    let with = |fields: &str| format!("POST /\nContent-Length: 1\n{fields}");
    let json = with("Content-Type: application/json");
    let deep = format!("{{\"id\":{}1{}}}", "[".repeat(6), "]".repeat(6));
    for (request, body, status, detail) in [
        (&json, "", 400, "is missing"),
        (&json, "{", 400, "EOF"),
        (&json, "<order/>", 400, "expected value"),
        (&json, r#"{"id":1,"id":2,"items":[{"sku":"ABC"}]}"#, 400, "the key \"id\" occurs twice"),
        (&json, "\u{feff}{}", 400, "byte order mark"),
        (&json, &deep, 400, "too deep"),
        (&with(""), good, 415, "no Content-Type"),
        (&with("Content-Type: text/plain"), good, 415, "expected JSON"),
        (&with("Content-Type: application/json\nContent-Type: application/json"), good, 415, "more than one"),
        (&with("Content-Type: application/json; charset=utf-16"), good, 415, "another charset"),
        (&with("Content-Type: application/json\nContent-Encoding: br"), good, 415, "gzip"),
        (&with("Content-Type: application/json\nContent-Encoding: gzip"), good, 400, "gzip stream"),
    ] {
        let exchange = filter.request_with(request, body).await;
        let (found, faults) = problem(&exchange.flow);
        assert_eq!(found, status, "{request} {body}");
        assert!(faults[0]["detail"].as_str().unwrap().contains(detail), "{faults}");
    }
    let (status, faults) = problem(&filter.request("POST /\nContent-Type: application/json").await.flow);
    assert_eq!((status, &faults[0]["detail"]), (400, &json!("is missing")));
}

#[tokio::test]
async fn a_wrong_type_is_refused_before_the_body() {
    let (_folder, mut stand) = stand(&json!({}));
    let filter = stand.build();
    let mut exchange = filter.request_with("POST /\nContent-Type: text/xml\nContent-Length: 1", "x").await;
    exchange.expect_status(415);
    assert!(exchange.cx.whole.is_none(), "nothing was waited for");
}

#[tokio::test]
async fn report_passes_and_counts() {
    let (_folder, mut stand) = stand(&json!({ "mode": "report", "body": "64B" }));
    let filter = stand.build();
    for (request, body) in [
        (POST, r#"{"id":0,"items":[]}"#),
        (POST, r#"{"id":1,"items":[{"sku":"ABC"}]}"#),
        (POST, &" ".repeat(65)),
        ("POST /\nContent-Length: 1", "x"),
    ] {
        let mut exchange = filter.request_with(request, body).await;
        exchange.expect_continue();
        assert!(exchange.cx.whole.is_none(), "nothing is held");
    }
    filter.request("POST /").await.expect_continue();
    assert_eq!(filter.readings().iter().map(|r| r.value).collect::<Vec<_>>(), [0, 2, 1, 0, 0, 0, 1]);
}

#[test]
fn references_stay_in_the_folder() {
    let shared = r#"{ "$defs": { "sku": { "type": "string" } } }"#;
    let good = folder(&[
        ("order.json", r#"{ "properties": { "sku": { "$ref": "parts/a.yaml#/sku" } } }"#),
        ("parts/a.yaml", "sku: { $ref: '../shared.json#/$defs/sku' }\n"),
        ("shared.json", shared),
    ]);
    let mut stand = Stand::new(&KIND, settings(&good, &json!({})));
    stand.build();
    let watched: Vec<_> = stand.watched().iter().map(|p| p.file_name().unwrap().to_str().unwrap()).collect();
    assert_eq!(watched, ["order.json", "a.yaml", "shared.json"]);

    for (schema, expected) in [
        (r#"{ "$ref": "../other.json" }"#, "leaves the folder"),
        (r#"{ "$ref": "/etc/passwd" }"#, "leaves the folder"),
        (r#"{ "$ref": "a/%2e%2e/%2e%2e/b.json" }"#, "leaves the folder"),
        (r#"{ "$ref": "https://example.com/a.json" }"#, "needs the network"),
        (r#"{ "$ref": "file:///etc/passwd" }"#, "needs the network"),
        (r#"{ "$ref": "missing.json" }"#, "missing.json cannot be read"),
        ("{ \"properties\": {\n  \"a\": { \"$ref\": \"#/$defs/b\" } } }", "$defs/b"),
        (
            "{ \"properties\": {\n  \"a\": { \"type\": \"strin\" } } }",
            "order.json:2:18: \"strin\" is not valid",
        ),
        (r#"{ "pattern": "(?=a)b" }"#, "linear time"),
        (r#"{ "pattern": "(a)\\1" }"#, "linear time"),
        (r#"{ "a": 1, "a": 2 }"#, "occurs twice"),
        ("[]", "not a JSON Schema"),
        (r#"{ "openapi": "3.1.0" }"#, "OpenAPI document"),
    ] {
        let folder = folder(&[("order.json", schema)]);
        let mistakes = Stand::new(&KIND, settings(&folder, &json!({}))).mistakes();
        assert!(mistakes.iter().any(|m| m.contains(expected)), "{schema}: {mistakes:?}");
    }
}

#[tokio::test]
async fn cycles_end() {
    let schema = r##"{ "type": "object", "properties": { "next": { "$ref": "#" } }, "required": ["v"] }"##;
    let folder = folder(&[("order.json", schema)]);
    let filter = Stand::new(&KIND, settings(&folder, &json!({}))).build();
    filter.request_with(POST, r#"{"v":1,"next":{"v":2,"next":{"v":3}}}"#).await.expect_continue();
    let exchange = filter.request_with(POST, r#"{"v":1,"next":{"v":2,"next":{}}}"#).await;
    assert_eq!(problem(&exchange.flow).1[0]["pointer"], "#/next/next");
    for schema in [
        r##"{ "$ref": "#" }"##,
        r##"{ "allOf": [ { "$ref": "#/$defs/a" } ], "$defs": { "a": { "$ref": "#/$defs/a" } } }"##,
    ] {
        let folder = self::folder(&[("order.json", schema)]);
        let filter = Stand::new(&KIND, settings(&folder, &json!({}))).build();
        filter.request_with(POST, "1").await.expect_continue();
    }
}

#[tokio::test]
async fn mistakes() {
    let (_folder, mut wrong) = stand(&json!({ "depth": 0, "body": "0B" }));
    assert_eq!(wrong.mistakes().len(), 2);
    assert!(Stand::new(&KIND, json!({})).mistakes()[0].contains("nothing to validate by"));
    let _ = run(&KIND, settings(&folder(&[("order.json", "true")]), &json!({})), "GET /").await;
}

const API: &str = r##"
openapi: 3.0.3
servers: [ { url: "https://api.example.com/v1" } ]
paths:
  /orders:
    get:
      parameters: [ { name: limit, in: query, schema: { type: integer, maximum: 100 } } ]
      responses:
        "200":
          headers: { x-total: { required: true, schema: { type: integer } } }
          content: { application/json: { schema: { type: array, items: { $ref: '#/components/schemas/Order' } } } }
        4XX: { content: { application/problem+json: {} } }
    post:
      requestBody:
        required: true
        content:
          application/json: { schema: { $ref: '#/components/schemas/Order' } }
          text/csv: {}
      responses: { "201": { description: made } }
  /any:
    put: { requestBody: { content: { "*/*": { schema: { type: integer } }, text/*: {}, text/csv: {} } }, responses: {} }
  /orders/{id}:
    parameters: [ { name: id, in: path, required: true, schema: { type: integer } } ]
    delete: { responses: { "204": { description: gone } } }
components:
  schemas:
    Order:
      type: object
      required: [ id, sku ]
      properties:
        id: { type: integer, readOnly: true }
        sku: { type: string, nullable: true }
        pin: { type: string, writeOnly: true }
"##;

fn api(others: &Value) -> (TempDir, Stand) {
    let folder = folder(&[("api.yaml", API)]);
    let mut all = json!({ "openapi": folder.path().join("api.yaml").to_str().unwrap() });
    for (key, value) in others.as_object().unwrap() {
        all[key] = value.clone();
    }
    (folder, Stand::new(&KIND, all))
}

#[tokio::test]
async fn requests_by_a_document() {
    let (_folder, mut stand) = api(&json!({}));
    let filter = stand.build();
    let post = |fields: &str| format!("POST /v1/orders\nContent-Length: 1\n{fields}");
    let json = post("Content-Type: application/json");
    for (request, body) in [
        ("GET /v1/orders", ""),
        ("HEAD /v1/orders?limit=7", ""),
        ("GET /v1/orders?limit=100&other=x", ""),
        (&json, r#"{"sku":null}"#),
        (&post("Content-Type: Text/CSV; header=present"), "sku\n"),
        ("DELETE /v1/orders/7", ""),
        ("PUT /v1/any\nContent-Type: application/json\nContent-Length: 1", "7"),
        ("PUT /v1/any\nContent-Type: image/png\nContent-Length: 1", "7"),
        ("PUT /v1/any\nContent-Type: text/csv\nContent-Length: 1", "x"),
    ] {
        let mut exchange = if body.is_empty() {
            filter.request(request).await
        } else {
            filter.request_with(request, body).await
        };
        exchange.expect_continue();
    }
    for (request, body, status, part, detail) in [
        ("GET /orders", "", 404, "path", "not described"),
        ("GET /v1/carts", "", 404, "path", "not described"),
        ("PATCH /v1/orders", "", 405, "method", "GET, POST"),
        ("GET /v1/orders?limit=101", "", 400, "query", "greater than the maximum"),
        ("GET /v1/orders?limit=ten", "", 400, "query", "not of type"),
        ("GET /v1/orders?limit=1&limit=2", "", 400, "query", "more than once"),
        ("GET /v1/orders?limit=%31%zz", "", 400, "query", "percent-encoded"),
        ("DELETE /v1/orders/a", "", 400, "path", "not of type"),
        (
            "DELETE /v1/orders/7\nContent-Length: 1\nContent-Type: application/json",
            "1",
            400,
            "body",
            "takes no body",
        ),
        ("POST /v1/orders", "", 400, "body", "missing"),
        (
            "PUT /v1/any\nContent-Type: application/x+json\nContent-Length: 1",
            "\"a\"",
            400,
            "body",
            "not of type",
        ),
        (&json, r#"{"sku":7}"#, 400, "body", "not of types"),
        (&post("Content-Type: text/xml"), "<a/>", 415, "header", "expected application/json, text/csv"),
        (&post("X: 1"), "{}", 415, "header", "no Content-Type"),
    ] {
        let mut exchange = if body.is_empty() {
            filter.request(request).await
        } else {
            filter.request_with(request, body).await
        };
        let (found, faults) = problem(&exchange.flow);
        assert_eq!((found, &faults[0]["in"]), (status, &json!(part)), "{request}: {faults}");
        assert!(faults[0]["detail"].as_str().unwrap().contains(detail), "{faults}");
        if status == 405 {
            exchange.expect_header("allow", "GET, POST");
        }
    }
    // With a `base`, `servers` are not read.
    let (_folder, mut stand) = api(&json!({ "base": "" }));
    let filter = stand.build();
    filter.request("GET /orders").await.expect_continue();
    filter.request("GET /v1/orders").await.expect_status(404);
}

#[tokio::test]
async fn answers_by_a_document() {
    let (_folder, mut stand) = api(&json!({ "answers": true }));
    let filter = stand.build();
    for (head, body, fits) in [
        ("200\nX-Total: 1\nContent-Type: application/json", r#"[{"id":1,"sku":"a"}]"#, true),
        ("404\nContent-Type: application/problem+json", "{}", true),
        ("304", "", true),
        ("200\nX-Total: 1\nContent-Type: application/json", r#"[{"sku":"a"}]"#, false),
        ("200\nX-Total: many\nContent-Type: application/json", "[]", false),
        ("200\nContent-Type: application/json", "[]", false),
        ("200\nX-Total: 1\nContent-Type: text/html", "<p>", false),
        ("200\nX-Total: 1\nContent-Type: application/json\nContent-Encoding: br", "x", false),
        ("418\nContent-Type: application/problem+json", "{", false),
        ("500\nContent-Type: application/json", "{}", false),
    ] {
        let mut exchange =
            filter.request("GET /v1/orders\nAccept-Encoding: br, gzip\nRange: bytes=0-1").await;
        exchange.expect_continue();
        exchange.expect_header("accept-encoding", "gzip").expect_no_header("range");
        let mut answer = crate::testing::response_head(head);
        if !body.is_empty() {
            let body_use = exchange.filter().response_body(&answer, &mut exchange.cx);
            exchange.cx.whole = matches!(body_use, BodyUse::Whole(_)).then(|| body.to_owned().into());
        }
        let flow = exchange.on_response(&mut answer);
        match fits {
            true => assert!(matches!(flow, Flow::Continue), "{head} {body}: {flow:?}"),
            false => {
                let Flow::Refuse(refusal) = flow else { panic!("{head} {body}: {flow:?}") };
                assert_eq!(refusal.cause.code, "validate_answer", "{head}");
            }
        }
    }
}

#[test]
fn documents_that_are_wrong() {
    let paths = |paths: &str| format!("openapi: 3.1.0\npaths:\n  {paths}\n");
    for (text, expected) in [
        ("swagger: '2.0'\n".to_owned(), "this is Swagger 2"),
        ("openapi: 4.0.0\n".to_owned(), "version `4.0.0` is not known"),
        ("type: object\n".to_owned(), "not an OpenAPI document"),
        ("openapi: 3.1.0\n".to_owned(), "describes no operation"),
        (paths("orders: { get: {} }"), "does not begin with `/`"),
        (paths("/a/{x}: { get: {} }\n  /a/{y}: { get: {} }"), "no path can be told"),
        (
            paths("/a: { get: { parameters: [ { name: x, in: body } ] } }"),
            "api.yaml:3:30: `in: body` is not known",
        ),
        (paths("/a: { get: { parameters: [ { name: x, in: path } ] } }"), "the path has no `{x}`"),
        (paths("/a: { get: { parameters: [ { name: x, in: query, style: matrix } ] } }"), "`style: matrix`"),
        (paths("/a: { get: { parameters: [ { $ref: '#/components/parameters/X' } ] } }"), "leads to nothing"),
        (paths("/a: { $ref: '#/paths/~1b' }\n  /b: { $ref: '#/paths/~1a' }"), "in a circle"),
        (
            paths(
                "/a: { post: { requestBody: { content: { application/json: { schema: { type: strin } } } } } }",
            ),
            "strin",
        ),
        (
            paths(
                "/a: { post: { requestBody: { content: { application/json: { schema: { pattern: '(?!a)' } } } } } }",
            ),
            "linear time",
        ),
        (
            paths(
                "/a: { post: { requestBody: { content: { application/json: { schema: { $ref: 'https://e.com/x' } } } } } }",
            ),
            "network",
        ),
    ] {
        let folder = folder(&[("api.yaml", &text)]);
        let path = folder.path().join("api.yaml");
        let mistakes = Stand::new(&KIND, json!({ "openapi": path.to_str().unwrap() })).mistakes();
        assert!(mistakes.iter().any(|m| m.contains(expected)), "{text}: {mistakes:?}");
    }
    let (_folder, mut both) = api(&json!({ "schema": "x.json" }));
    assert!(both.mistakes()[0].contains("stands beside `openapi`"));
    let (_folder, mut alone) = stand(&json!({ "answers": true, "base": "/v1" }));
    assert_eq!(alone.mistakes().len(), 2);
}
