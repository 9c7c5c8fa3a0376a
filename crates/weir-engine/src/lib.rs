//! The engine: what a core does with requests, from accepting a connection to writing the access log line.
//!
//! weir-control gives it snapshots, and filters as a list of [kinds](weir_filter::filter::FilterKind).
//!
//! ```text
//!   core 0 ─┬─ listener ─► connection ─► exchange ─┬─ weir-route
//!   core 1  │                                      ├─ weir-filter: filters, by their trait
//!   …       └─ counters, log buffer                └─ weir-upstream: pools ─► endpoint
//! ```
//!
//! # Layout
//!
//! - `exchange.rs` is the life of one request, top to bottom: read it first. `connection` and `client` are its client
//!   side, `forward` writes what the upstream gets, `respond` makes our own answers. `files` sends files of a folder,
//!   `links` rewrites links that name an endpoint in a response.
//! - [`core`] is what a core owns, [`listener`] its accept loop, `lane` its tasks, `call` what it does for filters.
//!   `per_client` counts what an address holds. [`early_data`] decides which requests may run before the handshake ends.
//! - [`snapshot`] is the running config, compiled from the config as written.
//! - `matching` finds a request's route, `to_run` orders its filters, and `arms` draws an arm of a split with filters.
//!   [`shadow`] judges copies of heads, which `tap` takes after the answer, with the first two.
//! - [`homes`] finds the core or process that has a QUIC connection.
//! - [`autopsy`] keeps exchanges that failed. `tracing` and [`export`] send spans to a collector. [`acme`] reaches
//!   certificate authorities. [`handover`] is what one process hands to the next.
//!
//! *Architecture Invariant:* only `exchange.rs` sees all.

pub mod acme;
pub mod autopsy;
pub mod core;
pub mod early_data;
pub mod export;
pub mod handover;
pub mod homes;
pub mod listener;
mod open_call;
pub mod shadow;
pub mod snapshot;

mod arms;
mod call;
mod client;
mod connection;
mod exchange;
mod fastcgi;
mod files;
mod forward;
mod lane;
mod links;
mod matching;
mod per_client;
mod respond;
mod tap;
mod to_run;
mod tracing;

pub use acme::{AcmeError, AcmeStatus};
pub use connection::cause_of;
pub use handover::{Handover, Inheritance};
pub use matching::PREFLIGHT;
pub use snapshot::FilterStatus;
