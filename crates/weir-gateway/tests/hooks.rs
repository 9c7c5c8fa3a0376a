//! A gateway with the test's own filters, over sockets: cases that no filter shipped with Weir covers.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "this is test code: a panic is how a test fails")]

use std::collections::HashMap;
use std::sync::Mutex;
use weir_gateway::autopsy::Question;
use weir_gateway::prelude::*;
use weir_gateway::{Builder, Gateway, config::Source};
use weir_testkit::{Client, Upstream, eventually, refusing_address};

static PANICS: FilterKind = FilterKind::of::<Panics>("panics");
static COUNTS: FilterKind = FilterKind::of::<Counts>("counts");

/// Panics in one of its hooks.
#[derive(Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Panics {
    /// The hook.
    at: String,
}

impl Panics {
    fn hook(&self, name: &str) {
        assert!(self.at != name, "deliberately, at {name}");
    }
}

impl Filter for Panics {
    fn on_request(&self, _: &mut RequestHead, _: &mut Cx) -> Flow {
        self.hook("request");
        Flow::Wait
    }

    fn wait<'a>(&'a self, _: &'a mut RequestHead, _: &'a mut Cx) -> Waiting<'a> {
        Box::pin(async {
            self.hook("wait");
            Flow::Continue
        })
    }

    fn on_request_body(&self, _: &mut Piece<'_>, _: &mut Cx) -> HookResult {
        self.hook("request body");
        Ok(())
    }

    fn on_attempt(&self, _: &mut RequestHead, _: &Attempt<'_>, _: &mut Cx) -> HookResult {
        self.hook("attempt");
        Ok(())
    }

    fn on_attempt_end(&self, _: &AttemptEnd<'_>, _: &mut Cx) {
        self.hook("attempt end");
    }

    fn on_response(&self, _: &mut ResponseHead, _: &mut Cx) -> Flow {
        self.hook("response");
        Flow::Wait
    }

    fn wait_response<'a>(&'a self, _: &'a mut ResponseHead, _: &'a mut Cx) -> Waiting<'a> {
        Box::pin(async {
            self.hook("wait response");
            Flow::Continue
        })
    }

    fn on_response_body(&self, _: &mut Piece<'_>, _: &mut Cx) -> HookResult {
        self.hook("response body");
        Ok(())
    }

    fn on_end(&self, _: &End, _: &mut Cx) {
        self.hook("end");
    }
}

/// Counts the hooks that ran under a name, and sums the arguments of `on_end`.
#[derive(Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Counts {
    /// The name.
    name: String,
}

/// Counts by name: responses, and the ends with status and cause.
static COUNTED: Mutex<Option<HashMap<String, Counted>>> = Mutex::new(None);

#[derive(Clone, Default, Debug, PartialEq, Eq)]
struct Counted {
    responses: u32,
    ends: Vec<(u16, &'static str)>,
}

impl Counts {
    fn counted(&self, count: impl FnOnce(&mut Counted)) {
        let mut all = COUNTED.lock().unwrap();
        count(all.get_or_insert_default().entry(self.name.clone()).or_default());
    }
}

fn counted(name: &str) -> Counted {
    COUNTED.lock().unwrap().get_or_insert_default().get(name).cloned().unwrap_or_default()
}

impl Filter for Counts {
    fn hooks(&self) -> Hooks {
        Hooks::RESPONSE | Hooks::END
    }

    fn on_response(&self, _: &mut ResponseHead, _: &mut Cx) -> Flow {
        self.counted(|counted| counted.responses += 1);
        Flow::Continue
    }

    fn on_end(&self, end: &End, _: &mut Cx) {
        self.counted(|counted| counted.ends.push((end.status, end.cause.map_or("", |cause| cause.code))));
    }
}

static BLOCKS: FilterKind = FilterKind::of::<Blocks>("blocks");

/// Blocks its core until the test releases it.
#[derive(Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[derive(Default)]
struct Blocks {}

static BLOCKED: Mutex<()> = Mutex::new(());

impl Filter for Blocks {
    fn on_request(&self, _: &mut RequestHead, _: &mut Cx) -> Flow {
        drop(BLOCKED.lock());
        Flow::Continue
    }
}

/// A gateway with these filters in front of an upstream.
fn gateway(upstream: &Upstream, filters: &str) -> Gateway {
    gateway_to(upstream.address(), filters)
}

fn gateway_to(address: std::net::SocketAddr, filters: &str) -> Gateway {
    let config = format!(
        "listeners: {{ web: {{ address: 127.0.0.1:0 }} }}\nworkers: 1\naccess_log: {{ output: \"off\" }}\n\
         upstreams: {{ up: {{ endpoints: [{address}] }} }}\n\
         routes: {{ all: {{ match: {{ path: \"/*\" }}, filters: [ {filters} ], upstream: up }} }}\n",
    );
    let builder = weir_gateway::builder(Source::text("test.yaml", &config));
    let kinds = [&PANICS, &COUNTS, &SHOUTS, &LISTENS, &READS, &HOLDS, &ANSWERS, &NUMBERS, &TALLIES, &BLOCKS];
    kinds.into_iter().fold(builder, Builder::filter).start().expect("the config is good")
}

fn client(gateway: &Gateway) -> Client {
    Client::connect(gateway.address("web").unwrap())
}

fn metric(gateway: &Gateway, series: &str) -> String {
    let (_, text) = gateway.metrics("");
    let line = text.lines().find(|line| line.starts_with(series));
    line.and_then(|line| line.rsplit(' ').next()).unwrap_or("0").to_owned()
}

const POST: &str = "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc";
const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

#[test]
fn a_panic_in_a_filter_ends_one_exchange() {
    for (at, status) in [
        ("request", 500),
        ("wait", 500),
        ("request body", 500),
        ("attempt", 500),
        ("attempt end", 500),
        ("response", 500),
        ("wait response", 500),
        ("response body", 200), // its head may have been sent by then
        ("end", 200),
    ] {
        let upstream = Upstream::fixed(OK);
        let filters = format!("{{ counts: {{ name: \"{at}\" }} }}, {{ panics: {{ at: \"{at}\" }} }}");
        let gateway = gateway(&upstream, &filters);
        for round in 1..=2 {
            let mut client = client(&gateway);
            client.send(POST);
            match (status, at) {
                (500, _) => {
                    client.read_response().expect_status(500).expect_header("connection", "close");
                }
                (_, "end") => {
                    client.read_response().expect_status(200);
                }
                _ => {
                    let text = client.read_to_close();
                    assert!(!text.ends_with(b"0\r\n\r\n"), "{at}: the response looks whole");
                }
            }
            eventually("the exchange is over", || counted(at).ends.len() == round);
        }
        let cause = if at == "end" { "" } else { "internal" };
        assert!(counted(at).ends.iter().all(|(_, told)| *told == cause), "{at}: {:?}", counted(at));
        assert_eq!(metric(&gateway, "weir_requests_active{"), "0", "{at}");
        let failed = metric(&gateway, "weir_causes_total{cause=\"internal\"}");
        assert_eq!(failed, if at == "end" { "0" } else { "2" }, "{at}");
        if at != "end" {
            let question = Question { cause: Some("internal".to_owned()), most: 1, ..Question::default() };
            let told = gateway.why(question).found;
            assert!(told[0].sentence.contains("failed in the filter `panics`"), "{at}: {told:#?}");
        }
        gateway.stop();
    }
}

/// If a panic lost a slot for good, the second request would be refused.
#[test]
fn a_panic_gives_a_place_back() {
    for at in ["request", "wait", "attempt", "response", "end"] {
        let upstream = Upstream::fixed(OK);
        let filters = format!("{{ concurrency: {{ requests: 1 }} }}, {{ panics: {{ at: \"{at}\" }} }}");
        let gateway = gateway(&upstream, &filters);
        for _ in 0..2 {
            let status = if at == "end" { 200 } else { 500 };
            client(&gateway).ask("GET / HTTP/1.1\r\nHost: h\r\n\r\n").expect_status(status);
            eventually("the exchange is over", || metric(&gateway, "weir_requests_active{") == "0");
        }
        gateway.stop();
    }
}

#[test]
fn response_filters_run_once() {
    // The head is valid, its body is not: an error answer replaces it.
    let upstream = Upstream::fixed("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nnonsense\r\n");
    let gateway = gateway(&upstream, "{ counts: { name: once } }");
    client(&gateway).ask("GET / HTTP/1.1\r\nHost: h\r\n\r\n").expect_status(502);
    eventually("the exchange is over", || counted("once").ends.len() == 1);
    assert_eq!(counted("once"), Counted { responses: 1, ends: vec![(502, "bad_response")] });
    gateway.stop();
}

// === Bodies ===

/// Upper-cases both bodies, and holds bytes back until a pause or the end.
#[derive(Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Shouts {}

static SHOUTS: FilterKind = FilterKind::of::<Shouts>("shouts");

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

static LISTENS: FilterKind = FilterKind::of::<Listens>("listens").with_causes(&[&RUDE]);
static RUDE: Cause =
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

static HOLDS: FilterKind = FilterKind::of::<Holds>("holds");

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

static READS: FilterKind = FilterKind::of::<Reads>("reads");

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

// === Responses ===

/// Answers instead of upstreams.
#[derive(Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Answers {
    /// `bytes`, `file`, `stream`, `endless`, `short`, `refuse`, or `call` (the upstream again, with a body).
    with: String,
    /// Answers in the request hook already.
    #[serde(default)]
    at_once: bool,
}

static ANSWERS: FilterKind = FilterKind::of::<Answers>("answers").with_causes(&[&RUDE]);

/// A body in pieces of three bytes.
struct Pieces {
    left: usize,
    length: Option<u64>,
}

impl BodySource for Pieces {
    fn length(&self) -> Option<u64> {
        self.length
    }

    fn poll_piece(
        &mut self,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Result<Option<Bytes>, &'static Cause>> {
        let piece = self.left.checked_sub(1).map(|left| {
            self.left = left;
            Bytes::from_static(b"abc")
        });
        std::task::Poll::Ready(Ok(piece))
    }
}

impl Answers {
    fn flow(&self) -> Flow {
        let file = || {
            let path = std::env::temp_dir().join(format!("weir-hooks-{}", std::process::id()));
            std::fs::write(&path, "0123456789".repeat(20_000)).unwrap();
            let file = std::fs::File::open(&path).unwrap();
            let _ = std::fs::remove_file(&path); // another test may have removed it
            FileRange { file: std::sync::Arc::new(file), offset: 5, length: 150_000 }
        };
        let body = match &*self.with {
            "bytes" => Body::from("bytes ".repeat(10_000)),
            "file" => Body::File(file()),
            "stream" => Body::Stream(Box::new(Pieces { left: 3, length: Some(9) })),
            "endless" => Body::Stream(Box::new(Pieces { left: 3, length: None })),
            "short" => Body::Stream(Box::new(Pieces { left: 3, length: Some(10) })),
            "refuse" => return Flow::refuse(&RUDE),
            _ => return Flow::Wait,
        };
        Flow::Answer(Box::new(Answer { status: 203, headers: Vec::new(), body }))
    }
}

impl Filter for Answers {
    fn hooks(&self) -> Hooks {
        Hooks::REQUEST | Hooks::RESPONSE
    }

    fn on_request(&self, _: &mut RequestHead, _: &mut Cx) -> Flow {
        if self.at_once { self.flow() } else { Flow::Continue }
    }

    fn on_response(&self, _: &mut ResponseHead, _: &mut Cx) -> Flow {
        if self.at_once { Flow::Continue } else { self.flow() }
    }

    fn wait_response<'a>(&'a self, _: &'a mut ResponseHead, cx: &'a mut Cx) -> Waiting<'a> {
        Box::pin(async move {
            let request = CallRequest {
                method: "POST".to_owned(),
                target: "/called".to_owned(),
                authority: b"h".to_vec(),
                headers: Vec::new(),
                body: Bytes::from_static(b"question"),
                limit: CALL_BODY_BYTES,
            };
            let sum = cx.core().blocking(|| 2 + 2).await;
            match (cx.call("up", request).await, sum) {
                (Ok(CallAnswer { body, .. }), Ok(4)) => {
                    Flow::Answer(Box::new(Answer { status: 203, headers: Vec::new(), body: body.into() }))
                }
                (Err(cause), _) => Flow::refuse(cause),
                _ => Flow::refuse(&RUDE),
            }
        })
    }
}

#[test]
fn an_answer_is_bytes_a_file_or_a_stream() {
    let file = "5678901234".repeat(15_000);
    for at_once in [true, false] {
        for (with, body, framing) in [
            ("bytes", &"bytes ".repeat(10_000), "content-length"),
            ("file", &file, "content-length"),
            ("stream", &"abcabcabc".to_owned(), "content-length"),
            ("endless", &"abcabcabc".to_owned(), "transfer-encoding"),
            ("call", &"ok".to_owned(), "content-length"),
        ] {
            if at_once && with == "call" {
                continue; // the request has its own hook for waiting
            }
            let upstream = Upstream::fixed(OK);
            let filters = format!(
                "{{ counts: {{ name: {with}{at_once} }} }}, {{ answers: {{ with: {with}, at_once: {at_once} }} }}"
            );
            let gateway = gateway(&upstream, &filters);
            let mut client = client(&gateway);
            for round in 1..=2 {
                let response = client.ask("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
                response.expect_status(203).expect_body(body);
                assert!(response.header(framing).is_some(), "{with}");
                eventually("it is over", || counted(&format!("{with}{at_once}")).ends.len() == round);
            }
            assert_eq!(counted(&format!("{with}{at_once}")).responses, 2, "{with}");
            if with == "call" {
                let called = upstream.requests().into_iter().find(|r| r.head.line.contains("/called"));
                assert_eq!(called.map(|r| r.body.bytes), Some(b"question".to_vec()));
            }
            let head = client.request("HEAD", "/");
            head.expect_status(203).expect_body("");
            gateway.stop();
        }
    }
}

#[test]
fn an_answer_that_comes_short_is_cut() {
    let upstream = Upstream::fixed(OK);
    let gateway = gateway(&upstream, "{ counts: { name: short } }, { answers: { with: short } }");
    let mut client = client(&gateway);
    client.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    client.read_to_close();
    eventually("it is over", || counted("short").ends == [(203, "source_failed")]);
    gateway.stop();
}

#[test]
fn a_response_filter_refuses() {
    let upstream = Upstream::fixed(OK);
    let gateway = gateway(&upstream, "{ counts: { name: refused } }, { answers: { with: refuse } }");
    client(&gateway).ask("GET / HTTP/1.1\r\nHost: h\r\n\r\n").expect_status(400);
    eventually("it is over", || counted("refused").ends == [(400, "rude")]);
    assert_eq!(counted("refused").responses, 1);
    gateway.stop();
}

// === Attempts ===

/// Writes the attempt's number to the request, and records how each attempt ended.
#[derive(Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Numbers {}

static NUMBERS: FilterKind = FilterKind::of::<Numbers>("numbers");
static NUMBERED: Mutex<Vec<(u32, u16, &str)>> = Mutex::new(Vec::new());

impl Filter for Numbers {
    fn hooks(&self) -> Hooks {
        Hooks::ATTEMPT
    }

    fn on_attempt(&self, head: &mut RequestHead, attempt: &Attempt<'_>, _: &mut Cx) -> HookResult {
        let number = format!("{} {}", attempt.upstream, attempt.number);
        head.headers.insert(&HeaderName::fixed("x-attempt"), number.as_bytes()).unwrap();
        Ok(())
    }

    fn on_attempt_end(&self, end: &AttemptEnd<'_>, _: &mut Cx) {
        let ended = (end.attempt.number, end.status, end.cause.map_or("", |cause| cause.code));
        NUMBERED.lock().unwrap().push(ended);
    }
}

#[test]
fn each_attempt_is_shown() {
    let upstream = Upstream::fixed(OK);
    let good = gateway(&upstream, "{ numbers: {} }");
    client(&good).get("/").expect_status(200);
    assert_eq!(upstream.take_request().head.all("x-attempt"), ["up 1"]);
    good.stop();
    let (_held, nobody) = refusing_address();
    let bad = gateway_to(nobody, "{ numbers: {} }");
    client(&bad).get("/").expect_status(502);
    bad.stop();
    assert_eq!(*NUMBERED.lock().unwrap(), [(1, 200, ""), (1, 0, "connect_refused")]);
}

// === The core ===

/// Counts requests per core, and in the exchange.
#[derive(Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct TalliesSettings {}

static TALLIES: FilterKind = FilterKind::made_from::<TalliesSettings>("tallies");

impl IntoFilter for TalliesSettings {
    type Filter = Tallies;

    fn into_filter(self, _: &mut Build<'_>) -> Option<Tallies> {
        Some(Tallies { seen: PerCore::new() })
    }
}

struct Tallies {
    seen: PerCore<std::cell::Cell<u32>>,
}

impl Filter for Tallies {
    fn hooks(&self) -> Hooks {
        Hooks::REQUEST
    }

    fn on_request(&self, head: &mut RequestHead, cx: &mut Cx) -> Flow {
        let seen = self.seen.get(cx.core());
        let count = seen.get().to_string();
        head.headers.insert(&HeaderName::fixed("x-count"), count.as_bytes()).unwrap();
        let spawned = cx.core().spawn(async move { seen.set(seen.get() + 1) });
        assert!(spawned, "one task is not a crowd");
        Flow::Continue
    }
}

#[test]
fn a_core_keeps_state_and_runs_tasks() {
    let upstream = Upstream::fixed(OK);
    let gateway = gateway(&upstream, "{ tallies: {} }");
    let mut client = client(&gateway);
    client.get("/").expect_status(200);
    eventually("the task ran", || {
        client.get("/").expect_status(200);
        let count = upstream.requests().last().and_then(|r| r.head.header("x-count").map(str::to_owned));
        count.is_some_and(|count| count != "0")
    });
    gateway.stop();
}

#[test]
fn a_core_that_is_stuck_does_not_turn() {
    let upstream = Upstream::fixed(OK);
    let gateway = gateway(&upstream, "blocks: {}");
    let (long, short) = (std::time::Duration::from_secs(20), std::time::Duration::from_millis(50));
    assert!(gateway.turns(long));
    let held = BLOCKED.lock().unwrap();
    let mut client = client(&gateway);
    client.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    eventually("the core is stuck", || !gateway.turns(short));
    drop(held);
    client.read_response().expect_status(200);
    assert!(gateway.turns(long));
    gateway.stop();
    assert!(!gateway.turns(short), "one that has ended does not either");
}
