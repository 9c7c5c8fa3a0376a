//! HTTP/2 as frames, in either role: what an honest peer sends, and anything else.
//!
//! [`H2`] stands on a [`Client`](crate::Client) or on a [`Conn`](crate::Conn) of an upstream. It sends what the test says,
//! frame by frame, and collects what comes by stream. By itself it does only what keeps a conversation going: it confirms
//! SETTINGS, answers PING, and gives windows so large that nobody waits for them, unless the test says otherwise.
//!
//! *Layout:* `frame.rs` is one frame as bytes, `hpack.rs` the fields in it, `peer.rs` the connection, `peer/bodies.rs` what
//! waits for its windows, `message.rs` what came on one stream, `origin.rs` an upstream that answers by itself.

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
