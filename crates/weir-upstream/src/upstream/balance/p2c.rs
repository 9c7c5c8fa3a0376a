//! `p2c`: of two endpoints drawn at random, the one with fewer running attempts for its weight.
//!
//! The default. It is nearly as even as comparing all, at a cost that does not grow with their number. Requests do
//! not herd to the endpoint that looks least busy (Mitzenmacher: The power of two choices in randomized load
//! balancing, 2001).

use super::draw::Draw;
use super::{Balance, Candidates, Kind, Random};
use crate::upstream::endpoint::LocalEndpoint;

pub(super) static KIND: Kind =
    Kind { name: "p2c", measures: false, make: |_, seed| Box::new(P2c::new(seed)) };

pub(super) struct P2c {
    random: Random,
    draw: Draw,
}

impl P2c {
    pub(super) fn new(seed: u64) -> Self {
        Self { random: Random::new(seed), draw: Draw::default() }
    }
}

impl Balance for P2c {
    fn pick(&mut self, from: &Candidates<'_>) -> Option<usize> {
        let a = self.draw.draw(&mut self.random, from)?;
        let Some(b) = self.draw.draw_other(&mut self.random, from, a) else { return Some(a) };
        // Weights already decided how often each is drawn, so the load is compared relative to weight.
        let load = |i: usize| self.draw.load(i, &from.endpoints[i]);
        Some(if load(b) < load(a) { b } else { a })
    }

    fn update(&mut self, endpoints: &[LocalEndpoint]) {
        self.draw = Draw::new(endpoints);
    }
}

#[cfg(test)]
mod tests {
    use crate::upstream::balance::testing::{balance, counts, endpoints, pick};

    #[test]
    fn avoids_the_busy_one() {
        let endpoints = endpoints(&[1, 1]);
        endpoints[0].active.set(10);
        assert_eq!(counts(&mut *balance("p2c", &endpoints), &endpoints, 100), [0, 100]);
    }

    #[test]
    fn the_second_one_must_be_open_too() {
        let endpoints = endpoints(&[1, 1, 1]);
        endpoints[..2].iter().for_each(|e| e.active.set(5));
        let mut balance = balance("p2c", &endpoints);
        assert!((0..100).all(|_| pick(&mut *balance, &endpoints, &[2]) != Some(2)));
    }

    #[test]
    fn what_is_under_way_is_compared_by_weight() {
        let endpoints = endpoints(&[1, 9]);
        for (active, expected) in [([1, 8], [0, 100]), ([1, 10], [100, 0])] {
            endpoints.iter().zip(active).for_each(|(e, n)| e.active.set(n));
            assert_eq!(counts(&mut *balance("p2c", &endpoints), &endpoints, 100), expected, "{active:?}");
        }
    }

    #[test]
    fn spreads_by_weight_while_nothing_is_under_way() {
        let endpoints = endpoints(&[1, 2, 3, 4]);
        let counts = counts(&mut *balance("p2c", &endpoints), &endpoints, 10_000);
        for (n, expected) in counts.iter().zip([1000u32, 2000, 3000, 4000]) {
            assert!(n.abs_diff(expected) < 300, "{counts:?}");
        }
    }
}
