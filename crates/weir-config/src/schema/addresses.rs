//! Addresses: of listeners and of endpoints.

use std::borrow::Cow;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Deserialize;
use serde::de::Deserializer;

use super::values::{text_schema, within_scope};
use crate::de;
use crate::de::text_and_node;

/// The address of a listener: `0.0.0.0:8080`, `[::]:8080` or `unix:/run/weir.sock`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ListenAddress {
    /// An address of this machine.
    Tcp(SocketAddr),
    /// A Unix socket.
    Unix(PathBuf),
}

/// The address of an endpoint: `127.0.0.1:8000`, `[::1]:80`, `orders.internal:8000` or `unix:/run/orders.sock`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum EndpointAddress {
    /// A name to resolve; each of its addresses is an endpoint.
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

/// The hint for `$NAME`, a variable in shell style: here variables need braces.
fn variable_hint(text: &str) -> Option<String> {
    let name = text.strip_prefix('$')?;
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let end = name.find(|c| !is_name(c)).unwrap_or(name.len());
    let (name, rest) = name.split_at(end);
    (!name.is_empty()).then(|| format!("write \"${{{name}}}{rest}\""))
}

// === impl ListenAddress ===

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
            return within_scope(Some(&raw.node), path).map(Self::Unix);
        }
        text.parse().map_err(|hint: Option<String>| de::refuse(Self::EXPECTED, hint.as_deref()))
    }
}

/// The error has a hint if we can guess what was meant.
impl FromStr for ListenAddress {
    type Err = Option<String>;

    fn from_str(text: &str) -> Result<Self, Option<String>> {
        if let Some(hint) = variable_hint(text) {
            return Err(Some(hint));
        }
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

// === impl EndpointAddress ===

impl EndpointAddress {
    pub(super) const EXPECTED: &'static str =
        "an endpoint; expected e.g. 127.0.0.1:8000, orders.internal:8000, [::1]:80, unix:/run/orders.sock";
}

impl<'de> Deserialize<'de> for EndpointAddress {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (text, node) = text_and_node(deserializer, Self::EXPECTED)?;
        if let Some(path) = text.strip_prefix("unix:").filter(|path| !path.is_empty()) {
            return within_scope(node.as_ref(), path).map(Self::Unix);
        }
        text.parse().map_err(|hint: Option<String>| de::refuse(Self::EXPECTED, hint.as_deref()))
    }
}

/// The error has a hint if we can guess what was meant.
impl FromStr for EndpointAddress {
    type Err = Option<String>;

    fn from_str(text: &str) -> Result<Self, Option<String>> {
        if let Some(hint) = variable_hint(text) {
            return Err(Some(hint));
        }
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
            // An endpoint has no path; paths belong to the route.
            let rest = rest.split(['/', '?', '#']).next().unwrap_or_default();
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
            ("https://example.com/api?x", Some("write example.com:443, and `tls: {}` beside the endpoints")),
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
