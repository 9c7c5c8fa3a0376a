//! Whether a node that joins a fleet has its certificates: `/readyz` waits for ACME certificates, within limits.

use super::Gateway;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};
use weir_telemetry::log;

/// How long readiness waits for certificates, from its first check. An authority may be down, or reach this node only
/// once the balancer does.
const PATIENCE: Duration = Duration::from_secs(30);

/// What readiness knows of certificates. It waits only once, whatever happens to the config later.
#[derive(Debug, Default)]
pub(super) struct Certificates {
    since: OnceLock<Instant>,
    is_over: AtomicBool,
}

impl Certificates {
    /// How many of the missing certificates it waits for now.
    fn awaited(&self, now: Instant, missing: impl FnOnce() -> usize) -> usize {
        if self.is_over.load(Relaxed) {
            return 0;
        }
        let since = *self.since.get_or_init(|| now);
        let missing = missing();
        if missing > 0 && now.saturating_duration_since(since) < PATIENCE {
            return missing;
        }
        if !self.is_over.swap(true, Relaxed) && missing > 0 {
            let seconds = PATIENCE.as_secs();
            log::warn("ready without certificates", &[("missing", &missing), ("waited_seconds", &seconds)]);
        }
        0
    }
}

impl Gateway {
    /// How many ACME certificates readiness waits for while clients get stand-ins. Only a fleet node waits, because
    /// others serve meanwhile; and for 30 s at most.
    pub fn awaited_certificates(&self) -> usize {
        if self.inner.fleet.get().is_none() {
            return 0;
        }
        let missing = || self.inner.acme.statuses().iter().filter(|status| status.stand_in).count();
        self.inner.certificates.awaited(Instant::now(), missing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificates_are_waited_for_and_not_for_ever() {
        let now = Instant::now();
        let awaits = Certificates::default();
        assert_eq!(awaits.awaited(now, || 2), 2);
        assert_eq!(awaits.awaited(now + PATIENCE / 2, || 1), 1);
        assert_eq!(awaits.awaited(now + PATIENCE, || 1), 0);
        assert_eq!(awaits.awaited(now, || 1), 0, "it waits once");
        // It waits no longer for certificates that have arrived, nor for those of a later config.
        let awaits = Certificates::default();
        assert_eq!(awaits.awaited(now, || 1), 1);
        assert_eq!(awaits.awaited(now, || 0), 0);
        assert_eq!(awaits.awaited(now, || 1), 0);
    }
}
