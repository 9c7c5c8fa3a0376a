//! Endpoints that the program around the gateway supplies change without a reload.

use super::Control;
use std::collections::HashSet;

impl Control {
    /// Publishes what is supplied to these upstreams now. Nothing happens to names that no running upstream has.
    pub(crate) fn resupply(&self, upstreams: &HashSet<&str>) {
        let Some(supplied) = &self.config.supplied else { return };
        for upstream in self.snapshot.upstreams.iter().filter(|known| upstreams.contains(&*known.name)) {
            if let (Some(registry), Some(supply)) = (&upstream.registry, supplied.get(&upstream.name)) {
                registry.supply(&supply.endpoints, &upstream.published, &self.telemetry);
            }
        }
    }
}
