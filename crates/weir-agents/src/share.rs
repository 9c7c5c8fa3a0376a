//! An agent's share of a load: every count, start, user and row of data belongs to exactly one agent.

use serde::{Deserialize, Serialize};

/// Agent `index` of `of`: it takes the numbers `index`, `index + of`, and so on. One process alone is 0 of 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Share {
    /// From 0.
    pub index: u32,
    /// At least 1.
    pub of: u32,
}

impl Default for Share {
    fn default() -> Self {
        Self::WHOLE
    }
}

impl Share {
    /// The whole load.
    pub const WHOLE: Self = Self { index: 0, of: 1 };

    /// Whether it is one of a load's shares.
    pub const fn is_sound(self) -> bool {
        self.of >= 1 && self.index < self.of
    }

    /// How many of the first `all` numbers belong to it. Over all agents these add up to `all`.
    pub const fn part(self, all: u64) -> u64 {
        all.saturating_sub(self.index as u64).div_ceil(if self.of == 0 { 1 } else { self.of as u64 })
    }

    /// The number in the whole load of this agent's number `own` (from 0).
    pub const fn number(self, own: u64) -> u64 {
        (self.index as u64).saturating_add((self.of as u64).saturating_mul(own))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_belongs_to_one_agent_and_parts_add_up() {
        for of in 1..8 {
            for all in 0..40u64 {
                let shares: Vec<Share> = (0..of).map(|index| Share { index, of }).collect();
                let mut numbers: Vec<u64> =
                    shares.iter().flat_map(|s| (0..s.part(all)).map(|own| s.number(own))).collect();
                numbers.sort_unstable();
                assert_eq!(numbers, (0..all).collect::<Vec<_>>(), "{all} among {of}");
                let parts = shares.iter().map(|s| s.part(all));
                let (least, most) = (parts.clone().min(), parts.max());
                assert!(most.unwrap_or(0) - least.unwrap_or(0) <= 1, "{all} among {of}");
            }
        }
    }
}
