//! HTTP/3 (RFC 9114) and QPACK (RFC 9204) as bytes, in both roles: no socket, no clock, no runtime.
//!
//! *Layout.* `codec` is a connection: bytes of QUIC streams in, bytes and effects out. Below it, `qpack` compresses
//! field sections, `frame` and `varint` are the bytes of frames, `code` has the error codes, and `flood` counts what a
//! peer sends too often. weir-fields turns fields into HTTP/1.1 text and back, so one exchange serves a stream of
//! HTTP/3 like any other.
//!
//! *Architecture Invariant:* bytes from the network are hostile. Nothing here panics on them, and whatever grows with
//! them has a limit.

pub mod code;
pub mod codec;
mod flood;
pub mod frame;
pub mod qpack;
pub mod varint;

pub use codec::{Bounds, Codec, Effect, Own, Role, TextCodec};
pub use flood::{Flood, FloodLimits};
