//! What an exchange knows about its current attempt: which place it holds in the circuit, and how it returns that
//! place.

use super::circuit::{AttemptResult, Change, Circuit, Rules};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};
use weir_telemetry::log;

/// The note of an exchange that waits for its trailers.
///
/// For an attempt that is only counted, which nearly all are, the note is the circuit's generation plus one, which
/// needs no allocation. Otherwise it is 0.
pub(super) const TO_COME: u64 = u64::MAX;

/// What an exchange knows about its attempt in addition to its note.
#[derive(Default)]
pub(super) struct Asked {
    /// The place of a probe, until the attempt has ended.
    pub(super) place: Option<Place>,
    /// The place after the attempt has ended, if the trailers decide the result.
    pub(super) to_come: Option<ToCome>,
}

/// An attempt that the circuit allowed.
pub(super) enum Place {
    Counted(Arc<Circuit>, u64),
    Probe(Probe),
}

/// A probe. If its result stays unknown, dropping it frees its place.
pub(super) struct Probe {
    circuit: Arc<Circuit>,
    /// `None` after the probe has ended.
    generation: Option<u64>,
    rules: Rules,
}

/// A gRPC call that has a response head but has not ended. Dropping it counts the result known so far.
pub(super) struct ToCome {
    /// `None` after the call was counted.
    place: Option<Place>,
    pub(super) went: AttemptResult,
    upstream: Box<str>,
    teller: Reporter,
}

/// Counts results and logs state changes.
#[derive(Clone)]
pub(super) struct Reporter {
    pub(super) rules: Rules,
    /// The filter's position in the config.
    pub(super) place: Arc<str>,
}

/// Time since the first call.
pub(super) fn now() -> Duration {
    since(Instant::now())
}

/// The same for an instant already read from the clock; tests may add an offset to it.
pub(super) fn since(at: Instant) -> Duration {
    static BEGAN: LazyLock<Instant> = LazyLock::new(Instant::now);
    let now = at.saturating_duration_since(*BEGAN);
    #[cfg(test)]
    let now = now + super::tests::AHEAD.get();
    now
}

impl Asked {
    pub(super) fn probe(circuit: Arc<Circuit>, generation: u64, rules: Rules) -> Self {
        let probe = Probe { circuit, generation: Some(generation), rules };
        Self { place: Some(Place::Probe(probe)), to_come: None }
    }
}

impl ToCome {
    pub(super) fn new(place: Place, went: AttemptResult, upstream: &str, teller: Reporter) -> Self {
        Self { place: Some(place), went, upstream: upstream.into(), teller }
    }

    pub(super) const fn is_probe(&self) -> bool {
        matches!(self.place, Some(Place::Probe(_)))
    }
}

impl Drop for ToCome {
    fn drop(&mut self) {
        if let Some(place) = self.place.take() {
            self.teller.settle(place, self.went, &self.upstream);
        }
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        if let Some(generation) = self.generation.take() {
            let _ = self.circuit.probed(generation, None, &self.rules, now()); // this never changes the state
        }
    }
}

impl Reporter {
    /// Counts the result of an attempt.
    pub(super) fn settle(&self, place: Place, went: AttemptResult, upstream: &str) {
        let change = match place {
            Place::Counted(circuit, generation) => circuit.count(generation, went, &self.rules, now()),
            Place::Probe(mut probe) => {
                let generation = probe.generation.take();
                generation.and_then(|it| probe.circuit.probed(it, Some(went), &self.rules, now()))
            }
        };
        self.tell(upstream, change);
    }

    pub(super) fn tell(&self, upstream: &str, change: Option<Change>) {
        let Some(change) = change else { return };
        let (place, open) = (&self.place, format!("{:?}", self.rules.open));
        match change {
            Change::Closed => {
                log::info("the circuit is closed", &[("place", place), ("upstream", &upstream)]);
            }
            Change::Opened(tally) => {
                let fields: log::Fields<'_> = &[
                    ("place", place),
                    ("upstream", &upstream),
                    ("attempts", &tally.attempts),
                    ("failed", &tally.failed),
                    ("slow", &tally.slow),
                    ("open", &open),
                ];
                log::warn("the circuit is open", fields);
            }
            Change::Reopened => {
                let fields: log::Fields<'_> = &[("place", place), ("upstream", &upstream), ("open", &open)];
                log::warn("the circuit is open again: a probe failed", fields);
            }
        }
    }
}
