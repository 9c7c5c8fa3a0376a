//! Balancers over made-up endpoints.

use super::*;
use crate::upstream::endpoint::Endpoint;
use crate::upstream::health::Health;
use crate::upstream::pool::Pool;
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use weir_telemetry::{Setup, Telemetry};
use weir_wire::listen::Address;

fn endpoints(weights: &[u32]) -> Vec<LocalEndpoint> {
    let telemetry = Telemetry::new(Setup::default());
    let make = |(i, &weight): (usize, &u32)| {
        let label: Arc<str> = format!("127.0.0.1:{}", i + 1).into();
        let cells = telemetry.endpoint("u", &label);
        LocalEndpoint {
            cells: telemetry.core(0).endpoint(&cells),
            endpoint: Arc::new(Endpoint {
                address: Address::Tcp(label.parse().unwrap()),
                authority: Arc::clone(&label),
                server_name: Arc::clone(&label),
                label,
                weight,
                health: Health::new("u".into(), "e".into(), cells.clone()),
                cells,
            }),
            pool: Rc::new(Pool::default()),
            active: Cell::new(0),
            current: Cell::new(0),
            latency: Some(Rc::default()),
        }
    };
    weights.iter().enumerate().map(make).collect()
}

#[test]
fn round_robin_is_smooth() {
    let endpoints = endpoints(&[5, 1, 1]);
    let mut balance = (named("round_robin").unwrap().make)(0);
    let order: Vec<usize> = (0..7).map(|_| balance.pick(&endpoints, &Excluded::default()).unwrap()).collect();
    assert_eq!(order, [0, 0, 1, 0, 2, 0, 0]);
}

#[test]
fn nothing_is_picked_from_nothing() {
    for kind in KINDS {
        assert_eq!((kind.make)(7).pick(&[], &Excluded::default()), None, "{}", kind.name);
    }
}

#[test]
fn p2c_avoids_the_busy_one() {
    let endpoints = endpoints(&[1, 1]);
    endpoints[0].active.set(10);
    let mut balance = (named("p2c").unwrap().make)(7);
    assert!((0..100).all(|_| balance.pick(&endpoints, &Excluded::default()) == Some(1)));
}

#[test]
fn least_requests_weighs_and_takes_turns() {
    let endpoints = endpoints(&[1, 1, 4]);
    for (e, active) in endpoints.iter().zip([2, 1, 3]) {
        e.active.set(active);
    }
    let mut balance = (named("least_requests").unwrap().make)(0);
    assert_eq!(balance.pick(&endpoints, &Excluded::default()), Some(2));
    endpoints.iter().for_each(|e| e.active.set(0));
    let mut turns: Vec<_> = (0..3).map(|_| balance.pick(&endpoints, &Excluded::default()).unwrap()).collect();
    turns.sort_unstable();
    assert_eq!(turns, [0, 1, 2]);
}

#[test]
fn every_balancer_respects_weights_and_what_was_tried() {
    let endpoints = endpoints(&[3, 1]);
    for kind in KINDS {
        let mut balance = (kind.make)(12345);
        balance.update(&endpoints);
        let mut counts = [0u32; 2];
        for _ in 0..4000 {
            counts[balance.pick(&endpoints, &Excluded::default()).unwrap()] += 1;
        }
        if matches!(kind.name, "ewma" | "random" | "round_robin") {
            assert!((2800..3200).contains(&counts[0]), "{}: {counts:?}", kind.name);
        }
        let excluded: Excluded = [0].into_iter().collect();
        assert_eq!(balance.pick(&endpoints, &excluded), Some(1), "{}", kind.name);
        let all: Excluded = [0, 1].into_iter().collect();
        assert_eq!(balance.pick(&endpoints, &all), None, "{}", kind.name);
    }
}

#[test]
fn ewma_prefers_who_answers_sooner() {
    use std::time::{Duration, Instant};
    let endpoints = endpoints(&[1, 1, 1]);
    let observe = |i: usize, ms| {
        let latency = endpoints[i].latency.as_ref().unwrap();
        latency.observe(Duration::from_millis(ms), Instant::now());
    };
    let mut balance = (named("ewma").unwrap().make)(7);
    balance.update(&endpoints);
    let mut shares = || {
        let mut counts = [0u32; 3];
        for _ in 0..3000 {
            counts[balance.pick(&endpoints, &Excluded::default()).unwrap()] += 1;
        }
        counts
    };
    (0..3).for_each(|i| observe(i, 100));
    assert!(shares().iter().all(|n| (850..1150).contains(n)), "equals share alike");
    observe(0, 1000);
    let slow = shares();
    // It loses against either of the others, but would be taken if both were out.
    assert!(slow[0] == 0 && slow[1..].iter().all(|n| (1300..1700).contains(n)), "{slow:?}");
    // A fast endpoint with many attempts under way is a slow one.
    endpoints[1].active.set(50);
    let busy = shares();
    assert!(busy[1] == 0 && busy[0] > 800, "{busy:?}");
}

#[test]
fn three_thousand_are_drawn_by_weight() {
    let weights: Vec<u32> = (0..3000).map(|i| 1 + i % 3).collect();
    let endpoints = endpoints(&weights);
    let draw = draw::Draw::new(&endpoints);
    let (mut random, mut counts) = (Random::new(7), [0u32; 3]);
    for _ in 0..60_000 {
        counts[draw.draw(&mut random, &endpoints, &Excluded::default()).unwrap() % 3] += 1;
    }
    for (n, expected) in counts.into_iter().zip([10_000u32, 20_000, 30_000]) {
        assert!(n.abs_diff(expected) < 700, "{counts:?}");
    }
    let all_but_one: Excluded = (0..2999).collect();
    assert_eq!(draw.draw(&mut random, &endpoints, &all_but_one), Some(2999));
}
