//! Random numbers from a seed, so that a simulation is repeatable. They spread load; no secret depends on them.

use fastrand::Rng;
use std::time::Duration;

/// A sequence of random numbers from a seed.
#[derive(Clone, Debug)]
pub struct Chance(Rng);

impl Chance {
    /// Starts the sequence of this seed.
    pub const fn new(seed: u64) -> Self {
        Self(Rng::with_seed(seed))
    }

    /// The next number.
    pub fn number(&mut self) -> u64 {
        self.0.u64(..)
    }

    /// A number below `end`; 0 if `end` is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        if end == 0 { 0 } else { self.0.u64(..end) }
    }

    /// A duration from `from` up to `to`, in whole milliseconds.
    pub fn between(&mut self, from: Duration, to: Duration) -> Duration {
        let span = u64::try_from(to.saturating_sub(from).as_millis()).unwrap_or(u64::MAX - 1);
        from + Duration::from_millis(self.below(span + 1))
    }

    /// True in `percent` of 100 cases.
    pub fn happens(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// How long to wait after this many consecutive failures: doubles from 250 ms up to 5 s, minus a random part of up to
/// half. So a thousand nodes do not come back at the same time.
pub fn backoff(failures: u32, chance: &mut Chance) -> Duration {
    const FIRST: Duration = Duration::from_millis(250);
    const LONGEST: Duration = Duration::from_secs(5);
    let full = FIRST.saturating_mul(1 << failures.saturating_sub(1).min(10)).min(LONGEST);
    chance.between(full / 2, full)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_says_all() {
        let numbers = |seed| {
            let mut chance = Chance::new(seed);
            [chance.number(), chance.number()]
        };
        assert_eq!(numbers(7), numbers(7));
        assert_ne!(numbers(7), numbers(8));
    }

    #[test]
    fn waits_grow_up_to_a_limit() {
        let mut chance = Chance::new(1);
        for (failures, from, to) in
            [(1, 125, 250), (2, 250, 500), (5, 2_000, 4_000), (6, 2_500, 5_000), (99, 2_500, 5_000)]
        {
            for _ in 0..50 {
                let wait = backoff(failures, &mut chance).as_millis();
                assert!((from..=to).contains(&wait), "{failures} {wait}");
            }
        }
    }
}
