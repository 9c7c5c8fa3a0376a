//! The gateway, as a library: build it from a config, give it filters of your own, start, reload and drain it.
//!
//! This crate puts two together and adds no code to the path of a request: weir-control with weir-engine, which serves requests and knows no
//! filter by name, and weir-filters, whose filters know weir-filter and nothing above it. What these crates offer to programs is here too.
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
//! - [`start`] and [`builder`] are the way in for a program, and [`Gateway`] is what it gets. [`Builder::filter`] adds a filter of its own;
//!   `examples/embed.rs` has one. A gateway without the filters that come with it begins with [`Builder::new`].
//! - [`config`] is what an operator may write, [`check()`] tells what is wrong with it, [`mod@explain`] what it does to a request.
//! - [`filter`] is all that a filter sees, [`filters`] the ones that come with the gateway and [`testing`] a stand
//!   to test one on.
//! - [`catalogue`] and [`manual`] make pages of the documentation from the declarations of engine and filters.

pub mod catalogue;
pub mod manual;

pub use weir_config as config;
pub use weir_control::*;
pub use weir_engine::{AcmeError, AcmeStatus, FilterStatus, Handover, Inheritance, autopsy, snapshot};
pub use weir_filter::filter::Purge;
pub use weir_filter::{blocking, coding, filter, grpc, password, prelude, reason, store, template, testing};
pub use weir_filters as filters;
pub use weir_route as route;
pub use weir_upstream::upstream::ByHand;
pub use weir_upstream::{error, fetch};

use filter::FilterKind;

/// A gateway with the filters that come with it, to be built from a config.
pub fn builder(source: config::Source) -> Builder {
    Builder::new(source).filters(filters::KINDS)
}

/// Starts a gateway with the filters that come with it.
///
/// # Errors
/// See [`StartError`].
pub fn start(source: config::Source) -> Result<Gateway, StartError> {
    builder(source).start()
}

/// Everything that [`start`] would refuse, without starting: loads, checks and compiles. `more` are filters of the embedding program.
pub fn check(source: &config::Source, more: &[&'static FilterKind]) -> Checked {
    let kinds: Vec<_> = filters::KINDS.iter().chain(more).copied().collect();
    weir_control::check(source, &kinds)
}
