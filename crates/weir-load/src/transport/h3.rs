//! An HTTP/3 connection from the client's side: weir-quic carries it, and weir-h3's codec has the protocol.
//!
//! *Layout.* `dial` opens QUIC connections on a thread's endpoints. `connection` moves the bytes of streams between
//! QUIC and the codec, whose events go to the counter of `transport::h2` through `sink`. `ready` says which streams
//! have something to do, and `request` renders requests.

pub(crate) mod connection;
pub(crate) mod dial;
mod ready;
pub(crate) mod request;
mod sink;
