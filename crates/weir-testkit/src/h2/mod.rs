//! HTTP/2 as frames, in either role, for well-behaved and misbehaving peers.
//!
//! [`H2`] wraps a [`Client`](crate::Client) or a [`Conn`](crate::Conn) of an upstream. It sends the frames that
//! the test specifies, and collects incoming frames by stream. On its own it does only what keeps a connection
//! going: it acknowledges SETTINGS, answers PING, and grants windows so large that nobody has to wait, unless the
//! test configures otherwise.
//!
//! *Layout:* `frame.rs` is one frame as bytes, `hpack.rs` its fields, `peer.rs` the connection. `peer/bodies.rs`
//! sends bodies within the peer's windows, `message.rs` collects the message of one stream, `origin.rs` is an
//! upstream that answers automatically.

mod frame;
mod hpack;
mod message;
mod origin;
mod peer;

pub use frame::{Frame, Kind, code, flag, setting};
pub use message::{End, Message};
pub use origin::H2Origin;
pub use peer::{H2, Options};

#[cfg(test)]
mod tests;
