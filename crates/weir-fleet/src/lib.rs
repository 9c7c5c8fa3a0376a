//! A fleet: many gateways that follow one config. What is said between them, and how each decides what to do next.
//!
//! ```text
//!   weir fleet publish ─► bundle (immutable, named by its digest) ─┐                    ┌─► Follower  ─► fetch, check, run, keep
//!                         pointer (which bundle, which steps) ─────┼─► etcd, HTTP ──────┼─► Session   ─► nodes/<id> under a lease
//!                                                                  │                    └─► Coordinator ─► opens the next step, or halts
//! ```
//!
//! *Layout:* `bundle` (with `tar`) is the config as it travels, `cache` the last good one on the disk; `pointer` says who runs what, `plan` makes a
//! new one; `follower`, `session` and `coordinator` are state machines: `on(now, event) -> actions`, without I/O, threads or clocks, so
//! that weir-sim runs ten thousand of them in one thread; so are those of `limits`, which nodes keep together. `etcd` is what they ask of etcd, in the JSON of `kv`,
//! which weir-discover uses too; `weight` says which bundle costs too much.
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

/// A moment: how much time has passed since some moment that stays the same while the process runs. Only differences count, so clocks that
/// are wrong or are set do no harm.
pub type Time = std::time::Duration;
