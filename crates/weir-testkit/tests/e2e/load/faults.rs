//! Targets that fail, and what the counts and the verdict make of it.

use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use tempfile::TempDir;
use weir_load::Report;
use weir_load::report::Grade;
use weir_testkit::{Authority, ServerTls, Upstream, unused_address, weir_command};

use super::{expect_reason, origin, report, url};
use crate::support::{OK, OK_BODY};

#[test]
fn a_dead_target_is_noticed() {
    let address = unused_address();
    let r = report(&["-n4", "-c2", &format!("http://{address}/")]);
    assert_eq!((r.counts.requests, r.counts.responses, r.counts.errors.connect), (4, 0, 4));
    expect_reason(&r, "no_responses", Grade::Invalid);
    assert!(r.counts.error_texts.keys().any(|t| t.contains("refused")), "{:?}", r.counts.error_texts);
}

#[test]
fn a_silent_target_times_out() {
    let upstream = Upstream::script(|conn| while conn.next_request().is_some() {});
    let r = report(&["-n4", "-c2", "--timeout", "150ms", &url(&upstream)]);
    assert_eq!((r.counts.errors.timeout, r.counts.unfinished), (4, 0), "{:?}", r.counts);
    assert!((300_000_000..1_500_000_000).contains(&r.duration_ns), "{}", r.duration_ns);
}

#[test]
fn what_comes_after_the_timeout_is_no_response() {
    // Far shorter over it than the sampler looks, so most of them are not ended before they come.
    let (_origin, target) = origin("/delay/105");
    for options in [&["-c4"][..], &["-c4", "--rate", "97"], &["--http2", "-c1", "-m4"]] {
        let r = report(&[&["-n20", "--timeout", "100ms", &target], options].concat());
        assert_eq!((r.counts.responses, r.counts.errors.timeout), (0, 20), "{options:?}: {:?}", r.counts);
    }
}

#[test]
fn a_port_of_the_other_kind_is_told() {
    let plain = Upstream::script(|conn| {
        conn.read_n(5);
        conn.send("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
    });
    let r = report(&["-n1", "-c1", &url(&plain).replace("http", "https"), "--insecure"]);
    assert!(r.counts.error_texts.keys().all(|t| t.contains("is this port one for cleartext?")), "{r:#?}");
    let tls = Upstream::fixed_tls(&ServerTls::new(&Authority::new().leaf(&["127.0.0.1"])), OK);
    let r = report(&["-n1", "-c1", &url(&tls)]);
    assert!(r.counts.error_texts.keys().all(|t| t.contains("is this port one for https?")), "{r:#?}");
    assert_eq!((r.counts.errors.protocol, r.counts.responses), (1, 0), "{:?}", r.counts);
}

#[test]
fn what_is_no_http_and_what_ends_early_are_errors_of_their_own() {
    let garbage = Upstream::fixed("HTTP/1.1 200 OK\nbare: LF\n\n");
    assert_eq!(report(&["-n2", "-c1", &url(&garbage)]).counts.errors.protocol, 2);
    let short = Upstream::script(|conn| {
        conn.read_request();
        conn.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf");
    });
    let r = report(&["-n2", "-c1", &url(&short)]);
    assert_eq!((r.counts.errors.reset, r.counts.responses), (2, 0), "{:?}", r.counts);
    assert_eq!(r.bytes.received_body, 8);
    let long = Upstream::fixed("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nlonger");
    let r = report(&["-n2", "-c1", &url(&long)]);
    assert_eq!((r.counts.errors.protocol, r.counts.responses), (2, 0), "{:?}", r.counts);
    assert!(r.counts.error_texts.keys().all(|text| text.contains("more than its Content-Length")), "{r:?}");
    expect_reason(&r, "no_responses", Grade::Invalid);
}

#[test]
fn starved_connections_and_lost_responses_are_noticed() {
    // The first connection is served, the second is not.
    let first = AtomicUsize::new(0);
    let upstream = Upstream::script(move |conn| {
        let serves = first.fetch_add(1, Ordering::Relaxed) == 0;
        while conn.next_request().is_some() {
            if serves {
                conn.send(OK);
            }
        }
    });
    let r = report(&["-c2", "-d300ms", "--graceful-stop", "200ms", &url(&upstream)]);
    assert_eq!(r.counts.unfinished, 1, "{:?}", r.counts);
    expect_reason(&r, "starved_connections", Grade::Invalid);
    expect_reason(&r, "unfinished", Grade::Suspect);
    assert_eq!(r.counts.requests, r.counts.responses + 1);
}

#[test]
fn a_graceful_stop_waits_for_what_is_under_way() {
    let (_origin, url) = origin("/delay/300");
    let r = report(&["-c3", "-d100ms", &url]);
    assert_eq!((r.counts.responses, r.counts.unfinished), (3, 0));
    assert!(r.duration_ns >= 300_000_000, "{}", r.duration_ns);
}

#[test]
fn a_stall_is_noticed() {
    let (origin, fast) = origin("/body/1KiB");
    let slow = format!("http://{}/delay/1300", origin.address());
    let r = report(&["-n60", "-c1", &format!("59@{fast}"), &slow]);
    assert!(r.health.longest_silence_ns > 1_300_000_000, "{}", r.health.longest_silence_ns);
    expect_reason(&r, "stalled", Grade::Suspect);
}

#[test]
fn a_target_that_does_not_close_costs_no_descriptors() {
    let upstream = Upstream::script(|conn| {
        while conn.next_request().is_some() {
            conn.send(OK)
        }
    });
    let dir = TempDir::new().unwrap();
    let weir = weir_command(dir.path());
    let args = ["load", "-n600", "-c4", "-t1", "--no-keepalive", "--format", "json", &url(&upstream)];
    let mut limited = Command::new("sh");
    limited.args(["-c", "ulimit -n 250; exec \"$@\"", "sh"]).arg(weir.get_program()).args(args);
    let r: Report = serde_json::from_slice(&limited.output().unwrap().stdout).unwrap();
    assert_eq!((r.counts.responses, r.health.out_of_descriptors), (600, 0), "{:?}", r.counts);
}

#[test]
fn an_older_protocol_is_noticed() {
    let upstream = Upstream::script(|conn| {
        conn.read_request();
        conn.send("HTTP/1.0 200 OK\r\n\r\nbody");
    });
    let r = report(&["-n3", "-c1", &url(&upstream)]);
    assert_eq!((r.counts.responses, r.bytes.received_body), (3, 12));
    expect_reason(&r, "wrong_protocol", Grade::Invalid);
    expect_reason(&r, "not_kept_alive", Grade::Suspect);
}

#[test]
fn bodies_and_statuses_that_change_are_noticed() {
    let n = AtomicUsize::new(0);
    let upstream = Upstream::script(move |conn| {
        while conn.next_request().is_some() {
            match n.fetch_add(1, Ordering::Relaxed) {
                3 => conn.send("HTTP/1.1 500 Bad\r\nContent-Length: 0\r\n\r\n"),
                5 => conn.send(OK),
                _ => conn.send(OK_BODY),
            }
        }
    });
    let r = report(&["-n10", "-c1", &url(&upstream)]);
    expect_reason(&r, "body_length_changed", Grade::Suspect);
    expect_reason(&r, "status_mix", Grade::Suspect);
    assert_eq!((r.counts.other_length, r.targets[0].body_bytes), (1, Some((0, 2))));
    assert_eq!(r.latency.service_unexpected.count(), 1);
}
