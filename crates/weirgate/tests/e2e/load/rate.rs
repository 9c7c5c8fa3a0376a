//! A fixed rate: connections that are open before it begins, and the effect of a generator that pauses.

use super::{codes, expect_reason, report, url};
use crate::support::OK;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use weir_report::Report;
use weir_report::report::Grade;
use weir_testkit::{Upstream, eventually, weir_command};

#[test]
fn connections_for_a_pause_of_10_ms_are_open_before_the_first_start() {
    for (args, opened) in [
        (&["--rate", "1000/s", "--threads=1"][..], 10),
        (&["--rate", "1000/s", "--threads=3"], 10),
        (&["--rate", "1000/s", "--threads=1", "-c4"], 4),
        (&["--stages", "10s:500/s", "--threads=1"], 5),
        (&["--rate", "1000/s", "--threads=1", "--no-keepalive"], 1),
    ] {
        let upstream = Upstream::fixed(OK);
        let r = report(&[args, &["-n1", &url(&upstream)]].concat());
        assert_eq!((r.counts.responses, r.connections.opened), (1, opened), "{args:?}");
        assert_eq!(r.connections.dial.count(), opened, "{args:?}");
        let waited = r.phases.blocked.max();
        assert_eq!(waited == 0, opened > 1, "{args:?}: the first waited {waited} ns for its connection");
    }
}

#[test]
fn starts_that_the_generator_sleeps_through_are_late_and_not_missed() {
    let upstream = Upstream::fixed(OK);
    let args = ["load", "--rate", "50/s", "-d600ms", "--threads=1", "--format", "json", &url(&upstream)];
    let mut load = weir_command("/".as_ref());
    let load = load.args(args).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let signal = |name: &str| Command::new("kill").args([name, &load.id().to_string()]).status().unwrap();
    upstream.wait_requests(5);
    assert!(signal("-STOP").success());
    let stopped = Instant::now();
    eventually("the run is over", || stopped.elapsed() > Duration::from_millis(700));
    assert!(signal("-CONT").success());
    let r: Report = serde_json::from_slice(&load.wait_with_output().unwrap().stdout).unwrap();
    assert_eq!((r.counts.responses, r.counts.unsent), (30, 0), "{:?}", r.counts);
    expect_reason(&r, "late_starts", Grade::Suspect);
    assert!(!codes(&r).contains(&"rate_missed"), "{:?}", r.verdict);
}

#[test]
fn the_last_interval_of_a_rate_is_waited_out() {
    let upstream = Upstream::fixed(OK);
    for (rate, n) in [("4/s", 2), ("0.5/s", 1)] {
        let began = Instant::now();
        let r = report(&["--rate", rate, "-d500ms", "--threads=2", &url(&upstream)]);
        assert!(began.elapsed() >= Duration::from_millis(500), "{rate}: {:?}", began.elapsed());
        let window = r.window.unwrap();
        assert_eq!((r.counts.responses, window.responses, window.length_ns), (n, n, 500_000_000), "{rate}");
    }
    // With a request count, the run ends with the last of them.
    let r = report(&["--rate", "10/s", "-n2", "-d20s", &url(&upstream)]);
    assert_eq!(r.counts.responses, 2);
    assert!(r.duration_ns < 2_000_000_000, "{}", r.duration_ns);
}
