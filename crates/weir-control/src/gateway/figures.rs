//! Counters for display: the admin console reads them every few seconds. `/metrics` has all of them.

use super::Gateway;
use std::collections::BTreeMap;
use weir_telemetry::{RouteFigures, UpstreamFigures};

impl Gateway {
    /// The counters of every route ever used. Routes without their own series are combined as `overflow`.
    pub fn figures(&self) -> Vec<(String, RouteFigures)> {
        self.inner.telemetry.all_figures()
    }

    /// The counters of every upstream ever used, by name.
    pub fn upstream_figures(&self) -> BTreeMap<String, UpstreamFigures> {
        self.inner.telemetry.upstream_figures()
    }

    /// Responses sent to a consumer, by status code; `None` if it has no series of its own.
    pub fn consumer_statuses(&self, consumer: &str) -> Option<BTreeMap<u16, u64>> {
        self.inner.telemetry.consumer_statuses(consumer)
    }
}
