//! Requests and answers of browsers: preflights, CORS fields, security headers.

use weir_testkit::{Response, Upstream, Weir};

use crate::cause::{CONNECT_REFUSED, CORS_METHOD, CORS_ORIGIN, NO_ROUTE, RATE_LIMITED};
use crate::support::{OK, WEB};

const ORIGIN: &str = "https://app.example.com";

/// `/api/*` accepts GET and PUT with CORS; all other requests go to the same upstream without.
#[track_caller]
fn start(upstream: &Upstream, more: &str) -> Weir {
    Weir::start(&format!(
        "{WEB}\nupstreams: {{ up: {{ endpoints: [{}] }}, down: {{ endpoints: [ 127.0.0.1:1 ] }} }}\nroutes:\n  api:\n    \
         match: {{ path: \"/api/*\", methods: [GET, PUT] }}\n    \
         filters: [ {{ cors: {{ origins: [ \"{ORIGIN}\" ] }} }}, {{ rate_limit: {{ requests: 2, per: 1h }} }} ]\n    upstream: up\n  \
         down: {{ match: {{ path: /down, methods: [GET] }}, filters: [ {{ cors: {{ origins: [ \"{ORIGIN}\" ] }} }} ], upstream: down }}\n\
         {more}\n",
        upstream.address()
    ))
}

#[track_caller]
fn preflight(weir: &Weir, path: &str, method: &str, origin: &str) -> Response {
    weir.client().ask(format!(
        "OPTIONS {path} HTTP/1.1\r\nHost: weir.test\r\n{origin}Access-Control-Request-Method: {method}\r\n\r\n"
    ))
}

#[track_caller]
fn get(weir: &Weir, path: &str) -> Response {
    weir.client().ask(format!("GET {path} HTTP/1.1\r\nHost: weir.test\r\nOrigin: {ORIGIN}\r\n\r\n"))
}

#[test]
fn a_preflight_takes_the_route_it_asks_about() {
    let upstream = Upstream::fixed(OK);
    let all = "  all: { match: { path: \"/*\" }, upstream: up }";
    for more in ["", all] {
        let weir = start(&upstream, more);
        let origin = format!("Origin: {ORIGIN}\r\n");
        preflight(&weir, "/api/a", "PUT", &origin)
            .expect_status(204)
            .expect_header("access-control-allow-origin", ORIGIN)
            .expect_no_header("content-length");
        preflight(&weir, "/api/a", "PUT", "Origin: https://evil.example\r\n").expect_cause(CORS_ORIGIN);
        // A request without an origin is not a browser's. A route that does not allow OPTIONS does not match it.
        preflight(&weir, "/api/a", "PUT", "").expect_cause(CORS_ORIGIN);
        assert_eq!(upstream.connections(), 0);
    }
    // If the route does not match a preflight's method, another route may, or none.
    let origin = format!("Origin: {ORIGIN}\r\n");
    preflight(&start(&upstream, ""), "/api/a", "DELETE", &origin).expect_cause(NO_ROUTE);
    preflight(&start(&upstream, all), "/api/a", "DELETE", &origin).expect_status(200);
    assert!(upstream.take_request().head.line.starts_with("OPTIONS /api/a "));
}

#[test]
fn a_preflight_that_no_filter_answers_is_refused() {
    let upstream = Upstream::fixed(OK);
    let filters = "filters: [ { headers: { request: { remove: [ access-control-request-method ] } } } ]";
    let weir = start(&upstream, filters);
    preflight(&weir, "/api/a", "PUT", &format!("Origin: {ORIGIN}\r\n")).expect_cause(NO_ROUTE);
    assert_eq!(upstream.connections(), 0);
}

#[test]
fn a_method_that_is_not_allowed_has_its_cause() {
    let upstream = Upstream::fixed(OK);
    let more = "  put: { match: { path: /put }, filters: [ { cors: { origins: [ \"*\" ], methods: [GET] } } ], upstream: up }";
    let weir = start(&upstream, more);
    preflight(&weir, "/put", "PUT", &format!("Origin: {ORIGIN}\r\n")).expect_cause(CORS_METHOD);
}

#[test]
fn errors_of_the_gateway_can_be_read_by_the_page() {
    let upstream = Upstream::fixed(OK);
    let weir = start(&upstream, "");
    for _ in 0..2 {
        get(&weir, "/api/a").expect_status(200).expect_header("access-control-allow-origin", ORIGIN);
    }
    get(&weir, "/api/a").expect_cause(RATE_LIMITED).expect_header("access-control-allow-origin", ORIGIN);
    get(&weir, "/down").expect_cause(CONNECT_REFUSED).expect_header("vary", "Origin");
}

#[test]
fn explain_tells_where_a_preflight_goes() {
    let dir = tempfile::TempDir::new().unwrap();
    let config = format!(
        "{WEB}\nroutes: {{ a: {{ match: {{ path: /a, methods: [PUT] }}, filters: [ {{ cors: {{ origins: [ \"*\" ] }} }} ], respond: {{}} }} }}"
    );
    std::fs::write(dir.path().join("weir.yaml"), config).unwrap();
    let ask = [
        "explain",
        "OPTIONS",
        "/a",
        "-H",
        "origin: https://b.example",
        "-H",
        "access-control-request-method: PUT",
    ];
    weir_testkit::run_weir(dir.path(), &ask).expect_code(0).expect_text("the route of the PUT");
}

#[test]
fn security_headers() {
    let upstream =
        Upstream::fixed("HTTP/1.1 200 OK\r\nX-Frame-Options: ALLOWALL\r\nContent-Length: 0\r\n\r\n");
    let weir = Weir::start(&format!(
        "{WEB}\nupstreams: {{ up: {{ endpoints: [{}] }} }}\nfilters: [ {{ security_headers: {{ referrer_policy: \"off\" }} }} ]\n\
         routes: {{ all: {{ match: {{ path: /a }}, upstream: up }} }}",
        upstream.address()
    ));
    weir.client()
        .get("/a")
        .expect_header("x-frame-options", "DENY")
        .expect_header("x-content-type-options", "nosniff")
        .expect_no_header("referrer-policy")
        .expect_no_header("strict-transport-security");
}
