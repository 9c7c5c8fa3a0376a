//! Conditions on a whole run, `p99<20ms`, `errors<0.1%`, `rate>5000`, or on one of its steps, scenarios or parts,
//! `list: p99<200ms`; also in k6's syntax, `http_req_duration: p(95)<200`.
//!
//! *Layout.* This file parses and judges conditions; `metric` is the figure in a condition, `k6` parses k6's names.

mod k6;
mod metric;

pub(crate) use k6::{of_ours as k6_of_ours, split as split_k6};

use crate::Report;
use crate::mistake::Mistake;
use crate::report::{BEYOND, ThresholdResult, responses_for};
use metric::{Counter, Metric, Replayed, Stat, Trend, Unanswered};

/// A condition on a report.
#[derive(Clone, Debug, PartialEq)]
pub struct Threshold {
    /// As written.
    pub text: String,
    /// The scenario, step or part of a shape that it concerns; all if none.
    scope: Option<String>,
    metric: Metric,
    order: Order,
    /// In the metric's unit: nanoseconds, a share, a rate.
    bound: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    AtLeast,
    AtMost,
    /// Only in k6's syntax, like `NotEqual`.
    Equal,
    Less,
    More,
    NotEqual,
}

/// The metrics that a threshold may use, for messages.
const METRICS: &str = "p50, p99.9 and so on, mean, max (of the response time; service.p99 for the service time), \
     errors, failed, checks, rate, iterations, iteration.p99 (time of an iteration), \
     cost (µs of the target per request), percore (requests per core-second of the target); \
     of replays also ratio (of new to recorded times; ratio.p99 of a percentile), statuses-changed, lengths-changed \
     and drift.p99";

impl Threshold {
    /// Parses `p99<20ms`, or `http_req_duration: p(95)<200` as in k6. `place` is the option, for the message. With
    /// the name of a scenario, a step or a part in front, `list: p99<200ms`, it concerns only that.
    ///
    /// # Errors
    /// The text is not `METRIC<VALUE` with `<`, `<=`, `>` or `>=`, a known metric, and a value in its unit.
    pub fn parse(place: &str, text: &str) -> Result<Self, Mistake> {
        let bad = |hint: &str| Mistake::new(&format!("{place} {text}"), hint);
        if let Some((name, condition)) = k6::split(text) {
            if !k6::is_metric(name)
                && let Some(scoped) = Self::scoped(name, condition)
            {
                let (metric, order, bound) = scoped.map_err(|hint| bad(&hint))?;
                return Ok(Self {
                    text: text.to_owned(),
                    scope: Some(name.to_owned()),
                    metric,
                    order,
                    bound,
                });
            }
            let (metric, order, bound) = k6::parse(name, condition).map_err(|hint| bad(&hint))?;
            return Ok(Self { text: text.to_owned(), scope: None, metric, order, bound });
        }
        let (name, order, value) = Order::split(text)
            .filter(|(_, order, _)| !matches!(order, Order::Equal | Order::NotEqual))
            .ok_or_else(|| bad("expected METRIC<VALUE or METRIC>VALUE, such as p99<20ms"))?;
        let metric = own(name).ok_or_else(|| bad(&unknown(name)))?;
        let bound = metric.bound(value).ok_or_else(|| bad(metric.form()))?;
        Ok(Self { text: text.to_owned(), scope: None, metric, order, bound })
    }

    /// A condition with one of our metrics on a scenario, a step or a part. None if it has another form.
    fn scoped(scope: &str, condition: &str) -> Option<Result<(Metric, Order, f64), String>> {
        let (name, order, value) = Order::split(condition)?;
        // A statistic in brackets is k6's, so an unknown name is a mistyped metric.
        if scope.is_empty() || name.contains('(') || matches!(order, Order::Equal | Order::NotEqual) {
            return None;
        }
        let metric = own(name)?;
        Some(match metric {
            Metric::CostUs | Metric::PerCore | Metric::Trend(Trend::Service, _) => {
                Err(format!("`{name}` is known of the whole run only: leave out `{scope}:`"))
            }
            Metric::Replayed(figure) if !figure.is_of_routes() => {
                Err(format!("`{name}` is known of the whole replay only: leave out `{scope}:`"))
            }
            metric => metric
                .bound(value)
                .ok_or_else(|| metric.form().to_owned())
                .map(|bound| (metric, order, bound)),
        })
    }

    /// Whether k6 has a metric of this name, which a part thus may not have.
    pub fn is_k6_metric(name: &str) -> bool {
        k6::is_metric(name)
    }

    /// The scenario, step or part that it concerns; all if none.
    pub fn scope(&self) -> Option<&str> {
        self.scope.as_deref()
    }

    /// The figure in a report; none if it has nothing to measure, or not that step.
    fn measure(&self, report: &Report) -> Option<f64> {
        match (&self.scope, self.metric) {
            (Some(route), Metric::Replayed(figure)) => figure.of(report.replay.as_ref()?, Some(route)),
            (None, metric) => metric.of(report),
            (Some(scope), metric) => metric.of_part(&report.part(scope)?),
        }
    }

    /// The measured value, and whether the condition is met. It is not met if nothing could be measured.
    ///
    /// A request without a response counts as slower than every response. A percentile that falls among such requests
    /// violates every upper bound, and has no measured value.
    pub fn judge(&self, report: &Report) -> ThresholdResult {
        let measured = self.measure(report);
        let passed = measured.is_some_and(|m| self.holds_at(m));
        let unanswered = measured.is_some_and(f64::is_infinite);
        let measured = measured.filter(|m| m.is_finite());
        ThresholdResult { threshold: self.text.clone(), measured, passed, unanswered }
    }

    fn holds_at(&self, measured: f64) -> bool {
        match self.order {
            Order::AtLeast => measured >= self.bound,
            Order::AtMost => measured <= self.bound,
            Order::Equal => measured == self.bound,
            Order::Less => measured < self.bound,
            Order::More => measured > self.bound,
            Order::NotEqual => measured != self.bound,
        }
    }

    /// How many responses a judgment needs: ten on the rarer side of a percentile, and for a share enough that a
    /// single failure does not violate it.
    pub fn needs(&self) -> u64 {
        match self.metric {
            Metric::Trend(_, Stat::Quantile(q)) => responses_for(q),
            Metric::Errors | Metric::Failed if self.bound > 0.0 => {
                ((1.0 / self.bound).ceil() as u64).clamp(BEYOND, NEEDS_MOST)
            }
            _ => BEYOND,
        }
    }

    /// Whether a time would be within its bound without the generator's own lateness; `None` for other metrics. A
    /// late start counts in the response time. The answer is assumed to be read as late as the start was, which
    /// counts in both times.
    pub(crate) fn holds_without_lateness(&self, report: &Report) -> Option<bool> {
        let Metric::Trend(trend, stat) = self.metric else { return None };
        let times = if matches!(trend, Trend::Iteration | Trend::Response) { 2.0 } else { 1.0 };
        let late = stat.of(&report.health.start_lag, Unanswered::default()).unwrap_or(0.0);
        Some(self.holds_at(self.measure(report)? - times * late))
    }

    /// Whether even the fastest response is beyond the bound of a time.
    pub(crate) fn is_broken_by_the_fastest(&self, report: &Report) -> bool {
        let Metric::Trend(trend, _) = self.metric else { return false };
        if self.scope.is_some() {
            return false;
        }
        Metric::Trend(trend, Stat::Min).of(report).is_some_and(|fastest| !self.holds_at(fastest))
    }

    /// The metric as written: `errors`, `p99`.
    pub(crate) fn name(&self) -> &str {
        self.text.split(['<', '>', '=', '!']).next().unwrap_or_default().trim()
    }

    /// Whether it needs the target's process.
    pub const fn needs_cost(&self) -> bool {
        matches!(self.metric, Metric::CostUs | Metric::PerCore)
    }

    /// Whether it bounds a time.
    pub(crate) const fn is_of_time(&self) -> bool {
        matches!(self.metric, Metric::CostUs | Metric::Replayed(Replayed::Drift(_)) | Metric::Trend(..))
    }

    /// Whether it bounds a factor.
    pub(crate) const fn is_of_ratio(&self) -> bool {
        matches!(self.metric, Metric::Replayed(Replayed::Ratio(_)))
    }

    /// Whether only a replay has the figure.
    pub const fn is_of_replay(&self) -> bool {
        matches!(self.metric, Metric::Replayed(_))
    }

    /// The bound of a latency, in nanoseconds.
    pub(crate) fn time(&self) -> Option<f64> {
        matches!(self.metric, Metric::Trend(..)).then_some(self.bound)
    }
}

/// Most responses that a condition on a share requires; with more, a search would take hours.
const NEEDS_MOST: u64 = 10_000;

/// The percentile that a threshold's text refers to, 0 to 1.
pub(crate) fn quantile_of(text: &str) -> Option<f64> {
    match Threshold::parse("", text).ok()?.metric {
        Metric::Trend(_, Stat::Quantile(q)) => Some(q),
        _ => None,
    }
}

impl Order {
    /// The spelling of each; of two with the same beginning, the longer comes first.
    const WRITTEN: [(&str, Self); 7] = [
        ("<=", Self::AtMost),
        (">=", Self::AtLeast),
        ("===", Self::Equal),
        ("==", Self::Equal),
        ("!=", Self::NotEqual),
        ("<", Self::Less),
        (">", Self::More),
    ];

    /// Splits `NAME<VALUE`.
    fn split(text: &str) -> Option<(&str, Self, &str)> {
        let (name, rest) = text.split_at(text.find(['<', '>', '=', '!'])?);
        let (value, order) =
            Self::WRITTEN.iter().find_map(|(sign, order)| Some((rest.strip_prefix(sign)?, *order)))?;
        Some((name.trim(), order, value.trim()))
    }

    fn sign(self) -> &'static str {
        Self::WRITTEN.iter().find(|(_, order)| *order == self).map_or("", |(sign, _)| sign)
    }
}

/// The message for an unknown metric.
fn unknown(name: &str) -> String {
    if k6::is_metric(name) {
        return format!("k6's metrics need a statistic: '{name}: {}'", k6::example(name));
    }
    format!("the metrics are {METRICS}")
}

/// A metric by our own name.
fn own(whole: &str) -> Option<Metric> {
    let (trend, name) = match whole.split_once('.') {
        Some(("service", rest)) => (Trend::Service, rest),
        Some(("iteration", rest)) => (Trend::Iteration, rest),
        Some(("response", rest)) => (Trend::Response, rest),
        _ => (Trend::Response, whole),
    };
    if name != "min"
        && let Some(stat) = Stat::named(name)
    {
        return Some(Metric::Trend(trend, stat));
    }
    if let Some(figure) = Replayed::named(whole) {
        return Some(Metric::Replayed(figure));
    }
    Some(match name {
        "checks" => Metric::Checks,
        "cost" => Metric::CostUs,
        "errors" => Metric::Errors,
        "failed" => Metric::Failed,
        "iterations" => Metric::Count(Counter::Iterations),
        "percore" => Metric::PerCore,
        "rate" => Metric::Rate,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{CheckResult, TargetCost};

    fn report() -> Report {
        let mut r = Report { duration_ns: 1_000_000_000, ..Report::default() };
        for ms in 1..=100 {
            r.latency.service.record(ms * 1_000_000);
            r.latency.response.record(ms * 2_000_000);
        }
        r.counts.responses = 100;
        r.counts.statuses.extend([(200, 95), (500, 5)]);
        r.counts.errors.timeout = 25;
        r.checks = vec![CheckResult { check: String::new(), passed: 3, failed: 1 }];
        r.target_cost = Some(TargetCost { cpu_ns: 1_000_000, responses: 100, ..TargetCost::default() });
        r
    }

    #[test]
    fn conditions_hold_or_not() {
        for (text, want) in [
            // 25 timeouts after 100 responses of up to 200 ms: the 63rd of 125 is the median.
            ("p50<127ms", true),
            ("p50<126ms", false),
            ("p80<201ms", true),
            ("p81<1h", false),
            ("p99<1h", false),
            ("p(50) <= 127ms", true),
            ("service.p80<101ms", true),
            ("service.p99<1h", false),
            ("max<1h", false),
            ("max>1h", true),
            ("http_req_duration: p(95)<3600000", false),
            // The timeouts waited for at least 200 ms.
            ("mean<121ms", true),
            ("mean<120ms", false),
            ("errors<20%", false),
            ("errors<=0.2", true),
            ("failed<24.1%", true),
            ("failed<24%", false),
            ("checks>=75%", true),
            ("rate>99", true),
            ("rate>6000/m", false),
            ("cost<10.1us", true),
            ("percore>90000", true),
        ] {
            let result = Threshold::parse("--threshold", text).unwrap().judge(&report());
            assert_eq!(result.passed, want, "{text}: {result:?}");
        }
    }

    #[test]
    fn what_had_no_response_is_slower_than_any() {
        let judged = |text: &str, change: &dyn Fn(&mut Report)| {
            let mut r = Report { duration_ns: 1_000_000_000, ..Report::default() };
            r.latency.response.record_n(1_000_000, 99);
            r.counts.responses = 99;
            change(&mut r);
            Threshold::parse("--threshold", text).unwrap().judge(&r)
        };
        let kinds: [&dyn Fn(&mut Report); 4] = [
            &|r| r.counts.errors.timeout = 1,
            &|r| r.counts.errors.connect = 1,
            &|r| r.counts.errors.reset = 1,
            &|r| r.counts.unfinished = 1,
        ];
        for (i, kind) in kinds.into_iter().enumerate() {
            for (text, holds) in
                [("p99<2ms", true), ("p99.5<2ms", false), ("max<250ms", false), ("max>1s", true)]
            {
                let result = judged(text, kind);
                assert_eq!(result.passed, holds, "{i}: {text}: {result:?}");
                assert_eq!(result.unanswered, text != "p99<2ms", "{result:?}");
            }
        }
        let all_lost = judged("p99>1s", &|r| {
            (r.latency.response, r.counts.responses) = (crate::Histogram::new(), 0);
            r.counts.errors.timeout = 5;
        });
        assert!(
            all_lost.passed && all_lost.measured.is_none(),
            "a run that only times out is aborted: {all_lost:?}"
        );
    }

    #[test]
    fn a_condition_may_concern_a_step_or_a_scenario() {
        use crate::report::{ScenarioStats, StepStats};
        let mut list = StepStats {
            scenario: "browse".to_owned(),
            name: "list".to_owned(),
            requests: 101,
            responses: 100,
            statuses: [(200, 100)].into(),
            checks: vec![CheckResult { check: "status=2xx".to_owned(), passed: 99, failed: 1 }],
            ..StepStats::default()
        };
        list.response.record_n(5_000_000, 100);
        list.errors.timeout = 1;
        let mut browse = ScenarioStats { name: "browse".to_owned(), done: 50, ..ScenarioStats::default() };
        browse.iteration.record_n(1_000_000_000, 50);
        browse.unfinished = 50;
        let mut r = Report { duration_ns: 1_000_000_000, ..Report::default() };
        (r.steps, r.scenarios) = (vec![list], vec![browse]);
        r.latency.response.record_n(900_000_000, 1000);
        for (text, want) in [
            ("list: p99<6ms", true),
            ("list: p99.5<1h", false), // the timeout is slower than any response
            ("browse.list: p50<6ms", true),
            ("list: errors<1%", true),
            ("list: checks>99%", false),
            ("browse: checks>=99%", true),
            ("browse: iterations>49", true),
            ("browse: iterations>50", false),
            ("browse: iteration.p50<1001ms", true),
            ("browse: iteration.p51<1h", false), // those that the end cut
            ("iterations>=50", true),
            ("p50<6ms", false),
            ("basket: p99<1h", false), // no such step
        ] {
            let result = Threshold::parse("--threshold", text).unwrap().judge(&r);
            assert_eq!(result.passed, want, "{text}: {result:?}");
        }
        for text in ["list: service.p99<1s", "list: cost<1us", "list: p99<x", ": p99<1s", "list: foo<1"] {
            assert!(Threshold::parse("", text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_condition_may_concern_a_replay_or_one_of_its_routes() {
        use crate::report::{ReplayStats, ReplayedRoute, StatusPair};
        let pair =
            |then, now, requests| StatusPair { then: Some(then), now: (now > 0).then_some(now), requests };
        let route = |name: &str, ratio: f64, changed| ReplayedRoute {
            route: name.to_owned(),
            requests: 50,
            statuses_changed: changed,
            timed: 50,
            ln_sum: 50.0 * ratio.ln(),
            ln_squares: 50.0 * ratio.ln().powi(2),
            ..ReplayedRoute::default()
        };
        let mut replay = ReplayStats {
            statuses: vec![pair(200, 200, 97), pair(200, 500, 2), pair(200, 0, 1)],
            lengths_compared: 97,
            lengths_changed: 10,
            routes: vec![route("GET /a/{}", 2.0, 2), route("orders", 0.5, 0)],
            ..ReplayStats::default()
        };
        replay.drift.record_n(1_000_000, 100);
        replay.then.record_n(10_000_000, 100);
        replay.now.record_n(12_000_000, 100);
        let mut r = Report { replay: Some(replay), ..Report::default() };
        for (text, want) in [
            ("statuses-changed<=3%", true),
            ("statuses-changed<3%", false),
            ("lengths-changed<11%", true),
            ("lengths-changed<10%", false),
            ("ratio<1.01", true), // twice as slow, and twice as fast
            ("ratio.p99<1.3", true),
            ("ratio.p50<1.1", false),
            ("drift.p99<2ms", true),
            ("drift.max<900us", false),
            ("orders: ratio<0.6", true),
            ("GET /a/{}: ratio<1.9", false),
            ("GET /a/{}: statuses-changed<=4%", true),
            ("other: ratio<9", false), // no such route
        ] {
            let result = Threshold::parse("--threshold", text).unwrap().judge(&r);
            assert_eq!(result.passed, want, "{text}: {result:?}");
        }
        for text in ["orders: drift.p99<1s", "orders: ratio.p99<1", "ratio<0", "ratio<10%", "drift<1s"] {
            assert!(Threshold::parse("", text).is_err(), "{text}");
        }
        r.replay = None;
        assert!(!Threshold::parse("", "ratio<9").unwrap().judge(&r).passed, "nothing to measure");
    }

    #[test]
    fn codes_that_are_not_ok_are_errors_of_grpc() {
        let mut r = Report::default();
        r.counts.responses = 98;
        r.counts.statuses.insert(200, 98);
        r.counts.grpc.extend([("OK".to_owned(), 90), ("Unavailable".to_owned(), 8)]);
        r.counts.errors.timeout = 2;
        for (text, want) in [("errors<=10%", true), ("errors<9.9%", false), ("failed<=10%", true)] {
            assert_eq!(Threshold::parse("--threshold", text).unwrap().judge(&r).passed, want, "{text}");
        }
    }

    #[test]
    fn nothing_measured_is_not_passed() {
        for text in ["p99<1s", "errors<1%", "checks>0", "cost<1s", "max<1s"] {
            let result = Threshold::parse("--threshold", text).unwrap().judge(&Report::default());
            assert_eq!((result.measured, result.passed), (None, false), "{text}");
        }
    }

    #[test]
    fn a_condition_says_how_many_responses_it_needs() {
        for (text, want) in [
            ("p50<1s", 20),
            ("p99<1s", 1_000),
            ("p99.9<1s", 10_000),
            ("p1<1s", 1_000),
            ("max<1s", 10),
            ("errors<0.1%", 1_000),
            ("failed<50%", 10),
            ("errors<=0", 10),
            ("errors<0.0001%", 10_000),
        ] {
            assert_eq!(Threshold::parse("", text).unwrap().needs(), want, "{text}");
        }
    }

    #[test]
    fn lateness_of_the_generator_is_taken_off_a_time() {
        let mut r = report();
        r.counts.errors.timeout = 0;
        r.health.start_lag.record_n(50_000_000, 100);
        for (text, without, fastest) in [
            ("p50<120ms", Some(true), false),
            ("p50<90ms", Some(true), false),
            ("p99<90ms", Some(false), false),
            ("service.p99<50ms", Some(true), false),
            ("service.p99<48ms", Some(false), false),
            ("p50<2ms", Some(true), true),
            ("p50<1ms", Some(true), true),
            ("errors<1%", None, false),
        ] {
            let condition = Threshold::parse("", text).unwrap();
            let told = (condition.holds_without_lateness(&r), condition.is_broken_by_the_fastest(&r));
            assert_eq!(told, (without, fastest), "{text}");
        }
    }

    #[test]
    fn what_is_no_condition_is_refused() {
        for bad in [
            "",
            "p99",
            "p99=1s",
            "p99<",
            "p99<5",
            "p0<1s",
            "p100<1s",
            "px<1s",
            "errors<150%",
            "rate>0",
            "latency<1s",
            "p99==1s",
        ] {
            assert!(Threshold::parse("--threshold", bad).is_err(), "{bad}");
        }
    }
}
