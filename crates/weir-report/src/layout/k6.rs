//! `k6` and `k6-full`: the summary that k6 prints at the end of a run, in its two modes; `full` adds the phases.
//! `k6-json`: the content of the file of `--summary-export`.
//!
//! Derived from output of k6 1.8.1 (the files `k6*` in tests/captured). The banner and the scenario's description,
//! which k6 prints before a run, are left out. This file maps our figures to k6's names; `text` and `export` are the
//! layouts.
//!
//! Our values come from a histogram and are known to 0.1 %; k6 keeps every value and interpolates between those next to
//! a percentile. Our times leave out requests that failed without a response, those of k6 include them.

mod export;
mod text;

use super::format::Format;
use crate::Histogram;
use crate::report::{End, Pace, Report, ThresholdResult};
use crate::threshold::{k6_of_ours, split_k6};
use text::{Check, Metric, Section, Sheet, Threshold};

pub(super) static FORMAT: Format = Format {
    name: "k6",
    about: "the summary of k6",
    differs: "Times leave out requests without a response. Thresholds as p(99)<50 for p99<50ms.",
    print: compact,
};

pub(super) static FULL: Format = Format {
    name: "k6-full",
    about: "the summary of k6 --summary-mode full, with the phases",
    differs: "As k6.",
    print: full,
};

pub(super) static EXPORT: Format = Format {
    name: "k6-json",
    about: "the JSON of k6 --summary-export",
    differs: "Checks have no id.",
    print: exported,
};

fn exported(report: &Report) -> String {
    // JSON with string keys, so serialization cannot fail.
    serde_json::to_string_pretty(&sheet(report, Mode::Full).export()).unwrap_or_default() + "\n"
}

fn compact(report: &Report) -> String {
    sheet(report, Mode::Compact).text()
}

fn full(report: &Report) -> String {
    sheet(report, Mode::Full).text()
}

#[derive(Clone, Copy, PartialEq)]
enum Mode {
    Compact,
    Full,
}

/// The columns of a trend: k6's defaults, which its users can change.
const STATS: [&str; 6] = ["avg", "min", "med", "max", "p(90)", "p(95)"];

fn sheet(report: &Report, mode: Mode) -> Sheet {
    let mut sections = Vec::new();
    let grpc = report.is_grpc();
    if !grpc && report.websocket.is_none() {
        sections.push(http(report, mode));
    }
    sections.push(execution(report));
    let seconds = report.seconds();
    let data = |bytes: u64| Metric::Data { count: bytes, rate: bytes as f64 / seconds };
    sections.push(Section {
        title: "NETWORK",
        metrics: vec![
            ("data_received", data(report.bytes.received())),
            ("data_sent", data(report.bytes.sent())),
        ],
    });
    if let Some(ws) = &report.websocket {
        let count = |n: u64| Metric::Counter { count: n, rate: n as f64 / seconds };
        let metrics = vec![
            ("ws_connecting", trend(&ws.connecting)),
            ("ws_msgs_received", count(ws.received)),
            ("ws_msgs_sent", count(ws.sent)),
            ("ws_session_duration", trend(&ws.session_duration)),
            ("ws_sessions", count(ws.sessions)),
        ];
        sections.push(Section { title: "WEBSOCKET", metrics });
    }
    if grpc {
        let metrics = vec![("grpc_req_duration", trend(&report.latency.service))];
        sections.push(Section { title: "GRPC", metrics });
    }
    Sheet {
        thresholds: report.thresholds.iter().map(|result| threshold(result, grpc)).collect(),
        checks: report
            .checks
            .iter()
            .map(|c| Check { name: c.check.clone(), passes: c.passed, fails: c.failed })
            .collect(),
        seconds,
        stats: STATS.to_vec(),
        sections,
        trailer: trailer(report),
    }
}

fn http(report: &Report, mode: Mode) -> Section {
    let (phases, latency) = (&report.phases, &report.latency);
    let duration = trend(&latency.service);
    let expected = trend(&latency.service.without(&latency.service_unexpected));
    let (finished, failed) = (report.finished(), report.failed());
    let mut metrics = vec![
        ("http_req_duration", duration),
        ("http_req_duration{expected_response:true}", expected),
        ("http_req_failed", Metric::Rate { passes: failed, total: finished }),
        ("http_reqs", counter(report)),
    ];
    if mode == Mode::Full {
        for (name, h) in [
            ("http_req_blocked", &phases.blocked),
            ("http_req_connecting", &phases.connecting),
            ("http_req_receiving", &phases.receiving),
            ("http_req_sending", &phases.sending),
            ("http_req_tls_handshaking", &phases.tls),
            ("http_req_waiting", &phases.waiting),
        ] {
            metrics.push((name, trend(h)));
        }
        metrics.sort_by_key(|(name, _)| *name);
    }
    Section { title: "HTTP", metrics }
}

/// An iteration of k6's script is one request here, so both have the same count.
fn execution(report: &Report) -> Section {
    let mut metrics = Vec::new();
    let seconds = report.seconds();
    if report.counts.unsent > 0 {
        let count = report.counts.unsent;
        metrics.push(("dropped_iterations", Metric::Counter { count, rate: count as f64 / seconds }));
    }
    // The sleep at the end of k6's script is part of its iteration.
    metrics.push(("iteration_duration", trend_and(&report.latency.response, report.plan.think_ns)));
    metrics.push(("iterations", counter(report)));
    // k6 samples its users once a second, so a shorter run has no such line.
    let users = || report.series.ticks.iter().map(|tick| tick.users);
    if let (Some(value), Some(min), Some(max)) = (users().next_back(), users().min(), users().max()) {
        metrics.push(("vus", Metric::Gauge { value, min, max }));
        let all = report.plan.connections;
        metrics.push(("vus_max", Metric::Gauge { value: all, min: all, max: all }));
    }
    Section { title: "EXECUTION", metrics }
}

fn counter(report: &Report) -> Metric {
    Metric::Counter { count: report.finished(), rate: report.finished() as f64 / report.seconds() }
}

/// The six figures of a trend in milliseconds.
fn trend(h: &Histogram) -> Metric {
    trend_and(h, 0)
}

/// A trend of the values with the same pause added to each.
fn trend_and(h: &Histogram, pause_ns: u64) -> Metric {
    let pause_ns = if h.is_empty() { 0 } else { pause_ns };
    let ms = |ns: f64| (ns + pause_ns as f64) / 1e6;
    Metric::Trend(vec![
        ms(h.mean()),
        ms(h.min() as f64),
        ms(percentile(h, 0.5)),
        ms(h.max() as f64),
        ms(percentile(h, 0.9)),
        ms(percentile(h, 0.95)),
    ])
}

/// Interpolates between the two values next to position `q × (n - 1)`, counted from 0.
fn percentile(h: &Histogram, q: f64) -> f64 {
    let place = q * h.count().saturating_sub(1) as f64;
    let below = h.at_rank(place as u64 + 1) as f64;
    let above = h.at_rank(place as u64 + 2) as f64;
    below + (above - below) * place.fract()
}

/// Lists a threshold under the k6 metric that it uses, in k6's syntax, which k6's readers know.
fn threshold(result: &ThresholdResult, grpc: bool) -> Threshold {
    if let Some((metric, source)) = split_k6(&result.threshold) {
        return threshold_of_k6(metric, source, result);
    }
    match k6_of_ours(&result.threshold) {
        Some(("http_req_duration", source)) if grpc => threshold_of_k6("grpc_req_duration", &source, result),
        Some((metric, source)) => threshold_of_k6(metric, &source, result),
        None => threshold_of_ours(result),
    }
}

/// A threshold without a k6 metric, such as the cost of the target, under its own name.
fn threshold_of_ours(result: &ThresholdResult) -> Threshold {
    let source = result.threshold.trim();
    let what = source.split(['<', '>', '=', '!']).next().unwrap_or_default().trim();
    Threshold {
        metric: what.to_owned(),
        source: source.to_owned(),
        agg: what.to_owned(),
        value: result.measured.map_or_else(|| "[no data]".to_owned(), text::number),
        ok: result.passed,
    }
}

/// A threshold in k6's form.
fn threshold_of_k6(metric: &str, source: &str, result: &ThresholdResult) -> Threshold {
    let agg = source.split(['<', '>', '=', '!']).next().unwrap_or_default().trim();
    let value = result.measured.map(|value| match agg {
        "count" => text::number(value),
        "rate" if ["checks", "http_req_failed"].contains(&metric) => text::percent(value),
        "rate" => format!("{}/s", text::number(value)),
        _ => text::duration(value / 1e6),
    });
    Threshold {
        metric: metric.to_owned(),
        source: source.to_owned(),
        agg: agg.to_owned(),
        value: value.unwrap_or_else(|| "[no data]".to_owned()),
        ok: result.passed,
    }
}

/// The two lines below the summary: how the run and its only scenario ended.
fn trailer(report: &Report) -> String {
    let plan = &report.plan;
    let (run_ns, users) = (report.duration_ns, plan.connections);
    let width = users.to_string().len();
    // k6 allows ten minutes for a count of iterations, and adds its graceful stop to every run.
    let planned_ns = plan.stop.duration_ns.unwrap_or(600_000_000_000);
    let run = text::fixed_duration(run_ns, planned_ns + plan.graceful_stop_ns);
    let finished = report.finished();
    let (mark, done) = match report.end {
        End::Duration | End::Requests => ("✓", 100),
        End::Aborted { .. } | End::Failed { .. } | End::Interrupted | End::Stopped => {
            ("✗", share_done(report, planned_ns))
        }
    };
    let planned = text::go_duration(planned_ns);
    let progress = match (&plan.pace, plan.stop.requests) {
        (Pace::Rate { per_second }, _) => {
            format!("{:0>width$}/{users} VUs  {planned}  {per_second:.2} iters/s", 0)
        }
        (_, Some(n)) => format!(
            "{users} VUs  {}/{planned}  {finished}/{n} shared iters",
            text::fixed_duration(run_ns, planned_ns)
        ),
        (_, None) => format!("{users} VUs  {planned}"),
    };
    format!(
        "running ({run}), {:0>width$}/{users} VUs, {finished} complete and {} interrupted iterations\n\
         default {mark} [ {done:3}% ] {progress}\n",
        0, report.counts.unfinished
    )
}

/// How much of the plan was completed, in percent.
fn share_done(report: &Report, planned_ns: u64) -> u64 {
    let (done, all) = match report.plan.stop.requests {
        Some(n) => (report.finished(), n),
        None => (report.duration_ns, planned_ns),
    };
    (done.saturating_mul(100) / all.max(1)).min(100)
}

#[cfg(test)]
#[path = "k6/tests.rs"]
mod tests;
