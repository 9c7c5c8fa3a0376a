//! `wrk2`: the text of wrk2 with `--latency` and `--u_latency`: wrk's table, from response times, and the full
//! spectrum.
//!
//! wrk2 was not available for a captured run. The layout follows its source (src/wrk.c, src/hdr_histogram.c at
//! giltene/wrk2) and was checked against the output in its README (tests/captured/wrk2.txt, with that page's
//! indentation removed and the calibration lines in their current form).
//!
//! Recorded Latency is our time from the intended start, Uncorrected Latency that from the send. We sample every 100 ms
//! and print that with each thread's mean; wrk2 calibrates for ten seconds to choose its interval.

use super::format::Format;
use super::wrk::{Sheet, Stats, padded, time_us};
use crate::Histogram;
use crate::report::{Percentiles, Report};
use std::fmt::Write;

pub(super) static FORMAT: Format = Format {
    name: "wrk2",
    about: "the text of wrk2 --latency --u_latency, with the whole spectrum",
    differs: "Samples rates every 100 ms, does not calibrate.",
    print,
};

fn print(report: &Report) -> String {
    let calibration: Vec<f64> = report.threads.iter().map(|t| t.service.mean() / 1e6).collect();
    let corrected = Spectrum::of(&report.latency.response);
    let sheet = Sheet { latency: stats(&report.latency.response), ..Sheet::of(report) };
    let uncorrected = Spectrum::of(&report.latency.service);
    text(&sheet, &calibration, &corrected, Some(&uncorrected))
}

fn text(sheet: &Sheet, calibration: &[f64], corrected: &Spectrum, uncorrected: Option<&Spectrum>) -> String {
    let mut out = sheet.head();
    for mean_ms in calibration {
        let _ =
            writeln!(out, "  Thread calibration: mean lat.: {mean_ms:.3}ms, rate sampling interval: 100ms");
    }
    out += &sheet.table();
    out += &corrected.text("Recorded Latency");
    if let Some(uncorrected) = uncorrected {
        out += "\n";
        out += &uncorrected.text("Uncorrected Latency (measured without taking delayed starts into account)");
    }
    out + &sheet.foot()
}

/// wrk2 divides by the number of values, wrk by one less.
fn stats(h: &Histogram) -> Stats {
    Stats { stdev: of_population(h) / 1e3, ..Stats::of(h, 1e3) }
}

fn of_population(h: &Histogram) -> f64 {
    let n = h.count().max(1) as f64;
    h.stdev() * ((n - 1.0) / n).sqrt()
}

/// The figures of one distribution.
struct Spectrum {
    /// Percent and microseconds.
    percentiles: Vec<(f64, f64)>,
    /// Upper ends of the buckets in milliseconds, and their counts.
    buckets: Vec<(f64, u64)>,
    mean_ms: f64,
    stdev_ms: f64,
    max_ms: f64,
}

/// Lines for each halving of the distance to 100 %.
const TICKS: f64 = 5.0;

impl Spectrum {
    fn of(h: &Histogram) -> Self {
        let percentile = |p: f64| (p, h.quantile(p / 100.0) as f64 / 1e3);
        Self {
            percentiles: [50.0, 75.0, 90.0, 99.0, 99.9, 99.99, 99.999, 100.0]
                .into_iter()
                .filter(|p| *p >= 100.0 || Percentiles::are_known(p / 100.0, h.count()))
                .map(percentile)
                .collect(),
            buckets: h.ranges().map(|(_, to, count)| (to.min(h.max()) as f64 / 1e6, count)).collect(),
            mean_ms: h.mean() / 1e6,
            stdev_ms: of_population(h) / 1e6,
            max_ms: h.max() as f64 / 1e6,
        }
    }

    fn text(&self, title: &str) -> String {
        let mut out = format!("  Latency Distribution (HdrHistogram - {title})\n");
        for (percent, us) in &self.percentiles {
            let _ = writeln!(out, "{percent:7.3}%{}", padded(&time_us(*us), 10));
        }
        let _ = writeln!(
            out,
            "\n  Detailed Percentile spectrum:\n{:>12} {:>12} {:>12} {:>12}\n",
            "Value", "Percentile", "TotalCount", "1/(1-Percentile)"
        );
        for (value, share, count) in self.lines() {
            let inverse = 1.0 / (1.0 - share);
            let _ = writeln!(out, "{value:12.3} {share:12.6} {count:12} {inverse:12.2}");
        }
        let total: u64 = self.buckets.iter().map(|(_, count)| count).sum();
        let (mean, stdev, max) = (self.mean_ms, self.stdev_ms, self.max_ms);
        let _ = writeln!(out, "#[Mean    = {mean:12.3}, StdDeviation   = {stdev:12.3}]");
        let _ = writeln!(out, "#[Max     = {max:12.3}, Total count    = {total:12}]");
        let _ = writeln!(out, "#[Buckets = {:12}, SubBuckets     = {:12}]", 27, 2048);
        out + "----------------------------------------------------------\n"
    }

    /// Value, share and cumulative count: at each share that HdrHistogram prints, the first bucket that reaches it.
    /// The step to the next share halves whenever half of the remaining distance to 100 % is passed.
    fn lines(&self) -> Vec<(f64, f64, u64)> {
        let total: u64 = self.buckets.iter().map(|(_, count)| count).sum();
        let (mut lines, mut seen, mut next) = (Vec::new(), 0, 0.0);
        for (at, (value, count)) in self.buckets.iter().enumerate() {
            seen += count;
            // The last bucket has one line at its share and one for 100 %.
            let last = at + 1 == self.buckets.len();
            while next <= 100.0 * seen as f64 / total as f64 {
                lines.push((*value, next / 100.0, seen));
                if last {
                    break;
                }
                let halvings = ((100.0 / (100.0 - next)).ln() / 2f64.ln()).trunc() + 1.0;
                next += 100.0 / (TICKS * halvings.exp2());
            }
        }
        if let Some((value, _)) = self.buckets.last() {
            lines.push((*value, 1.0, seen));
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::ThreadStats;

    const PUBLISHED: &str = include_str!("../../tests/captured/wrk2.txt");

    #[test]
    fn the_figures_of_a_published_run_print_as_published() {
        // Value and running count of each line; values with a line's count add nothing.
        let mut before = 0;
        let buckets = PUBLISHED
            .lines()
            .skip_while(|line| !line.contains("TotalCount"))
            .map(|line| line.split_whitespace().map(|word| word.parse().unwrap_or(0.0)).collect::<Vec<f64>>())
            .filter(|line| line.len() == 4 && line[2] > 0.0)
            .filter_map(|line| {
                let count = line[2] as u64 - before;
                before = line[2] as u64;
                (count > 0).then_some((line[0], count))
            })
            .collect();
        let spectrum = Spectrum {
            percentiles: [50.0, 75.0, 90.0, 99.0, 99.9, 99.99, 99.999, 100.0]
                .into_iter()
                .zip([6670.0, 7780.0, 9140.0, 11_180.0, 12_300.0, 12_450.0, 12_500.0, 12_500.0])
                .collect(),
            buckets,
            mean_ms: 6.602,
            stdev_ms: 1.919,
            max_ms: 12.496,
        };
        let sheet = Sheet {
            url: "http://127.0.0.1:80/index.html".to_owned(),
            planned_s: 30.0,
            threads: 2,
            connections: 100,
            latency: Stats { mean: 6600.0, stdev: 1920.0, max: 12_500.0, within: 68.46 },
            rate: Stats { mean: 1040.0, stdev: 1080.0, max: 2500.0, within: 72.79 },
            percentiles: Vec::new(),
            responses: 60_018,
            run_us: 30_004_800.0,
            bytes: 60_018 * 346 + 9300,
            errors: [0; 4],
            bad_status: 0,
        };
        assert_eq!(text(&sheet, &[10.087, 10.139], &spectrum, None), PUBLISHED);
    }

    #[test]
    fn a_report_has_both_spectra() {
        let mut report =
            Report { threads: vec![ThreadStats::default()], duration_ns: 1_000_000_000, ..Report::default() };
        (1..=1000).for_each(|us| report.latency.service.record(us * 1000));
        (1..=1000).for_each(|us| report.latency.response.record(us * 2000));
        report.counts.responses = 1000;
        let text = print(&report);
        assert!(text.contains("    Latency     1.00ms  577.35us   2.00ms   57.80%\n"), "{text}");
        let (corrected, uncorrected) = text.split_once("Uncorrected Latency").unwrap();
        assert!(corrected.contains("#[Mean    =        1.001, StdDeviation   =        0.577]"), "{text}");
        assert!(uncorrected.contains("#[Max     =        1.000, Total count    =         1000]"), "{text}");
        assert!(uncorrected.contains("1.000     1.000000         1000          inf\n"), "{text}");
    }

    #[test]
    fn an_empty_report_prints() {
        assert!(print(&Report::default()).contains("Total count    =            0]"));
    }
}
