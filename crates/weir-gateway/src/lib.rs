//! The gateway, as a library: build it from a config, give it filters of your own, start, reload and drain it.
//!
//! ```text
//!   config ──► snapshot ──► core 0 ─┬─ listener ─► connection ─► exchange ─┬─ route
//!   (files)    (as run)     core 1  │                                      ├─ filters
//!                           …       └─ pools, counters, log buffer         └─ upstream ─► endpoint
//! ```
//!
//! [`exchange`](crate) is the life of one request, top to bottom: read `exchange.rs` first. [`Gateway`] is the way in for
//! a program; [`filter`] is all that a filter sees; [`config`] is what an operator may write.
//!
//! *Architecture Invariant:* only `exchange.rs` sees all; a filter sees `filter.rs` and nothing else.

pub mod config;
pub mod error;
pub mod explain;
pub mod filter;
pub mod filters;
pub mod route;
pub mod snapshot;

mod call;
mod connection;
mod core;
mod exchange;
mod forward;
mod gateway;
mod listener;
mod reload;
mod respond;
mod upstream;

pub use gateway::{Builder, Checked, Gateway, StartError, Status, check};
pub use reload::{Refused, Reloaded};
