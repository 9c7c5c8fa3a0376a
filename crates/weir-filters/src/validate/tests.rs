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
    assert_eq!(filter.readings().iter().map(|r| r.value).collect::<Vec<_>>(), [1, 0, 0]);
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
    assert_eq!(filter.readings().iter().map(|r| r.value).collect::<Vec<_>>(), [2, 1, 1]);
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
