//! Hands out rows of data sets to the users of all threads.

use std::sync::atomic::{AtomicU64, Ordering};
use weir_agents::Share;
use weir_plan::{AtEnd, DataSet, Pick};

/// The places in all data sets of a plan. A row of a set with `pick: once` is handed out once, whatever the threads do.
#[derive(Debug)]
pub(crate) struct Dealer {
    next: Vec<AtomicU64>,
    /// Which rows are those of this agent.
    share: Share,
}

/// The result of asking for a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dealt {
    /// All rows are used, and the plan says that this is an error.
    Failed,
    /// All rows are used, which ends the scenario.
    Over,
    Row(u32),
}

impl Dealer {
    pub(crate) fn new(sets: usize, share: Share) -> Self {
        Self { next: (0..sets).map(|_| AtomicU64::new(0)).collect(), share }
    }

    /// A row of the set with this number, for this user.
    pub(crate) fn deal(&self, number: usize, set: &DataSet, user: u64, random: &mut fastrand::Rng) -> Dealt {
        let rows = u64::from(set.rows());
        let Some(next) = self.next.get(number).filter(|_| rows > 0) else { return Dealt::Over };
        let at = match set.pick {
            Pick::Random => random.u64(..rows),
            Pick::PerUser => user,
            Pick::Once | Pick::Sequential => self.share.number(next.fetch_add(1, Ordering::Relaxed)),
        };
        let at = match (at < rows, set.at_end) {
            (true, _) => at,
            (false, AtEnd::Wrap) => at % rows,
            (false, AtEnd::Stop) => return Dealt::Over,
            (false, AtEnd::Fail) => return Dealt::Failed,
        };
        u32::try_from(at).map_or(Dealt::Over, Dealt::Row)
    }
}
