//! The metric of a condition: a figure of a report.

use crate::Histogram;
use crate::report::{Counts, ReplayStats, Report, TargetCost};
use crate::units;

use std::borrow::Cow;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Metric {
    Checks,
    CostUs,
    Count(Counter),
    Errors,
    Failed,
    PerCore,
    /// Over the whole time, as in k6.
    PerSecond(Counter),
    /// Responses per second in the window.
    Rate,
    Replayed(Replayed),
    Trend(Trend, Stat),
}

/// A figure of a replay: of all requests, or those of a route.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Replayed {
    /// How late requests were sent.
    Drift(Stat),
    /// The share of bodies with another length.
    LengthsChanged,
    /// The new times relative to the recorded ones: of a statistic, or the geometric mean of each request's.
    Ratio(Option<Stat>),
    /// The share of requests with another status, or with no response now.
    StatusesChanged,
}

impl Replayed {
    /// `ratio`, `ratio.p99`, `drift.p99`, `statuses-changed`, `lengths-changed`.
    pub(super) fn named(name: &str) -> Option<Self> {
        Some(match name.split_once('.') {
            Some(("drift", stat)) => Self::Drift(Stat::named(stat)?),
            Some(("ratio", stat)) => Self::Ratio(Some(Stat::named(stat)?)),
            _ if name == "lengths-changed" => Self::LengthsChanged,
            _ if name == "ratio" => Self::Ratio(None),
            _ if name == "statuses-changed" => Self::StatusesChanged,
            _ => return None,
        })
    }

    /// Whether it is known of each route.
    pub(super) const fn is_of_routes(self) -> bool {
        matches!(self, Self::LengthsChanged | Self::Ratio(None) | Self::StatusesChanged)
    }

    /// The figure of a replay, or of one of its routes.
    pub(super) fn of(self, replay: &ReplayStats, route: Option<&str>) -> Option<f64> {
        let share = |part: u64, of: u64| (of > 0).then(|| part as f64 / of as f64);
        if let Some(name) = route {
            let route = replay.routes.iter().find(|route| route.route == name)?;
            return match self {
                Self::LengthsChanged => share(route.lengths_changed, route.requests),
                Self::Ratio(None) => Some(route.ratio()?.value),
                Self::StatusesChanged => share(route.statuses_changed, route.requests),
                Self::Drift(_) | Self::Ratio(Some(_)) => None,
            };
        }
        let at = |stat: Stat, times: &Histogram| {
            if times.is_empty() { None } else { stat.of(times, Unanswered::default()) }
        };
        match self {
            Self::Drift(stat) => at(stat, &replay.drift),
            Self::LengthsChanged => share(replay.lengths_changed, replay.lengths_compared),
            Self::Ratio(None) => {
                let timed: u64 = replay.routes.iter().map(|route| route.timed).sum();
                let ln: f64 = replay.routes.iter().map(|route| route.ln_sum).sum();
                (timed > 0).then(|| (ln / timed as f64).exp())
            }
            Self::Ratio(Some(stat)) => Some(at(stat, &replay.now)? / at(stat, &replay.then)?.max(1.0)),
            Self::StatusesChanged => {
                let known = replay.statuses.iter().filter(|pair| pair.then.is_some());
                let changed = known.clone().filter(|pair| pair.then != pair.now);
                share(changed.map(|pair| pair.requests).sum(), known.map(|pair| pair.requests).sum())
            }
        }
    }
}

/// A counted quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Counter {
    BytesReceived,
    BytesSent,
    /// Iterations of scenarios that were done; requests where there are no scenarios.
    Iterations,
    Requests,
    Unsent,
}

/// The times of a trend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trend {
    Blocked,
    Connecting,
    /// The service time of expected responses.
    Expected,
    /// The time of an iteration. Without scenarios, the response time plus the pause after it.
    Iteration,
    Receiving,
    Response,
    Sending,
    Service,
    Tls,
    Waiting,
}

/// A statistic of the times.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Stat {
    Max,
    Mean,
    Min,
    Quantile(f64),
}

impl Stat {
    /// `p99`, `p(99)`, `mean`, `avg`, `med`, `min`, `max`.
    pub(super) fn named(name: &str) -> Option<Self> {
        if let Some(p) = name.strip_prefix('p').and_then(|p| p.trim_matches(['(', ')']).parse::<f64>().ok()) {
            return (p > 0.0 && p < 100.0).then_some(Self::Quantile(p / 100.0));
        }
        Some(match name {
            "max" => Self::Max,
            "mean" | "avg" => Self::Mean,
            "med" => Self::Quantile(0.5),
            "min" => Self::Min,
            _ => return None,
        })
    }

    /// Its name in k6.
    pub(super) fn in_k6(self) -> Cow<'static, str> {
        match self {
            Self::Max => "max".into(),
            Self::Mean => "avg".into(),
            Self::Min => "min".into(),
            Self::Quantile(0.5) => "med".into(),
            // Six decimals: 0.999 × 100 is not exactly 99.9.
            Self::Quantile(q) => format!("p({})", (q * 1e8).round() / 1e6).into(),
        }
    }

    /// The statistic of the times `h` and of requests without a response, which count as slower than any response. A
    /// figure that falls among them is infinite.
    pub(super) fn of(self, h: &Histogram, unanswered: Unanswered) -> Option<f64> {
        let Unanswered { all, waited, at_least_ns } = unanswered;
        match self {
            Self::Max if all > 0 => Some(f64::INFINITY),
            Self::Quantile(q) if h.quantile_with(q, all).is_none() => Some(f64::INFINITY),
            _ if h.is_empty() => None,
            Self::Max => Some(h.max() as f64),
            // Those that waited took at least this long; a refused connection took no significant time.
            Self::Mean => {
                let rest = waited as f64 * h.max().max(at_least_ns) as f64;
                Some((h.sum() as f64 + rest) / (h.count() + waited) as f64)
            }
            Self::Min => Some(h.min() as f64),
            Self::Quantile(q) => h.quantile_with(q, all).map(|ns| ns as f64),
        }
    }
}

/// Requests without a response.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Unanswered {
    /// Errors of any kind, and requests in flight when the run ended.
    pub(super) all: u64,
    /// Those that waited for a response: timeouts, and requests in flight when the run ended.
    waited: u64,
    /// How long those waited at least.
    at_least_ns: u64,
}

impl Unanswered {
    fn of(r: &Report, trend: Trend) -> Self {
        if trend == Trend::Iteration && r.is_journey() {
            let all = r.scenarios.iter().map(|s| s.broken() + s.unfinished).sum();
            let waited = r.scenarios.iter().map(|s| s.unfinished).sum();
            return Self { all, waited, at_least_ns: 0 };
        }
        let Counts { errors, unfinished, .. } = &r.counts;
        Self {
            all: errors.total() + unfinished,
            waited: errors.timeout + unfinished,
            at_least_ns: r.plan.timeout_ns,
        }
    }
}

impl Trend {
    /// Whether requests without a response count in it. Other trends are steps before the response, or cover only
    /// good responses.
    const fn counts_unanswered(self) -> bool {
        match self {
            Self::Iteration | Self::Receiving | Self::Response | Self::Service | Self::Waiting => true,
            Self::Blocked | Self::Connecting | Self::Expected | Self::Sending | Self::Tls => false,
        }
    }

    fn of(self, r: &Report) -> Cow<'_, Histogram> {
        Cow::Borrowed(match self {
            Self::Blocked => &r.phases.blocked,
            Self::Connecting => &r.phases.connecting,
            Self::Expected => return Cow::Owned(r.latency.service.without(&r.latency.service_unexpected)),
            Self::Iteration if r.is_journey() => return Cow::Owned(r.iterations()),
            Self::Iteration | Self::Response => &r.latency.response,
            Self::Receiving => &r.phases.receiving,
            Self::Sending => &r.phases.sending,
            Self::Service => &r.latency.service,
            Self::Tls => &r.phases.tls,
            Self::Waiting => &r.phases.waiting,
        })
    }
}

impl Counter {
    fn of(self, r: &Report) -> u64 {
        match self {
            Self::BytesReceived => r.bytes.received(),
            Self::BytesSent => r.bytes.sent(),
            Self::Iterations if r.is_journey() => r.scenarios.iter().map(|s| s.done).sum(),
            Self::Iterations | Self::Requests => r.finished(),
            Self::Unsent => r.counts.unsent,
        }
    }
}

impl Metric {
    pub(super) const fn form(self) -> &'static str {
        match self {
            Self::Checks
            | Self::Errors
            | Self::Failed
            | Self::Replayed(Replayed::LengthsChanged | Replayed::StatusesChanged) => {
                "expected a share, such as 0.1% or 0.001"
            }
            Self::Replayed(Replayed::Ratio(_)) => "expected a factor, such as 1.1",
            Self::CostUs | Self::Replayed(Replayed::Drift(_)) | Self::Trend(..) => {
                "expected a time, such as 20ms or 150us"
            }
            Self::Count(_) => "expected a number, such as 1000 or 50k",
            Self::PerCore | Self::PerSecond(_) | Self::Rate => "expected a rate, such as 5000 or 300/m",
        }
    }

    pub(super) fn bound(self, value: &str) -> Option<f64> {
        match self {
            Self::Checks
            | Self::Errors
            | Self::Failed
            | Self::Replayed(Replayed::LengthsChanged | Replayed::StatusesChanged) => {
                match value.strip_suffix('%') {
                    Some(percent) => percent.parse::<f64>().ok().map(|p| p / 100.0),
                    None => value.parse().ok(),
                }
                .filter(|share| (0.0..=1.0).contains(share))
            }
            Self::Replayed(Replayed::Ratio(_)) => {
                value.parse::<f64>().ok().filter(|ratio| ratio.is_finite() && *ratio > 0.0)
            }
            Self::CostUs | Self::Replayed(Replayed::Drift(_)) | Self::Trend(..) => {
                units::duration(value).map(|d| d.as_nanos() as f64)
            }
            Self::Count(_) => units::count(value).map(|n| n as f64),
            Self::PerCore | Self::PerSecond(_) | Self::Rate => units::rate(value),
        }
    }

    /// The figure of a step, a scenario or a part. An iteration that broke off has failed, whatever its requests did.
    pub(super) fn of_part(self, part: &Report) -> Option<f64> {
        let of_requests = self.of(part);
        let (Self::Failed, [scenario]) = (self, &part.scenarios[..]) else { return of_requests };
        let ended = scenario.done + scenario.broken();
        let of_iterations = (ended > 0).then(|| scenario.broken() as f64 / ended as f64);
        of_requests.into_iter().chain(of_iterations).reduce(f64::max)
    }

    pub(super) fn of(self, r: &Report) -> Option<f64> {
        let share = |part: u64, of: u64| (of > 0).then(|| part as f64 / of as f64);
        let cost = |of: fn(&TargetCost) -> f64| r.target_cost.as_ref().map(of);
        match self {
            Self::Checks => {
                let passed: u64 = r.checks.iter().map(|c| c.passed).sum();
                share(passed, passed + r.checks.iter().map(|c| c.failed).sum::<u64>())
            }
            Self::CostUs => cost(|c| c.cpu_ns as f64 / c.responses as f64).filter(|us| us.is_finite()),
            Self::Count(counter) => Some(counter.of(r) as f64),
            // In gRPC a code other than OK is an error, as in ghz.
            Self::Errors if r.counts.unexpected.is_some() => {
                let codes = r.counts.grpc.iter().filter(|(code, _)| *code != "OK");
                let errors = r.counts.errors.total() + codes.map(|(_, n)| n).sum::<u64>();
                share(errors, r.finished())
            }
            Self::Errors if r.is_grpc() => share(r.failed(), r.finished()),
            Self::Errors => share(r.counts.errors.total(), r.finished()),
            Self::Failed => share(r.failed(), r.finished()),
            Self::PerCore => {
                cost(|c| c.responses as f64 / (c.cpu_ns as f64 / 1e9)).filter(|rate| rate.is_finite())
            }
            Self::PerSecond(counter) => Some(counter.of(r) as f64 / r.seconds()),
            Self::Rate => Some(r.rate()),
            Self::Replayed(figure) => figure.of(r.replay.as_ref()?, None),
            Self::Trend(trend, stat) => {
                let pause =
                    if trend == Trend::Iteration && !r.is_journey() { r.plan.think_ns as f64 } else { 0.0 };
                let unanswered =
                    if trend.counts_unanswered() { Unanswered::of(r, trend) } else { Unanswered::default() };
                stat.of(&trend.of(r), unanswered).map(|ns| ns + pause)
            }
        }
    }
}
