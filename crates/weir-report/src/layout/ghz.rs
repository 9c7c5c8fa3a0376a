//! `ghz`: the summary of ghz.
//!
//! Derived from output of ghz 0.93.0 (the files `ghz*.txt` in tests/captured). Slowest, fastest, histogram and
//! percentiles cover good calls, the average covers all. ghz prints status codes in no order; here they are sorted by
//! name. A run over plain HTTP has statuses in place of gRPC codes.

use super::format::Format;
use crate::Histogram;
use crate::report::{Percentiles, Report};
use std::collections::BTreeMap;
use std::fmt::Write;

pub(super) static FORMAT: Format = Format {
    name: "ghz",
    about: "the summary of ghz",
    differs: "For HTTP, statuses for codes. Sorted codes; no response is DeadlineExceeded (timeouts) or Unavailable.",
    print,
};

fn print(report: &Report) -> String {
    Sheet::of(report).text()
}

/// The figures of ghz before formatting. Times in nanoseconds.
struct Sheet {
    name: String,
    count: u64,
    total_ns: u64,
    slowest_ns: u64,
    fastest_ns: u64,
    average_ns: u64,
    /// Mark in nanoseconds, count.
    histogram: Vec<(f64, u64)>,
    percentiles: Vec<(u64, u64)>,
    statuses: BTreeMap<String, u64>,
    errors: BTreeMap<String, u64>,
}

impl Sheet {
    fn of(report: &Report) -> Self {
        let good = report.latency.service.without(&report.latency.service_unexpected);
        let count = good.count();
        // If the share falls on a whole position, ghz uses the one before.
        let place = |p: u64| (count * p).div_ceil(100).max(1);
        let percentiles = [10, 25, 50, 75, 90, 95, 99].into_iter();
        let percentiles = percentiles.filter(|p| Percentiles::are_known(*p as f64 / 100.0, count));
        let percentiles: Vec<_> = percentiles.map(|p| (p, good.at_rank(place(p)))).collect();
        let (statuses, errors) = if report.is_grpc() {
            calls(report)
        } else {
            let statuses = report.counts.statuses.iter().map(|(status, n)| (status.to_string(), *n));
            (statuses.collect(), report.counts.error_texts.clone())
        };
        Self {
            name: report.plan.name.clone(),
            count: report.finished(),
            total_ns: report.duration_ns,
            slowest_ns: good.max(),
            fastest_ns: good.min(),
            average_ns: report.latency.service.mean() as u64,
            histogram: marks(&good),
            percentiles: if count == 0 { Vec::new() } else { percentiles },
            statuses,
            errors,
        }
    }

    fn text(&self) -> String {
        let mut out = "\nSummary:\n".to_owned();
        if !self.name.is_empty() {
            let _ = writeln!(out, "  Name:\t\t{}", self.name);
        }
        let rate = self.count as f64 / (self.total_ns.max(1) as f64 / 1e9);
        let _ = write!(
            out,
            "  Count:\t{}\n  Total:\t{}\n  Slowest:\t{}\n  Fastest:\t{}\n  Average:\t{}\n  Requests/sec:\t{rate:4.2}\n",
            self.count,
            time(self.total_ns),
            time(self.slowest_ns),
            time(self.fastest_ns),
            time(self.average_ns),
        );
        out += "\nResponse time histogram:\n";
        let most = self.histogram.iter().map(|(_, count)| *count).max().unwrap_or(0);
        for (mark, count) in &self.histogram {
            let bar = (count * 40 + most / 2).checked_div(most).unwrap_or(0);
            let _ = writeln!(out, "  {:4.3} [{count}]\t|{}", mark / 1e6, "∎".repeat(bar as usize));
        }
        out += "\nLatency distribution:";
        for (percent, ns) in &self.percentiles {
            let _ = write!(out, "\n  {percent} % in {} ", time(*ns));
        }
        out += "\n\n";
        if !self.statuses.is_empty() {
            out += "Status code distribution:\n";
            let width = self.statuses.keys().map(|name| name.chars().count()).max().unwrap_or(0) + 2 + 3;
            let cells = self.statuses.iter().map(|(name, n)| (format!("[{name}]"), format!("{n} responses")));
            out += &table(cells.collect(), width);
        }
        out += "\n";
        if !self.errors.is_empty() {
            out += "Error distribution:\n";
            let width = self.errors.values().map(|n| n.to_string().len()).max().unwrap_or(0) + 2 + 3;
            let cells = self.errors.iter().map(|(text, n)| (format!("[{n}]"), text.clone()));
            out += &table(cells.collect(), width);
        }
        out + "\n"
    }
}

/// Codes and error texts. ghz also has a code for calls without a response: its client's.
fn calls(report: &Report) -> (BTreeMap<String, u64>, BTreeMap<String, u64>) {
    let (mut codes, e) = (report.counts.grpc.clone(), &report.counts.errors);
    for (code, n) in [("DeadlineExceeded", e.timeout), ("Unavailable", e.total() - e.timeout)] {
        if n > 0 {
            *codes.entry(code.to_owned()).or_default() += n;
        }
    }
    let told = |text: &String| match text.as_str() {
        "…" => text.clone(),
        text if text.starts_with("timeout") => {
            "rpc error: code = DeadlineExceeded desc = context deadline exceeded".to_owned()
        }
        other if other.starts_with("rpc error: ") => text.clone(),
        other => format!("rpc error: code = Unavailable desc = {other}"),
    };
    let mut texts = BTreeMap::new();
    report.counts.error_texts.iter().for_each(|(text, n)| *texts.entry(told(text)).or_default() += n);
    (codes, texts)
}

/// Two columns, each padded to three blanks more than its widest cell.
fn table(cells: Vec<(String, String)>, first: usize) -> String {
    let second = cells.iter().map(|(_, b)| b.chars().count()).max().unwrap_or(0) + 3;
    cells.iter().map(|(a, b)| format!("  {a:<first$}{b:<second$}\n")).collect()
}

fn time(ns: u64) -> String {
    match ns {
        0..10_000 => format!("{ns} ns"),
        10_000..1_000_000_000 => format!("{:4.2} ms", ns as f64 / 1e6),
        _ => format!("{:4.2} s", ns as f64 / 1e9),
    }
}

/// Eleven equidistant marks from the smallest value to the largest, each with the number of values above the previous
/// mark and up to it. ghz, hey and oha call this a histogram. Empty without values.
pub(super) fn marks(h: &Histogram) -> Vec<(f64, u64)> {
    const STEPS: u64 = 10;
    if h.is_empty() {
        return Vec::new();
    }
    let (min, max) = (h.min() as f64, h.max() as f64);
    let step = (max - min) / STEPS as f64;
    let mark = |i: u64| if i == STEPS { max } else { min + step * i as f64 };
    let mut marks: Vec<(f64, u64)> = (0..=STEPS).map(|i| (mark(i), 0)).collect();
    // The smallest value is known exactly: only it is at the first mark, whatever else is in its bucket.
    let mut exact = 1;
    for (from, to, count) in h.ranges() {
        let value = u64::midpoint(from, to).clamp(h.min(), h.max()) as f64;
        let at = marks.iter().position(|(mark, _)| value <= *mark).unwrap_or(marks.len() - 1);
        marks[0].1 += exact;
        marks[at].1 += count - exact;
        exact = 0;
    }
    marks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_figures_of_captured_runs_print_as_captured() {
        let ms = |ms: f64| (ms * 1e6) as u64;
        let percentiles = |at: [f64; 7]| [10, 25, 50, 75, 90, 95, 99].into_iter().zip(at.map(ms)).collect();
        let histogram = |(from, to): (f64, f64), counts: [u64; 11]| {
            counts
                .into_iter()
                .enumerate()
                .map(|(i, n)| (1e6 * (from + (to - from) * i as f64 / 10.0), n))
                .collect()
        };
        let tiny = Sheet {
            name: "tiny".to_owned(),
            count: 20,
            total_ns: (20e9 / 416.54) as u64,
            slowest_ns: ms(20.0),
            fastest_ns: ms(1.86),
            average_ns: ms(10.49),
            histogram: histogram((1.8628, 19.9972), [1, 2, 1, 3, 4, 1, 0, 2, 2, 1, 3]),
            percentiles: percentiles([2.37, 5.7, 8.53, 15.16, 19.25, 19.68, 20.0]),
            statuses: [("OK".to_owned(), 20)].into(),
            errors: BTreeMap::new(),
        };
        assert_eq!(tiny.text(), include_str!("../../tests/captured/ghz.txt"));
        let errors = Sheet {
            name: String::new(),
            count: 2000,
            total_ns: (2000e9 / 1796.73) as u64,
            slowest_ns: ms(25.65),
            fastest_ns: ms(0.81),
            average_ns: ms(10.95),
            histogram: histogram((0.8062, 25.654), [1, 204, 230, 263, 241, 247, 246, 250, 240, 36, 3]),
            percentiles: percentiles([3.21, 6.39, 11.13, 16.12, 19.03, 19.93, 21.10]),
            statuses: [("OK".to_owned(), 1961), ("Unavailable".to_owned(), 39)].into(),
            errors: [("rpc error: code = Unavailable desc = try later".to_owned(), 39)].into(),
        };
        let captured = include_str!("../../tests/captured/ghz-errors.txt");
        let sorted = |text: &str| {
            let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
            let at = lines.iter().position(|line| line.starts_with("Status code")).unwrap();
            lines[at + 1..at + 3].sort();
            lines
        };
        assert_eq!(sorted(&errors.text()), sorted(captured), "but for the order of the codes");
    }

    #[test]
    fn calls_without_a_response_have_a_code_too() {
        let mut report = Report::default();
        report.counts.responses = 5;
        report.counts.grpc = [("OK".to_owned(), 4), ("Unavailable".to_owned(), 1)].into();
        (report.counts.errors.timeout, report.counts.errors.reset) = (2, 1);
        report.counts.error_texts = [("timeout".to_owned(), 2), ("gone".to_owned(), 1)].into();
        let text = Sheet::of(&report).text();
        for line in [
            "  [DeadlineExceeded]   2 responses",
            "  [OK]                 4 responses",
            "  [Unavailable]        2 responses",
            "  [1]   rpc error: code = Unavailable desc = gone",
            "  [2]   rpc error: code = DeadlineExceeded desc = context deadline exceeded",
        ] {
            assert!(text.lines().any(|l| l.trim_end() == line), "{line}\n{text}");
        }
    }

    #[test]
    fn times_are_told_in_the_unit_that_suits_them() {
        assert_eq!(
            [0, 9999, 10_000, 999_994_999, 1_000_000_000, 75_500_000_000].map(time),
            ["0 ns", "9999 ns", "0.01 ms", "999.99 ms", "1.00 s", "75.50 s"]
        );
    }

    #[test]
    fn a_report_fills_the_sheet() {
        let mut report = Report { duration_ns: 2_000_000_000, ..Report::default() };
        (1..=10).for_each(|ms| report.latency.service.record(ms * 1_000_000));
        report.latency.service_unexpected.record(10_000_000);
        report.counts.responses = 10;
        report.counts.errors.reset = 2;
        report.counts.statuses = [(200, 9), (500, 1)].into();
        report.counts.error_texts = [("connection reset".to_owned(), 2)].into();
        let sheet = Sheet::of(&report);
        assert_eq!((sheet.count, sheet.average_ns, sheet.fastest_ns), (12, 5_500_000, 1_000_000));
        assert!((8_990_000..=9_010_000).contains(&sheet.slowest_ns), "{}", sheet.slowest_ns);
        assert_eq!(sheet.histogram.iter().map(|(_, n)| n).sum::<u64>(), 9);
        assert_eq!(sheet.histogram[0], (1_000_000.0, 1));
        let text = sheet.text();
        assert!(text.contains("  [200]   9 responses   \n  [500]   1 responses   \n"), "{text}");
        assert!(text.ends_with("\nError distribution:\n  [2]   connection reset   \n\n"), "{text}");
        assert!(Sheet::of(&Report::default()).text().contains("Latency distribution:\n\n\n"));
    }
}
