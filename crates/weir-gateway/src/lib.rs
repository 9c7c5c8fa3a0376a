//! The gateway as a library: build it from a config, add your own filters, start, reload and drain it.
//!
//! This crate joins two others and adds no code to the path of a request. weir-engine serves requests and knows
//! no filter by name. weir-filters knows only the engine's filter interface. This crate re-exports all of the
//! engine.
//!
//! ```
//! use weir_gateway::config::Source;
//!
//! let config = r#"
//! listeners: { web: { address: 127.0.0.1:0 } }
//! routes: { hello: { match: { path: /hello }, respond: { body: "hello\n" } } }
//! watch: false
//! "#;
//! let gateway = weir_gateway::start(Source::text("weir.yaml", config))?;
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
//! - [`start`] and [`builder`] are the entry points for a program, and [`Gateway`] is the result.
//!   [`Builder::filter`] adds a custom filter; `examples/embed.rs` has one. For a gateway without the built-in
//!   filters, begin with [`Builder::new`].
//! - [`config`] holds the operator's settings, [`check()`] reports their mistakes, and [`mod@explain`] their
//!   effect on a request.
//! - [`filter`] is everything that a filter sees, [`filters`] are the built-in ones, and [`testing`] is a harness
//!   for testing one.
//! - [`catalogue`] and [`manual`] generate pages of the documentation from the declarations of engine and
//!   filters.

pub mod catalogue;
pub mod manual;
mod schema;

pub use schema::schema;
pub use weir_config as config;
pub use weir_control::*;
pub use weir_engine::{AcmeError, AcmeStatus, FilterStatus, Handover, Inheritance, autopsy, snapshot};
pub use weir_filter::filter::Purge;
pub use weir_filter::{
    blocking, coding, directory, filter, grpc, password, prelude, reason, store, template, testing,
};
pub use weir_filters as filters;
pub use weir_route as route;
pub use weir_upstream::upstream::ByHand;
pub use weir_upstream::{error, fetch};

use filter::FilterKind;

/// Prepares a gateway with the built-in filters, from a config.
pub fn builder(source: config::Source) -> Builder {
    Builder::new(source).filters(filters::KINDS)
}

/// Starts a gateway with the built-in filters.
///
/// # Errors
/// See [`StartError`].
pub fn start(source: config::Source) -> Result<Gateway, StartError> {
    builder(source).start()
}

/// Loads, checks and compiles a config without starting it, and reports everything that [`start`] would refuse.
/// `more` are filters of the embedding program.
pub fn check(source: &config::Source, more: &[&'static FilterKind]) -> Checked {
    let kinds: Vec<_> = filters::KINDS.iter().chain(more).copied().collect();
    weir_control::check(source, &kinds)
}
