//! `ext_proc` beside other features: chosen by `when`, in a plan, before retries and hedges, behind and before a cache.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use weir_testkit::{Upstream, Weir};

use super::{
    Act, END, REQUEST_BODY, REQUEST_HEADERS, RESPONSE_BODY, RESPONSE_HEADERS, bytes, common, go_on, new_body,
    number, part, processor, set, to,
};
use crate::support::OK_BODY;

/// A gateway whose route has these filters.
#[track_caller]
fn start(processor: &Upstream, upstream: &str, more: &str, filters: &str) -> Weir {
    Weir::start(&config(processor, upstream, more, filters))
}

fn config(processor: &Upstream, upstream: &str, more: &str, filters: &str) -> String {
    format!(
        "listeners: {{ web: {{ address: 127.0.0.1:0, protocols: [http1, h2] }} }}\nexpose_causes: true\nworkers: 1\n\
         admin: {{ address: 127.0.0.1:0 }}\nstores: {{ pages: {{ memory: 4MiB }} }}\n{more}\nupstreams:\n  \
         processor: {{ endpoints: [{}], protocol: h2c }}\n  up: {{ {upstream} }}\n\
         routes: {{ all: {{ match: {{ path: \"/*\" }}, upstream: up, filters: [ {filters} ] }} }}\n",
        processor.address()
    )
}

/// The filter, with a time that no test reaches.
fn asks(settings: &str) -> String {
    format!("{{ ext_proc: {{ upstream: processor, timeout: 10s, {settings} }} }}")
}

const BUFFERED: &str = "request: { body: buffered }, response: { body: buffered }";
const STREAMED: &str = "request: { body: streamed }, response: { body: streamed }";

fn post(target: &str) -> String {
    format!("POST {target} HTTP/1.1\r\nHost: weir.test\r\nContent-Length: 5\r\n\r\nhello")
}

/// Turns bodies to upper case, and says in heads that it was asked. Counts the calls.
fn upper() -> (Upstream, Arc<AtomicUsize>) {
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let processor = processor(move |at, kind, content| {
        if at == 0 {
            counted.fetch_add(1, SeqCst);
        }
        let upper = || String::from_utf8(part(content, 1)).unwrap().to_uppercase();
        vec![match kind {
            REQUEST_HEADERS | RESPONSE_HEADERS => common(kind, &[&bytes(2, set(&[("x-asked", "yes")]))]),
            REQUEST_BODY | RESPONSE_BODY => common(kind, &[&new_body(&upper())]),
            END => Act::End("0"),
            _ => go_on(kind),
        }]
    });
    (processor, calls)
}

/// A field that tells which list ran, in requests and responses.
fn mark(name: &str) -> String {
    format!(
        "{{ headers: {{ request: {{ add: {{ x-in: {name} }} }}, response: {{ add: {{ x-out: {name} }} }} }} }}"
    )
}

/// Each list of a `when` may ask a processor, and a `when` behind it decides by what the processor has set.
#[test]
fn when_chooses_it_and_decides_by_what_it_has_set() {
    let (processor, calls) = upper();
    let upstream = Upstream::fixed("HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nanswer");
    for (first, second) in [(BUFFERED, STREAMED), (STREAMED, BUFFERED)] {
        let inner = format!(
            "{{ when: {{ is: 'request.args.p == \"2\"', filters: [ {}, {} ], otherwise: [ {} ] }} }}",
            mark("two"),
            asks(second),
            mark("none")
        );
        let filters = format!(
            "{{ when: {{ is: 'request.args.p == \"1\"', filters: [ {}, {} ], otherwise: [ {inner} ] }} }}, \
             {{ when: {{ is: 'request.headers[\"x-asked\"] == \"yes\"', filters: [ {} ], otherwise: [ {} ] }} }}",
            asks(first),
            mark("one"),
            mark("asked"),
            mark("alone")
        );
        let weir = start(&processor, &to(&upstream), "", &filters);
        let (mut h1, mut h2) = (weir.client(), weir.h2());
        for (target, request, response, marks) in [
            ("/?p=1", "HELLO", "ANSWER", ["one", "asked"]),
            ("/?p=2", "HELLO", "ANSWER", ["two", "asked"]),
            ("/?p=3", "hello", "answer", ["none", "alone"]),
        ] {
            let before = calls.load(SeqCst);
            for over_h2 in [false, true] {
                let mut outs: Vec<String> = if over_h2 {
                    let stream = h2.post(target);
                    h2.data(stream, "hel", false);
                    h2.data(stream, "lo", true);
                    let answer = h2.message(stream);
                    answer.expect_status(200).expect_body(response);
                    answer.all("x-out").iter().map(ToString::to_string).collect()
                } else {
                    let answer = h1.ask(post(target));
                    answer.expect_status(200).expect_body(response);
                    answer.head.all("x-out").iter().map(ToString::to_string).collect()
                };
                outs.reverse();
                assert_eq!(outs, marks, "{target}, responses pass in reverse");
                let seen = upstream.take_request();
                assert_eq!(seen.head.all("x-in"), marks, "{target}");
                assert_eq!(seen.body.bytes, request.as_bytes(), "{target}");
            }
            let asked = if marks[1] == "asked" { 2 } else { 0 };
            assert_eq!(calls.load(SeqCst) - before, asked, "{target}");
        }
    }
    processor.verify();
}

/// The filters of the consumer's plan ask it, on the route of a filter that names the consumer.
#[test]
fn a_plan_asks_it() {
    let (processor, calls) = upper();
    let upstream = Upstream::fixed(OK_BODY);
    for settings in [BUFFERED, STREAMED] {
        let plans = format!(
            "consumers: {{ shop: {{ key_auth: [ k ], plan: checked }}, other: {{ key_auth: [ o ] }} }}\n\
             plans: {{ checked: {{ filters: [ {} ] }} }}",
            asks(settings)
        );
        let weir = start(&processor, &to(&upstream), &plans, "{ key_auth: {} }");
        for (key, body, asked) in [("k", "OK", 1), ("o", "ok", 0)] {
            let before = calls.load(SeqCst);
            let request = post("/").replace("Content-", &format!("X-API-Key: {key}\r\nContent-"));
            weir.client().ask(request).expect_status(200).expect_body(body);
            let sent = upstream.take_request().body.bytes;
            assert_eq!(sent, if asked == 1 { b"HELLO" } else { b"hello" });
            assert_eq!(calls.load(SeqCst) - before, asked);
        }
    }
    processor.verify();
}

/// Each attempt sends what the processor made of the request, and the processor is asked once.
#[test]
fn repeated_requests_ask_it_once() {
    let bad = Upstream::fixed("HTTP/1.1 503 Service Unavailable\r\nContent-Length: 3\r\n\r\nbad");
    let (good, slow) = (Upstream::fixed(OK_BODY), Upstream::listen());
    for settings in [BUFFERED, STREAMED, "withhold: [ x ]"] {
        let (processor, calls) = upper();
        let two = |first: &Upstream, more: &str| {
            let (first, good) = (first.address(), good.address());
            format!("endpoints: [{first}, {good}], balancer: round_robin, {more}")
        };
        let bodies = !settings.starts_with("withhold");
        for (first, more) in [
            (&bad, "retry: { on: [503], methods: all, budget: 100% }"),
            // By then the processor has given the whole body, without which there is no second attempt.
            (&slow, "hedge: { after: 200ms, budget: 100%, methods: all }"),
        ] {
            let more = if first.address() == slow.address() {
                more.replace(", methods: all", "")
            } else {
                more.to_owned()
            };
            let weir = start(&processor, &two(first, &more), "", &asks(settings));
            let mut client = weir.client();
            for _ in 0..4 {
                let (before, request) = (calls.load(SeqCst), post("/").replace("POST", "PUT"));
                let body = if bodies { "OK" } else { "ok" };
                client.ask(request).expect_status(200).expect_body(body).expect_header("x-asked", "yes");
                assert_eq!(calls.load(SeqCst) - before, 1, "{settings}");
            }
            let seen = good.wait_requests(4);
            let sent = if bodies { b"HELLO" } else { b"hello" };
            assert!(seen.iter().all(|request| request.body.bytes == sent), "{settings} {seen:?}");
            good.forget();
        }
        processor.verify();
    }
}

/// Answers without a body have none behind it, whatever the processor says.
#[test]
fn answers_without_a_body() {
    let seen = Arc::new(std::sync::Mutex::new(Vec::new()));
    let kinds = Arc::clone(&seen);
    let processor = processor(move |_, kind, content| {
        if kind == RESPONSE_HEADERS {
            kinds.lock().unwrap().push(part(content, 3) == [1]);
            return vec![common(kind, &[&number(1, 1), &new_body("surprise")])];
        }
        vec![go_on(kind)]
    });
    for (request, response) in [
        ("HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"),
        ("GET", "HTTP/1.1 304 Not Modified\r\nETag: \"a\"\r\n\r\n"),
        ("GET", "HTTP/1.1 204 No Content\r\n\r\n"),
    ] {
        let upstream = Upstream::fixed(response);
        for settings in ["", BUFFERED, STREAMED] {
            let weir = start(&processor, &to(&upstream), "", &asks(settings));
            let mut client = weir.client();
            for _ in 0..2 {
                client.send(format!("{request} / HTTP/1.1\r\nHost: weir.test\r\n\r\n"));
                client.read_head(); // and what follows is the next one
            }
            drop(client);
            if request == "HEAD" {
                let mut h2 = weir.h2();
                let fields =
                    [(":method", "HEAD"), (":scheme", "http"), (":authority", "weir.test"), (":path", "/")];
                let stream = h2.request(&fields, true);
                h2.message(stream).expect_status(200).expect_body("");
            }
        }
    }
    assert!(seen.lock().unwrap().iter().filter(|ends| **ends).count() >= 12);
}

/// Requests that follow one another in the same bytes, some with bodies that wait for the processor.
#[test]
fn pipelined_requests_keep_their_bodies() {
    let (processor, _) = upper();
    let upstream = Upstream::fixed(OK_BODY);
    for settings in [BUFFERED, STREAMED] {
        let weir = start(&processor, &to(&upstream), "", &asks(settings));
        let chunked = "POST /2 HTTP/1.1\r\nHost: weir.test\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\nX-T: 1\r\n\r\n";
        let get = "GET /3 HTTP/1.1\r\nHost: weir.test\r\n\r\n";
        let mut client = weir.client();
        client.send([&post("/1"), chunked, get, &post("/4")].concat());
        for _ in 0..4 {
            client.read_response().expect_status(200).expect_body("OK");
        }
        let bodies: Vec<_> =
            upstream.wait_requests(4).into_iter().map(|request| request.body.bytes).collect();
        assert_eq!(bodies, [&b"HELLO"[..], b"ABC", b"", b"HELLO"], "{settings}");
        upstream.forget();
    }
    processor.verify();
}

#[test]
fn a_switched_protocol_passes() {
    let (processor, _) = upper();
    let upstream = Upstream::script(|conn| {
        conn.read_head();
        conn.send("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\nhi");
        conn.expect("there");
    });
    let weir = start(&processor, &to(&upstream), "", &asks(STREAMED));
    let mut client = weir.client();
    client.send("GET / HTTP/1.1\r\nHost: weir.test\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n");
    client.read_until("\r\n\r\nhi");
    client.send("there");
    processor.verify();
    upstream.verify();
}

/// A client that lets a field end at the gateway (`Connection: x-user`) does not remove the processor's.
#[test]
fn a_client_cannot_remove_what_it_sets() {
    let processor = processor(|_, kind, _| {
        vec![match kind {
            REQUEST_HEADERS => common(kind, &[&bytes(2, set(&[("x-user", "bob")]))]),
            _ => go_on(kind),
        }]
    });
    let upstream = Upstream::fixed(OK_BODY);
    let weir = start(&processor, &to(&upstream), "", &asks(""));
    for fields in
        ["Connection: x-user\r\nX-User: eve", "X-User: eve", "X_User: eve", "Connection: x-user, close"]
    {
        weir.client()
            .ask(format!("GET / HTTP/1.1\r\nHost: weir.test\r\n{fields}\r\n\r\n"))
            .expect_status(200);
        let seen = upstream.take_request();
        assert_eq!((seen.head.all("x-user"), seen.head.header("x_user")), (vec!["bob"], None), "{fields}");
    }
}
