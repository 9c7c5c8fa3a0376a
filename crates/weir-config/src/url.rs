//! The URL of a service that the gateway calls, such as `https://idp.example/keys`.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;

/// An absolute `http` or `https` URL without user, password or fragment.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Url {
    tls: bool,
    /// Without the brackets around an IPv6 address.
    host: String,
    port: u16,
    /// Host and port as sent. The scheme's default port is left out.
    authority: String,
    target: String,
}

/// Why a text is not a URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoUrl(&'static str);

impl Url {
    /// Whether it is `https`.
    pub const fn is_tls(&self) -> bool {
        self.tls
    }

    /// The host: a name in lower case, or an address.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port.
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Host and port, as the Host field carries them.
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// Path and query.
    pub fn target(&self) -> &str {
        &self.target
    }

    /// The same origin with another path.
    #[must_use]
    pub fn with_target(&self, target: &str) -> Self {
        Self { target: target.to_owned(), ..self.clone() }
    }

    /// Appends these segments to the path unless it already ends with them. The query is dropped.
    #[must_use]
    pub fn with_end(&self, end: &str) -> Self {
        let path = self.target.split('?').next().unwrap_or_default();
        let begin = path.strip_suffix(end).unwrap_or(path).trim_end_matches('/');
        self.with_target(&format!("{begin}{end}"))
    }

    /// Scheme, host and port, in the form browsers compare.
    pub fn origin(&self) -> String {
        format!("{}://{}", if self.tls { "https" } else { "http" }, self.authority)
    }

    /// The URL for a log or a status, without its query, because queries carry tokens.
    pub fn shown(&self) -> String {
        let (path, query) =
            self.target.split_once('?').map_or((&*self.target, ""), |(path, _)| (path, "?***"));
        format!("{}{path}{query}", self.origin())
    }

    /// Whether nobody on the network can read or change the request: it uses TLS or does not leave the machine.
    pub fn is_safe(&self) -> bool {
        let address = self.host.parse::<IpAddr>();
        self.tls || self.host == "localhost" || address.is_ok_and(|ip| ip.to_canonical().is_loopback())
    }
}

impl FromStr for Url {
    type Err = NoUrl;

    fn from_str(text: &str) -> Result<Self, NoUrl> {
        let (tls, rest) = match text.split_once("://") {
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("https") => (true, rest),
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("http") => (false, rest),
            _ => return Err(NoUrl("it does not begin with https:// or http://")),
        };
        if !rest.bytes().all(|b| b.is_ascii_graphic()) {
            return Err(NoUrl("it holds a space or a letter that is not ASCII: escape it"));
        }
        if rest.contains('#') {
            return Err(NoUrl("it has a fragment (`#`), which is never sent"));
        }
        let at = rest.find(['/', '?']).unwrap_or(rest.len());
        let (place, path) = rest.split_at(at);
        if place.contains('@') {
            return Err(NoUrl("it holds a user or a password"));
        }
        let (host, port) = split_port(place)?;
        let implied = if tls { 443 } else { 80 };
        let port = port.unwrap_or(implied);
        let shown = if host.contains(':') { format!("[{host}]") } else { host.clone() };
        let authority = if port == implied { shown } else { format!("{shown}:{port}") };
        let target = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        Ok(Self { tls, host, port, authority, target })
    }
}

fn split_port(place: &str) -> Result<(String, Option<u16>), NoUrl> {
    const PORT: NoUrl = NoUrl("its port is not a number from 1 to 65535");
    const HOST: NoUrl = NoUrl("its host is neither a name nor an address");
    let (host, port) = match place.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']').ok_or(HOST)?;
            host.parse::<Ipv6Addr>().map_err(|_| HOST)?;
            (host, if port.is_empty() { None } else { Some(port.strip_prefix(':').ok_or(HOST)?) })
        }
        None => match place.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (place, None),
        },
    };
    let name = |b: u8| b.is_ascii_alphanumeric() || b"-._:".contains(&b);
    if host.is_empty() || host.len() > 253 || !host.bytes().all(name) {
        return Err(HOST);
    }
    let port = match port {
        None => None,
        Some(digits) if digits.bytes().all(|b| b.is_ascii_digit()) => {
            Some(digits.parse().ok().filter(|port| *port != 0).ok_or(PORT)?)
        }
        Some(_) => return Err(PORT),
    };
    Ok((host.to_ascii_lowercase(), port))
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.origin(), self.target)
    }
}

impl fmt::Display for NoUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for NoUrl {}

impl<'de> Deserialize<'de> for Url {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(|e| {
            serde::de::Error::custom(format_args!(
                "is not a URL: {e}; expected e.g. https://idp.example/keys"
            ))
        })
    }
}

impl Serialize for Url {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl schemars::JsonSchema for Url {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Url".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "description": "A URL.", "pattern": "^https?://" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_targets() {
        for (text, shown) in [
            ("http://a:4318", "http://a:4318/v1/traces"),
            ("http://a/", "http://a/v1/traces"),
            ("http://a/otlp/?b", "http://a/otlp/v1/traces"),
            ("http://a/otlp/v1/traces", "http://a/otlp/v1/traces"),
        ] {
            assert_eq!(text.parse::<Url>().unwrap().with_end("/v1/traces").to_string(), shown);
        }
        assert_eq!("http://a/b?c".parse::<Url>().unwrap().with_target("/d").to_string(), "http://a/d");
    }

    #[test]
    fn good_ones() {
        for (text, shown, host, port) in [
            ("https://IDP.example/a?b=c", "https://idp.example/a?b=c", "idp.example", 443),
            ("http://127.0.0.1:8080", "http://127.0.0.1:8080/", "127.0.0.1", 8080),
            ("https://[::1]:443?x", "https://[::1]/?x", "::1", 443),
            ("HTTP://localhost:80/", "http://localhost/", "localhost", 80),
        ] {
            let url: Url = text.parse().unwrap();
            assert_eq!((url.to_string().as_str(), url.host(), url.port()), (shown, host, port));
        }
    }

    #[test]
    fn bad_ones() {
        for text in [
            "",
            "idp.example/keys",
            "ftp://a/",
            "https://",
            "https:///a",
            "https://u:p@a/",
            "https://a/#b",
            "https://a:0/",
            "https://a:65536/",
            "https://a:+80/",
            "https://a:/",
            "https://[::1/",
            "https://[a]/",
            "https://[::1]x/",
            "https://a b/",
            "https://\u{e4}/",
            "https://a\\b/",
            "https://::1/",
        ] {
            assert!(text.parse::<Url>().is_err(), "{text}");
        }
    }

    #[test]
    fn safe_is_what_nobody_on_the_way_sees() {
        for (text, safe) in [
            ("https://a/", true),
            ("http://a/", false),
            ("http://localhost/", true),
            ("http://localhost.a/", false),
            ("http://127.9.9.9/", true),
            ("http://[::1]/", true),
            ("http://10.0.0.1/", false),
        ] {
            assert_eq!(text.parse::<Url>().unwrap().is_safe(), safe, "{text}");
        }
    }
}
