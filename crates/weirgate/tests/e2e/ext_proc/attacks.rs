//! Processors, clients and operators at their worst: what may be late, wrong, gone or far too much.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use weir_testkit::h2::{End, H2, H2Origin, Options};
use weir_testkit::{Upstream, Weir, eventually};

use super::{
    ALL, Act, END, POST, REQUEST_BODY, REQUEST_HEADERS, REQUEST_TRAILERS, RESPONSE_HEADERS,
    RESPONSE_TRAILERS, STREAMED, bytes, common, figure, go_on, immediate, number, processor, set, start, to,
};
use crate::cause::EXT_PROC_UNAVAILABLE;
use crate::support::OK_BODY;

/// A processor that answers a message of this kind when it is told to. It tells when it is asked.
fn held_at(kind: u8) -> (Upstream, Receiver<()>, Sender<()>) {
    let ((asks, asked), (go, going)) = (channel(), channel());
    let (asks, going) = (Mutex::new(asks), Mutex::new(going));
    let processor = processor(move |_, now, _| {
        if now == kind {
            let _ = asks.lock().unwrap().send(());
            let _ = going.lock().unwrap().recv();
        }
        vec![go_on(now)]
    });
    (processor, asked, go)
}

/// Waits until an attempt at the upstream has ended like this.
fn has_ended(weir: &Weir, outcome: &str) {
    let series = format!("weir_upstream_attempts_total{{upstream=\"up\",outcome=\"{outcome}\"}} 1");
    eventually("the attempt is over", || {
        let metrics = weir.admin_client().ask("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").text();
        metrics.contains(&series)
    });
}

/// It meant to stop the request, so `without: pass` does not let it through.
#[test]
fn an_answer_of_its_own_that_cannot_be_sent() {
    for status in [0, 99, 101, 199, 600, 1000] {
        for phase in [REQUEST_HEADERS, REQUEST_BODY, RESPONSE_HEADERS] {
            let processor = processor(move |_, kind, _| {
                vec![if kind == phase { immediate(status, "no") } else { go_on(kind) }]
            });
            for without in ["refuse", "pass"] {
                let upstream = Upstream::fixed(OK_BODY);
                let weir = start(&processor, &to(&upstream), &format!("without: {without}, {ALL}"));
                weir.client().ask(POST).expect_cause(EXT_PROC_UNAVAILABLE);
                assert_eq!((figure(&weir, "failed"), figure(&weir, "answered")), (1, 0), "{status} {phase}");
                assert_eq!(upstream.requests().len(), usize::from(phase == RESPONSE_HEADERS));
            }
        }
    }
}

#[test]
fn heads_that_are_far_too_long() {
    let processor = processor(|_, kind, _| {
        let long = "x".repeat(200_000);
        vec![match kind {
            REQUEST_HEADERS => common(kind, &[&bytes(2, set(&[("x-long", &long)]))]),
            _ => go_on(kind),
        }]
    });
    let upstream = Upstream::fixed(OK_BODY);
    let weir = start(&processor, &to(&upstream), "");
    weir.client().ask(POST).expect_cause(EXT_PROC_UNAVAILABLE);
}

/// A client that leaves ends the call, and the processor is not to blame. If it is late, it is.
#[test]
fn a_client_that_leaves() {
    let (asked, over) = <(Arc<AtomicUsize>, Arc<AtomicUsize>)>::default();
    let make = || {
        let (asked, over) = (Arc::clone(&asked), Arc::clone(&over));
        processor(move |_, kind, content| {
            let hangs = kind == REQUEST_HEADERS && super::fields(content).contains_key("x-hang");
            let counter = if kind == END { &over } else { &asked };
            counter.fetch_add(usize::from(hangs || kind == END), SeqCst);
            vec![if hangs { Act::Hang } else { go_on(kind) }]
        })
    };
    let (one, two) = (make(), make());
    let upstream = Upstream::fixed(OK_BODY);
    let weir = Weir::start(&format!(
        "listeners: {{ web: {{ address: 127.0.0.1:0, protocols: [http1, h2] }} }}\nworkers: 1\nadmin: {{ address: 127.0.0.1:0 }}\n\
         expose_causes: true\nupstreams:\n  processor: {{ endpoints: [{}, {}], protocol: h2c, health: {{ outlier: {{ errors: 1, eject: 1h }} }} }}\n  \
         up: {{ {} }}\nroutes:\n  all: {{ match: {{ path: \"/*\" }}, upstream: up, filters: [ {{ ext_proc: {{ upstream: processor, timeout: 20s }} }} ] }}\n  \
         soon: {{ match: {{ path: /soon }}, upstream: up, filters: [ {{ ext_proc: {{ upstream: processor, timeout: 50ms }} }} ] }}\n",
        one.address(),
        two.address(),
        to(&upstream)
    ));
    for n in 0..4 {
        let is_asked = || asked.load(SeqCst) > n;
        if n % 2 == 0 {
            let mut client = weir.client();
            client.send(POST.replace("X-A: 1", "X-Hang: 1"));
            eventually("it is asked", is_asked);
            client.reset();
        } else {
            let mut h2 = weir.h2();
            let stream = h2.request(
                &[
                    (":method", "GET"),
                    (":scheme", "http"),
                    (":authority", "weir.test"),
                    (":path", "/"),
                    ("x-hang", "1"),
                ],
                true,
            );
            eventually("it is asked", is_asked);
            h2.reset(stream, 8);
            h2.ping();
        }
        eventually("the call is over", || over.load(SeqCst) > n);
    }
    weir.client().ask(POST).expect_status(200);
    assert_eq!(figure(&weir, "failed"), 0);
    assert!(weir.logged("endpoint out of rotation").is_empty());
    let late = POST.replace("X-A: 1", "X-Hang: 1").replace("/a?b=1", "/soon");
    weir.client().ask(late).expect_cause(EXT_PROC_UNAVAILABLE);
    weir.wait_log("endpoint out of rotation");
}

/// An exchange asks the processor of the config that it began with, also after a reload that has none.
#[test]
fn a_reload_while_an_exchange_waits() {
    let (first, asked, go) = held_at(REQUEST_HEADERS);
    let second = processor(|_, kind, _| {
        vec![match kind {
            REQUEST_HEADERS => immediate(403, "not you"),
            _ => go_on(kind),
        }]
    });
    let upstream = Upstream::fixed(OK_BODY);
    let config = |more: &str, filters: &str| {
        format!(
            "listeners: {{ web: {{ address: 127.0.0.1:0 }} }}\nworkers: 1\nexpose_causes: true\nupstreams:\n  up: {{ {} }}\n{more}\
             routes: {{ all: {{ match: {{ path: \"/*\" }}, upstream: up, filters: [ {filters} ] }} }}\n",
            to(&upstream)
        )
    };
    let processors = format!(
        "  first: {{ endpoints: [{}], protocol: h2c }}\n  second: {{ endpoints: [{}], protocol: h2c }}\n",
        first.address(),
        second.address()
    );
    let filters = "{ ext_proc: { upstream: first, timeout: 20s } }, { ext_proc: { upstream: second, timeout: 20s, without: pass } }";
    let weir = Weir::start(&config(&processors, filters));
    let mut client = weir.client();
    client.send(POST);
    asked.recv().unwrap();
    weir.reload_with(&config("", "")).unwrap();
    go.send(()).unwrap();
    client.read_response().expect_status(403).expect_body("not you");
    assert_eq!(upstream.requests().len(), 0);
    weir.client().ask(POST).expect_status(200);
}

#[test]
fn a_drain_while_an_exchange_waits() {
    for kind in [REQUEST_HEADERS, RESPONSE_HEADERS] {
        let (processor, asked, go) = held_at(kind);
        let upstream = Upstream::fixed(OK_BODY);
        let mut weir = start(&processor, &to(&upstream), ALL);
        let mut client = weir.client();
        client.send(POST);
        asked.recv().unwrap();
        weir.signal(libc::SIGTERM);
        let address = weir.address("web");
        eventually("nobody new is let in", || !weir_testkit::Client::can_connect(&address));
        go.send(()).unwrap();
        client.read_response().expect_status(200).expect_body("ok");
        drop((asked, go));
        weir.wait_exit(Duration::from_secs(10)).expect_code(0);
    }
}

/// The upstream is gone, or has answered, while the processor still looks at a piece of the request.
#[test]
fn an_upstream_that_ends_first() {
    for (answer, expected) in [
        ("", 502),
        ("HTTP/1.1 413 Content Too Large\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno", 413),
    ] {
        let (processor, asked, go) = held_at(REQUEST_BODY);
        let upstream = Upstream::script(move |conn| {
            conn.read_head();
            if !answer.is_empty() {
                conn.send(answer);
            }
        });
        let weir = start(&processor, &to(&upstream), "request: { body: streamed }");
        let mut client = weir.client();
        client.send(POST);
        asked.recv().unwrap();
        has_ended(&weir, if answer.is_empty() { "reset" } else { "answered" });
        go.send(()).unwrap();
        client.read_response().expect_status(expected);
        drop((asked, go));
        assert_eq!(figure(&weir, "failed"), 0);
        assert!(weir.logged("panicked").is_empty());
    }
}

/// The upstream answers while the first question, about a piece of the request, waits: the second one has the same call.
#[test]
fn two_questions_open_one_call() {
    let (processor, asked, go) = held_at(REQUEST_BODY);
    let upstream = Upstream::script(|conn| {
        conn.read_head();
        conn.send(OK_BODY);
        while conn.next_body().is_some() {}
    });
    let weir = start(&processor, &to(&upstream), "request: { headers: skip, body: streamed }");
    let mut client = weir.client();
    client.send(POST);
    asked.recv().unwrap();
    has_ended(&weir, "answered");
    go.send(()).unwrap();
    client.read_response().expect_status(200).expect_body("ok");
    drop((asked, go));
    assert_eq!((figure(&weir, "failed"), processor.connections()), (0, 1));
    processor.verify();
}

#[test]
fn far_too_much() {
    // One message, many that nobody asked for, heads without end.
    let floods: [fn() -> Vec<Act>; 3] = [
        || vec![Act::Bytes([&[0][..], &100_000_000u32.to_be_bytes(), &vec![7; 1 << 20]].concat())],
        || (0..10_000).map(|_| go_on(RESPONSE_HEADERS)).collect(),
        || (0..1_000).map(|_| Act::Bytes(vec![0; 1 << 16])).collect(),
    ];
    for flood in floods {
        let processor =
            processor(move |_, kind, _| if kind == REQUEST_HEADERS { flood() } else { vec![go_on(kind)] });
        let upstream = Upstream::fixed(OK_BODY);
        let weir = start(&processor, &to(&upstream), ALL);
        weir.client().ask(POST).expect_cause(EXT_PROC_UNAVAILABLE);
        assert!(weir.rss_kib() < 100_000, "{}", weir.rss_kib());
    }
}

/// It does not read what it is sent, or has no room for another call.
#[test]
fn a_processor_without_room() {
    let served = |options: Options| {
        Upstream::script(move |conn| {
            let mut peer = H2::server(conn, &options);
            while let Some((stream, _)) = peer.next_head() {
                super::serve(&mut peer, stream, &|_, kind, _| vec![go_on(kind)]);
            }
        })
    };
    let upstream = Upstream::fixed(OK_BODY);
    let blind = served(Options::default().with(&[(4, 0)]));
    let weir = super::start_within("100ms", &blind, &to(&upstream), "");
    weir.client().ask(POST).expect_cause(EXT_PROC_UNAVAILABLE);
    let narrow = served(Options::default().with(&[(3, 1)]));
    let weir = start(&narrow, &to(&upstream), ALL);
    let mut clients: Vec<_> = (0..8).map(|_| weir.client()).collect();
    clients.iter_mut().for_each(|client| client.send(POST));
    for client in &mut clients {
        client.read_response().expect_status(200);
    }
}

/// It ends its connections now and then, as a service that is rolled out or limits their age. A call that met the end
/// is repeated within the budget of `retry`.
#[test]
fn a_processor_that_ends_its_connections() {
    for announces in [true, false] {
        let processor = Upstream::script(move |conn| {
            let mut peer = H2::server(conn, &Options::default());
            for at in 0..20 {
                let Some((stream, _)) = peer.next_head() else { return };
                super::serve(&mut peer, stream, &|_, kind, _| vec![go_on(kind)]);
                if at == 19 && announces {
                    peer.send(&weir_testkit::h2::Frame::go_away(stream, 0));
                }
            }
        });
        let upstream = Upstream::fixed(OK_BODY);
        let weir = start(&processor, &to(&upstream), STREAMED);
        let mut client = weir.client();
        (0..200).for_each(|_| drop(client.ask(POST).expect_status(200).text()));
        assert!(processor.connections() >= 10);
        processor.verify();
    }
}

/// Modes that are not supported, and modes for what the config leaves out.
#[test]
fn modes_beyond_the_supported() {
    for (mode, expected) in [(1, 200), (3, 200), (4, 503), (5, 503), (300, 503)] {
        let mode = bytes(9, [number(3, mode), number(4, mode)].concat());
        let processor = processor(move |_, kind, _| {
            vec![match (kind, go_on(kind)) {
                (REQUEST_HEADERS, Act::Answer(answer)) => Act::Answer([answer, mode.clone()].concat()),
                (_, act) => act,
            }]
        });
        let upstream = Upstream::fixed(OK_BODY);
        let weir = start(&processor, &to(&upstream), "mode_override: true, response: { headers: skip }");
        assert_eq!(weir.client().ask(POST).status, expected);
    }
}

/// A client that waits to be asked, and is refused or cut while its body streams.
#[test]
fn a_streamed_body_that_waits_to_be_asked() {
    let processor = processor(|_, kind, _| {
        vec![if kind == REQUEST_BODY { immediate(403, "not you") } else { go_on(kind) }]
    });
    let upstream = Upstream::script(|conn| {
        conn.read_head();
        conn.send("HTTP/1.1 100 Continue\r\n\r\n");
        while conn.next_body().is_some() {}
    });
    let weir = start(&processor, &to(&upstream), "request: { body: streamed }");
    let mut client = weir.client();
    client.send(POST.replace("X-A", "Expect: 100-continue\r\nX-A").replace("hello", ""));
    client.expect("HTTP/1.1 100 Continue\r\n\r\n");
    client.send("hello");
    client.read_response().expect_status(403).expect_body("not you");
}

/// Trailers come last: those of a request are refused with it, those of an answer that has begun cut it.
#[test]
fn a_processor_that_fails_at_trailers() {
    let fails: [fn(u8) -> Vec<Act>; 4] = [
        |_| vec![Act::Reset],
        |_| vec![Act::End("13")],
        |_| vec![go_on(RESPONSE_HEADERS)],
        |kind| vec![common(kind, &[&bytes(1, set(&[("x-sum", "a\r\nb")]))])],
    ];
    for (phase, fail) in
        [REQUEST_TRAILERS, RESPONSE_TRAILERS].into_iter().flat_map(|at| fails.map(|f| (at, f)))
    {
        let processor =
            processor(move |_, kind, _| if kind == phase { fail(kind) } else { vec![go_on(kind)] });
        let origin = H2Origin::new(Options::default(), |h2, stream, request| {
            let sum =
                request.trailers.iter().map(|(name, value)| format!("{name}={value}")).collect::<String>();
            h2.headers(stream, &[(":status", "200"), ("x-saw", &sum)], false);
            h2.data(stream, request.body, false);
            h2.headers(stream, &[("x-sum", "2")], true);
        });
        for without in ["refuse", "pass"] {
            let up = format!("endpoints: [{}], protocol: h2c", origin.address());
            let weir = start(&processor, &up, &format!("without: {without}, {STREAMED}"));
            let mut h2 = weir.h2();
            let stream = h2.post("/");
            h2.data(stream, "hello", false);
            h2.headers(stream, &[("x-sum", "1")], true);
            let message = h2.message(stream);
            match (without, phase) {
                ("pass", _) => {
                    message.expect_status(200).expect_header("x-saw", "x-sum=1").expect_body("hello");
                    assert_eq!(message.trailers, [("x-sum".into(), "2".into())]);
                }
                (_, REQUEST_TRAILERS) => drop(message.expect_cause(EXT_PROC_UNAVAILABLE).text()),
                _ => assert!(matches!(message.end, Some(End::Reset(_))), "{:?}", message.end),
            }
            assert_eq!(figure(&weir, "failed"), 1);
        }
    }
}
