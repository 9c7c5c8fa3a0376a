//! Header names in the settings of filters, and which names a filter may use.

use super::Build;
use schemars::{JsonSchema, Schema};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::ops::Deref;
use weir_h1::{FieldName, Known};

/// A header name in settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderName(FieldName);

impl HeaderName {
    /// A name that the program itself writes.
    ///
    /// # Panics
    /// If it is not a token.
    pub fn fixed(name: &'static str) -> Self {
        Self(FieldName::new(name).expect("a name in the source is a token"))
    }

    /// A name that was already parsed.
    pub const fn of(name: FieldName) -> Self {
        Self(name)
    }
}

impl Deref for HeaderName {
    type Target = FieldName;

    fn deref(&self) -> &FieldName {
        &self.0
    }
}

impl<'de> Deserialize<'de> for HeaderName {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = String::deserialize(d)?;
        FieldName::new(&text).map(Self).map_err(serde::de::Error::custom)
    }
}

impl Serialize for HeaderName {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(self.0.as_str())
    }
}

impl JsonSchema for HeaderName {
    fn schema_name() -> Cow<'static, str> {
        "HeaderName".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> Schema {
        schemars::json_schema!({
            "type": "string",
            "description": "A header name.",
            "pattern": "^[-A-Za-z0-9_.!#$%&'*+^`|~]+$"
        })
    }
}

/// Whether a field contains only the client's address, as every proxy sends it. Upstreams may not vary by such a
/// field.
pub fn is_address(name: &str) -> bool {
    const ADDRESSES: [&str; 9] = [
        "cf-connecting-ip",
        "forwarded",
        "true-client-ip",
        "via",
        "x-client-ip",
        "x-cluster-client-ip",
        "x-envoy-external-address",
        "x-forwarded-for",
        "x-real-ip",
    ];
    ADDRESSES.iter().any(|known| known.eq_ignore_ascii_case(name))
}

/// Whether only the gateway writes and removes fields of this name: those of one connection, of a message's framing,
/// and Host.
pub fn is_of_gateway(name: &[u8]) -> bool {
    matches!(
        Known::of(name),
        Known::Connection
            | Known::ContentLength
            | Known::Expect
            | Known::Host
            | Known::KeepAlive
            | Known::ProxyConnection
            | Known::Te
            | Known::Trailer
            | Known::TransferEncoding
            | Known::Upgrade
    )
}

/// Refuses header names that affect message framing, belong to one connection, or have a better setting. Returns
/// whether the name may be used.
pub fn allow_name(build: &mut Build<'_>, field: &str, name: &HeaderName) -> bool {
    let why = match Known::of(name.as_str().as_bytes()) {
        Known::ContentLength | Known::TransferEncoding | Known::Trailer => {
            "says where a message ends; the gateway alone writes it"
        }
        Known::Connection | Known::KeepAlive | Known::ProxyConnection | Known::Te | Known::Upgrade => {
            "belongs to one connection; the gateway alone writes it"
        }
        Known::Expect => "is answered by the gateway",
        Known::Host => "is part of the request's target",
        Known::Alias => "is dropped from every request, because servers read `_` as `-`",
        _ => return true,
    };
    let hint = match Known::of(name.as_str().as_bytes()) {
        Known::Host => "use the filter rewrite: { host: NAME }, or `host` of the upstream",
        Known::Alias => "write it with `-`",
        _ => "leave it out",
    };
    build.refuse(field, format!("`{name}` {why}", name = name.as_str()), Some(hint.into()));
    false
}
