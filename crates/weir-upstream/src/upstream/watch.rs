//! What happens to upstreams without a request: once a second, on the control thread, drains and ejections that are over
//! end, budgets note how many requests there have been, and it is said where too few endpoints are in rotation.

use super::rotation::is_panicking;
use super::spec::Upstream;
use arc_swap::ArcSwap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_telemetry::log;

/// The upstreams of the snapshot that runs.
pub type Watched = Arc<ArcSwap<Vec<Arc<Upstream>>>>;

/// How often is looked. Requests look for themselves, so this is for those who only watch.
const EVERY: Duration = Duration::from_secs(1);

/// Looks until dropped.
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
        log::warn("too few endpoints in rotation: unwell ones are used too", fields);
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

    /// Whether so few of its endpoints are in rotation that unwell ones are used too.
    pub fn is_panicking(&self) -> bool {
        let list = self.published.list();
        is_panicking(list.iter().map(|endpoint| (endpoint.place.rank(), endpoint.health.standing())))
    }
}
