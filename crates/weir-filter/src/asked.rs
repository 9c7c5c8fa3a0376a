//! A made-up request, about which `weir explain` asks filters.

use std::net::IpAddr;
use weir_h1::RequestHead;
use weir_route::Parameters;

/// A made-up request, for `weir explain`.
#[derive(Clone, Copy)]
pub struct Asked<'a> {
    /// The request.
    pub head: &'a RequestHead,
    /// Its canonical path.
    pub path: &'a [u8],
    /// The client's address.
    pub client: IpAddr,
    /// Whether it arrives with TLS.
    pub tls: bool,
    /// The name of its route.
    pub route: &'a str,
    /// What that route captures.
    pub parameters: Option<Parameters<'a>>,
}

impl<'a> Asked<'a> {
    /// The name that a client would ask for in its TLS handshake.
    pub(crate) fn server_name(&self) -> Option<&'a str> {
        let host = self.head.asked_authority().split(|&b| b == b':').next()?;
        str::from_utf8(host).ok().filter(|host| self.tls && !host.starts_with('['))
    }
}
