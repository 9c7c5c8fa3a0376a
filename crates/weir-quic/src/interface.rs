//! What an endpoint asks of its owner, and what it tells.

use crate::ids::Home;
use std::net::{IpAddr, SocketAddr};

/// What happens to a client that wants to connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// It may connect.
    Granted,
    /// It must prove its address first, by a Retry packet. A client that has proved it may connect.
    Proof,
    /// It is refused.
    Refused,
}

/// A datagram and where it came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Who sent it.
    pub from: SocketAddr,
    /// Our address that it was sent to, if the kernel told.
    pub to: Option<IpAddr>,
    /// Its ECN bits (RFC 3168).
    pub ecn: Option<u8>,
}

/// Takes datagrams of connections that another core or process has.
pub trait Elsewhere {
    /// Passes a datagram on. Returns false if nobody has that home any more; the sender then gets a stateless reset.
    fn pass(&self, home: Home, datagram: Datagram) -> bool;
}

/// What an endpoint has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Datagrams received.
    pub received: u64,
    /// Their bytes.
    pub received_bytes: u64,
    /// Datagrams sent.
    pub sent: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Datagrams that the system did not take, such as those to a network that can not be reached.
    pub unsent: u64,
    /// Datagrams passed on, because another core or process has the connection.
    pub misplaced: u64,
    /// Handshakes that became connections.
    pub connected: u64,
    /// Clients that had to prove their address first.
    pub retries: u64,
    /// Clients refused because of a limit.
    pub refused: u64,
    /// Connections that ended before the handshake was done.
    pub failed: u64,
}
