//! `round_robin`: smooth and weighted. Endpoints take turns, heavy ones more often but never in a burst.
//!
//! Endpoints with the same weight form a ring. Each pick adds every ring's weight (the sum of its endpoints) to the
//! ring's running total. It picks the ring with the largest total and subtracts the sum of all weights from it, as
//! nginx does per endpoint. So a pick costs as much as there are different weights, not endpoints. With weights 5, 1,
//! 1 the order is a b a a a c a.

use super::{Balance, Candidates, Kind};
use crate::upstream::endpoint::LocalEndpoint;
use std::collections::BTreeMap;

pub(super) static KIND: Kind = Kind {
    name: "round_robin",
    measures: false,
    make: |_, seed| Box::new(RoundRobin { begin: seed, rings: Vec::new(), total: 0 }),
};

/// How many turns of endpoints that are not open are skipped before all are searched.
const MAX_SKIPPED: u32 = 8;

struct RoundRobin {
    /// Where the rings start, so that the cores do not all start at the same endpoint or restart at each change of
    /// the endpoints.
    begin: u64,
    rings: Vec<Ring>,
    total: i64,
}

struct Ring {
    /// The sum of its endpoints' weights.
    weight: i64,
    current: i64,
    members: Vec<u32>,
    next: usize,
}

impl Balance for RoundRobin {
    fn pick(&mut self, from: &Candidates<'_>) -> Option<usize> {
        // A retry uses nobody's turn. Otherwise one of two endpoints would get all first attempts, and the other
        // those that failed there.
        let skipped = if from.again { 0 } else { MAX_SKIPPED };
        for _ in 0..skipped {
            let i = self.turn()?;
            if from.is_open(i) {
                return Some(i);
            }
        }
        self.search(from)
    }

    fn update(&mut self, endpoints: &[LocalEndpoint]) {
        let mut members: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for (i, e) in endpoints.iter().enumerate() {
            members.entry(e.endpoint.weight.max(1)).or_default().push(i as u32);
        }
        self.begin = self.begin.wrapping_add(self.rings.iter().map(|ring| ring.next as u64).sum());
        let begin = self.begin;
        let ring = |(weight, members): (u32, Vec<u32>)| Ring {
            weight: i64::from(weight) * members.len() as i64,
            current: 0,
            next: (begin % members.len() as u64) as usize,
            members,
        };
        // Among equals the heavier first.
        self.rings = members.into_iter().rev().map(ring).collect();
        self.total = self.rings.iter().map(|ring| ring.weight).sum();
    }
}

impl RoundRobin {
    fn turn(&mut self) -> Option<usize> {
        let mut best = 0;
        for i in 0..self.rings.len() {
            self.rings[i].current += self.rings[i].weight;
            if self.rings[i].current > self.rings[best].current {
                best = i;
            }
        }
        let total = self.total;
        let ring = self.rings.get_mut(best)?;
        ring.current -= total;
        let chosen = *ring.members.get(ring.next)?;
        ring.next = if ring.next + 1 == ring.members.len() { 0 } else { ring.next + 1 };
        Some(chosen as usize)
    }

    /// The next open endpoint, in the ring whose turn is nearest.
    fn search(&mut self, from: &Candidates<'_>) -> Option<usize> {
        let open = |ring: &Ring| {
            let n = ring.members.len();
            let mut places = (0..n).map(|step| (ring.next + step) % n);
            places.find(|place| from.is_open(ring.members[*place] as usize))
        };
        let found = self.rings.iter_mut().filter_map(|ring| open(ring).map(|place| (ring, place)));
        let (ring, place) = found.max_by_key(|(ring, _)| ring.current)?;
        if !from.again {
            ring.next = (place + 1) % ring.members.len();
        }
        Some(ring.members[place] as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::balance::testing::{counts, endpoints, pick};
    use crate::upstream::excluded::Excluded;

    fn balance(endpoints: &[LocalEndpoint]) -> RoundRobin {
        let mut balance = RoundRobin { begin: 0, rings: Vec::new(), total: 0 };
        balance.update(endpoints);
        balance
    }

    #[test]
    fn is_smooth() {
        let order = |weights: &[u32]| {
            let endpoints = endpoints(weights);
            let mut balance = balance(&endpoints);
            let picks = weights.iter().sum::<u32>();
            (0..picks).map(|_| pick(&mut balance, &endpoints, &[]).unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(order(&[5, 1, 1]), [0, 1, 0, 0, 0, 2, 0]);
        assert_eq!(order(&[1, 1, 1]), [0, 1, 2]);
        assert_eq!(order(&[1, 3]), [1, 1, 0, 1]);
    }

    #[test]
    fn shares_are_exact() {
        let endpoints = endpoints(&[3, 1, 3, 2, 1]);
        assert_eq!(counts(&mut balance(&endpoints), &endpoints, 1000), [300, 100, 300, 200, 100]);
    }

    #[test]
    fn those_that_are_left_share_the_turns() {
        let endpoints = endpoints(&[100, 1, 1]);
        let mut balance = balance(&endpoints);
        let (out, tried) = (Excluded::from_iter([0]), Excluded::default());
        let mut left = || balance.pick(&Candidates::new(&endpoints, Some(&out), &tried, None)).unwrap();
        let counts = (0..100).map(|_| left()).fold([0; 3], |mut counts, i| {
            counts[i] += 1;
            counts
        });
        assert_eq!(counts, [0, 50, 50]);
    }

    #[test]
    fn a_second_attempt_takes_no_turn() {
        let endpoints = endpoints(&[1, 1]);
        let mut balance = balance(&endpoints);
        let mut request = || {
            let first = pick(&mut balance, &endpoints, &[]).unwrap();
            (first, pick(&mut balance, &endpoints, &[first]).unwrap())
        };
        assert_eq!([request(), request(), request()], [(0, 1), (1, 0), (0, 1)]);
    }

    #[test]
    fn a_change_does_not_begin_anew() {
        let endpoints = endpoints(&[1, 1, 1, 1]);
        let mut balance = balance(&endpoints);
        assert_eq!(pick(&mut balance, &endpoints, &[]), Some(0));
        balance.update(&endpoints);
        assert_eq!(pick(&mut balance, &endpoints, &[]), Some(1));
    }
}
