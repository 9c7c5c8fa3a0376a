//! The toolkit for tests. Never shipped.
//!
//! Tests here speak in bytes: a [`Client`] on one side of a running gateway, an [`Upstream`] on the other. Each
//! test writes out what both sides send and receive, so it reads like a transcript:
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
//! Sockets block and each test has its own thread, which makes the order of events visible. Every wait is for an
//! event and has a deadline (5 s by default). A panic shows everything that both sides sent.
//!
//! *Layout:* `wire.rs` is one connection and its transcript, `message.rs` the heads and bodies on it. `client.rs`
//! and `upstream.rs` are the two ends, `h2/` the same in HTTP/2 frames, `h3.rs` a client of HTTP/3, `tls.rs` and
//! `certs.rs` their TLS, `fastcgi.rs` a FastCGI server, `kube/` a Kubernetes API server. `weir.rs` runs the binary,
//! `output.rs` reads its output, and `pty.rs` captures it on a terminal. `pebble.rs` runs a certificate authority,
//! `balancer.rs` is a TCP balancer. `table.rs` runs many cases and reports each failure, `wait.rs` polls, `alone.rs`
//! keeps other tests away from one that measures time. `generated.rs` compares the generated parts of reference pages,
//! `golden_list.rs` the lists of public names.

#![allow(clippy::unwrap_used, reason = "this crate is test code: a panic is how a test fails")]

mod alone;
mod balancer;
mod certs;
mod client;
mod coding;
pub mod fastcgi;
mod generated;
mod golden_list;
pub mod h2;
mod h3;
pub mod kube;
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
pub use coding::{decoded, gzip};
pub use generated::generated;
pub use golden_list::{fields_of, golden_list};
pub use h3::{Asked, H3, UdpPath};
pub use message::{Body, Broken, Framing, Head, Response};
pub use network::own_network;
pub use output::LogLine;
pub use pebble::Pebble;
pub use proxy::Proxy;
pub use pty::Pty;
pub use table::{table, table_at_once};
pub use tls::{ServerTls, Tls, TlsSeen};
pub use upstream::{Conn, Request, Upstream, black_hole, refusing_address, stop_listening, unused_address};
pub use wait::{eventually, eventually_every, eventually_within, pause};
pub use weir::{Finished, Weir, command_for, install, run_weir, weir_command};
pub use wire::{DEADLINE, Wire};

#[cfg(test)]
mod tests;
