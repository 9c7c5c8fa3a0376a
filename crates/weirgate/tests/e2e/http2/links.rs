//! Connections to HTTP/2 upstreams: few, shared, and the fate of requests when one of them ends.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use weir_testkit::h2::{End, Frame, H2, H2Origin, Options, code, setting};
use weir_testkit::{Client, Conn, Upstream, Weir, eventually};

use super::{H2C, ask, weir, weir_with};
use crate::cause::{PENDING_TIMEOUT, UPSTREAM_CLOSED, UPSTREAM_RESET};
use crate::support::{GET, OK_BODY};

fn server(upstream: &Upstream, settings: &[(u16, u32)]) -> H2<Conn> {
    H2::server(upstream.accept(), &Options::default().with(settings))
}

#[test]
fn many_clients_share_one_connection() {
    let origin = H2Origin::fixed("ok");
    let weir = weir(origin.address(), H2C);
    for _ in 0..20 {
        weir.client().ask(GET).expect_body("ok");
        let mut client = weir.h2();
        let stream = client.get("/");
        client.message(stream).expect_body("ok");
    }
    assert_eq!((origin.connections(), origin.requests()), (1, 40));
}

#[test]
fn a_burst_on_a_cold_pool_makes_few_connections() {
    let origin = H2Origin::fixed("ok");
    let weir = weir(origin.address(), H2C);
    let barrier = Arc::new(Barrier::new(4));
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let (barrier, address) = (barrier.clone(), weir.address("web"));
            std::thread::spawn(move || {
                let mut client = H2::client(Client::connect(address));
                client.ping();
                barrier.wait();
                let streams: Vec<u32> = (0..100).map(|n| client.get(&format!("/{n}"))).collect();
                for stream in streams {
                    client.message(stream).expect_status(200).expect_body("ok");
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(origin.requests(), 400);
    // Our own limit is 256 concurrent streams per connection: 205 are 80 % of it.
    assert!(origin.connections() <= 3, "{} connections", origin.connections());
}

#[test]
fn another_connection_above_80_percent() {
    let upstream = Upstream::listen();
    let weir = weir(upstream.address(), H2C);
    let mut client = weir.h2();
    let settings = [(setting::STREAMS, 10)];
    client.get("/0");
    let mut first = server(&upstream, &settings);
    first.accept();
    for n in 1..8 {
        client.get(&format!("/{n}"));
        first.accept();
    }
    upstream.expect_no_connection();
    // The ninth finds eight of ten: it need not wait, but another connection is opened for later requests.
    client.get("/8");
    first.accept();
    let mut second = server(&upstream, &settings);
    second.ping();
    let tenth = client.get("/9");
    let (seen, request) = second.accept_whole();
    request.expect_header(":path", "/9");
    second.respond(seen, &[(":status", "200")], "ok");
    client.message(tenth).expect_body("ok");
    assert_eq!(upstream.connections(), 2);
}

#[test]
fn a_peer_that_takes_one_at_a_time() {
    // The upstream's stream limit and its connection limit apply: the other requests wait their turn.
    let upstream = Upstream::listen();
    let weir = weir(upstream.address(), "protocol: h2c, limits: { connections: 1 }");
    let mut client = weir.h2();
    let streams = [client.get("/0"), client.get("/1"), client.get("/2")];
    let mut peer = server(&upstream, &[(setting::STREAMS, 1)]);
    for n in 0..3 {
        let (seen, request) = peer.accept_whole();
        request.expect_header(":path", &format!("/{n}"));
        peer.ping(); // nothing else has arrived meanwhile
        peer.respond(seen, &[(":status", "200")], format!("{n}"));
    }
    for (n, stream) in streams.iter().enumerate() {
        client.message(*stream).expect_body(n.to_string());
    }
    upstream.expect_no_connection();
}

#[test]
fn who_waits_too_long_for_a_stream_is_told() {
    let upstream = Upstream::listen();
    let weir =
        weir(upstream.address(), "protocol: h2c, limits: { connections: 1 }, timeouts: { connect: 200ms }");
    let mut client = weir.h2();
    let first = client.get("/first");
    let mut peer = server(&upstream, &[(setting::STREAMS, 1)]);
    let (seen, _) = peer.accept_whole();
    let second = client.get("/second");
    client.message(second).expect_cause(PENDING_TIMEOUT);
    peer.respond(seen, &[(":status", "200")], "ok");
    client.message(first).expect_body("ok");
}

#[test]
fn one_that_is_full_hides_none_with_room() {
    // A few requests are many if the upstream allows few, or none any more.
    for limit in [0, 1] {
        let upstream = Upstream::listen();
        let weir = weir(upstream.address(), H2C);
        let mut client = weir.h2();
        let first_asked = client.get("/0");
        let mut first = server(&upstream, &[(setting::STREAMS, 1)]);
        let (seen, _) = first.accept_whole();
        let others = [client.get("/1"), client.get("/2")];
        let mut second = server(&upstream, &[(setting::STREAMS, 10)]);
        let held = [second.accept_whole().0, second.accept_whole().0];
        if limit == 0 {
            first.send(&Frame::settings(&[(setting::STREAMS, 0)]));
            first.respond(seen, &[(":status", "200")], "ok");
            client.message(first_asked).expect_body("ok");
            first.ping();
        }
        let more = client.get("/3");
        let (again, request) = second.accept_whole();
        request.expect_header(":path", "/3");
        second.respond(again, &[(":status", "200")], "ok");
        client.message(more).expect_body("ok");
        // Their order is unspecified.
        held.into_iter().for_each(|seen| second.respond(seen, &[(":status", "200")], "ok"));
        for asked in others {
            client.message(asked).expect_body("ok");
        }
        assert_eq!(upstream.connections(), 2);
    }
}

#[test]
fn one_that_says_goodbye_at_once_is_not_dialled_for_ever() {
    for at_once in [true, false] {
        let upstream = Upstream::script(move |conn| {
            conn.expect("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
            let (hello, goodbye) = (Frame::settings(&[]).bytes(), Frame::go_away(0, code::NONE).bytes());
            if at_once {
                conn.send([hello, goodbye].concat());
            } else {
                conn.send(hello);
                conn.send(goodbye);
            }
            conn.read_to_close();
        });
        let weir = weir(upstream.address(), H2C);
        let mut client = weir.h2();
        let stream = client.get("/");
        let answer = client.message(stream);
        let cause = answer.header("x-weir-cause");
        assert!([UPSTREAM_CLOSED, UPSTREAM_RESET].iter().any(|named| cause == Some(named.1)), "{answer:?}");
        assert!(upstream.connections() <= 3, "{} connections", upstream.connections());
    }
}

// === Sent again ===

#[test]
fn a_refused_stream_is_sent_again() {
    for method in ["GET", "POST"] {
        let upstream = Upstream::listen();
        let weir = weir(upstream.address(), H2C);
        let mut client = weir.h2();
        let stream = client.request(&ask(method, "/", &[]), true);
        let mut peer = server(&upstream, &[]);
        let (seen, _) = peer.accept_whole();
        peer.reset(seen, code::REFUSED);
        // The same connection or a new one would both be correct.
        let answered = Arc::new(AtomicUsize::new(0));
        loop {
            if let Some(conn) = upstream.try_accept() {
                peer = H2::server(conn, &Options::default());
            }
            if let Some((again, _)) = peer.try_accept_whole(Duration::from_millis(50)) {
                peer.respond(again, &[(":status", "200")], "ok");
                answered.fetch_add(1, Ordering::Relaxed);
                break;
            }
        }
        client.message(stream).expect_status(200).expect_body("ok");
        assert_eq!(answered.load(Ordering::Relaxed), 1, "{method}");
    }
}

#[test]
fn a_post_whose_body_was_not_taken_is_sent_again() {
    let upstream = Upstream::listen();
    let weir = weir(upstream.address(), H2C);
    let mut client = weir.h2();
    let stream = client.post("/");
    let mut peer = server(&upstream, &[]);
    let (seen, _) = peer.accept();
    peer.reset(seen, code::REFUSED);
    let (again, _) = peer.accept();
    client.data(stream, "body", true);
    peer.message(again).expect_body("body");
    peer.respond(again, &[(":status", "200")], "ok");
    client.message(stream).expect_body("ok");
}

#[test]
fn a_post_that_came_whole_is_sent_again_after_refused_stream() {
    let upstream = Upstream::listen();
    let weir = weir(upstream.address(), H2C);
    let mut client = weir.client();
    // Over HTTP/1.1 in one piece: the body arrives with the head.
    client.send("POST / HTTP/1.1\r\nHost: weir.test\r\nContent-Length: 4\r\n\r\nbody");
    let mut peer = server(&upstream, &[]);
    let (seen, request) = peer.accept_whole();
    request.expect_body("body");
    peer.reset(seen, code::REFUSED);
    let (again, request) = peer.accept_whole();
    request.expect_body("body");
    peer.respond(again, &[(":status", "200")], "ok");
    client.read_response().expect_body("ok");
}

#[test]
fn what_a_goaway_leaves_out_is_sent_again() {
    let upstream = Upstream::listen();
    let weir = weir(upstream.address(), H2C);
    let mut client = weir.h2();
    let kept = client.get("/kept");
    let mut old = server(&upstream, &[]);
    let (seen, _) = old.accept_whole();
    let (post, get) = (client.request(&ask("POST", "/post", &[]), true), client.get("/get"));
    old.accept_whole();
    old.accept_whole();
    old.send(&Frame::go_away(seen, code::NONE));
    let mut new = server(&upstream, &[]);
    for _ in 0..2 {
        let (again, request) = new.accept_whole();
        assert!(["/post", "/get"].contains(&request.header(":path").unwrap()));
        new.respond(again, &[(":status", "200")], "new");
    }
    client.message(post).expect_body("new");
    client.message(get).expect_body("new");
    // It finishes the streams that it accepted, and gets no others.
    let next = client.get("/next");
    let (again, _) = new.accept_whole();
    new.respond(again, &[(":status", "200")], "new");
    client.message(next).expect_body("new");
    old.respond(seen, &[(":status", "200")], "old");
    client.message(kept).expect_body("old");
    old.expect_end();
}

#[test]
fn what_a_goaway_took_is_not_sent_again() {
    let upstream = Upstream::listen();
    let weir = weir(upstream.address(), H2C);
    let mut client = weir.h2();
    let stream = client.request(&ask("POST", "/", &[]), true);
    let mut peer = server(&upstream, &[]);
    let (seen, _) = peer.accept_whole();
    peer.send(&Frame::go_away(seen, code::NONE));
    peer.ping();
    drop(peer);
    let answer = client.message(stream);
    assert!(
        [UPSTREAM_CLOSED, UPSTREAM_RESET].iter().any(|cause| answer.header("x-weir-cause") == Some(cause.1)),
        "{answer:?}"
    );
    upstream.expect_no_connection();
}

#[test]
fn a_goaway_in_two_steps_loses_nothing() {
    let upstream = Upstream::listen();
    let weir = weir(upstream.address(), H2C);
    let mut client = weir.h2();
    let first = client.get("/first");
    let mut old = server(&upstream, &[]);
    let (seen, _) = old.accept_whole();
    old.send(&Frame::go_away(0x7fff_ffff, code::NONE));
    old.ping();
    let second = client.get("/second");
    let mut new = server(&upstream, &[]);
    let (again, request) = new.accept_whole();
    request.expect_header(":path", "/second");
    new.respond(again, &[(":status", "200")], "new");
    client.message(second).expect_body("new");
    old.send(&Frame::go_away(seen, code::NONE));
    old.respond(seen, &[(":status", "200")], "old");
    client.message(first).expect_body("old");
}

#[test]
fn a_reset_after_the_head_is_not_sent_again() {
    let upstream = Upstream::listen();
    let weir = weir(upstream.address(), H2C);
    let mut client = weir.h2();
    let stream = client.get("/");
    let mut peer = server(&upstream, &[]);
    let (seen, _) = peer.accept_whole();
    peer.headers(seen, &[(":status", "200")], false);
    peer.reset(seen, code::REFUSED);
    assert!(matches!(client.message(stream).end, Some(End::Reset(_))));
    // Nor after another code.
    let stream = client.get("/");
    let (seen, _) = peer.accept_whole();
    peer.reset(seen, code::INTERNAL);
    client.message(stream).expect_cause(UPSTREAM_RESET);
    peer.ping();
    assert!(peer.try_accept_whole(Duration::ZERO).is_none());
    upstream.expect_no_connection();
}

#[test]
fn an_upstream_that_refuses_all_is_not_asked_for_ever() {
    let origin = H2Origin::new(Options::default(), |peer, stream, _| peer.reset(stream, code::REFUSED));
    let weir = weir(origin.address(), H2C);
    let mut client = weir.h2();
    let stream = client.get("/");
    client.message(stream).expect_cause(UPSTREAM_RESET);
    assert_eq!(origin.requests(), 3);
}

/// Refuses every stream, or reports each as not processed.
fn unwilling(leaves: bool) -> H2Origin {
    H2Origin::new(Options::default(), move |peer, stream, _| match leaves {
        true => peer.send(&Frame::go_away(0, code::NONE)),
        false => peer.reset(stream, code::REFUSED),
    })
}

#[test]
fn a_policy_bounds_what_is_refused_too() {
    for (leaves, attempts) in [(false, 1), (false, 2), (true, 2), (false, 4), (true, 4)] {
        let origin = unwilling(leaves);
        let settings = format!("protocol: h2c, retry: {{ attempts: {attempts}, backoff: 1ms }}");
        let weir = weir(origin.address(), &settings);
        let answer = weir.client().ask(GET);
        assert_eq!(answer.status, 502, "{settings}: {answer:?}");
        assert_eq!(origin.requests(), attempts, "{settings}, leaves: {leaves}");
    }
}

#[test]
fn what_refuses_all_sees_a_fifth_more() {
    for leaves in [false, true] {
        let origin = unwilling(leaves);
        let weir = weir(origin.address(), H2C);
        let (mut client, began) = (weir.client(), Instant::now());
        for _ in 0..100 {
            client.ask(GET).expect_status(502);
        }
        // A fifth of the requests of each second, or three if that is more.
        let (seen, most) = (origin.requests(), 100 + 20 + 3 * began.elapsed().as_secs() as usize);
        assert!((110..=most).contains(&seen), "{seen} of {most}, leaves: {leaves}");
    }
}

#[test]
fn a_question_of_a_filter_ends_where_its_upstream_refuses_all() {
    for leaves in [false, true] {
        let (origin, behind) = (unwilling(leaves), Upstream::named("behind"));
        let weir = Weir::start(&format!(
            "listeners: {{ web: {{ address: 127.0.0.1:0 }} }}\n\
             upstreams:\n  up: {{ endpoints: [{}] }}\n  \
             guard: {{ endpoints: [{}], protocol: h2c, retry: {{ attempts: 3, backoff: 1ms }} }}\n\
             routes: {{ all: {{ match: {{ path: /* }}, filters: [ {{ forward_auth: {{ upstream: guard }} }} ], upstream: up }} }}\n",
            behind.address(),
            origin.address(),
        ));
        weir.client().ask(GET).expect_status(503);
        assert_eq!(origin.requests(), 3, "leaves: {leaves}");
        assert!(behind.requests().is_empty());
    }
}

#[test]
fn a_connection_that_dies_takes_its_requests_along() {
    let upstream = Upstream::listen();
    let weir = weir(upstream.address(), H2C);
    let mut client = weir.h2();
    let streams: Vec<u32> =
        (0..5).map(|n| client.request(&ask("POST", &format!("/{n}"), &[]), true)).collect();
    let mut peer = server(&upstream, &[]);
    (0..5).for_each(|_| drop(peer.accept_whole()));
    drop(peer);
    for stream in streams {
        let answer = client.message(stream);
        assert_eq!(answer.status(), 502, "{answer:?}");
    }
    upstream.expect_no_connection();
    // The next request gets a new one.
    let stream = client.get("/");
    let mut peer = server(&upstream, &[]);
    let (seen, _) = peer.accept_whole();
    peer.respond(seen, &[(":status", "200")], "ok");
    client.message(stream).expect_body("ok");
}

#[test]
fn a_get_that_lost_the_race_is_sent_again() {
    let upstream = Upstream::listen();
    let weir = weir(upstream.address(), H2C);
    let mut client = weir.h2();
    let stream = client.get("/");
    let mut peer = server(&upstream, &[]);
    let (seen, _) = peer.accept_whole();
    peer.respond(seen, &[(":status", "200")], "ok");
    client.message(stream).expect_body("ok");
    let stream = client.get("/again");
    peer.accept_whole();
    drop(peer);
    let mut peer = server(&upstream, &[]);
    let (seen, request) = peer.accept_whole();
    request.expect_header(":path", "/again");
    peer.respond(seen, &[(":status", "200")], "ok");
    client.message(stream).expect_body("ok");
}

// === Age and lifetime ===

#[test]
fn an_old_connection_takes_nothing_new() {
    let origin = H2Origin::fixed("ok");
    let weir = weir(origin.address(), "protocol: h2c, max_age: 50ms");
    let mut client = weir.client();
    eventually("an old connection is replaced", || {
        client.ask(GET).expect_body("ok");
        origin.connections() > 1
    });
}

#[test]
fn a_ping_of_the_upstream_is_answered() {
    let upstream = Upstream::listen();
    let weir = weir(upstream.address(), H2C);
    let mut client = weir.h2();
    client.get("/");
    let mut peer = server(&upstream, &[]);
    peer.accept_whole();
    peer.ping();
    drop(weir);
}

// === 500 concurrent streams ===

/// One stream stalls; all others are answered while it does. Three times over, because a window that is not given back
/// runs out late.
#[test]
fn five_hundred_streams_and_one_that_stalls() {
    const STREAMS: usize = 500;
    let body = vec![b'x'; 20_000];
    let origin = H2Origin::answering(move |request| {
        if request.header(":path") == Some("/stall") { vec![b'x'; 2_000_000] } else { body.clone() }
    });
    let weir = weir_with(origin.address(), H2C, "limits: { h2: { streams: 600 } }");
    let mut client = H2::client_with(
        weir.client(),
        &Options { settings: vec![(setting::WINDOW, 0)], ..Options::default() },
    );
    let stalled = client.get("/stall");
    client.wait(stalled, "its head", |message| message.status() == 200);
    for _ in 0..3 {
        let streams: Vec<u32> = (0..STREAMS)
            .map(|n| {
                let stream = client.get(&format!("/{n}"));
                client.send(&Frame::window(stream, 1_000_000));
                stream
            })
            .collect();
        for stream in streams {
            let answer = client.message(stream);
            answer.expect_status(200);
            assert_eq!(answer.body.len(), 20_000);
        }
        assert!(client.so_far(stalled).body.is_empty(), "the stalled one waits for its window");
    }
    client.send(&Frame::window(stalled, 3_000_000));
    assert_eq!(client.message(stalled).body.len(), 2_000_000);
    assert_eq!(origin.requests(), 3 * STREAMS + 1);
    origin.verify();
}

// === Protocols ===

#[test]
fn an_upstream_that_speaks_http1() {
    let upstream = Upstream::fixed(OK_BODY);
    let weir = weir(upstream.address(), H2C);
    let mut client = weir.h2();
    let stream = client.get("/");
    client.message(stream).expect_cause((502, "upstream_protocol"));
    // A server that waits for a request of its own protocol closes, or sends something in it.
    let upstream = Upstream::script(|conn| {
        conn.read_until("PRI * HTTP/2.0\r\n\r\n");
        let _ = conn.try_send("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
    });
    let weir = super::weir(upstream.address(), H2C);
    weir.client().ask(GET).expect_cause((502, "upstream_protocol"));
    let closing = Upstream::script(|conn| drop(conn.read_until("PRI")));
    let weir: Weir = super::weir(closing.address(), H2C);
    weir.client().ask(GET).expect_cause((502, "upstream_protocol"));
}
