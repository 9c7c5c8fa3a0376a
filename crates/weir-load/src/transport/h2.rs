//! An HTTP/2 connection as bytes, from the client's side.
//!
//! *Layout.* `connection` uses weir-wire's codec, whose events go to `counter`; `head` reads heads, and `stream` is the
//! state of a request in flight. `request` renders requests, also for HTTP/3; `single_call` makes calls before a run.

pub(crate) mod connection;
pub(crate) mod counter;
mod head;
pub(crate) mod request;
#[cfg(feature = "grpc")]
pub(crate) mod single_call;
pub(in crate::transport) mod stream;
