//! The results of a load test: the report, its computed figures, its layouts, and whether it can be believed. The
//! engine is elsewhere; this crate needs only a saved report.
//!
//! *Layout.* `report` is the data model of a run's results. Every `layout`, ours or another tool's, is computed from
//! it alone. `histogram` stores times, `threshold` is a condition on a run, `verdict` judges. `work` compares the
//! work of targets. The results of several runs are `comparison` (of targets), `knee` (search for the highest rate)
//! and `bench` (cost of each part of a gateway). `page` and its plots serve the HTML output, `units` parses and
//! prints values. weir-load generates the load.
//!
//! *Architecture Invariant:* a report has raw counts, sums and histograms, never only derived values. Each printed
//! figure can thus be recomputed from a saved report.

pub mod bench;
pub mod comparison;
pub mod foreign;
pub mod histogram;
mod interval;
pub mod knee;
pub mod layout;
pub mod merge;
mod mistake;
mod page;
pub mod published;
pub mod report;
mod threshold;
pub mod units;
pub mod verdict;
mod work;
pub mod xml;

pub use bench::Bench;
pub use comparison::Comparison;
pub use histogram::Histogram;
pub use knee::Knee;
pub use mistake::Mistake;
pub use report::Report;
pub use threshold::Threshold;
pub use units::{duration, rate};
pub use work::Work;
