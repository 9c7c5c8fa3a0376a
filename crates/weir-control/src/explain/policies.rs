//! The resolved policies of an upstream in `weir explain`: retries and health, with all defaults.

use serde::Serialize;
use std::fmt;
use weir_config::mask::{MASK, without_secrets};
use weir_config::units::{ByteSize, Duration};
use weir_filter::grpc;
use weir_upstream::upstream::{Hedge, Outlier, Probe, ProbeKind, Retry, Upstream};

/// How failed requests are handled.
#[derive(Clone, Debug, Serialize)]
pub struct PoliciesShown {
    /// What is retried. `None` means only harmless repeats: a failed connect, the keep-alive race, a reset idempotent
    /// request.
    pub retry: Option<RetryShown>,
    /// When another endpoint is asked beside a slow one; `None` for never.
    pub hedge: Option<HedgeShown>,
    /// The deadline for all attempts together; `None` if there is none.
    pub deadline: Option<String>,
    /// What takes an endpoint out of rotation, besides being unreachable.
    pub health: HealthShown,
}

/// `retry`, with all defaults filled in.
#[derive(Clone, Debug, Serialize)]
pub struct RetryShown {
    /// Attempts in total.
    pub attempts: u32,
    /// What is retried.
    pub on: Vec<String>,
    /// `idempotent` or `all`.
    pub methods: &'static str,
    /// How long an attempt may take until the head of its response.
    pub per_try: Option<String>,
    /// The first pause before the same endpoint is asked again.
    pub backoff: String,
    /// Retries per request.
    pub budget: String,
    /// How much of a body is kept for a retry.
    pub body: String,
}

/// `hedge`, with all defaults filled in.
#[derive(Clone, Debug, Serialize)]
pub struct HedgeShown {
    /// How long the head of a response may take before another endpoint is asked too.
    pub after: String,
    /// Second attempts per request.
    pub budget: String,
}

/// `health`, with all defaults filled in.
#[derive(Clone, Debug, Serialize)]
pub struct HealthShown {
    /// The probe of each endpoint.
    pub probe: Option<ProbeShown>,
    /// When an endpoint that answers badly is ejected.
    pub outlier: Option<OutlierShown>,
}

/// `health.probe`, with all defaults filled in.
#[derive(Clone, Debug, Serialize)]
pub struct ProbeShown {
    /// What the probe asks, such as `GET /healthz`.
    pub what: String,
    /// The Host sent; `None` for the endpoint's own.
    pub host: Option<String>,
    /// The statuses that pass.
    pub expect: Vec<String>,
    /// `***` if the body must contain something.
    pub body: Option<&'static str>,
    /// Time between two probes.
    pub interval: String,
    /// How long one may take.
    pub timeout: String,
    /// How many in a row bring an endpoint back.
    pub healthy: u32,
    /// How many in a row take it out.
    pub unhealthy: u32,
}

/// `health.outlier`, with all defaults filled in.
#[derive(Clone, Debug, Serialize)]
pub struct OutlierShown {
    /// Errors in a row that eject.
    pub errors: u32,
    /// The period of counting.
    pub window: String,
    /// The share of errors that ejects too.
    pub rate: Option<String>,
    /// For how long, the first time.
    pub eject: String,
    /// The share of the endpoints that may be out.
    pub max: String,
}

fn time(time: std::time::Duration) -> String {
    Duration(time).to_string()
}

fn share(share: f64) -> String {
    format!("{}%", (share * 1e4).round() / 1e2)
}

impl PoliciesShown {
    /// `exchange` is the route's deadline.
    pub(super) fn of(upstream: &Upstream, exchange: Option<std::time::Duration>) -> Self {
        let own = Some(upstream.timeouts.exchange).filter(|own| !own.is_zero());
        let (probe, outlier) = (upstream.probe.as_deref(), upstream.outlier.as_ref());
        Self {
            retry: upstream.retry.as_ref().map(RetryShown::of),
            hedge: upstream.hedge.as_ref().map(HedgeShown::of),
            deadline: exchange.or(own).map(time),
            health: HealthShown { probe: probe.map(ProbeShown::of), outlier: outlier.map(OutlierShown::of) },
        }
    }
}

impl HedgeShown {
    fn of(hedge: &Hedge) -> Self {
        Self { after: time(hedge.after), budget: share(hedge.budget) }
    }
}

impl RetryShown {
    fn of(retry: &Retry) -> Self {
        let on = &retry.on;
        let named = [("reset", on.reset), ("refused_stream", on.refused_stream), ("timeout", on.timeout)];
        let named = named.into_iter().filter(|(_, on)| *on).map(|(name, _)| name.to_owned());
        let statuses = on.statuses.iter().map(u16::to_string);
        let of_grpc = on.grpc.iter().map(|status| format!("grpc:{}", grpc::name(*status)));
        Self {
            attempts: retry.attempts,
            on: ["connect".to_owned()].into_iter().chain(named).chain(statuses).chain(of_grpc).collect(),
            methods: if retry.all_methods { "all" } else { "idempotent" },
            per_try: retry.per_try.map(time),
            backoff: time(retry.backoff),
            budget: share(retry.budget),
            body: ByteSize(retry.body as u64).to_string(),
        }
    }
}

impl ProbeShown {
    fn of(probe: &Probe) -> Self {
        let (expect, body) = match &probe.kind {
            // The text may be a secret that the service reveals only to probes.
            ProbeKind::Http { expect, body, .. } => (&expect[..], body.as_ref().map(|_| MASK)),
            ProbeKind::Grpc { .. } | ProbeKind::Tcp => (&[][..], None),
        };
        let range =
            |(from, to): &(u16, u16)| if from == to { from.to_string() } else { format!("{from}-{to}") };
        Self {
            // Its query may hold a token.
            what: without_secrets(&probe.what()).into_owned(),
            host: probe.host.as_deref().map(str::to_owned),
            expect: expect.iter().map(range).collect(),
            body,
            interval: time(probe.interval),
            timeout: time(probe.timeout),
            healthy: probe.healthy,
            unhealthy: probe.unhealthy,
        }
    }
}

impl OutlierShown {
    fn of(outlier: &Outlier) -> Self {
        Self {
            errors: outlier.errors,
            window: time(outlier.window),
            rate: outlier.rate.map(share),
            eject: time(outlier.eject),
            max: share(outlier.max),
        }
    }
}

impl fmt::Display for PoliciesShown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let within = self.deadline.as_ref().map_or_else(String::new, |all| format!("; all within {all}"));
        match &self.retry {
            None => writeln!(
                f,
                "retry    failed connects, the keep-alive race, idempotent requests that are reset{within}"
            )?,
            Some(retry) => writeln!(f, "retry    {retry}{within}")?,
        }
        if let Some(hedge) = &self.hedge {
            let HedgeShown { after, budget } = hedge;
            writeln!(f, "hedge    another endpoint after {after}; only idempotent methods; budget {budget}")?;
        }
        match &self.health.probe {
            None => writeln!(f, "probe    none")?,
            Some(probe) => writeln!(f, "probe    {probe}")?,
        }
        match &self.health.outlier {
            None => {
                writeln!(f, "eject    never; what cannot be connected to is avoided for 1s, doubling to 30s")
            }
            Some(outlier) => writeln!(
                f,
                "eject    {outlier}; what cannot be connected to is avoided for 1s, doubling to 30s"
            ),
        }
    }
}

impl fmt::Display for RetryShown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let per_try = self.per_try.as_ref().map_or_else(String::new, |time| format!(" of at most {time}"));
        write!(
            f,
            "{} attempts{per_try} on {}; {} methods; backoff {}; budget {}; bodies up to {}",
            self.attempts,
            self.on.join(", "),
            self.methods,
            self.backoff,
            self.budget,
            self.body
        )
    }
}

impl fmt::Display for ProbeShown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.what)?;
        self.host.iter().try_for_each(|host| write!(f, " on host {host}"))?;
        write!(
            f,
            " every {}, {} each; out after {}, back after {}",
            self.interval, self.timeout, self.unhealthy, self.healthy
        )?;
        if !self.expect.is_empty() {
            write!(f, "; expects {}", self.expect.join(", "))?;
        }
        self.body.iter().try_for_each(|body| write!(f, " and {body} in the body"))
    }
}

impl fmt::Display for OutlierShown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "for {} after {} errors in a row within {}", self.eject, self.errors, self.window)?;
        self.rate.iter().try_for_each(|rate| write!(f, ", or {rate} of at least 20"))?;
        write!(f, "; at most {} of the endpoints", self.max)
    }
}
