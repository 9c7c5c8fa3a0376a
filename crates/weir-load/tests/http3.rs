//! HTTP/3 as load, on a server of weir-quic and weir-h3: what a run counts must be what the server counted.

#![cfg(feature = "http3")]
#![allow(clippy::unwrap_used, reason = "this is test code: a panic is how a test fails")]

#[path = "../../weir-quic/examples/h3/talk.rs"]
mod talk;

use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use talk::{Reply, Talk};
use tokio::task::spawn_local;
use weir_load::{Interrupt, Options, Plan};
use weir_quic::{Endpoint, Home, Keys, Limits, Server, bind};
use weir_report::Report;
use weir_report::layout::{Format, render, verify};
use weir_wire::Driver;
use weir_wire::listen::Beside;

/// What the server saw.
#[derive(Default)]
struct Seen {
    connections: AtomicU64,
    /// Requests by their line, and bytes of their bodies.
    requests: Mutex<BTreeMap<String, u64>>,
    body_bytes: AtomicU64,
    /// Connections that are open now.
    open: AtomicU64,
}

impl Seen {
    fn requests(&self) -> u64 {
        self.requests.lock().unwrap().values().sum()
    }
}

struct Target {
    url: String,
    seen: Arc<Seen>,
    ca: tempfile::NamedTempFile,
}

/// Starts a server that lets each connection have `streams` requests at a time.
fn serve(streams: u32, answer: fn(&str, Vec<u8>) -> Reply) -> Target {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let mut ca = tempfile::NamedTempFile::new().unwrap();
    std::io::Write::write_all(&mut ca, made.cert.pem().as_bytes()).unwrap();
    let seen = Arc::new(Seen::default());
    let (port, told) = mpsc::channel();
    let ours = Arc::clone(&seen);
    std::thread::spawn(move || {
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let tls = rustls::ServerConfig::builder_with_provider(provider);
        let tls = tls.with_protocol_versions(&[&rustls::version::TLS13]).unwrap().with_no_client_auth();
        let mut tls = tls.with_single_cert(vec![CertificateDer::from(made.cert)], key).unwrap();
        tls.alpn_protocols = vec![b"h3".to_vec()];
        let keys = Keys::random().unwrap();
        let limits = Limits { streams, ..Limits::default() };
        let server = Server::new(Arc::new(tls), &keys, limits).unwrap();
        let group = bind("127.0.0.1:0".parse().unwrap(), 1, Beside::Nobody).unwrap();
        port.send(group.address.port()).unwrap();
        let socket = group.sockets.into_iter().next().unwrap();
        let driver = Driver::new().unwrap();
        let sockets = driver.sockets();
        let work = async move {
            let home = Home { core: 0, generation: 0 };
            let endpoint = Endpoint::new(&sockets, socket, home, &keys, Some(server)).unwrap();
            let runner = endpoint.clone();
            spawn_local(async move { runner.run().await });
            loop {
                let connection = endpoint.accept().await;
                let (seen, done) = (Arc::clone(&ours), Arc::clone(&ours));
                seen.connections.fetch_add(1, Ordering::Relaxed);
                seen.open.fetch_add(1, Ordering::Relaxed);
                let mut talk = Talk::new(connection, move |line: &str, body: Vec<u8>| {
                    *seen.requests.lock().unwrap().entry(line.to_owned()).or_default() += 1;
                    seen.body_bytes.fetch_add(body.len() as u64, Ordering::Relaxed);
                    answer(line, body)
                });
                spawn_local(async move {
                    poll_fn(|cx| talk.poll(cx)).await;
                    done.open.fetch_sub(1, Ordering::Relaxed);
                });
            }
        };
        driver.run(work).unwrap();
    });
    Target { url: format!("https://localhost:{}", told.recv().unwrap()), seen, ca }
}

fn hello(_: &str, _: Vec<u8>) -> Reply {
    Reply::Whole("HTTP/1.1 200 OK\r\nserver: test/3\r\ncontent-length: 2\r\n\r\n".to_owned(), b"hi".to_vec())
}

fn options(target: &Target, path: &str) -> Options {
    Options {
        urls: vec![format!("{}{path}", target.url)],
        http3: true,
        cacert: Some(target.ca.path().to_owned()),
        resolve: vec![format!("*:{}:127.0.0.1", target.url.rsplit(':').next().unwrap())],
        timeout: Some("20s".to_owned()),
        ..Options::default()
    }
}

fn run(options: &Options) -> Report {
    let report = Plan::new(options).unwrap().run(&Interrupt::default(), |_| ()).unwrap();
    let saved = render(&report, Format::named("json").unwrap());
    assert_eq!(verify(&saved).unwrap(), []);
    report
}

#[test]
fn a_run_counts_what_the_server_counted() {
    let target = serve(100, hello);
    let options = Options {
        requests: Some("2000".to_owned()),
        connections: Some(4),
        streams: Some(10),
        threads: Some(2),
        ..options(&target, "/a")
    };
    let report = run(&options);
    assert_eq!((report.counts.requests, report.counts.responses), (2000, 2000), "{:?}", report.counts);
    assert_eq!(target.seen.requests(), 2000);
    assert_eq!(target.seen.connections.load(Ordering::Relaxed), 4);
    assert_eq!(report.connections.opened, 4);
    assert_eq!(report.counts.statuses, BTreeMap::from([(200, 2000)]));
    assert_eq!(report.ledger.protocols, BTreeMap::from([("HTTP/3".to_owned(), 2000)]));
    assert_eq!(report.ledger.alpn.as_deref(), Some("h3"));
    assert_eq!(report.ledger.server.as_deref(), Some("test/3"));
    assert_eq!(report.bytes.received_body, 4000);
    assert_eq!(report.connections.streams_allowed, None);
    assert!(report.phases.connecting.max() > 0);
}

#[test]
fn a_fixed_rate_and_bodies_and_templates() {
    let target = serve(100, |_, body| {
        let head = format!("HTTP/1.1 201 Created\r\ncontent-length: {}\r\n\r\n", body.len());
        Reply::Whole(head, body)
    });
    let options = Options {
        rate: Some("400/s".to_owned()),
        requests: Some("200".to_owned()),
        connections: Some(8),
        streams: Some(4),
        data: Some("x".repeat(20_000)),
        ..options(&target, "/{{counter}}")
    };
    let report = run(&options);
    let counts = &report.counts;
    assert_eq!((counts.requests, counts.responses), (200, 200), "{counts:?}");
    let seen = target.seen.requests.lock().unwrap();
    assert_eq!(seen.len(), 200, "each request has a path of its own");
    assert_eq!(target.seen.body_bytes.load(Ordering::Relaxed), 200 * 20_000);
    assert_eq!(report.bytes.received_body, 200 * 20_000);
    assert_eq!(report.bytes.sent_body, 200 * 20_000);
}

#[test]
fn the_limit_of_streams_is_the_targets() {
    let target = serve(3, hello);
    let options = Options {
        requests: Some("300".to_owned()),
        connections: Some(1),
        streams: Some(10),
        ..options(&target, "/")
    };
    let report = run(&options);
    assert_eq!((report.counts.responses, target.seen.requests()), (300, 300));
    assert_eq!(report.connections.streams_allowed, Some(3));
}

#[test]
fn a_limit_of_streams_that_grows_with_their_use_is_none() {
    let target = serve(100, hello);
    let options = Options {
        requests: Some("2000".to_owned()),
        connections: Some(1),
        streams: Some(60),
        ..options(&target, "/")
    };
    let report = run(&options);
    assert_eq!((report.counts.responses, report.connections.streams_allowed), (2000, None));
}

#[test]
fn resets_and_refusals_and_ends_are_counted_by_what_they_are() {
    // H3_INTERNAL_ERROR is an error; H3_REQUEST_REJECTED lets the request be sent again.
    let target = serve(100, |line, _| match line {
        line if line.contains("reset") => Reply::Reset(0x102),
        line if line.contains("refuse") => Reply::Reset(0x10b),
        _ => Reply::Last("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n".to_owned(), b"hi".to_vec()),
    });
    let base = Options { requests: Some("20".to_owned()), connections: Some(1), ..options(&target, "/") };
    let of = |path: &str| run(&Options { urls: vec![format!("{}{path}", target.url)], ..base.clone() });

    let reset = of("/reset");
    assert_eq!((reset.counts.responses, reset.counts.errors.total()), (0, 20));
    assert!(reset.counts.error_texts.keys().all(|text| text.contains("H3_INTERNAL_ERROR")));

    let before = target.seen.requests();
    let refused = of("/refuse");
    assert_eq!((refused.counts.responses, refused.counts.errors.total()), (0, 20));
    assert_eq!(target.seen.requests() - before, 80, "each was sent again three times");

    let last = of("/last");
    assert_eq!((last.counts.responses, last.counts.errors.total()), (20, 0), "{:?}", last.counts);
    assert_eq!(last.connections.opened, 20, "each connection took one request");
}

#[test]
fn a_request_without_an_answer_times_out_and_the_connection_stays() {
    let target = serve(100, |line, body| match line {
        line if line.contains("/never") => Reply::Silence,
        line => hello(line, body),
    });
    let options = Options {
        urls: vec![format!("{}/never", target.url), format!("{}/", target.url)],
        requests: Some("10".to_owned()),
        connections: Some(1),
        streams: Some(2),
        timeout: Some("300ms".to_owned()),
        unequal: true,
        ..options(&target, "/")
    };
    let report = run(&options);
    assert_eq!((report.counts.responses, report.counts.errors.timeout), (5, 5), "{:?}", report.counts);
    assert_eq!(report.connections.opened, 1);
}

#[test]
fn a_certificate_is_verified_and_the_end_is_told() {
    let target = serve(100, hello);
    let wrong = Options { cacert: None, requests: Some("1".to_owned()), ..options(&target, "/") };
    let report = run(&wrong);
    let texts = &report.counts.error_texts;
    assert!(texts.keys().any(|text| text.contains("--insecure accepts any")), "{texts:?}");
    let insecure = Options { insecure: true, ..wrong };
    assert_eq!(run(&insecure).counts.responses, 1);
    let named = Options { server_name: Some("other.test".to_owned()), ..options(&target, "/") };
    let report = run(&Options { requests: Some("1".to_owned()), ..named });
    assert_eq!(report.counts.responses, 0);
    // The server learns that connections end, and does not keep them until its idle timeout of 30 s.
    let begun = std::time::Instant::now();
    while target.seen.open.load(Ordering::Relaxed) > 0 {
        assert!(begun.elapsed().as_secs() < 5, "connections stay open at the target");
        std::thread::yield_now();
    }
}

#[test]
fn a_port_that_nobody_has_is_refused_at_once() {
    let free = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for rate in [None, Some("10/s".to_owned())] {
        let options = Options {
            urls: vec![format!("https://{free}/")],
            http3: true,
            insecure: true,
            requests: Some("3".to_owned()),
            connections: Some(1),
            rate,
            ..Options::default()
        };
        let report = run(&options);
        assert_eq!(report.counts.errors.connect, 3, "{:?}", report.counts.error_texts);
    }
}

#[test]
fn one_connection_for_each_request() {
    let target = serve(100, hello);
    let options = Options {
        requests: Some("30".to_owned()),
        connections: Some(3),
        no_keepalive: true,
        ..options(&target, "/")
    };
    let report = run(&options);
    assert_eq!((report.counts.responses, report.connections.opened), (30, 30), "{:?}", report.counts);
    assert_eq!(target.seen.connections.load(Ordering::Relaxed), 30);
}

#[test]
fn what_does_not_fit_is_refused_by_name() {
    let told = |change: fn(&mut Options)| {
        let mut options = Options {
            urls: vec!["https://127.0.0.1:9/".to_owned()],
            http3: true,
            insecure: true,
            ..Options::default()
        };
        change(&mut options);
        let mistakes = Plan::new(&options).map(|_| ()).unwrap_err();
        mistakes.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
    };
    for (change, want) in [
        ((|o| o.urls = vec!["http://127.0.0.1:9/".to_owned()]) as fn(&mut Options), "write https://"),
        (|o| o.http2 = true, "--http2 is another version"),
        (|o| o.proxy = Some("http://127.0.0.1:1".to_owned()), "an HTTP proxy does not pass on"),
        (|o| o.unix_socket = Some("/tmp".into()), "HTTP/3 uses UDP"),
        (|o| o.pipeline = Some(2), "with --http3 use -m"),
        (|o| o.tls_resume = true, "cannot be counted"),
        (|o| o.urls = vec!["grpcs://127.0.0.1:9/a.B/C".to_owned()], "gRPC uses HTTP/2"),
        (|o| o.urls = vec!["wss://127.0.0.1:9/".to_owned()], "opened over HTTP/1.1"),
    ] {
        let told = told(change);
        assert!(told.contains(want), "{want}: {told}");
    }
}
