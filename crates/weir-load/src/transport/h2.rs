//! A connection of HTTP/2 as bytes, from the client's side.
//!
//! *Layout.* `connection` is weir-wire's codec, of which `counter` takes what comes, with `head` for heads and `stream` for what is known of a
//! request on its way. `request` renders requests, `once` makes calls before a run.

pub(crate) mod connection;
pub(crate) mod counter;
mod head;
#[cfg(feature = "grpc")]
pub(crate) mod once;
pub(crate) mod request;
mod stream;
