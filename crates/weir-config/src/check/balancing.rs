//! Checks of how upstreams spread their requests.

use super::Checker;
use crate::schema::{Endpoint, EndpointAddress, Sticky, Upstream};
use weir_h1::FieldName;

/// Minimum length of a key in bytes: 128 bits.
const LEAST_KEY: usize = 16;

impl Checker<'_> {
    pub(super) fn balancing(&mut self, path: &str, upstream: &Upstream) {
        let list = format!("{path}.endpoints");
        if self.is_whole(&list, upstream.endpoints.len()) {
            self.priorities(&list, &upstream.endpoints);
            self.zones(&list, &upstream.endpoints);
        }
        if let Some(lasts) = upstream.slow_start {
            self.must_last(&format!("{path}.slow_start"), lasts);
        }
        if let Some(sticky) = &upstream.sticky {
            self.sticky(&format!("{path}.sticky"), sticky);
        }
    }

    fn sticky(&mut self, path: &str, sticky: &Sticky) {
        if let Some(ttl) = sticky.ttl {
            self.must_last(&format!("{path}.ttl"), ttl);
        }
        // RFC 6265 §4.1.1: a cookie's name is a token, like a header field's.
        if FieldName::new(&sticky.cookie).is_err() {
            let message =
                format!("`{}` is not the name of a cookie; expected letters, digits and -_.", sticky.cookie);
            self.error(&format!("{path}.cookie"), "bad-value", message);
        }
        let same = |(_, other): &(&str, &Upstream)| {
            other.sticky.as_ref().is_some_and(|other| other.cookie == sticky.cookie)
        };
        let users: Vec<&str> = self.config.upstreams.iter().filter(same).map(|(name, _)| name).collect();
        if let [first, second, ..] = users[..]
            && path == format!("upstreams.{second}.sticky")
        {
            let message =
                format!("`{first}` has a cookie of the same name: on one site they overwrite each other");
            let at = if self.is_written(&format!("{path}.cookie")) { ".cookie" } else { "" };
            self.warn(
                &format!("{path}{at}"),
                "cookie-twice",
                message,
                "give each upstream a cookie of its own",
            );
        }
        let key = format!("{path}.key");
        if sticky.key.reveal().is_empty() {
            self.error(&key, "bad-value", "the key is empty: anyone could forge the cookie");
        } else if self.find(&key).is_some_and(|node| !node.substituted) {
            let hint = "write \"${STICKY}\" or \"${file:PATH}\"";
            self.warn(&key, "literal-credential", "the key is written in plain text in this file", hint);
        } else if sticky.key.reveal().len() < LEAST_KEY {
            let message = format!("the key has fewer than {LEAST_KEY} bytes: it can be found out by trying");
            self.warn(&key, "short-key", message, "create one with: openssl rand -hex 32");
        }
    }

    /// A warning for a sole endpoint in its priority: load that was meant to shift gradually shifts at once.
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
                    "{} is the only endpoint of priority {}: if it fails, all of its load moves at once",
                    endpoint.address, endpoint.priority
                );
                let hint = "give another endpoint the same priority";
                self.warn(&format!("{list}[{index}]"), "alone-in-priority", message, hint);
            }
        }
    }

    /// A warning if endpoints have zones but this gateway has none. A controller writes the zones that it finds.
    fn zones(&mut self, list: &str, endpoints: &[Endpoint]) {
        if self.config.ranked {
            return;
        }
        let placed = endpoints.iter().position(|endpoint| endpoint.zone.is_some());
        if let (Some(index), None) = (placed, &self.config.zone) {
            let message = "no zone is preferred, because this gateway has none; only retries use zones";
            let hint = "set this gateway's zone with `zone` at the top of the config";
            self.warn(&format!("{list}[{index}].zone"), "zone-without-own", message, hint);
        }
    }
}
