//! HTTP over sockets, both roles: accepting, dialling, reading and writing for every core.
//!
//! *Layout.* `stream` is one connection of any kind; `listen` binds and accepts, `dial` connects. `tls` is the only
//! module that uses rustls; `client_hello` reads the name that a client asks for. `h2` is the HTTP/2 codec; `fastcgi`
//! reads what FastCGI servers answer. `relay` moves one body, or a tunnel, between two connections. `driver` is the
//! event loop of a core; `sockets` and `time` are what its tasks wait for. `deadline` is the one timer of a
//! connection, `timer` an exact kernel timer. `handover` passes sockets to another process; `port_owner` finds the
//! process that owns an address. `limits` raises the descriptor limit; `random` prepares a thread for handshakes.
//!
//! *Architecture Invariant:* nothing here knows routes, filters or configs.

pub mod allocator;
pub mod base64;
mod chain;
pub mod client_hello;
pub mod deadline;
pub mod dial;
mod driver;
pub mod fastcgi;
pub mod h2;
pub mod handover;
pub mod hex;
pub mod limits;
pub mod listen;
pub mod memory_file;
pub mod pages;
mod peer;
pub mod port_owner;
pub mod proxy_protocol;
pub mod random;
pub mod relay;
mod round_trip;
mod sockets;
mod stream;
pub mod time;
pub mod timer;
pub mod tls;
mod transport;
pub mod websocket;

pub use chain::{Chain, Context};
pub use deadline::Deadline;
pub use driver::{Driver, datagrams, spawn, yield_now};
pub use peer::{Peer, client_network};
pub use sockets::{Class, CoreListener, Datagrams, Socket, Sockets};
pub use stream::{Carried, Stream};
pub use tls::{TlsInfo, TlsKeys};
pub use transport::Transport;
