//! The peer of a connection, accepted or dialed.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// The other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// An address.
    Address(SocketAddr),
    /// A process on this machine, through a Unix socket.
    Local,
}

impl Peer {
    /// The peer's IP. For a Unix socket it is loopback, since only this machine can reach the socket.
    pub const fn ip(&self) -> IpAddr {
        match self {
            Self::Address(address) => address.ip(),
            Self::Local => IpAddr::V4(Ipv4Addr::LOCALHOST),
        }
    }
}

impl std::fmt::Display for Peer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Address(address) => address.fmt(f),
            Self::Local => f.write_str("unix"),
        }
    }
}

/// What limits per client count as one address: an IPv4 address, or a /64 of IPv6, since one host usually controls a
/// whole one.
pub fn client_network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => IpAddr::V6((v6.to_bits() & !u128::from(u64::MAX)).into()),
        v4 @ IpAddr::V4(_) => v4,
    }
}
