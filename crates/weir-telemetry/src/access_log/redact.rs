//! Redaction: fields that the log hides, omits or shortens.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::entry::{Entry, Field};
use super::format::Header;
use crate::error::{Error, Result};

/// How to redact a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Redaction {
    /// Omits the field.
    Drop,
    /// Replaces the value with `***`.
    Hide,
    /// Keeps only the network of an address: 24 bits of IPv4, 48 of IPv6.
    Truncate,
}

const HIDDEN: &[u8] = b"***";

/// The redacted fields, by kind of redaction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Redactions {
    fields: Vec<(Field, Redaction)>,
    headers: Vec<(Header, Redaction)>,
}

impl Redactions {
    /// Adds a field.
    ///
    /// # Errors
    /// If the field does not support this redaction.
    pub(super) fn add(&mut self, field: Field, name: &str, how: Redaction) -> Result<()> {
        let address = matches!(field, Field::Client | Field::Peer);
        match how {
            Redaction::Truncate if !address => {
                return Err(Error::new(format!("`{name}` is not an address; expected hide or drop")));
            }
            Redaction::Hide if address => {
                return Err(Error::new(format!("`{name}` is an address; expected truncate or drop")));
            }
            _ => {}
        }
        if !address && !TEXTS.contains(&field) {
            return Err(Error::new(format!("`{name}` holds no personal data and cannot be redacted")));
        }
        self.fields.push((field, how));
        Ok(())
    }

    /// Adds a message field.
    ///
    /// # Errors
    /// If the field does not support this redaction.
    pub(super) fn add_header(&mut self, header: Header, name: &str, how: Redaction) -> Result<()> {
        if how == Redaction::Truncate {
            return Err(Error::new(format!("`{name}` is not an address; expected hide or drop")));
        }
        self.headers.push((header, how));
        Ok(())
    }

    /// How the request field with this name is redacted: as `header:NAME`, or as the field of the log that has the
    /// same text.
    pub(super) fn of_request(&self, name: &[u8]) -> Option<Redaction> {
        let is_it = |header: &Header| matches!(header, Header::Request(known) if known.as_bytes().eq_ignore_ascii_case(name));
        let named = self.headers.iter().find(|(header, _)| is_it(header)).map(|(_, how)| *how);
        let same =
            |field: &Field| COPIES.iter().any(|(f, n)| f == field && n.as_bytes().eq_ignore_ascii_case(name));
        named.or_else(|| self.fields.iter().find(|(field, _)| same(field)).map(|(_, how)| *how))
    }

    /// Calls `write` with the redacted entry. `headers`: the names of its message fields.
    pub(super) fn apply(&self, entry: &Entry<'_>, headers: &[Header], write: impl FnOnce(&Entry<'_>)) {
        let mut entry = entry.clone();
        for (field, how) in &self.fields {
            hide(&mut entry, *field, *how);
        }
        let mut values = entry.headers.to_vec();
        for (value, header) in values.iter_mut().zip(headers) {
            if let Some((_, how)) = self.headers.iter().find(|(known, _)| known == header) {
                *value = shown(value, *how);
            }
        }
        write(&Entry { headers: &values, ..entry });
    }
}

/// Request fields that have the text of a field of the log.
const COPIES: [(Field, &str); 10] = [
    (Field::Client, "cf-connecting-ip"),
    (Field::Client, "forwarded"),
    (Field::Client, "true-client-ip"),
    (Field::Client, "x-forwarded-for"),
    (Field::Client, "x-real-ip"),
    (Field::Host, "x-forwarded-host"),
    (Field::Referer, "referer"),
    (Field::RequestId, "x-request-id"),
    (Field::TlsClientSubject, "x-forwarded-client-cert"),
    (Field::UserAgent, "user-agent"),
];

/// The fields, besides addresses, that may be redacted: they come from clients or identify them.
const TEXTS: [Field; 13] = [
    Field::Consumer,
    Field::Credential,
    Field::Host,
    Field::Path,
    Field::Query,
    Field::Referer,
    Field::RequestId,
    Field::TlsClientFingerprint,
    Field::TlsClientSan,
    Field::TlsClientSubject,
    Field::Uri,
    Field::UserAgent,
    Field::Upstream,
];

fn hide(entry: &mut Entry<'_>, field: Field, how: Redaction) {
    let text = |value: &mut &str| *value = str::from_utf8(shown(value.as_bytes(), how)).unwrap_or_default();
    match field {
        Field::Client => entry.client = entry.client.filter(|_| how == Redaction::Truncate).map(network),
        Field::Peer => {
            let peer = entry.peer.filter(|_| how == Redaction::Truncate);
            entry.peer = peer.map(|peer| SocketAddr::new(network(peer.ip()), 0));
        }
        Field::Consumer => text(&mut entry.consumer),
        Field::Credential => entry.credential = shown(entry.credential, how),
        Field::Host => entry.host = shown(entry.host, how),
        Field::Path => entry.path = shown(entry.path, how),
        Field::Query => entry.query = shown(entry.query, how),
        Field::Referer => entry.referer = shown(entry.referer, how),
        Field::RequestId => entry.request_id = shown(entry.request_id, how),
        Field::TlsClientFingerprint => text(&mut entry.tls_client_fingerprint),
        Field::TlsClientSan => text(&mut entry.tls_client_san),
        Field::TlsClientSubject => text(&mut entry.tls_client_subject),
        Field::Upstream => text(&mut entry.upstream),
        Field::Uri => {
            entry.path = shown(entry.path, how);
            entry.query = b"";
        }
        Field::UserAgent => entry.user_agent = shown(entry.user_agent, how),
        _ => {} // `add` accepted no others
    }
}

/// The replacement for a text.
fn shown(value: &[u8], how: Redaction) -> &'static [u8] {
    if value.is_empty() || how != Redaction::Hide { b"" } else { HIDDEN }
}

fn network(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(ip) => {
            let [a, b, c, _] = ip.octets();
            Ipv4Addr::new(a, b, c, 0).into()
        }
        IpAddr::V6(ip) => {
            let [a, b, c, ..] = ip.segments();
            Ipv6Addr::new(a, b, c, 0, 0, 0, 0, 0).into()
        }
    }
}
