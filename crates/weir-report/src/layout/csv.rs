//! `csv`: the run over time, one line per tick of the report. A tick is a second unless the run exceeded an hour.
//!
//! The columns are our own: the CSV of k6 and of oha has one line per sample or request, which a run in constant
//! memory does not keep. Times are milliseconds and rates are per second. New columns are only added at the end.

use super::format::Format;
use crate::report::{Percentiles, Report, Tick};
use std::fmt::Write;

pub(super) static FORMAT: Format = Format {
    name: "csv",
    about: "a line per second of the run (longer beyond an hour): rates, latencies, bytes",
    differs: "",
    print,
};

fn print(report: &Report) -> String {
    let mut out = "unix_ms,end_s,length_s,requests,responses,unexpected,errors,responses_per_s,sent_bytes,\
                   received_bytes,users,backlog,generator_cores"
        .to_owned();
    for latency in ["service", "response"] {
        for figure in ["min", "mean", "p50", "p75", "p90", "p95", "p99", "p99.9", "max"] {
            let _ = write!(out, ",{latency}_{figure}_ms");
        }
    }
    out += ",planned,late,iterations";
    out.push('\n');
    report.series.ticks.iter().for_each(|tick| line(&mut out, report.started_unix_ms, tick));
    out
}

fn line(out: &mut String, started_unix_ms: u64, tick: &Tick) {
    let seconds = tick.length_ns.max(1) as f64 / 1e9;
    let _ = write!(
        out,
        "{},{:.3},{seconds:.3},{},{},{},{},{:.2},{},{},{},{},{:.3}",
        started_unix_ms + tick.end_ns / 1_000_000,
        tick.end_ns as f64 / 1e9,
        tick.requests,
        tick.responses,
        tick.unexpected,
        tick.errors,
        tick.responses as f64 / seconds,
        tick.sent,
        tick.received,
        tick.users,
        tick.backlog,
        tick.generator_cpu_ns as f64 / 1e9 / seconds,
    );
    for Percentiles { min, mean, p50, p75, p90, p95, p99, p999, max } in [tick.service, tick.response] {
        let whole = [min, p50, p75, p90, p95, p99, p999, max].map(|ns| ns as f64 / 1e6);
        let _ = write!(out, ",{:.4},{:.4}", whole[0], mean / 1e6);
        whole[1..].iter().for_each(|ms| {
            let _ = write!(out, ",{ms:.4}");
        });
    }
    let _ = write!(out, ",{},{},{}", tick.planned, tick.late, tick.started);
    out.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tick_is_a_line_under_its_names() {
        let mut report = Report { started_unix_ms: 1_700_000_000_000, ..Report::default() };
        let service = Percentiles { min: 1_000_000, mean: 1.5e6, p999: 9_000_000, ..Percentiles::default() };
        report.series.ticks = vec![Tick {
            end_ns: 1_500_000_000,
            length_ns: 500_000_000,
            requests: 11,
            responses: 10,
            planned: 12,
            started: 11,
            late: 3,
            sent: 440,
            generator_cpu_ns: 250_000_000,
            service,
            ..Tick::default()
        }];
        let text = print(&report);
        let (head, rest) = text.split_once('\n').unwrap();
        let cells: Vec<(&str, &str)> = head.split(',').zip(rest.trim_end().split(',')).collect();
        assert_eq!(cells.len(), 34);
        for cell in [
            ("unix_ms", "1700000001500"),
            ("end_s", "1.500"),
            ("responses_per_s", "20.00"),
            ("sent_bytes", "440"),
            ("generator_cores", "0.500"),
            ("service_min_ms", "1.0000"),
            ("service_mean_ms", "1.5000"),
            ("service_p99.9_ms", "9.0000"),
            ("response_max_ms", "0.0000"),
            ("planned", "12"),
            ("iterations", "11"),
            ("late", "3"),
        ] {
            assert!(cells.contains(&cell), "{cell:?} in {cells:?}");
        }
        assert_eq!(print(&Report::default()).lines().count(), 1);
    }
}
