//! `tcp`, `sni` and `otherwise` of a listener: connections that are passed on as bytes.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::Deserializer;
use serde::{Deserialize, Serialize};

use super::values::{Network, text_schema};
use crate::de;
use crate::units::Duration;

/// Passes the bytes of each connection on to an upstream, in both directions.
///
/// The upstream's endpoints, balancer, health, `tls`, `proxy_protocol`, `source` and `limits` apply; what concerns
/// HTTP (`protocol`, `host`, `retry`, `hedge`, pools) does not. A connection counts as one attempt as long as it
/// lasts, so `least_requests` chooses the endpoint with the fewest connections.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Tcp {
    /// The upstream that gets the bytes. Required.
    pub upstream: String,
    /// Longest silence in both directions together. Default: the upstream's `timeouts.tunnel` (`1h`). `0s` turns it
    /// off.
    #[serde(default)]
    pub idle: Option<Duration>,
    /// Time to connect to an endpoint, including TLS. Default: the upstream's `timeouts.connect` (`3s`).
    #[serde(default)]
    pub connect: Option<Duration>,
}

/// Where connections go: to an `upstream`, as bytes, or to a `listener` without an address of its own.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Destination {
    /// The upstream that gets the bytes. Either this or `listener`.
    #[serde(default)]
    pub upstream: Option<String>,
    /// The listener that serves the connection: HTTP, or `tcp`. It has no `address`.
    #[serde(default)]
    pub listener: Option<String>,
    /// As in `tcp`.
    #[serde(default)]
    pub idle: Option<Duration>,
    /// As in `tcp`.
    #[serde(default)]
    pub connect: Option<Duration>,
}

/// The names of `sni`, with the destination of each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sni(pub Vec<(ServerName, Destination)>);

/// A name that clients ask for in TLS, in lower case and without a final dot; `*.` in front stands for one or more
/// labels.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ServerName(pub Box<str>);

/// Networks whose clients a listener accepts or refuses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ListenerIp {
    /// If not empty, only clients in these networks are accepted. Default: all.
    pub allow: Vec<Network>,
    /// Clients in these networks are refused, also if they are in `allow`. Default none.
    pub deny: Vec<Network>,
}

/// Limits of a listener.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ListenerLimits {
    /// Most connections at the same time, over all workers. Default none: `limits.connections` alone counts.
    #[schemars(range(min = 1))]
    pub connections: Option<u32>,
}

/// What a listener does with its connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Serves {
    /// It speaks HTTP.
    Http,
    /// It sends each connection where the client's ClientHello says.
    Sni,
    /// It passes bytes on.
    Tcp,
}

// === impl ServerName ===

impl ServerName {
    const EXPECTED: &'static str =
        "a name that clients ask for in TLS; expected e.g. db.example.com or *.example.net";

    /// The normalized form.
    fn parse(text: &str) -> Result<Box<str>, Option<&'static str>> {
        if text == "*" {
            return Err(Some("write `otherwise` for all other names"));
        }
        if text.contains([':', '/', '[']) {
            return Err(Some("write the name alone, without scheme and port"));
        }
        if !text.is_ascii() {
            return Err(Some("write international names in their `xn--` form"));
        }
        let name = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
        let labels = name.strip_prefix("*.").unwrap_or(&name);
        if labels.parse::<std::net::Ipv4Addr>().is_ok() {
            return Err(Some("clients send no address as a name (RFC 6066 §3): write `otherwise`"));
        }
        let is_label = |label: &str| {
            (1..=63).contains(&label.len())
                && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
        };
        let fits = name.len() <= 253 && labels.split('.').all(is_label);
        if fits { Ok(name.into()) } else { Err(None) }
    }
}

impl<'de> Deserialize<'de> for ServerName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = de::text(deserializer, Self::EXPECTED)?;
        Self::parse(&text).map(Self).map_err(|hint| de::refuse(Self::EXPECTED, hint))
    }
}

text_schema!(ServerName, "A name that clients ask for in TLS.", ["db.example.com", "*.example.net"]);

// === impl Sni ===

impl<'de> Deserialize<'de> for Sni {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        de::entries(deserializer, "a map of names, such as { db.example.com: { upstream: postgres } }")
            .map(Self)
    }
}

impl JsonSchema for Sni {
    fn schema_name() -> Cow<'static, str> {
        "Sni".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let destination = generator.subschema_for::<Destination>();
        schemars::json_schema!({ "type": "object", "additionalProperties": destination })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_one_form() {
        for (text, form) in [
            ("db.example.com", Ok("db.example.com")),
            ("DB.Example.COM.", Ok("db.example.com")),
            ("*.Example.net", Ok("*.example.net")),
            ("localhost", Ok("localhost")),
            ("a_b.test", Ok("a_b.test")),
            ("*", Err(true)),
            ("a.test:443", Err(true)),
            ("https://a.test", Err(true)),
            ("[::1]", Err(true)),
            ("10.0.0.1", Err(true)),
            ("bücher.test", Err(true)),
            ("", Err(false)),
            (".", Err(false)),
            ("a..test", Err(false)),
            ("*.*.test", Err(false)),
            ("a.*.test", Err(false)),
            ("a b", Err(false)),
        ] {
            let parsed = ServerName::parse(text);
            assert_eq!(parsed.as_deref().map_err(Option::is_some), form, "{text}");
        }
        assert!(ServerName::parse(&"a.".repeat(127)).is_ok());
        assert!(ServerName::parse(&"a.".repeat(128)).is_err());
    }
}
