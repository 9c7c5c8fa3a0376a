//! The load tester: a plan is run, a report comes out, and the report says whether it can be believed.
//!
//! *Layout.* `report` is the data model of everything a run yields; whatever is printed, in our layout or in another tool's,
//! is computed from it and from nothing else. `histogram` is the one way in which times are kept.
//!
//! *Architecture Invariant:* a report holds raw counts, sums and histograms, never only what was computed from them, so
//! that each printed figure can be computed again from a saved report.

pub mod histogram;
pub mod report;

pub use histogram::Histogram;
pub use report::Report;
