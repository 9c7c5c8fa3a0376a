//! `ewma`: of two endpoints drawn by weight, the one that is expected to answer sooner: its latency (see
//! [`Latency`](crate::upstream::latency::Latency)) times the attempts that share it.
//!
//! Two are drawn, not all compared: the cost does not grow with their number, and requests do not all run to the one that
//! was fastest last.

use super::draw::{Draw, weight};
use super::{Balance, Kind, Random};
use crate::upstream::endpoint::LocalEndpoint;
use crate::upstream::excluded::Excluded;
use std::time::Instant;

pub(super) static KIND: Kind = Kind {
    name: "ewma",
    measures: true,
    make: |seed| Box::new(Ewma { random: Random::new(seed), draw: Draw::default() }),
};

/// The second endpoint is taken if it costs less than this share of the first. Smaller differences are noise: if they
/// decided, one of two equal endpoints would get all requests, whatever the weights say.
const CLEARLY_LESS: f64 = 0.8;

struct Ewma {
    random: Random,
    draw: Draw,
}

impl Balance for Ewma {
    fn pick(&mut self, endpoints: &[LocalEndpoint], excluded: &Excluded) -> Option<usize> {
        let a = self.draw.draw(&mut self.random, endpoints, excluded)?;
        let mut without_a = excluded.clone();
        without_a.insert(a);
        let Some(b) = self.draw.draw(&mut self.random, endpoints, &without_a) else { return Some(a) };
        let now = Instant::now();
        let cost = |i: usize| {
            let e: &LocalEndpoint = &endpoints[i];
            let latency = e.latency.as_ref().map_or(0.0, |latency| latency.expected(now));
            latency * (1.0 + f64::from(e.active.get()) * self.draw.mean() / weight(e))
        };
        Some(if cost(b) < cost(a) * CLEARLY_LESS { b } else { a })
    }

    fn update(&mut self, endpoints: &[LocalEndpoint]) {
        self.draw = Draw::new(endpoints);
    }
}
