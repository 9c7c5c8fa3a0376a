//! `oha-json`: the output of oha with `--output-format json`.
//!
//! Derived from output of oha 1.16.0 (the files `oha*.json` in tests/captured); times in seconds. Durations start at
//! the intended start, as in oha with latency correction. One figure has a different resolution: `rps` covers windows
//! of 10 ms in oha, here the report's ticks of a second. oha considers only responses: without any, connections,
//! rates and bytes are those of an empty run. (Once there are responses, our `totalData` also has the bytes of
//! truncated ones; oha's does not.)

use super::format::Format;
use super::ghz::marks;
use crate::Histogram;
use crate::report::Report;
use serde_json::{Map, Value, json};

pub(super) static FORMAT: Format = Format {
    name: "oha-json",
    about: "the JSON of oha --output-format json",
    differs: "`rps` describes seconds, not 10 ms windows. Bytes of truncated responses count.",
    print,
};

const PERCENTILES: [f64; 9] = [10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 99.0, 99.9, 99.99];

/// The window of oha's rates.
const WINDOW_NS: u64 = 10_000_000;

fn print(report: &Report) -> String {
    // JSON with string keys, so serialization cannot fail.
    serde_json::to_string_pretty(&value(report)).unwrap_or_default() + "\n"
}

fn value(report: &Report) -> Value {
    let (times, seconds) = (&report.latency.response, report.seconds());
    let finished = report.finished();
    let success = some(finished, report.counts.responses as f64 / finished as f64);
    let rate = finished as f64 / seconds;
    let some_responses = report.counts.responses > 0;
    let body = if some_responses { report.bytes.received_body } else { 0 };
    let none = Histogram::new();
    let dial = if some_responses { &report.connections.dial } else { &none };
    let ms = |ns: u64| rounded_ms(times, ns as f64);
    json!({
        "summary": {
            "successRate": success,
            "total": seconds,
            "slowest": secs(times, times.max() as f64),
            "fastest": secs(times, times.min() as f64),
            "average": secs(times, times.mean()),
            "requestsPerSec": rate,
            "totalData": body,
            "sizePerRequest": body.checked_div(report.counts.responses),
            "sizePerSec": body as f64 / seconds,
        },
        "metrics": {
            "success_rate": success,
            "requests_per_sec": rate,
            "latency_ms": {
                "min": ms(times.min()),
                "mean": rounded_ms(times, times.mean()),
                "p50": ms(at(times, 50.0)),
                "p95": ms(at(times, 95.0)),
                "p99": ms(at(times, 99.0)),
                "max": ms(times.max()),
            },
        },
        "responseTimeHistogram": histogram(times),
        "latencyPercentiles": percentiles(times),
        "firstByteHistogram": histogram(&report.latency.first_byte),
        "firstBytePercentiles": percentiles(&report.latency.first_byte),
        "rps": rates(report),
        "details": {
            "DNSDialup": triple(dial),
            // Names are looked up once per run, so every connection has the same lookup.
            "DNSLookup": triple(&looked_up(report, dial)),
            "firstByte": triple(&report.latency.first_byte),
        },
        "statusCodeDistribution": report.counts.statuses,
        "errorDistribution": report.counts.error_texts,
    })
}

/// The value at oha's position for a percentile: the share of the number of values, truncated, counted from 0.
fn at(h: &Histogram, percent: f64) -> u64 {
    h.at_rank((percent / 100.0 * h.count() as f64) as u64 + 1)
}

/// A figure, or `null` without values.
fn some(count: u64, value: f64) -> Value {
    if count == 0 { Value::Null } else { json!(value) }
}

fn secs(h: &Histogram, ns: f64) -> Value {
    some(h.count(), ns / 1e9)
}

fn rounded_ms(h: &Histogram, ns: f64) -> Value {
    some(h.count(), (ns / 1e3).round() / 1e3)
}

fn histogram(h: &Histogram) -> Value {
    if h.is_empty() {
        return json!({ "NaN": 0 });
    }
    marks(h)
        .into_iter()
        .map(|(mark, count)| ((mark / 1e9).to_string(), json!(count)))
        .collect::<Map<_, _>>()
        .into()
}

fn percentiles(h: &Histogram) -> Value {
    PERCENTILES.iter().map(|p| (format!("p{p}"), secs(h, at(h, *p) as f64))).collect::<Map<_, _>>().into()
}

fn triple(h: &Histogram) -> Value {
    json!({
        "average": secs(h, h.mean()),
        "fastest": secs(h, h.min() as f64),
        "slowest": secs(h, h.max() as f64),
    })
}

fn looked_up(report: &Report, dial: &Histogram) -> Histogram {
    let mut h = Histogram::new();
    h.record_n(report.ledger.dns_ns, dial.count());
    h
}

/// Rates of the ticks, in responses per second.
fn rates(report: &Report) -> Value {
    let mut rates: Vec<f64> = report
        .series
        .ticks
        .iter()
        .filter(|tick| tick.length_ns > 0 && report.counts.responses > 0)
        .map(|tick| tick.responses as f64 / (tick.length_ns as f64 / 1e9))
        .collect();
    rates.sort_by(f64::total_cmp);
    let n = rates.len() as f64;
    let mean = rates.iter().sum::<f64>() / n;
    let spread = (rates.iter().map(|r| (r - mean).powi(2)).sum::<f64>() / (n - 1.0)).sqrt();
    // A single rate has no deviation, and NaN is written as null. A tick longer than a window is several rates to
    // oha; we take them as equal.
    let stdev = match rates.len() {
        0 => f64::NAN,
        1 if report.duration_ns <= WINDOW_NS => f64::NAN,
        1 => 0.0,
        _ => spread,
    };
    let at = |p: &f64| rates.get((p / 100.0 * n) as usize);
    let percentiles: Map<String, Value> =
        PERCENTILES.iter().map(|p| (format!("p{p}"), json!(at(p)))).collect();
    json!({
        "mean": mean,
        "stddev": stdev,
        "max": rates.last(),
        "min": rates.first(),
        "percentiles": percentiles,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Tick;

    /// Every key in order of appearance, with its value's type. Histogram marks count as figures, not keys.
    fn shape(text: &str) -> Vec<String> {
        fn walk(path: &str, value: &Value, out: &mut Vec<String>) {
            match value {
                Value::Object(map) if !path.ends_with("Histogram") => {
                    out.push(format!("{path} {{}}"));
                    map.iter().for_each(|(key, value)| walk(&format!("{path}.{key}"), value, out));
                }
                Value::Object(map) => out.push(format!("{path} {} marks", map.len())),
                Value::Number(n) => {
                    out.push(format!("{path} {}", if n.is_f64() { "float" } else { "whole" }))
                }
                Value::Null => out.push(format!("{path} null")),
                _ => out.push(format!("{path} other")),
            }
        }
        let mut out = Vec::new();
        walk("", &serde_json::from_str(text).unwrap(), &mut out);
        out
    }

    fn report() -> Report {
        let mut report = Report { duration_ns: 183_218_127, ..Report::default() };
        let times = [95_622, 158_767, 222_462, 6_118_892, 13_614_645];
        times.iter().for_each(|ns| report.latency.response.record(*ns));
        times.iter().for_each(|ns| report.latency.first_byte.record(*ns));
        report.connections.dial.record(231_485);
        report.ledger.dns_ns = 6059;
        report.counts.responses = 5;
        report.counts.statuses = [(200, 5)].into();
        report.bytes.received_body = 65;
        let tick = |responses| Tick { responses, length_ns: 100_000_000, ..Tick::default() };
        report.series.ticks = vec![tick(3), tick(2)];
        report
    }

    #[test]
    fn keys_and_kinds_are_those_of_a_captured_run() {
        assert_eq!(shape(&print(&report())), shape(include_str!("../../tests/captured/oha.json")));
    }

    #[test]
    fn a_run_that_reached_nothing_prints_as_captured() {
        let mut report = Report { duration_ns: 1_905_080, ..Report::default() };
        report.counts.errors.connect = 5;
        report.counts.error_texts = [("Connection refused (os error 111)".to_owned(), 5)].into();
        assert_eq!(print(&report).trim_end(), include_str!("../../tests/captured/oha-refused.json"));
    }

    #[test]
    fn truncated_bodies_print_as_captured() {
        let mut report = Report { duration_ns: 4_000_000, ..Report::default() };
        report.counts.errors.reset = 6;
        report.counts.error_texts = [("error reading a body from connection".to_owned(), 6)].into();
        report.bytes.received_body = 3000;
        report.ledger.dns_ns = 6059;
        report.connections.dial.record(231_485);
        report.series.ticks = vec![Tick { errors: 6, length_ns: 4_000_000, ..Tick::default() }];
        let text = print(&report);
        assert_eq!(shape(&text), shape(include_str!("../../tests/captured/oha-truncated.json")));
        assert!(text.contains(r#""totalData": 0,"#), "{text}");
    }

    #[test]
    fn the_spread_of_one_tick() {
        let mut report = report();
        report.series.ticks = vec![Tick { responses: 5, length_ns: 183_218_127, ..Tick::default() }];
        assert!(print(&report).contains(r#""stddev": 0.0"#));
        report.duration_ns = WINDOW_NS;
        assert!(print(&report).contains(r#""stddev": null"#));
    }

    #[test]
    fn figures_are_written_as_oha_writes_them() {
        let text = print(&report());
        for line in [
            r#""total": 0.183218127,"#,
            r#""slowest": 0.013614645,"#,
            r#""fastest": 0.000095622,"#,
            r#""sizePerRequest": 13,"#,
            r#""min": 0.096,"#,
            r#""max": 13.615"#,
            r#""0.000095622": 1,"#,
            r#""p99.99": 0.013614645"#,
            r#""average": 6.059e-6,"#,
            r#""mean": 25.0,"#,
        ] {
            assert!(text.contains(line), "{line} in {text}");
        }
    }
}
