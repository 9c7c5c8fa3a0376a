//! HTTP/2 (RFC 9113), both roles, over the `h2` crate. No type of the crate leaves this folder, so that a codec of our own
//! can take its place.
//!
//! An HTTP/2 stream is given to the gateway as a [`Stream`](crate::Stream) like any other: its heads are read and written as
//! HTTP/1.1 text (`head` translates), its body as plain bytes, and `poll_finish` ends it. So one exchange serves every pair
//! of protocols, and the strict rules of `weir-h1` hold for every head, whatever it came by.
//!
//! *Layout.* `server` and `client` are the two roles of a connection; `stream` is one stream; `head` translates heads;
//! `transport` is what lies between the crate and the socket, where writes are gathered and frames are counted; `flood`
//! tells an attacker by those counts, `pulse` a dead peer by its silence.

mod client;
mod flood;
pub mod frame;
mod head;
pub mod hpack;
mod huffman;
mod pulse;
mod server;
mod stream;
mod tables;
mod transport;

pub use client::{Driver, Link, window_for};
pub use flood::{Flood, FloodLimits};
pub use pulse::LOOK;
pub use server::{Arrival, Server, ServerLimits};
pub use stream::H2Stream;

/// What a client sends first (RFC 9113 §3.4).
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// How much of what is sent waits for one stream's window.
const SEND_BYTES: usize = 64 * 1024;

/// Whether the first bytes of a connection are HTTP/2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opening {
    /// They are.
    Http2,
    /// They may be: more must come.
    Maybe,
    /// They are something else.
    Other,
}

/// Looks at the first bytes of a connection without TLS (prior knowledge, RFC 9113 §3.3).
pub fn opening(first: &[u8]) -> Opening {
    let common = first.len().min(PREFACE.len());
    match first.get(..common) == PREFACE.get(..common) {
        false => Opening::Other,
        true if common == PREFACE.len() => Opening::Http2,
        true => Opening::Maybe,
    }
}

/// Why a connection ended before its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The peer closed or reset it.
    Closed,
    /// The peer sent more of a kind of frame than any honest one does.
    Flood(Flood),
    /// The peer broke a rule of the protocol.
    Protocol,
}

impl Fault {
    fn of(e: &h2::Error) -> Self {
        match e.reason() {
            // The crate's own budgets: tiny DATA frames, pending resets, CONTINUATION.
            Some(h2::Reason::ENHANCE_YOUR_CALM) if !e.is_remote() => Self::Flood(Flood::Data),
            Some(_) if e.is_library() => Self::Protocol,
            _ => Self::Closed,
        }
    }
}

/// What the crate says, as an error of the socket: so that whoever reads and writes streams needs to know one kind only.
fn io_error(e: h2::Error) -> std::io::Error {
    use std::io::ErrorKind;
    let refused = (e.is_go_away() || e.reason() == Some(h2::Reason::REFUSED_STREAM)) && e.is_remote();
    let kind = match e.get_io() {
        Some(io) => io.kind(),
        None if refused => ErrorKind::ConnectionRefused,
        None => ErrorKind::ConnectionReset,
    };
    std::io::Error::new(kind, e)
}
