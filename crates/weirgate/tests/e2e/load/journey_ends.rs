//! How journeys end, and what they leave: teardown after a failed dry run or Ctrl-C, programs and their children,
//! WebSockets of a `start` that broke off. None of the messages shows a secret.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use tempfile::TempDir;
use weir_testkit::{Upstream, eventually, weir_command};
use weir_wire::websocket::accept;

use super::journeys::{answer, line, report, run, run_with, shop, step};
use super::steps::{frame, shake};

/// A plan whose `setup` keeps a name that `teardown` needs.
const SETUP_AND_TEARDOWN: &str = "
target: TARGET
setup: [ { name: make, post: /tenants, keep: { id: 'json:$.id' } } ]
scenarios: { a: { users: 1, iterations: 1, steps: [ { name: x, get: /x, timeout: 60s, checks: [ status=200 ] } ] } }
teardown: [ { name: drop, delete: '/tenants/{{id}}' } ]
";

/// Starts a load of a plan in a folder.
fn start(dir: &Path, plan: &str, args: &[&str]) -> Child {
    std::fs::write(dir.join("plan.yaml"), plan).unwrap();
    let mut command = weir_command(dir);
    command.args(["load", "-f", "plan.yaml", "--format", "json"]).args(args);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn signal(child: &Child, name: &str) {
    let pid = child.id().to_string();
    assert!(Command::new("kill").args([name, &pid]).status().unwrap().success());
}

// === teardown ===

#[test]
fn teardown_runs_after_a_failed_dry_run() {
    let upstream = shop(|request| match line(request) {
        "POST /tenants" => answer(201, "", r#"{"id":7}"#),
        "GET /x" => answer(500, "", ""),
        _ => answer(204, "", ""),
    });
    let finished = run(&upstream, SETUP_AND_TEARDOWN, &[]);
    finished.expect_code(1);
    assert!(finished.stderr.contains("step `x` failed: check status=200: 500"), "{finished:#?}");
    assert!(finished.stderr.ends_with("\nteardown ran\n"), "{finished:#?}");
    let seen: Vec<String> = upstream.requests().iter().map(|r| line(r).to_owned()).collect();
    assert_eq!(seen, ["POST /tenants", "GET /x", "DELETE /tenants/7"]);
}

#[test]
fn teardown_does_not_run_without_what_setup_keeps() {
    let upstream = shop(|_| answer(500, "", ""));
    let finished = run(&upstream, SETUP_AND_TEARDOWN, &[]);
    finished.expect_code(1);
    assert!(finished.stderr.contains("teardown did not run, because setup"), "{finished:#?}");
    assert_eq!(upstream.requests().len(), 1);
}

#[test]
fn teardown_runs_after_ctrl_c_in_the_dry_run() {
    let upstream = Upstream::listen();
    let dir = TempDir::new().unwrap();
    let plan = SETUP_AND_TEARDOWN.replace("TARGET", &format!("http://{}", upstream.address()));
    let child = start(dir.path(), &plan, &[]);
    let mut user = upstream.accept();
    user.read_request();
    user.send(answer(201, "", r#"{"id":7}"#));
    // The dry run's user has a connection of its own, and hangs.
    let mut hangs = upstream.accept();
    assert_eq!(line(&hangs.read_request()), "GET /x");
    signal(&child, "-INT");
    let mut torn = upstream.accept();
    assert_eq!(line(&torn.read_request()), "DELETE /tenants/7");
    torn.send(answer(204, "", ""));
    let ended = child.wait_with_output().unwrap();
    let told = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(1), "{told}");
    assert!(told.contains("interrupted before the load began\nteardown ran"), "{told}");
}

/// SIGTERM is what CI systems, containers and `timeout` send.
#[test]
fn teardown_runs_after_a_termination() {
    let upstream = Upstream::listen();
    let dir = TempDir::new().unwrap();
    let plan = SETUP_AND_TEARDOWN.replace("TARGET", &format!("http://{}", upstream.address()));
    let child = start(dir.path(), &format!("{plan}dry_run: false\n"), &["--exit-codes", "split"]);
    let mut user = upstream.accept();
    user.read_request();
    user.send(answer(201, "", r#"{"id":7}"#));
    // The load's user hangs.
    let mut hangs = upstream.accept();
    assert_eq!(line(&hangs.read_request()), "GET /x");
    signal(&child, "-TERM");
    let mut torn = upstream.accept();
    assert_eq!(line(&torn.read_request()), "DELETE /tenants/7");
    torn.send(answer(204, "", ""));
    let ended = child.wait_with_output().unwrap();
    let r: weir_report::Report = serde_json::from_slice(&ended.stdout).unwrap();
    assert_eq!(r.end, weir_report::report::End::Interrupted);
    assert_eq!(ended.status.code(), Some(13), "no response: {r:#?}");
}

/// A user that logs in, pauses, and logs out.
const LOGS_OUT: &str = "
target: TARGET
dry_run: false
setup: [ { name: make, post: /tenants, keep: { id: 'json:$.id' } } ]
scenarios:
  a:
    users: 2
    start: [ { name: in, post: /login } ]
    steps: [ { name: x, get: /x }, { pause: 10m }, { name: never, get: /never } ]
    end: [ { name: out, post: /logout }, { name: gone, delete: /session } ]
teardown: [ { name: drop, delete: '/tenants/{{id}}' } ]
";

#[test]
fn users_end_in_order_after_a_signal() {
    for name in ["-INT", "-TERM"] {
        let upstream = shop(|request| match line(request) {
            "POST /tenants" => answer(201, "", r#"{"id":7}"#),
            _ => answer(200, "", ""),
        });
        let dir = TempDir::new().unwrap();
        let plan = LOGS_OUT.replace("TARGET", &format!("http://{}", upstream.address()));
        let child = start(dir.path(), &plan, &["--graceful-stop", "60s"]);
        let seen = || -> Vec<String> { upstream.requests().iter().map(|r| line(r).to_owned()).collect() };
        eventually("both pause", || seen().iter().filter(|l| *l == "GET /x").count() == 2);
        signal(&child, name);
        let ended = child.wait_with_output().unwrap();
        let r: weir_report::Report = serde_json::from_slice(&ended.stdout).unwrap();
        assert_eq!(r.end, weir_report::report::End::Interrupted);
        let count = |wanted: &str| seen().iter().filter(|l| *l == wanted).count();
        assert_eq!(
            (count("POST /logout"), count("DELETE /session"), count("GET /never")),
            (2, 2, 0),
            "{name}"
        );
        assert_eq!(seen().last().map(String::as_str), Some("DELETE /tenants/7"), "teardown comes last");
        assert_eq!((step(&r, "a.out").responses, step(&r, "a.gone").responses), (2, 2), "{r:#?}");
    }
}

#[test]
fn steps_of_the_end_that_hang_are_cut_and_a_second_signal_ends_at_once() {
    for is_twice in [false, true] {
        let hangs = std::sync::Arc::new(AtomicUsize::new(0));
        let hanging = std::sync::Arc::clone(&hangs);
        let upstream = Upstream::script(move |conn| {
            while let Some(request) = conn.next_request() {
                if line(&request) == "POST /logout" {
                    hanging.fetch_add(1, Ordering::SeqCst);
                    let _ = conn.next_request(); // until the other side leaves
                    return;
                }
                conn.send(answer(201, "", r#"{"id":7}"#));
            }
        });
        let dir = TempDir::new().unwrap();
        let plan = LOGS_OUT.replace("TARGET", &format!("http://{}", upstream.address()));
        // A quarter of the graceful stop is for `end`.
        let grace = if is_twice { "10m" } else { "400ms" };
        let mut child = start(dir.path(), &plan, &["--graceful-stop", grace, "-d", "1h"]);
        let count = |wanted: &str| upstream.requests().iter().filter(|r| line(r) == wanted).count();
        eventually("both pause", || count("GET /x") == 2);
        signal(&child, "-TERM");
        eventually("one logs out, or none had the time", || {
            hangs.load(Ordering::SeqCst) > 0 || child.try_wait().unwrap().is_some()
        });
        if is_twice {
            signal(&child, "-TERM");
        }
        let ended = child.wait_with_output().unwrap();
        if is_twice {
            assert_eq!((ended.status.code(), count("DELETE /tenants/7")), (Some(130), 0));
            continue;
        }
        let r: weir_report::Report = serde_json::from_slice(&ended.stdout).unwrap();
        assert_eq!(r.end, weir_report::report::End::Interrupted);
        assert_eq!((count("DELETE /session"), count("DELETE /tenants/7")), (0, 1), "{r:#?}");
    }
}

// === programs ===

/// Whether a process is there, and not merely waiting to be reaped by whoever inherited it.
fn lives(pid: &str) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    !status.is_empty() && !status.contains(") Z ")
}

/// The numbers in a file, once there are `n`.
fn pids(file: &Path, n: usize) -> Vec<String> {
    let read = || std::fs::read_to_string(file).unwrap_or_default();
    eventually("the program has started", || read().lines().count() >= n);
    read().lines().map(str::to_owned).collect()
}

const PROGRAM: &str = "
target: TARGET
dry_run: false
scenarios: { a: { users: 1, ITERATIONS, steps: [ { name: sign, exec: [ sh, sign.sh ] }, { name: x, get: / } ] } }
";

#[test]
fn what_a_program_started_ends_with_the_load() {
    let upstream = shop(|_| answer(200, "", ""));
    let dir = TempDir::new().unwrap();
    let pid_file = dir.path().join("pids");
    // The program ends by itself with its input; what it started would not.
    let script = format!(
        "sleep 600 > /dev/null < /dev/null 2>&1 &\necho $! >> {}\nwhile read -r line; do echo '{{}}'; done\n",
        pid_file.display()
    );
    let plan = PROGRAM.replace("ITERATIONS", "iterations: 2");
    let finished = run_with(&upstream, &plan, &[("sign.sh", &script)], &["--threads", "1"]);
    finished.expect_code(0);
    let started = pids(&pid_file, 1);
    eventually("it has ended", || !started.iter().any(|pid| lives(pid)));
}

#[test]
fn a_program_ends_when_the_load_tester_is_killed() {
    let upstream = shop(|_| answer(200, "", ""));
    let dir = TempDir::new().unwrap();
    std::fs::write(dir.path().join("sign.sh"), "echo $$ > pid\nread -r line\nexec sleep 600\n").unwrap();
    let target = format!("http://{}", upstream.address());
    let plan = PROGRAM.replace("TARGET", &target).replace("ITERATIONS", "iterations: 1");
    for (name, again) in [("-KILL", false), ("-TERM", true), ("-INT", true)] {
        let _ = std::fs::remove_file(dir.path().join("pid"));
        let mut child = start(dir.path(), &plan, &["--threads", "1"]);
        let program = pids(&dir.path().join("pid"), 1);
        signal(&child, name);
        if again && child.try_wait().unwrap().is_none() {
            let _ = Command::new("kill").args([name, &child.id().to_string()]).status(); // it may have ended
        }
        child.wait().unwrap();
        eventually("the program has ended", || !program.iter().any(|pid| lives(pid)));
    }
}

// === WebSockets ===

#[test]
fn the_websocket_of_a_broken_start_is_closed() {
    let closed = std::sync::Arc::new(AtomicUsize::new(0));
    let count = std::sync::Arc::clone(&closed);
    let upstream = Upstream::script(move |conn| {
        while let Some(request) = conn.next_request() {
            if line(&request) == "GET /bad" {
                conn.send(answer(500, "", ""));
                continue;
            }
            let accept = accept(request.head.header("sec-websocket-key").unwrap().as_bytes());
            conn.send(format!(
                "HTTP/1.1 101 X\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: {accept}\r\n\r\n"
            ));
            if frame(conn).0 == 0x88 {
                count.fetch_add(1, Ordering::SeqCst);
            }
            return;
        }
    });
    let plan = "
target: TARGET
scenarios:
  a:
    users: 1
    iterations: 3
    start: [ { name: open, ws: /feed }, { name: bad, get: /bad, keep: { k: 'json:$.k' } } ]
    steps: [ { name: use, ws: /feed, message: '{{k}}' } ]
";
    let r = report(&run(&upstream, plan, &["--no-dry-run"]));
    assert_eq!((step(&r, "a.open").responses, step(&r, "a.bad").responses), (3, 3), "{r:#?}");
    // Each iteration begins anew, and nothing of the one before is open.
    assert_eq!(r.websocket.as_ref().map(|w| w.handshake.count()), Some(3), "{:#?}", r.websocket);
    eventually("all are closed", || closed.load(Ordering::SeqCst) == 3);
}

// === secrets ===

#[test]
fn a_value_from_outside_is_in_no_reason_name_or_message() {
    let upstream = Upstream::script(|conn| {
        if shake(conn, "").is_some() {
            let (_, text) = frame(conn);
            let reason = format!("no {text}");
            conn.send([&[0x88, reason.len() as u8 + 2, 0x0f, 0xa0], reason.as_bytes()].concat());
            let _ = frame(conn);
        }
    });
    let plan = "
target: TARGET
values: { key: '${file:key.txt}' }
scenarios:
  ws:
    users: 1
    iterations: 2
    steps: [ { name: ask, ws: /x, message: '{{key}}', checks: [ 'body~${file:key.txt}' ] } ]
  exec: { users: 1, iterations: 2, steps: [ { name: run, exec: [ '/no/${file:key.txt}' ] }, { name: x, get: / } ] }
";
    let files = [("key.txt", "s3cr3t/key42")];
    let load = run_with(&upstream, plan, &files, &["--no-dry-run", "--threads", "1"]);
    let r = report(&load);
    let websocket = r.websocket.as_ref().unwrap();
    assert_eq!(
        websocket.closed_by_target.keys().collect::<Vec<_>>(),
        ["code 4000: no ***"],
        "{:#?}",
        r.counts
    );
    assert_eq!(step(&r, "ws.ask").checks[0].check, "body~***");
    assert!(r.counts.error_texts.keys().any(|text| text.contains("`/no/***` could not")), "{:#?}", r.counts);
    let dry = run_with(&upstream, plan, &files, &[]);
    dry.expect_code(1);
    for text in [&load.stdout, &load.stderr, &dry.stdout, &dry.stderr] {
        assert!(!text.contains("key42") && !text.contains("s3cr3t"), "{text}");
    }
}
