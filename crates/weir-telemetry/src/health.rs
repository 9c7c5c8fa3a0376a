//! Counts for the health of an endpoint: why it is out of rotation, how often that happened, and its probes.
//!
//! One block per endpoint and process, writable by any thread: it changes when an endpoint leaves or enters rotation
//! and when a probe ends, never on a request. An endpoint that was always healthy has none.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{SystemTime, UNIX_EPOCH};

/// Why an endpoint is out of rotation: the label `reason`. Several may apply at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutReason {
    /// An operator drains it.
    Draining,
    /// Outlier detection ejected it.
    Ejected,
    /// An operator took it out of rotation.
    Out,
    /// Its probes fail.
    ProbeFailed,
    /// It cannot be connected to.
    Unreachable,
}

impl OutReason {
    /// Every reason, in numeric order.
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

    /// Parses the name of a reason.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.name() == name)
    }
}

/// The rule that ejected an endpoint: the label `rule`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ejection {
    /// Its error rate.
    ErrorRate,
    /// Consecutive errors.
    ErrorsInARow,
}

impl Ejection {
    /// Every rule, in numeric order.
    pub const ALL: [Self; 2] = [Self::ErrorRate, Self::ErrorsInARow];

    /// Its name in metrics, logs and `/status`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ErrorRate => "error_rate",
            Self::ErrorsInARow => "errors_in_a_row",
        }
    }
}

/// The health counts of an endpoint.
#[derive(Debug, Default)]
pub(crate) struct HealthCells {
    /// The second since 1970 since which each reason applies; 0 if it does not.
    since: [AtomicU64; OutReason::ALL.len()],
    /// How often it left rotation, by reason.
    left: [AtomicU64; OutReason::ALL.len()],
    ejections: [AtomicU64; Ejection::ALL.len()],
    /// Passed probes, and failed probes.
    probes: [AtomicU64; 2],
}

impl HealthCells {
    /// Records that a reason starts to apply.
    pub(crate) fn begin(&self, reason: OutReason, since: SystemTime) {
        self.left[reason as usize].fetch_add(1, Relaxed);
        self.hold(reason, since);
    }

    /// Records that a reason applies without counting it: the previous process did.
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

    /// The reasons that apply, each with the second since which it does.
    pub(crate) fn holding(&self) -> impl Iterator<Item = (&'static str, u64)> {
        named(OutReason::ALL.map(OutReason::name), &self.since)
    }

    /// How often it left rotation, by reason; omits zeros.
    pub(crate) fn left(&self) -> impl Iterator<Item = (&'static str, u64)> {
        named(OutReason::ALL.map(OutReason::name), &self.left)
    }

    /// How often it was ejected, by rule; omits zeros.
    pub(crate) fn ejections(&self) -> impl Iterator<Item = (&'static str, u64)> {
        named(Ejection::ALL.map(Ejection::name), &self.ejections)
    }

    /// How often it was probed, by outcome; omits zeros.
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
