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
pub(crate) struct Upstream {
    pub(crate) name: Arc<str>,
    pub(crate) published: Arc<Published>,
    /// What discovery keeps `published` up to date from.
    pub(crate) names: Arc<dns::Names>,
    /// Where a registry lists the endpoints.
    pub(crate) registry: Option<Arc<Registry>>,
    pub(crate) tls: Option<ClientTls>,
    /// What tells this TLS policy from another: connections are shared only between equal ones.
    pub(crate) tls_key: Arc<str>,
    pub(crate) protocol: Protocol,
    pub(crate) host: HostPolicy,
    /// Whether names and paths in its responses become those that the client sees.
    pub(crate) rewrites_links: bool,
    pub(crate) balancer: Balancer,
    /// How long an endpoint that comes into rotation takes to have its share.
    pub(crate) slow_start: Option<Duration>,
    pub(crate) sticky: Option<Sticky>,
    /// Where this gateway stands.
    pub(crate) zone: Option<Arc<str>>,
    pub(crate) timeouts: Timeouts,
    /// How long a pooled connection may be idle.
    pub(crate) keepalive: Duration,
    /// How old a pooled connection may grow.
    pub(crate) max_age: Option<Duration>,
    /// Longest response head by HTTP/2, in bytes.
    pub(crate) head_bytes: u32,
    pub(crate) gate: Option<Arc<Gate>>,
    pub(crate) budget: Arc<Budget>,
    pub(crate) retry: Option<Retry>,
    pub(crate) hedge: Option<Hedge>,
    pub(crate) outlier: Option<Outlier>,
    pub(crate) probe: Option<Arc<Probe>>,
    /// What becomes of requests whose clients leave, unless their routes say otherwise.
    pub(crate) client_gone: Option<ClientGone>,
    /// The header that tells what is left of an exchange's time.
    pub(crate) deadline: Option<FieldName>,
    /// How connections are made.
    pub(crate) way: Way,
    pub(crate) cells: UpstreamId,
}

/// What an upstream speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Http1,
    Http2,
    /// What each endpoint chooses when TLS begins.
    Negotiated,
}

impl Protocol {
    /// Its name in a config.
    pub(crate) const fn name(self, tls: bool) -> &'static str {
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
pub(crate) struct Timeouts {
    pub(crate) connect: Duration,
    pub(crate) response: Duration,
    pub(crate) body: Duration,
    pub(crate) tunnel: Duration,
    pub(crate) exchange: Duration,
}

/// What becomes of a request whose client leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ClientGone {
    /// It is canceled.
    Cancel,
    /// It goes on to its end.
    Finish,
}

/// Which Host an upstream is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HostPolicy {
    /// The endpoint's own, as written in the config.
    Endpoint,
    /// This one.
    Literal(Box<str>),
    /// The client's.
    Preserve,
}
