//! Compression from the client's side: every coding, streams that pause, and responses that must stay unchanged.

use std::process::Command;
use std::sync::{Mutex, mpsc};

use weir_testkit::{Framing, Response, Upstream, Weir, decoded, refusing_address};

use crate::cause::{BAD_RESPONSE, CONNECT_REFUSED};
use crate::support::WEB;

/// A gateway that compresses this upstream's answers, with these settings.
#[track_caller]
fn compressing(upstream: &Upstream, settings: &str) -> Weir {
    Weir::start(&format!(
        "{WEB}\nupstreams: {{ up: {{ endpoints: [{}] }} }}\nroutes:\n  fixed: {{ match: {{ path: /fixed }}, filters: [ {{ compress: {{}} }} ], \
         respond: {{ body: \"{}\", headers: {{ content-type: text/plain }} }} }}\n  all: {{ match: {{ path: \"/*\" }}, \
         filters: [ {{ compress: {settings} }} ], upstream: up }}\n",
        upstream.address(),
        "weir ".repeat(400),
    ))
}

/// Compressible text without repetitions within a window.
fn page(lines: usize) -> String {
    (0..lines).map(|n| format!("<li>line {n} of the page, {}\n", n * n)).collect()
}

/// An upstream whose page has these fields in addition to its length.
fn with_page(fields: &str, page: &str) -> Upstream {
    Upstream::fixed(format!("HTTP/1.1 200 OK\r\n{fields}Content-Length: {}\r\n\r\n{page}", page.len()))
}

#[track_caller]
fn ask(weir: &Weir, accept: &str) -> Response {
    weir.client().ask(format!("GET /a HTTP/1.1\r\nHost: weir.test\r\nAccept-Encoding: {accept}\r\n\r\n"))
}

const HTML: &str = "Content-Type: text/html\r\nETag: \"1\"\r\n";

#[test]
fn each_client_gets_what_it_reads() {
    let page = page(20_000);
    let upstream = with_page(HTML, &page);
    let weir = compressing(&upstream, "{}");
    let rows = [
        ("gzip", "gzip"),
        ("gzip, br", "br"),
        ("gzip, deflate, br, zstd", "zstd"),
        ("zstd;q=0.1, gzip", "gzip"),
        ("*", "zstd"),
    ];
    for (accept, coding) in rows {
        let response = ask(&weir, accept);
        response
            .expect_status(200)
            .expect_header("content-encoding", coding)
            .expect_header("etag", "W/\"1\"")
            .expect_header("vary", "accept-encoding")
            .expect_no_header("content-length");
        assert_eq!(response.framing, Framing::Chunked);
        assert!(response.body.bytes.len() < page.len() / 3, "{accept}: {}", response.body.bytes.len());
        assert!(decoded(coding, &response.body.bytes) == page.as_bytes(), "{accept}");
    }
    for accept in ["", "identity", "deflate", "gzip;q=0", "gzip;q=9999999999999999999999", ";;;===,,,"] {
        let response = ask(&weir, accept);
        response
            .expect_status(200)
            .expect_no_header("content-encoding")
            .expect_header("vary", "accept-encoding");
        response.expect_header("etag", "\"1\"").expect_body(&page);
    }
}

/// Pieces compressed by threads arrive in order, and a client that leaves affects nobody else.
#[test]
fn what_takes_long() {
    let page = page(20_000);
    let upstream = with_page(HTML, &page);
    let weir = compressing(&upstream, "{ levels: { br: 9, gzip: 9, zstd: 9 } }");
    for coding in ["br", "gzip", "zstd"] {
        let mut gone = weir.client();
        gone.send(format!("GET /a HTTP/1.1\r\nHost: weir.test\r\nAccept-Encoding: {coding}\r\n\r\n"));
        gone.read_head();
        gone.reset();
        let response = ask(&weir, coding);
        response.expect_header("content-encoding", coding);
        assert!(decoded(coding, &response.body.bytes) == page.as_bytes(), "{coding}");
    }
}

#[test]
fn a_client_of_http_1_0_gets_it_until_the_end() {
    let page = page(500);
    let upstream = with_page(HTML, &page);
    let weir = compressing(&upstream, "{}");
    let response = weir.client().ask("GET /a HTTP/1.0\r\nAccept-Encoding: gzip\r\n\r\n");
    assert_eq!(response.framing, Framing::Close);
    assert!(decoded("gzip", &response.body.bytes) == page.as_bytes());
}

/// Data goes out when the upstream pauses, not only when a buffer is full.
#[test]
fn events_arrive_when_they_are_sent() {
    for coding in ["gzip", "br", "zstd"] {
        let (seen, next) = mpsc::channel::<()>();
        let next = Mutex::new(next);
        let upstream = Upstream::script(move |conn| {
            conn.read_request();
            conn.send(
                "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n",
            );
            for n in 0..5 {
                conn.send(format!("9\r\ndata: {n}\n\n\r\n"));
                next.lock().unwrap().recv().unwrap();
            }
            conn.send("0\r\n\r\n");
        });
        let weir = compressing(&upstream, "{}");
        let mut client = weir.client();
        client.send(format!("GET / HTTP/1.1\r\nHost: weir.test\r\nAccept-Encoding: {coding}\r\n\r\n"));
        assert_eq!(client.read_head().header("content-encoding"), Some(coding));
        let (mut got, mut expected) = (Vec::new(), String::new());
        for n in 0..5 {
            expected.push_str(&format!("data: {n}\n\n"));
            // An event may arrive in several chunks: a pause can fall between its header and its text.
            while decoded(coding, &got) != expected.as_bytes() {
                let line = client.read_until("\r\n");
                let size = usize::from_str_radix(String::from_utf8_lossy(&line).trim(), 16).unwrap();
                got.extend(client.read_n(size));
                client.read_n(2);
            }
            seen.send(()).unwrap();
        }
        client.read_chunked();
    }
}

#[test]
fn what_is_not_compressed() {
    let page = page(500);
    for fields in [
        "Content-Type: text/html\r\nContent-Encoding: gzip\r\n",
        "Content-Type: text/html\r\nContent-Range: bytes 0-9/10\r\n",
        "Content-Type: text/html\r\nCache-Control: public, no-transform\r\n",
        "Content-Type: image/png\r\n",
        "",
    ] {
        let upstream = with_page(fields, &page);
        let weir = compressing(&upstream, "{}");
        let response = ask(&weir, "gzip, br, zstd");
        response
            .expect_status(200)
            .expect_header("content-length", &page.len().to_string())
            .expect_body(&page);
        assert_eq!(
            response.head.all("content-encoding").len(),
            usize::from(fields.contains("Encoding")),
            "{fields}"
        );
    }
    let upstream = with_page(HTML, "short");
    let weir = compressing(&upstream, "{}");
    ask(&weir, "gzip").expect_no_header("content-encoding").expect_body("short");
    let weir = compressing(&upstream, "{ minimum: 5B }");
    let response = ask(&weir, "gzip");
    assert_eq!(decoded("gzip", &response.body.bytes), b"short");
}

#[test]
fn heads_and_validators() {
    let page = page(500);
    let upstream = with_page(HTML, &page);
    let weir = compressing(&upstream, "{}");
    let mut client = weir.client();
    let request = |line: &str, fields: &str| {
        format!("{line} HTTP/1.1\r\nHost: weir.test\r\nAccept-Encoding: br\r\n{fields}\r\n")
    };
    client.send(request("HEAD /fixed", ""));
    let head = client.read_response_to_head();
    head.expect_header("content-encoding", "br").expect_no_header("content-length");
    let fixed = client.ask(request("GET /fixed", ""));
    fixed
        .expect_header("content-encoding", "br")
        .expect_header("content-length", &fixed.body.bytes.len().to_string());
    assert_eq!(decoded("br", &fixed.body.bytes), "weir ".repeat(400).as_bytes());

    let not_modified = Upstream::fixed("HTTP/1.1 304 Not Modified\r\nETag: \"1\"\r\n\r\n");
    let weir = compressing(&not_modified, "{}");
    let response = weir.client().ask(request("GET /a", "If-None-Match: W/\"1\"\r\n"));
    response.expect_status(304).expect_header("etag", "W/\"1\"").expect_no_header("content-encoding");
}

/// If the body breaks before any of it was sent, the error answer replaces it and is not compressed as part of it.
#[test]
fn an_error_in_place_of_a_broken_body() {
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nTransfer-Encoding: chunked\r\n\r\n";
    let upstream = Upstream::fixed(format!("{head}no chunk\r\n"));
    let weir = compressing(&upstream, "{}");
    let response = ask(&weir, "gzip");
    response
        .expect_cause(BAD_RESPONSE)
        .expect_no_header("content-encoding")
        .expect_body_with("\"status\":502");
}

/// Errors of the gateway are answers like others.
#[test]
fn errors_of_the_gateway_pass() {
    let (_socket, gone) = refusing_address();
    let config = format!(
        "{WEB}\nupstreams: {{ up: {{ endpoints: [{}] }} }}\nroutes: {{ all: {{ match: {{ path: \"/*\" }}, \
         filters: [ {{ compress: {{ minimum: 1B }} }} ], upstream: up }} }}\n",
        gone
    );
    let weir = Weir::start(&config);
    let response = ask(&weir, "gzip");
    response.expect_cause(CONNECT_REFUSED).expect_header("content-encoding", "gzip");
    let text = String::from_utf8(decoded("gzip", &response.body.bytes)).unwrap();
    assert!(text.contains("\"status\":502"), "{text}");
}

#[test]
fn curl_reads_it() {
    if Command::new("curl").arg("--version").output().is_err() {
        return eprintln!("SKIPPED: curl is not installed (scripts/ensure-tools.sh curl)");
    }
    let page = page(20_000);
    let upstream = with_page(HTML, &page);
    let weir = compressing(&upstream, "{}");
    let url = format!("http://{}/a", weir.address("web"));
    let output =
        Command::new("curl").args(["-sS", "--compressed", "-D", "-", "-o", "-", &url]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    assert!(head.to_ascii_lowercase().contains("content-encoding: "), "{head}");
    assert!(body == page, "{head}");
}
