//! The load tester: it runs a plan and returns a report, which says whether it can be believed.
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
//! *Layout.* `options` parses the options (with `url`, `check`, `template`, `curl`, `schema`) and makes a `plan`.
//! `scenario` compiles plans with several steps, which weir-plan reads, and counts by step. `engine` runs all loads:
//! `pace` decides when requests begin (shapes are in weir-plan, `control` changes the rate by hand), `transport` holds
//! connections and their bytes, `clock` and `os` read the time. `cost` watches the target's process, `cores` the other
//! processes on the machine. `compare` runs a plan on several targets in turn, `search` finds the highest rate that
//! holds, `ceiling` measures the generator itself, `replay` sends recorded traffic again. `remote_write` sends progress
//! to Prometheus. The results, their verdict and their layouts are in weir-report.
//!
//! *Architecture Invariant:* pace and stop are values. There is one client loop (`engine/client.rs`), not one for
//! each of them.

pub mod agents;
pub mod ceiling;
mod check;
mod clock;
pub mod compare;
mod control;
mod cores;
mod cost;
mod curl;
mod engine;
mod grpc;
mod options;
mod os;
mod pace;
mod plan;
mod progress;
pub mod remote_write;
mod replay;
mod scenario;
mod schema;
mod search;
mod template;
mod throttle;
mod transport;
mod url;

pub use check::Check;
pub use compare::{Compare, CompareOptions};
pub use engine::{Interrupt, kill_programs};
pub use options::Options;
pub use plan::Plan;
pub use progress::{Progress, SoFar};
pub use remote_write::RemoteWrite;
pub use replay::ReplayOptions;
pub use scenario::Failed;
pub use search::find_knee;
pub use weir_report::{Comparison, Knee, Mistake, Report};
