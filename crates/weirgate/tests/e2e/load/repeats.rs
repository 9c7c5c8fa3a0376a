//! The loop for one request again and again, whose equal responses are counted as a number: it counts as the general
//! loop does, and notices whatever differs.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use weir_report::Report;
use weir_report::report::Grade;
use weir_testkit::{Upstream, pause};

use super::{expect_reason, report, url};
use crate::support::OK;

const LONGER: &str = "HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\nlonger!";
const OTHER_HEAD: &str = "HTTP/1.1 200 OK\r\nDate: today\r\nContent-Length: 5\r\n\r\nhello";
const MISSING: &str = "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n";
const EMPTY: &str = "HTTP/1.1 204 No Content\r\n\r\n";
const CHUNKED: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n";
const LAST: &str = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok";

/// A target that gives these answers in turns, each three times in a row, and every tenth in two pieces.
fn mixed() -> Upstream {
    let next = AtomicUsize::new(0);
    Upstream::script(move |conn| {
        while conn.next_request().is_some() {
            let turn = next.fetch_add(1, Ordering::Relaxed);
            let all = [OK, LONGER, OTHER_HEAD, MISSING, EMPTY, CHUNKED, OK, LAST];
            let answer = all[turn / 3 % all.len()];
            let (one, two) = answer.split_at(if turn % 10 == 9 { answer.len() / 2 } else { answer.len() });
            conn.send(one);
            if !two.is_empty() {
                pause(Duration::from_millis(2));
                conn.send(two);
            }
            if answer == LAST {
                return;
            }
        }
    })
}

/// Everything that a run counts, without its times.
fn counts(r: &Report) -> String {
    let window = r.window.as_ref().unwrap();
    let targets: Vec<_> =
        r.targets.iter().map(|t| (t.responses, t.unexpected, t.in_window, &t.kinds)).collect();
    format!(
        "{:?} {:?} {:?} {targets:?} {:?} {:?}",
        (r.counts.requests, r.counts.responses, r.counts.unfinished, &r.counts.statuses, &r.counts.errors),
        (r.bytes.sent_head, r.bytes.sent_body, r.bytes.received_head, r.bytes.received_body),
        (window.responses, window.errors, window.sent, window.received, r.bytes.received()),
        (r.connections.opened, r.connections.responses_by_client.iter().sum::<u64>()),
        (
            r.latency.service.count(),
            r.latency.response.count(),
            r.phases.sending.count(),
            r.phases.waiting.count()
        ),
    )
}

#[test]
fn the_loop_counts_as_the_general_one_does() {
    // A check needs the general loop.
    let general = ["--check", "size<1KiB"];
    for (args, target) in [
        (["-n600", "-c1"], mixed as fn() -> Upstream),
        (["-n300", "-c4"], || Upstream::fixed(OK)),
        (["-n300", "-c4"], || Upstream::fixed(MISSING)),
        (["-n40", "-c3"], || Upstream::fixed(LAST)),
    ] {
        let repeated = report(&[&args[..], &[&url(&target())]].concat());
        let plain = report(&[&args[..], &general, &[&url(&target())]].concat());
        assert_eq!(counts(&repeated), counts(&plain), "{args:?}");
        let all = repeated.counts.responses;
        assert_eq!((repeated.latency.service.count(), repeated.phases.receiving.count()), (all, all));
    }
}

#[test]
fn a_body_of_another_length_is_still_noticed() {
    let r = report(&["-n90", "-c1", &url(&mixed())]);
    expect_reason(&r, "body_length_changed", Grade::Suspect);
    let (low, high) = r.targets[0].body_bytes.unwrap();
    assert_eq!((low, high), (0, 7));
}

/// A target that gives ten good answers, then this.
fn ten_then(last: &'static str) -> Upstream {
    let next = AtomicUsize::new(0);
    Upstream::script(move |conn| {
        while conn.next_request().is_some() {
            match next.fetch_add(1, Ordering::Relaxed) {
                10 if last.is_empty() => drop(conn.next_request()),
                10 => conn.send(last),
                _ => conn.send(OK),
            }
        }
    })
}

#[test]
fn what_is_wrong_after_many_equal_answers_is_an_error() {
    for (bad, read) in [
        (&*format!("{OK}and more").leak(), OK.len() + 8),
        ("HTTP/1.1 200 OK\nContent-Length: 5\n\nhello", 40),
        ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello", 62),
    ] {
        let r = report(&["-n20", "-c1", &url(&ten_then(bad))]);
        assert_eq!((r.counts.responses, r.counts.errors.protocol, r.counts.requests), (19, 1, 20), "{bad:?}");
        assert_eq!(r.bytes.received(), (19 * OK.len() + read) as u64, "{bad:?}");
    }
}

#[test]
fn a_target_that_falls_silent_after_many_equal_answers_times_out() {
    let r = report(&["-n20", "-c1", "--timeout", "300ms", &url(&ten_then(""))]);
    assert_eq!(
        (r.counts.responses, r.counts.errors.timeout, r.counts.requests),
        (19, 1, 20),
        "{:?}",
        r.counts
    );
    assert!(r.health.longest_silence_ns > 250_000_000, "{:?}", r.health);
}

#[test]
fn an_answer_before_its_request_is_no_answer() {
    let two = format!("{OK}{OK}").leak() as &'static str;
    let next = AtomicUsize::new(0);
    let target = Upstream::script(move |conn| {
        while conn.next_request().is_some() {
            conn.send(if next.fetch_add(1, Ordering::Relaxed) == 10 { two } else { OK });
        }
    });
    let r = report(&["-n20", "-c1", &url(&target)]);
    assert_eq!((r.counts.responses, r.counts.errors.protocol), (19, 1), "{:?}", r.counts);
    assert_eq!(r.bytes.received(), 21 * OK.len() as u64);
}
