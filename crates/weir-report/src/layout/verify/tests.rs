//! Consistent reports, and the findings after each change of a number.

use super::*;
use crate::layout::saved::WHOLE_MOST;
use crate::layout::{Format, render};
use crate::report::{Grade, TargetStats, ThreadStats, Window};

/// A consistent report.
fn report() -> Report {
    let mut report = Report { duration_ns: 1_000_000_000, ..Report::default() };
    report.counts.requests = 103;
    report.counts.responses = 100;
    report.counts.errors.reset = 2;
    report.counts.unfinished = 1;
    report.counts.statuses = [(200, 95), (404, 5)].into();
    (report.connections.opened, report.connections.reused) = (4, 96);
    (0..4).for_each(|_| report.connections.dial.record(1000));
    let (latency, phases) = (&mut report.latency, &mut report.phases);
    for h in [
        &mut latency.service,
        &mut latency.response,
        &mut latency.first_byte,
        &mut phases.blocked,
        &mut phases.dns,
        &mut phases.connecting,
        &mut phases.tls,
        &mut phases.sending,
        &mut phases.waiting,
        &mut phases.receiving,
    ] {
        (1..=99).for_each(|us| h.record(us * 1000));
        h.record(Histogram::MOST + 5);
    }
    latency.service_unexpected.record_n(7000, 5);
    let service = latency.service.clone();
    report.threads =
        vec![ThreadStats { requests: 103, responses: 100, errors: 2, service, ..ThreadStats::default() }];
    report
}

/// In saved form; judged last.
fn saved(report: &Report) -> String {
    let mut report = report.clone();
    report.verdict = verdict::judge(&report);
    render(&report, Format::named("json").unwrap())
}

fn paths(text: &str) -> Vec<String> {
    verify(text).unwrap().into_iter().map(|difference| difference.path).collect()
}

#[test]
fn a_report_as_saved_agrees_with_itself() {
    assert_eq!(verify(&saved(&report())).unwrap(), []);
    assert_eq!(verify(&saved(&Report::default())).unwrap(), []);
    assert!(verify("{}x").is_err());
}

#[test]
fn a_changed_figure_is_named_with_both_values() {
    let text = saved(&report()).replace(r#""responses_per_s":100.0"#, r#""responses_per_s":120.0"#);
    let found = verify(&text).unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!(
        found[0].to_string(),
        "figures.responses_per_s: the report says 120.0, its raw data say 100.0"
    );
}

#[test]
fn a_changed_bucket_shows_in_count_and_percentiles() {
    let text = saved(&report()).replacen("[1000,1]", "[1000,9]", 1);
    assert_eq!(paths(&text)[..2], ["latency.service.count", "latency.service.count"], "{:?}", paths(&text));
    let text = saved(&report()).replacen(r#""min":1000"#, r#""min":900"#, 1);
    let found = paths(&text);
    assert!(found.contains(&"latency.service.min".to_owned()), "{found:?}");
    assert!(found.contains(&"figures.service.min".to_owned()), "{found:?}");
}

#[test]
fn totals_are_the_sums_of_their_parts() {
    let mut report = report();
    report.counts.unfinished = 0;
    report.threads[0].errors = 3;
    let tick = Tick { requests: 103, responses: 99, unexpected: 5, errors: 2, ..Tick::default() };
    report.series.ticks = vec![tick];
    assert_eq!(paths(&saved(&report)), ["counts.requests", "threads[].errors", "series.ticks[].responses"]);
}

#[test]
fn what_was_said_of_a_run_follows_from_it() {
    let mut report = report();
    let threshold = Threshold::parse("", "max<1s").unwrap();
    report.thresholds = vec![threshold.judge(&report)];
    assert_eq!((report.thresholds[0].passed, verify(&saved(&report)).unwrap()), (false, vec![]));
    let text = saved(&report).replace(r#""passed":false"#, r#""passed":true"#);
    assert_eq!(paths(&text), ["thresholds[0].passed"]);
    report.thresholds[0].measured = Some(1.0);
    report.thresholds.push(ThresholdResult { threshold: "max=1".to_owned(), ..ThresholdResult::default() });
    assert_eq!(paths(&saved(&report)), ["thresholds[0].measured", "thresholds[1]"]);
    report.thresholds.clear();
    let text = saved(&report).replace(r#""grade":"SUSPECT""#, r#""grade":"VALID""#);
    assert_eq!(paths(&text), ["verdict.grade", "verdict.reasons[0]"]);
    report.verdict = verdict::judge(&report);
    let last = report.verdict.reasons.pop().unwrap();
    let text = render(&report, Format::named("json").unwrap());
    let found = verify(&text).unwrap();
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!((found[0].saved.as_str(), last.grade), ("no such reason", Grade::Valid));
}

#[test]
fn what_rates_are_of_is_part_of_what_was_counted() {
    let window = |responses| Window { length_ns: 900_000_000, responses, ..Window::default() };
    let target =
        TargetStats { requests: 103, responses: 100, errors: 2, in_window: 90, ..TargetStats::default() };
    let mut report = Report { window: Some(window(90)), targets: vec![target], ..report() };
    assert_eq!(verify(&saved(&report)).unwrap(), []);
    report.window = Some(window(101));
    assert_eq!(paths(&saved(&report)), ["window.responses", "targets[].in_window"]);
    report.warmup_ns = 1; // some of them began in the warm-up
    report.targets[0].in_window = 101;
    assert_eq!(verify(&saved(&report)).unwrap(), []);
    report.window = Some(Window { length_ns: 1_000_000_001, ..window(101) });
    assert_eq!(paths(&saved(&report)), ["window.length_ns"]);
}

#[test]
fn what_ticks_connections_and_the_wire_carried_is_within_the_counts() {
    let mut report = report();
    let tick = Tick {
        end_ns: 1_000_000_000,
        requests: 103,
        responses: 100,
        unexpected: 5,
        errors: 2,
        ..Tick::default()
    };
    report.series.ticks = vec![tick];
    report.counts.kept_alive = 100;
    report.ledger.protocols = [("HTTP/1.1".to_owned(), 100)].into();
    assert_eq!(verify(&saved(&report)).unwrap(), []);
    type Change = fn(&mut Report);
    let changes: [(&str, Change); 9] = [
        ("series.ticks[].requests", |r| r.series.ticks[0].requests = 102),
        ("series.ticks[].responses", |r| r.series.ticks[0].responses = 101),
        ("series.ticks[].errors", |r| r.series.ticks[0].errors = 3),
        ("series.ticks[].sent", |r| r.series.ticks[0].sent = 1),
        ("series.ticks[].received", |r| r.series.ticks[0].received = 1),
        ("counts.kept_alive", |r| r.counts.kept_alive = 101),
        ("connections.reused", |r| r.connections.reused = 101),
        ("connections.opened", |r| r.connections.reused = 95),
        ("ledger.protocols", |r| r.ledger.protocols = [("HTTP/2".to_owned(), 99)].into()),
    ];
    for (path, change) in changes {
        let mut changed = report.clone();
        change(&mut changed);
        assert_eq!(paths(&saved(&changed)), [path]);
    }
}

#[test]
fn no_number_in_a_file_makes_a_layout_or_the_check_panic() {
    fn numbers(value: &Value, path: &str, out: &mut Vec<String>) {
        match value {
            Value::Object(map) => map.iter().for_each(|(k, v)| numbers(v, &format!("{path}/{k}"), out)),
            Value::Array(all) => {
                all.iter().enumerate().for_each(|(i, v)| numbers(v, &format!("{path}/{i}"), out));
            }
            Value::Number(_) => out.push(path.to_owned()),
            _ => {}
        }
    }
    let mut report = report();
    // A few buckets are enough, since each adds two numbers.
    let mut few = Histogram::new();
    [1000, 2000, 3_000_000].iter().for_each(|ns| few.record(*ns));
    report.latency.service = few.clone();
    report.latency.response = few.clone();
    report.phases = Default::default();
    report.phases.waiting = few.clone();
    report.threads[0].service = few;
    report.series.ticks = vec![Tick { end_ns: 5, length_ns: 5, ..Tick::default() }];
    report.targets = vec![Default::default()];
    report.websocket = Some(Default::default());
    report.target_cost = Some(Default::default());
    let value = serde_json::to_value(&report).unwrap();
    let mut all = Vec::new();
    numbers(&value, "", &mut all);
    assert!(all.len() > 100);
    // Alternates between 0 and the maximum: trying both for each takes seconds.
    for (i, path) in all.iter().enumerate() {
        let mut value = value.clone();
        *value.pointer_mut(path).unwrap() = Value::from(if i % 2 == 0 { 0 } else { WHOLE_MOST });
        let Ok(report) = of_value(&value) else { continue };
        for format in super::super::FORMATS {
            render(&report, format);
        }
        verify(&value.to_string()).unwrap();
    }
}

#[test]
fn a_report_without_figures_is_checked_in_its_raw_part() {
    let mut report = report();
    report.verdict = verdict::judge(&report);
    let text = serde_json::to_string(&report).unwrap();
    assert_eq!(verify(&text).unwrap(), []);
}
