//! A fleet: many gateways that follow one config. The messages between them, and how each decides what to do next.
//!
//! ```text
//!   weir fleet publish ─► bundle (immutable, named by digest) ─┐           ┌─► Follower  ─► fetch, check, run, keep
//!                         pointer (which bundle, which steps) ─┼─► etcd ───┼─► Session   ─► nodes/<id> under a lease
//!                                                              │           └─► Coordinator ─► opens or halts steps
//! ```
//!
//! *Layout:* `bundle` (with `tar`) is the config in transit; `cache` is the last good one on disk. `pointer` says
//! which node runs what; `plan` makes new pointers. `follower`, `session` and `coordinator` are state machines:
//! `on(now, event) -> actions`, without I/O, threads or clocks, so that weir-sim runs ten thousand of them in one
//! thread. So are those of `limits`, which nodes enforce together. `etcd` holds the requests to etcd, in the JSON of
//! `kv`, which weir-discover uses too. `weight` detects bundles that cost too much.
//!
//! *Architecture Invariant:* this crate knows neither the gateway nor a socket.

pub mod bundle;
pub mod cache;
pub mod chance;
pub mod coordinator;
pub mod digest;
pub mod etcd;
pub mod follower;
pub mod kv;
pub mod limits;
pub mod plan;
pub mod pointer;
pub mod report;
pub mod session;
mod tar;
pub mod weight;

pub use bundle::Bundle;
pub use cache::Cache;
pub use chance::Chance;
pub use coordinator::Coordinator;
pub use digest::Digest;
pub use follower::Follower;
pub use pointer::Pointer;
pub use report::NodeReport;
pub use session::Session;
pub use weight::Weight;

/// A time: the duration since some instant that stays the same while the process runs. Only differences count, so a
/// wrong or adjusted clock does no harm.
pub type Time = std::time::Duration;
