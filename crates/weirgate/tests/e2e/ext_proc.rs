//! `ext_proc`: what a processor of Envoy's external processing sees and does, and how it may fail. The scripted
//! processor here is bytes; a real one, built with Envoy's Go module, is in `go`.

mod attacks;
mod go;
mod heads;
mod pairs;

use std::collections::BTreeMap;
use weir_testkit::h2::{End, H2, H2Origin, Message, Options};
use weir_testkit::{Conn, Upstream, Weir, eventually};

use crate::cause::EXT_PROC_UNAVAILABLE;
use crate::support::OK_BODY;

const REQUEST_HEADERS: u8 = 2;
const RESPONSE_HEADERS: u8 = 3;
const REQUEST_BODY: u8 = 4;
const RESPONSE_BODY: u8 = 5;
const REQUEST_TRAILERS: u8 = 6;
const RESPONSE_TRAILERS: u8 = 7;

/// The end of the call: the processor has no more to say, or fails.
const END: u8 = 0;

/// What a processor does with a message: given its kind and content, some bytes that it sends.
enum Act {
    /// Answers it.
    Answer(Vec<u8>),
    /// Sends these bytes, which are no whole frame.
    Bytes(Vec<u8>),
    /// Sends nothing.
    Hang,
    /// Ends the call with this status.
    End(&'static str),
    /// Resets the call.
    Reset,
}

// === messages ===

fn bytes(number: u8, content: impl AsRef<[u8]>) -> Vec<u8> {
    let (mut out, mut length) = (vec![number << 3 | 2], content.as_ref().len());
    while length >= 0x80 {
        out.push((length & 0x7f) as u8 | 0x80);
        length >>= 7;
    }
    out.push(length as u8);
    [&out, content.as_ref()].concat()
}

fn number(number: u8, value: u16) -> Vec<u8> {
    vec![number << 3, (value & 0x7f) as u8 | 0x80, (value >> 7) as u8]
}

/// The parts of a message: number and content; a number's content is its bytes.
fn parts(mut message: &[u8]) -> Vec<(u8, Vec<u8>)> {
    let varint = |message: &mut &[u8]| {
        let (mut value, mut shift) = (0usize, 0);
        loop {
            let byte = message[0];
            *message = &message[1..];
            value |= usize::from(byte & 0x7f) << shift;
            shift += 7;
            if byte < 0x80 {
                return value;
            }
        }
    };
    let mut parts = Vec::new();
    while !message.is_empty() {
        let key = varint(&mut message) as u8;
        let value = varint(&mut message);
        if key & 7 == 2 {
            parts.push((key >> 3, message[..value].to_vec()));
            message = &message[value..];
        } else {
            parts.push((key >> 3, vec![value as u8]));
        }
    }
    parts
}

fn part(message: &[u8], number: u8) -> Vec<u8> {
    parts(message)
        .into_iter()
        .find(|(found, _)| *found == number)
        .map(|(_, content)| content)
        .unwrap_or_default()
}

/// The fields of a head or trailers.
fn fields(content: &[u8]) -> BTreeMap<String, String> {
    let fields = parts(&part(content, 1)).into_iter().map(|(_, field)| {
        let text = |number| String::from_utf8(part(&field, number)).unwrap();
        (text(1), text(3))
    });
    fields.collect()
}

/// A CommonResponse for a message of this kind.
fn common(kind: u8, content: &[&[u8]]) -> Act {
    if kind == END {
        return Act::End("0");
    }
    let content = content.concat();
    let answer =
        if matches!(kind, REQUEST_TRAILERS | RESPONSE_TRAILERS) { content } else { bytes(1, content) };
    Act::Answer(bytes(kind - 1, answer))
}

fn go_on(kind: u8) -> Act {
    common(kind, &[])
}

/// A mutation that sets fields, as CommonResponse has it.
fn set(fields: &[(&str, &str)]) -> Vec<u8> {
    let set = |(name, value): &(&str, &str)| bytes(1, bytes(1, [bytes(1, name), bytes(3, value)].concat()));
    fields.iter().flat_map(set).collect()
}

fn new_body(body: &str) -> Vec<u8> {
    bytes(3, bytes(1, body))
}

fn immediate(status: u16, body: &str) -> Act {
    Act::Answer(bytes(7, [bytes(1, number(1, status)), bytes(3, body)].concat()))
}

// === the processor ===

/// A processor that follows a script: what it does with each message. It gets the number of the message in its call.
fn processor(script: impl Fn(usize, u8, &[u8]) -> Vec<Act> + Send + Sync + 'static) -> Upstream {
    Upstream::script(move |conn| {
        let mut peer = H2::server(conn, &Options::default());
        while let Some((stream, head)) = peer.next_head() {
            assert_eq!(head.header(":path"), Some("/envoy.service.ext_proc.v3.ExternalProcessor/Process"));
            assert_eq!(
                (head.header("content-type"), head.header("te")),
                (Some("application/grpc"), Some("trailers"))
            );
            serve(&mut peer, stream, &script);
        }
    })
}

/// Tells the upstream and the client whose session it is.
pub(crate) fn names_the_user() -> Upstream {
    processor(|_, kind, content| {
        let seen = if kind == END { BTreeMap::new() } else { fields(content) };
        vec![match kind {
            END => Act::End("0"),
            REQUEST_HEADERS => {
                common(kind, &[&bytes(2, set(&[("x-user", seen.get("x-session").map_or("", |user| user))]))])
            }
            _ => go_on(kind),
        }]
    })
}

fn serve(peer: &mut H2<&mut Conn>, stream: u32, script: &impl Fn(usize, u8, &[u8]) -> Vec<Act>) {
    let (mut read, mut is_headed) = (0, false);
    for at in 0.. {
        let whole = |body: &[u8]| {
            let frame = body.get(read..).filter(|frame| frame.len() >= 5)?;
            let length = u32::from_be_bytes(frame[1..5].try_into().unwrap()) as usize;
            frame.get(5..5 + length).map(<[u8]>::to_vec)
        };
        let ready = |message: &Message| whole(&message.body).is_some() || message.end.is_some();
        let Some(message) = peer.try_wait(stream, ready) else { return };
        let (kind, content) = match whole(&message.body) {
            Some(content) => {
                read += 5 + content.len();
                parts(&content).swap_remove(0)
            }
            None => (END, Vec::new()),
        };
        if kind == END && message.end != Some(End::Stream) {
            script(at, kind, &[]);
            return;
        }
        for act in script(at, kind, &content) {
            if !std::mem::replace(&mut is_headed, true) && !matches!(act, Act::Hang) {
                peer.headers(stream, &[(":status", "200"), ("content-type", "application/grpc")], false);
            }
            match act {
                Act::Answer(answer) => {
                    let length = u32::try_from(answer.len()).unwrap().to_be_bytes();
                    peer.body(stream, [&[0], &length[..], &answer].concat().as_slice(), false);
                }
                Act::Bytes(bytes) => peer.body(stream, &bytes, false),
                Act::Hang => {}
                Act::End(status) => return peer.headers(stream, &[("grpc-status", status)], true),
                Act::Reset => return peer.reset(stream, 2),
            }
        }
        if kind == END {
            return;
        }
    }
}

#[track_caller]
fn start(processor: &Upstream, upstream: &str, settings: &str) -> Weir {
    start_within("10s", processor, upstream, settings)
}

#[track_caller]
fn start_within(timeout: &str, processor: &Upstream, upstream: &str, settings: &str) -> Weir {
    Weir::start(&format!(
        "listeners: {{ web: {{ address: 127.0.0.1:0, protocols: [http1, h2] }} }}\nexpose_causes: true\n\
         admin: {{ address: 127.0.0.1:0 }}\nupstreams:\n  processor: {{ endpoints: [{}], protocol: h2c }}\n  up: {{ {upstream} }}\n\
         routes: {{ all: {{ match: {{ path: \"/*\" }}, upstream: up, \
         filters: [ {{ ext_proc: {{ upstream: processor, timeout: {timeout}, {settings} }} }} ] }} }}\n",
        processor.address()
    ))
}

fn to(upstream: &Upstream) -> String {
    format!("endpoints: [{}]", upstream.address())
}

const POST: &str = "POST /a?b=1 HTTP/1.1\r\nHost: weir.test\r\nX-A: 1\r\nContent-Length: 5\r\n\r\nhello";
const ALL: &str = "request: { body: buffered, trailers: send }, response: { body: buffered, trailers: send }";
const STREAMED: &str =
    "request: { body: streamed, trailers: send }, response: { body: streamed, trailers: send }";

fn figure(weir: &Weir, name: &str) -> u64 {
    let metrics = weir.admin_client().ask("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").text();
    let line = metrics.lines().find(|line| line.starts_with(&format!("weir_ext_proc_{name}_total{{")));
    line.and_then(|line| line.rsplit(' ').next()).map_or(0, |value| value.parse().unwrap())
}

// === What it does ===

#[test]
fn heads_are_seen_and_changed() {
    let processor = processor(|_, kind, content| {
        let seen = fields(content);
        vec![match kind {
            REQUEST_HEADERS => {
                assert_eq!((&*seen[":method"], &*seen[":path"]), ("POST", "/a?b=1"));
                assert_eq!(
                    (&*seen[":scheme"], &*seen[":authority"], &*seen["x-a"]),
                    ("http", "weir.test", "1")
                );
                assert!(!seen.contains_key("host") && !seen.contains_key("x-secret"));
                assert!(part(content, 3).is_empty(), "a body follows");
                let mutation = [
                    set(&[
                        ("x-a", "2"),
                        ("x-new", "n"),
                        (":path", "/c?d"),
                        ("host", "evil"),
                        ("content-length", "1"),
                    ]),
                    bytes(2, "x-gone"),
                ];
                common(kind, &[&bytes(2, mutation.concat())])
            }
            RESPONSE_HEADERS => {
                assert_eq!((&*seen[":status"], &*seen["content-length"]), ("200", "2"));
                common(kind, &[&bytes(2, set(&[(":status", "404"), ("x-was", "here")]))])
            }
            _ => Act::Hang,
        }]
    });
    let upstream = Upstream::fixed(OK_BODY);
    let weir = start(&processor, &to(&upstream), "withhold: [ x-secret ]");
    let request = POST.replace("X-A: 1", "X-A: 1\r\nX-Gone: 1\r\nX_New: forged\r\nX-Secret: s");
    weir.client().ask(&request).expect_status(404).expect_header("x-was", "here").expect_body("ok");
    let seen = upstream.take_request();
    assert_eq!(seen.head.line, "POST /c?d HTTP/1.1");
    assert_eq!((seen.head.all("x-a"), seen.head.all("x-new")), (vec!["2"], vec!["n"]));
    assert_eq!((seen.head.header("x-gone"), seen.head.header("x_new")), (None, None));
    assert_eq!((seen.head.header("x-secret"), seen.body.bytes.as_slice()), (Some("s"), &b"hello"[..]));
    assert_eq!(figure(&weir, "ignored"), 2);
    processor.verify();
}

/// Turns bodies to upper case, and adds to heads and trailers what it saw of them.
fn shouting() -> Upstream {
    processor(|_, kind, content| {
        let upper = || String::from_utf8(part(content, 1)).unwrap().to_uppercase();
        vec![match kind {
            REQUEST_BODY | RESPONSE_BODY if part(content, 1).is_empty() => go_on(kind),
            REQUEST_BODY | RESPONSE_BODY => {
                common(kind, &[&bytes(2, set(&[("x-body", "seen")])), &new_body(&upper())])
            }
            REQUEST_TRAILERS | RESPONSE_TRAILERS => {
                assert_eq!(fields(content)["x-sum"], "1");
                common(kind, &[&bytes(1, set(&[("x-sum", "2"), ("x-more", "3")]))])
            }
            END => Act::End("0"),
            _ => go_on(kind),
        }]
    })
}

#[test]
fn bodies_are_changed_whole_and_in_pieces() {
    let processor = shouting();
    let upstream = Upstream::fixed("HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nanswer");
    for settings in [ALL, STREAMED] {
        let weir = start(&processor, &to(&upstream), settings);
        let mut client = weir.client();
        for _ in 0..2 {
            let response = client.ask(POST);
            response.expect_status(200).expect_body("ANSWER");
            let request = upstream.take_request();
            assert_eq!(request.body.bytes, b"HELLO");
            let whole = settings == ALL;
            assert_eq!(request.head.header("x-body"), whole.then_some("seen"));
            assert_eq!(response.head.header("x-body"), whole.then_some("seen"));
            assert_eq!(request.head.header("content-length"), whole.then_some("5"));
        }
        let mut h2 = weir.h2();
        let stream = h2.post("/h2");
        h2.data(stream, "hel", false);
        h2.data(stream, "lo", true);
        h2.message(stream).expect_status(200).expect_body("ANSWER");
        assert_eq!(upstream.take_request().body.bytes, b"HELLO");
        // What is longer than one piece.
        let long = "x".repeat(300_000);
        weir.client()
            .ask(format!("POST / HTTP/1.1\r\nHost: weir.test\r\nContent-Length: 300000\r\n\r\n{long}"))
            .expect_status(200);
        assert_eq!(upstream.take_request().body.bytes, long.to_uppercase().as_bytes());
        assert_eq!(figure(&weir, "failed"), 0, "{settings}");
    }
    processor.verify();
}

#[test]
fn trailers_are_seen_and_changed() {
    let processor = shouting();
    let origin = H2Origin::new(Options::default(), |h2, stream, request| {
        let sum = request.trailers.iter().map(|(name, value)| format!("{name}={value} ")).collect::<String>();
        let sum = format!("{sum}{}", String::from_utf8(request.body).unwrap());
        h2.headers(stream, &[(":status", "200"), ("x-saw", &sum)], false);
        h2.data(stream, "answer", false);
        h2.headers(stream, &[("x-sum", "1")], true);
    });
    for (settings, body) in
        [(STREAMED, "HELLO"), ("request: { trailers: send }, response: { trailers: send }", "hello")]
    {
        let weir = start(&processor, &format!("endpoints: [{}], protocol: h2c", origin.address()), settings);
        let mut h2 = weir.h2();
        let stream = h2.post("/");
        h2.data(stream, "hello", false);
        h2.headers(stream, &[("x-sum", "1")], true);
        let message = h2.message(stream);
        message.expect_status(200);
        let saw = message.header("x-saw").unwrap();
        assert!(saw.contains("x-sum=2") && saw.contains("x-more=3") && saw.ends_with(body), "{saw}");
        let mut trailers = message.trailers.clone();
        trailers.sort();
        assert_eq!(trailers, [("x-more".into(), "3".into()), ("x-sum".into(), "2".into())]);
    }
    processor.verify();
    origin.verify();
}

#[test]
fn a_processor_that_answers_itself() {
    for kind in [REQUEST_HEADERS, REQUEST_BODY, RESPONSE_HEADERS, RESPONSE_BODY] {
        let processor = processor(move |_, now, _| {
            vec![if now == kind { immediate(403, "not you") } else { go_on(now) }]
        });
        let upstream = Upstream::fixed(OK_BODY);
        for (settings, streamed) in [(ALL, false), (STREAMED, true)] {
            let weir = start(&processor, &to(&upstream), settings);
            let mut client = weir.client();
            client.send(POST);
            if streamed && kind == RESPONSE_BODY {
                client.read_head(); // it has begun: it can only be cut
                client.expect_close();
            } else {
                let response = client.read_response();
                response.expect_status(403).expect_body("not you");
            }
            assert_eq!(figure(&weir, "failed"), 0, "{kind} {settings}");
        }
    }
}

#[test]
fn a_grpc_client_gets_a_status() {
    let processor = processor(|_, _, _| {
        let status = [bytes(1, number(1, 403)), bytes(3, "not 100 %"), bytes(4, number(1, 7))];
        vec![Act::Answer(bytes(7, status.concat()))]
    });
    let upstream = Upstream::fixed(OK_BODY);
    let weir = start(&processor, &to(&upstream), "");
    let mut h2 = weir.h2();
    let fields = [
        (":method", "POST"),
        (":scheme", "http"),
        (":authority", "weir.test"),
        (":path", "/a.B/C"),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
    ];
    let stream = h2.request(&fields, true);
    let message = h2.message(stream);
    message.expect_status(200).expect_header("grpc-status", "7").expect_header("grpc-message", "not 100 %25");
}

#[test]
fn a_body_is_replaced_without_being_sent() {
    let processor = processor(|_, kind, _| {
        assert!(matches!(kind, REQUEST_HEADERS | RESPONSE_HEADERS | END));
        vec![if kind == END { Act::End("0") } else { common(kind, &[&number(1, 1), &new_body("replaced")]) }]
    });
    let upstream = Upstream::fixed(OK_BODY);
    let weir = start(&processor, &to(&upstream), ALL);
    let mut client = weir.client();
    for request in [POST, "GET / HTTP/1.1\r\nHost: weir.test\r\n\r\n"] {
        client.ask(request).expect_status(200).expect_body("replaced");
        let seen = upstream.take_request();
        assert_eq!(
            (seen.body.bytes.as_slice(), seen.head.header("content-length")),
            (&b"replaced"[..], Some("8"))
        );
    }
    processor.verify();
}

#[test]
fn the_processor_may_change_the_mode() {
    // Bodies buffered in both directions, no response headers.
    let mode = bytes(9, [number(2, 2), number(3, 2), number(4, 2)].concat());
    let seen = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let kinds = std::sync::Arc::clone(&seen);
    let processor = processor(move |_, kind, content| {
        kinds.lock().unwrap().push(kind);
        vec![match (kind, go_on(kind)) {
            (REQUEST_HEADERS, Act::Answer(answer)) => Act::Answer([answer, mode.clone()].concat()),
            (REQUEST_BODY | RESPONSE_BODY, _) => {
                common(kind, &[&new_body(&format!("{}!", String::from_utf8(part(content, 1)).unwrap()))])
            }
            (_, act) => act,
        }]
    });
    let upstream = Upstream::fixed(OK_BODY);
    for (settings, expected) in [
        ("mode_override: true", vec![REQUEST_HEADERS, REQUEST_BODY, RESPONSE_BODY]),
        ("mode_override: false", vec![REQUEST_HEADERS, RESPONSE_HEADERS]),
    ] {
        let weir = start(&processor, &to(&upstream), settings);
        let bang = if expected.len() == 3 { "!" } else { "" };
        weir.client().ask(POST).expect_status(200).expect_body(format!("ok{bang}"));
        assert_eq!(upstream.take_request().body.bytes, format!("hello{bang}").as_bytes());
        eventually("it saw the end", || seen.lock().unwrap().last() == Some(&END));
        let kinds: Vec<u8> = seen.lock().unwrap().drain(..).filter(|kind| *kind != END).collect();
        assert_eq!(kinds, expected);
    }
}

/// The end of our side reaches it, and the end of its side means that everything else passes.
#[test]
fn a_processor_that_wants_no_more() {
    for last in [REQUEST_HEADERS, REQUEST_BODY, RESPONSE_HEADERS, RESPONSE_BODY] {
        let processor =
            processor(move |_, kind, _| vec![if kind == last { Act::End("0") } else { go_on(kind) }]);
        let upstream = Upstream::fixed(OK_BODY);
        for settings in [ALL, STREAMED] {
            let weir = start(&processor, &to(&upstream), settings);
            weir.client().ask(POST).expect_status(200).expect_body("ok");
            assert_eq!(upstream.take_request().body.bytes, b"hello");
            assert_eq!(figure(&weir, "failed"), 0);
        }
        processor.verify();
    }
}

// === How it fails ===

/// How a processor fails, in words, and what it does with a message of this kind.
type Fails = (&'static str, fn(u8) -> Vec<Act>);

#[test]
fn a_processor_that_fails_at_each_phase() {
    let fails: [Fails; 8] = [
        ("ends with an error", |_| vec![Act::End("13")]),
        ("breaks off", |_| vec![Act::Reset]),
        ("hangs", |_| vec![Act::Hang]),
        ("answers another phase", |kind| {
            vec![go_on(if kind == RESPONSE_BODY { REQUEST_HEADERS } else { RESPONSE_BODY })]
        }),
        ("sends no message", |_| vec![Act::Answer(b"\xff\xff".to_vec())]),
        ("sends an answer without content", |_| vec![Act::Answer(Vec::new())]),
        ("sends too much", |_| vec![Act::Bytes([&[0][..], &2_000_000u32.to_be_bytes(), b"x"].concat())]),
        ("sets what cannot be sent", |kind| match kind {
            REQUEST_BODY | RESPONSE_BODY => vec![common(kind, &[&bytes(3, bytes(3, ""))])],
            _ => vec![common(kind, &[&bytes(2, set(&[("x", "a\nb")]))])],
        }),
    ];
    for phase in [REQUEST_HEADERS, REQUEST_BODY, RESPONSE_HEADERS, RESPONSE_BODY] {
        for (what, fail) in fails {
            let processor =
                processor(move |_, kind, _| if kind == phase { fail(kind) } else { vec![go_on(kind)] });
            for (mode, streamed) in [(ALL, false), (STREAMED, true)] {
                let timeout = if what == "hangs" { "50ms" } else { "10s" };
                let at = |without: &str| format!("{what} at {phase}, {without}, streamed: {streamed}");
                let start = |without: &str, upstream: &Upstream| {
                    start_within(timeout, &processor, &to(upstream), &format!("without: {without}, {mode}"))
                };
                let upstream = Upstream::fixed(OK_BODY);
                let weir = start("refuse", &upstream);
                let mut client = weir.client();
                client.send(POST);
                if streamed && phase == RESPONSE_BODY {
                    client.read_head();
                    client.expect_close();
                } else {
                    let response = client.read_response();
                    assert_eq!(
                        (response.status, response.head.header("x-weir-cause")),
                        (503, Some(EXT_PROC_UNAVAILABLE.1)),
                        "{}",
                        at("refuse")
                    );
                }
                assert_eq!(figure(&weir, "failed"), 1, "{}", at("refuse"));
                let upstream = Upstream::fixed(OK_BODY); // of its own: the other may still read
                let weir = start("pass", &upstream);
                let response = weir.client().ask(POST);
                assert_eq!((response.status, response.text().as_str()), (200, "ok"), "{}", at("pass"));
                assert_eq!(upstream.take_request().body.bytes, b"hello", "{}", at("pass"));
                assert_eq!(figure(&weir, "failed"), 1, "{}", at("pass"));
            }
        }
    }
}

#[test]
fn two_answers_to_one_question() {
    let processor = processor(|_, kind, _| vec![go_on(kind), go_on(kind)]);
    let upstream = Upstream::fixed(OK_BODY);
    let weir = start(&processor, &to(&upstream), "");
    weir.client().ask(POST).expect_cause(EXT_PROC_UNAVAILABLE);
}

#[test]
fn a_processor_that_is_not_there_or_speaks_http1() {
    let upstream = Upstream::fixed(OK_BODY);
    let (_socket, nobody) = weir_testkit::refusing_address();
    for place in [nobody, upstream.address()] {
        let weir = Weir::start(&format!(
            "listeners: {{ web: {{ address: 127.0.0.1:0 }} }}\nexpose_causes: true\nupstreams:\n  processor: {{ endpoints: [{place}], protocol: h2c }}\n  up: {{ {} }}\n\
             routes:\n  a: {{ match: {{ path: /a }}, upstream: up, filters: [ {{ ext_proc: {{ upstream: processor }} }} ] }}\n  \
             b: {{ match: {{ path: /b }}, upstream: up, filters: [ {{ ext_proc: {{ upstream: processor, without: pass }} }} ] }}\n",
            to(&upstream)
        ));
        weir.client().get("/a").expect_cause(EXT_PROC_UNAVAILABLE);
        weir.client().get("/b").expect_status(200);
    }
}

#[test]
fn bodies_longer_than_the_limit() {
    let processor = shouting();
    let upstream =
        Upstream::fixed(format!("HTTP/1.1 200 OK\r\nContent-Length: 2000\r\n\r\n{}", "y".repeat(2000)));
    let weir = start(&processor, &to(&upstream), "limit: 1000B, request: { body: buffered }");
    let body = "x".repeat(1001);
    let request = format!("POST / HTTP/1.1\r\nHost: weir.test\r\nContent-Length: 1001\r\n\r\n{body}");
    weir.client().ask(request).expect_cause(crate::cause::BODY_TOO_LARGE);
    let weir = start(&processor, &to(&upstream), "limit: 1000B, response: { body: buffered }");
    weir.client().get("/").expect_cause(crate::cause::RESPONSE_TOO_LARGE);
}

/// A client that waits to be asked sends its body only after the processor has seen the head.
#[test]
fn a_client_that_waits_to_be_asked() {
    let processor = processor(|_, kind, content| {
        let refused = kind == REQUEST_HEADERS && fields(content)["x-a"] == "2";
        vec![if refused { immediate(403, "") } else { go_on(kind) }]
    });
    let upstream = Upstream::fixed(OK_BODY);
    let weir = start(&processor, &to(&upstream), "request: { body: buffered }");
    let head = POST.replace("X-A", "Expect: 100-continue\r\nX-A").replace("hello", "");
    let mut client = weir.client();
    client.send(&head);
    client.expect("HTTP/1.1 100 Continue\r\n\r\n");
    client.send("hello");
    client.read_response().expect_status(200);
    let mut client = weir.client();
    client.send(head.replace("X-A: 1", "X-A: 2"));
    client.read_response().expect_status(403);
}
