//! Connections to targets and the bytes on them, without loops, clocks and counts: what `engine` loads a target with, and what asks a target for its
//! schema before a run.
//!
//! *Layout.* `origin` is where connections go, `addresses` those that accept, `proxy` how one is opened, `failure` why a request came to no response.
//! `reader` reads responses of HTTP/1.1, `h2` is a connection of HTTP/2 as bytes, `websocket` the frames of a WebSocket.

pub(crate) mod addresses;
pub(crate) mod failure;
pub(crate) mod h2;
pub(crate) mod origin;
pub(crate) mod proxy;
pub(crate) mod reader;
pub(crate) mod websocket;

/// How much of the first response is kept for the ledger.
pub(crate) const CAPTURE_BYTES: usize = 4096;

/// Whether a field's value must not be shown.
pub(crate) fn is_secret(name: &str) -> bool {
    const SECRET: [&str; 6] =
        ["authorization", "cookie", "proxy-authorization", "x-api-key", "apikey", "x-auth-token"];
    SECRET.iter().any(|s| name.eq_ignore_ascii_case(s))
}
