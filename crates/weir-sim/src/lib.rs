//! A simulation of a fleet, never shipped. It runs the real state machines of weir-fleet for thousands of nodes
//! in one thread, over a simulated etcd, network, disks and clocks that fail. One seed decides everything, so a
//! failing run can be repeated exactly.
//!
//! ```text
//!   world: time, order ─► node: Follower, Session, Coordinator, disk ─► link: delay, loss, partition ─► store: etcd
//!      └─► faults: what breaks or is published, and when     check: the invariants, at every step and at the end
//! ```
//!
//! *Layout:* `world` owns time, order and chance. `store` is the model of etcd. `node` drives the state machines
//! of one gateway. `faults` decides what happens. `check` holds the invariants. `limits` is a separate world of
//! requests, leases, and coordinators that die.

mod check;
mod faults;
mod limits;
mod node;
mod store;
mod world;

pub use check::Broken;
pub use limits::{Passed, run_limits};
pub use world::{Outcome, Settings, World};

/// Runs one seed with the usual settings: some dozen nodes, five minutes of faults, five quiet ones.
///
/// # Errors
/// The first violated invariant, and when.
pub fn run(seed: u64) -> Result<Outcome, Broken> {
    World::new(seed, Settings::usual(seed)).run()
}
