//! Parameters by an OpenAPI document: each style, exploded and not, as the specification's own examples have them.

#![allow(clippy::unwrap_used, reason = "this is test code: a panic is how a test fails")]

use std::path::Path;
use weir_schema::openapi::{Api, Found, Parts};

/// A document with one parameter of `/x` or `/x/{p}`.
fn api(parameter: &str) -> Api {
    let path = if parameter.contains("in: path") { "/x/{p}" } else { "/x" };
    let text = format!(
        "openapi: 3.1.0\npaths:\n  {path}:\n    get:\n      parameters:\n        - {{ name: p, {parameter} }}\n"
    );
    let mut read = |_: &Path| Ok(text.clone().into_bytes());
    Api::load(Path::new("api.yaml"), None, false, &mut read).unwrap_or_else(|e| panic!("{text}\n{e:?}")).0
}

/// What is wrong with a request, given as its path, query, or fields `h: …` and `c: …`.
fn fault(api: &Api, target: &str) -> Option<String> {
    let (target, field) = target.split_once('\n').unwrap_or((target, ""));
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let Found::Operation(at, captures) = api.find(b"GET", path.as_bytes()) else {
        panic!("{target} is not found")
    };
    let values = |kind: &str| {
        let lines = field.split('\n').filter_map(|line| line.strip_prefix(kind)).map(str::as_bytes);
        lines.collect::<Vec<&[u8]>>()
    };
    let (headers, cookies) = (|_: &str| values("h: "), |_: &str| values("c: "));
    let parts = Parts { captures: &captures, query: query.as_bytes(), headers: &headers, cookies: &cookies };
    api.operation(at).unwrap().faults(&parts).first().map(|fault| fault.to_text())
}

const COLORS: &str = "schema: { type: array, items: { enum: [ blue, black, brown ] }, minItems: 3 }";
const RGB: &str = "schema: { type: object, required: [ R, G, B ], properties: { R: { type: integer }, G: { type: integer }, B: { type: integer } }, additionalProperties: false }";

#[test]
fn every_style_is_read() {
    for (parameter, fits) in [
        // OpenAPI 3.1.1, §4.8.12.5: style examples.
        (format!("in: query, {COLORS}"), "/x?p=blue&p=black&p=brown"),
        (format!("in: query, explode: false, {COLORS}"), "/x?p=blue,black,brown"),
        (format!("in: query, style: spaceDelimited, explode: false, {COLORS}"), "/x?p=blue%20black+brown"),
        (format!("in: query, style: pipeDelimited, explode: false, {COLORS}"), "/x?p=blue%7Cblack|brown"),
        (format!("in: query, {RGB}"), "/x?R=100&G=200&B=150&other=1"),
        (format!("in: query, explode: false, {RGB}"), "/x?p=R,100,G,200,B,150"),
        (format!("in: query, style: deepObject, explode: true, {RGB}"), "/x?p%5BR%5D=100&p[G]=200&p[B]=150"),
        (format!("in: path, required: true, {COLORS}"), "/x/blue,black,brown"),
        (format!("in: path, required: true, {RGB}"), "/x/R,100,G,200,B,150"),
        (format!("in: path, required: true, explode: true, {RGB}"), "/x/R=100,G=200,B=150"),
        (format!("in: path, required: true, style: label, {COLORS}"), "/x/.blue,black,brown"),
        (format!("in: path, required: true, style: label, explode: true, {COLORS}"), "/x/.blue.black.brown"),
        (format!("in: path, required: true, style: label, explode: true, {RGB}"), "/x/.R=100.G=200.B=150"),
        (format!("in: path, required: true, style: matrix, {COLORS}"), "/x/;p=blue,black,brown"),
        (
            format!("in: path, required: true, style: matrix, explode: true, {COLORS}"),
            "/x/;p=blue;p=black;p=brown",
        ),
        (format!("in: path, required: true, style: matrix, {RGB}"), "/x/;p=R,100,G,200,B,150"),
        (format!("in: path, required: true, style: matrix, explode: true, {RGB}"), "/x/;R=100;G=200;B=150"),
        (format!("in: header, {COLORS}"), "/x\nh: blue, black\nh: brown"),
        (format!("in: header, explode: true, {RGB}"), "/x\nh: R=100,G=200,B=150"),
        (format!("in: cookie, explode: false, {COLORS}"), "/x\nc: blue,black,brown"),
        (
            "in: query, content: { application/json: { schema: { required: [ a ] } } }".to_owned(),
            "/x?p=%7B%22a%22:1%7D",
        ),
        ("in: query, schema: { type: string, minLength: 3 }".to_owned(), "/x?p=a+b"),
        ("in: query, schema: { type: [ integer, string ], pattern: '^0' }".to_owned(), "/x?p=007"),
        ("in: query, schema: { anyOf: [ { type: integer }, { enum: [ all ] } ] }".to_owned(), "/x?p=all"),
        ("in: query, schema: { type: boolean }".to_owned(), "/x?p=true"),
        ("in: query, schema: { const: '5' }".to_owned(), "/x?p=5"),
        ("in: query, allowEmptyValue: true, schema: { type: integer }".to_owned(), "/x?p="),
        ("in: query, schema: { type: integer }".to_owned(), "/x"),
        ("in: header, schema: { type: integer }".to_owned(), "/x\nh: 7"),
        ("in: query, schema: { type: number }".to_owned(), "/x?p=1e0"),
    ] {
        assert_eq!(fault(&api(&parameter), fits), None, "{parameter}: {fits}");
    }
}

#[test]
fn what_does_not_fit_is_named() {
    for (parameter, target, expected) in [
        (format!("in: query, {COLORS}"), "/x?p=blue,black,brown", "query p: the value has less than 3 items"),
        (format!("in: query, {RGB}"), "/x?R=100&G=200&B=x", "query p: the value is not of type \"integer\""),
        (
            format!("in: query, explode: false, {RGB}"),
            "/x?p=R,100,G",
            "query p: is not written as names and values",
        ),
        (format!("in: query, explode: false, {RGB}"), "/x?p=R,1,R,2", "query p: is given more than once"),
        (
            format!("in: path, required: true, style: label, {COLORS}"),
            "/x/blue",
            "path p: does not begin with a dot",
        ),
        ("in: query, required: true, schema: {}".to_owned(), "/x?q=1", "query p: is missing"),
        ("in: header, required: true, schema: {}".to_owned(), "/x", "header p: is missing"),
        (
            "in: query, schema: { type: string }".to_owned(),
            "/x?p=a&%70=b",
            "query p: is given more than once",
        ),
        (
            "in: header, schema: { type: string }".to_owned(),
            "/x\nh: a\nh: b",
            "header p: is given more than once",
        ),
        (
            "in: cookie, schema: { type: string }".to_owned(),
            "/x\nc: a\nc: b",
            "cookie p: is given more than once",
        ),
        (
            "in: query, schema: { type: string }".to_owned(),
            "/x?p=%ff",
            "query p: is not percent-encoded UTF-8",
        ),
        (
            "in: query, schema: { type: string }".to_owned(),
            "/x?p=%2",
            "query p: is not percent-encoded UTF-8",
        ),
        (
            "in: query, schema: { type: integer }".to_owned(),
            "/x?p=",
            "query p: the value is not of type \"integer\"",
        ),
        (
            "in: query, schema: { type: integer }".to_owned(),
            "/x?p=1e999",
            "query p: the value is not of type",
        ),
        (
            "in: query, schema: { type: integer, format: int32 }".to_owned(),
            "/x?p=2147483648",
            "query p: the value is greater",
        ),
        (
            "in: query, schema: { type: boolean }".to_owned(),
            "/x?p=True",
            "query p: the value is not of type \"boolean\"",
        ),
        (
            "in: query, content: { application/json: {} }".to_owned(),
            "/x?p=%7B%22a%22:1,%22a%22:2%7D",
            "query p: is not taken as JSON",
        ),
    ] {
        let found = fault(&api(&parameter), target).unwrap_or_default();
        assert!(found.starts_with(expected), "{parameter}: {target}: {found}");
    }
    let many = format!("/x?{}", "p=blue&".repeat(2000));
    assert_eq!(
        fault(&api(&format!("in: query, {COLORS}")), &many).as_deref(),
        Some("query p: has too many items")
    );
}
