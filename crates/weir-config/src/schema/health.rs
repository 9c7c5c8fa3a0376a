//! `upstreams.*.health`: how unhealthy endpoints are detected.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Deserialize;
use serde::de::Deserializer;

use crate::de;
use crate::units::{Duration, Percent};

/// How unhealthy endpoints are detected.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Health {
    /// Active: ask each endpoint at intervals. Default none.
    pub probe: Option<Probe>,
    /// Passive: eject an endpoint whose answers fail. Default none.
    pub outlier: Option<Outlier>,
}

/// Active health checks: each endpoint is asked at intervals, by one process once, on a connection of its own outside
/// `limits`, by the protocol, TLS, `source` and `proxy_protocol` of the upstream. At most 64 are under way; others
/// wait.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Probe {
    /// Kind of probe: `http` (a GET), `grpc` (`grpc.health.v1.Health/Check`) or `tcp` (only a connection, TLS
    /// included). Default `http`.
    pub kind: ProbeKind,
    /// Path of an `http` probe, with an optional query. Default `/healthz`.
    pub path: String,
    /// Host of the probe. Default: the upstream's `host` if that is a name, else the endpoint's own.
    pub host: Option<String>,
    /// Changes to the upstream's `tls` for probes. Default: none.
    pub tls: Option<ProbeTls>,
    /// Service of a `grpc` probe. Default empty: the whole server.
    pub service: String,
    /// Time from the end of one probe of an endpoint to the next, give or take a tenth. Default `5s`. The first comes
    /// at once.
    pub interval: Duration,
    /// Timeout of a probe, including the connect. Default `1s`.
    pub timeout: Duration,
    /// Consecutive passes that bring an endpoint back; 1 to 100. Default 2. If nothing is known of the endpoint, one
    /// probe decides.
    pub healthy: u32,
    /// Consecutive failures that take an endpoint out; 1 to 100. Default 3. As above.
    pub unhealthy: u32,
    /// The statuses that pass with `http`, such as `[200-299, 404]`. Default `[200-299]`.
    pub expect: Vec<StatusRange>,
    /// A text that the body must contain with `http`, in its first 64 KiB. Default none: the body is not read.
    pub body: Option<String>,
    /// Whether `/readyz` of the admin listener waits, after a start, until an endpoint of this upstream has passed a
    /// probe. Default false.
    pub readyz: bool,
}

/// TLS settings for probes that differ from the upstream's `tls`. Omitted keys keep its values.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ProbeTls {
    /// The name asked for (SNI) and verified. Default: that of the upstream.
    pub server_name: Option<String>,
    /// Whether the certificate is verified. Default: as the upstream does; `check` warns of false.
    pub verify: Option<bool>,
}

/// The kind of a probe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ProbeKind {
    /// `grpc.health.v1.Health/Check`.
    Grpc,
    /// A GET.
    #[default]
    Http,
    /// A connection.
    Tcp,
}

/// A status, or a range of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatusRange {
    /// The first.
    pub from: u16,
    /// The last.
    pub to: u16,
}

impl Default for Probe {
    fn default() -> Self {
        Self {
            kind: ProbeKind::Http,
            path: "/healthz".to_owned(),
            host: None,
            tls: None,
            service: String::new(),
            interval: Duration::from_secs(5),
            timeout: Duration::from_secs(1),
            healthy: 2,
            unhealthy: 3,
            expect: vec![StatusRange { from: 200, to: 299 }],
            body: None,
            readyz: false,
        }
    }
}

/// Passive health checks.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Outlier {
    /// Errors in a row within `window` that eject an endpoint: a status of 500 or more, a reset, a timeout, a
    /// malformed answer, or gRPC status UNKNOWN, INTERNAL or UNAVAILABLE without a message. Default 5.
    pub errors: u32,
    /// Share of errors within `window` that also ejects an endpoint, given at least 20 requests. Default none.
    pub rate: Option<Percent>,
    /// The window in which errors are counted. Default `10s`.
    pub window: Duration,
    /// How long an endpoint stays ejected the first time; the second time twice as long, the third three times, and
    /// so on up to ten times. 30 s of health reset the count. Default `30s`.
    pub eject: Duration,
    /// The share of the endpoints that may be out when one is ejected. Default `50%`. Whatever it says but `0%`, one
    /// of several may always be out. The only endpoint is never ejected.
    pub max: Percent,
}

impl Default for Outlier {
    fn default() -> Self {
        Self {
            errors: 5,
            rate: None,
            window: Duration::from_secs(10),
            eject: Duration::from_secs(30),
            max: Percent::new(50),
        }
    }
}

// === impl StatusRange ===

impl<'de> Deserialize<'de> for StatusRange {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        const EXPECTED: &str =
            "a status or a range of them; expected e.g. 204 or 200-299, between 200 and 599";
        let text = de::text(deserializer, EXPECTED)?;
        let (from, to) = text.split_once('-').unwrap_or((&text, &text));
        match (from.trim().parse(), to.trim().parse()) {
            (Ok(from), Ok(to)) if 200 <= from && from <= to && to <= 599 => Ok(Self { from, to }),
            _ => Err(de::refuse(EXPECTED, None)),
        }
    }
}

impl JsonSchema for StatusRange {
    fn schema_name() -> Cow<'static, str> {
        "StatusRange".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        schemars::json_schema!({
            "description": "A status, or a range of them.",
            "anyOf": [
                { "type": "integer", "minimum": 200, "maximum": 599 },
                { "type": "string", "pattern": "^[2-5][0-9]{2}(-[2-5][0-9]{2})?$" },
            ],
        })
    }
}
