//! What is counted: the setting `by` of filters that count, and the key that it derives from a request.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use weir_filter::config::de;
use weir_filter::expr::template::{Piece, pieces, whole};
use weir_filter::filter::{Build, Cx, RequestHead};
use weir_filter::template::{Escape, Malformed, Names, Template, Values};
use weir_filter::{cookies, query};
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
    /// The filter's only route.
    OneRoute,
    Route,
    Template(Vec<Part>),
}

/// A piece of a text with placeholders.
#[derive(Debug, PartialEq, Eq)]
enum Part {
    Cookie(String),
    Header(FieldName),
    /// A query parameter, decoded.
    Query(String),
    Text(Template),
}

/// What a request is counted for.
pub(crate) enum Counted<'a> {
    /// All requests share one counter.
    All,
    /// A consumer, by position.
    Consumer(usize),
    /// The client with this key.
    Key(Key<'a>),
}

/// Identifies a client.
#[derive(Clone, Debug, Hash, PartialEq, Eq)]
pub(crate) enum Key<'a> {
    Consumer(&'a str),
    Header(&'a [u8]),
    Made(Vec<u8>),
    Route(&'a str),
    V4(u32),
    V6(u128),
}

/// Leading bits of an IPv6 address that make one client, by default.
pub(crate) const IPV6_PREFIX: u8 = 64;

/// Longest part of a key that is written unchanged into a name; longer parts are replaced by their hash.
const NAMED_BYTES: usize = 128;

impl Key<'_> {
    /// Appends a name for the key that is the same in every gateway.
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
            (template, _) if template.contains('{') || template.starts_with("= ") => Ok(Self::Template(text)),
            _ => {
                const EXPECTED: &str = "known here; expected address, consumer, route, header:NAME, a text with \
                                        placeholders such as {consumer} {path}, or an expression after `= `";
                let hint = match text.to_ascii_lowercase().replace(['-', '_'], "").as_str() {
                    "client" | "clientip" | "ip" | "remoteaddr" | "remoteip" | "sourceip" => {
                        Some("write address")
                    }
                    "apikey" | "credential" | "key" | "token" | "user" => {
                        Some("write consumer, after a filter that identifies callers")
                    }
                    "all" | "global" | "service" => Some("write route"),
                    "header" => Some("name it: header:x-tenant"),
                    _ => None,
                };
                Err(de::refuse(EXPECTED, hint))
            }
        }
    }
}

impl fmt::Display for By {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address => f.write_str("address"),
            Self::Consumer => f.write_str("consumer"),
            Self::Header(name) => write!(f, "header:{name}"),
            Self::Route => f.write_str("route"),
            Self::Template(text) => f.write_str(text),
        }
    }
}

impl Serialize for By {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl JsonSchema for By {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "By".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "type": "string",
            "pattern": r"^(address|consumer|route|header:.+|.*\{.+\}.*|= .+)$",
            "examples": ["consumer", "address", "route", "header:x-tenant", "{consumer} {path}", "= request.cookies.sid ?? client.ip"]
        })
    }
}

// === impl Who ===

impl Who {
    /// Compiles the setting. Mistakes go to `build`, under `by` and `ipv6_prefix`.
    pub(crate) fn new(by: By, ipv6_prefix: u8, build: &mut Build<'_>) -> Option<Self> {
        if !(1..=128).contains(&ipv6_prefix) {
            let message = format!("{ipv6_prefix} is not from 1 to 128");
            build.refuse("ipv6_prefix", message, Some(format!("write {IPV6_PREFIX}").into()));
        }
        let by = match by {
            By::Address => Compiled::Address,
            By::Consumer => Compiled::Consumer,
            By::Header(name) => Compiled::Header(name),
            By::Route if build.scope.starts_with("routes.") => Compiled::OneRoute,
            By::Route => Compiled::Route,
            By::Template(text) => {
                let parsed = parse(&text, &build.names());
                build.written("by", &text, parsed.is_ok());
                match parsed {
                    Ok(parts) => Compiled::Template(parts),
                    Err(e) => {
                        build.malformed("by", e);
                        return None;
                    }
                }
            }
        };
        let ipv6_mask = u128::MAX.checked_shl(128_u32.saturating_sub(ipv6_prefix.into())).unwrap_or(0);
        Some(Self { by, ipv6_mask })
    }

    /// The request fields that decide. Clients must not evade them by another spelling.
    pub(crate) fn guards(&self) -> Vec<FieldName> {
        match &self.by {
            Compiled::Header(name) => vec![name.clone()],
            Compiled::Template(parts) => {
                let of = |part: &Part| match part {
                    Part::Header(name) => vec![name.clone()],
                    Part::Text(text) => text.guarded().collect(),
                    Part::Cookie(_) | Part::Query(_) => Vec::new(),
                };
                parts.iter().flat_map(of).collect()
            }
            _ => Vec::new(),
        }
    }

    /// The consumer of the config that a request is counted for, if it is counted for one.
    #[inline]
    pub(crate) fn consumer(&self, cx: &Cx) -> Option<usize> {
        let is_asked = matches!(self.by, Compiled::Consumer) && cx.listed().is_none();
        cx.consumer_index().filter(|_| is_asked)
    }

    /// Without a named consumer or without the field, the client's address counts. In a text, missing values are
    /// empty.
    pub(crate) fn of<'a>(&'a self, head: &'a RequestHead, cx: &'a Cx) -> Counted<'a> {
        match &self.by {
            Compiled::OneRoute => Counted::All,
            Compiled::Consumer => match cx.consumer_index() {
                Some(index) => match cx.listed() {
                    Some(consumer) => Counted::Key(Key::Consumer(&consumer.name)),
                    None => Counted::Consumer(index),
                },
                None => self.address(cx.client),
            },
            Compiled::Address => self.address(cx.client),
            Compiled::Header(name) => match head.headers.get(name) {
                Some(value) => Counted::Key(Key::Header(value)),
                None => self.address(cx.client),
            },
            Compiled::Route => Counted::Key(Key::Route(cx.route())),
            Compiled::Template(parts) => {
                let mut made = Vec::new(); // no longer than the text and the request's head
                let caller = cx.caller();
                parts.iter().for_each(|part| part.write(head, cx, &mut made));
                cx.unreveal(weir_filter::filter::Revealed::ALL, caller); // it names a counter, which stays here
                if !parts.iter().any(Part::identifies) {
                    cx.unidentify(caller);
                }
                Counted::Key(Key::Made(made))
            }
        }
    }

    /// The key of a client's address. IPv4-mapped IPv6 counts as IPv4.
    pub(crate) fn address(&self, client: IpAddr) -> Counted<'static> {
        Counted::Key(match client.to_canonical() {
            IpAddr::V4(address) => Key::V4(address.to_bits()),
            IpAddr::V6(address) => Key::V6(Ipv6Addr::to_bits(address) & self.ipv6_mask),
        })
    }
}

/// Compiles a text. A placeholder `kind:NAME` is ours, all others and expressions are those of any template.
fn parse(text: &str, names: &Names<'_>) -> Result<Vec<Part>, Malformed> {
    let mut parts = Vec::new();
    if whole(text).is_some() {
        return Ok(vec![Part::Text(Template::parse(text, names)?)]);
    }
    for piece in pieces(text)? {
        match piece {
            Piece::Expression(source, at) => {
                let begins = at - "{=".len();
                let range = begins..at + source.len() + "}".len();
                let template = Template::parse(text.get(range).unwrap_or_default(), names);
                let moved = |e: Malformed| Malformed { offset: e.offset.map(|offset| offset + begins), ..e };
                parts.push(Part::Text(template.map_err(moved)?));
            }
            Piece::Literal(literal) => parts.push(Part::Text(Template::literally(literal))),
            Piece::Text(text) => placeholders(text, names, &mut parts)?,
        }
    }
    Ok(parts)
}

/// Adds a text without expressions.
fn placeholders(text: &str, names: &Names<'_>, parts: &mut Vec<Part>) -> Result<(), Malformed> {
    let (mut plain, mut rest) = (text, text);
    while let Some(at) = rest.find('{') {
        let inside = &rest[at + 1..];
        if let Some(after) = inside.strip_prefix('{') {
            rest = after; // a brace as such
            continue;
        }
        let Some((name, after)) = inside.split_once('}') else { break };
        if let Some((kind, name)) = name.split_once(':') {
            let before = &plain[..plain.len() - rest.len() + at];
            if !before.is_empty() {
                parts.push(Part::Text(Template::parse(before, names)?));
            }
            parts.push(Part::named(kind, name)?);
            plain = after;
        }
        rest = after;
    }
    if !plain.is_empty() {
        parts.push(Part::Text(Template::parse(plain, names)?));
    }
    Ok(())
}

// === impl Part ===

impl Part {
    fn named(kind: &str, name: &str) -> Result<Self, Malformed> {
        let wrong = |message: String, hint: &str| Malformed::new(message, Some(hint.into()));
        let token = || {
            let message = format!("`{name}` is not a {kind} name");
            FieldName::new(name)
                .map_err(|_| wrong(message, "write one such as {header:x-tenant} or {cookie:tenant}"))
        };
        match kind {
            "cookie" => token().map(|_| Self::Cookie(name.to_owned())),
            "header" => token().map(Self::Header),
            "query" if name.is_empty() => Err(wrong(
                "a parameter of the query has no name".to_owned(),
                "write one such as {query:tenant}",
            )),
            "query" => Ok(Self::Query(name.to_owned())),
            _ => Err(wrong(
                format!("`{{{kind}:{name}}}` is not a placeholder"),
                "write {header:NAME}, {cookie:NAME} or {query:NAME}",
            )),
        }
    }

    /// Whether it has an expression that reads a credential.
    fn identifies(&self) -> bool {
        matches!(self, Self::Text(text) if text.identifies())
    }

    /// Appends its value: the first, where the request has several.
    fn write(&self, head: &RequestHead, cx: &Cx, out: &mut Vec<u8>) {
        match self {
            Self::Cookie(name) => {
                out.extend_from_slice(cookies::values(head, name).next().unwrap_or_default())
            }
            Self::Header(name) => out.extend_from_slice(head.headers.get(name).unwrap_or_default()),
            Self::Query(name) => {
                let value = head.query().and_then(|query| query::values(query, name).next());
                out.extend_from_slice(&value.unwrap_or_default());
            }
            Self::Text(template) => template.render(&Values::of(head, cx), Escape::Nothing, out),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_filter::route::variables::{Bounds, Vocabulary};

    fn names(captures: Option<&[String]>) -> Names<'_> {
        let bounds = Bounds { head_bytes: 32 * 1024, fields: 100 };
        Names::new(captures, Box::leak(Box::new(Vocabulary::without_maps(bounds))))
    }

    #[test]
    fn texts_with_placeholders_of_a_request() {
        let text = |text: &str| Part::Text(Template::parse(text, &names(None)).unwrap());
        let header = || Part::Header(FieldName::new("x-tenant").unwrap());
        for (written, expected) in [
            ("{consumer} {path}", vec![text("{consumer} {path}")]),
            ("{header:x-tenant}", vec![header()]),
            (
                "a {host}/{header:x-tenant}{query:a b}",
                vec![text("a {host}/"), header(), Part::Query("a b".to_owned())],
            ),
            ("{cookie:t} of {client}", vec![Part::Cookie("t".to_owned()), text(" of {client}")]),
            ("{{header:x}} {header:x-tenant}", vec![text("{{header:x}} "), header()]),
        ] {
            assert_eq!(parse(written, &names(None)).unwrap(), expected, "{written}");
        }
        for (written, said) in [
            ("{header:}", "not a header name"),
            ("{header:a b}", "not a header name"),
            ("{cookie:a=b}", "not a cookie name"),
            ("{query:}", "has no name"),
            ("{claim:sub}", "`{claim:sub}` is not a placeholder"),
            ("{header:x-tenant", "belongs to no placeholder"),
            ("{header:x-tenant} {usr}", "`{usr}` is not a placeholder"),
            ("} {header:x-tenant}", "belongs to no placeholder"),
        ] {
            let refused = parse(written, &names(Some(&[]))).unwrap_err();
            assert!(refused.message.contains(said), "{written}: {refused:?}");
        }
    }
}
