//! What counts at both edges of a run: where the warm-up ends, and where the last requests begin.

use super::{expect_reason, load, origin, report, url};
use crate::support::OK;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use weir_report::layout::{Format, render};
use weir_report::report::{End, Grade};
use weir_testkit::{Upstream, run_weir};

#[test]
fn an_answer_long_after_the_end_lengthens_no_rate() {
    let (origin, fast) = origin("/delay/5");
    let slow = format!("http://{}/delay/1500", origin.address());
    let r = report(&["-c4", "--threads=2", "-d300ms", &format!("40@{fast}"), &slow]);
    let window = r.window.unwrap();
    assert_eq!((window.length_ns, r.targets[1].in_window), (300_000_000, 0), "{window:?}");
    assert!(r.duration_ns >= 1_500_000_000 && r.targets[1].responses > 0, "{}", r.duration_ns);
    // The slow ones, and at most one in flight on each connection at the end.
    let after = r.counts.responses - window.responses;
    assert!((r.targets[1].responses..=r.targets[1].responses + 4).contains(&after), "{after}");
    assert!((r.rate() - window.responses as f64 / 0.3).abs() < 1e-6, "{}", r.rate());
    assert!(
        r.threads.iter().all(|t| (300_000_000..1_000_000_000).contains(&t.measured_ns)),
        "{:?}",
        r.threads
    );
    let text = |format| render(&r, Format::named(format).unwrap());
    assert!(text("text").contains("s for what was under way"), "{}", text("text"));
    assert!(text("wrk").contains(&format!("{} requests in 300.00ms", window.responses)), "{}", text("wrk"));
    let k6 = format!("{:.6}", r.counts.responses as f64 / r.seconds());
    let k6 = k6.trim_end_matches('0').trim_end_matches('.'); // as k6 writes numbers
    assert!(text("k6").contains(&format!("{k6}/s")), "{}", text("k6"));
}

#[test]
fn what_began_in_the_warm_up_stands_for_what_is_under_way_at_the_end() {
    // Each connection is answered at 400 ms, 800 ms and so on: twice between 600 ms and 1.4 s. Requests that begin in
    // that period end at 1.6 s.
    let (_origin, url) = origin("/delay/400");
    let dir = TempDir::new().unwrap();
    let saved = dir.path().join("run.json");
    let args = ["-c4", "--warmup", "600ms", "-d800ms", "--save", saved.to_str().unwrap(), &url];
    load(&args).expect_code(0);
    let r: weir_report::Report = serde_json::from_slice(&std::fs::read(&saved).unwrap()).unwrap();
    let window = r.window.unwrap();
    assert_eq!((window.length_ns, window.responses, window.errors), (800_000_000, 8, 0), "{window:?}");
    assert_eq!(r.counts.responses, 8);
    // Requests in flight at the end of the warm-up leave no client idle.
    assert!(r.little_residual().unwrap() < 0.05, "{:?}", r.little_residual());
    assert!((r.rate() - 10.0).abs() < 1e-9, "{}", r.rate());
    assert_eq!((window.sent, window.received), (r.bytes.sent(), r.bytes.received()));
    run_weir(dir.path(), &["report", "run.json", "--verify"]).expect_code(0);
}

#[test]
fn a_count_lasts_until_its_last_response() {
    let (_origin, url) = origin("/delay/100");
    let r = report(&["-n8", "-c4", "--threads=2", "-d30s", &url]);
    let window = r.window.unwrap();
    assert_eq!((window.responses, window.length_ns), (8, r.duration_ns));
    assert!((200_000_000..2_000_000_000).contains(&r.duration_ns), "{}", r.duration_ns);
}

#[test]
fn a_thread_whose_users_are_gone_stops_no_look_at_the_run() {
    // The second thread has only the second user, who leaves after 200 ms. The condition that ends the run is met in
    // the third second.
    let begun = Instant::now();
    let upstream = Upstream::script(move |conn| {
        while conn.next_request().is_some() {
            let late = begun.elapsed() > Duration::from_millis(1500);
            conn.send(if late { "HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n" } else { OK });
        }
    });
    let stages = "0s:2,200ms:2,0s:1,60s:1";
    let args =
        ["--stages", stages, "--threads=2", "--think", "10ms", "--abort-on", "failed>0.1%", &url(&upstream)];
    let r = report(&args);
    assert_eq!(r.end, End::Aborted { condition: "failed>0.1%".to_owned() });
    assert!(r.series.ticks.len() < 10 && begun.elapsed() < Duration::from_secs(30), "{:?}", r.series.ticks);
    let ticked: u64 = r.series.ticks.iter().map(|tick| tick.responses).sum();
    assert_eq!(ticked, r.counts.responses);
}

#[test]
fn a_count_does_not_forget_what_is_not_sent_after_a_warm_up() {
    // 100 per second: 30 starts in the warm-up, which are answered, then 20 that count. The first of these gets no
    // answer and occupies the connection.
    for (served, requests, unsent) in [(30, 1, 19), (10, 0, 20)] {
        let upstream = Upstream::script(move |conn| {
            for _ in 0..served {
                let _ = conn.next_request();
                conn.send(OK);
            }
            while conn.next_request().is_some() {}
        });
        let rate = ["--rate", "100/s", "-c1", "--threads=1", "--warmup", "300ms", "-n20", "-d500ms"];
        let r = report(&[&rate[..], &["--graceful-stop", "100ms", &url(&upstream)]].concat());
        let c = &r.counts;
        assert_eq!((c.requests, c.unfinished, c.unsent), (requests, requests, unsent), "{c:?}");
        expect_reason(&r, "rate_missed", Grade::Invalid);
        assert!(r.health.backlog_max >= unsent, "{}", r.health.backlog_max);
    }
}

#[test]
fn what_fails_in_the_warm_up_leaves_no_bytes() {
    // Three connections break in the middle of a response, in the first 150 ms.
    let broken = AtomicUsize::new(0);
    let upstream = Upstream::script(move |conn| {
        let breaks = broken.fetch_add(1, Ordering::Relaxed) < 3;
        while conn.next_request().is_some() {
            if breaks {
                conn.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf");
                return;
            }
            conn.send(OK);
        }
    });
    let r =
        report(&["-c1", "--threads=1", "--rate", "20/s", "--warmup", "400ms", "-d300ms", &url(&upstream)]);
    assert_eq!((r.counts.responses, r.counts.errors.total()), (6, 0), "{:?}", r.counts);
    assert_eq!((r.bytes.received_body, r.bytes.received_head), (0, 6 * OK.len() as u64));
}
