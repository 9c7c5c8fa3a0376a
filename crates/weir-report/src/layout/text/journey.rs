//! The rows of scenarios and steps.

use super::number;
use crate::Histogram;
use crate::report::{Percentiles, Report, ScenarioStats, StepStats};
use crate::units::{grouped, size, time};
use std::fmt::Write as _;

pub(super) fn print(r: &Report, out: &mut String) {
    if !r.is_journey() {
        return;
    }
    scenarios(r, out);
    steps(r, out);
}

fn scenarios(r: &Report, out: &mut String) {
    let _ = writeln!(
        out,
        "{:<14}{:>10}{:>10}{:>11}{:>12}{:>10}{:>10}{:>10}{:>10}",
        "by scenario", "started", "done", "broken off", "unfinished", "p50", "p90", "p99", "max"
    );
    for s in &r.scenarios {
        let [p50, p90, p99, max] = times(&s.iteration);
        let _ = writeln!(
            out,
            "{:>24}{:>10}{:>11}{:>12}{p50:>10}{p90:>10}{p99:>10}{max:>10}   {}{}",
            grouped(s.started),
            grouped(s.done),
            grouped(s.broken()),
            grouped(s.unfinished),
            s.name,
            remarks(s)
        );
        for (step, n) in &s.broken_off {
            let _ = writeln!(out, "{:>24} broken off at {step}", grouped(*n));
        }
    }
    out.push('\n');
}

/// What is rare, in words.
fn remarks(s: &ScenarioStats) -> String {
    let mut words = Vec::new();
    if s.not_started > 0 {
        words.push(format!("{} not started", grouped(s.not_started)));
    }
    if s.cookies_dropped > 0 {
        words.push(format!("{} cookies dropped", grouped(s.cookies_dropped)));
    }
    if s.dry_run_rows > 0 {
        words.push(format!("{} sent by the dry run", crate::units::counted(s.dry_run_rows, "row")));
    }
    if words.is_empty() { String::new() } else { format!("   ({})", words.join(", ")) }
}

/// The name comes last because it may be long.
fn steps(r: &Report, out: &mut String) {
    let _ = writeln!(
        out,
        "{:<10}{:>12}{:>9}{:>11}{:>10}{:>10}{:>10}{:>10}{:>10}{:>9}",
        "by step", "responses", "errors", "rate", "p50", "p90", "p99", "max", "received", "checks"
    );
    for s in &r.steps {
        let [p50, p90, p99, max] = times(&s.response);
        let rate = s.in_window as f64 / r.rated().seconds();
        let _ = writeln!(
            out,
            "{:>22}{:>9}{:>11}{p50:>10}{p90:>10}{p99:>10}{max:>10}{:>10}{:>9}   {}",
            grouped(s.responses),
            grouped(s.errors.total()),
            format!("{}/s", number(rate)),
            size(s.received as f64),
            checks(s),
            s.full_name()
        );
        for keep in s.keeps.iter().filter(|k| k.failed > 0) {
            let why = keep.sample.as_deref().map(|s| format!(": {s}")).unwrap_or_default();
            let _ = writeln!(out, "{:>22} without `{}`{why}", grouped(keep.failed), keep.name);
        }
    }
    out.push('\n');
}

/// The share of checks that passed.
pub(in crate::layout) fn checks(s: &StepStats) -> String {
    match s.checked() {
        (0, 0) => "-".to_owned(),
        (_, 0) => "all".to_owned(),
        (passed, failed) => format!("{:.2} %", passed as f64 * 100.0 / (passed + failed) as f64),
    }
}

/// p50, p90, p99 and the largest. A percentile without enough values is not shown.
pub(in crate::layout) fn times(h: &Histogram) -> [String; 4] {
    let shown = |quantile: f64| match h.is_empty() || !Percentiles::are_known(quantile, h.count()) {
        true => "-".to_owned(),
        false => time(h.quantile(quantile) as f64),
    };
    let max = if h.is_empty() { "-".to_owned() } else { time(h.max() as f64) };
    [shown(0.5), shown(0.9), shown(0.99), max]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::KeepStats;

    #[test]
    fn scenarios_and_steps_have_a_row_each() {
        let mut list = StepStats {
            scenario: "browse".to_owned(),
            name: "list".to_owned(),
            responses: 100,
            in_window: 100,
            received: 2048,
            keeps: vec![KeepStats {
                name: "id".to_owned(),
                failed: 2,
                taken: 98,
                sample: Some("no $.id".to_owned()),
            }],
            ..StepStats::default()
        };
        list.response.record_n(1_000_000, 100);
        let scenario = ScenarioStats {
            name: "browse".to_owned(),
            started: 102,
            done: 100,
            broken_off: [("list".to_owned(), 2)].into(),
            not_started: 3,
            ..ScenarioStats::default()
        };
        let mut r = Report { duration_ns: 1_000_000_000, ..Report::default() };
        (r.scenarios, r.steps) = (vec![scenario], vec![list]);
        let mut text = String::new();
        print(&r, &mut text);
        for line in [
            "                     102       100          2           0         -         -         -         -   browse   (3 not started)",
            "                       2 broken off at list",
            "                   100        0    100.0/s  1.000 ms  1.000 ms         -  1.000 ms  2.00 KiB        -   browse.list",
            "                     2 without `id`: no $.id",
        ] {
            assert!(text.lines().any(|l| l == line), "{line}\n{text}");
        }
    }
}
