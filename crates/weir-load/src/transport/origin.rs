//! Where connections go: the addresses of a target, or those of the proxy before it.

use super::addresses::Addresses;
use weir_wire::tls::ClientTls;

/// Where connections go.
#[derive(Debug)]
pub(crate) struct Origin {
    /// Never empty.
    pub(crate) addresses: Addresses,
    /// The policy and the name to ask for.
    pub(crate) tls: Option<(ClientTls, String)>,
    /// Where `addresses` are those of a proxy.
    pub(crate) proxy: Option<Proxy>,
}

/// A proxy that the connections to an origin go to.
#[derive(Debug)]
pub(crate) struct Proxy {
    /// As it is reported: a URL without credentials.
    pub(crate) name: String,
    /// What asks for a tunnel; none where the requests themselves go to the proxy.
    pub(crate) connect: Option<Vec<u8>>,
    /// What Proxy-Authorization says.
    pub(crate) authorization: Option<String>,
}

impl Origin {
    /// The policy and the name as they are dialled with.
    pub(crate) fn tls(&self) -> Option<(&ClientTls, &str)> {
        self.tls.as_ref().map(|(policy, name)| (policy, name.as_str()))
    }
}
