//! Filters that watch, change, hold back or gather bodies.

use super::{OK, POST, client, counted, gateway};
use std::sync::Mutex;
use weir_gateway::prelude::*;
use weir_testkit::{Upstream, eventually};

/// Upper-cases both bodies, and holds bytes back until a pause or the end.
#[derive(Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Shouts {}

pub(super) static SHOUTS: FilterKind = FilterKind::of::<Shouts>("shouts");

impl Filter for Shouts {
    fn on_request_body(&self, piece: &mut Piece<'_>, _: &mut Cx) -> HookResult {
        piece.replace(piece.data().to_ascii_uppercase());
        Ok(())
    }

    fn on_response_body(&self, piece: &mut Piece<'_>, cx: &mut Cx) -> HookResult {
        let held = cx.state::<Vec<u8>>();
        held.extend_from_slice(&piece.data().to_ascii_uppercase());
        let all = if piece.is_last() || piece.is_pause() { std::mem::take(held) } else { Vec::new() };
        piece.replace(all);
        Ok(())
    }
}

/// Counts the bytes of both bodies, and refuses those that contain a word.
#[derive(Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Listens {
    /// The word.
    word: String,
}

pub(super) static LISTENS: FilterKind = FilterKind::of::<Listens>("listens").with_causes(&[&RUDE]);
pub(super) static RUDE: Cause =
    Cause { code: "rude", status: 400, meaning: "No such words here.", change: "nothing", ..Cause::USUAL };

impl Listens {
    fn hear(&self, piece: &Piece<'_>) -> HookResult {
        let text = String::from_utf8_lossy(piece.data());
        if text.contains(&self.word) { Err(Refusal::new(&RUDE)) } else { Ok(()) }
    }
}

impl Filter for Listens {
    fn request_body(&self, _: &RequestHead, _: &mut Cx) -> BodyUse {
        BodyUse::Watch
    }

    fn on_request_body(&self, piece: &mut Piece<'_>, _: &mut Cx) -> HookResult {
        self.hear(piece)
    }

    fn response_body(&self, _: &ResponseHead, _: &mut Cx) -> BodyUse {
        BodyUse::Watch
    }

    fn on_response_body(&self, piece: &mut Piece<'_>, _: &mut Cx) -> HookResult {
        self.hear(piece)
    }
}

/// Passes the first piece of a response, and no more until it is released.
#[derive(Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Holds {
    /// The name for releasing it.
    name: String,
}

pub(super) static HOLDS: FilterKind = FilterKind::of::<Holds>("holds");

/// The released names, and the tasks to wake.
static GATES: Mutex<(Vec<String>, Vec<std::task::Waker>)> = Mutex::new((Vec::new(), Vec::new()));

fn let_go(name: &str) {
    let mut gates = GATES.lock().unwrap();
    gates.0.push(name.to_owned());
    gates.1.drain(..).for_each(std::task::Waker::wake);
}

impl Filter for Holds {
    fn response_body(&self, _: &ResponseHead, _: &mut Cx) -> BodyUse {
        BodyUse::Watch
    }

    fn on_response_body(&self, piece: &mut Piece<'_>, cx: &mut Cx) -> HookResult {
        if piece.data().is_empty() {
            return Ok(());
        }
        let held = std::mem::replace(cx.state::<bool>(), true);
        let name = self.name.clone();
        assert!(!held || GATES.lock().unwrap().0.contains(&name), "a piece although it holds");
        piece.hold(std::future::poll_fn(move |task| {
            let mut gates = GATES.lock().unwrap();
            if gates.0.contains(&name) {
                return std::task::Poll::Ready(());
            }
            gates.1.push(task.waker().clone());
            std::task::Poll::Pending
        }));
        Ok(())
    }
}

/// Buffers both bodies completely before passing anything on, and puts their text in a field.
#[derive(Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Reads {
    /// Longest body, in bytes.
    limit: usize,
    /// The replacement for both bodies, if any.
    #[serde(default)]
    instead: Option<String>,
}

pub(super) static READS: FilterKind = FilterKind::of::<Reads>("reads");

impl Reads {
    fn told(&self, cx: &mut Cx) -> Vec<u8> {
        let told = cx.whole().trim_ascii().to_vec(); // a field must not end in a newline
        if let Some(instead) = &self.instead {
            cx.set_whole(instead.clone().into_bytes());
        }
        told
    }
}

impl Filter for Reads {
    fn request_body(&self, _: &RequestHead, _: &mut Cx) -> BodyUse {
        BodyUse::Whole(self.limit)
    }

    fn on_request(&self, head: &mut RequestHead, cx: &mut Cx) -> Flow {
        let told = self.told(cx);
        head.headers.insert(&HeaderName::fixed("x-read"), &told).unwrap();
        Flow::Continue
    }

    fn response_body(&self, _: &ResponseHead, _: &mut Cx) -> BodyUse {
        BodyUse::Whole(self.limit)
    }

    fn on_response(&self, head: &mut ResponseHead, cx: &mut Cx) -> Flow {
        let told = self.told(cx);
        head.headers.insert(&HeaderName::fixed("x-read"), &told).unwrap();
        Flow::Continue
    }
}

const CHUNKED: &str =
    "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n3\r\ndef\r\n0\r\n\r\n";

#[test]
fn only_a_filter_that_changes_bodies_takes_the_length_away() {
    for (filter, length) in [("listens: { word: none }", true), ("shouts: {}", false)] {
        let upstream = Upstream::fixed(OK);
        let gateway = gateway(&upstream, &format!("{{ {filter} }}"));
        let response = client(&gateway).ask(POST);
        assert_eq!(response.header("content-length").is_some(), length, "{filter}");
        let request = upstream.take_request();
        assert_eq!(request.head.header("content-length").is_some(), length, "{filter}");
        let expected = if length { ("abc", "ok") } else { ("ABC", "OK") };
        response.expect_status(200).expect_body(expected.1);
        assert_eq!(String::from_utf8_lossy(&request.body.bytes), expected.0, "{filter}");
        gateway.stop();
    }
}

#[test]
fn a_watching_filter_refuses_before_the_last_piece_leaves() {
    let upstream = Upstream::listen();
    // No hexadecimal digits: the answer has a random id, and the filter also inspects response bodies.
    let gateway = gateway(&upstream, "{ listens: { word: xyz } }");
    let mut client = client(&gateway);
    client.send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 6\r\n\r\nabc");
    let mut conn = upstream.accept();
    conn.read_until("abc");
    client.send("xyz");
    client.read_response().expect_status(400);
    conn.expect_close();
    gateway.stop();
}

#[test]
fn a_response_that_a_filter_refuses_is_cut() {
    let upstream = Upstream::listen();
    let gateway = gateway(&upstream, "{ counts: { name: cut } }, { listens: { word: def } }");
    let mut client = client(&gateway);
    client.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    let mut conn = upstream.accept();
    conn.read_request();
    conn.send("HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nabc");
    client.read_until("abc");
    conn.send("def");
    client.expect_close();
    eventually("the exchange is over", || counted("cut").ends == [(200, "rude")]);
    gateway.stop();
}

#[test]
fn what_a_filter_holds_back_leaves_when_the_upstream_pauses() {
    let upstream = Upstream::listen();
    let gateway = gateway(&upstream, "{ shouts: {} }");
    let mut client = client(&gateway);
    client.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    let mut conn = upstream.accept();
    conn.read_request();
    conn.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n");
    client.read_until("ABC"); // although more is to come
    conn.send("3\r\ndef\r\n0\r\n\r\n");
    client.read_until("DEF");
    client.read_until("0\r\n\r\n");
    gateway.stop();
}

#[test]
fn a_body_stands_still_while_a_filter_holds_it() {
    let body = vec![b'x'; 300_000];
    let (length, chunk) = (body.len(), body.len() / 2);
    for (name, filters, head, middle, end) in [
        ("length", "{ holds: { name: length } }", format!("Content-Length: {length}"), "", ""),
        (
            "chunked",
            "{ holds: { name: chunked } }",
            "Transfer-Encoding: chunked".to_owned(),
            "\r\n",
            "\r\n0\r\n\r\n",
        ),
        // One filter in front of it and one behind it change its input.
        (
            "changed",
            "{ shouts: {} }, { holds: { name: changed } }, { shouts: {} }",
            format!("Content-Length: {length}"),
            "",
            "",
        ),
    ] {
        let upstream = Upstream::listen();
        let gateway = gateway(&upstream, filters);
        let mut client = client(&gateway);
        client.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
        let mut conn = upstream.accept();
        conn.read_request();
        let size = if middle.is_empty() { String::new() } else { format!("{chunk:x}\r\n") };
        conn.send(format!("HTTP/1.1 200 OK\r\n{head}\r\n\r\n{size}"));
        conn.send(&body[..10]);
        // The part that it passed on has been sent.
        client.read_until(if name == "changed" { "X" } else { "x" });
        let rest = std::thread::spawn({
            let body = body.clone();
            move || {
                conn.send(&body[10..chunk]);
                conn.send(format!("{middle}{size}"));
                conn.send(&body[chunk..]);
                conn.send(end);
                conn
            }
        });
        let_go(name);
        let shown = client.read_n(250_000);
        let letters = shown.iter().filter(|b| b.eq_ignore_ascii_case(&b'x')).count();
        assert!(letters > 240_000, "{name}: {letters}");
        drop(rest.join().unwrap());
        gateway.stop();
    }
}

#[test]
fn a_body_is_had_whole_and_goes_on() {
    for ask in [POST.replace("Length: 3\r\n\r\nabc", "Length: 6\r\n\r\nabcdef"), CHUNKED.to_owned()] {
        let upstream =
            Upstream::fixed("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n");
        let gateway = gateway(&upstream, "{ reads: { limit: 6 } }");
        let mut client = client(&gateway);
        for _ in 0..2 {
            let response = client.ask(&ask);
            response.expect_status(200).expect_body("ok").expect_header("x-read", "ok");
            response.expect_header("content-length", "2");
            let request = upstream.take_request();
            assert_eq!(request.head.all("x-read"), ["abcdef"]);
            assert_eq!(request.head.all("content-length"), ["6"]);
            assert_eq!(request.body.bytes, b"abcdef");
        }
        assert_eq!(upstream.connections(), 1, "the connection is used again");
        gateway.stop();
    }
}

#[test]
fn filters_around_one_that_has_it_whole_see_it_in_turn() {
    let upstream = Upstream::fixed(OK);
    // From outside in: the request as the client sent it, then as SHOUTS left it; the response in reverse.
    let filters = "{ reads: { limit: 9 } }, { shouts: {} }, { reads: { limit: 9, instead: Word } }";
    let gateway = gateway(&upstream, filters);
    client(&gateway).ask(POST).expect_status(200).expect_body("WORD").expect_header("x-read", "WORD");
    let request = upstream.take_request();
    assert_eq!((request.head.all("x-read"), &request.body.bytes[..]), (vec!["ABC"], &b"Word"[..]));
    gateway.stop();
}

#[test]
fn a_body_longer_than_can_be_held_is_refused() {
    let upstream = Upstream::fixed("HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nlonger");
    let gateway = gateway(&upstream, "{ counts: { name: held } }, { reads: { limit: 5 } }");
    client(&gateway).ask(CHUNKED).expect_status(413);
    client(&gateway).ask(POST).expect_status(502);
    let told = [(413, "body_too_large"), (502, "response_too_large")];
    eventually("both are over", || counted("held").ends == told);
    gateway.stop();
}

#[test]
fn who_waits_to_be_told_is_told_to_send_the_body() {
    let upstream = Upstream::fixed(OK);
    let gateway = gateway(&upstream, "{ reads: { limit: 9 } }");
    let mut client = client(&gateway);
    client.send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n");
    client.expect("HTTP/1.1 100 Continue\r\n\r\n");
    client.send("abc");
    client.read_response().expect_status(200).expect_body("ok");
    let request = upstream.take_request();
    assert_eq!((request.head.header("expect"), &request.body.bytes[..]), (None, &b"abc"[..]));
    gateway.stop();
}

#[test]
fn a_whole_body_is_sent_again() {
    // The first connection ends after one use: the keep-alive race.
    let upstream = Upstream::listen();
    let gateway = gateway(&upstream, "{ reads: { limit: 100000 } }");
    let body = "x".repeat(60_000); // more than is kept of a body that is only passed on
    let put = format!("PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    let mut client = client(&gateway);
    client.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    let mut first = upstream.accept();
    first.read_request();
    first.send(OK);
    client.read_response().expect_status(200);
    client.send(&put);
    first.read_until("\r\n\r\n");
    first.close();
    let mut second = upstream.accept();
    assert_eq!(second.read_request().body.bytes.len(), body.len());
    second.send(OK);
    client.read_response().expect_status(200);
    gateway.stop();
}
