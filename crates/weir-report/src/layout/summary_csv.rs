//! `csv-summary`: the figures of a run for a spreadsheet, a line per target, step and part, with a header. Times are
//! milliseconds and rates are per second. New columns are only added at the end.

use super::cases::clean;
use super::format::Format;
use crate::Histogram;
use crate::report::{Percentiles, Report};
use std::fmt::Write as _;

pub(super) static FORMAT: Format = Format {
    name: "csv-summary",
    about: "a line per target, step or part: counts, rate, latencies; for spreadsheets",
    differs: "",
    print,
};

const HEAD: &str = "name,started_unix_ms,duration_s,verdict,requests,responses,errors,unexpected,responses_per_s,\
                    mean_ms,p50_ms,p75_ms,p90_ms,p95_ms,p99_ms,p99.9_ms,max_ms";

/// One line of the table.
struct Row<'a> {
    name: String,
    /// Requests, responses, errors, unexpected responses, responses in the window.
    counts: [u64; 5],
    times: &'a Histogram,
}

fn print(r: &Report) -> String {
    let mut out = format!("{HEAD}\n");
    for (row, seconds) in rows(r) {
        let [requests, responses, errors, unexpected, in_window] = row.counts;
        let _ = write!(
            out, // a String takes everything
            "{},{},{:.3},{},{requests},{responses},{errors},{unexpected},{:.2}",
            cell(&row.name),
            r.started_unix_ms,
            seconds.unwrap_or_else(|| r.seconds()),
            r.verdict.grade,
            in_window as f64 / seconds.unwrap_or_else(|| r.rated().seconds()),
        );
        let p = Percentiles::of(row.times);
        let known =
            [(0.5, p.p50), (0.75, p.p75), (0.9, p.p90), (0.95, p.p95), (0.99, p.p99), (0.999, p.p999)];
        let ms = |ns: f64| if row.times.is_empty() { String::new() } else { format!("{:.4}", ns / 1e6) };
        let _ = write!(out, ",{}", ms(p.mean));
        for (quantile, ns) in known {
            // Without enough responses, a percentile is left empty.
            let is_known = Percentiles::are_known(quantile, row.times.count());
            let _ = write!(out, ",{}", if is_known { ms(ns as f64) } else { String::new() });
        }
        let _ = writeln!(out, ",{}", ms(p.max as f64));
    }
    out
}

/// The whole run; with several targets each of them too, by its service time; with scenarios each step; with a load in
/// parts each part, with its length in seconds.
fn rows(r: &Report) -> Vec<(Row<'_>, Option<f64>)> {
    let c = &r.counts;
    let unexpected = c.responses.saturating_sub(r.expected());
    let whole = Row {
        name: super::cases::title(r),
        counts: [c.requests, c.responses, c.errors.total(), unexpected, r.rated().responses],
        times: &r.latency.response,
    };
    let several = r.targets.iter().zip(&r.plan.targets).filter(|_| r.targets.len() > 1);
    let each = several.map(|(t, plan)| Row {
        name: format!("{} {}", plan.method, plan.url),
        counts: [t.requests, t.responses, t.errors, t.unexpected, t.in_window],
        times: &t.service,
    });
    let steps = r.steps.iter().map(|step| Row {
        name: step.full_name(),
        counts: [step.requests, step.responses, step.errors.total(), step.unexpected, step.in_window],
        times: &step.response,
    });
    let parts = r.parts.iter().map(|part| Row {
        name: part.name.clone(),
        counts: [
            part.counts.requests,
            part.counts.responses,
            part.counts.errors.total(),
            part.unexpected(),
            part.counts.responses,
        ],
        times: &part.response,
    });
    let seconds_of_part = |i: usize| {
        let planned = r.planned_part(i)[0];
        planned.map(|p| p.end_ns.saturating_sub(p.begin_ns) as f64 / 1e9)
    };
    let parts = parts.enumerate().map(|(i, row)| (row, seconds_of_part(i)));
    let whole = std::iter::once(whole).chain(each).chain(steps).map(|row| (row, None));
    whole.chain(parts).collect()
}

/// A cell, quoted where CSV needs it (RFC 4180). A spreadsheet takes a text that begins with one of `=+-@` for a
/// formula, so such a text gets an apostrophe.
fn cell(text: &str) -> String {
    let mut text = clean(text);
    if text.starts_with(['=', '+', '-', '@']) {
        text.insert(0, '\'');
    }
    if text.contains([',', '"']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text }
}

#[cfg(test)]
mod tests {
    use super::super::cases::testing;
    use super::*;
    use crate::report::{Pace, PartPlan, PartStats, StageUnit, TargetPlan, TargetStats};

    #[test]
    fn a_line_per_target_under_the_header() {
        let mut r = testing::report();
        let text = print(&r);
        assert_eq!(text.lines().count(), 2, "{text}");
        assert!(text.lines().nth(1).unwrap().starts_with("\"a<b>]]>&\"\"'|"), "{text}");
        r.plan.name = "=1+1".to_owned();
        r.plan.targets.push(TargetPlan {
            method: "GET".to_owned(),
            url: "http://b/".to_owned(),
            ..TargetPlan::default()
        });
        r.targets = vec![TargetStats::default(), TargetStats { responses: 7, ..TargetStats::default() }];
        let text = print(&r);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[1].starts_with("'=1+1,1795284234000,12.346,INVALID,1000,1000,0,"), "{text}");
        assert!(
            lines[1].ends_with("212.0000,212.0000,212.0000,212.0000,212.0000,212.0000,,212.0000"),
            "{text}"
        );
        assert_eq!(lines[3], "GET http://b/,1795284234000,12.346,INVALID,0,7,0,0,0.00,,,,,,,,");
        assert_eq!(lines[0].split(',').count(), lines[3].split(',').count());
        r.plan.pace = Pace::Shape {
            of: StageUnit::Rate,
            parts: vec![PartPlan { end_ns: 2_000_000_000, ..PartPlan::default() }],
            spacing: "even".to_owned(),
            seed: 1,
        };
        r.parts = vec![PartStats { name: "spike".to_owned(), ..PartStats::default() }];
        r.parts[0].counts.responses = 50;
        let text = print(&r);
        let last = text.lines().last().unwrap();
        assert_eq!(last, "spike,1795284234000,2.000,INVALID,0,50,0,50,25.00,,,,,,,,", "its own length");
    }
}
