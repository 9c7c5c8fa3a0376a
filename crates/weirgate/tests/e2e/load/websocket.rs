//! The load tester over WebSocket: to the built-in origin, and to peers that the test plays.

use std::time::Duration;

use tempfile::TempDir;
use weir_origin::{Origin, Tls};
use weir_report::report::{End, Grade};
use weir_testkit::{Conn, Upstream, Weir, run_weir};
use weir_wire::websocket::accept;

use super::{codes, expect_reason, load, origin, report};
use crate::support::{ALL_TO_UP, OK_BODY};

fn ws(upstream: &Upstream, path: &str) -> String {
    format!("ws://{}{path}", upstream.address())
}

/// Answers a handshake; returns its head, or `None` when the client is done.
fn shake(conn: &mut Conn) -> Option<weir_testkit::Head> {
    shake_and_say(conn, b"")
}

/// The same, with more data in the same write.
fn shake_and_say(conn: &mut Conn, more: &[u8]) -> Option<weir_testkit::Head> {
    let head = conn.next_request()?.head;
    let accept = accept(head.header("sec-websocket-key").unwrap().as_bytes());
    let agreed = format!(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Accept: {accept}\r\n\r\n"
    );
    conn.send([agreed.as_bytes(), more].concat());
    Some(head)
}

/// The client's next frame, which must be masked and short: first byte and payload.
fn frame(conn: &mut Conn) -> (u8, Vec<u8>) {
    let head = conn.read_n(6);
    assert!(head[1] & 0x80 != 0 && head[1] & 0x7f < 126, "{head:?}");
    let payload = conn.read_n(usize::from(head[1] & 0x7f));
    (head[0], payload.iter().zip(head[2..].iter().cycle()).map(|(byte, mask)| byte ^ mask).collect())
}

/// A short frame from a server.
fn send(conn: &mut Conn, first: u8, payload: impl AsRef<[u8]>) {
    let payload = payload.as_ref();
    conn.send([&[first, payload.len() as u8], payload].concat());
}

#[test]
fn messages_are_counted_as_requests() {
    let (_origin, url) = origin("/ws");
    let dir = TempDir::new().unwrap();
    let url = url.replace("http://", "ws://");
    let args = [
        "load",
        "-n200",
        "-c3",
        "--threads=2",
        "--check",
        "body~ell",
        "--save",
        "r.json",
        "--format",
        "json",
        &url,
    ];
    let finished = run_weir(dir.path(), &args);
    finished.expect_code(0);
    let r: weir_report::Report = serde_json::from_str(&finished.stdout).unwrap();
    assert_eq!((r.counts.requests, r.counts.responses, r.end.clone()), (200, 200, End::Requests), "{r:#?}");
    assert_eq!((r.counts.statuses.get(&101), r.ledger.protocols["WebSocket"]), (Some(&200), 200));
    assert_eq!((r.checks[0].passed, r.failed(), r.counts.other_length), (200, 0, 0));
    let ws = r.websocket.as_ref().unwrap();
    assert_eq!((ws.sessions, ws.sent, ws.received, ws.unsolicited), (3, 200, 200, 0), "{ws:?}");
    assert_eq!((ws.handshake.count(), ws.session_duration.count()), (3, 3), "{ws:?}");
    assert!(ws.handshake.min() > 0 && ws.connecting.sum() >= ws.handshake.sum());
    assert_eq!((r.connections.opened, r.connections.reused), (3, 197));
    // A frame head has two bytes from the origin and six to it.
    assert_eq!((r.bytes.received_body, r.bytes.received_framing, r.bytes.sent_body), (1000, 400, 1000));
    assert!(r.bytes.received_head > 300 && r.bytes.sent_head > 1200, "{:?}", r.bytes);
    assert!(r.ledger.first_request.starts_with("GET /ws HTTP/1.1\\r\\n"), "{}", r.ledger.first_request);
    assert!(r.ledger.first_response.ends_with("\\x81\\x05hello"), "{}", r.ledger.first_response);
    assert!(!codes(&r).contains(&"mostly_refused") && !codes(&r).contains(&"wrong_protocol"));
    run_weir(dir.path(), &["report", "r.json", "--verify"]).expect_code(0);
    let k6 = run_weir(dir.path(), &["report", "r.json", "--format", "k6"]);
    k6.expect_text("WEBSOCKET").expect_text("ws_msgs_sent").expect_text("ws_session_duration");
    assert!(!k6.stdout.contains("http_req_duration"), "{}", k6.stdout);
    run_weir(dir.path(), &["report", "r.json"]).expect_text("websocket    3 sessions, handshake ");
}

#[test]
fn a_handshake_and_messages_are_what_was_asked_for() {
    let upstream = Upstream::script(|conn| {
        let Some(head) = shake(conn) else { return };
        assert_eq!(head.line, "GET /room/0?a HTTP/1.1");
        for (name, value) in [
            ("connection", "Upgrade"),
            ("upgrade", "websocket"),
            ("sec-websocket-version", "13"),
            ("x-a", "b"),
            ("sec-websocket-protocol", "chat"),
        ] {
            assert_eq!(head.header(name), Some(value), "{name}");
        }
        assert!(head.header("content-length").is_none() && head.header("host").is_some());
        for n in 0..3 {
            assert_eq!(frame(conn), (0x82, format!("{{\"n\":{n}}}").into_bytes()));
            send(conn, 0x81, n.to_string());
        }
        assert_eq!(frame(conn), (0x88, vec![0x03, 0xe8]), "1000 at the end");
    });
    let url = ws(&upstream, "/room/{{counter}}?a");
    let headers = ["-HX-A: b", "-HSec-WebSocket-Protocol: chat"];
    let args = ["-n3", "-c1", "--binary", "--data", "{\"n\":{{counter}}}", headers[0], headers[1], &url];
    let r = report(&args);
    assert_eq!((r.counts.responses, r.counts.errors.total()), (3, 0), "{r:#?}");
    upstream.verify();
}

#[test]
fn fragments_are_put_together_and_pings_answered_within_and_between_messages() {
    let upstream = Upstream::script(|conn| {
        if shake(conn).is_none() {
            return;
        }
        assert_eq!(frame(conn).1, b"hello");
        send(conn, 0x01, "a");
        send(conn, 0x89, "in");
        send(conn, 0x00, "b");
        send(conn, 0x80, "c");
        assert_eq!(frame(conn), (0x8a, b"in".to_vec()));
        // The next message is due half a second later: the pong must not wait for it.
        send(conn, 0x89, "between");
        send(conn, 0x81, "news");
        assert_eq!(frame(conn), (0x8a, b"between".to_vec()));
        assert_eq!(frame(conn).1, b"hello");
        send(conn, 0x81, "abc");
        assert_eq!(frame(conn).0, 0x88);
    });
    let r =
        report(&["-n2", "-c1", "--threads=1", "--rate", "2/s", "--check", "body~abc", &ws(&upstream, "/")]);
    let s = r.websocket.as_ref().unwrap();
    assert_eq!((r.counts.responses, r.counts.failed_checks, r.counts.errors.total()), (2, 0, 0), "{r:#?}");
    assert_eq!((s.sent, s.received, s.unsolicited, s.pings, s.sessions), (2, 3, 1, 2, 1), "{s:?}");
    upstream.verify();
}

#[test]
fn what_comes_before_the_question_is_no_answer() {
    // A greeting with the handshake, and two replies to each message: the second arrives before the next message is
    // written.
    let upstream = Upstream::script(|conn| {
        let is_open = shake_and_say(conn, b"\x81\x08greeting").is_some();
        while is_open && frame(conn).0 == 0x81 {
            conn.send(b"\x81\x05hello\x81\x05again");
        }
    });
    let r = report(&["-n50", "-c1", "--check", "body~hello", &ws(&upstream, "/")]);
    let s = r.websocket.as_ref().unwrap();
    assert_eq!((r.counts.responses, r.checks[0].passed, r.failed()), (50, 50, 0), "{r:#?}");
    assert_eq!((s.sent, s.received, s.unsolicited), (50, 100, 50), "{s:?}"); // the last one arrived after the end
    assert!(r.ledger.first_response.ends_with("\\x81\\x05hello"), "{}", r.ledger.first_response);
    expect_reason(&r, "unsolicited", Grade::Suspect);
    assert_eq!(r.bytes.received_framing, 4 * 50, "{:?}", r.bytes);
}

#[test]
fn a_target_that_does_not_listen_gives_no_answers() {
    // It ends after a mebibyte, which leaves half a message.
    let upstream = Upstream::script(|conn| {
        let flood = b"\x81\x05hello".repeat(150_000);
        if shake_and_say(conn, &flood[..flood.len() - 3]).is_some() {
            conn.read_n(11);
            conn.send("llo");
            conn.read_n(1); // forever: nothing arrives
        }
    });
    let r = report(&["-n1", "-c1", "--timeout", "1s", &ws(&upstream, "/")]);
    let s = r.websocket.as_ref().unwrap();
    assert!(
        s.unsolicited > 1000 && s.received - s.unsolicited == r.counts.responses,
        "{} {} {:?}",
        s.unsolicited,
        s.received,
        r.counts
    );
    assert_eq!(r.counts.responses + r.counts.errors.timeout, 1, "{:?}", r.counts);
}

#[test]
fn a_target_may_close_between_messages_but_not_before_an_answer() {
    let upstream = Upstream::script(|conn| {
        if shake(conn).is_none() {
            return;
        }
        frame(conn);
        send(conn, 0x81, "ok");
        send(conn, 0x88, [0x03, 0xe9]);
        assert_eq!(frame(conn).0, 0x88, "a close is answered");
    });
    let r = report(&["-n3", "-c1", "--think", "50ms", &ws(&upstream, "/")]);
    let s = r.websocket.as_ref().unwrap();
    assert_eq!((r.counts.responses, r.counts.errors.total(), s.sessions), (3, 0, 3), "{r:#?}");
    assert!(s.closed_by_target.get("code 1001").is_some_and(|n| *n >= 2), "{s:?}");
    expect_reason(&r, "not_kept_alive", Grade::Suspect);

    let upstream = Upstream::script(|conn| {
        if shake(conn).is_some() {
            frame(conn);
            send(conn, 0x88, b"\x03\xf3full");
        }
    });
    let r = report(&["-n2", "-c1", &ws(&upstream, "/")]);
    assert_eq!((r.counts.responses, r.counts.errors.reset), (0, 2), "{r:#?}");
    let text = "the target closed the WebSocket before an answer (code 1011: full)";
    assert_eq!(r.counts.error_texts.get(text), Some(&2), "{:?}", r.counts.error_texts);
}

#[test]
fn what_is_no_websocket_says_so() {
    let plain = Upstream::fixed(OK_BODY);
    let r = report(&["-n2", "-c1", &ws(&plain, "/")]);
    let text = "the handshake was answered 200 instead of 101";
    assert_eq!((r.counts.errors.protocol, r.counts.error_texts.get(text)), (2, Some(&2)), "{r:#?}");
    let (_origin, url) = origin("/status/503");
    load(&["-n1", &url.replace("http://", "ws://")])
        .expect_text("the handshake was answered 503 instead of 101");

    let upstream = Upstream::script(|conn| {
        if shake(conn).is_some() {
            frame(conn);
            conn.send([0x81, 0x80, 0, 0, 0, 0]);
            assert_eq!(frame(conn), (0x88, vec![0x03, 0xea]), "1002");
        }
    });
    let r = report(&["-n1", "-c1", &ws(&upstream, "/")]);
    assert_eq!(r.counts.errors.protocol, 1, "{r:#?}");
    assert!(r.counts.error_texts.contains_key("a frame from a server is masked"), "{:?}", r.counts);
    upstream.verify();

    let silent = Upstream::script(|conn| {
        if shake(conn).is_some() {
            frame(conn);
            frame(conn);
        }
    });
    let r = report(&["-n2", "-c1", "--timeout", "100ms", &ws(&silent, "/")]);
    assert_eq!((r.counts.errors.timeout, r.counts.responses), (2, 0), "{r:#?}");

    let late = Upstream::script(|conn| {
        if shake(conn).is_some() {
            let (_, payload) = frame(conn);
            conn.expect_silence(Duration::from_millis(103)); // or the client has left, which is allowed
            send(conn, 0x82, payload);
        }
    });
    let r = report(&["-n8", "-c4", "--timeout", "100ms", &ws(&late, "/")]);
    assert_eq!((r.counts.errors.timeout, r.counts.responses), (8, 0), "{r:#?}");
}

#[test]
fn it_goes_through_tls_and_through_weir_and_over_one_connection_for_each() {
    let options = weir_origin::Options { tls: Tls::SelfSigned, ..weir_origin::Options::default() };
    let secure = Origin::start(options).unwrap();
    let url = format!("wss://localhost:{}/ws", secure.address().port());
    let data = "x".repeat(70_000);
    let r = report(&["-n20", "-c2", "--insecure", "--no-keepalive", "--data", &data, &url]);
    assert_eq!((r.counts.responses, r.bytes.received_body), (20, 1_400_000), "{r:#?}");
    let s = r.websocket.as_ref().unwrap();
    assert_eq!(
        (s.sessions, r.connections.opened, r.ledger.tls_version.as_deref()),
        (20, 20, Some("TLSv1.3"))
    );
    assert!(r.phases.tls.max() > 0);

    let (_plain, to) = origin("");
    let address = to.strip_prefix("http://").unwrap();
    let weir = Weir::start(&format!(
        "listeners: {{ web: {{ address: 127.0.0.1:0 }} }}\n\
         upstreams: {{ up: {{ endpoints: [{address}] }} }}\n{ALL_TO_UP}\n"
    ));
    let r = report(&["-n200", "-c4", "--data", &data, &format!("ws://{}/ws", weir.address("web"))]);
    assert_eq!((r.counts.responses, r.counts.errors.total(), r.connections.opened), (200, 0, 4), "{r:#?}");
}

#[test]
fn options_that_do_not_go_together_are_refused() {
    let dir = TempDir::new().unwrap();
    std::fs::write(dir.path().join("bytes"), [0xff]).unwrap();
    let url = "ws://127.0.0.1:1/";
    for (args, text) in [
        (&["--http2", url][..], "--http2: a WebSocket is opened over HTTP/1.1"),
        (&["--pipeline", "2", url], "--pipeline: is HTTP/1.1's"),
        (&["-F", "a=b", url], "-F: a message of a WebSocket has no parts"),
        (&["-XPOST", url], "-X: the handshake of a WebSocket is a GET"),
        (&["-HUpgrade: h2c", url], "belongs to the handshake"),
        (&["--data", "@bytes", url], "--data: a text message is UTF-8"),
        (&[url, "http://127.0.0.1:1/"], "WebSocket and HTTP are no mix"),
        (&["--binary", "http://127.0.0.1:1/"], "--binary: is for messages of a WebSocket"),
    ] {
        let finished = run_weir(dir.path(), &[&["load"], args].concat());
        finished.expect_code(2);
        assert!(finished.stderr.contains(text), "{finished:#?}");
    }
}
