//! `replace`: texts in response bodies, however they arrive and whatever stands beside the filter.

use weir_testkit::h2::{H2Origin, Options};
use weir_testkit::{Framing, Response, Upstream, Weir, decoded, eventually};

use crate::cause::REPLACE_LIMIT;
use crate::support::{GET, WEB};

/// A gateway with these filters in front of an upstream.
#[track_caller]
fn start(upstream: &str, filters: &str) -> Weir {
    Weir::start(&format!(
        "listeners: {{ web: {{ address: 127.0.0.1:0, protocols: [http1, h2] }} }}\nadmin: {{ address: 127.0.0.1:0 }}\n\
         stores: {{ pages: {{ memory: 64MiB }} }}\nupstreams: {{ up: {upstream} }}\n\
         routes: {{ all: {{ match: {{ path: \"/*\" }}, filters: [ {filters} ], upstream: up }} }}\n",
    ))
}

#[track_caller]
fn replacing(upstream: &Upstream, filters: &str) -> Weir {
    start(&format!("{{ endpoints: [{}] }}", upstream.address()), filters)
}

const REPLACE: &str = "{ replace: { text: { \"http://old\": \"https://new\" } } }";

/// A figure of the filter.
fn figure(weir: &Weir, name: &str, reason: &str) -> u64 {
    let metrics = weir.admin_client().ask("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").text();
    let line = metrics.lines().find(|line| {
        line.starts_with(&format!("weir_replace_{name}_total{{"))
            && (reason.is_empty() || line.contains(&format!("\"{reason}\"")))
    });
    line.and_then(|line| line.rsplit(' ').next()).map_or(0, |value| value.parse().unwrap())
}

/// An upstream whose page has these fields in addition to its length.
fn with_page(fields: &str, page: &str) -> Upstream {
    Upstream::fixed(format!("HTTP/1.1 200 OK\r\n{fields}Content-Length: {}\r\n\r\n{page}", page.len()))
}

const HTML: &str = "Content-Type: text/html\r\nETag: \"1\"\r\nAccept-Ranges: bytes\r\n";

fn ask(weir: &Weir, fields: &str) -> Response {
    weir.client().ask(format!("GET / HTTP/1.1\r\nHost: weir.test\r\n{fields}\r\n"))
}

#[test]
fn a_text_across_packets_and_pauses() {
    let upstream = Upstream::listen();
    let weir = replacing(&upstream, REPLACE);
    let (mut client, mut conn) = weir.begin(&upstream, GET);
    conn.send("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nTransfer-Encoding: chunked\r\n\r\n");
    client.read_head();
    conn.send("a\r\nsee http:/\r\n");
    client.expect("4\r\nsee \r\n"); // what cannot be part of a text leaves at once
    conn.send("1\r\n/\r\n");
    conn.send("4\r\nold/\r\n");
    client.expect("c\r\nhttps://new/\r\n");
    conn.send("3\r\nhtt\r\n0\r\nX-Took: 1\r\nContent-Digest: sha-256=:AA==:\r\n\r\n");
    client.expect("3\r\nhtt\r\n0\r\nX-Took: 1\r\n\r\n");
    assert_eq!(figure(&weir, "replaced", ""), 1);
}

#[test]
fn each_version_gets_it_framed_right() {
    let page = format!("http://old/{}http://old", "a".repeat(100_000));
    let expected = page.replace("http://old", "https://new");
    let upstream = with_page(HTML, &page);
    let weir = replacing(&upstream, REPLACE);
    let mut client = weir.client();
    for _ in 0..2 {
        let response = client.get("/");
        response.expect_status(200).expect_body(&expected).expect_no_header("content-length");
        response.expect_header("etag", "W/\"1\"").expect_no_header("accept-ranges");
        assert_eq!(response.framing, Framing::Chunked);
    }
    let response = weir.client().ask("GET / HTTP/1.0\r\n\r\n");
    assert_eq!(response.framing, Framing::Close);
    response.expect_body(&expected);
    let mut h2 = weir.h2();
    let stream = h2.get("/");
    let message = h2.message(stream);
    message.expect_status(200).expect_no_header("content-length").expect_body(&expected);
    let seen = upstream.requests();
    assert_eq!(seen[0].head.all("accept-encoding"), ["identity"]);
}

#[test]
fn an_upstream_of_http_2() {
    let upstream = H2Origin::new(Options::default(), |h2, stream, _| {
        h2.answer(
            stream,
            &[(":status", "200"), ("content-type", "text/html"), ("content-length", "12")],
            "a http://old",
        );
    });
    let weir = start(&format!("{{ endpoints: [{}], protocol: h2c }}", upstream.address()), REPLACE);
    weir.client().get("/").expect_status(200).expect_body("a https://new").expect_no_header("content-length");
    let mut h2 = weir.h2();
    let stream = h2.get("/");
    h2.message(stream).expect_body("a https://new").expect_no_header("content-length");
}

#[test]
fn head_and_not_modified() {
    let upstream = Upstream::script(|conn| {
        while let Some(request) = conn.next_request() {
            let fields = "Content-Type: text/html\r\nETag: \"1\"\r\n";
            match request.head.header("if-none-match") {
                Some(_) => conn.send("HTTP/1.1 304 Not Modified\r\nETag: \"1\"\r\n\r\n"),
                None => conn.send(format!("HTTP/1.1 200 OK\r\n{fields}Content-Length: 10\r\n\r\n")),
            }
        }
    });
    let weir = replacing(&upstream, REPLACE);
    let mut client = weir.client();
    client.send("HEAD / HTTP/1.1\r\nHost: weir.test\r\n\r\n");
    let response = client.read_response_to_head();
    response.expect_status(200).expect_header("etag", "W/\"1\"").expect_no_header("content-length");
    ask(&weir, "If-None-Match: W/\"1\"\r\n").expect_status(304).expect_header("etag", "W/\"1\"");
}

#[test]
fn parts_are_not_asked_for() {
    let upstream = with_page(HTML, "http://old");
    let weir = replacing(&upstream, REPLACE);
    let fields = "Range: bytes=3-5\r\nIf-Range: \"1\"\r\nAccept-Encoding: gzip\r\n";
    ask(&weir, fields).expect_status(200).expect_body("https://new");
    let seen = upstream.take_request().head;
    assert_eq!((seen.header("range"), seen.header("if-range")), (None, None));
}

#[test]
fn what_is_not_searched_keeps_its_length() {
    for (fields, reason) in [
        ("Content-Type: image/png\r\n", ""),
        ("Content-Type: text/html\r\nContent-Encoding: gzip\r\n", "coded"),
        ("Content-Type: text/html\r\nContent-Range: bytes 0-9/20\r\n", "partial"),
        ("Content-Type: text/html\r\nCache-Control: no-transform\r\n", "no_transform"),
    ] {
        let upstream = with_page(fields, "http://old");
        let weir = replacing(&upstream, REPLACE);
        ask(&weir, "").expect_header("content-length", "10").expect_body("http://old");
        if !reason.is_empty() {
            assert_eq!(figure(&weir, "passed", reason), 1, "{fields}");
        }
    }
}

#[test]
fn with_compress_on_either_side() {
    let page = "<a href='http://old/a'>".repeat(500);
    let expected = page.replace("http://old", "https://new");
    let upstream = with_page(HTML, &page);
    let weir = replacing(&upstream, &format!("{{ compress: {{}} }}, {REPLACE}"));
    let response = ask(&weir, "Accept-Encoding: gzip\r\n");
    response.expect_header("content-encoding", "gzip").expect_header("vary", "accept-encoding");
    assert_eq!(decoded("gzip", &response.body.bytes), expected.as_bytes());
    ask(&weir, "").expect_no_header("content-encoding").expect_body(&expected);

    let weir = replacing(&upstream, &format!("{REPLACE}, {{ compress: {{}} }}"));
    let response = ask(&weir, "Accept-Encoding: gzip\r\n");
    response.expect_no_header("content-encoding").expect_body(&expected);
}

#[test]
fn a_cache_keeps_what_it_sees() {
    let page = "see http://old";
    for (filters, replaced) in [
        (format!("{{ cache: {{ store: pages, ttl: 1h }} }}, {REPLACE}"), 1),
        (format!("{REPLACE}, {{ cache: {{ store: pages, ttl: 1h }} }}"), 3),
    ] {
        let upstream = with_page("Content-Type: text/html\r\nETag: \"1\"\r\nVary: Accept-Encoding\r\n", page);
        let weir = replacing(&upstream, &filters);
        for _ in 0..3 {
            let response = ask(&weir, "Accept-Encoding: gzip\r\n");
            response.expect_body("see https://new").expect_header("etag", "W/\"1\"");
        }
        assert_eq!(upstream.requests().len(), 1, "{filters}");
        assert_eq!(figure(&weir, "replaced", ""), replaced, "{filters}");
        let tag = "Accept-Encoding: gzip\r\nIf-None-Match: W/\"1\"\r\n";
        ask(&weir, tag).expect_status(304).expect_header("etag", "W/\"1\"");
    }
}

/// The part of a kept answer is a part of the replaced one if the cache stands before the filter.
#[test]
fn a_cache_before_it_gives_parts_of_what_it_keeps() {
    let upstream = with_page(HTML, "http://old and more");
    let weir = replacing(&upstream, &format!("{{ cache: {{ store: pages, ttl: 1h }} }}, {REPLACE}"));
    ask(&weir, "").expect_body("https://new and more");
    let part = ask(&weir, "Range: bytes=0-4\r\n");
    match part.status {
        206 => part.expect_body("https"),
        _ => part.expect_status(200).expect_body("https://new and more"),
    };
}

#[test]
fn pages_of_the_gateway_and_of_the_upstream() {
    let upstream = Upstream::fixed(
        "HTTP/1.1 404 Not Found\r\nContent-Type: text/html\r\nContent-Length: 10\r\n\r\nhttp://old",
    );
    let weir = replacing(&upstream, REPLACE);
    ask(&weir, "").expect_status(404).expect_body("https://new");
    // Before it, `errors` writes pages that it does not see; behind it, pages that it sees.
    let page = "errors: { 404: { body: \"at http://old\", type: text/html }, upstream: [ 404 ] }";
    for (filters, body) in [
        (format!("{{ {page} }}, {REPLACE}"), "at http://old"),
        (format!("{REPLACE}, {{ {page} }}"), "at https://new"),
    ] {
        let length = body.len().to_string();
        let weir = replacing(&upstream, &filters);
        ask(&weir, "").expect_status(404).expect_header("content-length", &length).expect_body(body);
    }
    let weir = Weir::start(&format!(
        "{WEB}\nroutes: {{ all: {{ match: {{ path: \"/*\" }}, filters: [ {REPLACE} ], respond: {{ body: \"http://old!\", \
         headers: {{ content-type: text/html }} }} }} }}\n"
    ));
    let response = weir.client().get("/");
    response.expect_header("content-length", "12").expect_body("https://new!");
}

#[test]
fn files_are_searched_too() {
    let weir = Weir::start(&format!(
        "{WEB}\nroutes: {{ all: {{ match: {{ path: \"/*\" }}, filters: [ {REPLACE} ], files: {{ root: . }} }} }}\n"
    ));
    let long = format!("{}http://old", "a".repeat(300_000));
    std::fs::write(weir.dir().join("page.html"), &long).unwrap();
    let response = weir.client().get("/page.html");
    response.expect_status(200).expect_body(long.replace("http://old", "https://new"));
}

#[test]
fn a_retry_and_a_copy_change_nothing() {
    let good = with_page(HTML, "http://old");
    let bad = Upstream::fixed(
        "HTTP/1.1 503 Busy\r\nContent-Type: text/html\r\nContent-Length: 10\r\n\r\nhttp://old",
    );
    let next = with_page(HTML, "http://old");
    let weir = Weir::start(&format!(
        "{WEB}\nadmin: {{ address: 127.0.0.1:0 }}\nupstreams:\n  next: {{ endpoints: [{}] }}\n  up: {{ endpoints: [{}, {}], \
         balancer: round_robin, retry: {{ attempts: 2, on: [ 503 ] }} }}\nroutes: {{ all: {{ match: {{ path: \"/*\" }}, filters: \
         [ {{ mirror: {{ upstream: next }} }}, {REPLACE} ], upstream: up }} }}\n",
        next.address(),
        bad.address(),
        good.address(),
    ));
    for _ in 0..4 {
        ask(&weir, "Accept-Encoding: br\r\n").expect_status(200).expect_body("https://new");
    }
    assert_eq!(figure(&weir, "replaced", ""), 4, "of answers that were used");
    assert_eq!(
        next.wait_requests(4)[0].head.header("accept-encoding"),
        Some("br"),
        "as it was at the mirror"
    );
}

#[test]
fn a_body_that_breaks_off_is_not_taken_for_whole() {
    let upstream = Upstream::listen();
    let weir = replacing(&upstream, REPLACE);
    let (mut client, mut conn) = weir.begin(&upstream, GET);
    conn.send("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 100\r\n\r\nsee http:");
    client.read_head();
    client.expect("4\r\nsee \r\n");
    conn.close();
    client.expect_close();

    // A client that leaves ends the exchange, and the next is served.
    let (mut client, mut conn) = weir.begin(&upstream, GET);
    conn.send("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 100\r\n\r\nsee http:");
    client.read_head();
    client.reset();
    conn.expect_close();
}

#[test]
fn an_answer_that_would_grow_without_end() {
    let upstream = with_page(HTML, &"x".repeat(1000));
    let long = "y".repeat(16 * 1024);
    let weir = replacing(&upstream, &format!("{{ replace: {{ text: {{ x: {long} }} }} }}"));
    ask(&weir, "").expect_cause(REPLACE_LIMIT);
    let weir = replacing(&upstream, &format!("{{ replace: {{ text: {{ xxxx: {long} }} }} }}"));
    let response = ask(&weir, "");
    assert_eq!(response.body.bytes.len(), 250 * 16 * 1024);
    eventually("all are counted", || figure(&weir, "replaced", "") == 250);
}

#[test]
fn a_stream_of_events_is_not_delayed() {
    let upstream = Upstream::listen();
    let weir =
        replacing(&upstream, "{ replace: { types: [ text/event-stream ], text: { \"http://old\": n } } }");
    let (mut client, mut conn) = weir.begin(&upstream, GET);
    conn.send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n");
    client.read_head();
    for event in ["data: a http\n\n", "data: b\n\n"] {
        conn.send(event);
        client.expect(format!("{:x}\r\n{event}\r\n", event.len()));
    }
    conn.send("data: http://old\n\n");
    client.expect("9\r\ndata: n\n\n\r\n");
}
