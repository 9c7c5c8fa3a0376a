//! The origin over real sockets: one request in, the response out.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use super::*;

fn connect(origin: &Handle) -> TcpStream {
    let stream = TcpStream::connect(origin.address()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    stream
}

/// Sends the bytes and reads until the end of the stream.
fn ask(origin: &Handle, request: &str) -> String {
    let mut stream = connect(origin);
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn get(origin: &Handle, target: &str) -> String {
    ask(origin, &format!("GET {target} HTTP/1.1\r\nHost: origin\r\nConnection: close\r\n\r\n"))
}

fn body(answer: &str) -> &str {
    answer.split_once("\r\n\r\n").unwrap().1
}

#[test]
fn pages() {
    let origin = Origin::start(Options::default()).unwrap();
    assert!(get(&origin, "/").contains("/delay/250"));
    assert_eq!(body(&get(&origin, "/body/5")), "xxxxx");
    assert_eq!(body(&get(&origin, "/body/100KiB")).len(), 102_400);
    assert_eq!(body(&get(&origin, "/chunked/3")), "3\r\nxxx\r\n0\r\n\r\n");
    assert_eq!(body(&get(&origin, "/stream/2")), "7\r\nline 1\n\r\n7\r\nline 2\n\r\n0\r\n\r\n");
    assert_eq!(body(&get(&origin, "/delay/1")), "after 1 ms\n");
    assert!(get(&origin, "/status/503?x").starts_with("HTTP/1.1 503 Service Unavailable\r\n"));
    assert_eq!(body(&get(&origin, "/status/204")), "");
    assert!(get(&origin, "/headers/2").contains("X-Header-0: value 0\r\nX-Header-1: value 1\r\n"));
    assert!(get(&origin, "http://origin/body/1").ends_with("\r\n\r\nx"));
    for unknown in ["/nothing", "*", "/api/x"] {
        assert!(get(&origin, unknown).starts_with("HTTP/1.1 404 "), "{unknown}");
    }
}

#[test]
fn bodies_that_differ() {
    let origin = Origin::start(Options::default()).unwrap();
    let length = |target: &str| body(&get(&origin, target)).len();
    assert_eq!(["/varying/3"; 4].map(length), [1, 2, 3, 1]);
    assert_eq!(length("/varying/2?other"), 1, "a sequence of its own");
    let bytes = |target: &str| {
        let mut stream = connect(&origin);
        let ask = format!("GET {target} HTTP/1.1\r\nHost: o\r\nConnection: close\r\n\r\n");
        stream.write_all(ask.as_bytes()).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let at = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n").unwrap() + 4;
        answer.split_off(at)
    };
    let (a, b) = (bytes("/random/100KiB"), bytes("/random/100KiB"));
    assert_eq!((a.len(), b.len()), (102_400, 102_400));
    assert_ne!(a, b);
    let of = |byte: u8| a.iter().filter(|other| **other == byte).count();
    assert!((0..=255).all(|byte| (300..500).contains(&of(byte))), "400 of each");
    assert_eq!(bytes("/random/9?seed=4"), bytes("/random/9?seed=4"));
}

#[test]
fn answers_that_take_their_time() {
    let origin = Origin::start(Options::default()).unwrap();
    let answer = get(&origin, "/sse/2?every=1");
    assert!(answer.contains("Content-Type: text/event-stream\r\n"), "{answer}");
    assert!(answer.contains("id: 1\ndata: event 1\n\n") && answer.contains("event 2"), "{answer}");
    let begun = std::time::Instant::now();
    assert_eq!(body(&get(&origin, "/drip/1000?over=50")).len(), 1000);
    assert!(begun.elapsed() >= Duration::from_millis(50));
    assert_eq!(body(&get(&origin, "/drip/0?over=1")), "");
    let old = ask(&origin, "GET /stream/1 HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    assert!(old.ends_with("Connection: close\r\n\r\nline 1\n"), "{old}");
}

#[test]
fn delays_by_a_distribution() {
    let origin = Origin::start(Options::default()).unwrap();
    let begun = std::time::Instant::now();
    assert_eq!(body(&get(&origin, "/delay/30?dist=uniform&to=40")), "delayed\n");
    assert!(begun.elapsed() >= Duration::from_millis(30));
    assert_eq!(body(&get(&origin, "/delay/0?tail=1&share=50&seed=3")), "delayed\n");
    for (path, expected) in [
        ("/delay/5?dist=normal", "expected fixed, uniform"),
        ("/drip/5?over=1s", "over=1s: expected milliseconds"),
        ("/random/5?seed=x", "seed=x: expected a whole number"),
        ("/sse/1?every=-1", "every=-1: expected milliseconds"),
    ] {
        let bad = get(&origin, path);
        assert!(bad.starts_with("HTTP/1.1 400 ") && bad.contains(expected), "{path}: {bad}");
    }
}

#[test]
fn faults_end_the_connection() {
    let origin = Origin::start(Options::default()).unwrap();
    let end = |target: &str| {
        let mut stream = connect(&origin);
        stream.write_all(format!("GET {target} HTTP/1.1\r\nHost: o\r\n\r\n").as_bytes()).unwrap();
        let mut answer = Vec::new();
        let end = stream.read_to_end(&mut answer).map_err(|e| e.kind());
        (String::from_utf8_lossy(&answer).into_owned(), end)
    };
    assert_eq!(end("/reset"), (String::new(), Err(io::ErrorKind::ConnectionReset)));
    assert_eq!(end("/reset/10").1, Err(io::ErrorKind::ConnectionReset));
    let (answer, ended) = end("/truncated/10");
    assert!(ended.is_ok() && answer.ends_with("Content-Length: 10\r\n\r\nxxxxx"), "{answer}");
    let (answer, ended) = end("/truncated/3?chunked");
    assert!(ended.is_ok() && answer.ends_with("\r\n\r\n3\r\nxxx\r\n"), "{answer}");
    let (answer, ended) = end("/garbage");
    assert!(ended.is_ok() && answer.contains("this is no HTTP"), "{answer}");
}

#[test]
fn what_it_did_is_counted() {
    let threads = NonZeroUsize::new(2).unwrap();
    let origin = Origin::start(Options { threads, ..Options::default() }).unwrap();
    for _ in 0..9 {
        get(&origin, "/body/1KiB");
    }
    let text = get(&origin, "/metrics");
    for line in ["weir_origin_requests_total 10\n", "weir_origin_connections_total 10\n"] {
        assert!(text.contains(line), "{text}");
    }
    let sent: u64 =
        text.lines().find_map(|l| l.strip_prefix("weir_origin_sent_bytes_total ")).unwrap().parse().unwrap();
    assert!(sent > 9 * 1024, "{text}");
}

#[test]
fn every_path_that_is_listed_is_there() {
    let origin = Origin::start(Options::default()).unwrap();
    let table = include_str!("lib.rs");
    for (path, _) in PATHS {
        let page = path[1..].split(['/', '?']).next().unwrap();
        assert!(table.contains(&format!("`/{page}")), "{path} in the table of lib.rs");
        // Tested elsewhere: they take a second, or are not text.
        if !["/random/1KiB", "/stream/10", "/sse/10", "/drip/1KiB", "/reset", "/garbage"].contains(path) {
            let answer = get(&origin, path);
            assert!(answer.starts_with("HTTP/1.1 ") && !answer.contains(" 404 "), "{path}: {answer}");
        }
    }
    for (path, expected) in [
        ("/status/9", "/status/9: expected a status, 200 to 599"),
        ("/status/100", "/status/100: expected a status, 200 to 599"),
        ("/status/", "expected a status"),
        ("/body/x", "/body/x: expected a size, such as 512 or 1KiB"),
        ("/body/-1", "expected a size"),
        ("/headers/1001", "/headers/1001: expected a number, 0 to 1000"),
        ("/varying/0", "expected a size of at least 1"),
        ("/delay/x", "/delay/x: expected milliseconds, such as 250"),
        ("/reset/x", "/reset/x: expected a size"),
        ("/truncated", "/truncated: expected a size"),
        ("/sse", "/sse: expected a number"),
    ] {
        let bad = get(&origin, path);
        assert!(bad.starts_with("HTTP/1.1 400 ") && bad.contains(expected), "{path}: {bad}");
    }
}

#[test]
fn echo_tells_what_arrived() {
    let origin = Origin::start(Options::default()).unwrap();
    let answer = ask(
        &origin,
        "PUT /echo?q HTTP/1.1\r\nhOST: o\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n\
         3;x\r\na\"b\r\n1\r\nc\r\n0\r\nT: t\r\n\r\n",
    );
    assert_eq!(
        body(&answer),
        "{\"method\":\"PUT\",\"target\":\"/echo?q\",\"version\":\"HTTP/1.1\",\"headers\":[[\"hOST\",\"o\"],\
         [\"Transfer-Encoding\",\"chunked\"],[\"Connection\",\"close\"]],\"body_length\":4,\"body\":\"a\\\"bc\"}\n"
    );
}

#[test]
fn upload_counts_and_sums() {
    let origin = Origin::start(Options::default()).unwrap();
    let head = "POST /upload HTTP/1.1\r\nHost: o\r\nConnection: close\r\nContent-Length: 9\r\n\r\n123456789";
    assert_eq!(body(&ask(&origin, head)), "{\"length\":9,\"crc32\":\"cbf43926\"}\n");
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let origin = Origin::start(Options::default()).unwrap();
    let answer = ask(
        &origin,
        "GET /body/1KiB HTTP/1.1\r\nHost: o\r\n\r\nGET /body/2 HTTP/1.1\r\nHost: o\r\n\r\n\
         GET /close HTTP/1.1\r\nHost: o\r\n\r\nGET /never",
    );
    assert_eq!(answer.matches("HTTP/1.1 200 OK").count(), 3);
    assert!(answer.ends_with("\r\n\r\nclosing\n"));
}

#[test]
fn expect_is_answered_before_the_body() {
    let origin = Origin::start(Options::default()).unwrap();
    let mut stream = connect(&origin);
    stream
        .write_all(b"PUT /upload HTTP/1.1\r\nHost: o\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\n")
        .unwrap();
    let mut answer = [0; 25];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 100 Continue\r\n\r\n");
    stream.write_all(b"a").unwrap();
    stream.read_exact(&mut answer[..15]).unwrap();
    assert_eq!(&answer[..15], b"HTTP/1.1 200 OK");
}

#[test]
fn bad_requests_are_refused() {
    let origin = Origin::start(Options::default()).unwrap();
    for bad in ["GET / HTTP/1.1\n\n", "PUT / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n"] {
        let answer = ask(&origin, bad);
        assert!(answer.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{bad:?}: {answer}");
    }
}

#[test]
fn websocket_echo() {
    let origin = Origin::start(Options::default()).unwrap();
    let mut stream = connect(&origin);
    stream
        .write_all(
            b"GET /ws HTTP/1.1\r\nHost: o\r\nUpgrade: websocket\r\nConnection: keep-alive, Upgrade\r\n\
              Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
        )
        .unwrap();
    // A text frame "Hi" masked with 1 2 3 4, an empty ping, then close 1000.
    stream.write_all(&[0x81, 0x82, 1, 2, 3, 4, b'H' ^ 1, b'i' ^ 2, 0x89, 0x80, 0, 0, 0, 0]).unwrap();
    stream.write_all(&[0x88, 0x82, 0, 0, 0, 0, 0x03, 0xe8]).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let frames = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n").unwrap() + 4;
    assert!(answer.starts_with(b"HTTP/1.1 101 "));
    assert_eq!(&answer[frames..], [0x81, 2, b'H', b'i', 0x8a, 0, 0x88, 2, 0x03, 0xe8]);
}

#[test]
fn stop_closes_everything() {
    let threads = NonZeroUsize::new(2).unwrap();
    let origin = Origin::start(Options { threads, ..Options::default() }).unwrap();
    let mut idle = connect(&origin);
    idle.write_all(b"GET /body/1 HTTP/1.1\r\nHost: o\r\n\r\n").unwrap();
    let mut first = [0];
    idle.read_exact(&mut first).unwrap();
    let address = origin.address();
    origin.stop();
    idle.read_to_end(&mut Vec::new()).unwrap();
    assert!(TcpStream::connect(address).is_err());
}

#[test]
fn starts_inside_a_runtime() {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let origin = runtime.block_on(async { Origin::start(Options::default()).unwrap() });
    assert_eq!(body(&get(&origin, "/body/1")), "x");
}

#[test]
fn one_answer_to_everything() {
    let origin = Origin::start(Options { fixed: Some(3), ..Options::default() }).unwrap();
    for path in ["/", "/echo", "/status/500", "/any/thing?at=all"] {
        let answer = get(&origin, path);
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{path}: {answer}");
        assert_eq!(body(&answer), "xxx", "{path}");
    }
    let head = ask(&origin, "HEAD /a HTTP/1.1\r\nHost: o\r\nConnection: close\r\n\r\n");
    assert!(head.contains("Content-Length: 3\r\n") && body(&head).is_empty(), "{head}");
    // The origin reads bodies whether they arrive with the head or after it, in any framing.
    let mut stream = connect(&origin);
    stream.write_all(b"POST /a HTTP/1.1\r\nHost: o\r\nContent-Length: 4\r\n\r\nbodyPOST /b HTTP/1.1\r\nHost: o\r\nContent-Length: 4\r\n\r\nbo").unwrap();
    stream.write_all(b"dyPOST /c HTTP/1.1\r\nHost: o\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\nGET /d HTTP/1.1\r\nHost: o\r\nConnection: close\r\n\r\n").unwrap();
    let mut answers = String::new();
    stream.read_to_string(&mut answers).unwrap();
    assert_eq!(answers.matches("HTTP/1.1 200 OK").count(), 4, "{answers}");
}
