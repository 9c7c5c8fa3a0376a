//! Hands out rows of data sets to the users of all threads.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use weir_agents::Share;
use weir_plan::{AtEnd, DataSet, Pick};

/// The places in all data sets of a plan. A row of a set with `pick: once` is handed out once, whatever the threads do.
#[derive(Debug)]
pub(crate) struct Dealer {
    places: Vec<Place>,
    /// Which rows are those of this agent.
    share: Share,
}

/// The place in one set.
#[derive(Debug, Default)]
struct Place {
    next: AtomicU64,
    /// Rows that were handed back unused, and how many: reading the number costs no lock.
    back: Mutex<Vec<u32>>,
    back_count: AtomicUsize,
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
        Self { places: (0..sets).map(|_| Place::default()).collect(), share }
    }

    /// A row of the set with this number, for this user.
    pub(crate) fn deal(&self, number: usize, set: &DataSet, user: u64, random: &mut fastrand::Rng) -> Dealt {
        let rows = u64::from(set.rows());
        let Some(place) = self.places.get(number).filter(|_| rows > 0) else { return Dealt::Over };
        if let Some(row) = place.take_back() {
            return Dealt::Row(row);
        }
        let at = match set.pick {
            Pick::Random => random.u64(..rows),
            Pick::PerUser => user,
            Pick::Once | Pick::Sequential => self.share.number(place.next.fetch_add(1, Ordering::Relaxed)),
        };
        let at = match (at < rows, set.at_end) {
            (true, _) => at,
            (false, AtEnd::Wrap) => at % rows,
            (false, AtEnd::Stop) => return Dealt::Over,
            (false, AtEnd::Fail) => return Dealt::Failed,
        };
        u32::try_from(at).map_or(Dealt::Over, Dealt::Row)
    }

    /// Takes back a row that nobody used: another set had none for the same iteration.
    pub(crate) fn take_back(&self, number: usize, set: &DataSet, row: u32) {
        let Some(place) = self.places.get(number).filter(|_| set.pick == Pick::Once) else { return };
        let mut back = place.back.lock().unwrap_or_else(PoisonError::into_inner);
        back.push(row);
        place.back_count.store(back.len(), Ordering::Release);
    }
}

impl Place {
    fn take_back(&self) -> Option<u32> {
        if self.back_count.load(Ordering::Acquire) == 0 {
            return None;
        }
        let mut back = self.back.lock().unwrap_or_else(PoisonError::into_inner);
        let row = back.pop();
        self.back_count.store(back.len(), Ordering::Release);
        row
    }
}
