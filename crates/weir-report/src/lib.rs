//! What a load test found: the report, what is computed from it, what is printed of it, and whether it can be believed. There is no engine
//! here: a saved report is all that it takes.
//!
//! *Layout.* `report` is the data model of everything a run yields; whatever is printed, in our `layout` or in another tool's, is computed
//! from it and from nothing else. `histogram` is the one way in which times are kept, `threshold` a condition on a run, `verdict` judges.
//! `work` says whether targets did the same, `comparison` what a comparison of targets found, `knee` what a search for the highest rate did,
//! `bench` what each part of a gateway costs. `page` and its plots are for those that print HTML, `units` for all that read and print values.
//! weir-load makes the load.
//!
//! *Architecture Invariant:* a report holds raw counts, sums and histograms, never only what was computed from them, so
//! that each printed figure can be computed again from a saved report.

pub mod bench;
pub mod comparison;
pub mod histogram;
pub mod knee;
pub mod layout;
mod mistake;
mod page;
pub mod published;
pub mod report;
mod threshold;
pub mod units;
pub mod verdict;
mod work;

pub use bench::Bench;
pub use comparison::Comparison;
pub use histogram::Histogram;
pub use knee::Knee;
pub use mistake::Mistake;
pub use report::Report;
pub use threshold::Threshold;
pub use units::{duration, rate};
pub use work::Work;
