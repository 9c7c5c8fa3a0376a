//! Conditions in k6's syntax: `http_req_duration: p(95)<200`. A bare number has k6's meaning: milliseconds, a share,
//! a count.

use super::metric::{Counter, Metric, Stat, Trend};
use super::{Order, Threshold};
use crate::units;

/// A k6 metric, and its equivalent here.
enum Kind {
    Counter(Counter),
    Rate(Metric),
    Trend(Trend),
}

/// The metrics of k6, sorted by name. Without scenarios, an iteration of its script is one
/// request here.
static METRICS: [(&str, Kind); 17] = [
    ("checks", Kind::Rate(Metric::Checks)),
    ("data_received", Kind::Counter(Counter::BytesReceived)),
    ("data_sent", Kind::Counter(Counter::BytesSent)),
    ("dropped_iterations", Kind::Counter(Counter::Unsent)),
    ("grpc_req_duration", Kind::Trend(Trend::Service)),
    ("http_req_blocked", Kind::Trend(Trend::Blocked)),
    ("http_req_connecting", Kind::Trend(Trend::Connecting)),
    ("http_req_duration", Kind::Trend(Trend::Service)),
    ("http_req_duration{expected_response:true}", Kind::Trend(Trend::Expected)),
    ("http_req_failed", Kind::Rate(Metric::Failed)),
    ("http_req_receiving", Kind::Trend(Trend::Receiving)),
    ("http_req_sending", Kind::Trend(Trend::Sending)),
    ("http_req_tls_handshaking", Kind::Trend(Trend::Tls)),
    ("http_req_waiting", Kind::Trend(Trend::Waiting)),
    ("http_reqs", Kind::Counter(Counter::Requests)),
    ("iteration_duration", Kind::Trend(Trend::Iteration)),
    ("iterations", Kind::Counter(Counter::Iterations)),
];

/// Splits `http_req_duration: p(95)<200` into metric and condition, also with the quotes and brackets of a k6 script.
pub(crate) fn split(text: &str) -> Option<(&str, &str)> {
    let (metric, condition) = text.rsplit_once(':')?;
    let quotes = ['\'', '"', '[', ']', ' '];
    Some((metric.trim_matches(quotes), condition.trim_matches(quotes)))
}

/// Translates one of our conditions to k6: its metric, and `p(99)<50` for `p99<50ms`. `None` if k6 has no such
/// metric.
pub(crate) fn of_ours(text: &str) -> Option<(&'static str, String)> {
    let Threshold { metric, order, bound, .. } = Threshold::parse("", text).ok()?;
    let (metric, stat, bound) = match metric {
        Metric::Trend(_, stat) => ("http_req_duration", stat.in_k6(), bound / 1e6),
        Metric::Errors | Metric::Failed => ("http_req_failed", "rate".into(), bound),
        Metric::Checks => ("checks", "rate".into(), bound),
        Metric::Rate => ("http_reqs", "rate".into(), bound),
        Metric::CostUs | Metric::Count(_) | Metric::PerCore | Metric::PerSecond(_) | Metric::Replayed(_) => {
            return None;
        }
    };
    Some((metric, format!("{stat}{}{bound}", order.sign())))
}

pub(super) fn is_metric(name: &str) -> bool {
    metric(name).is_some()
}

/// An example condition on it.
pub(super) fn example(name: &str) -> &'static str {
    match metric(name) {
        Some(Kind::Counter(_)) => "count>1000",
        Some(Kind::Rate(_)) => "rate<0.01",
        _ => "p(95)<200",
    }
}

pub(super) fn parse(name: &str, condition: &str) -> Result<(Metric, Order, f64), String> {
    let names = || METRICS.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
    let kind = metric(name).ok_or_else(|| format!("k6's metrics are known as {}", names()))?;
    let form =
        || format!("expected a condition as k6 has it: '{name}: {}', one for each option", example(name));
    let (stat, order, value) = Order::split(condition).ok_or_else(form)?;
    let metric = match (kind, stat) {
        (Kind::Counter(counter), "count") => Metric::Count(*counter),
        (Kind::Counter(counter), "rate") => Metric::PerSecond(*counter),
        (Kind::Rate(metric), "rate") => *metric,
        (Kind::Trend(trend), stat) => Metric::Trend(*trend, Stat::named(stat).ok_or_else(form)?),
        _ => return Err(form()),
    };
    let bound = match kind {
        // Milliseconds, unless it has a unit.
        Kind::Trend(_) => match value.parse::<f64>() {
            Ok(ms) if ms.is_finite() && ms >= 0.0 => Some(ms * 1e6),
            _ => units::duration(value).map(|d| d.as_nanos() as f64),
        },
        Kind::Counter(_) => value.parse::<f64>().ok().filter(|n| n.is_finite() && *n >= 0.0),
        Kind::Rate(_) => metric.bound(value),
    };
    Ok((metric, order, bound.ok_or_else(form)?))
}

fn metric(name: &str) -> Option<&'static Kind> {
    METRICS.iter().find(|(known, _)| *known == name).map(|(_, kind)| kind)
}

#[cfg(test)]
mod tests {
    use crate::Report;
    use crate::report::CheckResult;
    use crate::threshold::{Threshold, k6_of_ours, quantile_of};

    fn report() -> Report {
        let mut r = Report { duration_ns: 2_000_000_000, ..Report::default() };
        for ms in 1..=100 {
            r.latency.service.record(ms * 1_000_000);
            r.latency.response.record(ms * 2_000_000);
            r.phases.waiting.record(500_000);
        }
        (1..=10).for_each(|ms| r.latency.service_unexpected.record((90 + ms) * 1_000_000));
        r.plan.think_ns = 1_000_000_000;
        r.counts.responses = 100;
        r.counts.statuses.extend([(200, 90), (500, 10)]);
        r.bytes.received_body = 4000;
        r.checks = vec![CheckResult { check: String::new(), passed: 9, failed: 1 }];
        r
    }

    #[test]
    fn conditions_of_k6_hold_as_in_k6() {
        for (text, want) in [
            ("http_req_duration: p(95)<96", true),
            ("http_req_duration: p(95)<95", false),
            ("http_req_duration:p(95)<96ms", true),
            ("'http_req_duration': ['avg<51']", true),
            ("http_req_duration: med>=50", true),
            ("http_req_duration: max<=100", true),
            ("http_req_duration: min<1", false),
            ("http_req_duration{expected_response:true}: max<91", true),
            ("http_req_waiting: p(99.9)<0.51", true),
            ("iteration_duration: min>1001", true),
            ("iteration_duration: min>1003", false),
            ("http_req_failed: rate<0.11", true),
            ("http_req_failed: rate<0.01", false),
            ("http_req_failed: rate==0", false),
            ("http_req_failed: rate!=0", true),
            ("http_reqs: count===100", true),
            ("http_reqs: rate>=50", true),
            ("iterations: rate>50", false),
            ("checks: rate>0.89", true),
            ("data_received: count>3999", true),
            ("data_sent: count>0", false),
            ("dropped_iterations: count<1", true),
        ] {
            let result = Threshold::parse("--threshold", text).unwrap().judge(&report());
            assert_eq!(result.passed, want, "{text}: {result:?}");
        }
        assert_eq!(quantile_of("http_req_duration: p(99)<5"), Some(0.99));
    }

    #[test]
    fn our_conditions_are_said_in_the_words_of_k6() {
        for (ours, metric, condition) in [
            ("p99<50ms", "http_req_duration", "p(99)<50"),
            ("p99.9 <= 1s", "http_req_duration", "p(99.9)<=1000"),
            ("p(95)<150us", "http_req_duration", "p(95)<0.15"),
            ("service.p7<1.5ms", "http_req_duration", "p(7)<1.5"),
            ("med>1ms", "http_req_duration", "med>1"),
            ("mean<1s", "http_req_duration", "avg<1000"),
            ("max<2s", "http_req_duration", "max<2000"),
            ("errors<0.1%", "http_req_failed", "rate<0.001"),
            ("failed<=0.05", "http_req_failed", "rate<=0.05"),
            ("checks>99%", "checks", "rate>0.99"),
            ("rate>5k", "http_reqs", "rate>5000"),
        ] {
            assert_eq!(k6_of_ours(ours), Some((metric, condition.to_owned())), "{ours}");
            // Parsing the k6 form returns the same condition.
            let back = Threshold::parse("--threshold", &format!("{metric}: {condition}")).unwrap();
            let ours = Threshold::parse("--threshold", ours).unwrap();
            assert_eq!((back.order, back.bound), (ours.order, ours.bound), "{condition}");
        }
        assert_eq!((k6_of_ours("cost<20us"), k6_of_ours("percore>5000")), (None, None));
    }

    #[test]
    fn what_k6_would_refuse_is_refused() {
        for (bad, hint) in [
            ("http_req_duration<200", "k6's metrics need a statistic: 'http_req_duration: p(95)<200'"),
            ("http_req_failed<0.01", "'http_req_failed: rate<0.01'"),
            ("http_req_duration: rate<0.01", "expected a condition as k6 has it"),
            ("http_req_failed: p(95)<200", "'http_req_failed: rate<0.01'"),
            ("http_req_duration: p(95)=200", "expected a condition"),
            ("http_req_duration: ['p(95)<200', 'p(99)<500']", "one for each option"),
            ("http_req_duration: p(95)<-1", "expected a condition"),
            ("http_req_failed: rate<2", "expected a condition"),
            ("http_req_time: p(95)<200", "k6's metrics are known as checks, data_received"),
        ] {
            let told = Threshold::parse("--threshold", bad).unwrap_err().to_string();
            assert!(told.contains(hint), "{bad}: {told}");
        }
    }
}
