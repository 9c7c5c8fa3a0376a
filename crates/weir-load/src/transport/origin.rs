//! The destination of connections: the addresses of a target, or of the proxy in front of it.

use super::addresses::Addresses;
use std::net::SocketAddr;
use weir_wire::listen::Address;
use weir_wire::tls::ClientTls;

/// The destination of connections.
#[derive(Debug)]
pub(crate) struct Origin {
    /// Never empty.
    pub(crate) addresses: Addresses,
    /// The policy, and the server name.
    pub(crate) tls: Option<(ClientTls, String)>,
    /// The policy for QUIC, with HTTP/3.
    #[cfg(feature = "http3")]
    pub(crate) quic: Option<super::h3::dial::Policy>,
    /// Set if `addresses` belong to a proxy.
    pub(crate) proxy: Option<Proxy>,
}

/// The proxy for connections to an origin.
#[derive(Debug)]
pub(crate) struct Proxy {
    /// For reports: a URL without credentials.
    pub(crate) name: String,
    /// The request for a tunnel; `None` if requests go to the proxy directly.
    pub(crate) connect: Option<Vec<u8>>,
    /// The value of Proxy-Authorization.
    pub(crate) authorization: Option<String>,
}

impl Origin {
    /// The policy and the name for dialing.
    pub(crate) fn tls(&self) -> Option<(&ClientTls, &str)> {
        self.tls.as_ref().map(|(policy, name)| (policy, name.as_str()))
    }

    /// The addresses with a port; none for a Unix socket.
    pub(crate) fn tcp_addresses(&self) -> Vec<SocketAddr> {
        let all = self.addresses.iter();
        all.filter_map(|a| if let Address::Tcp(address) = a { Some(*address) } else { None }).collect()
    }
}
