//! What a route's conditions read of a request.

use crate::client::Client;
use std::cell::OnceCell;
use std::net::IpAddr;
use std::time::SystemTime;
use weir_h1::{Known, RequestHead};
use weir_wire::Peer;

/// A request that looks for its route.
#[derive(Clone, Copy)]
pub(super) struct Received<'a> {
    pub(super) head: &'a RequestHead,
    pub(super) client: &'a Client,
    /// The client's address if a trusted proxy named it.
    pub(super) told: Option<IpAddr>,
    /// The moment of the lookup, once an expression asked: the same for all of them, so that of `now < t` and
    /// `now >= t` one holds.
    pub(super) moment: &'a OnceCell<SystemTime>,
}

impl weir_route::Headers for Received<'_> {
    #[inline]
    fn get_all<'a>(&'a self, name: &[u8]) -> impl Iterator<Item = &'a [u8]> {
        self.head.headers.get_all(name)
    }

    #[inline]
    fn is(&self, name: &[u8], value: &[u8]) -> bool {
        self.head.headers.is(name, value)
    }

    fn client_ip(&self) -> Option<IpAddr> {
        Some(self.told.unwrap_or_else(|| self.client.peer.ip().to_canonical()))
    }

    fn client_port(&self) -> Option<u16> {
        match self.client.peer {
            Peer::Address(address) => Some(address.port()),
            Peer::Local => None,
        }
    }

    fn certificate(&self) -> Option<(&str, &[String])> {
        let certificate = self.client.certificate.as_deref()?;
        Some((&certificate.subject, &certificate.names))
    }

    fn server_name(&self) -> Option<&str> {
        self.client.forwarding.server_name().map(|name| &**name)
    }

    fn is_tls(&self) -> bool {
        is_tls(self.client, self.head)
    }

    fn size(&self) -> Option<u64> {
        self.head.declared_size()
    }

    fn now(&self) -> SystemTime {
        *self.moment.get_or_init(SystemTime::now)
    }
}

/// Whether the client uses TLS. A trusted proxy's word about its own client counts: behind a proxy that terminates
/// TLS, a redirect to https would otherwise loop.
pub(super) fn is_tls(client: &Client, head: &RequestHead) -> bool {
    let said = head.headers.get_known(Known::XForwardedProto).filter(|_| client.trusted);
    said.map_or(client.tls, |proto| proto.eq_ignore_ascii_case(b"https"))
}
