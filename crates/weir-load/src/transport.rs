//! Connections to targets and the bytes on them, without loops, clocks and counters. `engine` uses them for the load,
//! and schema lookups use them before a run.
//!
//! *Layout.* `origin` is the destination of connections, `addresses` chooses addresses that accept, `proxy` opens
//! connections, `failure` says why a request got no response. `reader` reads HTTP/1.1 responses, `h2` is an HTTP/2
//! connection as bytes, `h3` one of HTTP/3 over QUIC, and `wire` is either. `websocket` has the frames of a WebSocket.

pub(crate) mod addresses;
pub(crate) mod failure;
pub(crate) mod h2;
#[cfg(feature = "http3")]
pub(crate) mod h3;
pub(crate) mod origin;
pub(crate) mod proxy;
pub(crate) mod reader;
pub(crate) mod response_kind;
pub(crate) mod websocket;
pub(crate) mod wire;

use std::io;
use std::task::{Context, Poll};
use weir_wire::Transport;

/// How much of the first response is kept for the ledger.
pub(crate) const CAPTURE_BYTES: usize = 4096;

/// Whether a field's value must not be shown.
pub(crate) fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    SECRET_NAMES.iter().any(|part| name.contains(part))
        || name.split(['-', '_', '.']).any(|word| SECRET_WORDS.contains(&word))
}

/// Parts of names that say that the value is a credential. The gateway hides the same ones in logs (`variables.rs` of
/// weir-route), but for the short ones: it must not leave out fields by mistake.
const SECRET_NAMES: [&str; 22] = [
    "assertion",
    "auth",
    "bearer",
    "cookie",
    "credential",
    "csrf",
    "dpop",
    "hmac",
    "jwt",
    "key",
    "otp",
    "pass",
    "pwd",
    "saml",
    "secret",
    "session",
    "sid",
    "sig",
    "ticket",
    "tok",
    "verifier",
    "xsrf",
];

/// Words that say so only between `-`, `_` and `.`.
const SECRET_WORDS: [&str; 3] = ["mfa", "pin", "sso"];

/// Writes what is left of `bytes`, of which `written` are out. The caller flushes.
#[inline]
pub(crate) fn poll_write_rest(
    stream: &mut Transport,
    cx: &mut Context<'_>,
    bytes: &[u8],
    written: &mut usize,
) -> Poll<io::Result<()>> {
    while let Some(rest) = bytes.get(*written..).filter(|rest| !rest.is_empty()) {
        match stream.poll_write(cx, rest) {
            Poll::Ready(Ok(0)) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
            Poll::Ready(Ok(n)) => *written += n,
            Poll::Ready(Err(e)) => return Poll::Ready(Err(e)),
            Poll::Pending => return Poll::Pending,
        }
    }
    Poll::Ready(Ok(()))
}
