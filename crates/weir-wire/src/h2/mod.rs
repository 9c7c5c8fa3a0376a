//! HTTP/2 (RFC 9113), both roles.
//!
//! The gateway sees an HTTP/2 stream as a [`Stream`](crate::Stream) like any other. It reads and writes heads as
//! HTTP/1.1 text (`head` translates) and bodies as plain bytes, and `poll_finish` ends the stream. So one exchange
//! serves every pair of protocols, and the strict rules of `weir-h1` apply to every head, whatever protocol it came
//! by.
//!
//! *Layout.* `server` and `client` are the two roles of a connection; `stream` is one stream, as the gateway sees it.
//! Below them, `session` is a connection with a codec, and `codec` (with its folder) is the protocol: bytes in, bytes
//! out. weir-fields turns received heads into text, and text into heads to send, both over `hpack` (with `tables`) and
//! `frame`. `flood` detects attackers by counting frames, `pulse` detects a dead peer by
//! its silence.
//!
//! The load tester uses the codec too, with its own [`Sink`]: it needs no text, and only counts bodies.

mod client;
mod codec;
mod flood;
pub mod frame;
pub mod hpack;
mod pulse;
mod server;
mod session;
mod stream;
mod tables;

pub use client::{Driver, Link};
pub use codec::{Block, Bounds, Codec, Failed, Flow, Part, Piece, Role, Sink, Taken};
pub use flood::{Fault, Flood, FloodLimits};
pub use frame::PREFACE;
pub use pulse::LOOK;
pub use server::{Arrival, Server, ServerLimits};
pub use stream::H2Stream;
pub use weir_fields::{HeadFacts, Malformed};

use std::time::Duration;

/// The least and the most that the window of a stream may grow to.
const WINDOW: (u32, u32) = (64 * 1024, 1024 * 1024);

/// Whether the first bytes of a connection are HTTP/2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opening {
    /// Yes.
    Http2,
    /// Not decided yet: more bytes are needed.
    Maybe,
    /// No.
    Other,
}

/// Frees what this thread keeps for the next bodies, the next connections that send, and field lines that repeat.
pub fn free_buffers() {
    session::free_buffers();
    weir_fields::free_bodies();
    weir_fields::free_repeats();
}

/// Whether a Content-Type is gRPC: `application/grpc`, alone, with `+` and a format, or with parameters.
/// `application/grpc-web` is another protocol.
pub fn is_grpc(content_type: &[u8]) -> bool {
    let rest = content_type.strip_prefix(b"application/grpc");
    rest.is_some_and(|rest| matches!(rest.first(), None | Some(b'+' | b';' | b' ')))
}

/// The stream window for a peer with this round-trip time: what a link of 1 Gbit/s has in flight. Distant peers need
/// large windows for speed. Near peers get small ones, because data that the other side of the exchange does not read
/// may fill the window here.
pub fn window_for(round_trip: Duration) -> u32 {
    const BYTES_A_MICROSECOND: u128 = 125;
    let on_its_way = round_trip.as_micros().saturating_mul(BYTES_A_MICROSECOND);
    u32::try_from(on_its_way).unwrap_or(u32::MAX).clamp(WINDOW.0, WINDOW.1)
}

/// Checks the first bytes of a cleartext connection (prior knowledge, RFC 9113 §3.3).
pub fn opening(first: &[u8]) -> Opening {
    let common = first.len().min(PREFACE.len());
    match first.get(..common) == PREFACE.get(..common) {
        false => Opening::Other,
        true if common == PREFACE.len() => Opening::Http2,
        true => Opening::Maybe,
    }
}

#[cfg(test)]
mod tests {
    use super::is_grpc;

    #[test]
    fn grpc_web_is_another_protocol() {
        for good in ["application/grpc", "application/grpc+json", "application/grpc;charset=utf-8"] {
            assert!(is_grpc(good.as_bytes()), "{good}");
        }
        for other in
            ["", "application/grp", "application/grpc-web", "application/grpc-web+proto", "text/plain"]
        {
            assert!(!is_grpc(other.as_bytes()), "{other}");
        }
    }
}
