//! `round_robin`: smooth and weighted: endpoints take turns, the heavy ones more often but never in a burst.
//!
//! Each pick adds every endpoint's weight to its running total, takes the largest total, and takes the sum of all weights
//! from it: with weights 5, 1, 1 the order is a a b a c a a, as nginx does it.

use super::{Balance, Kind};
use crate::upstream::endpoint::LocalEndpoint;
use crate::upstream::excluded::Excluded;

pub(super) static KIND: Kind =
    Kind { name: "round_robin", measures: false, make: |seed| Box::new(RoundRobin { skip: seed }) };

/// `skip` turns are taken at the first pick, so that the cores do not all begin with the same endpoint.
struct RoundRobin {
    skip: u64,
}

impl Balance for RoundRobin {
    fn pick(&mut self, endpoints: &[LocalEndpoint], excluded: &Excluded) -> Option<usize> {
        for _ in 0..std::mem::take(&mut self.skip) % endpoints.len().max(1) as u64 {
            turn(endpoints, excluded);
        }
        turn(endpoints, excluded)
    }
}

fn turn(endpoints: &[LocalEndpoint], excluded: &Excluded) -> Option<usize> {
    let mut total = 0;
    let mut best: Option<usize> = None;
    for (i, e) in endpoints.iter().enumerate().filter(|(i, _)| !excluded.contains(*i)) {
        let weight = i64::from(e.endpoint.weight);
        total += weight;
        e.current.set(e.current.get() + weight);
        if best.is_none_or(|b| e.current.get() > endpoints[b].current.get()) {
            best = Some(i);
        }
    }
    let chosen = &endpoints[best?];
    chosen.current.set(chosen.current.get() - total);
    best
}
