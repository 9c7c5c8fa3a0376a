//! Probes: asks each endpoint at intervals how it is. One set for the process, however many cores there are.
//!
//! ```text
//!   tasks    which endpoints are probed, when and how many at a time; on the control thread
//!    ask     one probe: connects, asks, judges
//!     grpc   the messages of grpc.health.v1
//!    streak  when probes that fail or pass in a row decide
//!   trials   tries endpoints again that could not be connected to, probes or not
//! ```
//!
//! A probe uses what the upstream uses (protocol, TLS, the endpoint's address), and a connection of its own, which counts
//! nowhere. What it finds it writes into the endpoint's [`Health`](super::health::Health); nothing else here touches requests.

mod ask;
mod grpc;
mod streak;
mod tasks;
mod trials;

pub use tasks::probe;
pub use trials::try_out;
