//! An upstream as compiled from the config: the same object on every core, kept across reloads that do not change it.

use super::balance::Balancer;
use super::budget::Budget;
use super::discover::dns;
use super::discover::registry::Registry;
use super::endpoint::{Endpoint, Published};
use super::gate::Gate;
use super::outlier::Outlier;
use super::pool::Way;
use super::probe::Probe;
use super::retry::{Hedge, Retry};
use super::sticky::Sticky;
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_h1::FieldName;
use weir_telemetry::UpstreamId;
use weir_wire::tls::ClientTls;

/// A named group of endpoints, compiled.
#[derive(Debug)]
pub struct Upstream {
    /// Its name in the config.
    pub name: Arc<str>,
    /// Its current endpoints.
    pub published: Arc<Published>,
    /// The names from which discovery keeps `published` up to date.
    pub names: Arc<dns::Names>,
    /// The registry that lists the endpoints.
    pub registry: Option<Arc<Registry>>,
    /// TLS towards its endpoints.
    pub tls: Option<ClientTls>,
    /// The same for bytes that may be no HTTP: without a protocol in the handshake (ALPN).
    pub tls_for_bytes: Option<ClientTls>,
    /// Identifies its TLS policy: connections are shared only between equal policies.
    pub tls_key: Arc<str>,
    /// Its protocol.
    pub protocol: Protocol,
    /// The Host its endpoints get.
    pub host: HostPolicy,
    /// Whether names and paths in its responses are translated for the client.
    pub rewrites_links: bool,
    /// How an endpoint is chosen.
    pub balancer: Balancer,
    /// How long an endpoint that enters rotation takes to reach its full share.
    pub slow_start: Option<Duration>,
    /// The cookie that keeps a client at one endpoint.
    pub sticky: Option<Sticky>,
    /// The gateway's zone.
    pub zone: Option<Arc<str>>,
    /// How long attempts may take.
    pub timeouts: Timeouts,
    /// How long a pooled connection may be idle.
    pub keepalive: Duration,
    /// How old a pooled connection may get.
    pub max_age: Option<Duration>,
    /// Longest HTTP/2 response head, in bytes.
    pub head_bytes: u32,
    /// Its connection limit.
    pub gate: Option<Arc<Gate>>,
    /// Pays for retries and hedges.
    pub budget: Arc<Budget>,
    /// When to repeat an attempt.
    pub retry: Option<Retry>,
    /// When to ask another endpoint too.
    pub hedge: Option<Hedge>,
    /// When to eject an endpoint.
    pub outlier: Option<Outlier>,
    /// How its endpoints are probed.
    pub probe: Option<Arc<Probe>>,
    /// What to do with requests whose clients leave, unless their routes say otherwise.
    pub client_gone: Option<ClientGone>,
    /// The header that carries the rest of an exchange's time.
    pub deadline: Option<FieldName>,
    /// How connections are made.
    pub way: Way,
    /// Its counters.
    pub cells: UpstreamId,
}

impl Upstream {
    /// Notes whether an endpoint answered well, if anything uses that.
    #[inline]
    pub fn note(&self, endpoint: &Endpoint, ok: bool) {
        if let Some(policy) = &self.outlier {
            self.note_for(policy, endpoint, ok);
        }
    }

    fn note_for(&self, policy: &Outlier, endpoint: &Endpoint, ok: bool) {
        let now = Instant::now();
        let is_spared = endpoint.health.answered(ok, policy, now, || {
            let list = self.published.list();
            (list.iter().filter(|e| e.health.is_out()).count(), list.len())
        });
        if is_spared {
            self.published.list().iter().for_each(|other| other.health.doubt_ejection(now));
        }
    }
}

/// The protocol of an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// FastCGI, one request at a time on a connection.
    FastCgi,
    /// HTTP/1.1.
    Http1,
    /// HTTP/2.
    Http2,
    /// The one each endpoint chooses by ALPN.
    Negotiated,
}

impl Protocol {
    /// Its name in a config.
    #[inline]
    pub const fn name(self, tls: bool) -> &'static str {
        match (self, tls) {
            (Self::FastCgi, _) => "fastcgi",
            (Self::Http1, _) => "http1",
            (Self::Http2, true) => "h2",
            (Self::Http2, false) => "h2c",
            (Self::Negotiated, _) => "auto",
        }
    }
}

/// The timeouts of an attempt. Zero means none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// For a connection.
    pub connect: Duration,
    /// For the head of the response.
    pub response: Duration,
    /// Between two pieces of its body.
    pub body: Duration,
    /// For an idle tunnel.
    pub tunnel: Duration,
    /// For the whole exchange.
    pub exchange: Duration,
}

/// What to do with a request whose client leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ClientGone {
    /// Cancel it.
    Cancel,
    /// Finish it.
    Finish,
}

/// The Host sent to an upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostPolicy {
    /// The endpoint's own, as written in the config.
    Endpoint,
    /// This one.
    Literal(Box<str>),
    /// The client's.
    Preserve,
}
