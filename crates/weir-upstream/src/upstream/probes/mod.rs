//! Probes: check each endpoint at intervals. One set for the process, however many cores it has.
//!
//! ```text
//!   tasks    which endpoints are probed, when and how many at a time; on the control thread
//!    ask     one probe: connects, asks, judges
//!     grpc   the messages of grpc.health.v1
//!    streak  when probes that fail or pass in a row decide
//!   trials   tries endpoints again that could not be connected to, probes or not
//! ```
//!
//! A probe uses the upstream's protocol and TLS and the endpoint's address, on its own connection, which is not
//! counted. It writes its result into the endpoint's [`Health`](super::health::Health); nothing else here affects
//! requests.

mod ask;
mod grpc;
mod streak;
mod tasks;
mod trials;

pub use tasks::probe;
pub use trials::try_out;
