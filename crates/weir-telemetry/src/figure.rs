//! Metrics of filters: for each figure, its metric family, type and unit.

/// One kind of figure that a filter reports. A static beside the filter's `readings`.
#[derive(Debug, PartialEq, Eq)]
pub struct Figure {
    /// Its name in `weir status`, such as `hits`.
    pub what: &'static str,
    /// The name of its family without the `_total` of counters, such as `weir_cache_hits`. Ends in the unit if there
    /// is one.
    pub family: &'static str,
    /// Whether it is a counter or a gauge.
    pub kind: FigureKind,
    /// `bytes`, or empty for a plain number.
    pub unit: &'static str,
    /// The label beside `place` that names the measured thing, such as `upstream`; empty if there is only one.
    pub of: &'static str,
    /// The family's help text: no quotes, backslashes or line breaks.
    pub help: &'static str,
}

/// The type of a figure's family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FigureKind {
    /// Only grows; its family ends in `_total`.
    Counter,
    /// May go up and down, or represents a state.
    Gauge,
}

impl Figure {
    /// A counter of events.
    pub const fn counter(what: &'static str, family: &'static str, help: &'static str) -> Self {
        Self { what, family, kind: FigureKind::Counter, unit: "", of: "", help }
    }

    /// A current value.
    pub const fn gauge(what: &'static str, family: &'static str, help: &'static str) -> Self {
        Self { kind: FigureKind::Gauge, ..Self::counter(what, family, help) }
    }

    /// The same figure, in bytes.
    #[must_use]
    pub const fn bytes(self) -> Self {
        Self { unit: "bytes", ..self }
    }

    /// The same figure, with a label that names the measured thing.
    #[must_use]
    pub const fn of(self, label: &'static str) -> Self {
        Self { of: label, ..self }
    }
}
