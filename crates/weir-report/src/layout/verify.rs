//! Checks whether a saved report is consistent, by recomputing every figure from counts, sums and histograms.
//!
//! Layouts print only what follows from the raw part of a report. Three things are checked: each histogram agrees
//! with its own totals; totals are the sums of their parts; and the saved figures, thresholds and verdict equal the
//! computed ones.

use super::saved::of_value;
use crate::histogram::highest_of;
use crate::report::Figures;
use crate::report::{
    AgentStats, ConnectionStats, Counts, Pace, Reason, Recovery, Report, ThresholdResult, Tick,
};
use crate::threshold::Threshold;
use crate::{Histogram, verdict};
use serde::Deserialize;
use serde_json::Value;
use std::fmt;

/// A number that does not follow from the rest of the report.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// Its path in the report: `figures.service.p99`.
    pub path: String,
    /// The value in the report.
    pub saved: String,
    /// The value computed from the rest.
    pub computed: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: the report says {}, its raw data say {}", self.path, self.saved, self.computed)
    }
}

/// Recomputes every number of a saved report (the `json` layout) and returns those that differ.
///
/// # Errors
///
/// The text is not a report.
pub fn verify(saved: &str) -> Result<Vec<Difference>, serde_json::Error> {
    let value: Value = serde_json::from_str(saved)?;
    let report = of_value(&value)?;
    let mut found = Found::default();
    found.histograms("", &value);
    // An agent that was lost told its counts and times, not what its end would have told of threads and connections.
    if report.agents.iter().all(|agent| agent.lost.is_none()) {
        found.totals(&report);
        found.parts(&report);
        found.connections(&report);
    }
    found.agents(&report);
    found.judgement(&report);
    // A report that is reduced to its raw part has no figures to compare.
    if let (Some(figures), Ok(computed)) = (value.get("figures"), serde_json::to_value(Figures::of(&report)))
    {
        found.figures("figures", figures, &computed);
    }
    Ok(found.0)
}

/// What in the raw part of a report contradicts itself: histograms that do not agree with their own totals, and totals
/// that are not the sums of their parts. Figures and verdict, which follow from it, are not looked at.
pub fn contradictions(report: &Report) -> Vec<Difference> {
    let mut found = Found::default();
    match serde_json::to_value(report) {
        Ok(value) => found.histograms("", &value),
        Err(e) => found.say("", e, "a report"), // never: all its keys are texts
    }
    found.totals(report);
    found.parts(report);
    found.connections(report);
    found.0
}

/// The differences so far.
#[derive(Default)]
struct Found(Vec<Difference>);

impl Found {
    fn say(&mut self, path: &str, saved: impl fmt::Display, computed: impl fmt::Display) {
        let (saved, computed) = (saved.to_string(), computed.to_string());
        self.0.push(Difference { path: path.to_owned(), saved, computed });
    }

    fn equal(&mut self, path: &str, saved: u64, computed: u64) {
        if saved != computed {
            self.say(path, saved, computed);
        }
    }

    fn at_most(&mut self, path: &str, saved: u64, most: u64) {
        if saved > most {
            self.say(path, saved, format!("at most {most}"));
        }
    }

    /// Searches the whole report for histograms, recognized by their buckets.
    fn histograms(&mut self, path: &str, value: &Value) {
        match value {
            Value::Object(map) if map.contains_key("buckets") => self.histogram(path, value),
            Value::Object(map) => {
                for (key, value) in map {
                    let dot = if path.is_empty() { "" } else { "." };
                    self.histograms(&format!("{path}{dot}{key}"), value);
                }
            }
            Value::Array(items) => {
                for (i, value) in items.iter().enumerate() {
                    self.histograms(&format!("{path}[{i}]"), value);
                }
            }
            _ => {}
        }
    }

    /// Checks one histogram: its buckets must allow its count, minimum, maximum and both sums.
    fn histogram(&mut self, path: &str, value: &Value) {
        let whole = |key: &str| value.get(key).and_then(Value::as_u64).unwrap_or(0);
        let buckets: Vec<(u64, u64)> =
            value.get("buckets").and_then(|b| Vec::deserialize(b).ok()).unwrap_or_default();
        self.equal(&format!("{path}.count"), whole("count"), total(buckets.iter().map(|(_, n)| *n)));
        if buckets.is_empty() {
            ["sum", "min", "max"].iter().for_each(|key| self.equal(&format!("{path}.{key}"), whole(key), 0));
        }
        let (Some((first, _)), Some((last, _))) = (buckets.first(), buckets.last()) else { return };
        let mut between = |key: &str, saved: f64, low: f64, high: f64| {
            // Sums of squares are saved as doubles.
            if saved < low * (1.0 - 1e-9) || saved > high * (1.0 + 1e-9) {
                self.say(&format!("{path}.{key}"), saved, format!("{low} to {high}"));
            }
        };
        between("min", whole("min") as f64, *first as f64, highest_of(*first) as f64);
        // The last possible bucket takes everything above it.
        let most = if *last >= Histogram::LAST { f64::INFINITY } else { highest_of(*last) as f64 };
        between("max", whole("max") as f64, *last as f64, most);
        let sum = |power: i32, end: fn(u64) -> f64| -> f64 {
            buckets.iter().map(|(from, n)| end(*from).powi(power) * *n as f64).sum()
        };
        let high: fn(u64) -> f64 =
            |from| if from >= Histogram::LAST { f64::INFINITY } else { highest_of(from) as f64 };
        between("sum", whole("sum") as f64, sum(1, |from| from as f64), sum(1, high));
        let squares = value.get("sum_of_squares").and_then(Value::as_f64).unwrap_or(0.0);
        between("sum_of_squares", squares, sum(2, |from| from as f64), sum(2, high));
    }

    /// Checks totals that follow from other totals.
    fn totals(&mut self, report: &Report) {
        let counts = &report.counts;
        let ended = total([counts.responses, counts.errors.total(), counts.unfinished]);
        self.equal("counts.requests", counts.requests, ended);
        if !counts.statuses.is_empty() || counts.grpc.is_empty() {
            self.equal("counts.responses", counts.responses, total(counts.statuses.values().copied()));
        }
        if report.is_grpc() {
            self.equal("counts.grpc", total(counts.grpc.values().copied()), counts.responses);
        }
        let (latency, phases) = (&report.latency, &report.phases);
        for (path, h) in [
            ("latency.service.count", &latency.service),
            ("latency.response.count", &latency.response),
            ("latency.first_byte.count", &latency.first_byte),
            ("phases.blocked.count", &phases.blocked),
            ("phases.dns.count", &phases.dns),
            ("phases.connecting.count", &phases.connecting),
            ("phases.tls.count", &phases.tls),
            ("phases.sending.count", &phases.sending),
            ("phases.waiting.count", &phases.waiting),
            ("phases.receiving.count", &phases.receiving),
        ] {
            // Another tool did not record all of them, or not with each response.
            if report.source.is_none() {
                self.equal(path, h.count(), counts.responses);
            }
        }
        let expected = report.expected();
        let unexpected = latency.service_unexpected.count();
        self.equal("latency.service_unexpected.count", unexpected, counts.responses.saturating_sub(expected));
        // k6 checks what its script says, not each response.
        for (i, check) in report.checks.iter().enumerate().filter(|_| report.source.is_none()) {
            // In a plan each step has checks of its own.
            let of_steps = report.steps.iter().filter(|s| !s.scenario.is_empty()).flat_map(|s| &s.checks);
            let same = of_steps.filter(|c| c.check == check.check).map(|c| c.passed + c.failed);
            let judged = if report.steps.is_empty() { counts.responses } else { total(same) };
            self.equal(&format!("checks[{i}]"), total([check.passed, check.failed]), judged);
        }
        if let Some(ws) = &report.websocket {
            // In a plan, other steps have responses too, and some of a WebSocket wait for no message.
            let most = total([counts.responses, ws.unsolicited]);
            if report.steps.is_empty() {
                self.equal("websocket.received", ws.received, most);
            } else {
                self.at_most("websocket.received", ws.received, most);
            }
            self.equal("websocket.sessions", ws.sessions, ws.handshake.count());
            self.equal("websocket.connecting.count", ws.connecting.count(), ws.sessions);
            self.at_most("websocket.sent", ws.sent, counts.requests);
        }
        self.window(report);
    }

    /// Checks the window for rates. Without a warm-up it is part of the counts.
    fn window(&mut self, report: &Report) {
        let Some(window) = report.window else { return };
        self.at_most("window.length_ns", window.length_ns, report.duration_ns);
        if report.warmup_ns == 0 {
            self.at_most("window.responses", window.responses, report.counts.responses);
            self.at_most("window.errors", window.errors, report.counts.errors.total());
            self.at_most("window.sent", window.sent, report.bytes.sent());
            self.at_most("window.received", window.received, report.bytes.received());
        }
    }

    /// Checks totals that are sums of parts: threads, targets, clients, ticks.
    fn parts(&mut self, report: &Report) {
        let counts = &report.counts;
        let errors = counts.errors.total();
        if !report.threads.is_empty() {
            let threads = &report.threads;
            self.equal("threads[].requests", total(threads.iter().map(|t| t.requests)), counts.requests);
            self.equal("threads[].responses", total(threads.iter().map(|t| t.responses)), counts.responses);
            self.equal("threads[].errors", total(threads.iter().map(|t| t.errors)), errors);
            let timed = total(threads.iter().map(|t| t.service.count()));
            self.equal("threads[].service.count", timed, report.latency.service.count());
        }
        if !report.targets.is_empty() {
            let targets = &report.targets;
            self.equal("targets[].requests", total(targets.iter().map(|t| t.requests)), counts.requests);
            self.equal("targets[].responses", total(targets.iter().map(|t| t.responses)), counts.responses);
            self.equal("targets[].errors", total(targets.iter().map(|t| t.errors)), errors);
            if let Some(window) = report.window {
                let ended = total(targets.iter().map(|t| t.in_window));
                self.equal("targets[].in_window", ended, window.responses);
            }
        }
        if !report.steps.is_empty() {
            // Setup and teardown are no part of the run.
            let steps: Vec<_> = report.steps.iter().filter(|s| s.is_counted()).collect();
            self.equal("steps[].requests", total(steps.iter().map(|s| s.requests)), counts.requests);
            self.equal("steps[].responses", total(steps.iter().map(|s| s.responses)), counts.responses);
            self.equal("steps[].errors", total(steps.iter().map(|s| s.errors.total())), errors);
            let timed = total(steps.iter().map(|s| s.response.count()));
            self.equal("steps[].response.count", timed, report.latency.response.count());
        }
        for s in &report.scenarios {
            let ended = total([s.done, s.broken(), s.unfinished]);
            self.equal(&format!("scenarios[{}].started", s.name), s.started, ended);
            self.equal(&format!("scenarios[{}].iteration.count", s.name), s.iteration.count(), s.done);
        }
        if !report.blocks.is_empty() {
            let blocks = &report.blocks;
            let timed = total(blocks.iter().map(|b| b.response.count()));
            self.equal("blocks[].response.count", timed, counts.responses);
            let ended = total(blocks.iter().map(|b| b.in_window));
            self.equal("blocks[].in_window", ended, report.rated().responses);
        }
        let clients = &report.connections.responses_by_client;
        if !clients.is_empty() && clients.len() < ConnectionStats::CLIENTS_MOST {
            self.equal("connections.responses_by_client", total(clients.iter().copied()), counts.responses);
        }
        self.shape(report);
        if let Some(replay) = &report.replay {
            let paired = total(replay.statuses.iter().map(|pair| pair.requests));
            self.equal("replay.statuses", paired, counts.responses + counts.errors.total());
            self.equal("replay.then.count", replay.then.count(), replay.now.count());
            self.equal(
                "replay.routes.timed",
                total(replay.routes.iter().map(|r| r.timed)),
                replay.then.count(),
            );
        }
        self.ticks(report);
    }

    /// Checks the parts of a shape: a shape has no warm-up, so every request belongs to one.
    fn shape(&mut self, report: &Report) {
        let (parts, counts) = (&report.parts, &report.counts);
        if parts.is_empty() {
            return;
        }
        // A scenario with a constant load has no parts, but requests.
        let is_whole = report.scenarios.iter().all(|s| matches!(s.pace, Pace::Shape { .. }));
        type Of = fn(&Counts) -> u64;
        let sums: [(&str, Of); 6] = [
            ("requests", |c| c.requests),
            ("responses", |c| c.responses),
            ("errors", |c| c.errors.total()),
            ("unfinished", |c| c.unfinished),
            ("unsent", |c| c.unsent),
            ("failed_checks", |c| c.failed_checks),
        ];
        for (name, of) in sums {
            let sum = total(parts.iter().map(|part| of(&part.counts)));
            match is_whole {
                true => self.equal(&format!("parts[].{name}"), sum, of(counts)),
                false => self.at_most(&format!("parts[].{name}"), sum, of(counts)),
            }
        }
        for (i, part) in parts.iter().enumerate() {
            let path = format!("parts[{i}]");
            let c = &part.counts;
            let ended = total([c.responses, c.errors.total(), c.unfinished]);
            self.equal(&format!("{path}.requests"), c.requests, ended);
            self.equal(&format!("{path}.service.count"), part.service.count(), c.responses);
            self.equal(&format!("{path}.response.count"), part.response.count(), c.responses);
            self.equal(&format!("{path}.statuses"), total(c.statuses.values().copied()), c.responses);
            if let Some(all) = &part.iterations {
                let ended = total([all.done, all.broken_off, all.unfinished]);
                self.equal(&format!("{path}.iterations.started"), all.started, ended);
                self.equal(&format!("{path}.iterations.time.count"), all.time.count(), all.done);
            }
            let (verdict, recovery) = report.judged_part(i);
            if part.verdict != verdict {
                self.say(&format!("{path}.verdict"), part.verdict.grade, verdict.grade);
            }
            if part.recovery != recovery {
                let told = |r: Option<Recovery>| r.map_or("none".to_owned(), Recovery::told);
                self.say(&format!("{path}.recovery"), told(part.recovery), told(recovery));
            }
        }
    }

    /// Ticks cover everything: the last one ends with its thread, after the graceful stop.
    fn ticks(&mut self, report: &Report) {
        let (ticks, counts) = (&report.series.ticks, &report.counts);
        if ticks.is_empty() {
            return;
        }
        let unexpected = report.latency.service_unexpected.count();
        type Of = fn(&Tick) -> u64;
        let sums: [(&str, Of, u64); 6] = [
            ("requests", |t| t.requests, counts.requests),
            ("responses", |t| t.responses, counts.responses),
            ("unexpected", |t| t.unexpected, unexpected),
            ("errors", |t| t.errors, counts.errors.total()),
            ("sent", |t| t.sent, report.bytes.sent()),
            ("received", |t| t.received, report.bytes.received()),
        ];
        let has_bytes = report.source.is_none();
        for (name, of, whole) in sums.into_iter().take(if has_bytes { 6 } else { 4 }) {
            self.equal(&format!("series.ticks[].{name}"), total(ticks.iter().map(of)), whole);
        }
    }

    /// Checks that the agents' rows add up to the whole.
    fn agents(&mut self, report: &Report) {
        let agents = &report.agents;
        if !agents.is_empty() {
            let sum = |of: fn(&AgentStats) -> u64| agents.iter().map(of).fold(0, u64::saturating_add);
            self.equal("agents[].requests", sum(|a| a.requests), report.counts.requests);
            self.equal("agents[].responses", sum(|a| a.responses), report.counts.responses);
        }
    }

    /// Checks thresholds and verdict by the rules of this version.
    fn judgement(&mut self, report: &Report) {
        for (i, saved) in report.thresholds.iter().enumerate() {
            let path = format!("thresholds[{i}]");
            match Threshold::parse("", &saved.threshold) {
                Ok(threshold) => self.threshold(&path, saved, &threshold.judge(report)),
                Err(_) => self.say(&path, &saved.threshold, "no condition"),
            }
        }
        let (saved, computed) = (&report.verdict, verdict::judge(report));
        // A sum of several runs also has the reasons of each.
        if report.merged > 0 {
            for reason in computed.reasons.iter().filter(|reason| !saved.reasons.contains(reason)) {
                self.say("verdict.reasons", "nothing of it", format!("{}: {}", reason.code, reason.text));
            }
            return;
        }
        if saved.grade != computed.grade {
            self.say("verdict.grade", saved.grade, computed.grade);
        }
        let differ = |i: &usize| saved.reasons.get(*i) != computed.reasons.get(*i);
        let most = saved.reasons.len().max(computed.reasons.len());
        if let Some(i) = (0..most).find(differ) {
            let told = |reasons: &[Reason]| match reasons.get(i) {
                Some(reason) => format!("{} {}: {}", reason.grade, reason.code, reason.text),
                None => "no such reason".to_owned(),
            };
            self.say(&format!("verdict.reasons[{i}]"), told(&saved.reasons), told(&computed.reasons));
        }
    }

    fn threshold(&mut self, path: &str, saved: &ThresholdResult, computed: &ThresholdResult) {
        let same = match (saved.measured, computed.measured) {
            (Some(a), Some(b)) => is_near(a, b),
            (a, b) => a.is_none() && b.is_none(),
        };
        if !same {
            let told = |measured: Option<f64>| measured.map_or("nothing".to_owned(), |m| m.to_string());
            self.say(&format!("{path}.measured"), told(saved.measured), told(computed.measured));
        }
        if saved.passed != computed.passed {
            self.say(&format!("{path}.passed"), saved.passed, computed.passed);
        }
    }

    /// Checks connections: each response came over a reused connection or one that its request opened.
    fn connections(&mut self, report: &Report) {
        let (counts, connections) = (&report.counts, &report.connections);
        self.at_most("counts.kept_alive", counts.kept_alive, counts.responses);
        self.at_most("connections.reused", connections.reused, counts.responses);
        let fresh = counts.responses.saturating_sub(connections.reused);
        if fresh > connections.opened && !report.threads.is_empty() {
            self.say("connections.opened", connections.opened, format!("at least {fresh}"));
        }
        self.at_most("connections.opened_measured", connections.opened_measured, connections.opened);
        self.equal("connections.dial.count", connections.dial.count(), connections.opened);
        // A report of an older version has none.
        if !report.ledger.protocols.is_empty() {
            let answered = total(report.ledger.protocols.values().copied());
            self.equal("ledger.protocols", answered, counts.responses);
        }
    }

    /// Compares saved figures with computed ones, by name.
    fn figures(&mut self, path: &str, saved: &Value, computed: &Value) {
        match (saved, computed) {
            (Value::Object(saved), Value::Object(computed)) => {
                for (key, computed) in computed {
                    // A figure that an older version did not save cannot differ.
                    if let Some(saved) = saved.get(key) {
                        self.figures(&format!("{path}.{key}"), saved, computed);
                    }
                }
            }
            _ => {
                let same = match (saved.as_f64(), computed.as_f64()) {
                    (Some(a), Some(b)) => is_near(a, b),
                    _ => saved == computed,
                };
                if !same {
                    self.say(path, saved, computed);
                }
            }
        }
    }
}

/// Equal except for rounding in the text.
fn is_near(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * b.abs()
}

/// The sum, which no file can make overflow.
fn total(parts: impl IntoIterator<Item = u64>) -> u64 {
    parts.into_iter().fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests;
