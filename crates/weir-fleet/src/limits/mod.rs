//! Limits that the nodes of a fleet enforce together without an external store: one node, elected in etcd, is the
//! store.
//!
//! ```text
//!   request ─► Lease of its key ── enough left? it passes ───┐
//!                 │ asks for more before it is used up       │  a lease was counted when it was granted
//!                 ▼                                          │
//!   `wire`: frames over TCP ─► Ledger of the elected node ───┘
//!                                 ▲
//!   Election: which node that is, until when it may grant, and where the others find it
//! ```
//!
//! *The bound.* In any time T, N nodes together pass at most `burst + rate × T + N × (free + lease)`. `free` is the
//! one request that passes before the first response, `lease` the most that a node holds unspent. The bound survives
//! the death of coordinators. A new coordinator does not know what the last one granted, so it starts as if
//! everything were used up, and each limit refills at its own rate. And a coordinator that was cut off stops granting
//! before etcd can elect another.
//!
//! *Layout:* [`lease`] is a node's side, which `rate_limit` uses with any store; [`ledger`] is the coordinator's
//! side; [`election`] chooses the coordinator; [`wire`] is the protocol between them.

pub mod election;
pub mod lease;
pub mod ledger;
pub mod wire;

pub use election::Election;
pub use lease::Lease;
pub use ledger::Ledger;
