//! A simulation of a fleet, never shipped: the state machines of weir-fleet as they are, thousands of nodes in one thread, over an etcd, a network,
//! disks and clocks that fail. One seed decides everything, so that a run that goes wrong can be repeated until it is understood.
//!
//! ```text
//!   world: time and order ─► node: Follower, Session, Coordinator, disk ─► link: delays, losses, partitions ─► store: etcd
//!      └─► faults: what breaks when, what is published          check: what must hold at every step, and at the end
//! ```
//!
//! *Layout:* `world` owns time, order and chance; `store` is the model of etcd; `node` drives one gateway's machines; `faults` decides what happens;
//! `check` holds the invariants. `limits` is a world of its own: requests, leases, and coordinators that die.

mod check;
mod faults;
mod limits;
mod node;
mod store;
mod world;

pub use check::Broken;
pub use limits::{Passed, run_limits};
pub use world::{Outcome, Settings, World};

/// Runs one seed of the usual kind: some dozen nodes, five minutes of faults, five quiet ones.
///
/// # Errors
/// The first invariant that broke, and when.
pub fn run(seed: u64) -> Result<Outcome, Broken> {
    World::new(seed, Settings::usual(seed)).run()
}
