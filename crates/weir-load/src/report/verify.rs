//! Whether a saved report agrees with itself: every figure computed again from counts, sums and histograms.
//!
//! Layouts print nothing but what follows from the raw part of a report. So three things are checked: that each histogram
//! holds what it says it holds, that totals are the sums of their parts, and that the saved figures are those computed.

use super::figures::Figures;
use super::{Grade, Report};
use serde::Deserialize;
use serde_json::Value;
use std::fmt;

/// A number that is not what follows from the rest of the report.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// Where in the report: `figures.service.p99`.
    pub path: String,
    /// What the report says.
    pub saved: String,
    /// What follows from the rest.
    pub computed: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: the report says {}, its raw data say {}", self.path, self.saved, self.computed)
    }
}

/// Computes every number of a saved report (the `json` layout) again and names those that differ; empty when none does.
///
/// # Errors
///
/// The text is not a report.
pub fn verify(saved: &str) -> Result<Vec<Difference>, serde_json::Error> {
    let value: Value = serde_json::from_str(saved)?;
    let report = Report::deserialize(&value)?;
    let mut found = Found::default();
    found.histograms("", &value);
    found.totals(&report);
    found.parts(&report);
    // A report cut down to its raw part has no figures to differ.
    if let (Some(figures), Ok(computed)) = (value.get("figures"), serde_json::to_value(Figures::of(&report)))
    {
        found.figures("figures", figures, &computed);
    }
    Ok(found.0)
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

    /// Goes through the whole report for histograms, which are known by their buckets.
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

    /// One histogram: count, smallest, largest and both sums must be possible with its buckets.
    fn histogram(&mut self, path: &str, value: &Value) {
        let whole = |key: &str| value.get(key).and_then(Value::as_u64).unwrap_or(0);
        let buckets: Vec<(u64, u64)> =
            value.get("buckets").and_then(|b| Vec::deserialize(b).ok()).unwrap_or_default();
        self.equal(&format!("{path}.count"), whole("count"), buckets.iter().map(|(_, n)| n).sum());
        let (Some((first, _)), Some((last, _))) = (buckets.first(), buckets.last()) else { return };
        let mut between = |key: &str, saved: f64, low: f64, high: f64| {
            // Sums of squares are saved as doubles.
            if saved < low * (1.0 - 1e-9) || saved > high * (1.0 + 1e-9) {
                self.say(&format!("{path}.{key}"), saved, format!("{low} to {high}"));
            }
        };
        between("min", whole("min") as f64, *first as f64, top(*first) as f64);
        // The last bucket of all takes everything above it.
        let most = if *last >= LAST { f64::INFINITY } else { top(*last) as f64 };
        between("max", whole("max") as f64, *last as f64, most);
        let sum = |power: i32, end: fn(u64) -> f64| -> f64 {
            buckets.iter().map(|(from, n)| end(*from).powi(power) * *n as f64).sum()
        };
        let high: fn(u64) -> f64 = |from| if from >= LAST { f64::INFINITY } else { top(from) as f64 };
        between("sum", whole("sum") as f64, sum(1, |from| from as f64), sum(1, high));
        let squares = value.get("sum_of_squares").and_then(Value::as_f64).unwrap_or(0.0);
        between("sum_of_squares", squares, sum(2, |from| from as f64), sum(2, high));
    }

    /// Totals that follow from other totals.
    fn totals(&mut self, report: &Report) {
        let counts = &report.counts;
        let ended = counts.responses + counts.errors.total() + counts.unfinished;
        self.equal("counts.requests", counts.requests, ended);
        if !counts.statuses.is_empty() || counts.grpc.is_empty() {
            self.equal("counts.responses", counts.responses, counts.statuses.values().sum());
        }
        if report.is_grpc() {
            self.equal("counts.grpc", counts.grpc.values().sum(), counts.responses);
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
            self.equal(path, h.count(), counts.responses);
        }
        let expected = report.expected();
        let unexpected = latency.service_unexpected.count();
        self.equal("latency.service_unexpected.count", unexpected, counts.responses.saturating_sub(expected));
        for (i, check) in report.checks.iter().enumerate() {
            self.equal(&format!("checks[{i}]"), check.passed + check.failed, counts.responses);
        }
        if let Some(ws) = &report.websocket {
            self.equal("websocket.received", ws.received, counts.responses + ws.unsolicited);
            self.equal("websocket.sessions", ws.sessions, ws.handshake.count());
            self.equal("websocket.connecting.count", ws.connecting.count(), ws.sessions);
            if ws.sent > counts.requests {
                self.say("websocket.sent", ws.sent, format!("at most {}", counts.requests));
            }
        }
        self.window(report);
        let worst = report.verdict.reasons.iter().map(|reason| reason.grade).max().unwrap_or(Grade::Valid);
        if report.verdict.grade != worst {
            self.say("verdict.grade", report.verdict.grade, worst);
        }
    }

    /// What rates are of. Without a warm-up it is part of what was counted.
    fn window(&mut self, report: &Report) {
        let Some(window) = report.window else { return };
        let mut most = |path: &str, saved: u64, most: u64| {
            if saved > most {
                self.say(path, saved, format!("at most {most}"));
            }
        };
        most("window.length_ns", window.length_ns, report.duration_ns);
        if report.warmup_ns == 0 {
            most("window.responses", window.responses, report.counts.responses);
            most("window.errors", window.errors, report.counts.errors.total());
            most("window.sent", window.sent, report.bytes.sent());
            most("window.received", window.received, report.bytes.received());
        }
    }

    /// Totals that are the sums of their parts: threads, targets, clients, ticks.
    fn parts(&mut self, report: &Report) {
        let counts = &report.counts;
        let errors = counts.errors.total();
        if !report.threads.is_empty() {
            let threads = &report.threads;
            self.equal("threads[].requests", threads.iter().map(|t| t.requests).sum(), counts.requests);
            self.equal("threads[].responses", threads.iter().map(|t| t.responses).sum(), counts.responses);
            self.equal("threads[].errors", threads.iter().map(|t| t.errors).sum(), errors);
            let timed = threads.iter().map(|t| t.service.count()).sum();
            self.equal("threads[].service.count", timed, report.latency.service.count());
        }
        if !report.targets.is_empty() {
            let targets = &report.targets;
            self.equal("targets[].requests", targets.iter().map(|t| t.requests).sum(), counts.requests);
            self.equal("targets[].responses", targets.iter().map(|t| t.responses).sum(), counts.responses);
            self.equal("targets[].errors", targets.iter().map(|t| t.errors).sum(), errors);
            if let Some(window) = report.window {
                let ended = targets.iter().map(|t| t.in_window).sum();
                self.equal("targets[].in_window", ended, window.responses);
            }
        }
        let clients = &report.connections.responses_by_client;
        if !clients.is_empty() && clients.len() < CLIENTS_MOST {
            self.equal("connections.responses_by_client", clients.iter().sum(), counts.responses);
        }
        // Responses of the graceful stop come after the last tick, so ticks may hold less than all, never more.
        let ticked: u64 = report.series.ticks.iter().map(|tick| tick.responses).sum();
        if ticked > counts.responses {
            self.say("series.ticks[].responses", ticked, format!("at most {}", counts.responses));
        }
    }

    /// Saved figures against computed ones, name by name.
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
                    (Some(a), Some(b)) => (a - b).abs() <= 1e-9 * b.abs(),
                    _ => saved == computed,
                };
                if !same {
                    self.say(path, saved, computed);
                }
            }
        }
    }
}

/// Where a report stops counting clients one by one.
const CLIENTS_MOST: usize = 65_536;

/// Where the last bucket of a histogram begins.
const LAST: u64 = (2047 << 42) >> 11;

/// The highest value of the bucket that begins at `from`.
const fn top(from: u64) -> u64 {
    if from < 2048 { from } else { from + (1 << (63 - from.leading_zeros() - 10)) - 1 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Histogram;
    use crate::report::{Format, Reason, TargetStats, ThreadStats, Window, render};

    /// A report in which everything agrees.
    fn report() -> Report {
        let mut report = Report { duration_ns: 1_000_000_000, ..Report::default() };
        report.counts.requests = 103;
        report.counts.responses = 100;
        report.counts.errors.reset = 2;
        report.counts.unfinished = 1;
        report.counts.statuses = [(200, 95), (404, 5)].into();
        let (latency, phases) = (&mut report.latency, &mut report.phases);
        for h in [
            &mut latency.service,
            &mut latency.response,
            &mut latency.first_byte,
            &mut phases.blocked,
            &mut phases.dns,
            &mut phases.connecting,
            &mut phases.tls,
            &mut phases.sending,
            &mut phases.waiting,
            &mut phases.receiving,
        ] {
            (1..=99).for_each(|us| h.record(us * 1000));
            h.record(Histogram::MOST + 5);
        }
        latency.service_unexpected.record_n(7000, 5);
        let service = latency.service.clone();
        report.threads =
            vec![ThreadStats { requests: 103, responses: 100, errors: 2, service, ..ThreadStats::default() }];
        report
    }

    fn saved(report: &Report) -> String {
        render(report, Format::named("json").unwrap())
    }

    fn paths(text: &str) -> Vec<String> {
        verify(text).unwrap().into_iter().map(|difference| difference.path).collect()
    }

    #[test]
    fn a_report_as_saved_agrees_with_itself() {
        assert_eq!(verify(&saved(&report())).unwrap(), []);
        assert_eq!(verify(&saved(&Report::default())).unwrap(), []);
        assert!(verify("{}x").is_err());
    }

    #[test]
    fn a_changed_figure_is_named_with_both_values() {
        let text = saved(&report()).replace(r#""responses_per_s":100.0"#, r#""responses_per_s":120.0"#);
        let found = verify(&text).unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!(
            found[0].to_string(),
            "figures.responses_per_s: the report says 120.0, its raw data say 100.0"
        );
    }

    #[test]
    fn a_changed_bucket_shows_in_count_and_percentiles() {
        let text = saved(&report()).replacen("[1000,1]", "[1000,9]", 1);
        assert_eq!(
            paths(&text)[..2],
            ["latency.service.count", "latency.service.count"],
            "{:?}",
            paths(&text)
        );
        let text = saved(&report()).replacen(r#""min":1000"#, r#""min":900"#, 1);
        let found = paths(&text);
        assert!(found.contains(&"latency.service.min".to_owned()), "{found:?}");
        assert!(found.contains(&"figures.service.min".to_owned()), "{found:?}");
    }

    #[test]
    fn totals_are_the_sums_of_their_parts() {
        let mut report = report();
        report.counts.unfinished = 0;
        report.threads[0].errors = 3;
        report.verdict.reasons =
            vec![Reason { code: "x".to_owned(), grade: Grade::Suspect, text: String::new() }];
        assert_eq!(paths(&saved(&report)), ["counts.requests", "verdict.grade", "threads[].errors"]);
    }

    #[test]
    fn what_rates_are_of_is_part_of_what_was_counted() {
        let window = |responses| Window { length_ns: 900_000_000, responses, ..Window::default() };
        let target =
            TargetStats { requests: 103, responses: 100, errors: 2, in_window: 90, ..TargetStats::default() };
        let mut report = Report { window: Some(window(90)), targets: vec![target], ..report() };
        assert_eq!(verify(&saved(&report)).unwrap(), []);
        report.window = Some(window(101));
        assert_eq!(paths(&saved(&report)), ["window.responses", "targets[].in_window"]);
        report.warmup_ns = 1; // some of them began in it
        report.targets[0].in_window = 101;
        assert_eq!(verify(&saved(&report)).unwrap(), []);
        report.window = Some(Window { length_ns: 1_000_000_001, ..window(101) });
        assert_eq!(paths(&saved(&report)), ["window.length_ns"]);
    }

    #[test]
    fn a_report_without_figures_is_checked_in_its_raw_part() {
        let text = serde_json::to_string(&report()).unwrap();
        assert_eq!(verify(&text).unwrap(), []);
    }
}
