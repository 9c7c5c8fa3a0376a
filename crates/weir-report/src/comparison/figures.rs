//! The compared figures, each computed from one target's results in one round.

use crate::report::{Block, Percentiles};
use crate::{Histogram, Report, Work};

/// A compared figure.
#[derive(Debug)]
pub struct Figure {
    /// Its name, as in thresholds.
    pub name: &'static str,
    pub(super) unit: Unit,
    /// 0 if nothing could be measured, or if there are too few responses for a percentile.
    value: fn(&Measured) -> f64,
}

/// The unit, which determines the worse direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    /// Nanoseconds of the target's processor time; more is worse.
    Cost,
    /// Nanoseconds; more is worse.
    Latency,
    /// Responses per second; less is worse.
    Rate,
}

/// All figures in print order.
pub(super) static FIGURES: &[Figure] = &[
    Figure { name: "rate", unit: Unit::Rate, value: |m| share(m.in_window, m.window_ns) * 1e9 },
    Figure { name: "mean", unit: Unit::Latency, value: Measured::mean },
    Figure { name: "p50", unit: Unit::Latency, value: |m| m.quantile(0.5) },
    Figure { name: "p75", unit: Unit::Latency, value: |m| m.quantile(0.75) },
    Figure { name: "p90", unit: Unit::Latency, value: |m| m.quantile(0.9) },
    Figure { name: "p95", unit: Unit::Latency, value: |m| m.quantile(0.95) },
    Figure { name: "p99", unit: Unit::Latency, value: |m| m.quantile(0.99) },
    Figure { name: "p99.9", unit: Unit::Latency, value: |m| m.quantile(0.999) },
    Figure { name: "cost", unit: Unit::Cost, value: |m| share(m.cpu_ns, m.cost_responses) },
];

fn share(part: u64, of: u64) -> f64 {
    if of == 0 { 0.0 } else { part as f64 / of as f64 }
}

impl Figure {
    /// The figure of a round; `None` if nothing could be measured.
    pub(super) fn of(&self, measured: &Measured) -> Option<f64> {
        Some((self.value)(measured)).filter(|value| *value > 0.0)
    }

    /// Whether it is a rate per second and not a time.
    pub(super) const fn is_rate(&self) -> bool {
        matches!(self.unit, Unit::Rate)
    }

    /// The figure with this name.
    pub(super) fn named(name: &str) -> Option<&'static Self> {
        FIGURES.iter().find(|f| f.name == name)
    }
}

/// One target's results in one or more rounds.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// Complete responses.
    pub responses: u64,
    pub(super) errors: u64,
    pub(super) latency: Histogram,
    /// Also includes requests without a response: each counts with the timeout, or the slowest response if that is
    /// longer.
    with_unanswered: Histogram,
    pub(super) work: Work,
    /// Responses in the window that its rate refers to.
    in_window: u64,
    window_ns: u64,
    cpu_ns: u64,
    cost_responses: u64,
}

impl Measured {
    /// A percentile, 0 to 1, if there are enough responses for it.
    fn quantile(&self, quantile: f64) -> f64 {
        let is_known = Percentiles::are_known(quantile, self.latency.count());
        if is_known { self.with_unanswered.quantile(quantile) as f64 } else { 0.0 }
    }

    /// Without a single response the mean is unknown.
    fn mean(&self) -> f64 {
        if self.latency.is_empty() { 0.0 } else { self.with_unanswered.mean() }
    }

    fn add_times(&mut self, times: &Histogram, unanswered: u64, timeout_ns: u64) {
        self.latency.add(times);
        self.with_unanswered.add(times);
        self.with_unanswered.record_n(times.max().max(timeout_ns).min(Histogram::MOST), unanswered);
    }

    /// Adds a block with this target alone: its response time.
    pub fn add(&mut self, report: &Report) {
        self.responses += report.counts.responses;
        self.errors += report.counts.errors.total();
        self.in_window += report.rated().responses;
        self.window_ns += report.rated().length_ns;
        let unanswered = report.counts.errors.total() + report.counts.unfinished;
        self.add_times(&report.latency.response, unanswered, report.plan.timeout_ns);
        self.work.add(&Work::of(report));
        if let Some(cost) = &report.target_cost {
            self.cpu_ns += cost.cpu_ns;
            self.cost_responses += cost.responses;
        }
    }

    /// A block of a single run, without its cost.
    pub(super) fn of_block(block: &Block, timeout_ns: u64) -> Self {
        let mut measured = Self {
            responses: block.response.count(),
            errors: block.unanswered,
            in_window: block.in_window,
            window_ns: block.length_ns,
            ..Self::default()
        };
        measured.add_times(&block.response, block.unanswered, timeout_ns);
        measured
    }

    /// Adds a block with several targets: the service time of this one.
    pub fn add_target(&mut self, report: &Report, index: usize) {
        let Some(target) = report.targets.get(index) else { return };
        self.responses += target.responses;
        self.errors += target.errors;
        self.in_window += if report.window.is_some() { target.in_window } else { target.responses };
        self.window_ns += report.rated().length_ns;
        let unanswered = target.requests.saturating_sub(target.responses);
        self.add_times(&target.service, unanswered, report.plan.timeout_ns);
        self.work.add(&Work::of_target(report, index));
    }
}
