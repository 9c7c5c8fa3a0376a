//! Rows as requests meet them, and files that must not run.

use super::super::testing::{Running, Stand};
use super::*;
use serde_json::{Value, json};
use tempfile::TempDir;

/// A folder with a file, and settings that name it.
fn written(text: &str, more: Value) -> (TempDir, Value) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("moved.csv");
    std::fs::write(&file, text).unwrap();
    let mut settings = more;
    settings["file"] = json!(file);
    (dir, settings)
}

fn running(text: &str, more: Value) -> Running {
    let (_dir, settings) = written(text, more);
    Stand::new(&KIND, settings).build()
}

fn mistakes(text: &str, more: Value) -> Vec<String> {
    let (_dir, settings) = written(text, more);
    Stand::new(&KIND, settings).mistakes()
}

#[tokio::test]
async fn rows() {
    let filter = running(
        "\u{feff}From, To, Status\r\n# moved in spring\r\n\r\n/old,/new\n/caf%c3%a9,/x,301\n /über uns , /über ,\n\
         \"/a,b\",\"https://www.example.com/a,\"\"b\"\"\",302\n/index.php?id=4,/four#top\n/index.php,/all?from=php\n\
         /b,HTTPS://www.example.com\n/c//d/../e,/e\n",
        json!({}),
    );
    for (request, status, location) in [
        ("GET /old", 308, "/new"),
        ("GET /old?a=1", 308, "/new?a=1"),
        ("GET /%6fld", 308, "/new"),
        ("POST /old", 308, "/new"),
        ("GET /caf%C3%A9", 301, "/x"),
        ("GET /x/../caf%c3%a9", 301, "/x"),
        ("GET /%c3%bcber%20uns", 308, "/%C3%BCber"),
        ("GET /a,b", 302, "https://www.example.com/a,%22b%22"),
        ("GET /index.php?id=4", 308, "/four#top"),
        ("GET /index.php?id=5", 308, "/all?from=php&id=5"),
        ("GET /index.php", 308, "/all?from=php"),
        ("GET /b", 308, "https://www.example.com"),
        ("GET /c/e", 308, "/e"),
    ] {
        filter.request(request).await.expect_status(status).expect_header("location", location);
    }
    for request in
        ["GET /", "GET /old/", "GET /OLD", "GET /old/x", "GET /from", "GET /a%2Cb", "OPTIONS /olds"]
    {
        filter.request(request).await.expect_continue();
    }
}

#[tokio::test]
async fn query_and_status() {
    let filter = running("/a,/b?c\n/d,/e,303\n", json!({ "keep_query": false, "status": 301 }));
    filter.request("GET /a?x").await.expect_status(301).expect_header("location", "/b?c");
    filter.request("GET /d?x").await.expect_status(303).expect_header("location", "/e");
}

#[tokio::test]
async fn a_redirect_to_the_requested_url_passes() {
    let text = "/,https://www.example.com/\n/b,http://www.example.com:80/b\n";
    let (_dir, settings) = written(text, json!({}));
    let mut plain = Stand::new(&KIND, settings.clone());
    let plain = plain.build();
    plain.request("GET /\nHost: www.example.com").await.expect_status(308);
    plain.request("GET /b\nHost: WWW.example.com").await.expect_continue();
    plain.request("GET /b?x=1\nHost: www.example.com").await.expect_continue();
    plain.request("GET /b\nHost: example.com").await.expect_status(308);
    let mut tls = Stand::new(&KIND, settings).tls();
    let tls = tls.build();
    tls.request("GET /\nHost: www.example.com:443").await.expect_continue();
    tls.request("GET /\nHost: example.com").await.expect_status(308);
    tls.request("GET /\nHost: www.example.com:8443").await.expect_status(308);
}

#[test]
fn mistakes_name_their_line() {
    for (text, expected) in [
        ("/a,/b\n/c,/d\n/%61,/e\n", "moved.csv:3: `/a` is redirected in line 1 already"),
        ("/a,/a\n", "moved.csv:1: `/a` leads to itself"),
        ("/a,/%61#x\n", "moved.csv:1: `/a` leads to itself"),
        ("/x,/a\n/a,/b\n/b,/c?q=1\n/c,/a\n", "moved.csv:2: `/a` leads back to itself, first to line 3"),
        ("/a?b,/a?b\n", "`/a?b` leads to itself"),
        ("/a,//evil.example/\n", "moved.csv:1: `//evil.example/` leaves for another host"),
        ("/a,/\\evil.example/\n", "backslash"),
        ("/a,https://www.example.com\\@evil.example/\n", "backslash"),
        ("/a,https://www.example.com@evil.example/\n", "is not a host"),
        ("/a,https:///b\n", "is not a host"),
        ("/a,javascript:alert(1)\n", "neither a path nor a URL"),
        ("/a,ftp://example.com/\n", "expected http or https"),
        ("/a,\n", "neither a path nor a URL"),
        ("/a,/b,200\n", "moved.csv:1: `200` is no status"),
        ("/a,/b,301,x\n", "has 4 fields"),
        ("/a\n", "has 1 fields"),
        ("a,/b\n", "`a` is not a path"),
        ("www.example.com/a,/b\n", "not a path"),
        ("/old/*,/b\n", "looks like a pattern"),
        ("/{id},/b\n", "looks like a pattern"),
        ("/a,/b/{id}\n", "looks like a pattern"),
        ("/a#b,/c\n", "fragment"),
        ("/../a,/c\n", "matches no request"),
        ("/a%zz,/c\n", "matches no request"),
        ("/a,/../c\n", "would be refused"),
        ("\"/a,/c\n", "not closed"),
        ("\"/a\"b,/c\n", "follows a quoted field"),
    ] {
        let told = mistakes(text, json!({}));
        assert!(told.len() == 1 && told[0].contains(expected), "{text:?}: {told:#?}");
    }
    running("", json!({}));
    let told = mistakes(
        "/a,https://WWW.example.com:8443/\n/b,https://evil.example/\n",
        json!({ "hosts": ["www.example.com"] }),
    );
    assert!(
        told.len() == 1 && told[0].contains("moved.csv:2") && told[0].contains("not in `hosts`"),
        "{told:?}"
    );
    let told = mistakes(&"x,y\n".repeat(9), json!({}));
    assert!(told.len() == 6 && told[5].contains("and 4 more rows"), "{told:?}");
    let told = mistakes(&format!("/{},/b\n", "a".repeat(9000)), json!({}));
    assert!(told[0].contains("longer than 8192"), "{told:?}");
}

#[test]
fn only_utf_8() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("moved.csv");
    std::fs::write(&file, b"/a,/b\n/\xfc,/c\n").unwrap();
    let told = Stand::new(&KIND, json!({ "file": file })).mistakes();
    assert!(told[0].contains("moved.csv:2: the text is not UTF-8"), "{told:?}");
}

/// The file of the largest use: every row is found, what is between them is not, and there are few allocations.
#[tokio::test]
async fn a_hundred_thousand_rows() {
    let rows: String = (0..100_000).map(|i| format!("/product/{i},/shop/items/{i}\n")).collect();
    let filter = running(&rows, json!({}));
    for i in (0..100_000).step_by(997) {
        let request = format!("GET /product/{i}");
        filter.request(&request).await.expect_header("location", &format!("/shop/items/{i}"));
    }
    filter.request("GET /product/100000").await.expect_continue();
    filter.request("GET /shop/items/7").await.expect_continue();
}
