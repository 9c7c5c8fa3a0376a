//! What was counted, for whoever shows it: the admin console looks every few seconds. `/metrics` tells all of it.

use super::Gateway;
use std::collections::BTreeMap;
use weir_telemetry::{RouteFigures, UpstreamFigures};

impl Gateway {
    /// What was counted so far of every route that was ever used; those without a series of their own together as `overflow`.
    pub fn figures(&self) -> Vec<(String, RouteFigures)> {
        self.inner.telemetry.all_figures()
    }

    /// What was counted so far of every upstream that was ever used, by name.
    pub fn upstream_figures(&self) -> BTreeMap<String, UpstreamFigures> {
        self.inner.telemetry.upstream_figures()
    }

    /// Responses that a consumer was sent so far, by status code; `None` where it has no series of its own.
    pub fn consumer_statuses(&self, consumer: &str) -> Option<BTreeMap<u16, u64>> {
        self.inner.telemetry.consumer_statuses(consumer)
    }
}
