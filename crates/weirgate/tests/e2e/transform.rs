//! `transform`: new bodies as they arrive at services and clients, and what stands beside the filter.

use weir_testkit::{Response, Upstream, Weir, gzip};

use crate::cause::{TRANSFORM_MALFORMED, TRANSFORM_MEDIA_TYPE};
use crate::support::OK;

#[track_caller]
fn start(upstream: &Upstream, filters: &str) -> Weir {
    Weir::start(&format!(
        "listeners: {{ web: {{ address: 127.0.0.1:0, protocols: [http1, h2] }} }}\nadmin: {{ address: 127.0.0.1:0 }}\n\
         expose_causes: true\nstores: {{ pages: {{ memory: 16MiB }} }}\nupstreams: {{ up: {{ endpoints: [{}] }} }}\n\
         routes: {{ all: {{ match: {{ path: \"/*\" }}, filters: [ {filters} ], upstream: up }} }}\n",
        upstream.address()
    ))
}

const REQUEST: &str = "{ transform: { request: { user: \"= request.body.user.id\", skus: \"= request.body.items.map(i, i.sku)\" } } }";
const BODY: &str = r#"{"user":{"id":7},"items":[{"sku":"a"},{"sku":"b"}]}"#;
const NEW: &[u8] = br#"{"user":7,"skus":["a","b"]}"#;

fn post(weir: &Weir, fields: &str, body: &[u8]) -> Response {
    let head = format!("POST / HTTP/1.1\r\nHost: a\r\n{fields}Content-Length: {}\r\n\r\n", body.len());
    weir.client().ask([head.as_bytes(), body].concat())
}

const JSON: &str = "Content-Type: application/json\r\n";

#[test]
fn services_get_the_new_body() {
    let upstream = Upstream::fixed(OK);
    let weir = start(&upstream, REQUEST);
    post(&weir, JSON, BODY.as_bytes()).expect_status(200);
    post(&weir, &format!("{JSON}Content-Encoding: gzip\r\n"), &gzip(BODY.as_bytes())).expect_status(200);
    let mut h2 = weir.h2();
    let fields = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", "/"),
        (":authority", "a"),
        ("content-type", "application/json"),
    ];
    let stream = h2.request(&fields, false);
    h2.data(stream, BODY, true);
    h2.message(stream).expect_status(200);
    for request in upstream.requests() {
        assert_eq!(request.body.bytes, NEW);
        assert_eq!(request.head.header("content-length"), Some("27"));
        assert_eq!(request.head.header("content-encoding"), None);
    }
    post(&weir, "Content-Type: text/xml\r\n", b"<a/>").expect_cause(TRANSFORM_MEDIA_TYPE);
    post(&weir, JSON, br#"{"user":1,"user":2}"#).expect_cause(TRANSFORM_MALFORMED);
    assert_eq!(upstream.requests().len(), 3);
}

#[test]
fn a_retry_sends_the_new_body() {
    let upstream = Upstream::listen();
    let weir = start(&upstream, REQUEST);
    let request = format!("PUT / HTTP/1.1\r\nHost: a\r\n{JSON}Content-Length: {}\r\n\r\n{BODY}", BODY.len());
    let mut client = weir.client();
    client.send(&request);
    let mut kept = upstream.accept();
    assert_eq!(kept.read_request().body.bytes, NEW);
    kept.send(OK);
    client.read_response().expect_status(200);
    client.send(&request);
    kept.read_request();
    drop(kept);
    let mut other = upstream.accept();
    assert_eq!(other.read_request().body.bytes, NEW);
    other.send(OK);
    client.read_response().expect_status(200);
}

fn json_service() -> Upstream {
    Upstream::script(|conn| {
        while let Some(request) = conn.next_request() {
            let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nETag: \"1\"\r\nCache-Control: max-age=60\r\n";
            match (request.head.header("if-none-match"), request.head.line.starts_with("HEAD")) {
                (Some(_), _) => conn.send("HTTP/1.1 304 Not Modified\r\nETag: \"1\"\r\n\r\n"),
                (None, true) => conn.send(format!("{head}Content-Length: 7\r\n\r\n")),
                (None, false) => conn.send(format!("{head}Content-Length: 7\r\n\r\n{{\"n\":1}}")),
            }
        }
    })
}

#[test]
fn clients_get_the_new_body() {
    let upstream = json_service();
    let weir = start(
        &upstream,
        "{ transform: { response: { data: \"= response.body\", status: \"= response.status\" } } }",
    );
    let new = r#"{"data":{"n":1},"status":200}"#;
    let response = weir.client().get("/");
    response
        .expect_status(200)
        .expect_body(new)
        .expect_header("content-length", "29")
        .expect_header("etag", "W/\"1\"");
    let mut h2 = weir.h2();
    let stream = h2.get("/");
    h2.message(stream).expect_status(200).expect_body(new);
    let mut client = weir.client();
    client.send("HEAD / HTTP/1.1\r\nHost: a\r\n\r\n");
    client
        .read_response_to_head()
        .expect_status(200)
        .expect_no_header("content-length")
        .expect_header("etag", "W/\"1\"");
    let response = weir.client().ask("GET / HTTP/1.1\r\nHost: a\r\nIf-None-Match: W/\"1\"\r\n\r\n");
    response.expect_status(304).expect_header("etag", "W/\"1\"");
}

/// What was made from one caller's fields is no hit for another.
#[test]
fn a_cache_before_it_keeps_callers_apart() {
    let upstream = json_service();
    let filters =
        "{ cache: { store: pages } }, { transform: { response: { for: \"= request.headers['x-user']\" } } }";
    let weir = start(&upstream, filters);
    for _ in 0..2 {
        for user in ["ann", "bob"] {
            let response = weir.client().ask(format!("GET / HTTP/1.1\r\nHost: a\r\nX-User: {user}\r\n\r\n"));
            response.expect_status(200).expect_body(format!("{{\"for\":\"{user}\"}}"));
        }
    }
}
