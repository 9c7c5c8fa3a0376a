//! What became of what a collector was to be told. Written off the path of a request, by whoever sends.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Counts for one kind of thing: spans, or log records.
#[derive(Debug, Default)]
pub struct Exported {
    sent: AtomicU64,
    lost: [AtomicU64; Lost::ALL.len()],
}

/// Why something did not arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lost {
    /// The collector was away for too long.
    Failed,
    /// The collector refused it.
    Rejected,
    /// Too much was waiting already.
    Slow,
}

impl Lost {
    /// Every reason, in the order of their numbers.
    pub const ALL: [Self; 3] = [Self::Failed, Self::Rejected, Self::Slow];

    /// The label value.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::Rejected => "rejected",
            Self::Slow => "slow",
        }
    }
}

impl Exported {
    /// Counts what a collector took.
    pub fn sent(&self, count: u64) {
        self.sent.fetch_add(count, Relaxed);
    }

    /// Counts what it did not.
    pub fn lose(&self, why: Lost, count: u64) {
        self.lost[why as usize].fetch_add(count, Relaxed);
    }

    /// What was taken so far.
    pub fn total(&self) -> u64 {
        self.sent.load(Relaxed)
    }

    /// What was lost so far for a reason.
    pub fn lost_by(&self, why: Lost) -> u64 {
        self.lost[why as usize].load(Relaxed)
    }

    /// What was lost so far.
    pub fn lost(&self) -> u64 {
        Lost::ALL.into_iter().map(|why| self.lost_by(why)).sum()
    }
}
