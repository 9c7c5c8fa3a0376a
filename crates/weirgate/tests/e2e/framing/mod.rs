//! Where a message ends (RFC 9112): whatever is ambiguous is refused, and what is not is said anew in one form only.
//!
//! `heads` are request heads that are refused, `chunks` chunked bodies that are, from both sides, `answers` what an
//! upstream may not say; `passed` is what reaches the other side of what is accepted.

mod answers;
mod chunks;
mod heads;
mod passed;
