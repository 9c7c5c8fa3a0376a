//! `least_requests`: the endpoint with the fewest running attempts on this core for its weight. Among equals, the one
//! after the last chosen, so that idle endpoints take turns.
//!
//! Compares every endpoint if there are at most [`LOOKED_AT`]; otherwise samples [`LOOKED_AT`] of them, spread
//! evenly. One of the sample is nearly idle, and asking thousands would cost more than it gains.

use super::{Balance, Candidates, Kind};
use crate::upstream::endpoint::LocalEndpoint;

pub(super) static KIND: Kind = Kind {
    name: "least_requests",
    measures: false,
    make: |_, seed| Box::new(LeastRequests { last: (seed >> 40) as usize }),
};

/// How many endpoints are compared for a pick. Bounds its cost.
const LOOKED_AT: usize = 16;

struct LeastRequests {
    last: usize,
}

impl Balance for LeastRequests {
    fn pick(&mut self, from: &Candidates<'_>) -> Option<usize> {
        let n = from.endpoints.len();
        let at = |steps: usize| if self.last + steps < n { self.last + steps } else { self.last + steps - n };
        let step = (n / LOOKED_AT).max(1);
        let order = (0..n.min(LOOKED_AT)).map(|i| at(1 + i * step)).filter(|i| from.is_open(*i));
        let least = order.min_by(|&a, &b| {
            let (a, b) = (&from.endpoints[a], &from.endpoints[b]);
            // a.active / a.weight < b.active / b.weight, without dividing
            let left = u64::from(a.active.get()) * u64::from(b.endpoint.weight);
            left.cmp(&(u64::from(b.active.get()) * u64::from(a.endpoint.weight)))
        });
        self.last = least.or_else(|| (1..=n).map(at).find(|i| from.is_open(*i)))?;
        Some(self.last)
    }

    fn update(&mut self, endpoints: &[LocalEndpoint]) {
        self.last %= endpoints.len().max(1);
    }
}

#[cfg(test)]
mod tests {
    use crate::upstream::balance::testing::{balance, counts, endpoints, pick};

    #[test]
    fn of_fewer_endpoints_than_before_each_has_its_turn() {
        let five = endpoints(&[1; 5]);
        let mut balance = balance("least_requests", &five);
        assert!((0..5).any(|_| pick(&mut *balance, &five, &[]) == Some(4)));
        let two = endpoints(&[1; 2]);
        balance.update(&two);
        assert_eq!(counts(&mut *balance, &two, 100), [50, 50]);
    }

    #[test]
    fn weighs_and_takes_turns() {
        let endpoints = endpoints(&[1, 1, 4]);
        for (e, active) in endpoints.iter().zip([2, 1, 3]) {
            e.active.set(active);
        }
        let mut balance = balance("least_requests", &endpoints);
        assert_eq!(pick(&mut *balance, &endpoints, &[]), Some(2));
        endpoints.iter().for_each(|e| e.active.set(0));
        assert_eq!(counts(&mut *balance, &endpoints, 300), [100, 100, 100]);
    }

    #[test]
    fn attempts_under_way_are_shared_by_weight() {
        let endpoints = endpoints(&[1, 2, 3]);
        let mut balance = balance("least_requests", &endpoints);
        for _ in 0..60 {
            let chosen = &endpoints[pick(&mut *balance, &endpoints, &[]).unwrap()];
            chosen.active.set(chosen.active.get() + 1);
        }
        assert_eq!(endpoints.iter().map(|e| e.active.get()).collect::<Vec<_>>(), [10, 20, 30]);
    }

    #[test]
    fn a_busy_one_of_many_is_avoided() {
        let endpoints = endpoints(&[1; 100]);
        endpoints[..50].iter().for_each(|e| e.active.set(1));
        let counts = counts(&mut *balance("least_requests", &endpoints), &endpoints, 500);
        assert_eq!(counts[50..].iter().sum::<u32>(), 500, "{counts:?}");
    }
}
