//! The page is well-formed, loads nothing, and escapes all text from peers.
//! crates/weirgate/tests/e2e/browsers.rs opens it in a browser.

use super::*;
use crate::page::testing::expect_sound;
use crate::report::{CheckResult, Grade, Reason, TargetCost, TargetPlan, ThresholdResult};

fn report() -> Report {
    let mut r =
        Report { duration_ns: 3_000_000_000, started_unix_ms: 1_795_284_234_000, ..Report::default() };
    r.plan.targets = vec![TargetPlan {
        method: "GET".to_owned(),
        url: "http://a/?<script>alert(1)</script>\"&x".to_owned(),
        ..TargetPlan::default()
    }];
    r.verdict.grade = Grade::Suspect;
    r.verdict.reasons = vec![Reason {
        code: "too_short".to_owned(),
        grade: Grade::Suspect,
        text: "p99 of 10 < 100".to_owned(),
    }];
    for i in 1..=3000u64 {
        r.latency.service.record(i * i * 10);
        r.latency.response.record(i * i * 11);
        r.phases.waiting.record(i * 1000);
    }
    r.counts.responses = 3000;
    r.counts.statuses = [(200, 2900), (503, 100)].into();
    r.counts.errors.reset = 7;
    r.counts.error_texts = [("reset <by> peer".to_owned(), 7)].into();
    let tick = |i: u64, responses| Tick {
        end_ns: i * 1_000_000_000,
        length_ns: 1_000_000_000,
        responses,
        users: i,
        response: Percentiles::of(&r.latency.response),
        ..Tick::default()
    };
    let rest = Tick { length_ns: 1_000_000, ..tick(4, 7777) };
    r.series.tick_ns = 1_000_000_000;
    r.series.ticks = vec![tick(1, 1500), tick(2, 0), tick(3, 1500), rest];
    r.checks = vec![CheckResult { check: "status=200".to_owned(), passed: 2900, failed: 100 }];
    r.thresholds = vec![ThresholdResult {
        threshold: "p99<20ms".to_owned(),
        measured: Some(9e7),
        passed: false,
        ..Default::default()
    }];
    let cost = TargetCost {
        command: "nginx".to_owned(),
        cpu_ns: 9_000_000,
        responses: 3000,
        ..TargetCost::default()
    };
    r.target_cost = Some(cost);
    r.ledger.first_response = "HTTP/1.1 200 OK\\r\\n\\r\\n<b>hi</b>".to_owned();
    r.ledger.first_response_bytes = 28;
    r
}

#[test]
fn a_page_is_well_formed_and_loads_nothing() {
    for report in [report(), Report::default()] {
        expect_sound(&print(&report));
    }
}

#[test]
fn a_stall_is_marked_where_it_was() {
    let mut r = report();
    assert!(!print(&r).contains("class=\"band\""));
    let tick = |i: u64, responses| Tick {
        end_ns: i * 1_000_000_000,
        length_ns: 1_000_000_000,
        responses,
        ..Tick::default()
    };
    // Silence of 1.5 s in the third and fourth second, and a second without a response later.
    let responses = [1500, 1500, 20, 30, 1500, 0, 1500, 1500];
    r.series.ticks = (1..).zip(responses).map(|(i, n)| tick(i, n)).collect();
    r.health.longest_silence_ns = 1_500_000_000;
    r.verdict.reasons.push(Reason { code: "stalled".to_owned(), ..Reason::default() });
    let ticks: Vec<&Tick> = r.series.ticks.iter().collect();
    let want = [(2.0, 4.0, "no response for 1.500 s".to_owned()), (5.0, 6.0, "no response".to_owned())];
    assert_eq!(stalls(&r, &ticks), want);
    assert_eq!(print(&r).matches("class=\"band\"").count(), 4, "two in each plot");
    // Two seconds and a bit do not count as three.
    r.health.longest_silence_ns = 2_000_300_000;
    let ticks: Vec<&Tick> = r.series.ticks.iter().collect();
    assert_eq!(stalls(&r, &ticks)[0].0..stalls(&r, &ticks)[0].1, 2.0..4.0);
    expect_sound(&print(&r));
}

#[test]
fn the_latency_table_is_narrow_and_whole() {
    let page = print(&report());
    let table = page.split("<h2>Latency</h2>").nth(1).unwrap().split("<table>").nth(1).unwrap();
    let rows: Vec<&str> = table.split("</table>").next().unwrap().split("<tr>").skip(1).collect();
    assert_eq!(rows.len(), 11);
    assert!(
        rows.iter().all(|row| row.matches("<td>").count() + row.matches("<th>").count() == 3),
        "{rows:?}"
    );
    assert!(rows[9].starts_with("<td>largest</td><td>90.00 ms</td><td>99.00 ms</td>"), "{}", rows[9]);
}

#[test]
fn the_verdict_comes_first_and_every_part_is_there() {
    let page = print(&report());
    let places: Vec<usize> = [
        "<b>SUSPECT</b>",
        "p99 of 10 &lt; 100",
        "responses a second",
        "2026-11-21 18:03:54 UTC",
        "<span class=\"bad\">broken</span>",
        "aria-label=\"Throughput over time\"",
        "aria-label=\"Response time over time\"",
        "aria-label=\"Users over time\"",
        "aria-label=\"Distribution of the response time\"",
        "aria-label=\"Latency by percentile\"",
        "503: 100",
        "reset &lt;by&gt; peer",
        "aria-label=\"Mean length of the phases\"",
        "What it cost the target",
        "\\r\\n\n&lt;b&gt;hi",
        "The generator",
    ]
    .iter()
    .map(|part| page.find(part).unwrap_or_else(|| panic!("{part} is missing in {page}")))
    .collect();
    assert!(places.is_sorted(), "{places:?}");
    assert!(!page.contains(">7,777,000<"), "a tick of a millisecond is drawn");
    assert_eq!(date(951_782_400_000), "2000-02-29 00:00:00");
    assert_eq!(date(1_704_067_199_000), "2023-12-31 23:59:59");
}
