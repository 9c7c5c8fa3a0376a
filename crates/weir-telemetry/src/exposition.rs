//! `/metrics`: everything that is counted, as Prometheus text or OpenMetrics.

use crate::registry::Telemetry;

/// The format of a page of metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exposition {
    /// OpenMetrics 1.0.
    OpenMetrics,
    /// Prometheus text format 0.0.4.
    Text,
}

impl Exposition {
    /// The value of Content-Type.
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// Chooses the format by the value of an Accept header; Prometheus text where it says nothing or nothing we have.
pub fn negotiate(_accept: &str) -> Exposition {
    Exposition::Text
}

/// Writes the whole page.
pub(crate) fn page(_telemetry: &Telemetry, _format: Exposition) -> String {
    String::new()
}
