//! HTTP/2 attackers: cut by GOAWAY if they can be told from honest clients, otherwise held in bounded memory. Others
//! are served meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use weir_testkit::h2::{Frame, H2, H2Origin, Kind, Options, code, flag, setting};
use weir_testkit::{Client, Upstream, Weir, alone, table};

use super::{H2C, ask, counted, get, weir_with};

/// Small enough to reach with a few frames.
const SMALL: &str = "limits: { header_bytes: 1KiB, h2: { continuations: 8, empty_data: 20, errors: 20, pings: 20, priorities: 20, \
                     resets: 20, settings: 20, window_updates: 20 } }";

/// How soon an attacker must be cut.
const CUT: Duration = Duration::from_millis(500);

/// An honest client that sends requests until told to stop.
struct Honest {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<usize>,
}

impl Honest {
    fn begin(weir: &Weir) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, address) = (stop.clone(), weir.address("web"));
        let thread = thread::spawn(move || {
            let (mut framed, mut plain) = (H2::client(Client::connect(&address)), Client::connect(&address));
            let mut served = 0;
            loop {
                let last = stopped.load(Ordering::Relaxed);
                let started = Instant::now();
                let stream = framed.get("/own");
                framed.message(stream).expect_status(200);
                plain.get("/own").expect_status(200);
                // Not less: other tests may keep the machine busy.
                assert!(
                    started.elapsed() < Duration::from_secs(3),
                    "somebody honest waited for {:?}",
                    started.elapsed()
                );
                served += 1;
                if last {
                    return served;
                }
            }
        });
        Self { stop, thread }
    }

    /// Every request was answered, and in time.
    #[track_caller]
    fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
        assert!(self.thread.join().unwrap() > 0);
    }
}

/// A gateway with a separate route for honest clients, and an upstream for the others.
#[track_caller]
fn target(endpoint: std::net::SocketAddr, settings: &str, limits: &str) -> Weir {
    Weir::start(&format!(
        "{}\nupstreams: {{ up: {{ endpoints: [{endpoint}]{settings} }} }}\n\
         routes: {{ all: {{ match: {{ path: \"/*\" }}, upstream: up }}, \
         own: {{ match: {{ path: /own }}, respond: {{ status: 200, body: ok }} }} }}\n{limits}\n",
        super::BOTH
    ))
}

/// Sends everything, and expects the matching GOAWAY.
#[track_caller]
fn expect_cut(attacker: &mut H2<Client>, attack: &[u8]) {
    let started = Instant::now();
    let _ = attacker.wire().try_send(attack);
    assert_eq!(attacker.go_away(0).1, code::CALM);
    assert!(started.elapsed() < CUT, "cut after {:?}", started.elapsed());
    attacker.expect_end();
}

type Attack = fn(&mut H2<Client>) -> Vec<u8>;

/// The same frame many times.
fn times(frame: &Frame) -> Vec<u8> {
    frame.bytes().repeat(40)
}

#[test]
fn each_kind_has_its_limit_and_its_cause() {
    let rows: &[(&str, &str, Attack)] = &[
        ("SETTINGS", "h2_settings_flood", |_| times(&Frame::settings(&[]))),
        ("SETTINGS with values", "h2_settings_flood", |_| {
            times(&Frame::settings(&[(setting::WINDOW, 70_000)]))
        }),
        ("PING", "h2_ping_flood", |_| times(&Frame::ping([1; 8]))),
        ("PRIORITY", "h2_priority_flood", |_| times(&Frame::new(Kind::Priority, 0, 1, [0, 0, 0, 0, 16]))),
        ("PRIORITY_UPDATE", "h2_priority_flood", |_| {
            times(&Frame::new(Kind::Other(16), 0, 0, *b"\0\0\0\x01u=1"))
        }),
        ("unknown frames", "h2_priority_flood", |_| times(&Frame::new(Kind::Other(0x2a), 0, 0, [0; 100]))),
        ("WINDOW_UPDATE", "h2_window_flood", |_| times(&Frame::window(0, 1))),
        ("empty DATA", "h2_data_flood", |attacker| {
            let stream = attacker.post("/");
            times(&Frame::data(stream, "", false))
        }),
        ("padded DATA without data", "h2_data_flood", |attacker| {
            let stream = attacker.post("/");
            times(&Frame::new(Kind::Data, flag::PADDED, stream, [&[200][..], &[0; 200]].concat()))
        }),
        ("CONTINUATION", "h2_continuation_flood", |attacker| {
            let stream = attacker.next_stream();
            [
                Frame::new(Kind::Headers, flag::END_STREAM, stream, [0x82]).bytes(),
                times(&Frame::new(Kind::Continuation, 0, stream, [0x0f])),
            ]
            .concat()
        }),
        ("empty CONTINUATION", "h2_continuation_flood", |attacker| {
            let stream = attacker.next_stream();
            [
                Frame::new(Kind::Headers, 0, stream, [0x82]).bytes(),
                times(&Frame::new(Kind::Continuation, 0, stream, [])),
            ]
            .concat()
        }),
        ("rapid reset", "h2_reset_flood", |attacker| {
            many(attacker, |stream| {
                vec![Frame::headers(stream, &get(&[]), true), Frame::reset(stream, code::CANCEL)]
            })
        }),
        ("resets of requests with bodies", "h2_reset_flood", |attacker| {
            many(attacker, |stream| {
                vec![
                    Frame::headers(stream, &ask("POST", "/", &[]), false),
                    Frame::reset(stream, code::CANCEL),
                ]
            })
        }),
        // The following frames make us reset streams (CVE-2025-8671).
        ("window overflow", "h2_error_flood", |attacker| {
            many(attacker, |stream| {
                vec![Frame::headers(stream, &get(&[]), true), Frame::window(stream, 0x7fff_ffff)]
            })
        }),
        ("a length that lies", "h2_error_flood", |attacker| {
            many(attacker, |stream| {
                let fields = ask("POST", "/", &[("content-length", "1")]);
                vec![Frame::headers(stream, &fields, false), Frame::data(stream, "too long", true)]
            })
        }),
        ("heads that are too large", "h2_error_flood", |attacker| {
            let large = "x".repeat(1500);
            many(attacker, |stream| vec![Frame::headers(stream, &get(&[("x-large", &large)]), true)])
        }),
        ("malformed heads", "h2_error_flood", |attacker| {
            many(attacker, |stream| vec![Frame::headers(stream, &get(&[("connection", "close")]), true)])
        }),
    ];
    let _alone = alone();
    let upstream = Upstream::listen();
    table(
        rows,
        |(name, ..)| *name,
        |(_, cause, attack)| {
            let weir = target(upstream.address(), "", SMALL);
            let honest = Honest::begin(&weir);
            let options = Options { window: 0, ..Options::default() };
            let mut attacker = H2::client_with(weir.client(), &options);
            attacker.ping();
            let attack = attack(&mut attacker);
            expect_cut(&mut attacker, &attack);
            counted(&weir, cause);
            honest.end();
        },
    );
}

/// Each SETTINGS requires an answer, and this upstream reads none.
#[test]
fn an_upstream_that_floods_is_cut() {
    let has_flooded = AtomicBool::new(false);
    let origin = H2Origin::new(Options::default(), move |peer, stream, _| {
        if has_flooded.swap(true, Ordering::Relaxed) {
            return peer.respond(stream, &[(":status", "200")], "ok");
        }
        let frames = Frame::settings(&[]).bytes().repeat(1_000);
        while peer.wire().try_send(&frames).is_ok() {}
    });
    let weir = weir_with(origin.address(), H2C, "");
    weir.client().get("/").expect_status(502);
    weir.client().get("/").expect_status(200).expect_body("ok");
    assert_eq!(origin.connections(), 2);
}

/// Frames for 60 streams.
fn many(attacker: &mut H2<Client>, frames: impl Fn(u32) -> Vec<Frame>) -> Vec<u8> {
    (0..60).flat_map(|_| frames(attacker.next_stream())).flat_map(|frame| frame.bytes()).collect()
}

/// Protocol violations that end the connection immediately, each of a different kind.
#[test]
fn what_breaks_the_protocol_is_cut() {
    let rows: &[(&str, Attack)] = &[
        ("DATA on stream 0", |_| Frame::data(0, "x", false).bytes()),
        ("DATA on an idle stream", |_| Frame::data(99, "x", false).bytes()),
        ("HEADERS on an even stream", |_| Frame::headers(2, &get(&[]), true).bytes()),
        ("a window of zero on the connection", |_| Frame::window(0, 0).bytes()),
        ("too large a window on the connection", |_| times(&Frame::window(0, 0x7fff_ffff))),
        ("SETTINGS of five bytes", |_| Frame::new(Kind::Settings, 0, 0, [0; 5]).bytes()),
        ("a short PING", |_| Frame::new(Kind::Ping, 0, 0, [0; 7]).bytes()),
        ("CONTINUATION alone", |_| Frame::new(Kind::Continuation, flag::END_HEADERS, 1, [0x82]).bytes()),
        ("PUSH_PROMISE", |_| Frame::new(Kind::PushPromise, flag::END_HEADERS, 1, [0, 0, 0, 2, 0x82]).bytes()),
        ("a frame larger than allowed", |_| Frame::data(1, [0; 20_000], false).bytes()),
        ("not HPACK", |_| Frame::new(Kind::Headers, 5, 1, [0xff; 20]).bytes()),
    ];
    let weir = target("127.0.0.1:9".parse().unwrap(), "", "");
    let honest = Honest::begin(&weir);
    table(
        rows,
        |(name, _)| *name,
        |(_, attack)| {
            let mut attacker = weir.h2();
            attacker.ping();
            let attack = attack(&mut attacker);
            let _ = attacker.wire().try_send(attack);
            assert!(attacker.go_away(0).1 != code::NONE);
            attacker.expect_end();
        },
    );
    counted(&weir, "h2_protocol");
    honest.end();
}

#[test]
fn rapid_reset_at_full_speed() {
    full_speed("h2_reset_flood", |stream| {
        [Frame::headers(stream, &get(&[]), true).bytes(), Frame::reset(stream, code::CANCEL).bytes()].concat()
    });
}

#[test]
fn resets_that_we_are_made_to_send_at_full_speed() {
    full_speed("h2_error_flood", |stream| {
        [Frame::headers(stream, &get(&[]), true).bytes(), Frame::window(stream, 0x7fff_ffff).bytes()].concat()
    });
}

#[test]
fn pings_at_full_speed() {
    full_speed("h2_ping_flood", |_| Frame::ping([7; 8]).bytes().repeat(10));
}

/// With the default limits, and a client that writes as fast as it can.
#[track_caller]
fn full_speed(cause: &str, frames: impl Fn(u32) -> Vec<u8>) {
    let _alone = alone();
    let upstream = Upstream::listen();
    let weir = target(upstream.address(), ", protocol: h2c", "");
    let honest = Honest::begin(&weir);
    let before = weir.rss_kib();
    let mut attacker = weir.h2();
    let mut writer = attacker.writer();
    let batches: Vec<Vec<u8>> = (0..1000u32)
        .map(|batch| (0..100).flat_map(|n| frames(1 + 2 * (batch * 100 + n))).collect())
        .collect();
    let started = Instant::now();
    let writing = thread::spawn(move || batches.into_iter().all(|batch| writer.send(batch).is_ok()));
    assert_eq!(attacker.go_away(0).1, code::CALM);
    assert!(started.elapsed() < CUT, "cut after {:?}", started.elapsed());
    attacker.expect_end();
    drop(writing); // how much it could send does not matter
    counted(&weir, cause);
    honest.end();
    let grown = weir.rss_kib().saturating_sub(before);
    assert!(grown < 32 * 1024, "{grown} KiB more");
}

#[test]
fn a_bomb_of_fields() {
    // A field of 4 KiB enters the table once; each further use takes one byte (CVE-2016-6581).
    let upstream = Upstream::listen();
    let weir = target(upstream.address(), "", "");
    let honest = Honest::begin(&weir);
    let before = weir.rss_kib();
    let mut attackers: Vec<_> = (0..10).map(|_| weir.h2()).collect();
    for attacker in &mut attackers {
        for _ in 0..20 {
            let stream = attacker.next_stream();
            let mut block = [
                &[0x82, 0x86, 0x84, 0x41, 0x01, b'h', 0x40, 0x01, b'a', 0x7f, 0xa1, 0x1e][..],
                &[b'x'; 4000],
            ]
            .concat();
            block.resize(16_000, 0xbe);
            let head = Frame::new(Kind::Headers, flag::END_HEADERS | flag::END_STREAM, stream, block);
            if !attacker.try_send(&head) {
                break;
            }
        }
    }
    honest.end();
    let grown = weir.rss_kib().saturating_sub(before);
    assert!(grown < 32 * 1024, "{grown} KiB more");
    upstream.expect_no_connection();
}

/// Heads that repeat a table entry many times, from clients that read no answers: one byte becomes 3,500.
#[test]
fn heads_that_are_held() {
    // 15 of them exceed the head limit; 8 fit, and reach an upstream.
    for fields in [15, 8] {
        let upstream = Upstream::listen();
        let weir = target(upstream.address(), ", limits: { connections: 1 }", "");
        let honest = Honest::begin(&weir);
        let before = weir.rss_kib();
        let options = Options { settings: vec![(setting::WINDOW, 0)], ..Options::default() };
        let mut attackers: Vec<_> = (0..25).map(|_| H2::client_with(weir.client(), &options)).collect();
        let mut most = 0;
        for attacker in &mut attackers {
            let mut attack = Vec::new();
            for n in 0..127 {
                let mut block = vec![0x82, 0x86, 0x84, 0x01, 0x01, b'h'];
                if n == 0 {
                    block.extend([0x40, 0x01, b'a', 0x7f, 0xad, 0x1a]);
                    block.extend([b'x'; 3500]);
                }
                block.extend([0xbe].repeat(fields - usize::from(n == 0)));
                let flags = flag::END_HEADERS | flag::END_STREAM;
                attack.extend(Frame::new(Kind::Headers, flags, attacker.next_stream(), block).bytes());
            }
            attacker.wire().send(attack);
            attacker.ping();
            most = most.max(weir.rss_kib());
        }
        honest.end();
        let grown = most.max(weir.rss_kib()).saturating_sub(before);
        // A quarter of what a hundred of them may cost.
        assert!(grown < 16 * 1024, "{grown} KiB more with heads of {fields} fields");
        drop(attackers);
    }
}

/// The allocator returns the attackers' memory after they leave.
#[test]
fn memory_goes_back() {
    let upstream = Upstream::listen();
    let weir = target(upstream.address(), ", limits: { connections: 1 }", "");
    let before = weir.rss_kib();
    let options = Options { settings: vec![(setting::WINDOW, 0)], ..Options::default() };
    let mut attackers: Vec<_> = (0..70).map(|_| H2::client_with(weir.client(), &options)).collect();
    for attacker in &mut attackers {
        let mut attack = Vec::new();
        for n in 0..64 {
            let mut block = vec![0x82, 0x86, 0x84, 0x01, 0x01, b'h'];
            if n == 0 {
                block.extend([0x40, 0x01, b'a', 0x7f, 0xad, 0x1a]);
                block.extend([b'x'; 3500]);
            }
            block.extend([0xbe].repeat(7));
            let flags = flag::END_HEADERS | flag::END_STREAM;
            attack.extend(Frame::new(Kind::Headers, flags, attacker.next_stream(), block).bytes());
        }
        attacker.wire().send(attack);
        attacker.ping();
    }
    let grown = weir.rss_kib().saturating_sub(before);
    assert!(grown > 8 * 1024, "{grown} KiB are no burden");
    drop(attackers);
    // This takes some seconds of quiet, longer than `eventually` waits.
    let until = Instant::now() + Duration::from_secs(20);
    while weir.rss_kib().saturating_sub(before) >= grown * 2 / 3 {
        assert!(
            Instant::now() < until,
            "of {grown} KiB too much stays: {} before, {} now",
            before,
            weir.rss_kib()
        );
        thread::park_timeout(Duration::from_millis(50));
    }
}

#[test]
fn no_windows_on_many_streams() {
    let body = vec![b'x'; 256 * 1024];
    let origin = H2Origin::answering(move |_| body.clone());
    let plain = Upstream::script(|conn| {
        while conn.next_request().is_some() {
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", 256 * 1024);
            if conn.try_send([head.as_bytes(), &[b'x'; 256 * 1024]].concat()).is_err() {
                return;
            }
        }
    });
    for (address, settings) in [(origin.address(), ", protocol: h2c"), (plain.address(), "")] {
        let weir = target(address, settings, "");
        let honest = Honest::begin(&weir);
        let before = weir.rss_kib();
        let options = Options { settings: vec![(setting::WINDOW, 0)], ..Options::default() };
        let mut attackers: Vec<_> = (0..2).map(|_| H2::client_with(weir.client(), &options)).collect();
        for attacker in &mut attackers {
            let streams: Vec<u32> = (0..100).map(|n| attacker.get(&format!("/{n}"))).collect();
            for stream in streams {
                attacker.wait(stream, "its head", |message| message.status() == 200);
            }
        }
        honest.end();
        let grown = weir.rss_kib().saturating_sub(before);
        assert!(grown < 32 * 1024, "{grown} KiB more for 200 streams{settings}");
    }
}

#[test]
fn slow_bodies_on_many_streams() {
    let upstream = Upstream::listen();
    let weir = target(upstream.address(), ", protocol: h2c", "");
    let honest = Honest::begin(&weir);
    let before = weir.rss_kib();
    let mut attackers: Vec<_> = (0..4).map(|_| weir.h2()).collect();
    let streams: Vec<Vec<u32>> =
        attackers.iter_mut().map(|attacker| (0..100).map(|_| attacker.post("/")).collect()).collect();
    let mut peers = vec![H2::server(upstream.accept(), &Options::default())];
    for _ in 0..5 {
        for (attacker, streams) in attackers.iter_mut().zip(&streams) {
            for stream in streams {
                attacker.data(*stream, "x", false);
            }
            attacker.ping();
        }
    }
    if let Some(conn) = upstream.try_accept() {
        peers.push(H2::server(conn, &Options::default()));
    }
    honest.end();
    let grown = weir.rss_kib().saturating_sub(before);
    assert!(grown < 32 * 1024, "{grown} KiB more");
    drop(peers);
}

#[test]
fn honest_clients_are_no_attackers() {
    // A page that is left, a download with small windows, gRPC with a ping per message: all within the limits.
    let origin = H2Origin::answering(|request| {
        vec![b'x'; if request.header(":path") == Some("/large") { 3_000_000 } else { 10 }]
    });
    let weir = weir_with(origin.address(), H2C, "");
    let mut client = weir.h2();
    for _ in 0..100 {
        let stream = client.get("/");
        client.reset(stream, code::CANCEL);
    }
    client.ping();
    for _ in 0..1000 {
        let stream = client.get("/");
        client.message(stream).expect_status(200);
        client.ping();
    }
    let options = Options { settings: vec![(setting::WINDOW, 16_384)], ..Options::default() };
    let mut reader = H2::client_with(weir.client(), &options);
    let stream = reader.get("/large");
    let mut seen = 0;
    while seen < 3_000_000 {
        let now = reader.wait(stream, "more", |message| message.body.len() > seen).body.len();
        // One update per kibibyte: more than any client sends.
        for _ in 0..(now - seen).div_ceil(1024) {
            reader.send(&Frame::window(stream, 1024));
        }
        seen = now;
    }
    assert_eq!((client.go_aways(), reader.go_aways()), (0, 0));
}
