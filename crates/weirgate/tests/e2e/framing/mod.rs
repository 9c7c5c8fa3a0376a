//! Message framing (RFC 9112): ambiguous messages are refused, all others are rewritten in one canonical form.
//!
//! `heads` are refused request heads, `chunks` refused chunked bodies from both sides, `answers` invalid responses of
//! an upstream; `passed` is the form in which accepted messages arrive.

mod answers;
mod chunks;
mod heads;
mod passed;
