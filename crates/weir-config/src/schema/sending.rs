//! How requests are sent to an upstream's endpoints: added headers, the source address, and hedged attempts.

use std::borrow::Cow;
use std::net::IpAddr;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer};
use weir_h1::FieldName;

use super::values::text_schema;
use crate::de;
use crate::units::{Duration, Percent};

/// A second attempt beside one that takes long. The first good answer wins. The request must have been sent whole,
/// and its body still be held: up to 16 KiB, or `retry.body`.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Hedge {
    /// How long to wait for the head of a response before a second attempt at another endpoint; about the p95 of the
    /// service is a good choice.
    pub after: Duration,
    /// In any second, second attempts may be at most this share of the requests of that second, over all workers.
    /// Default `5%`. 3 a second are always allowed, retries included.
    #[serde(default = "Hedge::default_budget")]
    pub budget: Percent,
}

impl Hedge {
    fn default_budget() -> Percent {
        Percent::new(5)
    }
}

/// What happens to a request whose client leaves before the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ClientGone {
    /// It is canceled, whatever its method and however the client left.
    Cancel,
    /// It continues to its end.
    Finish,
}

/// What happens to names and paths in a response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Links {
    /// They stay unchanged.
    Keep,
    /// The endpoint's name becomes the gateway's, and paths get their prefix back.
    #[default]
    Rewrite,
}

/// The version of the PROXY header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ProxyVersion {
    /// A line of text.
    V1,
    /// Binary.
    V2,
}

/// The source address of connections, one of this machine's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceAddress(pub IpAddr);

/// The name of the header that carries the remaining time of an exchange.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadlineHeader(pub FieldName);

impl<'de> Deserialize<'de> for SourceAddress {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        const EXPECTED: &str = "an address; expected one of this machine, e.g. 10.0.0.5 or \"2001:db8::5\"";
        const HINT: Option<&str> = Some("leave the port out: each connection gets its own");
        let text = de::text(deserializer, EXPECTED)?;
        match text.parse::<IpAddr>() {
            Ok(ip) if !ip.is_unspecified() && !ip.is_multicast() => Ok(Self(ip)),
            _ => Err(de::refuse(EXPECTED, HINT)),
        }
    }
}

text_schema!(SourceAddress, "An address of this machine, without a port.", ["10.0.0.5", "2001:db8::5"]);

/// Headers that say where a message ends or where it goes.
const TAKEN: [&str; 9] = [
    "connection",
    "content-length",
    "expect",
    "host",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

impl<'de> Deserialize<'de> for DeadlineHeader {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        const EXPECTED: &str = "the name of a header for a deadline; expected e.g. x-timeout-ms";
        let text = de::text(deserializer, EXPECTED)?;
        if text.eq_ignore_ascii_case("grpc-timeout") {
            return Err(de::refuse(EXPECTED, Some("grpc-timeout is passed on in any case")));
        }
        let taken = TAKEN.iter().any(|name| text.eq_ignore_ascii_case(name));
        let name = FieldName::new(&text).ok().filter(|_| !taken);
        name.map(Self).ok_or_else(|| de::refuse(EXPECTED, None))
    }
}

text_schema!(DeadlineHeader, "The name of a header.", ["x-timeout-ms", "x-envoy-expected-rq-timeout-ms"]);
