//! `upstreams`: the services behind us.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::Deserializer;
use serde::{Deserialize, Serialize};

use super::addresses::{EndpointAddress, EndpointScheme, EndpointText};
use super::balance::{Balancer, Sticky};
use super::discover::Discover;
use super::health::Health;
use super::process::Workers;
use super::sending::{ClientGone, DeadlineHeader, Hedge, Links, ProxyVersion, SourceAddress};
use super::values::FilePath;
use crate::de;
use crate::units::{ByteSize, Duration, Percent};

/// A named group of endpoints that serve the same thing.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Upstream {
    /// The addresses of the service. At least one, unless there is `discover`. A URL such as `https://api.example.com`
    /// has the usual port of its scheme, and no path; `https` turns `tls` on.
    #[serde(default)]
    pub endpoints: Vec<Endpoint>,
    /// A registry that lists the endpoints, instead of `endpoints`: etcd, Consul, Docker, Kubernetes, SRV records or a
    /// file. See
    /// docs/guide/discovery.md.
    #[serde(default)]
    pub discover: Option<Discover>,
    /// What the endpoints speak: `http1`, `h2c` (HTTP/2 in cleartext), `h2` (HTTP/2 over TLS) or `auto` (by ALPN with
    /// TLS, http1 without); or `fastcgi`, as php-fpm does: its routes need `fastcgi` too. Default `http1`. By HTTP/2
    /// many requests share a connection; gRPC needs it.
    #[serde(default)]
    pub protocol: UpstreamProtocol,
    /// TLS towards the endpoints; `tls: {}` is https with the roots of the system. Default none: cleartext, unless the
    /// endpoints are URLs with `https`.
    #[serde(default)]
    pub tls: Option<UpstreamTls>,
    /// The Host that the endpoint sees: `preserve` passes the client's on, `endpoint` sends the endpoint's own name,
    /// anything else is sent literally. Default `preserve`.
    #[serde(default)]
    pub host: HostPolicy,
    /// What happens to `Location`, `Content-Location`, `Refresh` and `Set-Cookie` (its Domain and Path) in a response
    /// that names the endpoint itself, or a path without the prefix that the filter `rewrite` removed. `rewrite`
    /// changes them to what the client sees, `keep` leaves them unchanged. Default `rewrite`.
    #[serde(default)]
    pub links: Links,
    /// How an endpoint is chosen for an attempt. Default `p2c`: of two random endpoints the one with fewer requests,
    /// which needs no shared state and evens out slow endpoints. `ewma` prefers endpoints with lower recent latency;
    /// `hash` sends the same key to the same endpoint.
    #[serde(default)]
    pub balancer: Balancer,
    /// Returns a client to the endpoint that first answered it, by a cookie. Default none.
    #[serde(default)]
    pub sticky: Option<Sticky>,
    /// How long an endpoint that enters rotation takes to reach its full share. It starts with a tenth; the rest of
    /// its tier, or the next tier, serves the remainder. Endpoints that return and new ones from a reload or DNS
    /// start slowly, those at the start of the gateway do not. With `hash`, keys move one by one, each at most once.
    /// Sticky cookies are followed at once. Default none: the full share at once.
    #[serde(default)]
    pub slow_start: Option<Duration>,
    /// Timeouts of the upstream.
    #[serde(default)]
    pub timeouts: UpstreamTimeouts,
    /// How long a pooled connection may idle before we close it. Default `60s`, just under the 75 s of nginx, so
    /// that we close first. `0s` turns reuse off. With `fastcgi` the default is `0s`, because an idle connection
    /// occupies a process of php-fpm. Memory: nothing but the socket while idle.
    #[serde(default)]
    pub keepalive: Option<Duration>,
    /// How long a pooled connection may live, with up to a tenth of jitter; after that it is closed when idle.
    /// Default none. Set it if a load balancer behind us should choose again.
    #[serde(default)]
    pub max_age: Option<Duration>,
    /// What is retried. Default: the keep-alive race, a failed connect, and once, at another endpoint, an idempotent
    /// request that was reset.
    #[serde(default)]
    pub retry: Option<Retry>,
    /// Sends a second attempt to another endpoint if the first is slow; for idempotent requests only. Default none.
    #[serde(default)]
    pub hedge: Option<Hedge>,
    /// How unhealthy endpoints are detected. Default: no probe, and only an unreachable endpoint is avoided.
    #[serde(default)]
    pub health: Option<Health>,
    /// Limits on connections and waiting requests.
    #[serde(default)]
    pub limits: UpstreamLimits,
    /// What happens to a request whose client leaves before the answer. `cancel` ends it at the endpoint, whatever
    /// its method; `finish` lets it continue, within `timeouts.response`. Default: a reset cancels every request, and
    /// an HTTP/1.1 client that closes its side after its request cancels idempotent ones.
    #[serde(default)]
    pub client_gone: Option<ClientGone>,
    /// A header that tells the endpoint how many milliseconds are left of the exchange, where `timeouts.exchange` or
    /// a client of gRPC limits it. A smaller number from the client stays, and so does the header if nothing limits
    /// the exchange. Other spellings (`X_Timeout_Ms`) and trailers of that name are dropped. Default none;
    /// `grpc-timeout` is passed on in any case.
    #[serde(default)]
    pub deadline_header: Option<DeadlineHeader>,
    /// Sends the PROXY header, `v1` or `v2`, first on each connection, before TLS. It has the addresses of the client
    /// and of the listener that it reached, or those that your balancer sent in its own PROXY header. X-Forwarded-For
    /// does not change them. Clients on a Unix socket, calls by filters and probes are `UNKNOWN` (v1) or `LOCAL`
    /// (v2). A connection is then used for this client's connection only. Needs HTTP/1.1. Default none.
    #[serde(default)]
    pub proxy_protocol: Option<ProxyVersion>,
    /// The local address for connections, if a firewall requires it or you need more ports. Each source allows one
    /// connection per port to each endpoint. Ports are chosen at connect time. If the machine lacks it, requests get
    /// 502 `connect_failed`, the log names it, and no endpoint is blamed. `check` refuses endpoints of the other
    /// address family; resolved addresses of that family are avoided. Default: what the kernel chooses.
    #[serde(default)]
    pub source: Option<SourceAddress>,
}

/// One endpoint, written as its address, as a URL, or as `{ address, weight }`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// The scheme, if it is written as a URL.
    pub scheme: Option<EndpointScheme>,
    /// The endpoint's address.
    pub address: EndpointAddress,
    /// Its share among the endpoints, 1 to 65535. Default 1.
    pub weight: u32,
    /// The endpoint's zone.
    pub zone: Option<String>,
    /// Lower ones are used first, 0 to 255. Default 0.
    pub priority: u8,
}

/// The protocol of an upstream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum UpstreamProtocol {
    /// Negotiated by ALPN with TLS; HTTP/1.1 without.
    Auto,
    /// FastCGI.
    Fastcgi,
    /// HTTP/2 over TLS.
    H2,
    /// HTTP/2 in cleartext, by prior knowledge.
    H2c,
    /// HTTP/1.1.
    #[default]
    Http1,
}

/// TLS towards endpoints.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct UpstreamTls {
    /// Authorities that may sign for the endpoints, PEM. Default: those of the system.
    pub ca: Option<FilePath>,
    /// Our own certificate chain, PEM, for endpoints that ask for one. Needs `client_key`.
    pub client_cert: Option<FilePath>,
    /// The key of `client_cert`, PEM.
    pub client_key: Option<FilePath>,
    /// The name asked for (SNI) and verified. Default: the name of the endpoint.
    pub server_name: Option<String>,
    /// Names of which the certificate must have one, in place of the name asked for: DNS names, addresses, and URIs such
    /// as `spiffe://cluster.local/ns/shop/sa/api`, which are compared exactly. Default: the name asked for.
    pub names: Vec<String>,
    /// Whether the certificate is verified. Default true; `check` warns of false.
    pub verify: bool,
}

impl Default for UpstreamTls {
    fn default() -> Self {
        Self {
            ca: None,
            client_cert: None,
            client_key: None,
            server_name: None,
            names: Vec::new(),
            verify: true,
        }
    }
}

/// The Host that an endpoint sees.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum HostPolicy {
    /// The endpoint's own name and port.
    Endpoint,
    /// This text.
    Literal(String),
    /// The Host that the client sent.
    #[default]
    Preserve,
}

/// Timeouts of an upstream. Each has its cause code; see the catalogue of causes.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct UpstreamTimeouts {
    /// Time to connect, including TLS. Default `3s`: one lost SYN is repeated after 1 s, two make an endpoint
    /// suspicious.
    pub connect: Duration,
    /// From the end of the request to the head of the response. For gRPC calls, `tunnel` counts instead. Default
    /// `30s`. `0s` turns it off.
    pub response: Duration,
    /// Longest pause between two pieces of a response body. For server-sent events and gRPC streams, `tunnel` counts
    /// instead. Default `60s`. `0s` turns it off.
    pub body: Duration,
    /// Longest silence in a tunnel (WebSocket and other upgrades). Default `1h`. `0s` turns it off.
    pub tunnel: Duration,
    /// The whole exchange, all attempts included. Default none: a large download is no mistake.
    pub exchange: Option<Duration>,
}

impl Default for UpstreamTimeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(3),
            response: Duration::from_secs(30),
            body: Duration::from_secs(60),
            tunnel: Duration::from_secs(3600),
            exchange: None,
        }
    }
}

/// What is retried. A failed connect and the keep-alive race are always repeated and are not counted here.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Retry {
    /// Attempts in all, the first and those of `hedge` included; 1 to 10. Default 2.
    pub attempts: u32,
    /// Which failures are retried. `connect`: no connection was made; this one always is. `reset`: the connection
    /// ended before any byte of a response. `refused_stream`: HTTP/2 says that the upstream did not process the
    /// request. `timeout`: no response head in time. `429` or `500` to `599`: an answer with that status.
    /// `grpc:unavailable` and the like: an answer with that gRPC status and no message; every call is a POST, so it
    /// needs `methods: all`. Default `[connect, reset, refused_stream, 502, 503]`.
    pub on: Vec<RetryOn>,
    /// `idempotent`: requests that may arrive twice (GET, HEAD, PUT, DELETE, OPTIONS), and those of which no byte was
    /// written. `all`: every request, even if its effect may be doubled. Default `idempotent`.
    pub methods: RetryMethods,
    /// Timeout of one attempt until the head of its response, including the connect. Default none: only `timeouts`
    /// count.
    pub per_try: Option<Duration>,
    /// The pause before the same endpoint is asked again: a random half to all of it, doubled each time up to 32
    /// times. An endpoint that has not failed comes first, and is asked at once. Default `25ms`.
    pub backoff: Duration,
    /// In any second, retries, those after REFUSED_STREAM included, may be at most this share of the requests of that
    /// second, over all workers. Default `20%`, so that retries cannot multiply an overload. 3 retries a second are
    /// always allowed.
    pub budget: Percent,
    /// How much of a request body is kept for another attempt; a longer one is sent once. Default `64KiB`.
    pub body: ByteSize,
}

impl Default for Retry {
    fn default() -> Self {
        let on = vec![
            RetryOn::Connect,
            RetryOn::Reset,
            RetryOn::RefusedStream,
            RetryOn::Status(502),
            RetryOn::Status(503),
        ];
        Self {
            attempts: 2,
            on,
            methods: RetryMethods::Idempotent,
            per_try: None,
            backoff: Duration::from_millis(25),
            budget: Percent::new(20),
            body: ByteSize(64 * 1024),
        }
    }
}

/// A reason to retry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RetryOn {
    /// The connect failed or timed out.
    Connect,
    /// gRPC answered with this status and no message.
    Grpc(u8),
    /// A stream of HTTP/2 was refused.
    RefusedStream,
    /// The connection broke before a response.
    Reset,
    /// The response had this status.
    Status(u16),
    /// No response came in time.
    Timeout,
}

/// Which requests are retried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RetryMethods {
    /// Every request.
    All,
    /// Those that may arrive twice.
    #[default]
    Idempotent,
}

/// Limits on connections and waiting requests.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct UpstreamLimits {
    /// Connections to all its endpoints together, exact for the whole process. Default none. With HTTP/2, where each
    /// worker shares few connections among its requests, at least one for each worker: a worker without any could
    /// serve nobody.
    #[schemars(range(min = 1))]
    pub connections: Option<u32>,
    /// Requests that wait for a connection once `connections` are busy, exact for the whole process. Default 1024;
    /// more are answered 503. A client that leaves gives up its place.
    pub pending: u32,
}

impl Default for UpstreamLimits {
    fn default() -> Self {
        Self { connections: None, pending: 1024 }
    }
}

// === impl Upstream ===

impl Upstream {
    /// Turns TLS on if every endpoint is a URL with `https` and `tls` is not written.
    pub(crate) fn follow_schemes(&mut self) {
        let is_https = |endpoint: &Endpoint| endpoint.scheme == Some(EndpointScheme::Https);
        if self.tls.is_none() && !self.endpoints.is_empty() && self.endpoints.iter().all(is_https) {
            self.tls = Some(UpstreamTls::default());
        }
    }

    /// `keepalive`, or its default.
    pub fn keepalive(&self) -> Duration {
        let usual = if self.protocol == UpstreamProtocol::Fastcgi { 0 } else { 60 };
        self.keepalive.unwrap_or(Duration::from_secs(usual))
    }

    /// Whether its endpoints may speak HTTP/2.
    pub const fn may_speak_http2(&self) -> bool {
        match self.protocol {
            UpstreamProtocol::Auto => self.tls.is_some(),
            UpstreamProtocol::H2 | UpstreamProtocol::H2c => true,
            UpstreamProtocol::Fastcgi | UpstreamProtocol::Http1 => false,
        }
    }

    /// The minimum of `limits.connections`. With HTTP/2 a connection stays with its worker and never closes for lack
    /// of requests, so another worker would wait for one forever.
    pub fn least_connections(&self, workers: Workers) -> u32 {
        if self.may_speak_http2() { u32::try_from(workers.count()).unwrap_or(u32::MAX) } else { 1 }
    }
}

// === impl Endpoint ===

/// The long form of an endpoint.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct WeightedEndpoint {
    /// The endpoint's address, or a URL of scheme, host and port.
    address: EndpointText,
    /// Its share among the endpoints. Default 1.
    #[serde(default = "WeightedEndpoint::default_weight", deserialize_with = "WeightedEndpoint::weight")]
    #[schemars(range(min = 1, max = 65535))]
    weight: u32,
    /// The endpoint's zone, by any name. Endpoints in the `zone` of the gateway are used first; the others of the
    /// same priority get what these cannot carry. Default none, which is in no gateway's zone.
    #[serde(default)]
    zone: Option<String>,
    /// Endpoints of priority 0 are used first; those of 1 get what these cannot carry, and so on up to 255. Default
    /// 0.
    #[serde(default, deserialize_with = "WeightedEndpoint::priority")]
    priority: u8,
}

impl WeightedEndpoint {
    fn default_weight() -> u32 {
        1
    }

    fn weight<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
        const EXPECTED: &str = "a weight; expected a whole number from 1 to 65535";
        let number = de::text(deserializer, EXPECTED)?.parse::<u16>().ok().filter(|number| *number > 0);
        number.map(u32::from).ok_or_else(|| de::refuse(EXPECTED, None))
    }

    fn priority<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u8, D::Error> {
        const EXPECTED: &str = "a priority; expected a whole number from 0 to 255";
        de::text(deserializer, EXPECTED)?.parse().map_err(|_| de::refuse(EXPECTED, None))
    }
}

impl<'de> Deserialize<'de> for Endpoint {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(match de::TextOrMap::<EndpointText, WeightedEndpoint>::deserialize(deserializer)? {
            de::TextOrMap::Map(WeightedEndpoint { address, weight, zone, priority }) => {
                let EndpointText { scheme, address } = address;
                Self { scheme, address, weight, zone, priority }
            }
            de::TextOrMap::Text(EndpointText { scheme, address }) => {
                Self { scheme, address, weight: 1, zone: None, priority: 0 }
            }
        })
    }
}

impl JsonSchema for Endpoint {
    fn schema_name() -> Cow<'static, str> {
        "Endpoint".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let text = generator.subschema_for::<EndpointText>();
        let map = generator.subschema_for::<WeightedEndpoint>();
        schemars::json_schema!({
            "description": "An address, or an address with its weight.",
            "anyOf": [text, map],
        })
    }
}

// === impl HostPolicy ===

impl<'de> Deserialize<'de> for HostPolicy {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        const EXPECTED: &str = "a host; expected preserve, endpoint or a name such as api.example.com";
        let text = de::text(deserializer, EXPECTED)?;
        match text.as_str() {
            "preserve" => Ok(Self::Preserve),
            "endpoint" => Ok(Self::Endpoint),
            _ if is_authority(&text) => Ok(Self::Literal(text)),
            _ => Err(de::refuse(EXPECTED, None)),
        }
    }
}

/// Whether a text is valid in a Host field: a host with an optional port. Source: RFC 9110 §7.2.
fn is_authority(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || "-._~:[]".contains(c))
}

super::values::text_schema!(
    HostPolicy,
    "preserve, endpoint, or the literal Host to send.",
    ["preserve", "endpoint", "api.example.com"]
);

// === impl RetryOn ===

/// gRPC statuses after which a retry may help.
const GRPC: &[u8] = &[1, 2, 4, 8, 10, 13, 14];

impl<'de> Deserialize<'de> for RetryOn {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        const EXPECTED: &str = "a reason to retry; expected connect, reset, refused_stream, timeout, 429, a status from 500 to 599, or grpc:unavailable and the like";
        let text = de::text(deserializer, EXPECTED)?;
        match (text.as_str(), text.parse::<u16>()) {
            ("connect", _) => Ok(Self::Connect),
            ("refused_stream", _) => Ok(Self::RefusedStream),
            ("reset", _) => Ok(Self::Reset),
            ("timeout", _) => Ok(Self::Timeout),
            (_, Ok(status @ (429 | 500..=599))) => Ok(Self::Status(status)),
            (text, _) => text
                .strip_prefix("grpc:")
                .and_then(weir_h1::grpc::number)
                .filter(|status| GRPC.contains(status))
                .map(Self::Grpc)
                .ok_or_else(|| de::refuse(EXPECTED, None)),
        }
    }
}

impl JsonSchema for RetryOn {
    fn schema_name() -> Cow<'static, str> {
        "RetryOn".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        schemars::json_schema!({
            "description": "A reason to retry.",
            "anyOf": [
                { "enum": ["connect", "reset", "refused_stream", "timeout"] },
                { "type": "string", "pattern": "^grpc:[a-z_]+$" },
                { "type": "integer", "minimum": 429, "maximum": 599 },
            ],
        })
    }
}
