//! What counts at the two edges of a run: where the warm-up ends, and where the last requests begin.

use super::{load, origin, report};
use tempfile::TempDir;
use weir_load::report::{Format, render};
use weir_testkit::run_weir;

#[test]
fn an_answer_long_after_the_end_lengthens_no_rate() {
    let (origin, fast) = origin("/delay/5");
    let slow = format!("http://{}/delay/1500", origin.address());
    let r = report(&["-c4", "-t2", "-d300ms", &format!("40@{fast}"), &slow]);
    let window = r.window.unwrap();
    assert_eq!((window.length_ns, r.targets[1].in_window), (300_000_000, 0), "{window:?}");
    assert!(r.duration_ns >= 1_500_000_000 && r.targets[1].responses > 0, "{}", r.duration_ns);
    // The slow ones, and at most one on each connection that was under way at the end.
    let after = r.counts.responses - window.responses;
    assert!((r.targets[1].responses..=r.targets[1].responses + 4).contains(&after), "{after}");
    assert!((r.rate() - window.responses as f64 / 0.3).abs() < 1e-6, "{}", r.rate());
    assert!(
        r.threads.iter().all(|t| (300_000_000..1_000_000_000).contains(&t.measured_ns)),
        "{:?}",
        r.threads
    );
    let text = |format| render(&r, Format::named(format).unwrap());
    assert!(text("text").contains("more until the last response"), "{}", text("text"));
    assert!(text("wrk").contains(&format!("{} requests in 300.00ms", window.responses)), "{}", text("wrk"));
    let k6 = r.counts.responses as f64 / r.seconds();
    assert!(text("k6").contains(&format!("{k6:.6}/s")), "{}", text("k6"));
}

#[test]
fn what_began_in_the_warm_up_stands_for_what_is_under_way_at_the_end() {
    // Each connection is answered at 200 ms, 400 ms and so on: twice between 300 ms and 700 ms, though what begins then is over at 800 ms.
    let (_origin, url) = origin("/delay/200");
    let dir = TempDir::new().unwrap();
    let saved = dir.path().join("run.json");
    let args = ["-c4", "--warmup", "300ms", "-d400ms", "--save", saved.to_str().unwrap(), &url];
    load(&args).expect_code(0);
    let r: weir_load::Report = serde_json::from_slice(&std::fs::read(&saved).unwrap()).unwrap();
    let window = r.window.unwrap();
    assert_eq!((window.length_ns, window.responses, window.errors), (400_000_000, 8, 0), "{window:?}");
    assert_eq!(r.counts.responses, 8);
    assert!((r.rate() - 20.0).abs() < 1e-9, "{}", r.rate());
    assert_eq!((window.sent, window.received), (r.bytes.sent(), r.bytes.received()));
    run_weir(dir.path(), &["report", "run.json", "--verify"]).expect_code(0);
}

#[test]
fn a_count_lasts_until_its_last_response() {
    let (_origin, url) = origin("/delay/100");
    let r = report(&["-n8", "-c4", "-t2", "-d30s", &url]);
    let window = r.window.unwrap();
    assert_eq!((window.responses, window.length_ns), (8, r.duration_ns));
    assert!((200_000_000..2_000_000_000).contains(&r.duration_ns), "{}", r.duration_ns);
}
