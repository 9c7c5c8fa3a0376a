//! The layout of k6's summary: sections of metrics with dotted names, and its number formats.

use std::fmt::Write;

/// The content of a summary.
pub(super) struct Sheet {
    pub(super) thresholds: Vec<Threshold>,
    pub(super) checks: Vec<Check>,
    /// The divisor for the rate of checks.
    pub(super) seconds: f64,
    /// The names of a trend's columns.
    pub(super) stats: Vec<&'static str>,
    pub(super) sections: Vec<Section>,
    /// The lines after the summary.
    pub(super) trailer: String,
}

pub(super) struct Threshold {
    pub(super) metric: String,
    pub(super) source: String,
    pub(super) agg: String,
    pub(super) value: String,
    pub(super) ok: bool,
}

pub(super) struct Check {
    pub(super) name: String,
    pub(super) passes: u64,
    pub(super) fails: u64,
}

pub(super) struct Section {
    pub(super) title: &'static str,
    /// Sorted by name; a submetric is `metric{tag:value}`.
    pub(super) metrics: Vec<(&'static str, Metric)>,
}

/// One metric's figures, in k6's units: trends in milliseconds.
pub(super) enum Metric {
    Counter { count: u64, rate: f64 },
    Data { count: u64, rate: f64 },
    Gauge { value: u64, min: u64, max: u64 },
    Rate { passes: u64, total: u64 },
    Trend(Vec<f64>),
}

impl Sheet {
    pub(super) fn text(&self) -> String {
        let mut out = String::new();
        if !self.thresholds.is_empty() {
            out += "\n\n  █ THRESHOLDS \n";
            out += &self.threshold_lines();
            out += "\n";
        }
        // An empty line precedes the first section.
        out += if self.thresholds.is_empty() { "\n\n" } else { "\n" };
        out += "  █ TOTAL RESULTS \n\n";
        if !self.checks.is_empty() {
            out += &self.check_lines();
        }
        let all: Vec<&(&str, Metric)> = self.sections.iter().flat_map(|s| &s.metrics).collect();
        let widths = Widths::of(&all);
        for section in &self.sections {
            let _ = writeln!(out, "    {}", section.title);
            for (name, metric) in &section.metrics {
                out += &widths.line(name, metric, &self.stats);
            }
            out += "\n";
        }
        out + "\n\n\n" + &self.trailer
    }

    fn threshold_lines(&self) -> String {
        let mut out = String::new();
        let mut metrics: Vec<&str> = self.thresholds.iter().map(|t| t.metric.as_str()).collect();
        metrics.sort_unstable();
        metrics.dedup();
        for metric in metrics {
            let _ = writeln!(out, "\n    {metric}");
            for t in self.thresholds.iter().filter(|t| t.metric == metric) {
                let mark = if t.ok { '✓' } else { '✗' };
                let _ = writeln!(out, "    {mark} '{}' {}={}", t.source, t.agg, t.value);
            }
        }
        out
    }

    fn check_lines(&self) -> String {
        let total = self.checks.iter().map(|c| c.passes + c.fails).sum();
        let passes = self.checks.iter().map(|c| c.passes).sum();
        let metrics = [
            ("checks_total", Metric::Counter { count: total, rate: total as f64 / self.seconds }),
            ("checks_succeeded", Metric::Rate { passes, total }),
            ("checks_failed", Metric::Rate { passes: total - passes, total }),
        ];
        let widths = Widths::of(&metrics.iter().collect::<Vec<_>>());
        let mut out: String = metrics.iter().map(|(name, m)| widths.line(name, m, &self.stats)).collect();
        out += "\n";
        for Check { name, passes, fails } in &self.checks {
            if *fails == 0 {
                let _ = writeln!(out, "    ✓ {name}");
            } else {
                let percent = 100 * passes / (passes + fails);
                let _ = writeln!(out, "    ✗ {name}\n      ↳  {percent}% — ✓ {passes} / ✗ {fails}");
            }
        }
        out + "\n"
    }
}

/// The column widths of a table.
struct Widths {
    name: usize,
    value: usize,
    extras: [usize; 2],
    columns: Vec<usize>,
}

impl Widths {
    fn of(metrics: &[&(&str, Metric)]) -> Self {
        let mut widths = Self { name: 0, value: 0, extras: [0; 2], columns: Vec::new() };
        for (name, metric) in metrics {
            widths.name = widths.name.max(width(&shown(name)));
            let cells = metric.cells();
            if let Metric::Trend(_) = metric {
                widths.columns.resize(cells.len(), 0);
                for (most, cell) in widths.columns.iter_mut().zip(&cells) {
                    *most = width(cell).max(*most);
                }
            } else if let Some((value, extras)) = cells.split_first() {
                widths.value = widths.value.max(width(value));
                for (most, cell) in widths.extras.iter_mut().zip(extras) {
                    *most = width(cell).max(*most);
                }
            }
        }
        widths
    }

    fn line(&self, name: &str, metric: &Metric, stats: &[&str]) -> String {
        let name = shown(name);
        let dots = ".".repeat(self.name - width(&name) + 3);
        let cells = metric.cells();
        let data = match (metric, cells.as_slice()) {
            (Metric::Trend(_), cells) => {
                let columns = cells.iter().zip(&self.columns).zip(stats);
                let columns: Vec<String> = columns.map(|((c, w), stat)| format!("{stat}={c:<w$}")).collect();
                columns.join(" ")
            }
            // A single extra is not padded; several are aligned.
            (_, [value, extra]) => format!("{value:<w$} {extra}", w = self.value),
            (_, [value, a, b]) => {
                let (w, [wa, wb]) = (self.value, self.extras);
                format!("{value:<w$} {a:<wa$} {b:<wb$}")
            }
            (_, cells) => cells.concat(),
        };
        format!("    {name}{dots}: {data}\n")
    }
}

impl Metric {
    /// The columns of a trend; for other metrics the value and its additions.
    fn cells(&self) -> Vec<String> {
        match self {
            Self::Counter { count, rate } => vec![count.to_string(), format!("{}/s", number(*rate))],
            Self::Data { count, rate } => vec![bytes(*count as f64), format!("{}/s", bytes(*rate))],
            Self::Gauge { value, min, max } => {
                vec![value.to_string(), format!("min={min}"), format!("max={max}")]
            }
            Self::Rate { passes, total } => {
                let share = if *total == 0 { 0.0 } else { *passes as f64 / *total as f64 };
                vec![percent(share), format!("{passes} out of {total}")]
            }
            Self::Trend(values) => values.iter().map(|ms| duration(*ms)).collect(),
        }
    }
}

/// A submetric is shown by its tag, below its metric.
fn shown(name: &str) -> String {
    match name.strip_suffix('}').and_then(|n| n.split_once('{')) {
        Some((_, tag)) => format!("  {{ {tag} }}"),
        None => name.to_owned(),
    }
}

fn width(text: &str) -> usize {
    text.chars().count()
}

// === numbers ===

/// A share in percent, truncated to two digits.
pub(super) fn percent(share: f64) -> String {
    format!("{:.2}%", (share * 100.0 * 100.0).trunc() / 100.0)
}

/// Up to six decimals, without trailing zeros.
pub(super) fn number(n: f64) -> String {
    let text = format!("{:.6}", tied_up(n, 6));
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// JavaScript rounds ties away from zero, Rust to even: moves a tie up slightly.
fn tied_up(n: f64, digits: i32) -> f64 {
    let scaled = n * 10f64.powi(digits);
    if scaled.fract() == 0.5 { (scaled + 0.25) / 10f64.powi(digits) } else { n }
}

/// Bytes in decimal units, with one decimal below 10.
fn bytes(n: f64) -> String {
    const UNITS: [&str; 9] = ["B", "kB", "MB", "GB", "TB", "PB", "EB", "ZB", "YB"];
    if n < 10.0 {
        return format!("{n} B");
    }
    let power = (n.ln() / 1000f64.ln()).floor();
    let value = (n / 1000f64.powf(power) * 10.0 + 0.5).floor() / 10.0;
    let digits = usize::from(value < 10.0);
    format!("{value:.digits$} {}", UNITS.get(power as usize).unwrap_or(&"YB"))
}

/// Milliseconds in a suitable unit, truncated to two decimals, without trailing zeros.
pub(super) fn duration(ms: f64) -> String {
    let cut = |n: f64| number((n * 100.0).trunc() / 100.0);
    if ms == 0.0 {
        return "0s".to_owned();
    }
    if ms < 0.001 {
        return format!("{}ns", (ms * 1e6).trunc());
    }
    if ms < 1.0 {
        return format!("{}µs", cut(ms * 1000.0));
    }
    if ms < 1000.0 {
        return format!("{}ms", cut(ms));
    }
    let seconds = ms % 60_000.0 / 1000.0;
    let minutes = (ms / 60_000.0) as u64;
    let seconds = if ms > 60_000.0 { number(seconds.trunc()) } else { cut(seconds) };
    match (minutes / 60, minutes % 60) {
        (0, 0) => format!("{seconds}s"),
        (0, m) => format!("{m}m{seconds}s"),
        (h, m) => format!("{h}h{m}m{seconds}s"),
    }
}

/// A duration to a tenth of a second, padded like the longest one.
pub(super) fn fixed_duration(ns: u64, longest_ns: u64) -> String {
    let tenth = |ns: u64| (ns + 50_000_000) / 100_000_000;
    let (t, longest) = (tenth(ns), tenth(longest_ns.max(ns)));
    let (seconds, minutes, hours) = (t / 10 % 60, t / 600 % 60, t / 36_000);
    let tenths = t % 10;
    match longest {
        0..100 => format!("{seconds}.{tenths}s"),
        100..600 => format!("{seconds:02}.{tenths}s"),
        600..36_000 => format!("{minutes:02}m{seconds:02}.{tenths}s"),
        _ => format!("{hours}h{minutes:02}m{seconds:02}.{tenths}s"),
    }
}

/// A duration in Go's format: `2s`, `1m30s`, `1h0m0s`, `500ms`.
pub(super) fn go_duration(ns: u64) -> String {
    let seconds = ns as f64 / 1e9;
    let (minutes, rest) = ((seconds / 60.0) as u64, seconds % 60.0);
    match (minutes / 60, minutes % 60) {
        (0, 0) if seconds < 1.0 => format!("{}ms", number(seconds * 1000.0)),
        (0, 0) => format!("{}s", number(rest)),
        (0, m) => format!("{m}m{}s", number(rest)),
        (h, m) => format!("{h}h{m}m{}s", number(rest)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_cut_and_not_rounded() {
        let cases = [
            (0.0, "0s"),
            (0.000_311_9, "311ns"),
            (0.002_083, "2.08µs"),
            (0.034_5, "34.5µs"),
            (0.001, "1µs"),
            (14.639_484, "14.63ms"),
            (999.999, "999.99ms"),
            (1500.0, "1.5s"),
            (59_999.0, "59.99s"),
            (61_500.0, "1m1s"),
            (3_661_000.0, "1h1m1s"),
        ];
        for (ms, want) in cases {
            assert_eq!(duration(ms), want);
        }
    }

    #[test]
    fn counts_bytes_and_shares() {
        assert_eq!(
            [0.0, 12_400.576_078_915_667, 500.0, 0.007_812_5].map(number),
            ["0", "12400.576079", "500", "0.007813"]
        );
        let sizes = [0.0, 9.0, 10.0, 999.0, 880_440.9, 1_761_936.0, 3_995_376.0, 99_950.0, 1e9].map(bytes);
        assert_eq!(sizes, ["0 B", "9 B", "10 B", "999 B", "880 kB", "1.8 MB", "4.0 MB", "100 kB", "1.0 GB"]);
        assert_eq!([0.948_924_08, 0.0, 1.0].map(percent), ["94.89%", "0.00%", "100.00%"]);
    }

    #[test]
    fn clocks_have_the_places_of_the_longest() {
        let s = 1_000_000_000;
        assert_eq!(fixed_duration(2 * s, 32 * s), "02.0s");
        assert_eq!(fixed_duration(2 * s, 8 * s), "2.0s");
        assert_eq!(fixed_duration(168_000_000, 630 * s), "00m00.2s");
        assert_eq!(fixed_duration(58 * s + s / 2, 3700 * s), "0h00m58.5s");
        assert_eq!(
            [s / 2, 2 * s, 90 * s, 600 * s, 3600 * s].map(go_duration),
            ["500ms", "2s", "1m30s", "10m0s", "1h0m0s"]
        );
    }
}
