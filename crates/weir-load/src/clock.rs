//! A run's time: nanoseconds since its base, from the monotonic clock.

use crate::os;
use std::time::{Duration, Instant};

/// Nanoseconds since the base of a run. All threads read the same number at the same moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    /// The base, as [`os::monotonic_ns`] and the runtime's timers know it.
    base_ns: u64,
    base: Instant,
}

/// A moment that never comes.
pub(crate) const NEVER: u64 = u64::MAX;

impl Clock {
    /// A clock that reads 0 now.
    pub(crate) fn start() -> Self {
        Self { base_ns: os::monotonic_ns(), base: Instant::now() }
    }

    #[inline]
    pub(crate) fn now(self) -> u64 {
        os::monotonic_ns().saturating_sub(self.base_ns)
    }

    /// The moment as an `Instant` for the runtime's timers.
    pub(crate) fn instant(self, at: u64) -> Option<Instant> {
        self.base.checked_add(Duration::from_nanos(at))
    }
}

/// A duration in nanoseconds; 584 years and more become [`NEVER`].
#[inline]
pub(crate) fn nanos(d: Duration) -> u64 {
    d.as_secs().saturating_mul(1_000_000_000).saturating_add(u64::from(d.subsec_nanos()))
}
