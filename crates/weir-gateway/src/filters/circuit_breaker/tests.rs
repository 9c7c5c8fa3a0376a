//! The hooks: what counts, what is refused, and who gives a probe's place back.

use super::super::testing::{Exchange, Running, Stand};
use super::*;
use crate::error::{BODY_TIMEOUT, CONNECT_REFUSED, RESPONSE_TIMEOUT};
use serde_json::{Value, json};
use std::cell::Cell;
use std::time::Duration as Time;

fn stand(settings: Value) -> Stand {
    Stand::new(&KIND, settings).upstream("up").upstream("other")
}

/// How an attempt ends.
type Ends = Result<u16, &'static Cause>;

/// Makes an attempt; the cause for which it was refused.
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
    /// How far the test that runs on this thread is ahead of the clock.
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
    for ends in [Err(&CLIENT_CLOSED), Err(&GRPC_TIMEOUT), Err(&BODY_TIMEOUT)] {
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
    let reading = Reading { what: "state", of: "up".to_owned(), value: 2 };
    assert_eq!(running.readings(), [reading]);
}

#[test]
fn mistakes() {
    for (settings, expected) in [
        (json!({ "errors": "0%" }), "write 50%"),
        (json!({ "errors": 0.5 }), "percentage"),
        (json!({ "statuses": [200] }), "from 400 to 599"),
        (json!({ "slow": "0s" }), "write a time"),
        (json!({ "slow_rate": "10%" }), "slow: 2s"),
        (json!({ "window": "10ms" }), "write 10s"),
        (json!({ "open": "0s" }), "write 15s"),
        (json!({ "minimum": 0 }), "nonzero"),
        (json!({ "probes": 0 }), "nonzero"),
    ] {
        let mistakes = stand(settings.clone()).mistakes();
        assert!(mistakes[0].contains(expected), "{settings}: {mistakes:#?}");
    }
}
