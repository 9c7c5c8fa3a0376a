//! An upstream as compiled from the config: the same object on every core, and kept across reloads that do not change it.

use super::balance::Balancer;
use super::budget::Budget;
use super::discover::dns;
use super::discover::registry::Registry;
use super::endpoint::Published;
use super::gate::Gate;
use super::outlier::Outlier;
use super::pool::Way;
use super::probe::Probe;
use super::retry::{Hedge, Retry};
use super::sticky::Sticky;
use std::sync::Arc;
use std::time::Duration;
use weir_h1::FieldName;
use weir_telemetry::UpstreamId;
use weir_wire::tls::ClientTls;

/// A named group of endpoints, as run.
#[derive(Debug)]
pub struct Upstream {
    /// Its name in the config.
    pub name: Arc<str>,
    /// Its endpoints as they are now.
    pub published: Arc<Published>,
    /// What discovery keeps `published` up to date from.
    pub names: Arc<dns::Names>,
    /// Where a registry lists the endpoints.
    pub registry: Option<Arc<Registry>>,
    /// TLS towards its endpoints.
    pub tls: Option<ClientTls>,
    /// What tells this TLS policy from another: connections are shared only between equal ones.
    pub tls_key: Arc<str>,
    /// What it speaks.
    pub protocol: Protocol,
    /// The Host that its endpoints get.
    pub host: HostPolicy,
    /// Whether names and paths in its responses become those that the client sees.
    pub rewrites_links: bool,
    /// How an endpoint is chosen.
    pub balancer: Balancer,
    /// How long an endpoint that comes into rotation takes to have its share.
    pub slow_start: Option<Duration>,
    /// The cookie that keeps a client at one endpoint.
    pub sticky: Option<Sticky>,
    /// Where this gateway stands.
    pub zone: Option<Arc<str>>,
    /// How long attempts may take.
    pub timeouts: Timeouts,
    /// How long a pooled connection may be idle.
    pub keepalive: Duration,
    /// How old a pooled connection may grow.
    pub max_age: Option<Duration>,
    /// Longest response head by HTTP/2, in bytes.
    pub head_bytes: u32,
    /// The limit of its connections.
    pub gate: Option<Arc<Gate>>,
    /// What pays for retries and hedges.
    pub budget: Arc<Budget>,
    /// When an attempt is made again.
    pub retry: Option<Retry>,
    /// When another endpoint is asked too.
    pub hedge: Option<Hedge>,
    /// When an endpoint is ejected.
    pub outlier: Option<Outlier>,
    /// How its endpoints are probed.
    pub probe: Option<Arc<Probe>>,
    /// What becomes of requests whose clients leave, unless their routes say otherwise.
    pub client_gone: Option<ClientGone>,
    /// The header that tells what is left of an exchange's time.
    pub deadline: Option<FieldName>,
    /// How connections are made.
    pub way: Way,
    /// Its counters.
    pub cells: UpstreamId,
}

/// What an upstream speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1.
    Http1,
    /// HTTP/2.
    Http2,
    /// What each endpoint chooses when TLS begins.
    Negotiated,
}

impl Protocol {
    /// Its name in a config.
    #[inline]
    pub const fn name(self, tls: bool) -> &'static str {
        match (self, tls) {
            (Self::Http1, _) => "http1",
            (Self::Http2, true) => "h2",
            (Self::Http2, false) => "h2c",
            (Self::Negotiated, _) => "auto",
        }
    }
}

/// The waits of an attempt. Zero means none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// For a connection.
    pub connect: Duration,
    /// For the head of the response.
    pub response: Duration,
    /// Between two pieces of its body.
    pub body: Duration,
    /// For a tunnel in which nothing moves.
    pub tunnel: Duration,
    /// For the exchange in all.
    pub exchange: Duration,
}

/// What becomes of a request whose client leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ClientGone {
    /// It is canceled.
    Cancel,
    /// It goes on to its end.
    Finish,
}

/// Which Host an upstream is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostPolicy {
    /// The endpoint's own, as written in the config.
    Endpoint,
    /// This one.
    Literal(Box<str>),
    /// The client's.
    Preserve,
}
