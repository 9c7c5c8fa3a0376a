//! `ext_proc` beside other features: chosen by `when`, in a plan, before retries and hedges, behind and before a cache.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use weir_testkit::{Upstream, Weir};

use super::{
    Act, END, REQUEST_BODY, REQUEST_HEADERS, RESPONSE_BODY, RESPONSE_HEADERS, bytes, common, go_on, new_body,
    part, processor, set, to,
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
