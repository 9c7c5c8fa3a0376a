//! What probes ask, and when: the policy, without any I/O. `probes` does it.

use std::sync::Arc;
use std::time::Duration;
use weir_wire::tls::ClientTls;

/// `upstreams.*.health.probe`, as run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// What is asked.
    pub kind: ProbeKind,
    /// The Host that is asked for; the endpoint's own where there is none.
    pub host: Option<Box<str>>,
    /// Where it is not the upstream's.
    pub tls: Option<ProbeTls>,
    /// The time between two of them.
    pub interval: Duration,
    /// The longest that one may take, connecting included.
    pub timeout: Duration,
    /// How many must pass in a row to bring an endpoint back.
    pub healthy: u32,
    /// How many must fail in a row to take it out.
    pub unhealthy: u32,
    /// Whether readiness waits for an endpoint that passes.
    pub readyz: bool,
}

/// The TLS of probes.
#[derive(Clone, Debug)]
pub struct ProbeTls {
    /// The policy.
    pub tls: ClientTls,
    /// What tells this TLS policy from another.
    pub key: Arc<str>,
}

impl PartialEq for ProbeTls {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

impl Eq for ProbeTls {}

/// What is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProbeKind {
    /// `grpc.health.v1.Health/Check` for this service.
    Grpc {
        /// The service.
        service: Box<str>,
    },
    /// A GET.
    Http {
        /// The path that is asked for.
        path: Box<str>,
        /// The statuses that pass, from and to.
        expect: Box<[(u16, u16)]>,
        /// What the body must contain.
        body: Option<Box<str>>,
    },
    /// Whether it can be connected to, TLS included.
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
