//! Tests of `transform`: templates, bodies that are not JSON, and what becomes of heads.

use super::super::testing::{Stand, response_head};
use super::*;
use serde_json::json;

const POST: &str = "POST /orders?v=2\nContent-Type: application/json\nContent-Length: 1\nX-User: ann";

/// The new body of a request.
async fn request(template: Json, body: &str) -> Json {
    let filter = Stand::new(&KIND, json!({ "request": template })).build();
    let mut exchange = filter.request_with(POST, body).await;
    exchange.expect_continue();
    serde_json::from_slice(exchange.cx.whole()).unwrap()
}

#[tokio::test]
async fn a_template_becomes_json() {
    let body = r#"{"user":{"id":7,"name":"Ann \"A\""},"items":[{"sku":"a","n":1.5},{"sku":"b"}],"ok":true,"none":null}"#;
    for (template, expected) in [
        (json!("= request.body"), serde_json::from_str(body).unwrap()),
        (
            json!({ "user": "= request.body.user.id", "skus": "= request.body.items.map(i, i.sku)" }),
            json!({ "user": 7, "skus": ["a", "b"] }),
        ),
        (
            json!({ "hello": "Hi {= request.body.user.name}, {= request.headers['x-user'] }!" }),
            json!({ "hello": "Hi Ann \"A\", ann!" }),
        ),
        (
            json!({ "a": "= request.body.items[0].n", "b": "= request.body.items[1].n", "c": "= request.body.ok" }),
            json!({ "a": 1.5, "c": true }),
        ),
        (
            json!(["= request.body.missing", "= request.body.none", "= request.body.missing ?? 'x'"]),
            json!([null, null, "x"]),
        ),
        (
            json!({ "fixed": [1, { "text": "a {{= b}} =c" }, null], "v": "= request.args.v", "size": "= size(request.body.items)" }),
            json!({ "fixed": [1, { "text": "a {= b} =c" }, null], "v": "2", "size": 2 }),
        ),
    ] {
        assert_eq!(request(template.clone(), body).await, expected, "{template}");
    }
}

#[tokio::test]
async fn what_is_not_json() {
    let settings = json!({ "request": { "a": "= request.body.a" }, "body": "100B", "depth": 3 });
    let refuses = Stand::new(&KIND, settings.clone()).build();
    let with = |fields: &str| format!("POST /\nContent-Length: 1\n{fields}");
    let json = with("Content-Type: application/json");
    for (request, body, cause) in [
        (&json, "{", &MALFORMED),
        (&json, r#"{"a":1,"a":2}"#, &MALFORMED),
        (&json, "[[[[1]]]]", &MALFORMED),
        (&with("Content-Type: application/json\nContent-Encoding: gzip"), "{}", &MALFORMED),
        (&with(""), "{}", &MEDIA),
        (&with("Content-Type: text/plain"), "{}", &MEDIA),
        (&with("Content-Type: application/json; charset=utf-16"), "{}", &MEDIA),
        (&with("Content-Type: application/json\nContent-Encoding: br"), "{}", &MEDIA),
    ] {
        refuses.request_with(request, body).await.expect_cause(cause);
    }
    refuses.request("GET /").await.expect_continue();
    let chunks = "POST /\nContent-Type: application/json\nTransfer-Encoding: chunked";
    refuses.request_with(chunks, "").await.expect_continue();
    let mut longer = settings.clone();
    longer["request"] = json!({ "a": "= request.body.a", "b": "= request.body.a" });
    let filter = Stand::new(&KIND, longer).build();
    filter.request_with(&json, &format!(r#"{{"a":"{}"}}"#, "x".repeat(60))).await.expect_cause(&LENGTH);
    let mut passing = settings;
    passing["others"] = json!("pass");
    let filter = Stand::new(&KIND, passing).build();
    filter.request_with(&with("Content-Type: text/plain"), "hello").await.expect_continue();
    filter.request_with(&json, "{").await.expect_cause(&MALFORMED);
}

#[tokio::test]
async fn the_head_of_a_request_follows() {
    let filter = Stand::new(&KIND, json!({ "request": { "a": 1 } })).build();
    let text = "POST /\nContent-Type: application/x+json\nContent-Digest: sha-256=:AA==:\nContent-Length: 1";
    let mut exchange = filter.request_with(text, "[]").await;
    exchange.expect_continue();
    exchange.expect_header("content-type", "application/json").expect_no_header("content-digest");
    assert_eq!(exchange.cx.whole(), br#"{"a":1}"#);
    assert!(exchange.cx.identities().is_empty(), "nothing of the caller was read");
}

#[tokio::test]
async fn answers_are_written_anew() {
    let template = json!({ "status": "= response.status", "n": "= response.body.n", "kind": "= response.headers['x-kind']",
                           "user": "= request.headers['x-user']", "asked": "= request.body.q" });
    let filter = Stand::new(&KIND, json!({ "response": template })).build();
    let ask = "POST /\nContent-Type: application/json\nContent-Length: 1\nX-User: ann\nAccept-Encoding: br\nRange: bytes=0-1";
    for (head, body, expected) in [
        (
            "200\nContent-Type: application/json\nX-Kind: a\nETag: \"1\"\nAccept-Ranges: bytes",
            r#"{"n":1}"#,
            Some(json!({ "status": 200, "n": 1, "kind": "a", "user": "ann", "asked": 7 })),
        ),
        (
            "404\nContent-Type: application/json",
            "{}",
            Some(json!({ "status": 404, "user": "ann", "kind": "", "asked": 7 })),
        ),
        ("200\nContent-Type: text/html", "<p>", None),
        ("206\nContent-Type: application/json\nContent-Range: bytes 0-1/2", "{}", None),
        ("200\nContent-Type: application/json\nCache-Control: no-transform", "{}", None),
        ("304\nETag: \"1\"", "", None),
        ("200\nContent-Type: application/json\nContent-Length: 0", "", None),
    ] {
        let mut exchange = filter.request_with(ask, r#"{"q":7}"#).await;
        exchange.expect_continue();
        exchange.expect_header("accept-encoding", "identity").expect_no_header("range");
        assert!(!exchange.cx.identities().is_empty(), "the answer depends on X-User");
        let mut head = response_head(head);
        let whole = !body.is_empty()
            && matches!(exchange.filter().response_body(&head, &mut exchange.cx), BodyUse::Whole(_));
        assert_eq!(whole, expected.is_some());
        exchange.cx.whole = whole.then(|| body.to_owned().into());
        assert!(matches!(exchange.on_response(&mut head), Flow::Continue));
        if let Some(expected) = expected {
            assert_eq!(serde_json::from_slice::<Json>(exchange.cx.whole()).unwrap(), expected);
            assert!(head.headers.get_str("accept-ranges").is_none());
            assert!(head.headers.get_str("etag").is_none_or(|tag| tag == b"W/\"1\""));
        }
    }
    let filter = Stand::new(&KIND, json!({ "response": "= response.body", "others": "refuse" })).build();
    for (head, body) in
        [("200\nContent-Type: text/html", "<p>"), ("200\nContent-Type: application/json", "{")]
    {
        let mut exchange = filter.request("GET /").await;
        let mut head = response_head(head);
        let whole = matches!(exchange.filter().response_body(&head, &mut exchange.cx), BodyUse::Whole(_));
        exchange.cx.whole = whole.then(|| body.to_owned().into());
        assert!(matches!(exchange.on_response(&mut head), Flow::Refuse(refusal) if *refusal.cause == ANSWER));
    }
}

#[test]
fn mistakes() {
    let deep = (0..40).fold(json!(1), |inner, _| json!([inner]));
    for (settings, expected) in [
        (json!({}), "changes nothing"),
        (json!({ "request": "= request.bdy" }), "request.bdy"),
        (json!({ "request": { "a": "= response.status" } }), "response"),
        (json!({ "response": "{= response.body" }), "does not end"),
        (json!({ "request": vec![1; 1001] }), "more than 1000 values"),
        (json!({ "request": deep }), "nested deeper"),
        (json!({ "request": 1, "depth": 0 }), "expected 1 to"),
        (json!({ "request": 1, "others": "drop" }), "pass"),
    ] {
        let mistakes = Stand::new(&KIND, settings.clone()).mistakes();
        assert!(mistakes.iter().any(|mistake| mistake.contains(expected)), "{settings}: {mistakes:?}");
    }
}
