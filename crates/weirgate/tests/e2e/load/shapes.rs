//! Loads in shapes: the origin's own trace of arrivals is the truth that the report is held against.

use super::{codes, expect_reason, load, report, url};
use crate::support::OK;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use weir_report::Report;
use weir_report::report::{End, Grade, Pace};
use weir_testkit::{Upstream, eventually, run_weir, weir_command};

/// An origin that notes when each request arrived.
fn tracing() -> (Upstream, Arc<Mutex<Vec<Instant>>>) {
    let seen: Arc<Mutex<Vec<Instant>>> = Arc::default();
    let trace = Arc::clone(&seen);
    let upstream = Upstream::script(move |conn| {
        while conn.next_request().is_some() {
            trace.lock().unwrap().push(Instant::now());
            conn.send(OK);
        }
    });
    (upstream, seen)
}

/// How many requests arrived in each of these spans of seconds after the first one.
fn arrivals(trace: &Mutex<Vec<Instant>>, spans: &[(f64, f64)]) -> Vec<usize> {
    let mut all = trace.lock().unwrap().clone();
    all.sort();
    let first = all[0];
    let at: Vec<f64> = all.iter().map(|t| t.duration_since(first).as_secs_f64()).collect();
    spans.iter().map(|(from, to)| at.iter().filter(|t| (*from..*to).contains(*t)).count()).collect()
}

/// Expects what happens at planned times in one of several runs: a busy machine delays the others.
#[track_caller]
fn in_one_run(mut run: impl FnMut() -> Result<(), String>) {
    const RUNS: usize = 8;
    let wrong: Vec<_> = (0..RUNS).map_while(|_| run().err()).collect();
    assert!(wrong.len() < RUNS, "{wrong:#?}");
}

/// Compares with what is expected; a mismatch is told with all that was seen.
fn expect(is_right: bool, seen: &[usize]) -> Result<(), String> {
    is_right.then_some(()).ok_or_else(|| format!("{seen:?}"))
}

#[test]
fn the_target_sees_the_parts_as_they_were_written() {
    in_one_run(|| {
        let (upstream, trace) = tracing();
        let shape = "hold 50/s 1s, spike: jump 500/s 1s, rest: pause 1s, hold 50/s 1s";
        let r = report(&["--shape", shape, "--threads=2", &url(&upstream)]);
        assert_eq!((r.counts.requests, r.counts.responses), (600, 600), "{:?}", r.counts);
        let told: Vec<_> = r.parts.iter().map(|p| (p.name.as_str(), p.planned, p.counts.responses)).collect();
        assert_eq!(told, [("hold", 50, 50), ("spike", 500, 500), ("rest", 0, 0), ("hold_2", 50, 50)]);
        let planned: u64 = r.series.ticks.iter().map(|t| t.planned).sum();
        assert_eq!((planned, r.series.ticks.iter().map(|t| t.requests).sum::<u64>()), (600, 600));
        let per_tick: Vec<u64> = r.series.ticks.iter().map(|t| t.planned).collect();
        assert!(per_tick[1] > 400 && per_tick[0] < 120, "{per_tick:?}");
        // Times count from the first arrival, which may itself be late by a tenth of a second.
        let seen = arrivals(&trace, &[(0.0, 0.9), (0.9, 2.2), (2.4, 2.85), (2.85, 9.0)]);
        let is_spike = (35..=50).contains(&seen[0]) && (450..=515).contains(&seen[1]);
        expect(is_spike && (seen[2], seen[3]) == (0, 50), &seen)
    });
}

#[test]
fn connections_live_across_all_parts() {
    let upstream = Upstream::fixed(OK);
    let shape = "hold 100/s 500ms, jump 400/s 300ms, pause 300ms, hold 100/s 500ms";
    let r = report(&["--shape", shape, "-c4", "--threads=1", &url(&upstream)]);
    assert!(upstream.connections() <= 4, "{}", upstream.connections());
    assert_eq!(r.counts.responses, 220, "{:?}", r.counts);
}

#[test]
fn a_file_of_counts_is_sent_exactly() {
    let dir = TempDir::new().unwrap();
    std::fs::write(dir.path().join("rates.csv"), "at,requests\n0,13\n1,0\n2,27\n3,4\n").unwrap();
    let shape = "file rates.csv every=500ms, half: file rates.csv every=200ms scale=0.5";
    in_one_run(|| {
        let (upstream, trace) = tracing();
        let finished = run_weir(dir.path(), &["load", "--shape", shape, "--format", "json", &url(&upstream)]);
        let r: Report =
            serde_json::from_str(&finished.stdout).unwrap_or_else(|e| panic!("{e}: {finished:#?}"));
        assert_eq!(r.parts.iter().map(|p| p.counts.responses).collect::<Vec<_>>(), [44, 22]);
        let seen = arrivals(&trace, &[(0.0, 0.6), (0.6, 0.85), (0.85, 1.9)]);
        expect((seen[0], seen[1]) == (13, 0) && (26..=31).contains(&seen[2]), &seen)
    });
}

#[test]
fn random_starts_are_the_same_for_any_number_of_threads() {
    let plan = |args: &[&str]| {
        let upstream = Upstream::fixed(OK);
        let shape = ["--shape", "hold 200/s 500ms, ramp 0/s 500ms", "--spacing", "poisson"];
        let r = report(&[&shape, args, &[&url(&upstream)]].concat());
        assert_eq!(r.counts.responses, 150, "{args:?}: {:?}", r.counts);
        r.parts.iter().map(|p| p.planned).collect::<Vec<_>>()
    };
    let one = plan(&["--seed", "7", "--threads=1"]);
    assert_eq!(one, plan(&["--seed", "7", "--threads=2"]));
    assert_ne!(one, plan(&["--seed", "1", "--threads=2"]), "another seed");
}

#[test]
fn bursts_arrive_together() {
    in_one_run(|| {
        let (upstream, trace) = tracing();
        let r =
            report(&["--shape", "hold 20/s 3s", "--spacing", "burst(20)", "--threads=2", &url(&upstream)]);
        assert_eq!(r.counts.responses, 60, "{:?}", r.counts);
        let seen = arrivals(&trace, &[(0.0, 0.6), (0.6, 0.85), (0.85, 1.6), (1.6, 1.85)]);
        expect(seen == [20, 0, 20, 0], &seen)
    });
}

#[test]
fn users_follow_the_parts() {
    let upstream = Upstream::fixed(OK);
    let shape = "hold 2 1s, few: jump 6 1s, ramp 0 1s";
    let r = report(&["--shape", shape, "--think", "20ms", "--threads=2", &url(&upstream)]);
    assert!(matches!(&r.plan.pace, Pace::Shape { parts, .. } if parts.len() == 3), "{:?}", r.plan.pace);
    assert_eq!((r.plan.connections, upstream.connections()), (6, 6));
    let per_part: Vec<u64> = r.parts.iter().map(|p| p.counts.responses).collect();
    assert!(per_part[1] > per_part[0] * 2 && per_part[2] < per_part[1], "{per_part:?}");
    assert_eq!(per_part.iter().sum::<u64>(), r.counts.responses);
}

#[test]
fn each_part_has_its_conditions_and_its_verdict() {
    // The third second's answers are errors.
    let begun: Arc<Mutex<Option<Instant>>> = Arc::default();
    let upstream = Upstream::script(move |conn| {
        while conn.next_request().is_some() {
            let since = begun.lock().unwrap().get_or_insert_with(Instant::now).elapsed();
            let bad = (1.0..2.0).contains(&since.as_secs_f64());
            conn.send(if bad { "HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n" } else { OK });
        }
    });
    let shape = "hold 100/s 1s, spike: jump 200/s 950ms, pause 100ms, hold 100/s 1s";
    let args = ["--shape", shape, "--threshold", "spike: failed<1%", "--threshold", "hold: p50<1s"];
    let dir = TempDir::new().unwrap();
    let finished = run_weir(
        dir.path(),
        &[&["load"], &args[..], &["--save", "r.json", "--html", "r.html", &url(&upstream)]].concat(),
    );
    finished.expect_code(1);
    let saved = std::fs::read_to_string(dir.path().join("r.json")).unwrap();
    let r: Report = serde_json::from_str(&saved).unwrap();
    let passed: Vec<bool> = r.thresholds.iter().map(|t| t.passed).collect();
    assert_eq!(passed, [false, true], "{:?}", r.thresholds);
    let grades: Vec<Grade> = r.parts.iter().map(|p| p.verdict.grade).collect();
    assert_eq!(grades[1], Grade::Invalid, "{:?}", r.parts[1].verdict);
    assert!(grades[3] < Grade::Invalid, "{:?}", r.parts[3].verdict);
    expect_reason(&r, "part_invalid", Grade::Suspect);
    for text in ["by part", "INVALID (mostly_refused", "recovery     spike: "] {
        assert!(finished.stdout.contains(text), "{text}\n{}", finished.stdout);
    }
    run_weir(dir.path(), &["report", "--verify", "r.json"]).expect_code(0);
    let page = std::fs::read_to_string(dir.path().join("r.html")).unwrap();
    for text in ["<h2>Parts</h2>", "planned starts a second", "recovery"] {
        assert!(page.contains(text), "{text}");
    }
}

#[test]
fn what_a_part_cannot_be_is_refused_before_anything_is_sent() {
    const URL: &str = "http://127.0.0.1:1/";
    let cases: &[(&[&str], &str)] = &[
        (&["--shape", ""], "--shape, part 1, ``: expected one of: hold RATE TIME"),
        (&["--shape", "hold 5/s"], "--shape, part 1, `hold 5/s`: expected one of"),
        (&["--shape", "hold 5/s 1s, jump 9 1s"], "--shape, part 2, `jump 9 1s`: `9` is no rate"),
        (&["--shape", "pause 5s"], "nothing starts: the value is 0 for the whole"),
        (&["--shape", "hold 0/s 5s"], "nothing starts: the value is 0 for the whole"),
        (
            &["--shape", "wave mean=5/s swing=6/s every=1s for=9s"],
            "the swing is larger than the mean: the value would fall below 0",
        ),
        (
            &["--shape", "steps from=1/s by=1/h every=1s to=9000/s"],
            "at most 1,000,000 parts, steps and intervals",
        ),
        (&["--shape", "a: hold 5/s 1s, a: hold 6/s 1s"], "another part has this name"),
        (&["--shape", "hold 11M/s 1s"], "expected at most 10M/s"),
        (&["--shape", "hold 5/s 400d"], "expected at most 366 days"),
        (&["--shape", "hold 5/s 1s", "--rate", "5/s"], "--rate: --shape sets the rate"),
        (&["--shape", "hold 5/s 1s", "--stages", "1s:5/s"], "--stages: --shape sets the rate"),
        (&["--shape", "hold 5/s 1s", "-d", "5s"], "-d: --shape sets the duration already"),
        (&["--shape", "hold 5/s 1s", "--warmup", "5s"], "--warmup: --shape has no warm-up"),
        (&["--shape", "hold 5 1s", "-c", "5"], "-c: --shape sets the number of users already"),
        (&["--shape", "hold 5/s 1s", "--think", "1s"], "--think: has no effect"),
        (&["--shape", "hold 5 1s", "--spacing", "poisson"], "--spacing: is of a rate"),
        (
            &["--shape", "hold 5/s 1s", "--spacing", "often"],
            "--spacing often: expected even, poisson or burst(N)",
        ),
        (&["--shape", "hold 5/s 1s", "--spacing", "burst(0)"], "expected even, poisson or burst(N)"),
        (
            &["--shape", "hold 5/s 1s", "--spacing", "burst(9)", "-c8"],
            "--spacing burst(9): a burst is larger",
        ),
        (&["--shape", "hold 5/s 1s", "--seed", "5"], "--seed: is for --spacing poisson"),
        (&["--rate", "5/s", "--spacing", "poisson"], "--spacing: is of a shape"),
        (
            &["--shape", "hold 5/s 1s", "--threshold", "spike: p99<1s"],
            "there is no part called `spike`: the parts are hold",
        ),
        (
            &["--rate", "5/s", "--threshold", "spike: p99<1s"],
            "there is no part called `spike`: parts are those of --shape",
        ),
        (&["--shape", "hold 5/s 1s", "--abort-on", "hold: p99>1s"], "parts are judged at the end only"),
        (&["--control", "unix:/tmp/x"], "--control: changes a rate: add --rate"),
        (&["--rate", "5/s", "--control", "/tmp/x"], "--control /tmp/x: expected unix:PATH"),
        (
            &["--rate", "5/s", "--control", "unix:/dev/null"],
            "--control unix:/dev/null: there is a file already",
        ),
        (&["--rate", "5/s", "--control", "unix:/no/such/dir"], "--control unix:/no/such/dir: No such file"),
    ];
    for (args, message) in cases {
        let finished = load(&[args, &[URL][..]].concat());
        finished.expect_code(2);
        assert!(finished.stderr.contains(message), "{args:?}: wanted {message}\n{}", finished.stderr);
    }
}

// === changes by hand ===

/// Sends a command and returns the answer.
fn told(socket: &Path, command: &str) -> String {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.write_all(format!("{command}\n").as_bytes()).unwrap();
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer).unwrap();
    answer
}

#[test]
fn a_load_is_changed_by_hand_and_says_so() {
    let upstream = Upstream::fixed(OK);
    let dir = TempDir::new().unwrap();
    let socket = dir.path().join("load.sock");
    let control = format!("unix:{}", socket.display());
    let args =
        ["load", "--rate", "20/s", "-d60s", "--control", &control, "--format", "json", &url(&upstream)];
    let mut command = weir_command(dir.path());
    let run = command.args(args).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    upstream.wait_requests(5);
    assert!(told(&socket, "rate fast").starts_with("error: expected a rate such as 500/s"));
    assert!(told(&socket, "go").starts_with("error: it is not paused"));
    assert!(told(&socket, &"x".repeat(500)).starts_with("error: the line is longer than 128 bytes"));
    assert!(told(&socket, "rate 400/s").starts_with("ok: rate 400/s from "));
    let changed = upstream.requests().len();
    upstream.wait_requests(changed + 100);
    assert!(told(&socket, "pause").starts_with("ok: pause from "));
    // The pause takes effect a quarter of a second later: then the count stands still.
    let mut last = (upstream.requests().len(), Instant::now());
    eventually("no more requests come", || {
        let n = upstream.requests().len();
        if n != last.0 {
            last = (n, Instant::now());
        }
        last.1.elapsed() > Duration::from_millis(500)
    });
    assert!(told(&socket, "go").starts_with("ok: go from "));
    upstream.wait_requests(last.0 + 50);
    assert!(told(&socket, "stop").starts_with("ok: stopping"));
    let r: Report = serde_json::from_slice(&run.wait_with_output().unwrap().stdout).unwrap();
    let commands: Vec<&str> = r.changes.iter().map(|c| c.command.as_str()).collect();
    assert_eq!(commands, ["rate 400/s", "pause", "go", "stop"]);
    assert!(r.changes.is_sorted_by_key(|c| c.at_ns), "{:?}", r.changes);
    assert_eq!((r.end.clone(), r.counts.unsent), (End::Stopped, 0));
    assert_eq!(r.counts.responses as usize, upstream.requests().len());
    expect_reason(&r, "changed_by_hand", Grade::Suspect);
    assert!(!codes(&r).contains(&"rate_missed"), "{:?}", r.verdict);
    assert!(!socket.exists(), "the socket outlived the run");
}
