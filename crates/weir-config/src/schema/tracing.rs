//! `tracing`: spans for a collector.

use super::values::{FilePath, Pairs};
use crate::units::{Duration, Percent};
use crate::url::Url;
use schemars::JsonSchema;
use serde::Deserialize;

/// Sends OpenTelemetry spans to a collector: one for each exchange and one for each attempt. The gateway takes W3C
/// Trace Context from callers and passes it to upstreams.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Tracing {
    /// URL of the collector, such as `http://127.0.0.1:4318`. Required. With `http`, `/v1/traces` is added to its
    /// path.
    pub otlp: Option<Url>,
    /// `http` (protobuf in POST requests) or `grpc`. Default: `grpc` for port 4317, its standard port, else `http`.
    pub protocol: Option<OtlpProtocol>,
    /// The share of exchanges that are sampled, unless the caller has decided. Default `100%`.
    pub share: Percent,
    /// Whose `traceparent` is followed, including the decision whether to sample: `always`, `trusted` (those of
    /// `trusted_proxies`) or `never`. Default `always`.
    pub parents: Parents,
    /// The name of this gateway: `service.name`. Default `weir`.
    pub service: String,
    /// More attributes of the resource, such as `deployment.environment.name: prod`. Default none.
    pub resource: Pairs,
    /// Fields of the requests to the collector, such as `authorization`. Default none.
    pub headers: Pairs,
    /// PEM file of authorities that verify the collector's certificate. Default: those of the system.
    pub ca: Option<FilePath>,
    /// Timeout of an answer of the collector. Default `10s`.
    pub timeout: Duration,
}

/// An OpenTelemetry collector of log records.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Collector {
    /// Its URL, such as `http://127.0.0.1:4318`. Required. With `http`, `/v1/logs` is added to its path.
    pub url: Option<Url>,
    /// `http` (protobuf in POST requests) or `grpc`. Default: `grpc` for port 4317, else `http`.
    pub protocol: Option<OtlpProtocol>,
    /// The name of this gateway: `service.name`. Default `weir`.
    pub service: String,
    /// More attributes of the resource. Default none.
    pub resource: Pairs,
    /// Fields of the requests to the collector, such as `authorization`. Default none.
    pub headers: Pairs,
    /// PEM file of authorities that verify the collector's certificate. Default: those of the system.
    pub ca: Option<FilePath>,
    /// Timeout of an answer of the collector. Default `10s`.
    pub timeout: Duration,
}

/// The protocol of a collector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OtlpProtocol {
    /// gRPC over HTTP/2.
    Grpc,
    /// Protobuf in POST requests over HTTP/1.1.
    Http,
}

/// Whose `traceparent` is followed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Parents {
    /// Everybody's.
    #[default]
    Always,
    /// Nobody's: each exchange starts a new trace.
    Never,
    /// That of peers in `trusted_proxies`.
    Trusted,
}

/// The port of OTLP by gRPC.
const GRPC_PORT: u16 = 4317;

impl Tracing {
    /// Only the settings of the collector.
    pub fn collector(&self) -> Collector {
        Collector {
            url: self.otlp.clone(),
            protocol: self.protocol,
            service: self.service.clone(),
            resource: self.resource.clone(),
            headers: self.headers.clone(),
            ca: self.ca.clone(),
            timeout: self.timeout,
        }
    }
}

impl Default for Collector {
    fn default() -> Self {
        Tracing::default().collector()
    }
}

impl Collector {
    /// The protocol in use.
    pub fn spoken(&self) -> OtlpProtocol {
        let port = self.url.as_ref().map(Url::port);
        let by_port = if port == Some(GRPC_PORT) { OtlpProtocol::Grpc } else { OtlpProtocol::Http };
        self.protocol.unwrap_or(by_port)
    }
}

impl Default for Tracing {
    fn default() -> Self {
        Self {
            otlp: None,
            protocol: None,
            share: Percent::new(100),
            parents: Parents::default(),
            service: "weir".to_owned(),
            resource: Pairs::default(),
            headers: Pairs::default(),
            ca: None,
            timeout: Duration::from_secs(10),
        }
    }
}
