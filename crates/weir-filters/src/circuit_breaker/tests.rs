//! The hooks: what counts, what is refused, and who frees a probe's place.

use super::super::testing::{Exchange, Running, Stand};
use super::*;
use serde_json::{Value, json};
use std::cell::Cell;
use std::time::Duration as Time;
use weir_filter::error::{BODY_TIMEOUT, CONNECT_REFUSED, RESPONSE_TIMEOUT};

fn stand(settings: Value) -> Stand {
    Stand::new(&KIND, settings).upstream("up").upstream("other")
}

/// How an attempt ends.
type Ends = Result<u16, &'static Cause>;

/// Makes an attempt and returns the cause if it was refused.
async fn attempt(running: &Running, upstream: &str, ends: Ends, took: Time) -> Result<(), &'static Cause> {
    let mut exchange = begin(running, upstream).await?;
    exchange.attempt_end(upstream, ends, took);
    Ok(())
}

async fn begin(running: &Running, upstream: &str) -> Result<Exchange, &'static Cause> {
    let mut exchange = running.request("GET /").await;
    exchange.attempt(upstream).map_err(|refusal| refusal.cause).map(|()| exchange)
}

const AT_ONCE: Time = Time::ZERO;

thread_local! {
    /// How far the test on this thread is ahead of the clock.
    pub(super) static AHEAD: Cell<Time> = const { Cell::new(Time::ZERO) };
}

#[tokio::test]
async fn failures_open_the_circuit_of_their_upstream_alone() {
    for ends in [Ok(500), Ok(503), Err(&CONNECT_REFUSED), Err(&RESPONSE_TIMEOUT)] {
        let running = stand(json!({ "minimum": 4, "open": "1h" })).build();
        for _ in 0..4 {
            assert!(attempt(&running, "up", ends, AT_ONCE).await.is_ok());
        }
        assert_eq!(attempt(&running, "up", Ok(200), AT_ONCE).await, Err(&CIRCUIT_OPEN), "{ends:?}");
        assert!(attempt(&running, "other", Ok(200), AT_ONCE).await.is_ok());
        let mut refused = running.request("GET /").await;
        let refusal = refused.attempt("up").unwrap_err();
        assert_eq!(refusal.headers[0].1, b"3600");
    }
}

#[tokio::test]
async fn what_the_client_did_counts_neither_way() {
    // An attempt without a result does not count either: another attempt was first, or a filter refused this one.
    for ends in [Err(&CLIENT_CLOSED), Err(&GRPC_TIMEOUT), Err(&BODY_TIMEOUT), Ok(0)] {
        let running = stand(json!({ "minimum": 2, "errors": "1%" })).build();
        for _ in 0..20 {
            assert!(attempt(&running, "up", ends, AT_ONCE).await.is_ok(), "{ends:?}");
        }
    }
    let running = stand(json!({ "minimum": 2, "errors": "1%" })).build();
    for status in [200, 404, 429, 501] {
        for _ in 0..5 {
            assert!(attempt(&running, "up", Ok(status), AT_ONCE).await.is_ok(), "{status}");
        }
    }
}

#[tokio::test]
async fn calls_of_grpc_fail_by_their_status() {
    use GrpcStatus::{Received, ToCome};
    let is_open = async |settings: Value, grpc: GrpcStatus, trailers: Option<&str>| {
        let running = stand(settings).build();
        for _ in 0..4 {
            let mut exchange = begin(&running, "up").await.unwrap();
            exchange.attempt_end_grpc("up", grpc);
            if let Some(trailers) = trailers {
                assert!(exchange.response_body(b"message", false).is_ok());
                exchange.response_trailers(trailers);
            }
        }
        begin(&running, "up").await.is_err()
    };
    let four = || json!({ "minimum": 4, "open": "1h" });
    for (grpc, trailers, expected) in [
        (Received(14), None, true),
        (Received(13), None, true),
        (Received(2), None, true),
        (Received(5), None, false),
        (Received(0), None, false),
        (ToCome, Some("grpc-status: 14\n"), true),
        (ToCome, Some("Grpc-Status:2\ngrpc-message: x\n"), true),
        (ToCome, Some("grpc-status: 0\n"), false),
        (ToCome, Some("grpc-status: x\n"), false),
        (ToCome, Some(""), false),
        (ToCome, None, false), // cut off: the status of its head counts
    ] {
        assert_eq!(is_open(four(), grpc, trailers).await, expected, "{grpc:?} {trailers:?}");
    }
    let other = json!({ "minimum": 4, "open": "1h", "grpc": ["not_found"] });
    assert!(is_open(other.clone(), Received(5), None).await);
    assert!(!is_open(other, Received(14), None).await);
}

/// An attempt that waits for its trailers is counted once, however it ends. A probe waits for no more than the first
/// message.
#[tokio::test]
async fn a_stream_does_not_keep_the_place_of_a_probe() {
    let running = stand(json!({ "minimum": 1, "open": "1m", "probes": 1 })).build();
    assert!(attempt(&running, "up", Ok(500), AT_ONCE).await.is_ok());
    AHEAD.set(Time::from_mins(1));
    let mut probe = begin(&running, "up").await.unwrap();
    probe.attempt_end_grpc("up", GrpcStatus::ToCome);
    assert!(begin(&running, "up").await.is_err(), "it may still fail");
    assert!(probe.response_body(b"first", false).is_ok());
    assert!(begin(&running, "up").await.is_ok(), "it is closed");
    probe.response_trailers("grpc-status: 14\n");
    assert!(begin(&running, "up").await.is_ok(), "and was counted");
    // A probe that fails by its trailers, without any message, reopens the circuit.
    assert!(attempt(&running, "up", Ok(500), AT_ONCE).await.is_ok());
    AHEAD.set(Time::from_mins(2));
    let mut probe = begin(&running, "up").await.unwrap();
    probe.attempt_end_grpc("up", GrpcStatus::ToCome);
    probe.response_trailers("grpc-status: 14\n");
    assert!(begin(&running, "up").await.is_err());
    AHEAD.set(Time::ZERO);
}

#[tokio::test]
async fn slow_answers_open_it_too() {
    let running = stand(json!({ "minimum": 4, "slow": "2s", "slow_rate": "75%" })).build();
    for took in [1, 2, 3, 9] {
        assert!(attempt(&running, "up", Ok(200), Time::from_secs(took)).await.is_ok());
    }
    assert!(attempt(&running, "up", Ok(200), AT_ONCE).await.is_err());
}

#[tokio::test]
async fn a_probe_that_comes_to_nothing_makes_room_for_another() {
    let running = stand(json!({ "minimum": 1, "open": "1m", "probes": 1 })).build();
    assert!(attempt(&running, "up", Ok(500), AT_ONCE).await.is_ok());
    assert!(begin(&running, "up").await.is_err());
    AHEAD.set(Time::from_mins(1));
    let probe = begin(&running, "up").await.unwrap();
    assert!(begin(&running, "up").await.is_err(), "one is under way");
    drop(probe);
    assert!(attempt(&running, "up", Err(&CLIENT_CLOSED), AT_ONCE).await.is_ok());
    assert!(attempt(&running, "up", Ok(200), AT_ONCE).await.is_ok());
    let (one, two) = (begin(&running, "up").await, begin(&running, "up").await);
    assert!(one.is_ok() && two.is_ok(), "it is closed");
    AHEAD.set(Time::ZERO);
}

#[tokio::test]
async fn circuits_survive_a_reload() {
    let mut stand = stand(json!({ "minimum": 1, "open": "1h" }));
    let running = stand.build();
    assert!(attempt(&running, "up", Ok(500), AT_ONCE).await.is_ok());
    let running = stand.build();
    assert!(attempt(&running, "up", Ok(200), AT_ONCE).await.is_err());
    assert_eq!(running.readings(), [Reading::of(&STATE, "up", 2)]);
}

#[test]
fn mistakes() {
    for (settings, expected) in [
        (json!({ "errors": "0%" }), "write 50%"),
        (json!({ "errors": 0.5 }), "percentage"),
        (json!({ "statuses": [200] }), "from 400 to 599"),
        (json!({ "grpc": ["ok"] }), "not a status of a failure"),
        (json!({ "grpc": ["gone"] }), "write one such as unavailable"),
        (json!({ "slow": "0s" }), "write a time"),
        (json!({ "slow_rate": "10%" }), "slow: 2s"),
        (json!({ "window": "10ms" }), "write 10s"),
        (json!({ "open": "0s" }), "write 15s"),
        (json!({ "minimum": 0 }), "above zero"),
        (json!({ "probes": 0 }), "above zero"),
    ] {
        let mistakes = stand(settings.clone()).mistakes();
        assert!(mistakes[0].contains(expected), "{settings}: {mistakes:#?}");
    }
}
