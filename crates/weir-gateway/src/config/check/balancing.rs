//! Checks of how upstreams spread their requests.

use super::Checker;
use crate::config::schema::{Endpoint, EndpointAddress, Upstream};

impl Checker<'_> {
    pub(super) fn balancing(&mut self, path: &str, upstream: &Upstream) {
        let list = format!("{path}.endpoints");
        if self.is_whole(&list, upstream.endpoints.len()) {
            self.priorities(&list, &upstream.endpoints);
            self.zones(&list, &upstream.endpoints);
        }
    }

    /// A warning for an endpoint that is alone in its priority: what was meant to move by share moves all at once.
    fn priorities(&mut self, list: &str, endpoints: &[Endpoint]) {
        if endpoints.iter().all(|other| other.priority == endpoints[0].priority) {
            return;
        }
        for (index, endpoint) in endpoints.iter().enumerate() {
            // A name may have any number of addresses.
            let is_name = matches!(endpoint.address, EndpointAddress::Name { .. });
            let is_alone = endpoints.iter().filter(|other| other.priority == endpoint.priority).count() == 1;
            if is_alone && !is_name {
                let message = format!(
                    "{} is the only endpoint of priority {}: nothing shares its load when it is unwell",
                    endpoint.address, endpoint.priority
                );
                let hint = "give another endpoint the same priority";
                self.warn(&format!("{list}[{index}]"), "alone-in-priority", message, hint);
            }
        }
    }

    /// A warning for zones that cannot count.
    fn zones(&mut self, list: &str, endpoints: &[Endpoint]) {
        let placed = endpoints.iter().position(|endpoint| endpoint.zone.is_some());
        if let (Some(index), None) = (placed, &self.config.zone) {
            let message = "zones of endpoints do not count, because this gateway has none";
            let hint = "say where it stands with `zone` at the top of the config";
            self.warn(&format!("{list}[{index}].zone"), "zone-without-own", message, hint);
        }
    }
}
