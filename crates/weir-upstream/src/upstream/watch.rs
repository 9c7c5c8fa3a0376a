//! Housekeeping of upstreams without a request: once a second, on the control thread. Ends drains and ejections whose
//! time is over, marks the number of requests for the budgets, and logs if too few endpoints are in rotation.

use super::rotation::is_panicking;
use super::spec::Upstream;
use arc_swap::ArcSwap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_telemetry::log;

/// The running snapshot's upstreams.
pub type Watched = Arc<ArcSwap<Vec<Arc<Upstream>>>>;

/// How often to check. Requests check for themselves, so this serves observers only.
const EVERY: Duration = Duration::from_secs(1);

/// Runs until dropped.
pub async fn watch(watched: Watched) {
    loop {
        tokio::time::sleep(EVERY).await;
        watched.load().iter().for_each(|upstream| look(upstream, Instant::now()));
    }
}

fn look(upstream: &Upstream, now: Instant) {
    upstream.budget.mark(now);
    let list = upstream.published.list();
    list.iter().for_each(|endpoint| endpoint.health.tick(now));
    let panicking = upstream.is_panicking();
    if !upstream.cells.set_panicking(panicking) {
        return;
    }
    let out = list.iter().filter(|endpoint| endpoint.health.is_out()).count();
    let fields: log::Fields<'_> = &[("upstream", &upstream.name), ("out", &out), ("of", &list.len())];
    if panicking {
        log::warn("too few endpoints in rotation: failing ones are used too", fields);
    } else {
        log::info("enough endpoints in rotation again", fields);
    }
}

impl Upstream {
    /// Whether readiness waits for an endpoint that passes its probe.
    pub fn awaits_probes(&self) -> bool {
        let wanted = self.probe.as_ref().is_some_and(|probe| probe.readyz);
        wanted && !self.published.list().iter().any(|endpoint| endpoint.health.verdict() == Some(true))
    }

    /// Whether so few of its endpoints are in rotation that unhealthy ones are used too.
    pub fn is_panicking(&self) -> bool {
        let list = self.published.list();
        is_panicking(list.iter().map(|endpoint| (endpoint.place.rank(), endpoint.health.standing())))
    }
}
