//! What filters count and measure: for each figure the family of metrics that it belongs to, with its type and unit.

/// One kind of figure that a filter tells. A static beside the filter's `readings`.
#[derive(Debug, PartialEq, Eq)]
pub struct Figure {
    /// Its name in `weir status`, such as `hits`.
    pub what: &'static str,
    /// The name of its family without the suffix of counters, such as `weir_cache_hits`. Ends in the unit if there is one.
    pub family: &'static str,
    /// Whether it only grows.
    pub kind: FigureKind,
    /// `bytes`, or empty for a plain number.
    pub unit: &'static str,
    /// The label beside `place` that says of what it is, such as `upstream`; empty where there is only one.
    pub of: &'static str,
    /// The family's help: no quotes, backslashes or line breaks.
    pub help: &'static str,
}

/// The type of a figure's family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FigureKind {
    /// Only grows; its family ends in `_total`.
    Counter,
    /// May go up and down, or is a state.
    Gauge,
}

impl Figure {
    /// A count of what happened.
    pub const fn counter(what: &'static str, family: &'static str, help: &'static str) -> Self {
        Self { what, family, kind: FigureKind::Counter, unit: "", of: "", help }
    }

    /// What is at present.
    pub const fn gauge(what: &'static str, family: &'static str, help: &'static str) -> Self {
        Self { kind: FigureKind::Gauge, ..Self::counter(what, family, help) }
    }

    /// The same in bytes.
    #[must_use]
    pub const fn bytes(self) -> Self {
        Self { unit: "bytes", ..self }
    }

    /// The same with a label that says of what it is.
    #[must_use]
    pub const fn of(self, label: &'static str) -> Self {
        Self { of: label, ..self }
    }
}
