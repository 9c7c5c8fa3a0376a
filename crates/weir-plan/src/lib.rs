//! Scenario plans of the load tester: what `weir load -f plan.yaml` says, read, checked and ready to run.
//!
//! Pure: texts in, a checked [`Plan`] out; bytes of responses in, values out. This crate opens no socket, reads no
//! clock and starts no task; weir-load runs what it describes. Randomness and the time are arguments.
//!
//! *Layout.* `written` is the file as its author writes it; `read` turns it into a [`Plan`] and collects every mistake.
//! `plan` holds the types that an engine walks through: scenarios, steps, requests. At run time `scope` holds the
//! values of one user, and `template` writes requests from them. `keep` and `check` look at an [`Answer`], and
//! `condition` decides `if` and `while`. `cookie` is the jar of a user, `pause` draws waits, `data` has the rows of
//! data sets, and `shape` says when iterations begin. `path` (JSON), `origin` (URLs) and `grpc` (status codes) know
//! none of these.

mod answer;
mod check;
mod condition;
mod cookie;
mod data;
mod files;
mod filter;
pub mod grpc;
mod json_at;
mod keep;
pub mod limits;
mod loads;
mod origin;
mod path;
mod pause;
mod plan;
mod read;
mod scope;
pub mod shape;
mod template;
mod written;

pub use answer::Answer;
pub use check::{Check, CheckFailure};
pub use condition::Condition;
pub use cookie::CookieJar;
pub use data::{AtEnd, DataSet, Pick};
pub use files::{Disk, Files};
pub use keep::{Keep, KeepFailure, KeepProblem};
pub use loads::{Driven, PartName};
pub use origin::{BadUrl, Origin, Scheme, Url};
pub use pause::Pause;
pub use plan::{
    Awaits, Connections, Cookies, DataUse, Draw, Exec, Kind, Load, OnFailure, Part, Plan, Repeat, Request,
    Scenario, Step, StepId, StepInfo, StepKind, Target, Threshold, ThresholdOf,
};
pub use read::read;
pub use scope::{Scope, Shared, Slot, Value};
pub use template::{Template, WriteFailure};
pub use weir_config::{Diagnostic, Diagnostics, Mistakes, Source, variables_of};
pub use written::schema;
