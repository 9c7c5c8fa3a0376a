//! `ewma`: of two endpoints drawn by weight, the one expected to answer sooner: its latency (see
//! [`Latency`](crate::upstream::latency::Latency)) times the attempts that share it.
//!
//! Two are drawn instead of comparing all: the cost does not grow with their number, and requests do not all rush to
//! the one that was fastest last.

use super::draw::Draw;
use super::{Balance, Candidates, Kind, Random};
use crate::upstream::endpoint::LocalEndpoint;
use crate::upstream::latency::Latency;

pub(super) static KIND: Kind = Kind {
    name: "ewma",
    measures: true,
    make: |_, seed| Box::new(Ewma { random: Random::new(seed), draw: Draw::default() }),
};

/// The second endpoint is chosen if it costs less than this share of the first. Smaller differences are noise. If
/// they decided, one of two equal endpoints would get all requests, whatever the weights.
const CLEARLY_LESS: f64 = 0.8;

struct Ewma {
    random: Random,
    draw: Draw,
}

impl Balance for Ewma {
    fn pick(&mut self, from: &Candidates<'_>) -> Option<usize> {
        let a = self.draw.draw(&mut self.random, from)?;
        let Some(b) = self.draw.draw_other(&mut self.random, from, a) else { return Some(a) };
        let (one, other) = (&from.endpoints[a], &from.endpoints[b]);
        let (Some(of_one), Some(of_other)) = (&one.latency, &other.latency) else { return Some(a) };
        let (of_one, of_other) = Latency::compare(of_one, of_other);
        let cost_of_one = of_one * (1.0 + self.draw.load(a, one));
        let cost_of_other = of_other * (1.0 + self.draw.load(b, other));
        Some(if cost_of_other < cost_of_one * CLEARLY_LESS { b } else { a })
    }

    fn update(&mut self, endpoints: &[LocalEndpoint]) {
        self.draw = Draw::new(endpoints);
    }
}

#[cfg(test)]
mod tests {
    use crate::upstream::balance::testing::{balance, counts, endpoints};
    use std::time::{Duration, Instant};

    #[test]
    fn small_differences_leave_the_shares_to_the_weights() {
        let endpoints = endpoints(&[1, 3]);
        for (e, ms) in endpoints.iter().zip([100, 110]) {
            e.latency.as_ref().unwrap().observe(Duration::from_millis(ms), Instant::now());
        }
        let shares = counts(&mut *balance("ewma", &endpoints), &endpoints, 4000);
        assert!(shares[1].abs_diff(3000) < 200, "{shares:?}");
    }

    #[test]
    fn prefers_who_answers_sooner() {
        let endpoints = endpoints(&[1, 1, 1]);
        let observe = |i: usize, ms| {
            let latency = endpoints[i].latency.as_ref().unwrap();
            latency.observe(Duration::from_millis(ms), Instant::now());
        };
        let mut balance = balance("ewma", &endpoints);
        let mut shares = || counts(&mut *balance, &endpoints, 3000);
        (0..3).for_each(|i| observe(i, 100));
        assert!(shares().iter().all(|n| (850..1150).contains(n)), "equals share alike");
        observe(0, 1000);
        let slow = shares();
        // It loses against either of the others, but would be chosen if both were out.
        assert!(slow[0] == 0 && slow[1..].iter().all(|n| (1300..1700).contains(n)), "{slow:?}");
        // A fast endpoint with many running attempts is a slow one.
        endpoints[1].active.set(50);
        let busy = shares();
        assert!(busy[1] == 0 && busy[0] > 800, "{busy:?}");
    }
}
