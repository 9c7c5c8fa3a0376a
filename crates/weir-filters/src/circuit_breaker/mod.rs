//! `circuit_breaker`: stops asking an upstream that fails too often, until a few probes go well.
//!
//! `circuit` counts and decides, `asked` is what an exchange knows of its attempt; here are the settings, the hooks, and what the
//! log is told; `saved` is what an upgrade hands on.

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
    meaning: "The upstream fails too often to be asked now.",
    change: "the filter circuit_breaker, or the upstream: `weir status` and the log tell what it counted",
    nature: Nature::Failure,
    ..Cause::USUAL
};

/// Stops asking an upstream of which too many attempts fail, or are slow, until a few probes go well.
///
/// An attempt fails by a status of `statuses`, or where there is no answer: no connection, a reset, a timeout. A call of gRPC also
/// fails by a status of `grpc`, in the head of the answer or in its trailers. What the client ended counts neither way.
///
/// When `errors` or `slow_rate` is reached within `window`, with `minimum` attempts or
/// more, the circuit opens: for `open` the upstream is not asked, and the client gets 503 `circuit_open` with
/// `Retry-After`. After that `probes` requests may pass. When all of them went well, the circuit closes and counts anew;
/// one that fails opens it again.
///
/// Each upstream has a circuit of its own in each place where the filter stands: that of a route counts this route, that
/// under `filters` all routes together. All cores share it, and it survives a reload or an upgrade that
/// leaves the settings as they are (an upgrade begins to count anew, but what is open stays open).
/// Each change is a line in the log. The state is in `weir status`, and in the metric `weir_circuit_breaker_state` with
/// the label `upstream`: 0 closed, 1 half-open, 2 open. Retries go through the circuit too. `health.outlier` of an
/// upstream takes out one endpoint that fails among others; this filter is for an upstream that fails as a whole.
///
/// ```yaml
/// - circuit_breaker: { errors: 50%, minimum: 20, window: 10s, open: 15s }
/// - circuit_breaker: { slow: 2s, slow_rate: 80% }
/// ```
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct CircuitBreakerSettings {
    /// Share of attempts that fail at which the circuit opens. Default 50%.
    #[serde(default = "half")]
    errors: Percent,
    /// Statuses that count as failed. Default: 500, 502, 503, 504.
    #[serde(default = "statuses")]
    statuses: Vec<u16>,
    /// Statuses of gRPC that count as failed. Default: unknown, internal, unavailable.
    #[serde(default = "grpc_statuses")]
    grpc: Vec<String>,
    /// Time to the head of the response from which an answer counts as slow. Default: none is slow.
    slow: Option<Duration>,
    /// Share of slow answers at which the circuit opens. Default 50%.
    slow_rate: Option<Percent>,
    /// Attempts within the window below which the circuit stays closed. Default 20.
    #[serde(default = "minimum")]
    minimum: NonZeroU32,
    /// How far back it looks, from 1s to 1h. Default 10s.
    #[serde(default = "window")]
    window: Duration,
    /// How long the upstream is not asked. Default 15s.
    #[serde(default = "open")]
    open: Duration,
    /// Requests that must go well before the circuit closes; more than that are not under way meanwhile. Default 3.
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

/// The circuits of one filter, by upstream: made at the first attempt, read without a lock.
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
                build.refuse(key, "the circuit would open at once", Some("write 50%".to_owned()));
            }
        }
        for (at, status) in self.statuses.iter().enumerate() {
            if !(400..=599).contains(status) {
                let hint = "write one from 400 to 599";
                build.refuse(
                    &format!("statuses[{at}]"),
                    format!("{status} is no status that says of a failure"),
                    Some(hint.to_owned()),
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
                        format!("`{name}` is no status that says of a failure"),
                        Some(hint),
                    );
                }
            }
        }
        if self.slow.is_some_and(Duration::is_zero) {
            build.refuse("slow", "every answer would be slow", Some("write a time such as 2s".to_owned()));
        }
        if self.slow_rate.is_some() && self.slow.is_none() {
            let hint = "say what is slow: slow: 2s";
            build.refuse("slow_rate", "nothing is slow", Some(hint.to_owned()));
        }
        let hour = std::time::Duration::from_secs(3600);
        if !(std::time::Duration::from_secs(1)..=hour).contains(&self.window.get()) {
            build.refuse("window", "it is not from 1s to 1h", Some("write 10s".to_owned()));
        }
        if self.open.is_zero() || self.open.get() > hour {
            build.refuse("open", "it is not from 1ms to 1h", Some("write 15s".to_owned()));
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
                *cx.state() = Asked::default(); // on_attempt_end has nothing to count
                let seconds = left.as_secs() + u64::from(left.subsec_nanos() > 0);
                let headers = vec![(self.retry_after.clone(), seconds.to_string().into_bytes())];
                return Err(Box::new(Refusal { cause: &CIRCUIT_OPEN, detail: None, headers }));
            }
        }
        Ok(())
    }

    fn on_attempt_end(&self, end: &AttemptEnd<'_>, cx: &mut Cx) {
        // What says nothing leaves what was asked to another attempt of the same request, or to the end of the exchange.
        let Some(went) = self.went(end) else { return };
        let waits = end.grpc == Some(GrpcStatus::ToCome) && went != AttemptResult::Failed;
        let place = match std::mem::take(cx.note()).checked_sub(1) {
            Some(generation) => {
                let circuits = self.circuits.by_upstream.load();
                let Some(circuit) = circuits.get(end.attempt.upstream) else { return }; // a reload has forgotten it
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

    /// Only of a call of gRPC whose status stands in the trailers.
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
            } // and it is counted as it is dropped
        } else if !piece.data().is_empty() && to_come.as_ref().is_some_and(ToCome::is_probe) {
            *to_come = None; // a stream that lives must not keep the place of a probe
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
    /// How an attempt went; `None` where that says nothing about the upstream.
    fn went(&self, end: &AttemptEnd<'_>) -> Option<AttemptResult> {
        match end.cause {
            // The client left, or had set a deadline of its own.
            Some(cause) if [&CLIENT_CLOSED, &CLIENT_TOO_SLOW, &GRPC_TIMEOUT].contains(&cause) => None,
            // What the client sent was refused, by the gateway or by a filter.
            Some(cause) if (400..500).contains(&cause.status) => None,
            Some(_) => Some(AttemptResult::Failed),
            // Another attempt was answered first (`hedge`), or a filter refused this one.
            None if end.status == 0 => None,
            None if self.statuses.contains(&end.status) => Some(AttemptResult::Failed),
            None if matches!(end.grpc, Some(GrpcStatus::Told(status)) if self.grpc.contains(&status)) => {
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

    /// Forgets upstreams that are gone.
    fn keep_only(&self, upstreams: &[String]) {
        let _adding = self.adding.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all = HashMap::clone(&self.by_upstream.load());
        all.retain(|name, _| upstreams.contains(name));
        self.by_upstream.store(Arc::new(all));
    }
}

#[cfg(test)]
mod tests;
