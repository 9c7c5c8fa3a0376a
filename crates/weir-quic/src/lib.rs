//! QUIC (RFC 9000) on the event loop of a core.
//!
//! quinn-proto has the state machines of the protocol and does no I/O. This crate gives it sockets, a clock and tasks:
//! each core has one UDP socket per address and one [`Endpoint`], and a connection stays on one core for its whole
//! life, as TCP connections do.
//!
//! *Layout.* `socket` binds one socket per core to an address. `steer` tells the kernel which of them gets a datagram.
//! `ids` makes connection ids that name the core and the generation of the process. `endpoint` receives, sends and
//! keeps timers; tasks use `connection` and `stream`; `shared` is the state that all three share. `inbox` holds what
//! was received, `interface` has what an endpoint asks and tells. `path` tells which address a peer has proved,
//! `amplification` bounds what is sent to others, and `flood` counts frames that carry nothing. `session` is the TLS
//! session of a client, `keys` are its packet keys, which look into packets by `frames`. `settings` has the limits,
//! `allowance` that of streams.
//!
//! *Architecture Invariant:* nothing here knows HTTP.

mod allowance;
mod amplification;
mod connection;
mod endpoint;
mod flood;
mod frames;
mod ids;
mod inbox;
mod interface;
mod keys;
mod path;
mod session;
mod settings;
mod shared;
mod socket;
mod steer;
mod stream;
mod tokens;

pub use connection::Connection;
pub use endpoint::Endpoint;
pub use ids::{Home, ID_BYTES, home_of};
pub use interface::{Admission, Counts, Datagram, Elsewhere};
pub use settings::{Client, Keys, Limits, Mark, Retry, Server};
pub use shared::{Lost, News};
pub use socket::{Group, bind, bind_more};
pub use steer::steer;
pub use stream::{Piece, Reader, StreamError, Then, Writer};
