//! What probes ask, and when: the policy, without any I/O. `probes` does the work.

use std::sync::Arc;
use std::time::Duration;
use weir_wire::tls::ClientTls;

/// `upstreams.*.health.probe`, compiled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// What it asks.
    pub kind: ProbeKind,
    /// The Host to send; `None` for the endpoint's own.
    pub host: Option<Box<str>>,
    /// Its TLS, if it differs from the upstream's.
    pub tls: Option<ProbeTls>,
    /// The time between two probes.
    pub interval: Duration,
    /// The longest one may take, including the connect.
    pub timeout: Duration,
    /// How many in a row must pass to bring an endpoint back.
    pub healthy: u32,
    /// How many in a row must fail to take it out.
    pub unhealthy: u32,
    /// Whether readiness waits for an endpoint that passes.
    pub readyz: bool,
}

/// The TLS of probes.
#[derive(Clone, Debug)]
pub struct ProbeTls {
    /// The policy.
    pub tls: ClientTls,
    /// Identifies this TLS policy.
    pub key: Arc<str>,
}

impl PartialEq for ProbeTls {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

impl Eq for ProbeTls {}

/// What a probe asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProbeKind {
    /// `grpc.health.v1.Health/Check` for this service.
    Grpc {
        /// The service.
        service: Box<str>,
    },
    /// A GET.
    Http {
        /// The path to request.
        path: Box<str>,
        /// The statuses that pass, as ranges.
        expect: Box<[(u16, u16)]>,
        /// What the body must contain.
        body: Option<Box<str>>,
    },
    /// Whether a connect succeeds, including TLS.
    Tcp,
}

impl Probe {
    /// What it asks, in a few words.
    pub fn what(&self) -> String {
        match &self.kind {
            ProbeKind::Grpc { service } if service.is_empty() => "grpc health of the server".to_owned(),
            ProbeKind::Grpc { service } => format!("grpc health of {service}"),
            ProbeKind::Http { path, .. } => format!("GET {path}"),
            ProbeKind::Tcp => "tcp connect".to_owned(),
        }
    }
}
