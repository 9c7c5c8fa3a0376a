//! `circuit_breaker`: a failing upstream gets no requests except probes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use weir_testkit::h2::{H2Origin, Options};
use weir_testkit::{Upstream, Weir, eventually};

use crate::cause::{CIRCUIT_OPEN, CONNECT_REFUSED};
use crate::support::{OK, WEB};

const ERROR: &str = "HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n";

/// An upstream that answers with 500 until the test lets it recover.
fn patient() -> (Upstream, Arc<AtomicBool>) {
    let well = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&well);
    let upstream = Upstream::script(move |conn| {
        while conn.next_request().is_some() {
            if conn.try_send(if seen.load(Relaxed) { OK } else { ERROR }).is_err() {
                return;
            }
        }
    });
    (upstream, well)
}

#[track_caller]
fn start(address: &str, settings: &str) -> Weir {
    Weir::start(&config(address, settings))
}

fn config(address: &str, settings: &str) -> String {
    format!(
        "{WEB}\nadmin: {{ address: 127.0.0.1:0 }}\nworkers: 2\nupstreams: {{ up: {{ endpoints: [{address}] }} }}\nfilters: [ \
         {{ circuit_breaker: {{ {settings} }} }} ]\nroutes:\n  one: {{ match: {{ path: /one }}, upstream: up }}\n  two: {{ match: {{ \
         path: /two }}, upstream: up }}\n"
    )
}

fn told(weir: &Weir, page: &str) -> String {
    weir.admin_client().ask(format!("GET {page} HTTP/1.1\r\nHost: localhost\r\n\r\n")).text()
}

#[track_caller]
fn state(weir: &Weir) -> String {
    let metrics = told(weir, "/metrics");
    let line = metrics.lines().find(|line| line.starts_with("weir_circuit_breaker_state{"));
    let Some(line) = line else { panic!("no reading in:\n{metrics}") };
    line.rsplit(' ').next().unwrap_or_default().to_owned()
}

#[test]
fn opens_for_all_cores_and_routes_and_closes_by_probes() {
    let (upstream, well) = patient();
    let weir = start(&upstream.address().to_string(), "minimum: 6, open: 300ms, probes: 2");
    for target in ["/one", "/two", "/one", "/two", "/one", "/two"] {
        weir.client().get(target).expect_status(500);
    }
    // Another connection, probably on the other core.
    let refused = weir.client().get("/two");
    refused.expect_cause(CIRCUIT_OPEN).expect_header("retry-after", "1");
    assert_eq!(upstream.requests().len(), 6);
    assert_eq!(weir.wait_log("the circuit is open").field("failed"), Some("6"));
    assert_eq!(state(&weir), "2");
    let status = told(&weir, "/status");
    assert!(status.contains("circuit_breaker"), "{status}");

    // It still fails: each probe reopens the circuit.
    eventually("a probe", || weir.client().get("/one").status == 500);
    weir.wait_log("the circuit is open again: a probe failed");
    well.store(true, Relaxed);
    eventually("it is closed", || {
        weir.client().get("/one");
        state(&weir) == "0"
    });
    weir.wait_log("the circuit is closed");
    weir.client().get("/two").expect_status(200);
}

#[test]
fn an_upgrade_leaves_it_open() {
    let (upstream, _) = patient();
    let weir = Weir::start_installed(&config(&upstream.address().to_string(), "minimum: 4, open: 1h"));
    for _ in 0..4 {
        weir.client().get("/one").expect_status(500);
    }
    weir.client().get("/one").expect_cause(CIRCUIT_OPEN);
    weir.upgrade().unwrap();
    weir.client().get("/two").expect_cause(CIRCUIT_OPEN);
    assert_eq!(state(&weir), "2");
    assert_eq!(upstream.requests().len(), 4);
}

#[test]
fn what_cannot_be_reached_counts() {
    let (_socket, address) = weir_testkit::refusing_address();
    let weir = start(&address.to_string(), "minimum: 2, open: 1h");
    weir.client().get("/one").expect_cause(CONNECT_REFUSED);
    eventually("the circuit is open", || {
        weir.client().get("/one").header("x-weir-cause") == Some(CIRCUIT_OPEN.1)
    });
}

/// A failed gRPC call reports it in its trailers, after a message and a 200.
#[test]
fn calls_of_grpc_count_by_their_trailers() {
    let origin = H2Origin::new(Options::default(), |peer, stream, _| {
        peer.headers(stream, &[(":status", "200"), ("content-type", "application/grpc")], false);
        peer.data(stream, [0, 0, 0, 0, 0], false);
        peer.headers(stream, &[("grpc-status", "14")], true);
    });
    let weir = Weir::start(&format!(
        "listeners: {{ web: {{ address: 127.0.0.1:0, protocols: [h2] }} }}\nupstreams: {{ up: {{ endpoints: [{}], protocol: h2c }} }}\nroutes: {{ all: {{ match: {{ path: \"/*\" }}, \
         filters: [ {{ circuit_breaker: {{ minimum: 3, open: 1h }} }} ], upstream: up }} }}\n",
        origin.address()
    ));
    let mut client = weir.h2();
    let mut call = || {
        let fields = [
            (":method", "POST"),
            (":scheme", "http"),
            (":authority", "weir.test"),
            (":path", "/a.B/C"),
            ("content-type", "application/grpc"),
            ("te", "trailers"),
        ];
        let stream = client.request(&fields, false);
        client.data(stream, [0, 0, 0, 0, 0], true);
        client.message(stream)
    };
    for _ in 0..3 {
        let answer = call();
        assert_eq!(answer.trailers, [("grpc-status".to_owned(), "14".to_owned())], "{answer:?}");
    }
    eventually("the circuit is open", || call().header("x-weir-cause") == Some(CIRCUIT_OPEN.1));
    assert_eq!(weir.wait_log("the circuit is open").field("failed"), Some("3"));
}

/// Refusals by a route's circuit are no failures of the upstream: they must not open the circuit of all routes.
#[test]
fn what_one_circuit_refuses_is_no_failure_to_another() {
    let (upstream, well) = patient();
    let weir = Weir::start(&format!(
        "{WEB}\nupstreams: {{ up: {{ endpoints: [{}] }} }}\nfilters: [ {{ circuit_breaker: {{ minimum: 5, open: 1h }} }} ]\nroutes:\n  \
         one: {{ match: {{ path: /one }}, upstream: up, filters: [ {{ circuit_breaker: {{ minimum: 2, open: 1h }} }} ] }}\n  \
         two: {{ match: {{ path: /two }}, upstream: up }}\n",
        upstream.address()
    ));
    weir.client().get("/one").expect_status(500);
    weir.client().get("/one").expect_status(500);
    well.store(true, Relaxed);
    for _ in 0..10 {
        weir.client().get("/one").expect_cause(CIRCUIT_OPEN);
    }
    weir.client().get("/two").expect_status(200);
}
