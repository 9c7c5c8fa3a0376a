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
        let mut counts = [0u32; 2];
        for _ in 0..4000 {
            counts[balance.pick(&endpoints, &Excluded::default()).unwrap()] += 1;
        }
        if matches!(kind.name, "random" | "round_robin") {
            assert!((2800..3200).contains(&counts[0]), "{}: {counts:?}", kind.name);
        }
        let excluded: Excluded = [0].into_iter().collect();
        assert_eq!(balance.pick(&endpoints, &excluded), Some(1), "{}", kind.name);
        let all: Excluded = [0, 1].into_iter().collect();
        assert_eq!(balance.pick(&endpoints, &all), None, "{}", kind.name);
    }
}
