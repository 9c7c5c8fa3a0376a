//! Bodies: any size, both ways concurrently, re-framed, with trailers, answered early, and truncated.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use weir_origin::{Options, Origin};
use weir_testkit::{Framing, Upstream, Weir, eventually};

use crate::support::{ALL_TO_UP, GET, OK, OK_BODY, config};

const MIB: usize = 1024 * 1024;

#[test]
fn chunks_are_framed_anew() {
    let upstream = Upstream::listen();
    let weir = Weir::in_front_of(&upstream);
    let mut client = weir.client();
    client.send("POST / HTTP/1.1\r\nHost: weir.test\r\nTransfer-Encoding: Chunked\r\n\r\n");
    client.send("0003;ext=\"a;b\"\r\nabc\r\n2\r\nde\r\n0000;last\r\n\r\n");
    let mut conn = upstream.accept();
    let request = conn.read_request();
    assert_eq!(request.body.bytes, b"abcde");
    assert_eq!(request.head.all("transfer-encoding"), ["chunked"]);
    let raw = String::from_utf8_lossy(&request.body.raw);
    assert!(
        !raw.contains(';') && !raw.contains("000"),
        "extensions and padding are not ours to pass on: {raw:?}"
    );
    conn.send(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n00004 ;x=y\r\nwxyz\r\n0\r\n\r\n"
            .replace(" ;", ";"),
    );
    let response = client.read_response();
    response.expect_status(200).expect_body("wxyz");
    let raw = String::from_utf8_lossy(&response.body.raw);
    assert!(!raw.contains(';') && !raw.contains("000"), "{raw:?}");
}

#[test]
fn a_streamed_answer_arrives_as_it_comes() {
    let upstream = Upstream::listen();
    let weir = Weir::in_front_of(&upstream);
    let (mut client, mut conn) = weir.begin(&upstream, GET);
    conn.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
    client.read_head();
    for part in ["one", "two", "three"] {
        conn.send(format!("{:x}\r\n{part}\r\n", part.len()));
        client.expect(format!("{:x}\r\n{part}\r\n", part.len()));
    }
    conn.send("0\r\n\r\n");
    client.expect("0\r\n\r\n");
}

#[test]
fn a_streamed_request_arrives_as_it_comes() {
    let upstream = Upstream::listen();
    let weir = Weir::in_front_of(&upstream);
    let mut client = weir.client();
    client.send("POST / HTTP/1.1\r\nHost: weir.test\r\nContent-Length: 6\r\n\r\n");
    let mut conn = upstream.accept();
    conn.read_head();
    client.send("abc");
    conn.expect("abc");
    client.send("def");
    conn.expect("def");
    conn.send(OK);
    client.read_response().expect_status(200);
}

#[test]
fn trailers_pass_both_ways() {
    let upstream = Upstream::listen();
    let weir = Weir::in_front_of(&upstream);
    let mut client = weir.client();
    client.send("POST / HTTP/1.1\r\nHost: weir.test\r\nTE: trailers\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n");
    client.send("1\r\na\r\n0\r\nX-Sum: 1\r\n\r\n");
    let mut conn = upstream.accept();
    let request = conn.read_request();
    assert_eq!(request.body.trailers, [("X-Sum".to_owned(), "1".to_owned())]);
    conn.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Ok\r\n\r\n1\r\nb\r\n0\r\nX-Ok: 2\r\n\r\n");
    let response = client.read_response();
    assert_eq!(response.body.trailers, [("X-Ok".to_owned(), "2".to_owned())]);
    assert_eq!(response.text(), "b");
}

#[test]
fn trailers_never_frame_route_or_identify() {
    let upstream = Upstream::listen();
    let weir = Weir::in_front_of(&upstream);
    let mut client = weir.client();
    client.send("POST / HTTP/1.1\r\nHost: weir.test\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n");
    client.send("Host: evil\r\nContent-Length: 5\r\nX-Forwarded-For: 1.2.3.4\r\nAuthorization: x\r\nX-Good: y\r\n\r\n");
    let mut conn = upstream.accept();
    // RFC 9110 §6.5.1: trailers may be dropped, or the whole message refused.
    if let Some(request) = conn.next_request() {
        for (name, _) in &request.body.trailers {
            assert_eq!(name.to_ascii_lowercase(), "x-good");
        }
        conn.send(OK);
        client.read_response().expect_status(200);
    } else {
        client.read_response().expect_status(400);
    }
}

#[test]
fn a_body_that_the_close_ends_is_passed_on() {
    let upstream = Upstream::script(|conn| {
        conn.next_request();
        conn.send("HTTP/1.1 200 OK\r\nX-A: b\r\n\r\nto the end");
    });
    let weir = Weir::in_front_of(&upstream);
    let mut client = weir.client();
    client.get("/").expect_status(200).expect_body("to the end");
    let mut client = weir.client();
    let response = client.ask("GET / HTTP/1.0\r\nHost: weir.test\r\n\r\n");
    response.expect_body("to the end");
    client.expect_eof();
}

#[test]
fn an_http_1_0_upstream_is_understood() {
    let upstream = Upstream::script(|conn| {
        conn.next_request();
        conn.send("HTTP/1.0 200 OK\r\n\r\nold");
    });
    let weir = Weir::in_front_of(&upstream);
    let mut client = weir.client();
    let response = client.get("/");
    response.expect_body("old");
    assert!(response.head.line.starts_with("HTTP/1.1 200"), "we speak for ourselves: {}", response.head.line);
    if response.framing == Framing::Chunked {
        client.get("/").expect_body("old");
    }
}

#[test]
fn a_body_cut_short_looks_cut_short() {
    for answer in [
        "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nhalf",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n0\r\n",
    ] {
        let upstream = Upstream::script(move |conn| {
            conn.next_request();
            conn.send(answer);
        });
        let weir = Weir::in_front_of(&upstream);
        let mut client = weir.client();
        client.send(GET);
        let broken = client.try_read_response().expect_err(answer);
        // The response is truncated or never begins; it is never complete, and the client never waits.
        assert!(
            broken.why.starts_with("Closed") || broken.why.starts_with("Reset"),
            "{answer:?}: {broken:?}"
        );
        assert!(b"half".starts_with(&broken.body[..]), "{broken:?}");
    }
}

#[test]
fn a_reset_in_a_close_delimited_body_looks_cut_short() {
    let upstream = Upstream::listen();
    let weir = Weir::in_front_of(&upstream);
    let (mut client, mut conn) = weir.begin(&upstream, GET);
    conn.send("HTTP/1.1 200 OK\r\n\r\nhalf");
    client.read_until("half");
    conn.reset();
    // Chunked: no last chunk. Close-delimited: a reset. Never a clean end.
    let rest = client.read_to_close();
    assert!(!rest.ends_with(b"0\r\n\r\n"), "{rest:?}");
}

#[test]
fn an_early_answer_is_passed_on_before_the_body_is_done() {
    let upstream = Upstream::listen();
    let weir = Weir::in_front_of(&upstream);
    let mut client = weir.client();
    client.send("POST / HTTP/1.1\r\nHost: weir.test\r\nContent-Length: 1000000\r\n\r\nsome");
    let mut conn = upstream.accept();
    conn.read_head();
    conn.send("HTTP/1.1 413 Content Too Large\r\nConnection: close\r\nContent-Length: 3\r\n\r\nbig");
    client.read_response().expect_status(413).expect_body("big");
}

#[test]
fn an_early_answer_and_a_body_that_still_comes() {
    let upstream = Upstream::listen();
    let weir = Weir::in_front_of(&upstream);
    let mut client = weir.client();
    client.send("POST / HTTP/1.1\r\nHost: weir.test\r\nContent-Length: 8\r\n\r\nhalf");
    let mut conn = upstream.accept();
    conn.read_head();
    conn.expect("half");
    conn.send(OK_BODY);
    client.read_response().expect_status(200).expect_body("ok");
    // The connection may continue or close; the body is never taken for a request.
    if client.try_send("GET ").is_ok() {
        let _ = client.try_send(GET);
    }
    let requests: Vec<_> = upstream.requests().iter().map(|request| request.head.line.clone()).collect();
    assert!(requests.iter().all(|line| !line.starts_with("GET GET")), "{requests:?}");
}

/// An upstream may read on after it has answered: its answer is small and goes out at once, and the rest of the request
/// follows.
#[test]
fn the_rest_of_a_body_follows_an_early_answer() {
    let stand = || {
        let upstream = Upstream::listen();
        let weir = Weir::start(&format!(
            "listeners: {{ web: {{ address: 127.0.0.1:0, protocols: [http1, h2] }} }}\n\
             upstreams: {{ up: {{ endpoints: [{}] }} }}\n{ALL_TO_UP}\n",
            upstream.address()
        ));
        (upstream, weir)
    };

    let (upstream, weir) = stand();
    let mut client = weir.client();
    client.send("POST / HTTP/1.1\r\nHost: weir.test\r\nContent-Length: 8\r\n\r\nhalf");
    let mut conn = upstream.accept();
    conn.read_head();
    conn.expect("half");
    conn.send(OK_BODY);
    client.read_response().expect_status(200).expect_body("ok");
    client.send("rest");
    conn.expect("rest");
    client.expect_eof();

    let (upstream, weir) = stand();
    let mut client = weir.h2();
    let stream = client.post("/");
    client.data(stream, "half", false);
    let mut conn = upstream.accept();
    conn.read_head();
    conn.expect("4\r\nhalf\r\n");
    conn.send(OK_BODY);
    client.wait(stream, "the answer", |message| message.body == b"ok");
    client.data(stream, "rest", true);
    conn.expect("4\r\nrest\r\n0\r\n\r\n");
    client.message(stream).expect_status(200).expect_body("ok");
}

#[test]
fn an_unread_body_does_not_spoil_the_next_request() {
    let weir = Weir::start(&format!(
        "{}\nroutes: {{ no: {{ match: {{ path: \"/*\" }}, respond: {{ status: 200, body: no }} }} }}\n",
        crate::support::WEB
    ));
    let mut client = weir.client();
    let post = "POST / HTTP/1.1\r\nHost: weir.test\r\nContent-Length: 18\r\n\r\nGET / HTTP/1.0\r\n\r\n";
    client.ask(post).expect_status(200).expect_body("no");
    // Whether the connection continues or closes, the body is never taken for a request.
    if client.try_send(GET).is_err() {
        return;
    }
    match client.try_read_response() {
        Ok(response) => {
            response.expect_status(200);
            client.expect_silence(Duration::from_millis(20));
        }
        Err(broken) => assert!(!broken.why.starts_with("Deadline"), "{broken:?}"),
    }
}

#[test]
fn large_bodies_both_ways_at_once() {
    let upstream = Upstream::script(|conn| {
        conn.set_deadline(Duration::from_secs(30));
        conn.read_head();
        conn.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", 16 * MIB));
        // Echo, piece by piece, works only if both directions flow concurrently.
        for _ in 0..256 {
            let piece = conn.read_n(MIB / 16);
            conn.send(piece);
        }
    });
    let weir = Weir::in_front_of(&upstream);
    let mut client = weir.client();
    client.set_deadline(Duration::from_secs(30));
    client.send(format!("POST / HTTP/1.1\r\nHost: weir.test\r\nContent-Length: {}\r\n\r\n", 16 * MIB));
    let mut writer = client.writer();
    let sender = thread::spawn(move || {
        for number in 0..256_usize {
            writer.send(vec![number as u8; MIB / 16]).unwrap();
        }
    });
    let response = client.read_response();
    sender.join().unwrap();
    assert_eq!(response.body.bytes.len(), 16 * MIB);
    for (number, piece) in response.body.bytes.chunks(MIB / 16).enumerate() {
        assert!(piece.iter().all(|byte| *byte == number as u8), "piece {number}");
    }
    upstream.verify();
}

/// 20 MiB in chunks of a size that divides no buffer size.
fn many_chunks() -> Vec<u8> {
    const CHUNK: usize = 10_007;
    let mut all = Vec::new();
    for number in 0..20 * MIB / CHUNK {
        all.extend_from_slice(format!("{CHUNK:x}\r\n").as_bytes());
        all.resize(all.len() + CHUNK, b'a' + (number % 26) as u8);
        all.extend_from_slice(b"\r\n");
    }
    all.extend_from_slice(b"0\r\n\r\n");
    all
}

/// Panics unless the body is that of [`many_chunks`].
#[track_caller]
fn expect_many_chunks(body: &[u8]) {
    assert_eq!(body.len(), 20 * MIB / 10_007 * 10_007);
    for (number, chunk) in body.chunks(10_007).enumerate() {
        assert!(chunk.iter().all(|byte| *byte == b'a' + (number % 26) as u8), "chunk {number}");
    }
}

/// Sends [`many_chunks`] from another thread; returns when every buffer on the way is full.
fn send_until_stuck(mut send: impl FnMut(&[u8]) + Send + 'static) -> thread::JoinHandle<()> {
    let sent = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&sent);
    let sender = thread::spawn(move || {
        for piece in many_chunks().chunks(64 * 1024) {
            send(piece);
            counted.fetch_add(1, Ordering::Relaxed);
        }
    });
    let mut last = 0;
    eventually("the sender is stuck", || {
        let now = sent.load(Ordering::Relaxed);
        now > 0 && std::mem::replace(&mut last, now) == now
    });
    sender
}

#[test]
fn chunks_reach_a_slow_reader_whole() {
    let upstream = Upstream::listen();
    let weir = Weir::in_front_of(&upstream);
    let mut client = weir.client();
    client.set_deadline(Duration::from_secs(30));
    client.send(GET);
    let mut conn = upstream.accept();
    conn.set_deadline(Duration::from_secs(30));
    conn.read_request();
    conn.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
    let sender = send_until_stuck(move |piece| conn.send(piece));
    expect_many_chunks(&client.read_response().expect_status(200).body.bytes);
    sender.join().unwrap();
}

#[test]
fn chunks_reach_a_slow_upstream_whole() {
    let upstream = Upstream::listen();
    let weir = Weir::in_front_of(&upstream);
    let mut client = weir.client();
    client.send("POST / HTTP/1.1\r\nHost: weir.test\r\nTransfer-Encoding: chunked\r\n\r\n");
    let mut writer = client.writer();
    let sender = send_until_stuck(move |piece| writer.send(piece).unwrap());
    let mut conn = upstream.accept();
    conn.set_deadline(Duration::from_secs(30));
    expect_many_chunks(&conn.read_request().body.bytes);
    sender.join().unwrap();
    conn.send(OK);
    client.read_response().expect_status(200);
}

#[test]
fn a_slow_reader_holds_the_upstream_back() {
    let origin = Origin::start(Options::default()).unwrap();
    let weir = Weir::start(&config(&format!("endpoints: [{}]", origin.address())));
    let before = weir.rss_kib();
    let mut client = weir.client();
    client.send("GET /body/256MiB HTTP/1.1\r\nHost: weir.test\r\n\r\n");
    client.read_head();
    // Nothing is read: the gateway's memory must stop growing at its buffers, however much the upstream sends.
    let mut last = weir.rss_kib();
    eventually("the memory stops growing", || std::mem::replace(&mut last, weir.rss_kib()) == last);
    assert!(last < before + 20 * 1024, "{before} KiB grew to {last} KiB");
}

#[test]
fn a_large_body_costs_no_memory() {
    let origin = Origin::start(Options::default()).unwrap();
    let weir = Weir::start(&config(&format!("endpoints: [{}]", origin.address())));
    let mut client = weir.client();
    client.get("/body/1KiB").expect_status(200);
    let before = weir.rss_kib();
    client.set_deadline(Duration::from_secs(60));
    let response = client.get("/body/64MiB");
    assert_eq!(response.body.bytes.len(), 64 * MIB);
    let after = weir.rss_kib();
    assert!(after < before + 20 * 1024, "{before} KiB grew to {after} KiB");
}
