//! The load tester: a plan is run, a report comes out, and the report says whether it can be believed.
//!
//! ```no_run
//! use weir_load::{Interrupt, Options, Plan};
//!
//! let options = Options { urls: vec!["http://127.0.0.1:8080/".to_owned()], ..Options::default() };
//! let plan = Plan::new(&options).expect("a plan that can run");
//! let report = plan.run(&Interrupt::default(), |now| eprintln!("{} responses", now.so_far.counts.responses))?;
//! println!("{} {:.0}/s", report.verdict.grade, report.rate());
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! *Layout.* `options` reads what was written (with `url`, `units`, `check`, `threshold`, `template`, `curl`, `grpc`) and makes a `plan`. `engine` runs it: `pace` says when
//! requests begin, `clock` and `os` what time it is. `report` is the data model of everything a run yields; whatever is
//! printed, in our `layout` or in another tool's, is computed from it and from nothing else. `histogram` is the one way in which times are kept, `verdict`
//! judges, `cost` watches the target's process, `cores` who else had the processors. `work` says whether targets did the same, `compare` runs a plan on several targets in turn
//! (`comparison` is what it finds), `search` looks for the highest rate that holds (`knee`), `bench` tells what each part of a gateway costs, `ceiling` measures the generator itself. `remote_write` tells Prometheus how a run goes.
//!
//! *Architecture Invariant:* a report holds raw counts, sums and histograms, never only what was computed from them, so
//! that each printed figure can be computed again from a saved report.
//!
//! *Architecture Invariant:* pace and stop are values. There is one loop of a client (`engine/client.rs`), not one for each of
//! them.

pub mod bench;
pub mod ceiling;
mod check;
mod clock;
pub mod compare;
pub mod comparison;
mod cores;
mod cost;
mod curl;
mod engine;
mod grpc;
pub mod histogram;
pub mod knee;
pub mod layout;
mod mistake;
mod options;
mod os;
mod pace;
mod page;
mod plan;
mod progress;
pub mod published;
pub mod remote_write;
pub mod report;
mod search;
mod template;
mod threshold;
pub mod units;
mod url;
pub mod verdict;
mod work;

pub use bench::Bench;
pub use check::Check;
pub use compare::{Compare, CompareOptions};
pub use comparison::Comparison;
pub use engine::Interrupt;
pub use histogram::Histogram;
pub use knee::Knee;
pub use mistake::Mistake;
pub use options::Options;
pub use plan::Plan;
pub use progress::{Progress, SoFar};
pub use remote_write::RemoteWrite;
pub use report::Report;
pub use search::find_knee;
pub use threshold::Threshold;
pub use units::{duration, rate};
pub use work::Work;
