//! The load tester over HTTP/2: to a peer that the test plays, and to Weir itself.

use std::sync::{Arc, Mutex};

use tempfile::TempDir;
use weir_report::report::Grade;
use weir_testkit::h2::{Frame, H2, H2Origin, Message, Options, code, setting};
use weir_testkit::{Authority, ServerTls, Upstream, Weir};

use super::{expect_reason, load, origin, report};
use crate::support::{ALL_TO_UP, OK, OK_BODY};

fn url(origin: &H2Origin, path: &str) -> String {
    format!("http://{}{path}", origin.address())
}

#[test]
fn a_request_is_what_was_asked_for() {
    let seen: Arc<Mutex<Vec<Message>>> = Arc::default();
    let all = Arc::clone(&seen);
    let origin = H2Origin::new(Options::default(), move |peer, stream, request| {
        all.lock().unwrap().push(request);
        peer.answer(stream, &[(":status", "200"), ("server", "test"), ("content-type", "a/b")], "hello");
    });
    let target = url(&origin, "/path?q=1");
    let args = ["--http2", "-n1", "-XPUT", "-HX-A: b", "-u", "me:secret", "--data", "{\"a\":1}", &target];
    let r = report(&args);
    let request = seen.lock().unwrap().remove(0);
    let authority = origin.address().to_string();
    for (name, value) in [
        (":method", "PUT"),
        (":scheme", "http"),
        (":authority", &authority),
        (":path", "/path?q=1"),
        ("x-a", "b"),
        ("authorization", "Basic bWU6c2VjcmV0"),
        ("content-length", "7"),
    ] {
        request.expect_header(name, value);
    }
    request.expect_body("{\"a\":1}").expect_no_header("host").expect_frames(&["HEADERS", "DATA 7 END"]);
    let l = &r.ledger;
    assert_eq!((r.counts.responses, l.protocols.get("HTTP/2"), l.alpn.as_deref()), (1, Some(&1), None));
    assert_eq!((l.server.as_deref(), l.content_type.as_deref()), (Some("test"), Some("a/b")));
    assert_eq!((r.bytes.sent(), r.bytes.sent_body), (l.first_request_bytes, 7));
    assert_eq!((r.bytes.received_body, l.first_response.contains("hello")), (5, true), "{l:?}");
    assert!(l.first_request.contains("x-a\\x01b"), "{}", l.first_request);
    assert!(!l.first_request.contains("bWU6c2VjcmV0"), "a password in the report");
}

#[test]
fn every_request_is_made_once_whatever_the_streams() {
    let origin = H2Origin::fixed("hello");
    let r = report(&["--http2", "-n500", "-c3", "-m7", "--threads=2", &url(&origin, "/{{counter}}")]);
    assert_eq!((r.counts.requests, r.counts.responses, r.counts.errors.total()), (500, 500, 0), "{r:#?}");
    assert_eq!((origin.requests(), origin.connections(), r.plan.streams), (500, 3, 7));
    assert_eq!((r.latency.service.count(), r.latency.response.count()), (500, 500));
    assert_eq!((r.connections.opened, r.connections.responses_by_client.len()), (3, 3));
    assert_eq!(r.connections.responses_by_client.iter().sum::<u64>(), 500);
    assert_eq!(r.phases.connecting.count(), 500);
}

#[test]
fn no_more_streams_than_the_target_takes_and_a_rate_is_kept() {
    let origin = H2Origin::new(Options::default().with(&[(setting::STREAMS, 2)]), |peer, stream, _| {
        peer.answer(stream, &[(":status", "200")], "ok");
    });
    let r = report(&["--http2", "-n100", "-c1", "-m9", "--rate", "1000/s", &url(&origin, "/")]);
    assert_eq!((r.counts.responses, r.counts.errors.total(), origin.connections()), (100, 0, 1), "{r:#?}");
}

#[test]
fn who_waits_for_a_stream_has_it_before_who_comes_anew() {
    for limit in [1, 3] {
        let origin =
            H2Origin::new(Options::default().with(&[(setting::STREAMS, limit)]), |peer, stream, _| {
                peer.answer(stream, &[(":status", "200")], "ok");
            });
        let r = report(&["--http2", "-n500", "-c1", "-m12", "--threads=1", &url(&origin, "/")]);
        assert_eq!((r.counts.responses, r.counts.errors.total()), (500, 0), "{:?}", r.counts);
        // Each waits for earlier ones. If the queue were last in, first out, most would not wait at all, and some
        // forever.
        let (service, response) = (r.latency.service.quantile(0.5), r.latency.response.quantile(0.5));
        assert!(response > 2 * service, "{limit}: {service} {response}");
        let rest = r.latency.response.quantile(0.1);
        assert!(rest > service, "{limit}: {service} {rest}");
    }
}

#[test]
fn a_limit_that_rises_lets_all_go_that_wait() {
    let upstream = Upstream::script(|conn| {
        let mut peer = H2::server(conn, &Options::default().with(&[(setting::STREAMS, 2)]));
        let Some((first, _)) = peer.next_whole() else { return };
        peer.send(&Frame::settings(&[(setting::STREAMS, 1000)]));
        // No request is answered until all are sent, so no stream is free meanwhile.
        let mut streams = vec![first];
        while streams.len() < 150 {
            let Some((stream, _)) = peer.next_whole() else { return };
            streams.push(stream);
        }
        streams.iter().for_each(|stream| peer.answer(*stream, &[(":status", "200")], "ok"));
        while peer.next_whole().is_some() {}
    });
    let target = format!("http://{}/", upstream.address());
    let r = report(&["--http2", "-n150", "-c1", "-m150", "--threads=1", "--timeout", "10s", &target]);
    assert_eq!((r.counts.responses, r.counts.errors.total()), (150, 0), "{:?}", r.counts);
}

#[test]
fn alpn_chooses_and_what_it_chose_is_told() {
    let authority = Authority::new();
    let tls = ServerTls::new(&authority.leaf(&["127.0.0.1", "localhost"]));
    let h2 = H2Origin::tls(&tls.clone().alpn(&["h2"]), Options::default(), |peer, stream, request| {
        request.expect_header(":scheme", "https");
        peer.answer(stream, &[(":status", "200")], "by h2");
    });
    let target = format!("https://localhost:{}/", h2.address().port());
    let r = report(&["--http2", "-n20", "-c2", "-m3", "--insecure", &target]);
    assert_eq!((r.counts.responses, r.ledger.alpn.as_deref()), (20, Some("h2")), "{r:#?}");
    assert_eq!((r.ledger.tls_version.as_deref(), r.ledger.protocols["HTTP/2"]), (Some("TLSv1.3"), 20));

    let old = Upstream::fixed_tls(&tls.alpn(&["http/1.1"]), OK_BODY);
    let target = format!("https://localhost:{}/", old.address().port());
    let r = report(&["--http2", "-n20", "-c2", "-m3", "--insecure", &target]);
    assert_eq!((r.counts.responses, r.ledger.alpn.as_deref()), (20, Some("http/1.1")), "{r:#?}");
    expect_reason(&r, "wrong_protocol", Grade::Invalid);
}

#[test]
fn a_target_without_http2_is_noticed() {
    let old = Upstream::script(|conn| {
        conn.expect("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
        conn.send("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    });
    let r = report(&["--http2", "-n2", "-c1", &format!("http://{}/", old.address())]);
    assert_eq!((r.counts.responses, r.counts.errors.protocol), (0, 2), "{:?}", r.counts);
    expect_reason(&r, "wrong_protocol", Grade::Invalid);
}

#[test]
fn what_a_target_closes_is_sent_again_only_where_it_was_not_looked_at() {
    let upstream = Upstream::script(|conn| {
        let mut peer = H2::server(conn, &Options::default());
        let mut last = 0;
        for _ in 0..5 {
            let Some((stream, _)) = peer.next_whole() else { return };
            last = stream;
            peer.answer(stream, &[(":status", "200")], "ok");
        }
        peer.try_send(&Frame::go_away(last, code::NONE));
        while peer.next_whole().is_some() {} // until it closes
    });
    let r = report(&["--http2", "-n40", "-c1", "-m4", &format!("http://{}/", upstream.address())]);
    assert_eq!((r.counts.responses, r.counts.errors.total()), (40, 0), "{r:#?}");
    assert_eq!(upstream.connections(), 8);

    let upstream = Upstream::script(|conn| {
        let mut peer = H2::server(conn, &Options::default());
        let Some((stream, _)) = peer.next_whole() else { return };
        peer.send(&Frame::headers(stream, &[(":status", "200")], false));
    });
    let r = report(&["--http2", "-n3", "-c1", &format!("http://{}/", upstream.address())]);
    assert_eq!((r.counts.responses, r.counts.errors.reset), (0, 3), "{:?}", r.counts);
}

#[test]
fn what_a_target_refuses_is_sent_again_but_not_for_ever() {
    // The limit arrives after twenty streams, which is fifteen too many.
    let upstream = Upstream::script(|conn| {
        let mut peer = H2::server(conn, &Options::default());
        let first: Vec<u32> = (0..20).map_while(|_| peer.next_whole()).map(|(stream, _)| stream).collect();
        peer.send(&Frame::settings(&[(setting::STREAMS, 5)]));
        for (i, stream) in first.into_iter().enumerate() {
            if i >= 15 {
                peer.answer(stream, &[(":status", "200")], "ok");
            } else {
                peer.send(&Frame::reset(stream, code::REFUSED));
            }
        }
        while let Some((stream, _)) = peer.next_whole() {
            peer.answer(stream, &[(":status", "200")], "ok");
        }
    });
    let r = report(&["--http2", "-n60", "-c1", "-m20", &format!("http://{}/", upstream.address())]);
    assert_eq!((r.counts.responses, r.counts.errors.total()), (60, 0), "{:?}", r.counts);
    assert_eq!(upstream.connections(), 1);
    assert!(r.ledger.first_response_bytes > 0, "refused was the first, so another is kept: {:?}", r.ledger);

    let origin = H2Origin::new(Options::default(), |peer, stream, _| {
        peer.send(&Frame::reset(stream, code::REFUSED));
    });
    let r = report(&["--http2", "-n3", "-c1", &url(&origin, "/")]);
    assert_eq!((r.counts.responses, r.counts.errors.reset), (0, 3), "{:?}", r.counts);
    assert_eq!((origin.requests(), origin.connections()), (12, 1));
}

#[test]
fn a_stream_that_fails_leaves_the_others() {
    let origin = H2Origin::new(Options::default(), |peer, stream, request| match request.header(":path") {
        Some("/reset") => peer.send(&Frame::reset(stream, code::INTERNAL)),
        Some("/bad") => peer.send(&Frame::headers(stream, &[("no", "status")], true)),
        Some("/never") => {}
        _ => peer.answer(stream, &[(":status", "200")], "ok"),
    });
    let [reset, bad, never, good] = ["/reset", "/bad", "/never", "/"].map(|path| url(&origin, path));
    let args = ["--http2", "-n40", "-c1", "-m5", "--timeout", "300ms", &reset, &bad, &never, &good];
    let r = report(&args);
    let e = &r.counts.errors;
    assert_eq!((r.counts.responses, e.reset, e.protocol, e.timeout), (10, 10, 10, 10), "{:#?}", r.counts);
    assert_eq!(origin.connections(), 1);
}

#[test]
fn bytes_that_are_no_http2_end_the_connection() {
    let upstream = Upstream::script(|conn| {
        let mut peer = H2::server(conn, &Options::default());
        let Some((stream, _)) = peer.next_whole() else { return };
        peer.try_send(&Frame::data(stream + 2, "nobody asked", true));
        let _ = peer.next_whole();
    });
    let r = report(&["--http2", "-n3", "-c1", &format!("http://{}/", upstream.address())]);
    assert_eq!((r.counts.responses, r.counts.errors.protocol), (0, 3), "{:?}", r.counts);
}

#[test]
fn weir_itself_with_bodies_larger_than_its_windows() {
    let (_origin, to) = origin("");
    let address = to.strip_prefix("http://").unwrap();
    let weir = Weir::start(&format!(
        "listeners: {{ web: {{ address: 127.0.0.1:0, protocols: [h2] }} }}\n\
         upstreams: {{ up: {{ endpoints: [{address}] }} }}\n{ALL_TO_UP}\n"
    ));
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("body");
    std::fs::write(&file, vec![b'x'; 1_000_000]).unwrap();
    let target = |path: &str| format!("http://{}{path}", weir.address("web"));
    let body = format!("@{}", file.display());
    let r = report(&["--http2", "-n20", "-c2", "-m3", "--data", &body, &target("/status/200")]);
    assert_eq!((r.counts.responses, r.counts.errors.total()), (20, 0), "{r:#?}");
    assert_eq!(r.bytes.sent_body, 20_000_000);
    let r = report(&["--http2", "-n20", "-c2", "-m3", "--check", "status=200", &target("/body/3MiB")]);
    assert_eq!((r.counts.responses, r.counts.failed_checks), (20, 0), "{r:#?}");
    assert_eq!(r.bytes.received_body, 20 * 3 * 1024 * 1024);
    assert_eq!(r.ledger.protocols.get("HTTP/2"), Some(&20));
}

#[test]
fn one_connection_for_each_request() {
    let origin = H2Origin::fixed("hello");
    let r = report(&["--http2", "--no-keepalive", "-n5", "-c1", &url(&origin, "/")]);
    assert_eq!((r.counts.responses, origin.connections()), (5, 5), "{r:#?}");
}

#[test]
fn options_that_do_not_go_together_are_refused() {
    let upstream = Upstream::fixed(OK);
    let target = format!("http://{}/", upstream.address());
    for (args, text) in [
        (&["-m5"][..], "-m: streams are HTTP/2's and HTTP/3's: add --http2 or --http3"),
        (&["--http2", "--pipeline", "2"], "--pipeline: is only for HTTP/1.1"),
        (&["--http2", "-m0"], "-m 0: expected 1 to"),
        (&["--http2", "-m2", "--no-keepalive"], "-m: needs keep-alive"),
    ] {
        let finished = load(&[args, &[&target]].concat());
        finished.expect_code(2);
        assert!(finished.stderr.contains(text), "{finished:#?}");
    }
}
