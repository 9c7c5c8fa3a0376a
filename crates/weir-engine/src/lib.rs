//! The engine of the gateway: everything from a config to the bytes on a socket but the filters, which it is given as a list of
//! [kinds](filter::FilterKind). Programs use weir-gateway, which is this crate with the filters that come with it.
//!
//! ```text
//!   config ──► snapshot ──► core 0 ─┬─ listener ─► connection ─► exchange ─┬─ route
//!   (files)    (as run)     core 1  │                                      ├─ filter, by its trait
//!                           …       └─ pools, counters, log buffer         └─ upstream ─► endpoint
//! ```
//!
//! # Layout
//!
//! - [`Builder`] makes a [`Gateway`], [`check()`] tells what is wrong with a config, [`mod@explain`] what it does to a request.
//! - [`filter`] is all that a filter sees of its exchange, and [`prelude`] what its file names; [`testing`] runs one alone. What else filters
//!   are made with: [`template`], [`store`], [`blocking`], [`fetch`], [`coding`], [`grpc`] and [`password`].
//! - [`rehearsal`] makes a config that can be measured of one that can be run.
//! - [`error`] holds the causes.
//! - [`snapshot`] is the config as run, [`route`] decides which route wins.
//! - Private: `exchange.rs` is the life of one request, top to bottom: read it first. `listener`, `connection` and `core` are
//!   what a core does and owns; `upstream`, `forward` and `call` the way to the services,
//!   `fetch` to those that are no upstream; `tracing` and `export` what a collector is told; `respond` makes our own answers;
//!   `reload` swaps snapshots, `handover` is what one process gives to the next. ARCHITECTURE.md tells how they go together.
//!
//! *Architecture Invariant:* only `exchange.rs` sees all; a filter sees `filter.rs` and what is named beside it above.

pub use weir_config as config;
pub mod autopsy;
pub mod explain;
pub mod fleet;
pub mod history;
pub mod rehearsal;
pub mod snapshot;

mod acme;
mod call;
mod client;
mod connection;
mod core;
mod exchange;
mod export;
mod files;
mod forward;
mod gateway;
mod handover;
mod lane;
mod links;
mod listener;
mod reload;
mod respond;
mod status;
mod tracing;
mod trial;

pub use acme::{AcmeError, AcmeStatus};
pub use gateway::{Builder, Checked, Gateway, StartError, Touched, check};
pub use handover::{Handover, Inheritance};
pub use reload::change::Change;
pub use reload::rewrite::{ManagedText, Rewrite};
pub use reload::{
    Changed, Consequences, Drained, Edit, Moved, NotChanged, OnlyIf, Owner, Refused, Reloaded, request_file,
};
pub use snapshot::FilterStatus;
pub use status::{
    CauseCount, CertificateStatus, EndpointStatus, LastError, NameStatus, OutOfRotation, ReloadStatus,
    Status, UpstreamStatus,
};
pub use trial::{Terms, TrialStatus};
