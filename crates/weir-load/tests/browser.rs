//! The page in a real browser, which must be installed: Chromium reads it without a network and says what it made of it.

#![allow(clippy::unwrap_used, reason = "this is test code: a panic is how a test fails")]

use std::process::Command;
use weir_load::Report;
use weir_load::report::{Format, Grade, TargetPlan, Tick, render};

fn report() -> Report {
    let mut report = Report { duration_ns: 2_000_000_000, ..Report::default() };
    report.verdict.grade = Grade::Suspect;
    report.plan.targets =
        vec![TargetPlan { url: "http://a/?<script>x()</script>".to_owned(), ..TargetPlan::default() }];
    for ns in 1..=2000u64 {
        report.latency.service.record(ns * ns);
        report.latency.response.record(ns * ns);
        report.phases.waiting.record(ns);
    }
    report.counts.responses = 2000;
    report.counts.statuses = [(200, 1990), (503, 10)].into();
    let tick =
        |i: u64| Tick { end_ns: i * 1_000_000_000, length_ns: 1_000_000_000, users: i, ..Tick::default() };
    report.series.ticks = vec![tick(1), tick(2)];
    report
}

#[test]
fn a_browser_shows_every_plot() {
    let page = render(&report(), Format::named("html").unwrap());
    let dir = std::env::temp_dir().join(format!("weir-browser-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    std::fs::write(dir.join("page.html"), &page).unwrap();
    let run = Command::new("chromium")
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--host-resolver-rules=MAP * ~NOTFOUND"])
        .arg(format!("--user-data-dir={}", dir.display()))
        .arg("--dump-dom")
        .arg(format!("file://{}/page.html", dir.display()))
        .output()
        .unwrap();
    std::fs::remove_dir_all(&dir).unwrap();
    // What the browser writes has been parsed: a broken page would have lost or moved elements.
    let dom = String::from_utf8(run.stdout).unwrap();
    for element in ["<svg", "</svg>", "<path", "<rect", "</table>", "<h2>"] {
        assert_eq!(dom.matches(element).count(), page.matches(element).count(), "{element} in {dom}");
    }
    assert!(dom.matches("<svg").count() >= 7, "{dom}");
    assert!(dom.contains("<title>SUSPECT: http://a/?&lt;script&gt;"), "{dom}");
}
