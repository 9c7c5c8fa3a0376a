//! What goes wrong on a journey: broken answers, targets that hang or leave, rows that end, Ctrl-C.

use std::collections::BTreeSet;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use weir_report::report::{End, Grade};
use weir_testkit::h2::{Frame, H2Origin, Options};
use weir_testkit::{Upstream, weir_command};

use super::expect_reason;
use super::journeys::{answer, line, report, run, run_with, shop, step};

/// After Ctrl-C, a teardown that waits for an answer gets a few seconds, and the report says that it was cut.
#[test]
fn ctrl_c_ends_a_teardown_that_hangs() {
    let upstream = Upstream::listen();
    let dir = TempDir::new().unwrap();
    let plan = format!(
        "
target: http://{}
dry_run: false
scenarios: {{ a: {{ users: 1, iterations: 1, steps: [ {{ name: x, get: /x, keep: {{ k: status }} }}, {{ name: y, get: '/{{{{k}}}}' }} ] }} }}
teardown: [ {{ name: bye, get: /bye, timeout: 60s }} ]
",
        upstream.address()
    );
    std::fs::write(dir.path().join("plan.yaml"), plan).unwrap();
    let mut command = weir_command(dir.path());
    let args = ["load", "plan.yaml", "--format", "json"];
    let child = command.args(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut user = upstream.accept();
    for _ in 0..2 {
        user.read_request();
        user.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    }
    let mut torn = upstream.accept();
    assert_eq!(line(&torn.read_request()), "GET /bye");
    let interrupted = Instant::now();
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let ended = child.wait_with_output().unwrap();
    assert!(interrupted.elapsed() < Duration::from_secs(30), "it waited for the step's timeout");
    let r: weir_report::Report = serde_json::from_slice(&ended.stdout).unwrap();
    assert_eq!(ended.status.code(), Some(1));
    let reason = "teardown: cut 5 s after the run was interrupted, before its last step".to_owned();
    assert_eq!(r.end, End::Failed { reason });
    assert_eq!(r.counts.responses, 2);
}

#[test]
fn a_row_that_the_dry_run_sent_is_not_sent_again() {
    let upstream = shop(|_| answer(200, "", ""));
    let plan = "
target: TARGET
data: { users: { rows: [ { n: a }, { n: b }, { n: c } ], pick: once, at_end: stop } }
scenarios: { a: { users: 1, steps: [ { name: x, post: '/u/{{users.n}}' } ] } }
";
    let r = report(&run(&upstream, plan, &[]));
    let seen: Vec<String> = upstream.requests().iter().map(|r| line(r).to_owned()).collect();
    assert_eq!(seen, ["POST /u/a", "POST /u/b", "POST /u/c"], "each row once, the first by the dry run");
    assert_eq!((r.scenarios[0].done, r.scenarios[0].dry_run_rows), (2, 1));
}

#[test]
fn the_end_of_one_set_takes_no_row_of_another() {
    let upstream = shop(|_| answer(200, "", ""));
    let plan = "
target: TARGET
data:
  x: { rows: [ { n: 0 }, { n: 1 }, { n: 2 } ], pick: once, at_end: stop }
  y: { rows: [ { n: 0 } ], pick: once, at_end: stop }
scenarios:
  both: { users: 1, steps: [ { name: b, get: '/x{{x.n}}?{{y.n}}' } ] }
  one: { users: 1, start_at: 300ms, steps: [ { name: o, get: '/x{{x.n}}' } ] }
";
    let r = report(&run(&upstream, plan, &["--no-dry-run"]));
    let seen: BTreeSet<String> =
        upstream.requests().iter().map(|r| line(r).split('?').next().unwrap().to_owned()).collect();
    assert_eq!(seen, ["GET /x0", "GET /x1", "GET /x2"].map(str::to_owned).into(), "{r:#?}");
    assert_eq!((r.scenarios[0].done, r.scenarios[1].done), (1, 2));
}

#[test]
fn a_value_from_outside_is_shown_nowhere() {
    let upstream = shop(|request| match line(request) {
        "GET /k/gr%C3%BCn%20key42?plain" => answer(403, "X-Note: no grün key42 here\r\n", "grün key42!"),
        _ => answer(200, "", "no"),
    });
    let plan = "
target: TARGET
values: { key: '${file:key.txt}' }
defaults: { checks: [ status=2xx ] }
scenarios:
  a:
    users: 1
    iterations: 2
    steps:
      - { name: x, get: '/k/{{key}}?plain', headers: { x-note: '{{base64:{{key}}}}' }, keep: { v: 'body~(nothing)' } }
      - { name: y, get: '/{{v}}' }
";
    let files = [("key.txt", "grün key42")];
    let dry = run_with(&upstream, plan, &files, &[]);
    dry.expect_code(1);
    assert!(dry.stderr.contains("> GET /k/***?") && dry.stderr.contains("< X-Note: no *** here"), "{dry:#?}");
    let load = run_with(&upstream, plan, &files, &["--no-dry-run"]);
    let sample = step(&report(&load), "a.x").keeps[0].sample.clone().unwrap();
    assert!(sample.contains("`***!`"), "{sample}");
    for text in [&dry.stderr, &load.stdout, &load.stderr] {
        assert!(!text.contains("key42"), "{text}");
    }
}

#[test]
fn what_a_step_writes_itself_survives_a_redirect_at_the_same_server() {
    let upstream = shop(|request| match line(request) {
        "GET /a" => answer(302, "Location: /b\r\nSet-Cookie: jar=1\r\n", ""),
        _ => answer(200, "", ""),
    });
    let plan = "
target: TARGET
scenarios:
  a:
    users: 1
    iterations: 1
    steps: [ { name: x, get: /a, redirects: 1, headers: { cookie: own=1, host: shop.test, authorization: t } } ]
";
    report(&run(&upstream, plan, &["--no-dry-run"]));
    let hop = upstream.requests().into_iter().find(|r| line(r) == "GET /b").unwrap();
    assert_eq!(hop.head.header("cookie"), Some("own=1"));
    assert_eq!((hop.head.header("host"), hop.head.header("authorization")), (Some("shop.test"), Some("t")));
    assert_eq!(hop.head.all("cookie").len(), 1);
}

#[test]
fn iterations_that_break_off_are_a_reason_and_failed() {
    let n = AtomicUsize::new(0);
    let upstream = shop(move |_| {
        let n = n.fetch_add(1, Ordering::Relaxed);
        answer(200, "", if n.is_multiple_of(4) { "none" } else { r#"{"id":1}"# })
    });
    let plan = "
target: TARGET
scenarios:
  a:
    users: 1
    iterations: 40
    steps: [ { name: x, get: /x, keep: { id: 'json:$.id' }, checks: [ status=200 ] }, { if: id, then: [ { pause: 1ms } ] } ]
thresholds: [ 'x: failed<1%', 'a: failed<20%', 'a: failed<30%' ]
";
    let r = report(&run(&upstream, plan, &["--no-dry-run", "--threads", "1"]));
    expect_reason(&r, "broken_off", Grade::Suspect);
    let passed: Vec<bool> = r.thresholds.iter().map(|t| t.passed).collect();
    assert_eq!(passed, [true, false, true], "{:#?}", r.thresholds);
}

#[test]
fn an_answer_that_is_no_http_is_shown_as_it_came() {
    let upstream = Upstream::script(|conn| {
        if conn.next_request().is_some() {
            conn.send("HTTP/1.1 200 OK\r\nBad Name: x\r\nContent-Length: 0\r\n\r\n");
        }
    });
    let plan = "
target: TARGET
scenarios: { a: { users: 1, iterations: 1, steps: [ { name: x, get: /x, keep: { s: status } }, { name: y, get: '/{{s}}' } ] } }
";
    let finished = run(&upstream, plan, &[]);
    finished.expect_code(1);
    assert!(
        finished.stderr.contains("< HTTP/1.1 200 OK\n") && finished.stderr.contains("< Bad Name: x"),
        "{finished:#?}"
    );
    assert!(!finished.stderr.contains("HTTP/2"), "{finished:#?}");
}

#[test]
fn requests_at_once_share_the_failure_of_their_connection() {
    let (_sockets, hole) = weir_testkit::black_hole();
    let plan = format!(
        "
target: http://{hole}
defaults: {{ http2: true, timeout: 2s }}
scenarios:
  a:
    users: 1
    iterations: 1
    steps: [ {{ parallel: 4, steps: [ {{ name: a, get: /a }}, {{ name: b, get: /b }}, {{ name: c, get: /c }}, {{ name: d, get: /d }} ] }} ]
"
    );
    let upstream = Upstream::fixed("");
    let begun = Instant::now();
    let r = report(&run(&upstream, &plan, &["--no-dry-run"]));
    assert_eq!(r.counts.errors.total(), 4, "{r:#?}");
    assert!(
        begun.elapsed() < Duration::from_secs(6),
        "one after another they take 8 s: {:?}",
        begun.elapsed()
    );
}

/// RFC 9113 §6.8: requests above the last stream of a GOAWAY were not processed and go to another connection.
#[test]
fn a_goaway_in_the_middle_of_a_journey_loses_nothing() {
    let peer = H2Origin::new(Options::default(), |peer, stream, request| {
        let path = request.header(":path").unwrap().to_owned();
        match path.as_str() {
            // The target leaves after this answer.
            "/last" => {
                peer.answer(stream, &[(":status", "200")], "x");
                peer.send(&Frame::go_away(stream, 0));
            }
            // It leaves instead of an answer, the first time on each connection.
            "/refused" if stream > 1 => peer.send(&Frame::go_away(stream - 2, 0)),
            _ => peer.answer(stream, &[(":status", "200")], "x"),
        }
    });
    let plan = format!(
        "
target: http://{}
defaults: {{ http2: true, checks: [ status=200, body~x ], on_failure: end }}
scenarios:
  a:
    users: 2
    iterations: 6
    steps:
      - {{ name: one, get: /one }}
      - {{ name: last, get: /last }}
      - {{ name: next, get: /next }}
      - {{ name: refused, get: /refused }}
      - {{ parallel: 2, steps: [ {{ name: a, get: /a }}, {{ name: b, get: /last }} ] }}
",
        peer.address()
    );
    let upstream = Upstream::fixed("");
    let r = report(&run(&upstream, &plan, &["--no-dry-run", "--threads", "2"]));
    assert_eq!((r.scenarios[0].done, r.scenarios[0].broken(), r.counts.errors.total()), (6, 0, 0), "{r:#?}");
    assert_eq!(r.counts.responses, 36);
}
