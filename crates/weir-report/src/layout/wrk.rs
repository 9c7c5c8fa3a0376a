//! `wrk`: the text of wrk 4 with `--latency`. Its fork wrk2 uses the same units and table (see `wrk2`).
//!
//! Derived from output of wrk 4.1.0 (the files `wrk*.txt` in tests/captured). Its rules: times use units from µs to
//! h, switching to the next at 85 % of it; counts are decimal, bytes binary; numbers are padded to align their units.
//!
//! One figure deliberately differs: after the run, wrk adds invented samples to `Latency`, to make up for requests
//! that it sent late. Ours are the measured service times. `timeout` counts requests that timed out; wrk counts only
//! those whose response arrived later.

use super::format::Format;
use crate::Histogram;
use crate::report::{Percentiles, Report};
use std::fmt::Write;

pub(super) static FORMAT: Format = Format {
    name: "wrk",
    about: "the text of wrk --latency",
    differs: "No invented samples. A late response is only a timeout, where wrk counts it twice.",
    print,
};

fn print(report: &Report) -> String {
    Sheet::of(report).text()
}

/// The figures of wrk, in its units, before formatting.
pub(super) struct Sheet {
    pub(super) url: String,
    pub(super) planned_s: f64,
    pub(super) threads: u64,
    pub(super) connections: u64,
    /// In microseconds.
    pub(super) latency: Stats,
    /// Requests per second and thread.
    pub(super) rate: Stats,
    /// Percentiles of the latency in microseconds.
    pub(super) percentiles: Vec<(f64, f64)>,
    pub(super) responses: u64,
    pub(super) run_us: f64,
    pub(super) bytes: u64,
    /// Connect, read, write, timeout.
    pub(super) errors: [u64; 4],
    pub(super) bad_status: u64,
}

/// One line of the table.
#[derive(Clone, Copy)]
pub(super) struct Stats {
    pub(super) mean: f64,
    pub(super) stdev: f64,
    pub(super) max: f64,
    /// Percentage of the values within one deviation of the mean.
    pub(super) within: f64,
}

impl Stats {
    /// From a histogram, its values divided by `unit`.
    pub(super) fn of(h: &Histogram, unit: f64) -> Self {
        let stdev = h.stdev();
        Self {
            mean: h.mean() / unit,
            stdev: stdev / unit,
            max: h.max() as f64 / unit,
            within: 100.0 * h.share_within(stdev),
        }
    }
}

impl Sheet {
    pub(super) fn of(report: &Report) -> Self {
        let mut rates = Histogram::new();
        report.threads.iter().for_each(|thread| rates.add(&thread.rates));
        let errors = &report.counts.errors;
        let latency = &report.latency.service;
        let rated = report.rated();
        Self {
            url: report.plan.targets.first().map(|t| t.url.clone()).unwrap_or_default(),
            planned_s: report.plan.stop.duration_ns.unwrap_or(report.duration_ns) as f64 / 1e9,
            threads: report.plan.threads,
            connections: report.plan.connections,
            latency: Stats::of(latency, 1e3),
            rate: Stats::of(&rates, 1.0),
            percentiles: [50.0, 75.0, 90.0, 99.0]
                .into_iter()
                .filter(|p| Percentiles::are_known(p / 100.0, latency.count()))
                .map(|p| (p, latency.quantile(p / 100.0) as f64 / 1e3))
                .collect(),
            responses: rated.responses,
            run_us: rated.length_ns as f64 / 1e3,
            bytes: rated.received,
            errors: [
                errors.connect + errors.tls,
                errors.reset + errors.protocol,
                errors.write,
                errors.timeout,
            ],
            bad_status: report.with_status(400..=u16::MAX),
        }
    }

    fn text(&self) -> String {
        let mut out = self.head();
        out += &self.table();
        out += "  Latency Distribution\n";
        for (percent, us) in &self.percentiles {
            let _ = writeln!(out, "{percent:7.0}%{}", padded(&time_us(*us), 10));
        }
        out + &self.foot()
    }

    /// The first two lines of the output.
    pub(super) fn head(&self) -> String {
        format!(
            "Running {} test @ {}\n  {} threads and {} connections\n",
            time_s(self.planned_s),
            self.url,
            self.threads,
            self.connections
        )
    }

    /// The table of latencies and rates.
    pub(super) fn table(&self) -> String {
        let line = |name: &str, stats: Stats, format: fn(f64) -> String| {
            format!(
                "    {name:<10}{}{}{}{:8.2}%\n",
                padded(&format(stats.mean), 8),
                padded(&format(stats.stdev), 10),
                padded(&format(stats.max), 9),
                stats.within
            )
        };
        format!("  Thread Stats{:>6}{:>11}{:>8}{:>12}\n", "Avg", "Stdev", "Max", "+/- Stdev")
            + &line("Latency", self.latency, time_us)
            + &line("Req/Sec", self.rate, metric)
    }

    /// Everything below the percentiles.
    pub(super) fn foot(&self) -> String {
        let mut out = format!(
            "  {} requests in {}, {}B read\n",
            self.responses,
            time_us(self.run_us),
            binary(self.bytes as f64)
        );
        let [connect, read, write, timeout] = self.errors;
        if connect + read + write + timeout > 0 {
            let _ = writeln!(
                out,
                "  Socket errors: connect {connect}, read {read}, write {write}, timeout {timeout}"
            );
        }
        if self.bad_status > 0 {
            let _ = writeln!(out, "  Non-2xx or 3xx responses: {}", self.bad_status);
        }
        let seconds = self.run_us.max(1.0) / 1e6;
        let _ = writeln!(out, "Requests/sec: {:9.2}", self.responses as f64 / seconds);
        let _ = writeln!(out, "Transfer/sec: {:>10}B", binary(self.bytes as f64 / seconds));
        out
    }
}

// === units ===

const MINUTES: (f64, &[&str]) = (60.0, &["s", "m", "h"]);

/// Uses the first unit until 85 % of the next. The last unit is never used, as in wrk.
fn in_units(mut n: f64, (scale, units): (f64, &[&str]), digits: usize) -> String {
    let mut unit = 0;
    while unit + 2 < units.len() && n >= scale * 0.85 {
        n /= scale;
        unit += 1;
    }
    format!("{n:.digits$}{}", units.get(unit).unwrap_or(&""))
}

/// Microseconds as `us`, `ms`, `s` or `m`.
pub(super) fn time_us(us: f64) -> String {
    if us >= 1e6 { in_units(us / 1e6, MINUTES, 2) } else { in_units(us, (1000.0, &["us", "ms", "s"]), 2) }
}

fn time_s(seconds: f64) -> String {
    in_units(seconds, MINUTES, 0)
}

fn metric(n: f64) -> String {
    in_units(n, (1000.0, &["", "k", "M", "G", "T", "P"]), 2)
}

fn binary(n: f64) -> String {
    in_units(n, (1024.0, &["", "K", "M", "G", "T", "P"]), 2)
}

/// Right-aligns numbers so that their digits end in the same column, with a unit of one or two letters or without
/// one.
pub(super) fn padded(text: &str, width: usize) -> String {
    let letter = |from_end: usize| text.bytes().rev().nth(from_end).is_some_and(|b| b.is_ascii_alphabetic());
    let pad = 2 - usize::from(letter(0)) - usize::from(letter(1));
    let width = width - pad;
    format!("{text:>width$.width$}{:pad$}", "")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{PlanAsRun, Stop, TargetPlan, ThreadStats};

    /// The figures of a captured run, copied from its text and its raw counts.
    fn captured() -> Sheet {
        Sheet {
            url: "http://127.0.0.1:18980/".to_owned(),
            planned_s: 2.0,
            threads: 2,
            connections: 10,
            latency: Stats { mean: 241.41, stdev: 580.47, max: 8100.0, within: 92.68 },
            rate: Stats { mean: 49_410.0, stdev: 18_460.0, max: 129_460.0, within: 78.05 },
            percentiles: vec![(50.0, 71.0), (75.0, 152.0), (90.0, 424.0), (99.0, 3220.0)],
            responses: 201_531,
            run_us: 2_100_166.0,
            bytes: 201_531 * 161,
            errors: [0; 4],
            bad_status: 0,
        }
    }

    #[test]
    fn the_figures_of_a_captured_run_print_as_captured() {
        assert_eq!(captured().text(), include_str!("../../tests/captured/wrk.txt"));
        let missing = Sheet {
            url: "http://127.0.0.1:18980/missing".to_owned(),
            planned_s: 1.0,
            latency: Stats { mean: 159.36, stdev: 331.08, max: 5160.0, within: 97.15 },
            rate: Stats { mean: 42_120.0, stdev: 8780.0, max: 56_260.0, within: 59.09 },
            percentiles: vec![(50.0, 129.0), (75.0, 152.0), (90.0, 190.0), (99.0, 1960.0)],
            responses: 92_057,
            run_us: 1_099_888.0,
            bytes: 92_057 * 157,
            bad_status: 92_057,
            ..captured()
        };
        assert_eq!(missing.text(), include_str!("../../tests/captured/wrk-404.txt"));
        let slow = Sheet {
            url: "http://127.0.0.1:18982/".to_owned(),
            threads: 1,
            connections: 2,
            latency: Stats { mean: 45_560.0, stdev: 11_050.0, max: 95_990.0, within: 94.32 },
            rate: Stats { mean: 43.4, stdev: 9.16, max: 60.0, within: 70.0 },
            percentiles: vec![(50.0, 43_990.0), (75.0, 44_090.0), (90.0, 48_050.0), (99.0, 95_990.0)],
            responses: 87,
            run_us: 2_005_533.0,
            bytes: 11_037,
            ..captured()
        };
        assert_eq!(slow.text(), include_str!("../../tests/captured/wrk-tail.txt"));
    }

    #[test]
    fn errors_have_a_line_of_their_own() {
        let text = Sheet { errors: [1, 20, 0, 3], ..captured() }.text();
        assert!(text.contains("  Socket errors: connect 1, read 20, write 0, timeout 3\n"), "{text}");
    }

    #[test]
    fn units_climb_at_85_percent() {
        let times = [0.0, 849.0, 850.0, 849_999.0, 850_000.0, 1e6, 50.9e6, 51e6, 3600e6].map(time_us);
        assert_eq!(
            times,
            ["0.00us", "849.00us", "0.85ms", "850.00ms", "850.00ms", "1.00s", "50.90s", "0.85m", "60.00m"]
        );
        assert_eq!([30.0, 60.0, 600.0].map(time_s), ["30s", "1m", "10m"]);
        assert_eq!([0.0, 870.0, 871.0, 1048576.0].map(binary), ["0.00", "870.00", "0.85K", "1.00M"]);
        assert_eq!(["1.00us", "1.00s", "1.00"].map(|t| padded(t, 8)), ["  1.00us", "  1.00s ", "  1.00  "]);
    }

    #[test]
    fn a_report_fills_the_sheet() {
        let mut report = Report {
            duration_ns: 2_000_000_000,
            plan: PlanAsRun {
                targets: vec![TargetPlan { url: "http://a/".to_owned(), ..TargetPlan::default() }],
                stop: Stop { requests: Some(10), duration_ns: None },
                connections: 4,
                threads: 2,
                ..PlanAsRun::default()
            },
            threads: vec![ThreadStats::default(), ThreadStats::default()],
            ..Report::default()
        };
        report.threads[0].rates.record(20);
        report.threads[1].rates.record(40);
        report.counts.responses = 10;
        report.counts.statuses = [(200, 7), (302, 1), (404, 2)].into();
        (report.counts.errors.tls, report.counts.errors.protocol) = (1, 2);
        (1..=10).for_each(|us| report.latency.service.record(us * 1000));
        report.bytes.received_head = 2048;
        let sheet = Sheet::of(&report);
        assert_eq!((sheet.rate.mean, sheet.rate.max, sheet.bad_status), (30.0, 40.0, 2));
        assert_eq!((sheet.errors, sheet.latency.mean, sheet.latency.max), ([1, 2, 0, 0], 5.5, 10.0));
        let text = sheet.text();
        assert!(text.starts_with("Running 2s test @ http://a/\n  2 threads and 4 connections\n"), "{text}");
        assert!(text.ends_with("Requests/sec:      5.00\nTransfer/sec:      1.00KB\n"), "{text}");
    }
}
