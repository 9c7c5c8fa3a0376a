//! `--find-knee`: the highest rate that holds.

use super::{load, origin, url};
use crate::support::OK_BODY;
use tempfile::TempDir;
use weir_report::Knee;
use weir_report::knee::Limit;
use weir_testkit::{Upstream, refusing_address, weir_command};

#[test]
fn a_queue_gives_the_knee_away() {
    // One connection and 5 ms each: at most 200 per second on any machine.
    let (_origin, url) = origin("/delay/5");
    let dir = TempDir::new().unwrap();
    let search = ["load", "--find-knee", "p50<20ms, errors<5%", "-c1", "--threads=1", "--warmup", "0"];
    let files = ["--format", "json", "--html", "knee.html", "--save", "knee.json"];
    // However long it takes: the number of rates to try is not fixed.
    let run = |step: &str| {
        let length = ["-d", step, "--graceful-stop", "300ms", &url];
        weir_command(dir.path()).args(search).args(files).args(length).output().unwrap()
    };
    // A machine that pauses for 100 ms breaks a short step at any rate; in a long step this is a small part.
    let mut runs = ["500ms", "1s", "2s", "4s"].into_iter().map(run);
    let run = runs.find(|run| run.status.code() == Some(0)).unwrap();
    let knee: Knee = serde_json::from_slice(&run.stdout).unwrap();
    assert!(knee.closed_rate <= 200.0, "{knee:?}");
    let rate = knee.rate.unwrap();
    let step = |held: bool| knee.steps.iter().filter(move |s| s.held == held);
    assert!(step(true).filter(|s| (s.rate - rate).abs() < 1e-9).count() == 2, "it held twice: {knee:?}");
    // A load that the generator could not produce is tried again, and may hold then.
    let mut broken = step(false).filter(|s| s.limit == Some(Limit::Target));
    assert!(broken.all(|s| s.rate > rate) && step(false).count() > 0, "{knee:?}");
    let kept = |name: &str| std::fs::read(dir.path().join(name)).unwrap();
    assert_eq!(kept("knee.json"), run.stdout);
    assert!(String::from_utf8_lossy(&kept("knee.html")).contains("Response time over rate"));
    assert!(
        knee.to_text().contains("is the highest rate that holds p50<20ms, errors<5%"),
        "{}",
        knee.to_text()
    );
}

#[test]
fn no_rate_holds_what_cannot_be() {
    let upstream = Upstream::fixed("HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n");
    let run = load(&[
        "--find-knee",
        "failed<1%",
        "-c1",
        "--threads=1",
        "-d200ms",
        "--warmup",
        "0",
        &url(&upstream),
    ]);
    run.expect_code(1).expect_text("no rate holds failed<1%").expect_text("BROKEN");
    // A condition on latency alone covers neither refusals nor failed checks.
    let quick = ["-c1", "--threads=1", "-d200ms", "--warmup", "0"];
    let run = load(&[&["--find-knee", "p50<10s"], &quick[..], &[&url(&upstream)]].concat());
    run.expect_code(1).expect_text("no rate holds p50<10s").expect_text("mostly_refused");
    let upstream = Upstream::fixed(OK_BODY);
    let other = ["--find-knee", "p50<10s", "--check", "body~other"];
    let run = load(&[&other, &quick[..], &[&url(&upstream)]].concat());
    run.expect_code(1).expect_text("no rate holds p50<10s").expect_text("failed_checks");
}

#[test]
fn a_slow_target_is_not_blamed_on_the_generator() {
    let (_origin, url) = origin("/delay/50");
    let quick = ["-c4", "--threads=1", "-d500ms", "--warmup", "0", "--graceful-stop", "300ms"];
    let run = load(&[&["--find-knee", "p50<20ms"], &quick[..], &[&url]].concat());
    run.expect_code(1).expect_text("no rate holds p50<20ms: at 44.0/s, the lowest tried, p50 is");
    run.expect_text("no response met it at any rate tried, so the search ended early");
    assert!(!run.stdout.contains("the generator"), "{}", run.stdout);
}

#[test]
fn the_first_line_says_why_nothing_answered() {
    let (_kept, address) = refusing_address();
    let url = format!("http://{address}/");
    let run = load(&["--find-knee", "p50<1s", "-c1", "--threads=1", "-d100ms", "--warmup", "0", &url]);
    let first = run.expect_code(1).stdout.lines().next().unwrap_or_default();
    assert!(first.contains("no response came: Connection refused"), "{first}");
}

#[test]
fn mistakes_are_told_before_anything_is_sent() {
    let upstream = Upstream::fixed(OK_BODY);
    let target = url(&upstream);
    for (args, want) in [
        (&["--find-knee", "p99", target.as_str()][..], "--find-knee p99: expected METRIC<VALUE"),
        (&["--find-knee", "p99<1s", "ftp://x/"], "ftp://x/"),
        (&["--find-knee", "cost<1s", &target], "--pid auto"),
        (&["--find-knee", "p99<1s", "--rate", "5/s", &target], "cannot be used with"),
        (&["--find-knee", "p99<1s", "-o", "prometheus=http://127.0.0.1:1", &target], "cannot be used with"),
        (&["--find-knee", "p99<1s", "--html", "/none/such.html", &target], "/none/such.html"),
        (&["--find-knee", "p99<1s", "--format", "wrk", &target], "printed as text, json or html"),
    ] {
        load(args).expect_code(2).expect_text(want);
    }
    assert_eq!(upstream.connections(), 0);
}
