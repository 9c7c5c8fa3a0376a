//! `validate`: bodies as they come over the wire, and what stands beside the filter.

use std::fs;
use tempfile::TempDir;
use weir_testkit::{Response, Upstream, Weir, eventually, gzip};

use crate::cause::{
    BODY_TOO_LARGE, VALIDATE_ANSWER, VALIDATE_MEDIA_TYPE, VALIDATE_NO_METHOD, VALIDATE_NO_PATH,
    VALIDATE_REFUSED,
};
use crate::support::OK;

const ORDER: &str = r#"{
    "type": "object", "required": ["id"], "properties": { "id": { "type": "integer" }, "note": { "type": "string" } }
}"#;

/// A gateway with these filters, and a folder with files that they name by `DIR/`.
#[track_caller]
fn start(upstream: &Upstream, files: &[(&str, &str)], filters: &str) -> (TempDir, Weir) {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        fs::write(folder.path().join(name), text).unwrap();
    }
    let filters = filters.replace("DIR", folder.path().to_str().unwrap());
    let weir = Weir::start(&format!(
        "listeners: {{ web: {{ address: 127.0.0.1:0, protocols: [http1, h2] }} }}\nadmin: {{ address: 127.0.0.1:0 }}\n\
         expose_causes: true\nwatch: true\nupstreams: {{ up: {{ endpoints: [{}] }} }}\n\
         routes: {{ all: {{ match: {{ path: \"/*\" }}, filters: [ {filters} ], upstream: up }} }}\n",
        upstream.address()
    ));
    (folder, weir)
}

const SCHEMA: &str = "{ validate: { schema: DIR/order.json, body: 1KiB } }";

fn post(weir: &Weir, fields: &str, body: impl AsRef<[u8]>) -> Response {
    let body = body.as_ref();
    let mut request =
        format!("POST /orders HTTP/1.1\r\nHost: weir.test\r\n{fields}Content-Length: {}\r\n\r\n", body.len())
            .into_bytes();
    request.extend_from_slice(body);
    weir.client().ask(request)
}

const JSON: &str = "Content-Type: application/json\r\n";

#[test]
fn a_body_that_fits_passes_unchanged() {
    let upstream = Upstream::fixed(OK);
    let (_folder, weir) = start(&upstream, &[("order.json", ORDER)], SCHEMA);
    let odd = " {\n\"note\" : \"\\u00e9 \",\"id\":1e2 }\t";
    post(&weir, JSON, odd).expect_status(200);
    let packed = gzip(odd.as_bytes());
    post(&weir, &format!("{JSON}Content-Encoding: gzip\r\n"), &packed).expect_status(200);
    let chunked = "POST / HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n\
                   3\r\n{\"i\r\n6\r\nd\": 1}\r\n0\r\n\r\n";
    weir.client().ask(chunked).expect_status(200);
    let seen = upstream.requests();
    assert_eq!(seen[0].body.bytes, odd.as_bytes());
    assert_eq!(
        (seen[1].body.bytes.as_slice(), seen[1].head.header("content-encoding")),
        (&packed[..], Some("gzip"))
    );
    assert_eq!(seen[2].body.bytes, b"{\"id\": 1}");
    assert_eq!(seen[2].head.header("content-length"), Some("9"), "it is whole, so its length is known");
}

#[test]
fn the_upstream_sees_nothing_of_what_does_not() {
    let upstream = Upstream::fixed(OK);
    let (_folder, weir) = start(&upstream, &[("order.json", ORDER)], SCHEMA);
    let response = post(&weir, JSON, r#"{"id":"secret"}"#);
    response.expect_cause(VALIDATE_REFUSED).expect_header("content-type", "application/problem+json");
    response.expect_header("cache-control", "no-store").expect_body(
        r##"{"title":"Bad Request","status":400,"detail":"The request does not fit its description.","errors":[{"in":"body","pointer":"#/id","detail":"the value is not of type \"integer\""}]}"##,
    );
    post(&weir, JSON, "").expect_cause(VALIDATE_REFUSED);
    post(&weir, JSON, r#"{"id":1,"id":2}"#).expect_cause(VALIDATE_REFUSED).expect_body_with("occurs twice");
    post(&weir, "Content-Type: text/xml\r\n", "<a/>").expect_cause(VALIDATE_MEDIA_TYPE);
    post(&weir, JSON, " ".repeat(1025)).expect_cause(BODY_TOO_LARGE);
    let bomb = gzip(&[b' '; 1_000_000]);
    post(&weir, &format!("{JSON}Content-Encoding: gzip\r\n"), bomb).expect_cause(BODY_TOO_LARGE);
    // Refused by its head, so that the body is not asked for.
    let mut client = weir.client();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Type: text/xml\r\nContent-Length: 9\r\nExpect: 100-continue\r\n\r\n");
    client.read_response().expect_cause(VALIDATE_MEDIA_TYPE);
    assert!(upstream.requests().is_empty());
}

#[test]
fn over_http_2() {
    let upstream = Upstream::fixed(OK);
    let (_folder, weir) = start(&upstream, &[("order.json", ORDER)], SCHEMA);
    let mut h2 = weir.h2();
    for (body, status) in [(r#"{"id":1}"#, 200), (r#"{"id":[]}"#, 400)] {
        let fields = [
            (":method", "POST"),
            (":scheme", "http"),
            (":path", "/"),
            (":authority", "a"),
            ("content-type", "application/json"),
        ];
        let stream = h2.request(&fields, false);
        h2.data(stream, &body[..3], false);
        h2.data(stream, &body[3..], true);
        h2.message(stream).expect_status(status);
    }
}

#[test]
fn report_lets_everything_pass() {
    let upstream = Upstream::fixed(OK);
    let filter = "{ validate: { schema: DIR/order.json, mode: report, body: 1KiB } }";
    let (_folder, weir) = start(&upstream, &[("order.json", ORDER)], filter);
    for (fields, body) in
        [(JSON, r#"{"id":"a"}"#.to_owned()), (JSON, "x".repeat(5000)), ("", "<a/>".to_owned())]
    {
        post(&weir, fields, &body).expect_status(200);
        assert_eq!(upstream.requests().last().unwrap().body.bytes, body.as_bytes());
    }
    let line = weir.wait_log("a message does not fit its schema");
    assert!(
        line.field("faults").is_some_and(|f| f.contains("body /id: the value is not of type")),
        "{line:?}"
    );
    let metrics = || weir.admin_client().ask("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").text();
    for reason in ["body", "media_type", "size"] {
        let line = format!("weir_validate_faulty_total{{place=\"routes.all\",reason=\"{reason}\"}} 1");
        eventually("each is counted", || metrics().contains(&line));
    }
}

#[test]
fn a_changed_schema_is_read_anew() {
    let upstream = Upstream::fixed(OK);
    let refers = r#"{ "properties": { "id": { "$ref": "parts.json" } } }"#;
    let files = [("order.json", refers), ("parts.json", r#"{ "type": "integer" }"#)];
    let (folder, weir) = start(&upstream, &files, SCHEMA);
    post(&weir, JSON, r#"{"id":"a"}"#).expect_cause(VALIDATE_REFUSED);
    fs::write(folder.path().join("parts.json"), r#"{ "type": "string" }"#).unwrap();
    eventually("the file is watched", || post(&weir, JSON, r#"{"id":"a"}"#).status == 200);
    // A schema that is wrong does not replace one that works.
    fs::write(folder.path().join("parts.json"), r#"{ "type": "strin" }"#).unwrap();
    weir.wait_log("reload refused");
    post(&weir, JSON, r#"{"id":"a"}"#).expect_status(200);
}

#[test]
fn a_retry_sends_the_checked_body() {
    let upstream = Upstream::listen();
    let (_folder, weir) = start(&upstream, &[("order.json", ORDER)], SCHEMA);
    let mut client = weir.client();
    let request =
        "PUT / HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 8\r\n\r\n{\"id\":1}";
    client.send(request);
    let mut kept = upstream.accept();
    assert_eq!(kept.read_request().body.bytes, b"{\"id\":1}");
    kept.send(OK);
    client.read_response().expect_status(200);
    // The connection that was kept turns out to be closed: another gets the same body.
    client.send(request);
    kept.read_request();
    drop(kept);
    let mut other = upstream.accept();
    assert_eq!(other.read_request().body.bytes, b"{\"id\":1}");
    other.send(OK);
    client.read_response().expect_status(200);
}

const API: &str = r#"
openapi: 3.1.0
paths:
  /orders/{id}:
    get:
      parameters: [ { name: id, in: path, required: true, schema: { type: integer } } ]
      responses:
        "200": { content: { application/json: { schema: { required: [ id ] } } } }
  /orders:
    post: { requestBody: { content: { application/json: { schema: { required: [ id ] } } } }, responses: { default: {} } }
"#;

#[test]
fn requests_by_a_document() {
    let upstream = Upstream::fixed(OK);
    let (_folder, weir) = start(&upstream, &[("api.yaml", API)], "{ validate: { openapi: DIR/api.yaml } }");
    let ask = |line: &str| weir.client().ask(format!("{line} HTTP/1.1\r\nHost: weir.test\r\n\r\n"));
    ask("GET /orders/7").expect_status(200);
    ask("GET /orders/seven")
        .expect_cause(VALIDATE_REFUSED)
        .expect_body_with(r#"{"in":"path","name":"id","detail":"#);
    ask("GET /orders/%37").expect_status(200);
    ask("GET /carts").expect_cause(VALIDATE_NO_PATH).expect_header("cache-control", "no-store");
    ask("GET /orders").expect_cause(VALIDATE_NO_METHOD).expect_header("allow", "POST");
    post(&weir, JSON, r#"{"id":1}"#).expect_status(200);
    post(&weir, JSON, "{}").expect_cause(VALIDATE_REFUSED).expect_body_with("#");
    post(&weir, "", "{}").expect_cause(VALIDATE_MEDIA_TYPE);
    let mut client = weir.client();
    client.send("HEAD /carts HTTP/1.1\r\nHost: a\r\n\r\n");
    client.read_response_to_head().expect_status(404);
}

#[test]
fn answers_by_a_document() {
    let good = r#"{"id":7,"more":[1]}"#;
    let upstream = Upstream::script(move |conn| {
        while let Some(request) = conn.next_request() {
            let (fields, body) = match request.head.header("x-want") {
                Some("bad") => ("Content-Type: application/json\r\n".to_owned(), b"{}".to_vec()),
                Some("gzip") => (
                    "Content-Type: application/json\r\nContent-Encoding: gzip\r\n".to_owned(),
                    gzip(good.as_bytes()),
                ),
                Some("html") => ("Content-Type: text/html\r\n".to_owned(), b"<p>".to_vec()),
                Some("long") => ("Content-Type: application/json\r\n".to_owned(), vec![b' '; 5000]),
                _ => {
                    ("Content-Type: application/json\r\nETag: \"1\"\r\n".to_owned(), good.as_bytes().to_vec())
                }
            };
            conn.send(format!("HTTP/1.1 200 OK\r\n{fields}Content-Length: {}\r\n\r\n", body.len()));
            conn.send(body);
        }
    });
    let filter = "{ validate: { openapi: DIR/api.yaml, answers: true, body: 1KiB } }";
    let (_folder, weir) = start(&upstream, &[("api.yaml", API)], filter);
    let ask = |want: &str| {
        let request = format!(
            "GET /orders/7 HTTP/1.1\r\nHost: a\r\nX-Want: {want}\r\nAccept-Encoding: br, gzip\r\n\r\n"
        );
        weir.client().ask(request)
    };
    let response = ask("");
    response
        .expect_status(200)
        .expect_body(good)
        .expect_header("etag", "\"1\"")
        .expect_header("content-length", "19");
    ask("gzip")
        .expect_status(200)
        .expect_body(gzip(good.as_bytes()))
        .expect_header("content-encoding", "gzip");
    ask("bad").expect_cause(VALIDATE_ANSWER);
    ask("html").expect_cause(VALIDATE_ANSWER);
    assert_eq!(ask("long").status, 502);
    assert_eq!(upstream.requests()[0].head.all("accept-encoding"), ["gzip"]);

    let report = filter.replace("answers: true", "answers: true, mode: report");
    let (_folder, weir) = start(&upstream, &[("api.yaml", API)], &report);
    let request = "GET /orders/7 HTTP/1.1\r\nHost: a\r\nX-Want: bad\r\n\r\n";
    weir.client().ask(request).expect_status(200).expect_body("{}");
    let line = weir.wait_log("a message does not fit its schema");
    assert!(line.field("faults").is_some_and(|f| f.contains("is a required property")), "{line:?}");
}
