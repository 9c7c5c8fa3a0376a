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

/// The scheme of an endpoint that is written as a URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndpointScheme {
    /// Cleartext.
    Http,
    /// TLS.
    Https,
}

/// An endpoint as written: its address, or a URL of scheme, host and port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct EndpointText {
    pub(super) scheme: Option<EndpointScheme>,
    pub(super) address: EndpointAddress,
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
        if let Some((_, rest)) = text.split_once("://") {
            return Err(Some(format!("leave out the scheme: {rest}")));
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

// === impl EndpointText ===

impl EndpointScheme {
    const fn default_port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
        }
    }
}

impl fmt::Display for EndpointScheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Http => "http",
            Self::Https => "https",
        })
    }
}

impl<'de> Deserialize<'de> for EndpointText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (text, node) = text_and_node(deserializer, EndpointAddress::EXPECTED)?;
        if let Some(path) = text.strip_prefix("unix:").filter(|path| !path.is_empty()) {
            let address = within_scope(node.as_ref(), path).map(EndpointAddress::Unix)?;
            return Ok(Self { scheme: None, address });
        }
        text.parse().map_err(|hint: Option<String>| de::refuse(EndpointAddress::EXPECTED, hint.as_deref()))
    }
}

/// The error has a hint if we can guess what was meant.
impl FromStr for EndpointText {
    type Err = Option<String>;

    fn from_str(text: &str) -> Result<Self, Option<String>> {
        let Some((scheme, rest)) = text.split_once("://") else {
            return Ok(Self { scheme: None, address: text.parse()? });
        };
        let scheme = match scheme.to_ascii_lowercase().as_str() {
            "http" => EndpointScheme::Http,
            "https" => EndpointScheme::Https,
            "grpc" | "h2c" => {
                return Err(Some(format!("write http://{rest}, and `protocol: h2c` beside the endpoints")));
            }
            "grpcs" | "h2" => {
                return Err(Some(format!("write https://{rest}, and `protocol: h2` beside the endpoints")));
            }
            _ => return Err(Some("write http:// or https://".to_owned())),
        };
        let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        if authority.contains('@') {
            let hint = "leave out the user and the password; the filter `headers` can set Authorization";
            return Err(Some(hint.to_owned()));
        }
        match path.split(['?', '#']).next() {
            Some("") if path.is_empty() => {}
            Some("" | "/") => {
                return Err(Some(format!("an endpoint has no path: write {scheme}://{authority}")));
            }
            Some(path) => {
                let path = path.trim_end_matches('/');
                return Err(Some(format!(
                    "an endpoint has no path: write {scheme}://{authority}, and the filter \
                     `rewrite: {{ add_prefix: {path} }}` on its routes"
                )));
            }
            None => {}
        }
        if authority.parse::<std::net::Ipv6Addr>().is_ok() {
            return Err(Some(format!("write an IPv6 address in brackets: {scheme}://[{authority}]")));
        }
        let has_port = authority.rfind(':').is_some_and(|at| !authority.ends_with(']') && at > 0);
        let address = match has_port {
            true => authority.parse(),
            false => format!("{authority}:{}", scheme.default_port()).parse(),
        };
        Ok(Self { scheme: Some(scheme), address: address? })
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
    EndpointText,
    "A host and port, a URL of scheme, host and port, or a Unix socket. Each address of a name is an endpoint.",
    [
        "127.0.0.1:8000",
        "orders.internal:8000",
        "https://api.example.com",
        "[::1]:80",
        "unix:/run/orders.sock"
    ]
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
            ("http://a:1", Some("leave out the scheme: a:1")),
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
    fn urls() {
        use EndpointScheme::{Http, Https};
        for (good, scheme, address) in [
            ("http://a", Some(Http), "a:80"),
            ("HTTPS://API.example.com", Some(Https), "api.example.com:443"),
            ("https://10.0.0.1:8443", Some(Https), "10.0.0.1:8443"),
            ("http://[::1]", Some(Http), "[::1]:80"),
            ("https://[::1]:81", Some(Https), "[::1]:81"),
            ("a:81", None, "a:81"),
        ] {
            let read = good.parse::<EndpointText>().unwrap();
            assert_eq!((read.scheme, read.address.to_string().as_str()), (scheme, address), "{good}");
        }
        let prefix = "an endpoint has no path: write https://a, and the filter `rewrite: { add_prefix: /api }` \
                      on its routes";
        for (bad, hint) in [
            ("https://a/api/?x", Some(prefix)),
            ("https://a/", Some("an endpoint has no path: write https://a")),
            ("http://a?x", Some("an endpoint has no path: write http://a")),
            (
                "http://user:pw@a",
                Some("leave out the user and the password; the filter `headers` can set Authorization"),
            ),
            ("h2c://a:1", Some("write http://a:1, and `protocol: h2c` beside the endpoints")),
            ("ftp://a", Some("write http:// or https://")),
            ("http://a:0", Some("a port is a number from 1 to 65535")),
            ("http://", None),
            ("https://::1", Some("write an IPv6 address in brackets: https://[::1]")),
            ("https://a b", None),
            ("a", Some("add a port: a:80")),
        ] {
            assert_eq!(bad.parse::<EndpointText>().unwrap_err().as_deref(), hint, "{bad}");
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
