//! Features that only one protocol has, or that the other expresses differently.

use weir_testkit::h2::{End, Frame, H2, H2Origin, Options, code, setting};
use weir_testkit::{Upstream, Weir};

use super::{BOTH, H2C, get, weir};
use crate::support::{ALL_TO_UP, GET, OK_BODY};

fn server(upstream: &Upstream) -> H2<weir_testkit::Conn> {
    H2::server(upstream.accept(), &Options::default())
}

#[test]
fn every_path_that_http1_may_send() {
    // Passed on unchanged or refused, but never left waiting.
    let origin = H2Origin::answering(|request| request.header(":path").unwrap_or_default().into());
    let weir = weir(origin.address(), H2C);
    for byte in 0x21..=0xffu8 {
        for (before, after) in [("/a", "b"), ("/a?b", "c")] {
            let path = [before.as_bytes(), &[byte], after.as_bytes()].concat();
            let mut client = weir.client();
            client.send([b"GET ", &path[..], b" HTTP/1.1\r\nHost: weir.test\r\n\r\n"].concat());
            let answer = client.read_response();
            let escaped = format!("{before}%{byte:02X}{after}");
            match answer.status {
                200 => assert!(answer.body.bytes == path || answer.text() == escaped, "{answer:?}"),
                status => assert!(
                    status == 400 && !br#"!"$&'()*+,-./:;<=>?@[]^_`{|}~"#.contains(&byte),
                    "{answer:?}"
                ),
            }
        }
    }
    origin.verify();
}

#[test]
fn every_host_that_http1_may_send() {
    let origin = H2Origin::answering(|request| request.header(":authority").unwrap_or_default().into());
    let weir = weir(origin.address(), H2C);
    for host in
        ["weir.test", "WEIR.test:80", "[::1]", "[::1]:8080", "1.2.3.4", "a_b.test", "a-b.test.", "xn--a.test"]
    {
        let mut client = weir.client();
        let answer = client.ask(format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        answer.expect_status(200);
        assert!(answer.text().eq_ignore_ascii_case(host), "{host}: {}", answer.text());
    }
    for host in ["a b", "a/b", "user@a", "a%b", "a{b}", "a,b", "a\"b", "a'b", "a;b", "a!b", "a$b", "%41"] {
        let mut client = weir.client();
        let answer = client.ask(format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        assert!([200, 400].contains(&answer.status), "{host}: {answer:?}");
    }
}

#[test]
fn http10_to_http2() {
    let origin = H2Origin::answering(|request| request.header(":authority").unwrap_or("none").into());
    let weir = weir(origin.address(), H2C);
    let mut client = weir.client();
    client.send("GET / HTTP/1.0\r\nHost: weir.test\r\n\r\n");
    client.read_response().expect_status(200).expect_body("weir.test");
    client.expect_eof();
    // Without a host there is nothing to preserve: the endpoint's own is used.
    let mut client = weir.client();
    client.send("GET / HTTP/1.0\r\n\r\n");
    client.read_response().expect_status(200).expect_body(origin.address().to_string());
    client.expect_eof();
}

#[test]
fn a_cut_body_for_http10_is_a_reset() {
    let upstream = Upstream::listen();
    let weir = weir(upstream.address(), H2C);
    let mut client = weir.client();
    client.send("GET / HTTP/1.0\r\nHost: weir.test\r\n\r\n");
    let mut peer = server(&upstream);
    let (seen, _) = peer.accept_whole();
    peer.headers(seen, &[(":status", "200")], false);
    peer.data(seen, "half", false);
    client.read_until("half");
    peer.reset(seen, code::INTERNAL);
    assert!(client.try_read_response().is_err());
}

#[test]
fn requests_in_a_row() {
    // Three in one write, answered in order, over one HTTP/2 connection.
    let origin = H2Origin::answering(|request| request.header(":path").unwrap_or_default().into());
    let weir = weir(origin.address(), H2C);
    let mut client = weir.client();
    let post = "POST /b HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc";
    client.send(format!("{}{post}{}", GET.replace(" / ", " /a "), GET.replace(" / ", " /c ")));
    for path in ["/a", "/b", "/c"] {
        client.read_response().expect_status(200).expect_body(path);
    }
    assert_eq!(origin.connections(), 1);
}

#[test]
fn an_upstream_that_has_heard_enough() {
    // RFC 9113 §8.1: a complete answer, then RST_STREAM with NO_ERROR for the rest of the request.
    for front in ["h1", "h2"] {
        let upstream = Upstream::listen();
        let weir = weir(upstream.address(), H2C);
        let (mut plain, mut framed) = (weir.client(), weir.h2());
        let asked = if front == "h1" {
            plain.send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 100\r\n\r\nsome");
            0
        } else {
            let asked = framed.post("/");
            framed.data(asked, "some", false);
            asked
        };
        let mut peer = server(&upstream);
        let (seen, _) = peer.accept();
        peer.wait(seen, "some of it", |message| message.body == b"some");
        let answer = [
            Frame::headers(seen, &[(":status", "413"), ("content-length", "2")], false),
            Frame::data(seen, "no", true),
            Frame::reset(seen, code::NONE),
        ];
        peer.wire().send(answer.iter().flat_map(|frame| frame.bytes()).collect::<Vec<u8>>());
        if front == "h1" {
            plain.read_response().expect_status(413).expect_body("no");
        } else {
            let answer = framed.message(asked);
            assert_eq!((answer.status(), answer.text()), (413, "no".to_owned()), "{answer:?}");
            assert_eq!(answer.end, Some(End::Stream));
        }
        peer.ping();
    }
}

#[test]
fn a_filter_that_asks_by_http2() {
    let service = H2Origin::new(Options::default(), |peer, stream, request| {
        let status = if request.header("x-key") == Some("right") { "200" } else { "403" };
        peer.answer(stream, &[(":status", status), ("x-user", "me")], "");
    });
    let upstream = Upstream::fixed(OK_BODY);
    let weir = Weir::start(&format!(
        "{BOTH}\nupstreams:\n  up: {{ endpoints: [{}] }}\n  auth: {{ endpoints: [{}], {H2C} }}\n\
         filters: [ {{ forward_auth: {{ upstream: auth, path: /check, copy_request: [x-key] }} }} ]\n{ALL_TO_UP}\n",
        upstream.address(),
        service.address()
    ));
    let mut client = weir.h2();
    let stream = client.request(&get(&[("x-key", "right")]), true);
    client.message(stream).expect_status(200).expect_body("ok");
    let stream = client.request(&get(&[("x-key", "wrong")]), true);
    assert_eq!(client.message(stream).status(), 403);
    weir.client().ask(GET.replace("\r\n\r\n", "\r\nX-Key: right\r\n\r\n")).expect_status(200);
    assert_eq!((service.requests(), service.connections()), (3, 1));
    service.verify();
}

#[test]
fn stalled_uploads_stall_no_neighbour() {
    // Ten uploads that the upstream does not read, and one that passes, on the same connections.
    let upstream = Upstream::listen();
    let weir = weir(upstream.address(), H2C);
    let mut client = weir.h2();
    client.ping();
    let stalled: Vec<u32> = (0..10).map(|_| client.post("/stalled")).collect();
    let options = Options { settings: vec![(setting::WINDOW, 0)], ..Options::default() };
    let mut peer = H2::server(upstream.accept(), &options);
    for _ in &stalled {
        peer.accept();
    }
    for stream in &stalled {
        let taken = client.fill(*stream, &[b'x'; 2_000_000]);
        assert!(taken < 200_000, "{taken} bytes were taken for an upstream that takes nothing");
    }
    let stream = client.post("/other");
    let (seen, _) = peer.accept();
    peer.send(&Frame::window(seen, 1000));
    client.body(stream, b"body", true);
    peer.message(seen).expect_body("body");
    peer.respond(seen, &[(":status", "200")], "ok");
    client.message(stream).expect_body("ok");
}

// === HPACK ===

/// Sends SETTINGS with these table sizes, a frame each. Returns when all are acknowledged.
fn permit<W: AsMut<weir_testkit::Wire>>(peer: &mut H2<W>, sizes: &[u32]) {
    sizes.iter().for_each(|size| peer.send(&Frame::settings(&[(setting::TABLE, *size)])));
    peer.ping();
}

/// RFC 7541 §4.2: the decoders of both peers insist on it.
#[test]
fn a_smaller_table_is_confirmed_to_clients_and_upstreams() {
    let upstream = Upstream::listen();
    let weir = weir(upstream.address(), H2C);
    let smaller = Options::default().with(&[(setting::TABLE, 100)]);
    let mut client = H2::client_with(weir.client(), &smaller);
    let mut stream = client.get("/");
    let mut peer = H2::server(upstream.accept(), &smaller);
    for sizes in [&[][..], &[90, 50], &[0, 4096], &[1000, 8000, 0]] {
        let (seen, _) = peer.accept_whole();
        peer.respond(seen, &[(":status", "200")], "ok");
        client.message(stream).expect_status(200).expect_body("ok");
        permit(&mut peer, sizes);
        permit(&mut client, sizes);
        stream = client.get("/");
    }
    let (seen, _) = peer.accept_whole();
    peer.respond(seen, &[(":status", "200")], "ok");
    client.message(stream).expect_status(200).expect_body("ok");
}

/// RFC 7541 §6.2.3: who passes on a field that no hop may index must say so to the next.
#[test]
fn what_no_hop_may_index_passes_as_such() {
    let marked = |fields: &[(&str, &str)], stream| {
        let mut frame = Frame::headers(stream, fields, true);
        frame.payload.extend_from_slice(b"\x10\x05x-key\x06secret");
        frame
    };
    let upstream = Upstream::listen();
    let weir = weir(upstream.address(), H2C);
    let mut client = weir.h2();
    let stream = client.next_stream();
    client.send(&marked(&get(&[("x-plain", "a")]), stream));
    let mut peer = server(&upstream);
    let (seen, request) = peer.accept_whole();
    request.expect_header("x-key", "secret").expect_header("x-plain", "a");
    assert_eq!(request.never_indexed, ["x-key"]);
    peer.send(&marked(&[(":status", "200"), ("x-plain", "a")], seen));
    let answer = client.message(stream);
    answer.expect_header("x-key", "secret").expect_header("x-plain", "a");
    assert_eq!(answer.never_indexed, ["x-key"]);
}
