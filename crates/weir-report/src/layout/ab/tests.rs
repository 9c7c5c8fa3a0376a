//! Compares the ab layout with the output of the real ab.

use super::*;
use crate::report::TargetPlan;

/// The part of ab's output below its copyright.
fn captured(text: &str) -> &str {
    &text[text.find("Benchmarking").unwrap()..]
}

/// The head of a captured run of `n` requests, then its table and percentiles from the figures given.
fn report(n: u64, seconds: f64, clients: u64) -> Report {
    let mut report = Report { duration_ns: (seconds * 1e9).round() as u64, ..Report::default() };
    report.plan.connections = clients;
    report.plan.targets = vec![TargetPlan {
        host: "127.0.0.1".to_owned(),
        port: 18980,
        path: "/".to_owned(),
        ..TargetPlan::default()
    }];
    report.ledger.server = Some("nginx/1.22.1".to_owned());
    report.targets = vec![TargetStats { document_bytes: Some(13), ..TargetStats::default() }];
    report.counts.responses = n;
    report.counts.statuses = [(200, n)].into();
    report.bytes.received_body = 13 * n;
    report
}

fn row([min, mean, median, max]: [u64; 4], stdev_ms: f64) -> Row {
    let us = |ms| ms * 1000;
    Row { min: us(min), mean: us(mean), stdev: stdev_ms * 1000.0, median: us(median), max: us(max) }
}

fn within(ms: [u64; 9]) -> Vec<(u64, u64)> {
    [50, 66, 75, 80, 90, 95, 98, 99, 100].into_iter().zip(ms.map(|ms| ms * 1000)).collect()
}

#[test]
fn a_plain_run_prints_as_captured() {
    let mut report = report(2000, 2000.0 / 16_045.57, 10);
    report.bytes.received_head = 312_000 - 26_000;
    let rows = Rows {
        connect: row([0, 0, 0, 3], 0.1),
        processing: row([0, 0, 0, 3], 0.2),
        waiting: row([0, 0, 0, 3], 0.2),
        total: row([0, 1, 1, 3], 0.2),
        within: within([1, 1, 1, 1, 1, 1, 1, 2, 3]),
    };
    let text = head(&report) + &rows.table() + &rows.percentiles();
    assert_eq!(text, captured(include_str!("../../../tests/captured/ab.txt")));
}

#[test]
fn other_statuses_and_kept_connections_have_their_lines() {
    let mut report = report(2000, 2000.0 / 139_460.29, 10);
    report.plan.keepalive = true;
    report.plan.targets[0].path = "/missing".to_owned();
    report.targets.clear();
    report.counts.statuses = [(404, 2000)].into();
    report.counts.kept_alive = 2000;
    (report.bytes.received_body, report.bytes.received_head) = (6000, 308_000);
    let zero = || row([0; 4], 0.0);
    let rows =
        Rows { connect: zero(), processing: zero(), waiting: zero(), total: zero(), within: within([0; 9]) };
    let text = head(&report) + &rows.table() + &rows.percentiles();
    assert_eq!(text, captured(include_str!("../../../tests/captured/ab-k-404.txt")));
}

#[test]
fn tls_is_told_in_the_words_of_openssl() {
    let mut report = report(500, 500.0 / 51_749.12, 5);
    report.plan.keepalive = true;
    (report.plan.targets[0].port, report.plan.targets[0].path) = (18981, "/x?y=1".to_owned());
    report.counts.kept_alive = 500;
    report.bytes.received_head = 80_500 - 6500;
    report.ledger.tls_version = Some("TLSv1.2".to_owned());
    report.ledger.tls_cipher = Some("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384".to_owned());
    (report.ledger.tls_group, report.ledger.tls_key_bits) = (Some("X25519".to_owned()), Some(2048));
    let rows = Rows {
        connect: row([0, 0, 0, 2], 0.2),
        processing: row([0, 0, 0, 2], 0.1),
        waiting: row([0, 0, 0, 2], 0.1),
        total: row([0, 0, 0, 3], 0.2),
        within: within([0, 0, 0, 0, 0, 0, 0, 2, 3]),
    };
    let text = head(&report) + &rows.table() + &rows.percentiles();
    assert_eq!(text, captured(include_str!("../../../tests/captured/ab-tls.txt")));
    let names =
        ["TLS13_AES_128_GCM_SHA256", "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256"].map(openssl_name);
    assert_eq!(names, ["TLS_AES_128_GCM_SHA256", "ECDHE-ECDSA-CHACHA20-POLY1305"]);
    report.plan.targets[0].host = "example.com".to_owned();
    assert!(head(&report).contains("253 bits\nTLS Server Name:        example.com\n\nDocument"));
}

#[test]
fn bodies_sent_and_bodies_of_another_length_have_their_lines() {
    let mut post = report(100, 100.0 / 19_440.12, 2);
    post.plan.targets[0].body_bytes = 5;
    (post.bytes.received_head, post.bytes.sent_head, post.bytes.sent_body) = (14_300, 12_900, 500);
    let all = captured(include_str!("../../../tests/captured/ab-post.txt"));
    assert_eq!(head(&post), all[..all.find("\nConnection Times").unwrap()]);

    let mut tail = report(500, 500.0 / 526.54, 2);
    tail.ledger.server = Some("BaseHTTP/0.6 Python/3".to_owned());
    tail.plan.targets[0].port = 18982;
    tail.counts.other_length = 48;
    (tail.bytes.received_body, tail.bytes.received_head) = (6164, 62_116 - 6164);
    let rows = Rows {
        connect: row([0, 0, 0, 7], 0.4),
        processing: row([0, 4, 1, 59], 7.4),
        waiting: row([0, 3, 1, 59], 7.2),
        total: row([0, 4, 1, 59], 7.4),
        within: within([1, 3, 5, 6, 9, 12, 21, 52, 59]),
    };
    let text = head(&tail) + &rows.table() + &rows.percentiles();
    assert_eq!(text, captured(include_str!("../../../tests/captured/ab-tail.txt")));
}

#[test]
fn a_report_fills_the_rows_by_the_rules_of_ab() {
    let mut one = report(1, 1.0 / 6535.95, 1);
    one.bytes.received_head = 143;
    for h in [&mut one.phases.blocked, &mut one.phases.waiting, &mut one.latency.service] {
        h.record(100_000);
    }
    one.latency.response.record(153_000);
    assert_eq!(print(&one), captured(include_str!("../../../tests/captured/ab-1.txt")));

    let mut h = Histogram::new();
    [1_000_000, 2_000_000, 9_000_000].iter().for_each(|ns| h.record(*ns));
    let row = Row::of(&h);
    assert!((5500..=5510).contains(&row.median), "of three, between second and third: {}", row.median);
    assert_eq!((row.min, row.mean, row.max, row.stdev.round()), (1000, 4000, 9000, 4359.0));
    assert_eq!(print(&report(0, 1.0, 1)).lines().last(), Some("HTML transferred:       0 bytes"));
}

#[test]
fn the_time_of_a_request_follows_from_how_many_were_under_way() {
    let told = |report: &Report| {
        let text = head(report);
        let line = |label: &str| {
            let found = text.lines().find_map(|line| line.strip_prefix(label)).unwrap();
            found.trim().to_owned()
        };
        (line("Concurrency Level:"), line("Time per request:"))
    };
    let mut many = report(10_000, 10.0, 5);
    (many.plan.streams, many.plan.pipeline) = (4, 1);
    assert_eq!(told(&many), ("20".to_owned(), "20.000 [ms] (mean)".to_owned()));
    (many.plan.streams, many.plan.pipeline) = (1, 2);
    assert_eq!(told(&many), ("10".to_owned(), "10.000 [ms] (mean)".to_owned()));
    // At 1,000/s and 8 ms each, 8 of the 1,000 possible connections are in use.
    let mut rate = report(10_000, 10.0, 1000);
    rate.plan.pace = Pace::Rate { per_second: 1000.0 };
    rate.latency.response.record_n(8_000_000, 10_000);
    assert_eq!(told(&rate), ("8".to_owned(), "8.000 [ms] (mean)".to_owned()));
    let mut paused = report(100, 10.0, 10);
    paused.plan.think_ns = 990_000_000;
    paused.latency.response.record_n(10_000_000, 100);
    assert_eq!(told(&paused), ("1".to_owned(), "10.000 [ms] (mean)".to_owned()));
}

#[test]
fn a_mean_far_from_the_median_is_warned_of() {
    // The text is from the program's strings; no run at hand triggered it.
    assert_eq!(row([0, 4, 1, 9], 3.0).warning("the total time"), "");
    assert!(row([0, 5, 1, 9], 3.0).warning("the total time").starts_with(
        "WARNING: The median and mean for the total time are not within a normal deviation\n        These"
    ));
    assert!(row([0, 9, 1, 9], 3.0).warning("the total time").starts_with(
        "ERROR: The median and mean for the total time are more than twice the standard\n       deviation"
    ));
}
