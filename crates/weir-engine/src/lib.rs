//! The engine: what a core does with requests, from a connection that is accepted to the line in the access log. It is given filters as a list
//! of [kinds](weir_filter::filter::FilterKind), and snapshots by weir-control.
//!
//! ```text
//!   core 0 ─┬─ listener ─► connection ─► exchange ─┬─ weir-route
//!   core 1  │                                      ├─ weir-filter: filters, by their trait
//!   …       └─ counters, log buffer                └─ weir-upstream: pools ─► endpoint
//! ```
//!
//! # Layout
//!
//! - `exchange.rs` is the life of one request, top to bottom: read it first. `connection` and `client` are whom it speaks with, `forward` what
//!   the upstream is told, `respond` makes our own answers, `files` those of a folder, `links` what names an endpoint in a response.
//! - [`core`] is what a core owns, [`listener`] its accept loop, `lane` its tasks, `call` what it does for filters.
//! - [`snapshot`] is the config as run, and makes it of the config as written.
//! - [`autopsy`] keeps exchanges that failed; `tracing` and [`export`] are what a collector is told; [`acme`] reaches certificate authorities;
//!   [`handover`] is what one process gives to the next.
//!
//! *Architecture Invariant:* only `exchange.rs` sees all.

pub mod acme;
pub mod autopsy;
pub mod core;
pub mod export;
pub mod handover;
pub mod listener;
pub mod snapshot;

mod call;
mod client;
mod connection;
mod exchange;
mod files;
mod forward;
mod lane;
mod links;
mod respond;
mod tracing;

pub use acme::{AcmeError, AcmeStatus};
pub use connection::cause_of;
pub use exchange::PREFLIGHT;
pub use handover::{Handover, Inheritance};
pub use snapshot::FilterStatus;
