//! Requests of browsers and others, and the responses they get.

use super::super::testing::{Stand, run};
use super::*;
use serde_json::{Value, json};

const PREFLIGHT: &str = "OPTIONS /a\nAccess-Control-Request-Method: PUT\n";

fn app() -> Value {
    json!({ "origins": ["https://app.example.com", "https://*.preview.example.com", "http://localhost:*"] })
}

async fn preflight(settings: Value, fields: &str) -> super::super::testing::Exchange {
    run(&KIND, settings, &format!("{PREFLIGHT}{fields}")).await
}

#[tokio::test]
async fn a_preflight_is_told_all_that_is_allowed() {
    let fields =
        "Origin: https://app.example.com\nAccess-Control-Request-Headers: Content-Type,authorization";
    let mut exchange = preflight(app(), fields).await;
    exchange
        .expect_status(204)
        .expect_header("access-control-allow-origin", "https://app.example.com")
        .expect_header("access-control-allow-methods", "GET, HEAD, POST, PUT, PATCH, DELETE")
        .expect_header("access-control-allow-headers", "authorization, content-type")
        .expect_header("access-control-max-age", "600")
        .expect_no_header("access-control-allow-credentials")
        .expect_no_header("access-control-allow-private-network");
    assert!(exchange.header("vary")[0].starts_with("Origin, "));
    // The filter also sees its own response, and leaves it unchanged.
    exchange.response("204\nAccess-Control-Max-Age: 600").expect_header("access-control-max-age", "600");
}

#[tokio::test]
async fn what_a_preflight_may_not_ask_for_has_its_cause() {
    for (fields, cause) in [
        ("", &CORS_ORIGIN),
        ("Origin: https://evil.example", &CORS_ORIGIN),
        ("Origin: null", &CORS_ORIGIN),
        ("Origin: https://app.example.com\nOrigin: https://app.example.com", &CORS_ORIGIN),
        ("Origin: https://app.example.com\nAccess-Control-Request-Headers: x-a", &CORS_HEADER),
        ("Origin: https://app.example.com\nAccess-Control-Request-Headers: content-type, a b", &CORS_HEADER),
    ] {
        preflight(app(), fields).await.expect_status(403).expect_cause(cause);
    }
    for method in ["PURGE", "put", "PUT, GET"] {
        let request =
            format!("OPTIONS /\nOrigin: https://app.example.com\nAccess-Control-Request-Method: {method}");
        run(&KIND, app(), &request).await.expect_cause(&CORS_METHOD);
    }
}

#[tokio::test]
async fn any_method_and_header_are_told_as_asked() {
    let settings =
        json!({ "origins": ["https://a.example"], "methods": ["*"], "headers": ["*"], "credentials": true });
    let fields = "Origin: https://a.example\nAccess-Control-Request-Headers: x-b,\nAccess-Control-Request-Headers: X-A";
    preflight(settings.clone(), fields)
        .await
        .expect_header("access-control-allow-methods", "PUT")
        .expect_header("access-control-allow-headers", "x-b, X-A")
        .expect_header("access-control-allow-credentials", "true");
    let split = "Origin: https://a.example\nAccess-Control-Request-Headers: x-a:b";
    preflight(settings, split).await.expect_cause(&CORS_HEADER);
}

#[tokio::test]
async fn private_networks() {
    let asked = "Origin: https://a.example\nAccess-Control-Request-Private-Network: true";
    let name = "access-control-allow-private-network";
    let settings = json!({ "origins": ["https://a.example"], "private_network": true });
    preflight(settings.clone(), asked).await.expect_header(name, "true");
    preflight(settings, "Origin: https://a.example").await.expect_no_header(name);
    preflight(json!({ "origins": ["*"] }), asked).await.expect_status(204).expect_no_header(name);
}

#[tokio::test]
async fn origins() {
    for (origin, allowed) in [
        ("https://app.example.com", true),
        ("http://app.example.com", false),
        ("https://app.example.com:8443", false),
        ("https://app.example.com.evil.com", false),
        ("https://APP.example.com", false),
        ("https://a.preview.example.com", true),
        ("https://a.b.preview.example.com", true),
        ("https://preview.example.com", false),
        ("https://.preview.example.com", false),
        ("https://a..preview.example.com", false),
        ("https://evilpreview.example.com", false),
        ("https://a.preview.example.com:8443", false),
        ("https://evil.com/.preview.example.com", false),
        ("https://evil.com#.preview.example.com", false),
        ("https://u@a.preview.example.com", false),
        ("http://localhost:3000", true),
        ("http://localhost", true),
        ("http://localhost:", false),
        ("http://localhost:3000.evil.com", false),
        ("http://localhost.evil.com:3000", false),
        ("https://localhost:3000", false),
        ("null", false),
    ] {
        let mut exchange = run(&KIND, app(), &format!("GET /\nOrigin: {origin}")).await;
        let response = exchange.expect_continue().response("200");
        response.expect_header("vary", "Origin");
        match allowed {
            true => response.expect_header("access-control-allow-origin", origin),
            false => response.expect_no_header("access-control-allow-origin"),
        };
    }
}

#[tokio::test]
async fn every_origin() {
    let settings = json!({ "origins": ["*"], "expose": ["x-total", "x-page"] });
    for request in ["GET /", "GET /\nOrigin: https://b.example", "OPTIONS /\nOrigin: https://b.example"] {
        let mut exchange = run(&KIND, settings.clone(), request).await;
        exchange
            .expect_continue()
            .response("200")
            .expect_header("access-control-allow-origin", "*")
            .expect_header("access-control-expose-headers", "x-total, x-page")
            .expect_no_header("vary");
    }
    preflight(settings, "Origin: null").await.expect_header("access-control-allow-origin", "*");
}

#[tokio::test]
async fn what_the_upstream_says_is_replaced() {
    let settings = json!({ "origins": ["https://a.example", "null"], "credentials": false });
    let said =
        "200\nAccess-Control-Allow-Origin: *\naccess-control-allow-credentials: true\nVary: Accept, ORIGIN";
    let mut exchange = run(&KIND, settings.clone(), "GET /\nOrigin: https://a.example").await;
    exchange
        .response(said)
        .expect_header("access-control-allow-origin", "https://a.example")
        .expect_no_header("access-control-allow-credentials")
        .expect_header("vary", "Accept, ORIGIN");
    let mut exchange = run(&KIND, settings, "GET /").await;
    exchange.response(said).expect_no_header("access-control-allow-origin");
}

#[tokio::test]
async fn credentials_come_with_a_listed_origin_only() {
    let settings = json!({ "origins": ["https://a.example"], "credentials": true, "expose": ["x-a"] });
    let mut exchange = run(&KIND, settings.clone(), "GET /\nOrigin: https://a.example").await;
    let response = exchange.response("401");
    response.expect_header("access-control-allow-credentials", "true");
    response.expect_header("access-control-expose-headers", "x-a");
    let mut exchange = run(&KIND, settings, "GET /\nOrigin: https://b.example").await;
    exchange.response("401").expect_no_header("access-control-allow-credentials");
}

#[test]
fn mistakes() {
    let of = |settings: Value| Stand::new(&KIND, settings).mistakes().join("\n");
    for (origin, expected) in [
        ("app.example.com", "write https://app.example.com"),
        ("https://app.example.com/", "write https://app.example.com"),
        ("https://app.example.com:443", "write https://app.example.com"),
        ("http://a:80", "default port"),
        ("https://a:0", "no sound port"),
        ("https://a:x", "no sound port"),
        ("https://app-*.example.com", "not the whole first label"),
        ("https://*", "not the whole first label"),
        ("https://*.com", "every site of a top-level domain"),
        ("https://a b", "host is malformed"),
        ("https://user@a", "host is malformed"),
        ("https://", "host is malformed"),
        ("://a", "scheme is malformed"),
        ("https://b\u{fc}cher.example", "xn--"),
    ] {
        let told = of(json!({ "origins": [origin] }));
        assert!(told.starts_with("origins[0]: ") && told.contains(expected), "{origin}: {told}");
    }
    for (settings, expected) in [
        (json!({ "origins": [] }), "no page could call"),
        (json!({ "origins": ["*"], "credentials": true }), "any page could act as its visitor"),
        (json!({ "origins": ["null"], "credentials": true }), "any sandboxed frame"),
        (json!({ "origins": ["*", "https://a.example"] }), "already includes the other origins"),
        (
            json!({ "origins": ["https://a.example", "https://A.example"] }),
            "origins[1]: `https://A.example` is listed twice",
        ),
        (
            json!({ "origins": ["*"], "methods": ["get"] }),
            "methods[0]: `get` is not a method: methods are case-sensitive; write GET",
        ),
        (json!({ "origins": ["*"], "headers": ["a b"] }), "headers[0]: `a b` is not a name"),
        (json!({ "origins": ["*"], "headers": ["x-a", "X-A"] }), "headers[1]: `x-a` is listed twice"),
        (json!({ "origins": ["*"], "methods": ["*", "GET"] }), "already includes the other names"),
        (
            json!({ "origins": ["https://a.example"], "expose": ["*"], "credentials": true }),
            "a header named `*`",
        ),
    ] {
        let told = of(settings);
        assert!(told.contains(expected), "{told}");
    }
    for fine in
        ["https://*.localhost", "http://[::1]:3000", "http://[::1]:*", "capacitor://localhost", "null"]
    {
        Stand::new(&KIND, json!({ "origins": [fine] })).build();
    }
}

/// With `reflect` every page gets its own origin with credentials, but no sandboxed frame.
#[tokio::test]
async fn every_page_may_send_credentials_if_that_is_said() {
    let settings = json!({ "origins": ["*"], "credentials": true, "reflect": true, "expose": ["x-a"] });
    preflight(settings.clone(), "Origin: https://any.example:8443")
        .await
        .expect_status(204)
        .expect_header("access-control-allow-origin", "https://any.example:8443")
        .expect_header("access-control-allow-credentials", "true")
        .expect_header("access-control-expose-headers", "x-a");
    for origin in ["null", "https://a.example, https://b.example", "", "evil"] {
        preflight(settings.clone(), &format!("Origin: {origin}")).await.expect_cause(&CORS_ORIGIN);
    }
    let mut exchange = run(&KIND, settings.clone(), "GET /a\nOrigin: https://any.example").await;
    exchange
        .response("200\nAccess-Control-Allow-Origin: *")
        .expect_header("access-control-allow-origin", "https://any.example")
        .expect_header("access-control-allow-credentials", "true")
        .expect_header("vary", "Origin");
    run(&KIND, settings, "GET /a\nOrigin: null")
        .await
        .response("200")
        .expect_no_header("access-control-allow-origin");
    for (settings, expected) in [
        (json!({ "origins": ["*"], "credentials": true }), "cannot be combined with credentials"),
        (json!({ "origins": ["*"], "reflect": true }), "counts only with"),
        (
            json!({ "origins": ["https://a.example"], "credentials": true, "reflect": true }),
            "counts only with",
        ),
    ] {
        let told = Stand::new(&KIND, settings).mistakes().join("\n");
        assert!(told.contains(expected), "{told}");
    }
}
