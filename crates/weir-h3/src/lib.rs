//! HTTP/3 (RFC 9114) and QPACK (RFC 9204) as bytes, in both roles: no socket, no clock, no runtime.
//!
//! *Layout.* `qpack` compresses field sections. `frame` and `varint` are the bytes of frames, `code` the error codes.
//!
//! *Architecture Invariant:* bytes from the network are hostile. Nothing here panics on them, and whatever grows with
//! them has a limit.

pub mod code;
pub mod frame;
pub mod qpack;
pub mod varint;
