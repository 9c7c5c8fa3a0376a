//! Counts what happened to data for a collector. Written by the exporter, off the request path.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The counts of one kind of data: spans, or log records.
#[derive(Debug, Default)]
pub struct Exported {
    sent: AtomicU64,
    lost: [AtomicU64; Lost::ALL.len()],
}

/// Why data was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lost {
    /// The collector was unavailable for too long.
    Failed,
    /// The collector rejected it.
    Rejected,
    /// Too much was waiting already.
    Slow,
}

impl Lost {
    /// Every reason, in numeric order.
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
    /// Counts data that a collector accepted.
    pub fn sent(&self, count: u64) {
        self.sent.fetch_add(count, Relaxed);
    }

    /// Counts lost data.
    pub fn lose(&self, why: Lost, count: u64) {
        self.lost[why as usize].fetch_add(count, Relaxed);
    }

    /// Accepted so far.
    pub fn total(&self) -> u64 {
        self.sent.load(Relaxed)
    }

    /// Lost so far for this reason.
    pub fn lost_by(&self, why: Lost) -> u64 {
        self.lost[why as usize].load(Relaxed)
    }

    /// Lost so far.
    pub fn lost(&self) -> u64 {
        Lost::ALL.into_iter().map(|why| self.lost_by(why)).sum()
    }
}
