//! `circuit_breaker`: stops asking an upstream that fails too often, until a few probes succeed.
//!
//! This file holds the settings, the hooks and the log messages. `circuit` counts and decides, `asked` is what an
//! exchange knows about its attempt, and `saved` is the state handed over at an upgrade.

mod asked;
mod circuit;
mod saved;

use self::asked::{Asked, Place, Reporter, TO_COME, ToCome, now, since};
use self::circuit::{AttemptResult, Circuit, Pass, Rules};
use super::prelude::*;
use arc_swap::ArcSwap;
use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, PoisonError};
use weir_filter::config::units::Percent;
use weir_filter::error::{CLIENT_CLOSED, CLIENT_TOO_SLOW, GRPC_TIMEOUT};
use weir_h1::FieldName;
use weir_telemetry::log;

pub(super) static KIND: FilterKind = FilterKind::made_from::<CircuitBreakerSettings>("circuit_breaker")
    .with_causes(&[&CIRCUIT_OPEN])
    .without_access();

static CIRCUIT_OPEN: Cause = Cause {
    code: "circuit_open",
    status: 503,
    meaning: "The circuit breaker is open, because the upstream failed too often.",
    change: "the filter circuit_breaker, or the upstream: `weir status` and the log show the counts",
    nature: Nature::Failure,
    ..Cause::USUAL
};

/// Stops sending requests to an upstream that fails or is slow too often, until a few probes succeed.
///
/// An attempt fails if its status is in `statuses`, or if no response comes: no connection, a reset, a timeout. A
/// gRPC call also fails if its status is in `grpc`, whether in the response head or the trailers. Attempts that the
/// client ended count neither way.
///
/// The circuit opens when `errors` or `slow_rate` is reached within `window`, over at least `minimum` attempts. For
/// the time `open`, requests are not sent to the upstream; the client gets 503 `circuit_open` with `Retry-After`.
/// Then `probes` requests may pass. If all of them succeed, the circuit closes and its counts start from zero. If one
/// fails, it opens again.
///
/// Each upstream has its own circuit for each place in the config where the filter appears. The circuit of a route
/// counts that route; under `filters` it counts all routes together. All cores share the circuit. It survives a
/// reload or an upgrade that leaves the settings unchanged; an upgrade resets the counts, but an open circuit stays
/// open.
///
/// Each state change is logged. `weir status` shows the state, and so does the metric `weir_circuit_breaker_state`
/// with the label `upstream`: 0 closed, 1 half-open, 2 open. Retries go through the circuit too. `health.outlier` of
/// an upstream takes out a single failing endpoint; this filter is for an upstream that fails as a whole.
///
/// ```yaml
/// - circuit_breaker: { errors: 50%, minimum: 20, window: 10s, open: 15s }
/// - circuit_breaker: { slow: 2s, slow_rate: 80% }
/// ```
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct CircuitBreakerSettings {
    /// Share of failed attempts at which the circuit opens. Default 50%.
    #[serde(default = "half")]
    errors: Percent,
    /// Statuses that count as failed. Default: 500, 502, 503, 504.
    #[serde(default = "statuses")]
    statuses: Vec<u16>,
    /// gRPC statuses that count as failed. Default: unknown, internal, unavailable.
    #[serde(default = "grpc_statuses")]
    grpc: Vec<String>,
    /// A response whose head takes at least this long counts as slow. Default: no response is slow.
    slow: Option<Duration>,
    /// Share of slow responses at which the circuit opens. Default 50%.
    slow_rate: Option<Percent>,
    /// With fewer attempts than this in the window, the circuit stays closed. Default 20.
    #[serde(default = "minimum")]
    minimum: NonZeroU32,
    /// Length of the window in which attempts count, from 1s to 1h. Default 10s.
    #[serde(default = "window")]
    window: Duration,
    /// How long the circuit stays open before the first probe. Default 15s.
    #[serde(default = "open")]
    open: Duration,
    /// Probes that must succeed before the circuit closes, and the most that run at the same time. Default 3.
    #[serde(default = "probes")]
    probes: NonZeroU32,
}

const fn half() -> Percent {
    Percent::new(50)
}

fn statuses() -> Vec<u16> {
    vec![500, 502, 503, 504]
}

fn grpc_statuses() -> Vec<String> {
    ["unknown", "internal", "unavailable"].map(str::to_owned).into()
}

const fn minimum() -> NonZeroU32 {
    NonZeroU32::new(20).expect("it is not zero")
}

const fn window() -> Duration {
    Duration::from_secs(10)
}

const fn open() -> Duration {
    Duration::from_secs(15)
}

const fn probes() -> NonZeroU32 {
    NonZeroU32::new(3).expect("it is not zero")
}

struct CircuitBreaker {
    teller: Reporter,
    statuses: Vec<u16>,
    grpc: Vec<u8>,
    slow: Option<std::time::Duration>,
    circuits: Arc<Circuits>,
    retry_after: FieldName,
}

/// The circuits of one filter, by upstream. Each is made at the first attempt and read without a lock.
#[derive(Default)]
struct Circuits {
    by_upstream: ArcSwap<ByUpstream>,
    adding: Mutex<()>,
}

type ByUpstream = HashMap<String, Arc<Circuit>, foldhash::fast::RandomState>;

impl IntoFilter for CircuitBreakerSettings {
    type Filter = CircuitBreaker;

    fn into_filter(self, build: &mut Build<'_>) -> Option<CircuitBreaker> {
        let before = build.mistakes.len();
        for (key, percent) in [("errors", Some(self.errors)), ("slow_rate", self.slow_rate)] {
            if percent.is_some_and(|percent| percent.ratio() <= 0.0) {
                build.refuse(key, "the circuit would open at once", Some("write 50%".into()));
            }
        }
        for (at, status) in self.statuses.iter().enumerate() {
            if !(400..=599).contains(status) {
                let hint = "write one from 400 to 599";
                build.refuse(
                    &format!("statuses[{at}]"),
                    format!("{status} is not a status of a failure"),
                    Some(hint.into()),
                );
            }
        }
        let mut grpc = Vec::new();
        for (at, name) in self.grpc.iter().enumerate() {
            match weir_filter::grpc::number(name).filter(|status| *status != 0) {
                Some(status) => grpc.push(status),
                None => {
                    let hint =
                        "write one such as unavailable, deadline_exceeded, resource_exhausted".to_owned();
                    build.refuse(
                        &format!("grpc[{at}]"),
                        format!("`{name}` is not a status of a failure"),
                        Some(hint.into()),
                    );
                }
            }
        }
        if self.slow.is_some_and(Duration::is_zero) {
            build.refuse("slow", "every answer would be slow", Some("write a time such as 2s".into()));
        }
        if self.slow_rate.is_some() && self.slow.is_none() {
            let hint = "say which responses are slow, such as slow: 2s";
            build.refuse("slow_rate", "nothing is slow", Some(hint.into()));
        }
        let hour = std::time::Duration::from_secs(3600);
        if !(std::time::Duration::from_secs(1)..=hour).contains(&self.window.get()) {
            build.refuse("window", "it is not from 1s to 1h", Some("write 10s".into()));
        }
        if self.open.is_zero() || self.open.get() > hour {
            build.refuse("open", "it is not from 1ms to 1h", Some("write 15s".into()));
        }
        if build.mistakes.len() > before {
            return None;
        }
        let open = self.open.get();
        let circuits =
            build.keep_portable_for("", |_| true, |saved| saved::load(saved, open), |_| Circuits::default());
        circuits.keep_only(build.upstreams);
        let slow_share = self.slow.map(|_| self.slow_rate.unwrap_or(half()).ratio());
        let rules = Rules {
            errors: self.errors.ratio(),
            slow: slow_share.unwrap_or(f64::INFINITY),
            minimum: self.minimum.get().into(),
            window: self.window.get(),
            open: self.open.get(),
            probes: self.probes.get(),
        };
        Some(CircuitBreaker {
            teller: Reporter { rules, place: build.scope.into() },
            statuses: self.statuses,
            grpc,
            slow: self.slow.map(Duration::get),
            circuits,
            retry_after: FieldName::new("retry-after").expect("a name in the source is a token"),
        })
    }
}

static STATE: Figure = Figure::gauge(
    "state",
    "weir_circuit_breaker_state",
    "The circuit to an upstream: 0 closed, 1 half-open, 2 open.",
)
.of("upstream");

impl Filter for CircuitBreaker {
    fn hooks(&self) -> Hooks {
        Hooks::ATTEMPT | Hooks::RESPONSE_BODY
    }

    fn on_attempt(&self, _: &mut RequestHead, attempt: &Attempt<'_>, cx: &mut Cx) -> HookResult {
        let circuit = self.circuits.of(attempt.upstream);
        let rules = &self.teller.rules;
        *cx.note() = 0;
        match circuit.ask(rules, now) {
            (Pass::Counted(generation), _) => *cx.note() = generation + 1,
            (Pass::Probe(generation), first) => {
                if first {
                    let fields: log::Fields<'_> =
                        &[("place", &self.teller.place), ("upstream", &attempt.upstream)];
                    log::info("the circuit is half-open", fields);
                }
                *cx.state() = Asked::probe(circuit, generation, *rules);
            }
            (Pass::Refused(left), _) => {
                *cx.state() = Asked::default(); // leaves on_attempt_end nothing to count
                let seconds = left.as_secs() + u64::from(left.subsec_nanos() > 0);
                let headers = vec![(self.retry_after.clone(), seconds.to_string().into_bytes())];
                return Err(Box::new(Refusal { cause: &CIRCUIT_OPEN, detail: None, headers }));
            }
        }
        Ok(())
    }

    fn on_attempt_end(&self, end: &AttemptEnd<'_>, cx: &mut Cx) {
        // An attempt without a result leaves its place to another attempt of the same request, or to the end of the
        // exchange.
        let Some(went) = self.went(end) else { return };
        let waits = end.grpc == Some(GrpcStatus::ToCome) && went != AttemptResult::Failed;
        let place = match std::mem::take(cx.note()).checked_sub(1) {
            Some(generation) => {
                let circuits = self.circuits.by_upstream.load();
                let Some(circuit) = circuits.get(end.attempt.upstream) else { return }; // a reload dropped it
                if !waits {
                    let change = circuit.count(generation, went, &self.teller.rules, since(end.at));
                    return self.teller.tell(end.attempt.upstream, change);
                }
                Place::Counted(Arc::clone(circuit), generation)
            }
            None => match cx.state::<Asked>().place.take() {
                Some(place) => place,
                None => return,
            },
        };
        if waits {
            *cx.note() = TO_COME;
            let to_come = ToCome::new(place, went, end.attempt.upstream, self.teller.clone());
            cx.state::<Asked>().to_come = Some(to_come);
        } else {
            self.teller.settle(place, went, end.attempt.upstream);
        }
    }

    /// Watches the body only for a gRPC call whose status is in the trailers.
    fn response_body(&self, _: &ResponseHead, cx: &mut Cx) -> BodyUse {
        if *cx.note() == TO_COME { BodyUse::Watch } else { BodyUse::Pass }
    }

    fn on_response_body(&self, piece: &mut Piece<'_>, cx: &mut Cx) -> HookResult {
        let to_come = &mut cx.state::<Asked>().to_come;
        if piece.is_last() {
            let status = piece.trailer("grpc-status").and_then(weir_filter::grpc::read_status);
            let failed = status.is_some_and(|status| self.grpc.contains(&status));
            if let Some(mut ended) = to_come.take()
                && failed
            {
                ended.went = AttemptResult::Failed;
            } // dropping it counts it
        } else if !piece.data().is_empty() && to_come.as_ref().is_some_and(ToCome::is_probe) {
            *to_come = None; // a long stream must not keep a probe's place
        }
        Ok(())
    }

    fn readings(&self) -> Vec<Reading> {
        let circuits = self.circuits.by_upstream.load();
        let mut readings: Vec<_> = circuits
            .iter()
            .map(|(name, circuit)| Reading::of(&STATE, name, circuit.level().into()))
            .collect();
        readings.sort_by(|a, b| a.of.cmp(&b.of));
        readings
    }
}

impl CircuitBreaker {
    /// The result of an attempt; `None` if it says nothing about the upstream.
    fn went(&self, end: &AttemptEnd<'_>) -> Option<AttemptResult> {
        match end.cause {
            // The client left, or its own deadline expired.
            Some(cause) if [&CLIENT_CLOSED, &CLIENT_TOO_SLOW, &GRPC_TIMEOUT].contains(&cause) => None,
            // The gateway or a filter refused what the client sent.
            Some(cause) if (400..500).contains(&cause.status) => None,
            Some(_) => Some(AttemptResult::Failed),
            // Another attempt was answered first (`hedge`), or a filter refused this one.
            None if end.status == 0 => None,
            None if self.statuses.contains(&end.status) => Some(AttemptResult::Failed),
            None if matches!(end.grpc, Some(GrpcStatus::Received(status)) if self.grpc.contains(&status)) => {
                Some(AttemptResult::Failed)
            }
            None if self.slow.is_some_and(|slow| end.took >= slow) => Some(AttemptResult::Slow),
            None => Some(AttemptResult::Well),
        }
    }
}

// === impl Circuits ===

impl Circuits {
    fn of(&self, upstream: &str) -> Arc<Circuit> {
        if let Some(circuit) = self.by_upstream.load().get(upstream) {
            return Arc::clone(circuit);
        }
        let _adding = self.adding.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all = HashMap::clone(&self.by_upstream.load());
        let circuit = Arc::clone(all.entry(upstream.to_owned()).or_default());
        self.by_upstream.store(Arc::new(all));
        circuit
    }

    /// Forgets upstreams that no longer exist.
    fn keep_only(&self, upstreams: &[String]) {
        let _adding = self.adding.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all = HashMap::clone(&self.by_upstream.load());
        all.retain(|name, _| upstreams.contains(name));
        self.by_upstream.store(Arc::new(all));
    }
}

#[cfg(test)]
mod tests;
