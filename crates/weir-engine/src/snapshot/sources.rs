//! What the metrics and `weir status` say about sources of consumers.

use super::FilterStatus;
use weir_filter::directory::{Source, State};
use weir_telemetry::Figure;

static CONSUMERS: Figure =
    Figure::gauge("consumers", "weir_consumer_source_consumers", "Consumers that the source has.");
static CURRENT: Figure = Figure::gauge(
    "current",
    "weir_consumer_source_current",
    "1 if the consumers are what the source said last, 0 if it is away or says something wrong.",
);
static FAILURES: Figure = Figure::counter(
    "failures",
    "weir_consumer_source_failures",
    "Attempts to read the source that failed, or found a mistake.",
);

/// The figures of a source.
pub(super) fn readings(source: &Source) -> [FilterStatus; 3] {
    let status = source.status();
    let figures = [
        (&CONSUMERS, status.consumers as u64),
        (&CURRENT, u64::from(status.state == State::Current)),
        (&FAILURES, status.failures),
    ];
    figures.map(|(figure, value)| FilterStatus {
        place: format!("consumer_sources.{}", source.name()),
        filter: "consumers",
        what: figure.what,
        of: String::new(),
        value,
        figure,
    })
}
