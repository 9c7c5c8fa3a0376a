//! What the filter does with each response, and that every coding can be decoded.

use super::super::testing::{Exchange, Response, Stand, run};
use super::*;
use serde_json::{Value, json};
use weir_testkit::decoded;

/// Decodes bytes of this coding, as far as they go.
pub(super) fn decode(algorithm: Coding, bytes: &[u8]) -> Vec<u8> {
    decoded(algorithm.name(), bytes)
}

const GET: &str = "GET /\nAccept-Encoding: gzip, br, zstd";
const PAGE: &str = "200\nContent-Type: text/html; charset=utf-8\nETag: \"v1\"\nAccept-Ranges: bytes\nContent-Digest: sha-256=:AA==:";

async fn exchange(settings: Value, request: &str) -> Exchange {
    run(&KIND, settings, request).await
}

fn is_compressed(response: &Response) -> bool {
    response.body_use == Some(BodyUse::Change)
}

#[tokio::test]
async fn a_page_is_compressed() {
    let body = "Ein Wehr ist ein Wehr. ".repeat(500);
    for (accept, name, algorithm) in [
        ("gzip, br, zstd", "zstd", Coding::Zstd),
        ("gzip, br", "br", Coding::Br),
        ("deflate, gzip", "gzip", Coding::Gzip),
    ] {
        let mut exchange = exchange(json!({}), &format!("GET /\nAccept-Encoding: {accept}")).await;
        let response = exchange.response(PAGE);
        assert!(is_compressed(&response));
        response
            .expect_header("content-encoding", name)
            .expect_header("vary", "accept-encoding")
            .expect_header("etag", "W/\"v1\"")
            .expect_no_header("accept-ranges")
            .expect_no_header("content-digest");
        let mut out = exchange.response_body(&body.as_bytes()[..5000], false).unwrap();
        out.extend(exchange.response_body(&body.as_bytes()[5000..], false).unwrap());
        out.extend(exchange.response_body(b"", true).unwrap());
        assert!(out.len() < body.len() / 10, "{name}: {}", out.len());
        assert_eq!(decode(algorithm, &out), body.as_bytes(), "{name}");
    }
}

#[tokio::test]
async fn these_pass_as_they_are() {
    for (request, response, varies) in [
        ("GET /", PAGE, true),
        ("GET /\nAccept-Encoding: gzip;q=0", PAGE, true),
        ("GET /\nAccept-Encoding: gzip\nCache-Control: max-age=0, No-Transform", PAGE, true),
        (GET, "200\nContent-Type: text/html\nContent-Length: 1023", false),
        (GET, "200\nContent-Type: text/html\nContent-Encoding: gzip", false),
        (GET, "200\nContent-Type: text/html\nContent-Encoding: aes128gcm", false),
        (GET, "200\nContent-Type: text/html\nCache-Control: private,no-transform", false),
        (GET, "200\nContent-Type: text/html\nContent-Range: bytes 0-2000/4000", false),
        (GET, "206\nContent-Type: text/html\nContent-Range: bytes 0-2000/4000", false),
        (GET, "206\nContent-Type: multipart/byteranges; boundary=a", false),
        (GET, "204\nContent-Type: text/html", false),
        (GET, "200\nContent-Type: image/png", false),
        (GET, "200\nContent-Type: application/grpc+json", false),
        (GET, "200\nServer: a", false),
    ] {
        let mut exchange = exchange(json!({}), request).await;
        let passed = exchange.response(response);
        assert!(!is_compressed(&passed), "{request} {response}");
        match varies {
            true => passed.expect_header("vary", "accept-encoding").expect_header("etag", "\"v1\""),
            false => passed.expect_no_header("vary"),
        };
        assert!(!codings(&passed).contains(&&b"zstd"[..]));
    }
}

fn codings(response: &Response) -> Vec<&[u8]> {
    response.head.headers.get_all("content-encoding").collect()
}

#[tokio::test]
async fn errors_are_compressed_too() {
    for status in ["200", "201", "404", "500"] {
        let mut exchange = exchange(json!({ "types": ["*/*"] }), GET).await;
        let response = exchange.response(&format!("{status}\nContent-Type: a/b\nContent-Length: 1024"));
        assert!(is_compressed(&response), "{status}");
    }
}

#[tokio::test]
async fn a_head_is_answered_like_a_get() {
    let mut asked = exchange(json!({}), &GET.replace("GET", "HEAD")).await;
    asked
        .response(&format!("{PAGE}\nContent-Length: 5000"))
        .expect_header("content-encoding", "zstd")
        .expect_header("etag", "W/\"v1\"")
        .expect_header("vary", "accept-encoding")
        .expect_no_header("content-length");
    let mut small = exchange(json!({}), &GET.replace("GET", "HEAD")).await;
    small
        .response(&format!("{PAGE}\nContent-Length: 5"))
        .expect_header("content-length", "5")
        .expect_no_header("vary");
}

#[tokio::test]
async fn a_304_has_the_tag_that_the_client_holds() {
    for (held, tag) in [
        ("W/\"v1\"", "W/\"v1\""),
        ("\"v0\", W/\"v1\"", "W/\"v1\""),
        ("\"v1\"", "\"v1\""),
        ("W/\"v0\"", "\"v1\""),
        ("*", "\"v1\""),
    ] {
        let mut exchange = exchange(json!({}), &format!("{GET}\nIf-None-Match: {held}")).await;
        exchange
            .response("304\nETag: \"v1\"")
            .expect_header("etag", tag)
            .expect_no_header("content-encoding");
    }
}

#[tokio::test]
async fn vary_is_said_once() {
    for (said, expected) in [
        ("Accept-Encoding", "Accept-Encoding"),
        ("origin, ACCEPT-ENCODING", "origin, ACCEPT-ENCODING"),
        ("*", "*"),
    ] {
        let mut exchange = exchange(json!({}), GET).await;
        exchange.response(&format!("{PAGE}\nVary: {said}")).expect_header("vary", expected);
    }
    let mut not_modified = exchange(json!({}), GET).await;
    not_modified.response("304\nETag: \"v1\"").expect_header("vary", "accept-encoding");
    let mut other = exchange(json!({}), GET).await;
    let response = other.response(&format!("{PAGE}\nVary: origin"));
    let said: Vec<_> = response.head.headers.get_all("vary").collect();
    assert_eq!(said, [&b"origin"[..], b"accept-encoding"]);
}

#[tokio::test]
async fn a_pause_lets_everything_go() {
    for name in ["gzip", "br", "zstd"] {
        let settings = json!({ "algorithms": [name] });
        let mut exchange = exchange(settings, GET).await;
        assert!(is_compressed(&exchange.response("200\nContent-Type: text/event-stream")));
        let algorithm = serde_json::from_value(json!(name)).unwrap();
        let mut out = exchange.response_body(b"data: 1\n\n", false).unwrap();
        out.extend(exchange.response_pause().unwrap());
        assert_eq!(decode(algorithm, &out), b"data: 1\n\n", "{name}");
        assert_eq!(exchange.response_pause().unwrap(), b"", "{name}: nothing new");
        out.extend(exchange.response_body(b"data: 2\n\n", false).unwrap());
        out.extend(exchange.response_pause().unwrap());
        out.extend(exchange.response_body(b"", true).unwrap());
        assert_eq!(decode(algorithm, &out), b"data: 1\n\ndata: 2\n\n", "{name}");
    }
}

#[tokio::test]
async fn an_empty_body_is_still_of_its_coding() {
    let mut exchange = exchange(json!({ "minimum": "0B", "algorithms": ["gzip"] }), GET).await;
    assert!(is_compressed(&exchange.response("200\nContent-Type: text/html")));
    let out = exchange.response_body(b"", true).unwrap();
    assert!(out.starts_with(&[0x1f, 0x8b]), "{out:?}");
}

#[tokio::test]
async fn memory_has_an_end() {
    let filter = Stand::new(&KIND, json!({ "algorithms": ["gzip"], "memory": "1MiB" })).build();
    let (mut first, mut second, mut third) =
        (filter.request(GET).await, filter.request(GET).await, filter.request(GET).await);
    assert!(is_compressed(&first.response(PAGE)) && is_compressed(&second.response(PAGE)));
    let plain = third.response(PAGE);
    assert!(!is_compressed(&plain));
    plain
        .expect_no_header("content-encoding")
        .expect_header("etag", "\"v1\"")
        .expect_header("vary", "accept-encoding");
    assert_eq!(filter.readings()[0].value, 2 * 384 * 1024);
    first.response_body(b"", true).unwrap();
    assert!(is_compressed(&filter.request(GET).await.response(PAGE)), "what ends gives back");
    drop((first, second, third));
    assert_eq!(filter.readings()[0].value, 0);
}

#[tokio::test]
async fn where_memory_is_short_a_coding_that_needs_less_will_do() {
    let filter = Stand::new(&KIND, json!({ "algorithms": ["br", "gzip"], "memory": "7MiB" })).build();
    let (mut first, mut second) = (filter.request(GET).await, filter.request(GET).await);
    first.response(PAGE).expect_header("content-encoding", "br");
    second.response(PAGE).expect_header("content-encoding", "gzip");
    let out = second.response_body(b"short", true).unwrap();
    assert_eq!(decode(Coding::Gzip, &out), b"short");
    let mut third = filter.request("GET /\nAccept-Encoding: br").await;
    assert!(!is_compressed(&third.response(PAGE)), "it takes no other");
}

#[test]
fn mistakes() {
    for (settings, expected) in [
        (json!({ "algorithms": [] }), "algorithms: names none"),
        (json!({ "algorithms": ["gzip", "gzip"] }), "algorithms: names gzip twice"),
        (json!({ "algorithms": ["deflate"] }), "`deflate` is not valid here"),
        (json!({ "types": [] }), "types: names none"),
        (json!({ "types": ["html"] }), "`html` is not a media type; expected e.g. text/css"),
        (
            json!({ "levels": { "gzip": 0 } }),
            "levels.gzip: 0 is not a level of gzip; expected 1 to 9; 6 is a good one",
        ),
        (json!({ "levels": { "br": 12 } }), "expected 0 to 11"),
        (json!({ "levels": { "zstd": 22 } }), "expected 1 to 19"),
        (json!({ "memory": "1MiB" }), "memory: is too small for one body with br"),
        (json!({ "minimum": 5 }), "expected"),
    ] {
        let told = Stand::new(&KIND, settings).mistakes().join("\n");
        assert!(told.contains(expected), "{told}");
    }
}

/// A slow piece is compressed on a thread, with the same output as in place.
#[tokio::test]
async fn large_pieces_are_compressed_elsewhere() {
    let body = (0..40_000).map(|n| format!("line {n} {}\n", n * n)).collect::<String>();
    for (name, level) in [("gzip", 6), ("br", 6), ("zstd", 19)] {
        let settings = json!({ "algorithms": [name], "levels": { (name): level } });
        let mut exchange = exchange(settings, GET).await;
        assert!(is_compressed(&exchange.response("200\nContent-Type: text/plain")));
        let mut out = exchange.response_body(&body.as_bytes()[..100_000], false).unwrap();
        out.extend(exchange.response_pause().unwrap());
        out.extend(exchange.response_body(&body.as_bytes()[100_000..], true).unwrap());
        let coding = serde_json::from_value(json!(name)).unwrap();
        assert!(decode(coding, &out) == body.as_bytes(), "{name}");
    }
}

/// The core reuses the Zstandard context of a body that is complete, wherever its end was compressed.
#[tokio::test]
async fn a_complete_body_leaves_its_context_to_the_next() {
    for length in [5_000, 200_000] {
        let settings = json!({ "algorithms": ["zstd"], "levels": { "zstd": 5 } });
        let mut exchange = exchange(settings, GET).await;
        assert!(is_compressed(&exchange.response("200\nContent-Type: text/plain")));
        let body = vec![b'a'; length];
        let mut out = exchange.response_body(b"begin", false).unwrap();
        assert!(!encoder::idle().contains(&5), "{length}: in use");
        out.extend(exchange.response_body(&body, true).unwrap());
        assert!(encoder::idle().contains(&5), "{length}");
        assert!(decode(Coding::Zstd, &out) == [b"begin", &body[..]].concat(), "{length}");
    }
}
