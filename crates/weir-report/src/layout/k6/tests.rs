//! Compares the k6 layout with the output of the real k6, using the figures that the captured run exported.

use super::text::*;
use super::*;
use crate::report::{CallPlan, CheckResult, Stop, TargetPlan, Tick};
use serde_json::Value;

/// The output of k6 after its run.
fn captured(text: &str) -> &str {
    &text[text.find("\n\n  █").unwrap()..]
}

/// The exported figures of one metric.
fn exported<'a>(all: &'a Value, name: &str) -> impl Fn(&str) -> f64 + 'a {
    let metric = all["metrics"][name].clone();
    move |key| metric[key].as_f64().unwrap()
}

/// The export of k6.
fn export() -> Value {
    serde_json::from_str(include_str!("../../../tests/captured/k6-export.json")).unwrap()
}

/// The sheet of the exported run.
fn sheet_of(export: &Value) -> Sheet {
    let trend = |name: &'static str| {
        let figure = exported(export, name);
        (name, Metric::Trend(STATS.iter().map(|stat| figure(stat)).collect()))
    };
    let counter = |name: &'static str| {
        let figure = exported(export, name);
        (name, Metric::Counter { count: figure("count") as u64, rate: figure("rate") })
    };
    let gauge = |name: &'static str| {
        let [value, min, max] = ["value", "min", "max"].map(|key| exported(export, name)(key) as u64);
        (name, Metric::Gauge { value, min, max })
    };
    let data = |name: &'static str| {
        let figure = exported(export, name);
        (name, Metric::Data { count: figure("count") as u64, rate: figure("rate") })
    };
    let failed = exported(export, "http_req_failed");
    let (passes, fails) = (failed("passes") as u64, failed("fails") as u64);
    let limit = |metric: &str, source: &str, agg: &str, value: String, ok| Threshold {
        metric: metric.to_owned(),
        source: source.to_owned(),
        agg: agg.to_owned(),
        value,
        ok,
    };
    let mean = exported(export, "http_req_duration")("avg");
    let reqs = exported(export, "http_reqs");
    Sheet {
        thresholds: vec![
            limit("http_reqs", "rate>10", "rate", format!("{}/s", number(reqs("rate"))), true),
            limit("http_req_duration", "p(99)<50", "p(99)", "5.15ms".to_owned(), true),
            limit("http_req_duration", "avg<0.001", "avg", duration(mean), false),
            limit("http_req_failed", "rate<0.01", "rate", percent(0.0), true),
        ],
        checks: vec![
            Check { name: "status=200".to_owned(), passes: 24_816, fails: 0 },
            Check { name: "short".to_owned(), passes: 22_281, fails: 2535 },
        ],
        seconds: reqs("count") / reqs("rate"),
        stats: STATS.to_vec(),
        sections: vec![
            Section {
                title: "HTTP",
                metrics: vec![
                    trend("http_req_blocked"),
                    trend("http_req_connecting"),
                    trend("http_req_duration"),
                    trend("http_req_duration{expected_response:true}"),
                    ("http_req_failed", Metric::Rate { passes, total: passes + fails }),
                    trend("http_req_receiving"),
                    trend("http_req_sending"),
                    trend("http_req_tls_handshaking"),
                    trend("http_req_waiting"),
                    counter("http_reqs"),
                ],
            },
            Section {
                title: "EXECUTION",
                metrics: vec![
                    trend("iteration_duration"),
                    counter("iterations"),
                    gauge("vus"),
                    gauge("vus_max"),
                ],
            },
            Section { title: "NETWORK", metrics: vec![data("data_received"), data("data_sent")] },
        ],
        trailer: "running (02.0s), 00/10 VUs, 24816 complete and 0 interrupted iterations\n\
                  default ✓ [ 100% ] 10 VUs  2s\n"
            .to_owned(),
    }
}

#[test]
fn an_exported_run_prints_as_captured() {
    let text = sheet_of(&export()).text();
    assert_eq!(text, captured(include_str!("../../../tests/captured/k6-checks.txt")));
}

#[test]
fn an_exported_run_is_exported_as_captured() {
    let mut captured = export();
    // A hash of the path in k6, which we omit.
    for check in captured["root_group"]["checks"].as_object_mut().unwrap().values_mut() {
        check.as_object_mut().unwrap().remove("id");
    }
    assert_eq!(sheet_of(&captured).export(), captured);
}

#[test]
fn failures_and_chosen_columns_print_as_captured() {
    let duration = vec![0.520_83, 0.024_17, 0.365_56, 9.2, 0.932_27, 1.35, 3.8];
    let expected = vec![0.523_02, 0.024_17, 0.364_03, 9.2, 0.937_12, 1.35, 3.81];
    let iteration = vec![0.550_39, 0.036_92, 0.387_28, 9.27, 0.967_92, 1.44, 3.92];
    // Slightly more, so that truncation does not hit values that binary cannot represent exactly.
    let trend = |ms: Vec<f64>| Metric::Trend(ms.into_iter().map(|ms| ms + 1e-9).collect());
    let reqs = || Metric::Counter { count: 3000, rate: 17_851.045_875 };
    let sheet = Sheet {
        thresholds: Vec::new(),
        checks: Vec::new(),
        seconds: 1.0,
        stats: vec!["avg", "min", "med", "max", "p(90)", "p(95)", "p(99)"],
        sections: vec![
            Section {
                title: "HTTP",
                metrics: vec![
                    ("http_req_duration", trend(duration)),
                    ("http_req_duration{expected_response:true}", trend(expected)),
                    ("http_req_failed", Metric::Rate { passes: 331, total: 3000 }),
                    ("http_reqs", reqs()),
                ],
            },
            Section {
                title: "EXECUTION",
                metrics: vec![("iteration_duration", trend(iteration)), ("iterations", reqs())],
            },
            Section {
                title: "NETWORK",
                metrics: vec![
                    ("data_received", Metric::Data { count: 482_000, rate: 2.9e6 }),
                    ("data_sent", Metric::Data { count: 215_000, rate: 1.3e6 }),
                ],
            },
        ],
        trailer: "running (00m00.2s), 00/10 VUs, 3000 complete and 0 interrupted iterations\n\
                  default ✓ [ 100% ] 10 VUs  00m00.2s/10m0s  3000/3000 shared iters\n"
            .to_owned(),
    };
    assert_eq!(sheet.text(), captured(include_str!("../../../tests/captured/k6-compact.txt")));
}

/// A report of 3,000 requests, of which 331 got a 404, by ten users.
fn report() -> Report {
    let mut report = Report { duration_ns: 168_057_380, end: End::Requests, ..Report::default() };
    report.plan.connections = 10;
    report.plan.graceful_stop_ns = 30_000_000_000;
    report.plan.stop = Stop { requests: Some(3000), duration_ns: None };
    report.counts.responses = 3000;
    report.counts.statuses = [(200, 2669), (404, 331)].into();
    report.bytes.received_body = 482_000;
    report.bytes.sent_head = 215_000;
    for (ns, n) in [(24_170, 1), (365_560, 2668)] {
        report.latency.service.record_n(ns, n);
        report.latency.response.record_n(ns, n);
    }
    for h in [&mut report.latency.service, &mut report.latency.service_unexpected] {
        h.record_n(9_200_000, 331);
    }
    report
}

/// Names, dots and labels, without figures.
fn labels(text: &str) -> Vec<String> {
    let word = |word: &str| match word.split_once('=') {
        Some((label, _)) => format!("{label}="),
        None if word.starts_with(|c: char| c.is_ascii_digit()) => "0".to_owned(),
        None => word.to_owned(),
    };
    text.lines().map(|line| line.split_whitespace().map(word).collect::<Vec<_>>().join(" ")).collect()
}

#[test]
fn a_report_has_the_lines_of_a_captured_run() {
    let mut short = report();
    let p99 = |line: String| line.replace(" p(99)=", "");
    let want: Vec<_> = labels(captured(include_str!("../../../tests/captured/k6-compact.txt")))
        .into_iter()
        .map(p99)
        .collect();
    assert_eq!(labels(&compact(&short)), want);
    let text = compact(&short);
    assert!(text.contains("http_req_failed................: 11.03% 331 out of 3000\n"), "{text}");
    assert!(text.contains("running (00m00.2s), 00/10 VUs, 3000 complete"), "{text}");
    assert!(text.contains("      { expected_response:true }...: avg=365."), "{text}");

    short.plan.stop = Stop { requests: None, duration_ns: Some(2_000_000_000) };
    short.duration_ns = 2_000_000_000;
    (short.bytes.received_body, short.bytes.sent_head) = (4_700_000, 2_100_000);
    short.series.ticks = vec![Tick { users: 10, ..Tick::default() }, Tick { users: 2, ..Tick::default() }];
    let text = full(&short);
    assert_eq!(labels(&text), labels(captured(include_str!("../../../tests/captured/k6-full.txt"))));
    assert!(text.contains("vus............................: 2      min=2           max=10\n"), "{text}");
}

#[test]
fn thresholds_stand_under_the_metric_of_k6() {
    let mut report = report();
    let result = |threshold: &str, measured, passed| ThresholdResult {
        threshold: threshold.to_owned(),
        measured,
        passed,
        ..ThresholdResult::default()
    };
    report.thresholds = vec![
        result("service.p99.9<20ms", Some(25e6), false),
        result("errors<0.1%", Some(0.11033), false),
        result("rate>5000", Some(17_851.045_875), true),
        result("mean<1s", None, false),
        result("http_req_waiting: p(95) < 200", Some(25e6), true),
        result("http_req_failed: rate<0.01", Some(0.11033), false),
        result("http_reqs: count>100", Some(3000.0), true),
    ];
    report.checks = vec![CheckResult { check: "status=200".to_owned(), passed: 2669, failed: 331 }];
    let text = compact(&report);
    let want = "\n\n  █ THRESHOLDS \n\n    http_req_duration\n    ✗ 'p(99.9)<20' p(99.9)=25ms\n    ✗ 'avg<1000' avg=[no data]\n\n    \
                http_req_failed\n    ✗ 'rate<0.001' rate=11.03%\n    ✗ 'rate<0.01' rate=11.03%\n\n    \
                http_req_waiting\n    ✓ 'p(95) < 200' p(95)=25ms\n\n    http_reqs\n    \
                ✓ 'rate>5000' rate=17851.045875/s\n    ✓ 'count>100' count=3000\n\n\n  █ TOTAL RESULTS \n";
    assert!(text.starts_with(want), "{text}");
    // In the file, a condition's value says whether it was violated.
    let export = sheet(&report, Mode::Full).export();
    let of = |metric: &str| export["metrics"][metric]["thresholds"].clone();
    assert_eq!(of("http_req_duration"), serde_json::json!({ "p(99.9)<20": true, "avg<1000": true }));
    assert_eq!(of("http_reqs"), serde_json::json!({ "rate>5000": false, "count>100": false }));
    assert!(text.contains("\n    ✗ status=200\n      ↳  88% — ✓ 2669 / ✗ 331\n\n    HTTP\n"), "{text}");
}

#[test]
fn an_iteration_ends_with_its_sleep() {
    let mut report = report();
    report.plan.think_ns = 100_000_000;
    let text = compact(&report);
    assert!(
        text.contains("iteration_duration.............: avg=100.36ms min=100.02ms med=100.36ms"),
        "{text}"
    );
    assert!(text.contains("http_req_duration..............: avg=1.34ms"), "{text}");
}

#[test]
fn grpc_calls_have_a_section_of_their_own() {
    let mut report = report();
    report.counts.grpc = [("OK".to_owned(), 3000)].into();
    report.plan.pace = Pace::Rate { per_second: 500.0 };
    report.counts.unsent = 7;
    report.end = End::Interrupted;
    let text = compact(&report);
    assert!(!text.contains("http_req"), "{text}");
    assert!(text.contains("\n    GRPC\n    grpc_req_duration....: avg="), "{text}");
    assert!(text.contains("    dropped_iterations...: 7      41.65"), "{text}");
    assert!(text.ends_with("default ✗ [ 100% ] 00/10 VUs  10m0s  500.00 iters/s\n"), "{text}");
    assert_eq!(percentile(&Histogram::new(), 0.9), 0.0);
    // No call got a response, but they were gRPC calls.
    report.counts.grpc.clear();
    report.plan.targets = vec![TargetPlan { call: Some(CallPlan::default()), ..TargetPlan::default() }];
    assert!(!compact(&report).contains("http_req"), "{}", compact(&report));
}
