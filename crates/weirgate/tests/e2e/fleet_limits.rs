//! Limits that a fleet's nodes share through a real etcd, without a separate store.
//!
//! Without etcd, these tests print a note and pass; `make test` installs it.

use std::time::{Duration, Instant};

use tempfile::TempDir;
use weir_testkit::{Weir, run_weir};

use crate::cause::{RATE_LIMITED, STORE_UNAVAILABLE};
use crate::fleet::{Config, Etcd, at_length, within};
use crate::support::{GET, WEB};

/// `LIMIT` is both the rate per second and the burst; `AHEAD` is how far a node can be ahead, as `weir check`
/// reports.
const LIMIT: usize = 100;
const AHEAD: usize = LIMIT / 20;

/// Its own answers, within a limit for the whole fleet. No request passes without that limit, nor before the first
/// answer of its keeper, so everything that passes is counted there.
fn config() -> Config {
    Config::of(&format!(
        "{WEB}\nexpose_causes: true\nstores: {{ limits: {{ fleet: {{}}, timeout: 5s }} }}\nroutes:\n  all:\n    match: {{ path: \"/*\" }}\n    \
         filters: [ {{ rate_limit: {{ requests: {LIMIT}, per: 1s, by: route, store: limits, strict: true, without_store: closed }} }} ]\n    \
         respond: {{ status: 200 }}\n"
    ))
}

/// Whether this node keeps the limits.
fn keeps(weir: &Weir) -> bool {
    !weir.logged("this node now holds the fleet's store").is_empty()
}

/// How many requests pass if these gateways get them concurrently for this long.
fn passed(weirs: &[&Weir], long: Duration) -> usize {
    let until = Instant::now() + long;
    let drive = |weir: &Weir| {
        let mut client = weir.client();
        let mut passed = 0;
        while Instant::now() < until {
            passed += usize::from(client.ask(GET).status == 200);
        }
        passed
    };
    std::thread::scope(|scope| {
        let drive = &drive;
        let threads: Vec<_> = weirs.iter().map(|weir| scope.spawn(move || drive(weir))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    })
}

/// The most that may pass in this time.
fn bound(began: Instant, processes: usize) -> usize {
    LIMIT + (LIMIT as f64 * began.elapsed().as_secs_f64()).ceil() as usize + processes * AHEAD
}

/// Waits until a request passes, which requires a node that keeps the limits.
fn passes(weir: &Weir) {
    within("it knows who keeps the limits, and something passes", || weir.client().ask(GET).status == 200);
}

#[test]
fn nodes_share_a_limit_without_a_store_beside_them() {
    let Some(etcd) = Etcd::start() else { return };
    etcd.publish(&config(), &[]);
    let began = Instant::now();
    let weirs = ["a", "b", "c"].map(|name| etcd.node(name, ""));
    weirs.iter().for_each(passes);
    assert_eq!(weirs.iter().filter(|weir| keeps(weir)).count(), 1);
    let weirs = weirs.each_ref();
    let mut all = 0;
    within("as much passes as the limit has room for at once", || {
        all += passed(&weirs, Duration::from_millis(200));
        all >= LIMIT
    });
    assert!(all <= bound(began, 3), "{all} in {:?}", began.elapsed());
    let mut client = weirs[1].client();
    let refused = (0..10_000).map(|_| client.ask(GET)).find(|answer| answer.status != 200);
    refused.unwrap().expect_cause(RATE_LIMITED);
}

/// A fleet of one node, which keeps the limits, and its start; `None` without etcd.
fn first_node() -> Option<(Etcd, Instant, Weir)> {
    let etcd = Etcd::start()?;
    etcd.publish(&config(), &[]);
    let began = Instant::now();
    let first = etcd.node("a", "");
    passes(&first);
    Some((etcd, began, first))
}

/// Another node takes over and starts with nothing left: no more requests pass than before.
#[test]
fn the_node_that_keeps_them_leaves() {
    if !at_length() {
        return;
    }
    let Some((etcd, began, first)) = first_node() else { return };
    let others = ["b", "c"].map(|name| etcd.node(name, ""));
    others.iter().for_each(passes);
    assert!(keeps(&first) && !others.iter().any(keeps));
    let mut all = passed(&[&first, &others[0], &others[1]], Duration::from_millis(500));
    first.stop().expect_code(0);
    within("another one keeps them", || {
        all += others.iter().filter(|weir| weir.client().ask(GET).status == 200).count();
        others.iter().any(keeps)
    });
    for weir in &others {
        within("it passes again", || {
            let passes = weir.client().ask(GET).status == 200;
            all += usize::from(passes);
            passes
        });
    }
    within("it goes on", || {
        all += passed(&others.each_ref(), Duration::from_millis(200));
        all >= LIMIT / 2
    });
    assert!(all <= bound(began, 3), "{all} in {:?}", began.elapsed());
}

/// etcd keeps its key for 15 s after its death.
#[test]
fn the_node_that_keeps_them_is_killed() {
    if !at_length() {
        return;
    }
    let Some((etcd, began, first)) = first_node() else { return };
    let second = etcd.node("b", "");
    passes(&second);
    let mut all = passed(&[&first, &second], Duration::from_secs(1));
    first.signal(9);
    within("it notices", || second.client().ask(GET).header("x-weir-cause") == Some(STORE_UNAVAILABLE.1));
    within("it keeps them itself", || {
        all += usize::from(second.client().ask(GET).status == 200);
        keeps(&second)
    });
    all += passed(&[&second], Duration::from_secs(3));
    assert!(all <= bound(began, 2), "{all} in {:?}", began.elapsed());
}

#[test]
fn what_a_fleet_cannot_keep() {
    let dir = TempDir::new().unwrap();
    let check = |store: &str, limit: &str| {
        let yaml = format!(
            "{WEB}\nstores: {{ limits: {{ {store} }} }}\nroutes: {{ all: {{ filters: [ {{ rate_limit: {{ {limit}, store: limits }} }} ], \
             respond: {{}} }} }}\n"
        );
        std::fs::write(dir.path().join("weir.yaml"), yaml).unwrap();
        run_weir(dir.path(), &["check", "-c", "weir.yaml"])
    };
    let good = check("fleet: {}", "requests: 100, per: 1s");
    good.expect_code(0).expect_text("N gateways let pass at most 100 + N × 6").expect_text("is another");
    check("fleet: {}", "requests: 7, per: 1h").expect_code(0);
    for (store, limit, expected) in [
        ("fleet: {}", "requests: 100, per: day", "comes back within an hour"),
        ("fleet: {}", "requests: 100, per: 2h", "comes back within an hour"),
        (
            "fleet: {}, redis: \"redis://127.0.0.1\"",
            "requests: 100, per: 1s",
            "a server; only one is allowed",
        ),
        ("fleet: { port: 1 }", "requests: 100, per: 1s", "port"),
        ("fleet: {}, timeout: 0s", "requests: 100, per: 1s", "100ms"),
    ] {
        check(store, limit).expect_code(1).expect_text(expected);
    }
    let node = |address: &str| {
        let yaml = format!(
            "source: {{ etcd: {{ servers: [\"http://127.0.0.1:1\"], cache: c, address: \"{address}\" }} }}\n"
        );
        std::fs::write(dir.path().join("weir.yaml"), yaml).unwrap();
        run_weir(dir.path(), &["check", "-c", "weir.yaml"])
    };
    for wrong in ["0.0.0.0:9182", "gw1", "10.0.0.5:x"] {
        node(wrong).expect_code(1).expect_text("source.etcd.address");
    }
    node("10.0.0.5").expect_code(0);
}
