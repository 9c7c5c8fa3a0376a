//! The derived figures that layouts print, computed once from the raw report: rates, shares, percentiles, costs.
//!
//! JSON reports include them for readers that want a figure and not a histogram; `verify` recomputes them.

use super::{Percentiles, Phases, Report};
use crate::Histogram;
use schemars::JsonSchema;
use serde::Serialize;

/// Figures computed from a report.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Figures {
    /// Complete responses per second.
    pub responses_per_s: f64,
    /// Finished requests per second, errors included.
    pub finished_per_s: f64,
    /// Bytes sent per second.
    pub sent_per_s: f64,
    /// Bytes received per second.
    pub received_per_s: f64,
    /// Errors, and responses with a status outside 200 to 399.
    pub failed: u64,
    /// `failed` as a share of the finished requests.
    pub failed_share: f64,
    /// Service time, from the send.
    pub service: Distribution,
    /// Response time, from the intended start.
    pub response: Distribution,
    /// From the send to the first byte of the response.
    pub first_byte: Distribution,
    /// The phases of a request.
    pub phases: PhaseFigures,
    /// Processor time of the generator's busiest thread as a share of one core.
    pub busiest_thread: f64,
    /// Responses per second of the generator's processor time.
    pub responses_per_generator_core_s: f64,
    /// The share of the clients' time in which they were idle but should not have been; none with a fixed rate.
    pub little_residual: Option<f64>,
    /// Responses per second of the target's processor time; none without `--pid`.
    pub responses_per_target_core_s: Option<f64>,
    /// The target's processor time per response, in microseconds; none without `--pid`.
    pub target_us_per_response: Option<f64>,
}

/// A distribution of times in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Distribution {
    /// Number of values.
    pub count: u64,
    /// Standard deviation of the sample.
    pub stdev: f64,
    /// The percentiles.
    #[serde(flatten)]
    pub percentiles: Percentiles,
}

/// [`Phases`], each as a distribution.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[allow(missing_docs)] // as in `Phases`
pub struct PhaseFigures {
    pub blocked: Distribution,
    pub dns: Distribution,
    pub connecting: Distribution,
    pub tls: Distribution,
    pub sending: Distribution,
    pub waiting: Distribution,
    pub receiving: Distribution,
}

impl Figures {
    /// The figures of a report.
    pub fn of(report: &Report) -> Self {
        let rated = report.rated();
        let seconds = rated.seconds();
        let cost = report.target_cost.as_ref().filter(|cost| cost.cpu_ns > 0 && cost.responses > 0);
        Self {
            responses_per_s: report.rate(),
            finished_per_s: (rated.responses + rated.errors) as f64 / seconds,
            sent_per_s: rated.sent as f64 / seconds,
            received_per_s: rated.received as f64 / seconds,
            failed: report.failed(),
            failed_share: report.failed_share(),
            service: Distribution::of(&report.latency.service),
            response: Distribution::of(&report.latency.response),
            first_byte: Distribution::of(&report.latency.first_byte),
            phases: PhaseFigures::of(&report.phases),
            busiest_thread: report.busiest_thread(),
            responses_per_generator_core_s: report.per_generator_core_second(),
            little_residual: report.little_residual(),
            responses_per_target_core_s: cost.map(|c| c.responses as f64 / (c.cpu_ns as f64 / 1e9)),
            target_us_per_response: cost.map(|c| c.cpu_ns as f64 / 1e3 / c.responses as f64),
        }
    }
}

impl Distribution {
    /// The distribution of a histogram.
    pub fn of(h: &Histogram) -> Self {
        Self { count: h.count(), stdev: h.stdev(), percentiles: Percentiles::of(h) }
    }
}

impl PhaseFigures {
    fn of(phases: &Phases) -> Self {
        let Phases { blocked, dns, connecting, tls, sending, waiting, receiving } = phases;
        Self {
            blocked: Distribution::of(blocked),
            dns: Distribution::of(dns),
            connecting: Distribution::of(connecting),
            tls: Distribution::of(tls),
            sending: Distribution::of(sending),
            waiting: Distribution::of(waiting),
            receiving: Distribution::of(receiving),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::TargetCost;

    #[test]
    fn figures_follow_from_counts_and_sums() {
        let mut report = Report { duration_ns: 4_000_000_000, ..Report::default() };
        report.counts.responses = 100;
        report.counts.errors.reset = 20;
        report.counts.statuses = [(200, 90), (500, 10)].into();
        report.bytes.received_body = 8000;
        report.latency.service.record_n(1000, 100);
        report.target_cost = Some(TargetCost { cpu_ns: 2_000_000, responses: 50, ..TargetCost::default() });
        let figures = Figures::of(&report);
        assert_eq!((figures.responses_per_s, figures.finished_per_s, figures.failed), (25.0, 30.0, 30));
        assert_eq!((figures.received_per_s, figures.failed_share), (2000.0, 0.25));
        assert_eq!((figures.service.percentiles.p99, figures.service.count), (1000, 100));
        assert_eq!(figures.responses_per_target_core_s, Some(25_000.0));
        assert_eq!(figures.target_us_per_response, Some(40.0));
    }
}
