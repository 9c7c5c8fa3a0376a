//! Random numbers from a seed, so that a simulation can be repeated. They spread load; nothing secret rests on them.

use fastrand::Rng;
use std::time::Duration;

/// The numbers that a seed says.
#[derive(Clone, Debug)]
pub struct Chance(Rng);

impl Chance {
    /// From a seed.
    pub const fn new(seed: u64) -> Self {
        Self(Rng::with_seed(seed))
    }

    /// The next number.
    pub fn number(&mut self) -> u64 {
        self.0.u64(..)
    }

    /// One below `end`; 0 where that is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        if end == 0 { 0 } else { self.0.u64(..end) }
    }

    /// A time from `from` up to `to`, by the millisecond.
    pub fn between(&mut self, from: Duration, to: Duration) -> Duration {
        let span = u64::try_from(to.saturating_sub(from).as_millis()).unwrap_or(u64::MAX - 1);
        from + Duration::from_millis(self.below(span + 1))
    }

    /// True in `percent` of 100 cases.
    pub fn happens(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// How long to wait after so many failures in a row: doubling from 250 ms up to 5 s, of which a random half is left out, so that a thousand
/// nodes do not come back at the same moment.
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
