//! Limits that the nodes of a fleet keep together, without a store beside them: one node, elected in etcd, is the store.
//!
//! ```text
//!   request ─► Lease of its key ── enough left? it passes ──┐
//!                 │ asks for more before it is used up       │  what a lease holds was counted when it was granted
//!                 ▼                                          │
//!   `wire`: frames over TCP ─► Ledger of the elected node ───┘
//!                                 ▲
//!   Election: who that is, until when it may grant, and where the others find it
//! ```
//!
//! *The bound.* In any time T, N nodes let pass at most `burst + rate × T + N × (free + lease)`: `free` is the one request that passes before the
//! first answer, `lease` the most that a node holds unspent. It holds while coordinators die: a new one does not know what the last one
//! granted, so it begins as if everything were used up, and each limit fills again at its own rate. And a coordinator that was cut off stops
//! granting before etcd can elect another.
//!
//! *Layout:* [`lease`] is a node's side, which `rate_limit` uses with any store; [`ledger`] the coordinator's; [`election`] decides who it is;
//! [`wire`] is what is said between them.

pub mod election;
pub mod lease;
pub mod ledger;
pub mod wire;

pub use election::Election;
pub use lease::Lease;
pub use ledger::Ledger;
