//! `balancer` of an upstream: how an endpoint is chosen.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Deserialize;
use serde::de::{self as serde_de, Deserializer};
use weir_h1::FieldName;

use super::process::Secret;
use super::values::text_schema;
use crate::de;
use crate::units::Duration;

/// How an endpoint is chosen.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Balancer {
    /// Of two random endpoints, the one with the lower expected latency, judged by recent answers.
    Ewma,
    /// The same endpoint for the same key.
    Hash(Hash),
    /// The endpoint with the fewest requests.
    LeastRequests,
    /// Of two random endpoints, the one with fewer requests.
    #[default]
    P2c,
    /// A random endpoint.
    Random,
    /// In turn, smoothly by weight.
    RoundRobin,
}

/// The same endpoint for the same key, for as long as it is in rotation. When one of several leaves, its keys go to
/// the others in equal parts, and come back with it; a new one takes its share of each.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Hash {
    /// The key: `header:NAME`, `cookie:NAME`, `address` (the client's, after `trusted_proxies`), `path` (without the
    /// query), `query:NAME`, or a text with placeholders and expressions: `= request.cookies.sid ?? client.ip`. Several
    /// fields of one name count together; cookies and parameters count as written, but decoded in an expression. A
    /// request without a key, or with an empty one, goes where `p2c` sends it.
    pub by: HashBy,
    /// How far above the mean one endpoint may be loaded, such as `125%`, counted per core. Further requests go to
    /// the key's next endpoint, always the same one. From `100%` to `1000%`. Default none.
    #[serde(default)]
    pub bounded: Option<Bound>,
}

/// The source of the hash key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HashBy {
    /// The client's address.
    Address,
    /// The cookie of this name.
    Cookie(String),
    /// The header field of this name.
    Header(FieldName),
    /// The path, without the query.
    Path,
    /// The parameter of the query of this name.
    Query(String),
    /// A text with placeholders and expressions.
    Text(String),
}

/// A cookie that returns a client to the endpoint that first answered it, as long as that is in rotation.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Sticky {
    /// The name of the cookie. Default `weir`. Upstreams of one site need different ones, or each overwrites the
    /// other's; `check` warns. Attributes: `Path=/; HttpOnly; SameSite=Lax`, and `Secure` if the client came by TLS
    /// or a trusted proxy says so.
    #[serde(default = "Sticky::default_cookie")]
    pub cookie: String,
    /// How long a client keeps the cookie (`Max-Age`), from the answer that set it. Default: until its session ends.
    #[serde(default)]
    pub ttl: Option<Duration>,
    /// The key by which the cookie is made and read, the same for all gateways in front of the service. Write
    /// `"${STICKY}"` or `"${file:PATH}"`. Nobody without it can choose an endpoint: the cookie is an HMAC-SHA-256 of
    /// the endpoint and reveals no address.
    pub key: Secret,
}

/// A percentage from 100 on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bound(f64);

// === impl Balancer ===

/// Every balancer without settings, by name.
const BALANCERS: [(&str, Balancer); 5] = [
    ("p2c", Balancer::P2c),
    ("round_robin", Balancer::RoundRobin),
    ("random", Balancer::Random),
    ("least_requests", Balancer::LeastRequests),
    ("ewma", Balancer::Ewma),
];

/// The names of all balancers. `hash` comes last, and needs settings.
const NAMES: [&str; BALANCERS.len() + 1] = {
    let mut names = ["hash"; BALANCERS.len() + 1];
    let mut at = 0;
    while at < BALANCERS.len() {
        names[at] = BALANCERS[at].0;
        at += 1;
    }
    names
};

/// A balancer with settings.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct LongBalancer {
    /// The same endpoint for the same key.
    hash: Hash,
}

impl<'de> Deserialize<'de> for Balancer {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = match de::TextOrMap::<String, LongBalancer>::deserialize(deserializer)? {
            de::TextOrMap::Map(LongBalancer { hash }) => return Ok(Self::Hash(hash)),
            de::TextOrMap::Text(text) => text,
        };
        if text == "hash" {
            let hint = "write { hash: { by: \"header:x-user\" } }";
            return Err(de::refuse("complete: the value to hash is missing", Some(hint)));
        }
        let found = BALANCERS.into_iter().find(|(name, _)| *name == text);
        found.map(|(_, balancer)| balancer).ok_or_else(|| serde_de::Error::unknown_variant(&text, &NAMES))
    }
}

impl JsonSchema for Balancer {
    fn schema_name() -> Cow<'static, str> {
        "Balancer".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let long = generator.subschema_for::<LongBalancer>();
        schemars::json_schema!({
            "description": "How an endpoint is chosen.",
            "anyOf": [
                { "enum": BALANCERS.map(|(name, _)| name) },
                long,
            ],
        })
    }
}

// === impl Sticky ===

impl Sticky {
    fn default_cookie() -> String {
        "weir".to_owned()
    }
}

// === impl HashBy ===

impl<'de> Deserialize<'de> for HashBy {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        const EXPECTED: &str = "a part of a request; expected header:NAME, cookie:NAME, address, path, query:NAME, or an expression after `= `";
        let text = de::text(deserializer, EXPECTED)?;
        let refused = || de::refuse(EXPECTED, None);
        if text.starts_with("= ") || text.contains('{') {
            return Ok(Self::Text(text.to_string()));
        }
        match text.split_once(':') {
            None if text == "address" => Ok(Self::Address),
            None if text == "path" => Ok(Self::Path),
            // A cookie's name is a token, like a field's (RFC 6265 §4.1.1).
            Some(("cookie", name)) if FieldName::new(name).is_ok() => Ok(Self::Cookie(name.to_owned())),
            Some(("header", name)) => FieldName::new(name).map(Self::Header).map_err(|_| refused()),
            Some(("query", name)) if !name.is_empty() => Ok(Self::Query(name.to_owned())),
            _ => Err(refused()),
        }
    }
}

text_schema!(
    HashBy,
    "A part of a request, or a text with placeholders and expressions.",
    ["header:x-user", "cookie:session", "address", "path", "query:id", "= request.cookies.sid ?? client.ip"]
);

// === impl Bound ===

impl Bound {
    /// As a factor from 1 on.
    pub const fn ratio(self) -> f64 {
        self.0 / 100.0
    }
}

impl<'de> Deserialize<'de> for Bound {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        const EXPECTED: &str = "a percentage from 100% to 1000%; expected e.g. 125%";
        let text = de::text(deserializer, EXPECTED)?;
        let number = text.strip_suffix('%').and_then(|number| number.parse::<f64>().ok());
        let number = number.filter(|number| (100.0..=1000.0).contains(number));
        number.map(Self).ok_or_else(|| de::refuse(EXPECTED, None))
    }
}

text_schema!(Bound, "A percentage from 100% to 1000%.", ["125%"]);
