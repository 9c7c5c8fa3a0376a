//! HTTP/2 (RFC 9113), both roles.
//!
//! An HTTP/2 stream is given to the gateway as a [`Stream`](crate::Stream) like any other: its heads are read and written as
//! HTTP/1.1 text (`head` translates), its body as plain bytes, and `poll_finish` ends it. So one exchange serves every pair
//! of protocols, and the strict rules of `weir-h1` hold for every head, whatever it came by.
//!
//! *Layout.* `server` and `client` are the two roles of a connection, `stream` is one stream: what the gateway sees. Below
//! them `transport` is a socket with a codec, and `codec` (with its folder) the protocol: bytes in, bytes out. `head` makes
//! text of the heads that come, `render` heads of the text that is sent, over `hpack` (with `huffman` and `tables`) and
//! `frame`. `flood` tells an attacker by counts of frames, `pulse` a dead peer by its silence.
//!
//! The load tester uses the codec too, with a [`Sink`] of its own: it needs no text, and counts bodies.

mod client;
mod codec;
mod flood;
pub mod frame;
mod head;
pub mod hpack;
mod huffman;
mod pulse;
mod render;
mod server;
mod stream;
mod tables;
mod transport;

pub use client::{Driver, Link, window_for};
pub use codec::{Block, Bounds, Codec, Failed, Flow, Part, Piece, Role, Sink, Taken};
pub use flood::{Fault, Flood, FloodLimits};
pub use frame::PREFACE;
pub use head::{Malformed, Told};
pub use pulse::LOOK;
pub use server::{Arrival, Server, ServerLimits};
pub use stream::H2Stream;

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

/// Whether a Content-Type is that of gRPC: `application/grpc`, alone, with `+` and a format, or with parameters. `application/grpc-web` is another protocol.
pub fn is_grpc(content_type: &[u8]) -> bool {
    let rest = content_type.strip_prefix(b"application/grpc");
    rest.is_some_and(|rest| matches!(rest.first(), None | Some(b'+' | b';' | b' ')))
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
