//! The gateway, as a library: build it from a config, give it filters of your own, start, reload and drain it.
//!
//! ```text
//!   config ──► snapshot ──► core 0 ─┬─ listener ─► connection ─► exchange ─┬─ route
//!   (files)    (as run)     core 1  │                                      ├─ filters
//!                           …       └─ pools, counters, log buffer         └─ upstream ─► endpoint
//! ```
//!
//! ```
//! use weir_gateway::{Gateway, config::Source};
//!
//! let config = r#"
//! listeners: { web: { address: 127.0.0.1:0 } }
//! routes: { hello: { match: { path: /hello }, respond: { body: "hello\n" } } }
//! watch: false
//! "#;
//! let gateway = Gateway::start(Source::text("weir.yaml", config))?;
//! # use std::io::{Read, Write};
//! let mut client = std::net::TcpStream::connect(gateway.address("web").unwrap())?;
//! client.write_all(b"GET /hello HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
//! let mut answer = String::new();
//! client.read_to_string(&mut answer)?;
//! assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("hello\n"));
//!
//! gateway.drain(); // finishes what is under way, then ends
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Layout
//!
//! - [`Gateway`] is the way in for a program, [`Builder::filter`] adds a filter of its own; `examples/embed.rs` has one.
//! - [`config`] is what an operator may write, [`check`] tells what is wrong with it, [`mod@explain`] what it does to a request.
//! - [`filter`] is all that a filter sees, [`filters`] the ones that come with the gateway and [`filters::testing`] a stand
//!   to test one on.
//! - [`rehearsal`] makes a config that can be measured of one that can be run.
//! - [`error`] holds the causes; [`catalogue`] and [`filters::manual`] make pages of the documentation.
//! - [`snapshot`] is the config as run, [`route`] decides which route wins.
//! - Private: `exchange.rs` is the life of one request, top to bottom: read it first. `listener`, `connection` and `core` are
//!   what a core does and owns; `upstream`, `forward` and `call` the way to the services,
//!   `fetch` to those that are no upstream; `tracing` and `export` what a collector is told; `respond` makes our own answers;
//!   `reload` swaps snapshots, `handover` is what one process gives to the next. ARCHITECTURE.md tells how they go together.
//!
//! *Architecture Invariant:* only `exchange.rs` sees all; a filter sees `filter.rs` and nothing else.

pub mod autopsy;
pub mod catalogue;
pub use weir_config as config;
pub mod error;
pub mod explain;
pub mod filter;
pub mod filters;
pub mod history;
pub mod password;
pub mod rehearsal;
pub mod route;
pub mod snapshot;

mod blocking;
mod call;
mod client;
mod coding;
mod concealed;
mod connection;
mod core;
mod exchange;
mod export;
mod fetch;
mod file_source;
mod files;
mod forward;
mod gateway;
mod grpc;
mod handover;
mod id;
mod links;
mod listener;
mod reload;
mod respond;
mod status;
mod store;
mod talk;
mod tracing;
mod trial;
mod upstream;

pub use filters::cache::Purge;
pub use gateway::{Builder, Checked, Gateway, StartError, Touched, check};
pub use handover::{Handover, Inheritance};
pub use reload::change::Change;
pub use reload::{Changed, Edit, NotChanged, OnlyIf, Refused, Reloaded, request_file};
pub use status::{
    CauseCount, CertificateStatus, EndpointStatus, FilterStatus, LastError, NameStatus, OutOfRotation,
    ReloadStatus, Status, UpstreamStatus,
};
pub use trial::{Terms, TrialStatus};
pub use upstream::ByHand;
