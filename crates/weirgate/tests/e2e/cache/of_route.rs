//! Answers that a route gives itself, from a folder or from the config, behind a cache.

use std::fs;

use tempfile::TempDir;
use weir_testkit::Weir;

use super::ask;
use crate::support::WEB;

/// A file is compressed once and then served from the cache, including ranges and conditional requests.
#[test]
fn files_are_kept_as_they_were_compressed() {
    let dir = TempDir::new().unwrap();
    let sheet = ".a { color: red }\n".repeat(1000);
    fs::write(dir.path().join("a.css"), &sheet).unwrap();
    let weir = Weir::start(&format!(
        "{WEB}\nstores: {{ pages: {{ memory: 4MiB }} }}\nroutes: {{ site: {{ match: {{ path: \"/*\" }}, \
         filters: [ {{ cache: {{ store: pages, ttl: 1h, negative: 1h }} }}, {{ compress: {{}} }} ], files: {{ root: {} }} }} }}",
        dir.path().display()
    ));
    let mut client = weir.client();
    let first = ask(&mut client, "GET /a.css", "Accept-Encoding: gzip\r\n");
    first.expect_status(200).expect_header("content-encoding", "gzip");
    first.expect_header("cache-status", "weir; fwd=uri-miss; fwd-status=200; stored");
    let plain = ask(&mut client, "GET /a.css", "");
    plain.expect_body(&sheet).expect_no_header("content-encoding");
    // The file differs now, but the cache does not check.
    fs::write(dir.path().join("a.css"), "changed").unwrap();
    let hit = ask(&mut client, "GET /a.css", "Accept-Encoding: gzip\r\n");
    hit.expect_status(200).expect_header("content-encoding", "gzip");
    assert!(hit.header("cache-status").unwrap().starts_with("weir; hit; ttl="), "{hit:?}");
    assert_eq!(hit.body.bytes, first.body.bytes);
    let etag = hit.header("etag").unwrap().to_owned();
    ask(&mut client, "GET /a.css", &format!("Accept-Encoding: gzip\r\nIf-None-Match: {etag}\r\n"))
        .expect_status(304);
    ask(&mut client, "GET /a.css", "Range: bytes=1-1\r\n").expect_status(206).expect_body("a");
    // Refusals are the gateway's own answers, and never stored.
    for _ in 0..2 {
        let missing = client.get("/b.css");
        missing.expect_status(404);
        missing.expect_header("cache-status", "weir; fwd=uri-miss; fwd-status=404; detail=not-from-upstream");
        missing.expect_no_header("age");
    }
    fs::write(dir.path().join("b.css"), "there").unwrap();
    client.get("/b.css").expect_body("there");
}

/// A stale file is revalidated like an upstream's object.
#[test]
fn a_stale_file_is_compared() {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("a.txt"), "one").unwrap();
    let weir = Weir::start(&format!(
        "{WEB}\nstores: {{ pages: {{ memory: 4MiB }} }}\nroutes: {{ site: {{ match: {{ path: \"/*\" }}, filters: [ \
         {{ cache: {{ store: pages }} }}, {{ headers: {{ response: {{ set: {{ cache-control: no-cache }} }} }} }} ], files: {{ root: {} }} }} }}",
        dir.path().display()
    ));
    let mut client = weir.client();
    client
        .get("/a.txt")
        .expect_body("one")
        .expect_header("cache-status", "weir; fwd=uri-miss; fwd-status=200; stored");
    client.get("/a.txt").expect_body("one").expect_header("cache-status", "weir; fwd=stale; fwd-status=304");
    fs::write(dir.path().join("a.txt"), "another").unwrap();
    client
        .get("/a.txt")
        .expect_body("another")
        .expect_header("cache-status", "weir; fwd=uri-miss; fwd-status=200; stored");
}

/// Answers in the config follow the rules for all answers: they are stored if they say so, or by `ttl`.
#[test]
fn written_answers() {
    let weir = Weir::start(&format!(
        "{WEB}\nstores: {{ pages: {{ memory: 4MiB }} }}\nroutes:\n  said: {{ match: {{ path: /said }}, filters: [ {{ cache: {{ store: pages }} }} ], \
         respond: {{ status: 200, body: said, headers: {{ cache-control: max-age=60 }} }} }}\n  silent: {{ match: {{ path: /silent }}, \
         filters: [ {{ cache: {{ store: pages }} }} ], respond: {{ status: 200, body: silent }} }}\n"
    ));
    let mut client = weir.client();
    client.get("/said").expect_header("cache-status", "weir; fwd=uri-miss; fwd-status=200; stored");
    client.get("/said").expect_body("said").expect_header("age", "0");
    for _ in 0..2 {
        let silent = client.get("/silent");
        silent.expect_header("cache-status", "weir; fwd=uri-miss; fwd-status=200; detail=no-lifetime");
    }
}
