//! Made-up endpoints, and how balancers choose among them.

use super::*;
use crate::upstream::endpoint::{Endpoint, Place};
use crate::upstream::health::Health;
use crate::upstream::pool::Pool;
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;
use weir_telemetry::{Setup, Telemetry};
use weir_wire::listen::Address;

/// An endpoint for each weight, at 127.0.0.1 and ports from 1.
pub(in crate::upstream) fn endpoints(weights: &[u32]) -> Vec<LocalEndpoint> {
    let telemetry = Telemetry::new(Setup::default());
    let load = Rc::new(Cell::new(0));
    let make = |(i, &weight): (usize, &u32)| {
        let label: Arc<str> = format!("127.0.0.1:{}", i + 1).into();
        let cells = telemetry.endpoint("u", &label);
        LocalEndpoint {
            detail: Default::default(),
            cells: telemetry.core(0).endpoint(&cells),
            endpoint: Arc::new(Endpoint {
                address: Address::Tcp(label.parse().unwrap()),
                authority: Arc::clone(&label),
                server_name: Arc::clone(&label),
                label,
                weight,
                place: Place::default(),
                health: Health::new("u".into(), "e".into(), cells.clone()),
                cells,
            }),
            pool: Rc::new(Pool::default()),
            active: Rc::default(),
            load: Some(Rc::clone(&load)),
            latency: Some(Rc::default()),
            joined: 0,
            code: None,
        }
    };
    weights.iter().enumerate().map(make).collect()
}

/// Endpoints of these priorities, each in the gateway's zone or elsewhere.
pub(super) fn placed(ranks: &[(u8, bool)]) -> Vec<LocalEndpoint> {
    let mut endpoints = endpoints(&vec![1; ranks.len()]);
    for (local, (priority, elsewhere)) in endpoints.iter_mut().zip(ranks) {
        let endpoint = Arc::get_mut(&mut local.endpoint).unwrap();
        endpoint.place = Place { priority: *priority, zone: None, elsewhere: *elsewhere };
    }
    endpoints
}

/// A balancer with default settings for these endpoints.
pub(super) fn balance(name: &str, endpoints: &[LocalEndpoint]) -> Box<dyn Balance> {
    let hash = (name == "hash").then_some(HashSettings { by: By::Path, bounded: None });
    let mut balance = Balancer { kind: named(name).unwrap(), hash }.make(12345);
    balance.update(endpoints);
    balance
}

/// Picks an endpoint that was not tried.
pub(super) fn pick(balance: &mut dyn Balance, endpoints: &[LocalEndpoint], tried: &[usize]) -> Option<usize> {
    balance.pick(&Candidates::new(endpoints, None, &tried.iter().copied().collect(), None))
}

/// How often each endpoint is picked by requests with different keys.
pub(super) fn counts(balance: &mut dyn Balance, endpoints: &[LocalEndpoint], picks: usize) -> Vec<u32> {
    let (mut counts, mut random, tried) = (vec![0; endpoints.len()], Random::new(99), Excluded::default());
    for _ in 0..picks {
        let from = Candidates::new(endpoints, None, &tried, Key::new(random.next()));
        counts[balance.pick(&from).unwrap()] += 1;
    }
    counts
}

/// The cost of a pick: the best of several runs.
pub(super) fn nanoseconds(name: &str, n: usize) -> f64 {
    const PICKS: u32 = 1_000_000;
    let endpoints = endpoints(&(0..n).map(|i| 1 + i as u32 % 3).collect::<Vec<_>>());
    let mut balance = balance(name, &endpoints);
    let run = |_| {
        let began = Instant::now();
        let picked = counts(&mut *balance, &endpoints, PICKS as usize);
        assert_eq!(picked.iter().sum::<u32>(), PICKS);
        began.elapsed().as_secs_f64() * 1e9 / f64::from(PICKS)
    };
    (0..5).map(run).fold(f64::INFINITY, f64::min)
}
