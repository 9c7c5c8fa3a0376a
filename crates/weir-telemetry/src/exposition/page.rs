//! The syntax of a metrics page in both formats; `exposition.rs` decides its contents.

use std::fmt::Write as _;
use std::sync::Arc;

use super::Exposition;
use crate::cell::{BOUNDS_NS, BUCKETS, Counter, Gauge, Histogram, HistogramTotals};
use crate::exemplar::{Exemplar, Exemplars};
use crate::series::Series;

/// A page being written.
pub(super) struct Page {
    out: String,
    format: Exposition,
    /// The sample name of the current family.
    name: String,
}

/// The type of a family, and its unit for OpenMetrics: `""` if it has none.
///
/// Names are given without the suffix that the type adds: `_total`, `_info`.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    Counter(&'static str),
    Gauge(&'static str),
    Histogram(&'static str),
    Info,
}

impl Page {
    pub(super) fn new(format: Exposition, capacity: usize) -> Self {
        Self { out: String::with_capacity(capacity), format, name: String::new() }
    }

    pub(super) fn finish(mut self) -> String {
        if self.format == Exposition::OpenMetrics {
            self.out.push_str("# EOF\n");
        }
        self.out
    }

    /// Starts a family. `help` has no quotes, backslashes or line breaks.
    pub(super) fn family(&mut self, kind: Kind, name: &str, help: &str) {
        let (suffix, open_metrics_type, text_type, unit) = match kind {
            Kind::Counter(unit) => ("_total", "counter", "counter", unit),
            Kind::Gauge(unit) => ("", "gauge", "gauge", unit),
            Kind::Histogram(unit) => ("", "histogram", "histogram", unit),
            Kind::Info => ("_info", "info", "gauge", ""),
        };
        self.name.clear();
        self.name.push_str(name);
        self.name.push_str(suffix);
        let (family, shown) = match self.format {
            Exposition::OpenMetrics => (name, open_metrics_type),
            Exposition::Text => (&*self.name, text_type),
        };
        self.out.extend(["# HELP ", family, " ", help, "\n# TYPE ", family, " ", shown, "\n"]);
        if self.format == Exposition::OpenMetrics && !unit.is_empty() {
            self.out.extend(["# UNIT ", family, " ", unit, "\n"]);
        }
    }

    /// A sample of the current family. `labels` and `more` are label pairs, escaped, without braces; both may be
    /// empty.
    pub(super) fn sample(&mut self, labels: &str, more: &str, value: impl itoa::Integer) {
        self.begin("", labels, more);
        self.integer(value);
    }

    /// A sample in seconds, exact to the nanosecond.
    pub(super) fn seconds(&mut self, labels: &str, ns: u64) {
        self.begin("", labels, "");
        self.decimal(ns);
    }

    /// A family with a counter per series, summed over the cores.
    pub(super) fn counters<C>(
        &mut self,
        (name, unit, help): (&str, &'static str, &str),
        all: &[Arc<Series<C>>],
        pick: impl Fn(&C) -> &Counter,
    ) {
        self.family(Kind::Counter(unit), name, help);
        for series in all {
            let sum: u64 = series.cores.read().iter().map(|cells| pick(cells).get()).sum();
            self.sample(&series.labels, "", sum);
        }
    }

    /// A family with a gauge per series, summed over the cores.
    pub(super) fn gauges<C>(
        &mut self,
        name: &str,
        help: &str,
        all: &[Arc<Series<C>>],
        pick: impl Fn(&C) -> &Gauge,
    ) {
        self.family(Kind::Gauge(""), name, help);
        for series in all {
            let sum: i64 = series.cores.read().iter().map(|cells| pick(cells).get()).sum();
            self.sample(&series.labels, "", sum);
        }
    }

    /// A family of counters with one more label: `values` lists its values, `pick` finds the counter by the index of
    /// the value.
    pub(super) fn counters_by<C>(
        &mut self,
        (name, unit, help): (&str, &'static str, &str),
        all: &[Arc<Series<C>>],
        values: &[String],
        pick: impl Fn(&C, usize) -> &Counter,
    ) {
        self.family(Kind::Counter(unit), name, help);
        for series in all {
            for (i, value) in values.iter().enumerate() {
                let sum: u64 = series.cores.read().iter().map(|cells| pick(cells, i).get()).sum();
                self.sample(&series.labels, value, sum);
            }
        }
    }

    /// A family of histograms in seconds. Omits empty ones.
    pub(super) fn histograms<C>(
        &mut self,
        name: &str,
        help: &str,
        all: &[Arc<Series<C>>],
        pick: impl Fn(&C) -> &Histogram,
    ) {
        self.histograms_with(name, help, all, |cells| (pick(cells), None));
    }

    /// Like `histograms`, with exemplars, which only OpenMetrics has.
    pub(super) fn histograms_with<C>(
        &mut self,
        name: &str,
        help: &str,
        all: &[Arc<Series<C>>],
        pick: impl Fn(&C) -> (&Histogram, Option<&Exemplars>),
    ) {
        self.family(Kind::Histogram("seconds"), name, help);
        for series in all {
            let mut totals = HistogramTotals::default();
            let mut exemplars = [None; BUCKETS];
            for cells in series.cores.read().iter() {
                let (histogram, of_core) = pick(cells);
                histogram.add_to(&mut totals);
                let Some(of_core) = of_core.filter(|_| self.format == Exposition::OpenMetrics) else {
                    continue;
                };
                for (bucket, newest) in exemplars.iter_mut().enumerate() {
                    *newest =
                        of_core.of(bucket).into_iter().chain(*newest).max_by_key(|e: &Exemplar| e.at_ms);
                }
            }
            if totals.count() > 0 {
                self.histogram(&series.labels, &totals, &exemplars);
            }
        }
    }

    fn histogram(&mut self, labels: &str, totals: &HistogramTotals, exemplars: &[Option<Exemplar>; BUCKETS]) {
        let mut below = 0;
        for ((count, bound), exemplar) in totals.buckets.iter().zip(&BOUND_LABELS).zip(exemplars) {
            below += count;
            self.begin("_bucket", labels, bound);
            self.out.push_str(itoa::Buffer::new().format(below));
            if let Some(exemplar) = exemplar {
                self.exemplar(exemplar);
            }
            self.out.push('\n');
        }
        self.begin("_sum", labels, "");
        self.decimal(totals.sum_ns);
        self.begin("_count", labels, "");
        self.integer(below);
    }

    /// The exemplar after the count of a bucket: OpenMetrics 1.0, *Exemplars*.
    fn exemplar(&mut self, exemplar: &Exemplar) {
        let Exemplar { trace, span, value_ns, at_ms } = exemplar;
        let (seconds, ns) = (value_ns / 1_000_000_000, value_ns % 1_000_000_000);
        let (at, ms) = (at_ms / 1000, at_ms % 1000);
        let _ = write!(
            self.out,
            " # {{trace_id=\"{trace:032x}\",span_id=\"{span:016x}\"}} {seconds}.{ns:09} {at}.{ms:03}"
        ); // writing to a String cannot fail
    }

    fn begin(&mut self, suffix: &str, labels: &str, more: &str) {
        let out = &mut self.out;
        out.push_str(&self.name);
        out.push_str(suffix);
        if !(labels.is_empty() && more.is_empty()) {
            out.push('{');
            out.push_str(labels);
            if !labels.is_empty() && !more.is_empty() {
                out.push(',');
            }
            out.push_str(more);
            out.push('}');
        }
        out.push(' ');
    }

    fn integer(&mut self, value: impl itoa::Integer) {
        self.out.push_str(itoa::Buffer::new().format(value));
        self.out.push('\n');
    }

    fn decimal(&mut self, ns: u64) {
        self.out.push_str(itoa::Buffer::new().format(ns / 1_000_000_000));
        self.out.push('.');
        // A leading one keeps the zeros after the point.
        self.out.push_str(&itoa::Buffer::new().format(1_000_000_000 + ns % 1_000_000_000)[1..]);
        self.out.push('\n');
    }
}

/// The label of each bucket. The same in both formats, in the OpenMetrics form (`1.0`, not `1`). Otherwise a scraper
/// that changes formats would see different series.
const BOUND_LABELS: [&str; BOUNDS_NS.len() + 1] = [
    "le=\"0.0005\"",
    "le=\"0.001\"",
    "le=\"0.0025\"",
    "le=\"0.005\"",
    "le=\"0.01\"",
    "le=\"0.025\"",
    "le=\"0.05\"",
    "le=\"0.1\"",
    "le=\"0.25\"",
    "le=\"0.5\"",
    "le=\"1.0\"",
    "le=\"2.5\"",
    "le=\"5.0\"",
    "le=\"10.0\"",
    "le=\"30.0\"",
    "le=\"+Inf\"",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_of_buckets_are_their_bounds() {
        for (ns, label) in BOUNDS_NS.iter().zip(BOUND_LABELS) {
            assert_eq!(label, format!("le=\"{:?}\"", *ns as f64 / 1e9));
        }
    }

    #[test]
    fn seconds_are_exact() {
        let mut page = Page::new(Exposition::Text, 0);
        page.family(Kind::Gauge("seconds"), "x_seconds", "X.");
        for ns in [0, 1, 1_000_000_000, 12_034_000_000] {
            page.seconds("", ns);
        }
        let lines: Vec<_> = page.out.lines().skip(2).map(str::to_owned).collect();
        let expected = ["0.000000000", "0.000000001", "1.000000000", "12.034000000"];
        assert_eq!(lines, expected.map(|v| format!("x_seconds {v}")));
    }
}
