//! What the filter does with heads and bodies of one exchange.

use super::super::testing::{Exchange, Stand, run};
use super::*;
use serde_json::json;
use weir_filter::testing::Response;

const PAGE: &str = "200\nContent-Type: text/html; charset=utf-8\nETag: \"v1\"\nAccept-Ranges: bytes\nContent-Length: 20\n\
                    Content-MD5: a\nDigest: sha-256=a\nContent-Digest: sha-256=:AA==:\nRepr-Digest: sha-256=:AA==:";

async fn ask(request: &str) -> Exchange {
    run(&KIND, json!({ "text": { "http://old": "https://new" } }), request).await
}

fn is_searched(response: &Response) -> bool {
    response.body_use == Some(BodyUse::Change)
}

#[tokio::test]
async fn a_page_is_searched_across_pieces() {
    let mut exchange = ask("GET /").await;
    let response = exchange.response(PAGE);
    assert!(is_searched(&response));
    response.expect_header("etag", "W/\"v1\"");
    for gone in ["accept-ranges", "content-md5", "digest", "content-digest", "repr-digest"] {
        response.expect_no_header(gone);
    }
    let mut out = Vec::new();
    for piece in ["<a href='http", "://", "old/a'> http", "://older", " ht"] {
        out.extend(exchange.response_body(piece.as_bytes(), false).unwrap());
        assert_eq!(exchange.response_pause().unwrap(), b"", "a pause releases nothing");
    }
    out.extend(exchange.response_body(b"", true).unwrap());
    assert_eq!(String::from_utf8(out).unwrap(), "<a href='https://new/a'> https://newer ht");
}

#[tokio::test]
async fn the_upstream_is_asked_for_all_of_it_without_a_coding() {
    let request = "GET /\nAccept-Encoding: gzip\nAccept-Encoding: br\nRange: bytes=0-1\nIf-Range: \"v1\"\nIf-Match: \"v1\"";
    let mut exchange = ask(request).await;
    exchange.expect_continue().expect_header("accept-encoding", "identity");
    exchange.expect_no_header("range").expect_no_header("if-range").expect_header("if-match", "\"v1\"");
    ask("GET /").await.expect_header("accept-encoding", "identity");
}

#[tokio::test]
async fn these_pass_as_they_are() {
    for (response, counted) in [
        ("200\nContent-Type: image/png\nETag: \"v1\"", None),
        ("200\nContent-Type: text/htmlx\nETag: \"v1\"", None),
        ("200\nETag: \"v1\"", None),
        ("204\nContent-Type: text/html\nETag: \"v1\"", None),
        ("200\nContent-Type: text/html\nContent-Encoding: gzip\nETag: \"v1\"", Some(Passed::Coded)),
        ("206\nContent-Type: text/html\nContent-Range: bytes 0-1/20\nETag: \"v1\"", Some(Passed::Partial)),
        (
            "200\nContent-Type: text/html\nCache-Control: a, No-Transform\nETag: \"v1\"",
            Some(Passed::NoTransform),
        ),
    ] {
        let running = Stand::new(&KIND, json!({ "text": { "a": "b" } })).build();
        let mut exchange = running.request("GET /").await;
        let passed = exchange.response(response);
        assert!(!is_searched(&passed), "{response}");
        passed.expect_header("etag", "\"v1\"");
        for (why, reason) in REASONS.iter().enumerate() {
            let count = u64::from(counted.is_some_and(|counted| counted as usize == why));
            assert!(
                running.readings().contains(&Reading::of(&PASSED, reason, count)),
                "{response}: {reason}"
            );
        }
    }
    let mut exchange = ask("GET /\nCache-Control: no-transform").await;
    assert!(is_searched(&exchange.response(PAGE)), "the wish of a client decides nothing");
    assert!(is_searched(&exchange.response("404\nContent-Type: text/html\nContent-Encoding: identity")));
}

#[tokio::test]
async fn head_has_the_fields_of_get() {
    let mut exchange = ask("HEAD /").await;
    let response = exchange.response(PAGE);
    assert_eq!(response.body_use, None);
    response.expect_header("etag", "W/\"v1\"").expect_no_header("content-length").expect_no_header("digest");
    assert!(exchange.cx.length_dropped);
}

#[tokio::test]
async fn not_modified_has_the_tag_that_the_client_has() {
    for (held, tag) in [
        ("W/\"v1\"", "W/\"v1\""),
        ("\"x\", W/\"v1\"", "W/\"v1\""),
        ("\"v1\"", "\"v1\""),
        ("W/\"v2\"", "\"v1\""),
    ] {
        let mut exchange = ask(&format!("GET /\nIf-None-Match: {held}")).await;
        exchange.response("304\nETag: \"v1\"").expect_header("etag", tag);
    }
}

#[tokio::test]
async fn trailers_that_describe_the_bytes_go() {
    use weir_wire::relay::{Mark, Seen};
    let running = Stand::new(&KIND, json!({ "text": { "a": "b" } })).build();
    let mut exchange = running.request("GET /").await;
    exchange.response(PAGE);
    let mut trailers = b"x-took: 1\r\nRepr-Digest: sha-256=:AA==:\r\n".to_vec();
    let mut piece = Piece::seen(Seen { data: b"aa", mark: Mark::Last, trailers: Some(&mut trailers) });
    let filter = exchange.filter();
    filter.on_response_body(&mut piece, &mut exchange.cx).unwrap();
    assert_eq!(piece.data(), b"bb");
    assert_eq!(trailers, b"x-took: 1\r\n");
    assert!(running.readings().contains(&Reading::one(&REPLACED, 2)));
}

#[tokio::test]
async fn a_piece_that_grows_too_much_ends_the_answer() {
    let mut exchange = run(&KIND, json!({ "text": { "x": "y".repeat(REPLACEMENT_BYTES) } }), "GET /").await;
    exchange.response(PAGE);
    assert!(exchange.response_body("x".repeat(200).as_bytes(), false).is_ok());
    assert_eq!(exchange.response_body("x".repeat(300).as_bytes(), false), Err(&REPLACE_LIMIT));
}

#[test]
fn compress_behind_it_is_noted() {
    let settings = json!({});
    let texts = Texts::new([("a", "b")].into_iter()).unwrap();
    let name = |text| FieldName::new(text).unwrap();
    let (accept_encoding, etag) = (name("accept-encoding"), name("etag"));
    let filter = Replace { types: html(), texts, counts: Arc::default(), accept_encoding, etag };
    let compress = [Neighbour { name: "compress", settings: &settings }];
    assert_eq!(filter.notes_among(&compress, &[]), [""; 0]);
    assert!(filter.notes_among(&[], &compress)[0].contains("put `compress` before it"));
}

#[test]
fn mistakes() {
    let many: BTreeMap<String, &str> = (0..=TEXTS).map(|n| (n.to_string(), "x")).collect();
    let wide: BTreeMap<String, &str> = (0..9).map(|n| (n.to_string().repeat(TEXT_BYTES), "x")).collect();
    let long = "x".repeat(TEXT_BYTES + 1);
    for (settings, expected) in [
        (json!({}), "text"),
        (json!({ "text": {} }), "names none"),
        (json!({ "text": { "": "a" } }), "is everywhere"),
        (json!({ "text": { "a": "a" } }), "replaced by itself"),
        (json!({ "text": many }), "has 101 texts"),
        (json!({ "text": wide }), "9216 bytes in all"),
        (json!({ "text": { long: "a" } }), "has 1025 bytes"),
        (json!({ "text": { "a": "x".repeat(REPLACEMENT_BYTES + 1) } }), "has 16385 bytes"),
        (json!({ "text": { "a": "b" }, "types": [] }), "leave it out for text/html"),
        (json!({ "text": { "a": "b" }, "types": ["html"] }), "is not a media type"),
        (json!({ "text": { "a": "b" }, "once": true }), "once"),
    ] {
        let mistakes = Stand::new(&KIND, settings.clone()).mistakes();
        assert!(mistakes.iter().any(|mistake| mistake.contains(expected)), "{expected}: {mistakes:?}");
    }
}
