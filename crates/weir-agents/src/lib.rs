//! One load from several machines: what a coordinator and its agents say to each other, and what each decides next.
//!
//! ```text
//!   weir load --agents a,b ─► Coordinator ── offer, files, pings, start, beats ──► Agent ─► its share of the load
//!                                 ▲                                                  │
//!                                 └──── one Second of counts at a time, a report ◄───┘
//! ```
//!
//! *Layout.* `coordinator` and `agent` are state machines: `on(now, event) -> actions`, without I/O, threads or
//! clocks, so that `tests/sim` runs them over links that lose, reorder and delay. `message` is what they say, `frame`
//! how it looks on a connection, `bounds` reads it with limits, and `clean` takes out of texts what a terminal obeys.
//! `share` divides the load, `skew` compares clocks, `sum` adds up what agents count, and `credible` finds what cannot
//! be true of it. `teardown` says which agent runs the plan's `teardown`. `allow` decides where an agent may send.
//! weir-load carries out the actions.
//!
//! *Architecture Invariant:* this crate knows neither the load engine nor a socket.

pub mod agent;
pub mod allow;
pub mod bounds;
pub mod clean;
pub mod coordinator;
pub mod credible;
pub mod frame;
pub mod message;
pub mod share;
pub mod skew;
pub mod sum;
pub mod teardown;

pub use agent::Agent;
pub use allow::Allow;
pub use coordinator::Coordinator;
pub use message::{FromAgent, Offer, Second, ToAgent};
pub use share::Share;

use std::time::Duration;

/// A time: the duration since an instant that stays the same while the process runs. Those of two processes compare
/// only with the difference that [`skew`] measures.
pub type Time = Duration;

/// How long one side may be silent before the other considers it dead. Our guess: a busy machine may pause this long,
/// and losing this much of a one-minute run is tolerable.
pub const SILENCE: Duration = Duration::from_secs(5);

/// Interval of keep-alive messages, each way, during a run.
pub const BEAT: Duration = Duration::from_secs(1);

/// Most agents of one run: the coordinator adds up their seconds in one thread.
pub const AGENTS_MOST: usize = 100;
