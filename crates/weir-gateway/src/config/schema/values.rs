//! Values that several sections share: names, addresses, paths, networks, and filters as written.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::{Deserializer, MapAccess, Visitor};
use serde::{Deserialize, Serialize, Serializer};

use crate::config::de;
use crate::config::node::{Node, Value};

/// Things with a name, in the order written. Order never decides anything; it is kept so that lists read as written.
#[derive(Clone, Debug, PartialEq)]
pub struct Named<T>(Vec<(String, T)>);

/// The name of a listener, upstream, consumer, plan or route: letters, digits, `_`, `.` and `-`, at most 64.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Name(String);

/// A name and a value for each of several fields, in the order written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pairs(pub Vec<(String, String)>);

/// A path in the file system; relative to the file of the config that names it, absolute once it was read.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FilePath(pub PathBuf);

/// A network such as `10.0.0.0/8`; a bare address is the network of this address alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Network(pub ipnet::IpNet);

/// Where a listener listens: `0.0.0.0:8080`, `[::]:8080` or `unix:/run/weir.sock`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ListenAddress {
    /// An address of this machine.
    Tcp(SocketAddr),
    /// A Unix socket.
    Unix(PathBuf),
}

/// Where an endpoint is reached: `127.0.0.1:8000`, `[::1]:80`, `orders.internal:8000` or `unix:/run/orders.sock`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum EndpointAddress {
    /// A name to be resolved: each of its addresses is an endpoint.
    Name {
        /// The host name, lower case.
        host: String,
        /// The port.
        port: u16,
    },
    /// One address.
    Tcp(SocketAddr),
    /// A Unix socket.
    Unix(PathBuf),
}

/// A filter as written: its name, and its settings not yet read. The registry of filters reads them with `de::read`.
#[derive(Clone, Debug, PartialEq)]
pub struct FilterNode {
    /// The name of the filter, such as `key_auth`.
    pub name: String,
    /// Its settings; an empty map where none are written.
    pub node: Node,
    /// Where it stands, such as `routes.orders.filters[0].key_auth`.
    pub path: String,
}

/// Where lines are written: `stdout`, `stderr`, `"off"` or a file.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Output {
    /// A file, appended to and reopened on SIGUSR1.
    File(PathBuf),
    /// Nowhere.
    Off,
    /// Standard error.
    Stderr,
    /// Standard output.
    Stdout,
}

// === impl Named ===

impl<T> Named<T> {
    /// The thing of this name.
    pub fn get(&self, name: &str) -> Option<&T> {
        self.0.iter().find(|(n, _)| n == name).map(|(_, thing)| thing)
    }

    /// Whether something has this name.
    pub fn contains(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// Names and things, in the order written.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &T)> {
        self.0.iter().map(|(name, thing)| (name.as_str(), thing))
    }

    /// The names, in the order written.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.0.iter().map(|(name, _)| name.as_str())
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<T> Default for Named<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> FromIterator<(String, T)> for Named<T> {
    fn from_iter<I: IntoIterator<Item = (String, T)>>(iter: I) -> Self {
        Self(iter.into_iter().collect())
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Named<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NamedVisitor<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for NamedVisitor<T> {
            type Value = Named<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map of names")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Named<T>, A::Error> {
                let mut named = Vec::new();
                while let Some(name) = map.next_key::<Name>()? {
                    named.push((name.0, map.next_value()?));
                }
                Ok(Named(named))
            }
        }

        deserializer.deserialize_map(NamedVisitor(PhantomData))
    }
}

impl<T: JsonSchema> JsonSchema for Named<T> {
    fn schema_name() -> Cow<'static, str> {
        format!("Named_{}", T::schema_name()).into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let thing = generator.subschema_for::<T>();
        schemars::json_schema!({
            "type": "object",
            "propertyNames": { "pattern": Name::PATTERN },
            "additionalProperties": thing,
        })
    }
}

impl Name {
    const PATTERN: &'static str = "^[A-Za-z0-9_.-]{1,64}$";
    const EXPECTED: &'static str =
        "a name; expected at most 64 letters, digits, `_`, `.` and `-`, such as orders_v2";
    const MAX_LENGTH: usize = 64;
}

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = de::text(deserializer, Self::EXPECTED)?;
        let fits = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
        if text.is_empty() || text.len() > Self::MAX_LENGTH || !text.chars().all(fits) {
            return Err(de::refuse(Self::EXPECTED, None));
        }
        Ok(Self(text))
    }
}

// === impl Pairs ===

impl<'de> Deserialize<'de> for Pairs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct PairsVisitor;

        impl<'de> Visitor<'de> for PairsVisitor {
            type Value = Pairs;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map of names to values, such as { x-env: blue }")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Pairs, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(Pairs(pairs))
            }
        }

        deserializer.deserialize_map(PairsVisitor)
    }
}

impl JsonSchema for Pairs {
    fn schema_name() -> Cow<'static, str> {
        "Pairs".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        schemars::json_schema!({
            "type": "object",
            "additionalProperties": { "type": ["string", "number", "boolean"] },
        })
    }
}

// === text forms ===

/// Joins `path` to the folder of the file that names it.
fn beside(node: Option<&Node>, path: &str) -> PathBuf {
    let folder = node.and_then(|node| node.at.file.parent());
    folder.map_or_else(|| PathBuf::from(path), |folder| folder.join(path))
}

/// Reads a scalar together with its node, which relative paths need.
fn text_and_node<'de, D: Deserializer<'de>>(
    deserializer: D,
    expected: &'static str,
) -> Result<(String, Option<Node>), D::Error> {
    let raw = de::Raw::deserialize(deserializer)?;
    match raw.node.as_text() {
        Some(text) => Ok((text.to_owned(), Some(raw.node))),
        None => Err(de::refuse(expected, None)),
    }
}

macro_rules! text_schema {
    ($type:ident, $description:literal, $examples:expr) => {
        impl JsonSchema for $type {
            fn schema_name() -> Cow<'static, str> {
                stringify!($type).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                schemars::json_schema!({ "type": "string", "description": $description, "examples": $examples })
            }
        }
    };
}
pub(super) use text_schema;

text_schema!(FilePath, "A path, relative to the file that names it.", ["certs/api.pem", "/etc/weir/api.pem"]);
text_schema!(Network, "A network or one address.", ["10.0.0.0/8", "192.0.2.7", "2001:db8::/32"]);
text_schema!(
    ListenAddress,
    "An address of this machine with a port, or a Unix socket.",
    ["0.0.0.0:8080", "[::]:8080", "unix:/run/weir.sock"]
);
text_schema!(
    EndpointAddress,
    "A host and port, or a Unix socket. Each address of a name is an endpoint.",
    ["127.0.0.1:8000", "orders.internal:8000", "[::1]:80", "unix:/run/orders.sock"]
);
text_schema!(Output, "Where to write.", ["stdout", "stderr", "off", "/var/log/weir/access.log"]);

impl<'de> Deserialize<'de> for FilePath {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        const EXPECTED: &str = "a path; expected e.g. certs/api.pem";
        let (text, node) = text_and_node(deserializer, EXPECTED)?;
        if text.is_empty() {
            return Err(de::refuse(EXPECTED, None));
        }
        Ok(Self(beside(node.as_ref(), &text)))
    }
}

impl<'de> Deserialize<'de> for Network {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        const EXPECTED: &str = "a network; expected e.g. 10.0.0.0/8, 192.0.2.7, 2001:db8::/32";
        let text = de::text(deserializer, EXPECTED)?;
        if let Ok(address) = text.parse::<IpAddr>() {
            return Ok(Self(address.into()));
        }
        let network: ipnet::IpNet = text.parse().map_err(|_| de::refuse(EXPECTED, None))?;
        if network.addr() != network.network() {
            // `10.1.2.3/8` is either a typo of the address or of the length: we cannot know which.
            let hint = format!("write {} or {}", network.trunc(), network.addr());
            return Err(de::refuse("a network: bits are set after its length", Some(&hint)));
        }
        Ok(Self(network))
    }
}

impl<'de> Deserialize<'de> for ListenAddress {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::from_raw(de::Raw::deserialize(deserializer)?)
    }
}

impl ListenAddress {
    const EXPECTED: &'static str =
        "an address to listen on; expected e.g. 0.0.0.0:8080, [::]:8080, unix:/run/weir.sock";

    pub(super) fn from_raw<E: serde::de::Error>(raw: de::Raw) -> Result<Self, E> {
        let text = raw.node.as_text().ok_or_else(|| de::refuse(Self::EXPECTED, None))?;
        if let Some(path) = text.strip_prefix("unix:").filter(|path| !path.is_empty()) {
            return Ok(Self::Unix(beside(Some(&raw.node), path)));
        }
        text.parse().map_err(|hint: Option<String>| de::refuse(Self::EXPECTED, hint.as_deref()))
    }
}

/// Fails with what to write instead, where that can be guessed.
impl FromStr for ListenAddress {
    type Err = Option<String>;

    fn from_str(text: &str) -> Result<Self, Option<String>> {
        if let Some(path) = text.strip_prefix("unix:").filter(|path| !path.is_empty()) {
            return Ok(Self::Unix(path.into()));
        }
        if let Ok(address) = text.parse() {
            return Ok(Self::Tcp(address));
        }
        if let Some((_, rest)) = text.split_once("://") {
            return Err(Some(format!("leave out the scheme: {rest}")));
        }
        if text.starts_with('/') {
            return Err(Some(format!("write unix:{text}")));
        }
        if text.parse::<u16>().is_ok() {
            return Err(Some(format!("write 0.0.0.0:{text}, or 127.0.0.1:{text} for this machine only")));
        }
        if text.parse::<IpAddr>().is_ok() {
            return Err(Some("add a port".to_owned()));
        }
        Err(match text.rsplit_once(':') {
            Some(("" | "*", port)) => Some(format!("write 0.0.0.0:{port}")),
            Some(("localhost", port)) => Some(format!("write 127.0.0.1:{port}")),
            Some((_, port)) if port.parse::<u16>().is_err() => port_hint(port),
            _ => None,
        })
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl EndpointAddress {
    pub(super) const EXPECTED: &'static str =
        "an endpoint; expected e.g. 127.0.0.1:8000, orders.internal:8000, [::1]:80, unix:/run/orders.sock";
}

impl<'de> Deserialize<'de> for EndpointAddress {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (text, node) = text_and_node(deserializer, Self::EXPECTED)?;
        if let Some(path) = text.strip_prefix("unix:").filter(|path| !path.is_empty()) {
            return Ok(Self::Unix(beside(node.as_ref(), path)));
        }
        text.parse().map_err(|hint: Option<String>| de::refuse(Self::EXPECTED, hint.as_deref()))
    }
}

/// Fails with what to write instead, where that can be guessed.
impl FromStr for EndpointAddress {
    type Err = Option<String>;

    fn from_str(text: &str) -> Result<Self, Option<String>> {
        if let Some(path) = text.strip_prefix("unix:").filter(|path| !path.is_empty()) {
            return Ok(Self::Unix(path.into()));
        }
        if let Ok(address) = text.parse::<SocketAddr>() {
            return match address.port() {
                0 => Err(port_hint("0")),
                _ => Ok(Self::Tcp(address)),
            };
        }
        if let Some((scheme, rest)) = text.split_once("://") {
            let rest = rest.trim_end_matches('/');
            let tls = if scheme == "https" { ", and `tls: {}` beside the endpoints" } else { "" };
            let port = if scheme == "https" { 443 } else { 80 };
            let rest = if rest.contains(':') { rest.to_owned() } else { format!("{rest}:{port}") };
            return Err(Some(format!("write {rest}{tls}")));
        }
        if text.parse::<IpAddr>().is_ok() {
            return Err(Some("add a port".to_owned()));
        }
        let Some((host, port)) = text.rsplit_once(':') else {
            return Err(is_host_name(text).then(|| format!("add a port: {text}:80")));
        };
        match port.parse::<u16>() {
            Ok(port) if port > 0 && is_host_name(host) => {
                Ok(Self::Name { host: host.to_ascii_lowercase(), port })
            }
            Ok(port) if port > 0 => Err(None),
            _ => Err(port_hint(port)),
        }
    }
}

impl fmt::Display for EndpointAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name { host, port } => write!(f, "{host}:{port}"),
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

fn port_hint(port: &str) -> Option<String> {
    port.parse::<u64>().is_ok().then(|| "a port is a number from 1 to 65535".to_owned())
}

/// Letters, digits and hyphens in labels of at most 63, 253 in all; underscores too, which container networks use.
/// Source: RFC 1123 §2.1. A name of digits and dots alone would be a mistyped address.
fn is_host_name(host: &str) -> bool {
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let name = host.strip_suffix('.').unwrap_or(host);
    name.len() <= 253 && name.split('.').all(label) && name.chars().any(|c| c.is_ascii_alphabetic())
}

impl<'de> Deserialize<'de> for Output {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        const EXPECTED: &str = "an output; expected stdout, stderr, off or a file path";
        let (text, node) = text_and_node(deserializer, EXPECTED)?;
        match text.as_str() {
            "" => Err(de::refuse(EXPECTED, None)),
            "off" => Ok(Self::Off),
            "stderr" => Ok(Self::Stderr),
            "stdout" => Ok(Self::Stdout),
            "false" => Err(de::refuse(EXPECTED, Some("write off"))),
            // A bare word is more likely a mistyped stdout than a file without folder and suffix.
            word if !word.contains(['/', '.', '\\']) => {
                Err(de::refuse(EXPECTED, Some(&format!("for a file write ./{word}"))))
            }
            path => Ok(Self::File(beside(node.as_ref(), path))),
        }
    }
}

impl Serialize for Output {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::File(path) => serializer.collect_str(&path.display()),
            Self::Off => serializer.serialize_str("off"),
            Self::Stderr => serializer.serialize_str("stderr"),
            Self::Stdout => serializer.serialize_str("stdout"),
        }
    }
}

// === impl FilterNode ===

impl<'de> Deserialize<'de> for FilterNode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        const EXPECTED: &str =
            "a filter; expected its name and settings, e.g. `- key_auth: { header: apikey }`";
        let de::Raw { node, path } = de::Raw::deserialize(deserializer)?;
        match &node.value {
            Value::Str(name) if !name.is_empty() => {
                let path = format!("{path}.{name}");
                Ok(Self { name: name.clone(), node: Node::empty_map(node.at.clone()), path })
            }
            Value::Map(entries) => match entries.as_slice() {
                [(key, settings)] => {
                    let path = format!("{path}.{}", key.text);
                    let node = match settings.value {
                        Value::Null => Node::empty_map(settings.at.clone()),
                        _ => settings.clone(),
                    };
                    Ok(Self { name: key.text.clone(), node, path })
                }
                [] => Err(de::refuse(EXPECTED, None)),
                [(first, _), (second, at), ..] => {
                    // The usual cause: settings that are not indented below the name of their filter.
                    let hint = format!(
                        "indent `{}` (line {}) below `{}` if it is a setting, or begin a new item with `-`",
                        second.text, at.at.line, first.text
                    );
                    Err(de::refuse(EXPECTED, Some(&hint)))
                }
            },
            _ => Err(de::refuse(EXPECTED, None)),
        }
    }
}

impl JsonSchema for FilterNode {
    fn schema_name() -> Cow<'static, str> {
        "Filter".into()
    }

    /// Any one filter; `config::schema` puts the known filters in its place.
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        schemars::json_schema!({
            "description": "One filter: its name and its settings.",
            "type": "object",
            "minProperties": 1,
            "maxProperties": 1,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints() {
        for good in
            ["127.0.0.1:8000", "[::1]:80", "orders.internal:8000", "my_service:80", "unix:/run/a.sock"]
        {
            assert_eq!(good.parse::<EndpointAddress>().unwrap().to_string(), good);
        }
        for (bad, hint) in [
            (
                "https://api.example.com/",
                Some("write api.example.com:443, and `tls: {}` beside the endpoints"),
            ),
            ("http://a:1", Some("write a:1")),
            ("127.0.0.1:80000", Some("a port is a number from 1 to 65535")),
            ("127.0.0.1:0", Some("a port is a number from 1 to 65535")),
            ("127.0.0.1", Some("add a port")),
            ("orders", Some("add a port: orders:80")),
            ("256.0.0.1:80", None),
            ("-a:80", None),
            ("a b:80", None),
            ("unix:", None),
        ] {
            assert_eq!(bad.parse::<EndpointAddress>().unwrap_err().as_deref(), hint, "{bad}");
        }
    }

    #[test]
    fn listen_addresses() {
        for good in ["0.0.0.0:8080", "[::]:8080", "unix:/run/weir.sock", "127.0.0.1:0"] {
            assert_eq!(good.parse::<ListenAddress>().unwrap().to_string(), good);
        }
        for (bad, hint) in [
            ("8080", Some("write 0.0.0.0:8080, or 127.0.0.1:8080 for this machine only")),
            (":8080", Some("write 0.0.0.0:8080")),
            ("localhost:8080", Some("write 127.0.0.1:8080")),
            ("http://0.0.0.0:80", Some("leave out the scheme: 0.0.0.0:80")),
            ("/run/weir.sock", Some("write unix:/run/weir.sock")),
            ("0.0.0.0:99999", Some("a port is a number from 1 to 65535")),
            ("::1", Some("add a port")),
        ] {
            assert_eq!(bad.parse::<ListenAddress>().unwrap_err().as_deref(), hint, "{bad}");
        }
    }
}
