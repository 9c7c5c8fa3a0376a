//! What tests are written with. Never shipped.
//!
//! Tests here speak in bytes: a [`Client`] on one side of a running gateway, an [`Upstream`] on the other, and what each
//! of them sends and receives written out, so that a test reads like a transcript:
//!
//! ```no_run
//! use weir_testkit::{Upstream, Weir};
//!
//! let upstream = Upstream::listen();
//! let weir = Weir::in_front_of(&upstream);
//! let mut client = weir.client();
//! client.send("GET /a HTTP/1.1\r\nHost: h\r\n\r\n");
//! let mut conn = upstream.accept();
//! assert_eq!(conn.read_request().head.line, "GET /a HTTP/1.1");
//! conn.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
//! client.read_response().expect_status(200).expect_body("ok");
//! ```
//!
//! Sockets block and each test is its own thread: that is what makes the order of events visible. Every wait is for an
//! event and has a deadline (5 s unless told otherwise); what panics shows everything that was said in both directions.
//!
//! *Layout:* `wire.rs` is one connection and its transcript, `message.rs` the heads and bodies on it; `client.rs` and
//! `upstream.rs` are the two ends, `h2/` the same in frames of HTTP/2, `tls.rs` and `certs.rs` what they need for TLS; `weir.rs` runs the binary, `output.rs`
//! reads what it prints, `pebble.rs` runs a certificate authority, `balancer.rs` is a TCP balancer, `pty.rs` what it shows on a terminal; `table.rs` runs many cases and reports every one that fails, `wait.rs` waits,
//! `alone.rs` keeps other tests away from one that measures time.

#![allow(clippy::unwrap_used, reason = "this crate is test code: a panic is how a test fails")]

mod alone;
mod balancer;
mod certs;
mod client;
mod coding;
pub mod h2;
mod message;
mod network;
mod output;
mod pebble;
mod proxy;
mod pty;
mod table;
mod tls;
mod upstream;
mod wait;
mod weir;
mod wire;

pub use alone::{Alone, alone};
pub use balancer::Balancer;
pub use certs::{Authority, Certificate};
pub use client::{Client, Writer};
pub use coding::decoded;
pub use message::{Body, Broken, Framing, Head, Response};
pub use network::own_network;
pub use output::LogLine;
pub use pebble::Pebble;
pub use proxy::Proxy;
pub use pty::Pty;
pub use table::table;
pub use tls::{ServerTls, Tls, TlsSeen};
pub use upstream::{Conn, Request, Upstream, black_hole, refusing_address, stop_listening, unused_address};
pub use wait::{eventually, eventually_within, pause};
pub use weir::{Finished, Weir, command_for, install, run_weir, weir_command};
pub use wire::{DEADLINE, Wire};

#[cfg(test)]
mod tests;
