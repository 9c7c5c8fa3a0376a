//! `random`: each endpoint in proportion to its weight, whatever its load.

use super::draw::Draw;
use super::{Balance, Candidates, Kind, Random};
use crate::upstream::endpoint::LocalEndpoint;

pub(super) static KIND: Kind = Kind {
    name: "random",
    measures: false,
    make: |_, seed| Box::new(Weighted { random: Random::new(seed), draw: Draw::default() }),
};

struct Weighted {
    random: Random,
    draw: Draw,
}

impl Balance for Weighted {
    fn pick(&mut self, from: &Candidates<'_>) -> Option<usize> {
        self.draw.draw(&mut self.random, from)
    }

    fn update(&mut self, endpoints: &[LocalEndpoint]) {
        self.draw = Draw::new(endpoints);
    }
}

#[cfg(test)]
mod tests {
    use crate::upstream::balance::testing::{balance, counts, endpoints};

    #[test]
    fn spreads_by_weight_whatever_the_load() {
        let endpoints = endpoints(&[1, 2, 7]);
        endpoints[2].active.set(1000);
        let counts = counts(&mut *balance("random", &endpoints), &endpoints, 10_000);
        for (n, expected) in counts.iter().zip([1000u32, 2000, 7000]) {
            assert!(n.abs_diff(expected) < 300, "{counts:?}");
        }
    }
}
