//! What is counted of the health of an endpoint: why it is out of rotation, how often it was, and its probes.
//!
//! One block per endpoint and process, which any thread may write: it changes when an endpoint leaves or enters rotation and
//! when a probe ends, never with a request. An endpoint that was always well has none.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{SystemTime, UNIX_EPOCH};

/// Why an endpoint is out of rotation: the label `reason`. Several may hold at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutReason {
    /// An operator drains it.
    Draining,
    /// It answered badly.
    Ejected,
    /// An operator put it out.
    Out,
    /// Its probes fail.
    ProbeFailed,
    /// It cannot be connected to.
    Unreachable,
}

impl OutReason {
    /// Every reason, in the order of their numbers.
    pub const ALL: [Self; 5] =
        [Self::Draining, Self::Ejected, Self::Out, Self::ProbeFailed, Self::Unreachable];

    /// Its name in metrics, logs and `/status`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Draining => "draining",
            Self::Ejected => "ejected",
            Self::Out => "out",
            Self::ProbeFailed => "probe_failed",
            Self::Unreachable => "unreachable",
        }
    }

    /// The reason of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.name() == name)
    }
}

/// Which rule ejected an endpoint: the label `rule`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ejection {
    /// Its share of errors.
    ErrorRate,
    /// Errors in a row.
    ErrorsInARow,
}

impl Ejection {
    /// Every rule, in the order of their numbers.
    pub const ALL: [Self; 2] = [Self::ErrorRate, Self::ErrorsInARow];

    /// Its name in metrics, logs and `/status`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ErrorRate => "error_rate",
            Self::ErrorsInARow => "errors_in_a_row",
        }
    }
}

/// What is counted of an endpoint's health.
#[derive(Debug, Default)]
pub(crate) struct HealthCells {
    /// The second since 1970 from which on each reason holds; 0 where it does not.
    since: [AtomicU64; OutReason::ALL.len()],
    /// How often it left rotation for each reason.
    left: [AtomicU64; OutReason::ALL.len()],
    ejections: [AtomicU64; Ejection::ALL.len()],
    /// Probes that passed, and that failed.
    probes: [AtomicU64; 2],
}

impl HealthCells {
    /// Says that a reason begins to hold.
    pub(crate) fn begin(&self, reason: OutReason, since: SystemTime) {
        self.left[reason as usize].fetch_add(1, Relaxed);
        self.hold(reason, since);
    }

    /// Says that a reason holds, without counting it: the process before this one did.
    pub(crate) fn hold(&self, reason: OutReason, since: SystemTime) {
        let second = since.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs().max(1);
        self.since[reason as usize].store(second, Relaxed);
    }

    pub(crate) fn end(&self, reason: OutReason) {
        self.since[reason as usize].store(0, Relaxed);
    }

    pub(crate) fn eject(&self, rule: Ejection) {
        self.ejections[rule as usize].fetch_add(1, Relaxed);
    }

    pub(crate) fn probed(&self, passed: bool) {
        self.probes[usize::from(!passed)].fetch_add(1, Relaxed);
    }

    /// The reasons that hold, each with the second since which.
    pub(crate) fn holding(&self) -> impl Iterator<Item = (&'static str, u64)> {
        named(OutReason::ALL.map(OutReason::name), &self.since)
    }

    /// How often it left, by reason; those that never were are left out.
    pub(crate) fn left(&self) -> impl Iterator<Item = (&'static str, u64)> {
        named(OutReason::ALL.map(OutReason::name), &self.left)
    }

    /// How often it was ejected, by rule; those that never did are left out.
    pub(crate) fn ejections(&self) -> impl Iterator<Item = (&'static str, u64)> {
        named(Ejection::ALL.map(Ejection::name), &self.ejections)
    }

    /// How often it was probed, by outcome; what never was is left out.
    pub(crate) fn probes(&self) -> impl Iterator<Item = (&'static str, u64)> {
        named(["passed", "failed"], &self.probes)
    }
}

/// The numbers that are not 0, with their names.
fn named<const N: usize>(
    names: [&'static str; N],
    cells: &[AtomicU64; N],
) -> impl Iterator<Item = (&'static str, u64)> {
    let values: [u64; N] = std::array::from_fn(|i| cells[i].load(Relaxed));
    names.into_iter().zip(values).filter(|(_, value)| *value != 0)
}
