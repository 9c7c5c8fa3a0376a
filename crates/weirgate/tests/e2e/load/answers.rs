//! Reasons of the verdict that answers cause: of several kinds, from a cache, without a body; and runs in which the
//! generator itself stood still.

use std::process::Stdio;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use weir_origin::{Options, Origin, Tls};
use weir_report::Report;
use weir_report::report::Grade;
use weir_testkit::h2::{H2Origin, setting};
use weir_testkit::{Upstream, pause, weir_command};

use super::{codes, expect_reason, report, url};
use crate::support::OK;

/// A target that gives these answers in turns.
fn in_turns(answers: &[&'static str]) -> Upstream {
    let answers = answers.to_vec();
    let next = AtomicUsize::new(0);
    Upstream::script(move |conn| {
        while conn.next_request().is_some() {
            conn.send(answers[next.fetch_add(1, Ordering::Relaxed) % answers.len()]);
        }
    })
}

#[test]
fn answers_of_two_kinds_are_noticed() {
    let page = "HTTP/1.1 200 OK\r\nServer: a\r\nContent-Type: text/html\r\nContent-Length: 2\r\n\r\nok";
    let json =
        "HTTP/1.1 200 OK\r\nServer: a\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}";
    let r = report(&["-n60", "-c2", &url(&in_turns(&[page, page, json]))]);
    expect_reason(&r, "answers_differ", Grade::Suspect);
    let kinds: u64 = r.targets[0].kinds.iter().map(|kind| kind.responses).sum();
    assert_eq!((r.targets[0].kinds.len(), kinds), (2, 60), "{:?}", r.targets[0].kinds);
    let same = report(&["-n60", "-c2", &url(&in_turns(&[page]))]);
    assert!(!codes(&same).contains(&"answers_differ"), "{:?}", same.verdict);
}

#[test]
fn a_cache_before_the_target_is_noticed_in_both_protocols() {
    let hit = "HTTP/1.1 200 OK\r\nAge: 7\r\nContent-Length: 2\r\n\r\nok";
    let target = in_turns(&[hit]);
    expect_reason(&report(&["-n20", "-c1", &url(&target)]), "cached", Grade::Suspect);
    let meant = report(&["-n20", "-c1", "--cached", "ok", &url(&target)]);
    assert!(!codes(&meant).contains(&"cached"), "{:?}", meant.verdict);
    let h2 = H2Origin::new(weir_testkit::h2::Options::default(), |peer, stream, _| {
        peer.answer(stream, &[(":status", "200"), ("x-cache", "HIT from edge")], "ok");
    });
    let target = format!("http://{}/", h2.address());
    expect_reason(&report(&["--http2", "-n20", "-c1", "-m2", &target]), "cached", Grade::Suspect);
}

#[test]
fn answers_without_a_body_that_nobody_asked_for_are_noticed() {
    let target = in_turns(&["HTTP/1.1 304 Not Modified\r\n\r\n"]);
    expect_reason(&report(&["-n20", "-c1", &url(&target)]), "not_modified", Grade::Suspect);
    let asked = report(&["-n20", "-c1", "-H", "If-None-Match: \"a\"", &url(&target)]);
    assert!(!codes(&asked).contains(&"not_modified"), "{:?}", asked.verdict);
}

#[test]
fn fewer_streams_than_asked_for_are_noticed() {
    let options = weir_testkit::h2::Options::default().with(&[(setting::STREAMS, 2)]);
    let target = H2Origin::new(options, |peer, stream, _| {
        peer.answer(stream, &[(":status", "200")], "ok");
    });
    let target = format!("http://{}/", target.address());
    let r = report(&["--http2", "-n100", "-c1", "-m9", &target]);
    expect_reason(&r, "few_streams", Grade::Suspect);
    assert_eq!(r.connections.streams_allowed, Some(2));
}

#[test]
fn sessions_are_resumed_only_where_that_is_asked_for() {
    let address = "127.0.0.1:0".parse().unwrap();
    let target = Origin::start(Options { address, tls: Tls::SelfSigned, ..Options::default() }).unwrap();
    let url = format!("https://{}/body/3", target.address());
    let whole = report(&["-n20", "-c1", "--no-keepalive", "--insecure", &url]);
    assert_eq!((whole.connections.resumed, whole.counts.responses), (0, 20), "{:?}", whole.connections);
    let r = report(&["-n20", "-c1", "--no-keepalive", "--insecure", "--tls-resume", &url]);
    expect_reason(&r, "resumed", Grade::Valid);
    assert!(r.connections.resumed >= 15, "{:?}", r.connections);
}

#[test]
fn a_generator_that_is_stopped_says_so_and_does_not_blame_the_target() {
    let target = Upstream::fixed(OK);
    let url = url(&target);
    let mut command = weir_command("/".as_ref());
    let command = command.args(["load", "-c2", "-d3s", "--threads=1", "--format", "json", &url]);
    let child = command.stdout(Stdio::piped()).spawn().unwrap();
    let pid = Pid::from_child(&child);
    // Stopped in the middle of the run, for longer than any stall that is tolerated.
    target.wait_requests(10);
    kill_process(pid, Signal::STOP).unwrap();
    pause(Duration::from_millis(1_500));
    kill_process(pid, Signal::CONT).unwrap();
    let output = child.wait_with_output().unwrap();
    let r: Report = serde_json::from_slice(&output.stdout).unwrap();
    expect_reason(&r, "generator_paused", Grade::Suspect);
    assert!(r.health.pauses >= 1 && r.health.paused_ns > 1_000_000_000, "{:?}", r.health);
    // The rest of the run may show stalls: on a busy machine the target of this test waits for a processor, too.
    assert!(r.health.longest_silence_ns < 1_000_000_000, "{:?}", r.health);
}
