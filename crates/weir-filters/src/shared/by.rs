//! Who is counted: the setting `by` of filters that count, and what it makes of a request.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use weir_engine::filter::{Build, Cx, RequestHead};
use weir_engine::template::{Escape, Template, Values};
use weir_h1::FieldName;
use weir_wire::hex;

/// The setting as written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum By {
    Address,
    Consumer,
    Header(FieldName),
    Route,
    /// A text with placeholders.
    Template(String),
}

/// The setting, ready for requests.
pub(crate) struct Who {
    by: Compiled,
    ipv6_mask: u128,
}

enum Compiled {
    Address,
    Consumer,
    Header(FieldName),
    /// The only route there is.
    OneRoute,
    Route,
    Template(Template),
}

/// Who a request counts for.
pub(crate) enum Counted<'a> {
    /// Everybody: there is one counter.
    All,
    /// A consumer, by position.
    Consumer(usize),
    /// Whoever has this key.
    Key(Key<'a>),
}

/// What tells one client from another.
#[derive(Clone, Debug, Hash, PartialEq, Eq)]
pub(crate) enum Key<'a> {
    Consumer(&'a str),
    Header(&'a [u8]),
    Made(Vec<u8>),
    Route(&'a str),
    V4(u32),
    V6(u128),
}

/// Leading bits of an IPv6 address that make one client, unless the config says otherwise.
pub(crate) const IPV6_PREFIX: u8 = 64;

/// Longest part of a key that stands in a name as it is; of a longer one its hash does.
const NAMED_BYTES: usize = 128;

impl Key<'_> {
    /// Appends a name for it that means the same in every gateway.
    pub(crate) fn write(&self, name: &mut Vec<u8>) {
        let (kind, text) = match self {
            Self::Consumer(text) => (b'c', text.as_bytes()),
            Self::Header(text) => (b'h', *text),
            Self::Made(text) => (b't', text.as_slice()),
            Self::Route(text) => (b'r', text.as_bytes()),
            Self::V4(address) => {
                return push(name, b'a', Ipv4Addr::from_bits(*address).to_string().as_bytes());
            }
            Self::V6(address) => {
                return push(name, b'a', Ipv6Addr::from_bits(*address).to_string().as_bytes());
            }
        };
        if text.len() <= NAMED_BYTES {
            return push(name, kind, text);
        }
        let hash = hex::encode(&Sha256::digest(text));
        push(name, kind.to_ascii_uppercase(), hash.as_bytes());
    }
}

fn push(name: &mut Vec<u8>, kind: u8, text: &[u8]) {
    name.extend_from_slice(&[kind, b':']);
    name.extend_from_slice(text);
}

// === impl By ===

impl<'de> Deserialize<'de> for By {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = String::deserialize(d)?;
        match (text.as_str(), text.strip_prefix("header:")) {
            ("address", _) => Ok(Self::Address),
            ("consumer", _) => Ok(Self::Consumer),
            ("route", _) => Ok(Self::Route),
            (_, Some(name)) => {
                FieldName::new(name.trim()).map(Self::Header).map_err(serde::de::Error::custom)
            }
            (template, _) if template.contains('{') => Ok(Self::Template(text)),
            _ => Err(serde::de::Error::custom(format!(
                "`{text}` is no one to count by; expected address, consumer, route, header:NAME or a text with \
                 placeholders such as {{consumer}} {{path}}"
            ))),
        }
    }
}

impl Serialize for By {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Address => s.serialize_str("address"),
            Self::Consumer => s.serialize_str("consumer"),
            Self::Header(name) => s.collect_str(&format_args!("header:{name}")),
            Self::Route => s.serialize_str("route"),
            Self::Template(text) => s.serialize_str(text),
        }
    }
}

impl JsonSchema for By {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "By".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "type": "string",
            "pattern": r"^(address|consumer|route|header:.+|.*\{.+\}.*)$",
            "examples": ["consumer", "address", "route", "header:x-tenant", "{consumer} {path}"]
        })
    }
}

// === impl Who ===

impl Who {
    /// Mistakes go to `build`, under `by` and `ipv6_prefix`.
    pub(crate) fn new(by: By, ipv6_prefix: u8, build: &mut Build<'_>) -> Option<Self> {
        if !(1..=128).contains(&ipv6_prefix) {
            let message = format!("{ipv6_prefix} is not from 1 to 128");
            build.refuse("ipv6_prefix", message, Some(format!("write {IPV6_PREFIX}")));
        }
        let by = match by {
            By::Address => Compiled::Address,
            By::Consumer => Compiled::Consumer,
            By::Header(name) => Compiled::Header(name),
            By::Route if build.scope.starts_with("routes.") => Compiled::OneRoute,
            By::Route => Compiled::Route,
            By::Template(text) => match Template::parse(&text, build.captures) {
                Ok(template) => Compiled::Template(template),
                Err(e) => {
                    build.refuse("by", e.message, e.hint);
                    return None;
                }
            },
        };
        let ipv6_mask = u128::MAX.checked_shl(128_u32.saturating_sub(ipv6_prefix.into())).unwrap_or(0);
        Some(Self { by, ipv6_mask })
    }

    /// The fields of a request that decide: nobody may get past them by another spelling.
    pub(crate) fn guards(&self) -> Vec<FieldName> {
        if let Compiled::Header(name) = &self.by { vec![name.clone()] } else { Vec::new() }
    }

    /// Where nobody was named or there is no such field, it is the client's address.
    pub(crate) fn of<'a>(&'a self, head: &'a RequestHead, cx: &'a Cx) -> Counted<'a> {
        match &self.by {
            Compiled::OneRoute => Counted::All,
            Compiled::Consumer => match cx.consumer_index() {
                Some(consumer) => Counted::Consumer(consumer),
                None => self.address(cx.client),
            },
            Compiled::Address => self.address(cx.client),
            Compiled::Header(name) => match head.headers.get(name) {
                Some(value) => Counted::Key(Key::Header(value)),
                None => self.address(cx.client),
            },
            Compiled::Route => Counted::Key(Key::Route(cx.route())),
            Compiled::Template(template) => {
                let mut made = Vec::new();
                template.render(&Values::of(head, cx), Escape::Nothing, &mut made);
                Counted::Key(Key::Made(made))
            }
        }
    }

    /// A client's address: IPv4 also where it is written as IPv6.
    pub(crate) fn address(&self, client: IpAddr) -> Counted<'static> {
        Counted::Key(match client.to_canonical() {
            IpAddr::V4(address) => Key::V4(address.to_bits()),
            IpAddr::V6(address) => Key::V6(Ipv6Addr::to_bits(address) & self.ipv6_mask),
        })
    }
}
