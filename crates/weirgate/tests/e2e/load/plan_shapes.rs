//! Plans whose loads have parts: the origin's own trace of requests is the truth that the report is held against.

use super::{codes, expect_reason, origin, url};
use crate::support::OK;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Instant;
use tempfile::TempDir;
use weir_report::Report;
use weir_report::report::{End, Grade, Pace, PartStats};
use weir_testkit::{Finished, Upstream, eventually, run_weir, weir_command};

/// The path and the arrival of each request.
type Trace = Arc<Mutex<Vec<(String, Instant)>>>;

/// An origin that notes them.
fn tracing() -> (Upstream, Trace) {
    let seen: Trace = Arc::default();
    let trace = Arc::clone(&seen);
    let upstream = Upstream::script(move |conn| {
        while let Some(request) = conn.next_request() {
            let path = request.head.line.split(' ').nth(1).unwrap_or_default().to_owned();
            trace.lock().unwrap().push((path, Instant::now()));
            conn.send(OK);
        }
    });
    (upstream, seen)
}

/// Runs a plan in which `TARGET` is the upstream. The report is saved as `r.json`.
#[track_caller]
fn run_in(dir: &Path, upstream: &Upstream, plan: &str, args: &[&str]) -> Finished {
    let plan = plan.replace("TARGET", url(upstream).trim_end_matches('/'));
    std::fs::write(dir.join("plan.yaml"), plan).unwrap();
    run_weir(dir, &[&["load", "-f", "plan.yaml", "--save", "r.json", "--no-dry-run"], args].concat())
}

#[track_caller]
fn saved(dir: &Path, finished: &Finished) -> Report {
    let text = std::fs::read_to_string(dir.join("r.json")).unwrap_or_else(|e| panic!("{e}: {finished:#?}"));
    run_weir(dir, &["report", "--verify", "r.json"]).expect_code(0);
    serde_json::from_str(&text).unwrap()
}

#[track_caller]
fn report_of(upstream: &Upstream, plan: &str, args: &[&str]) -> Report {
    let dir = TempDir::new().unwrap();
    let finished = run_in(dir.path(), upstream, plan, args);
    finished.expect_code(0);
    saved(dir.path(), &finished)
}

/// Name, planned, started and done.
fn told(parts: &[PartStats]) -> Vec<(&str, u64, u64, u64)> {
    let of = |p: &PartStats| p.iterations.as_ref().map_or((0, 0), |all| (all.started, all.done));
    parts.iter().map(|p| (p.name.as_str(), p.planned, of(p).0, of(p).1)).collect()
}

const STEPS: &str = "[ { name: list, get: /list }, { name: item, get: /item } ]";

#[test]
fn iterations_follow_the_parts_of_a_plan() {
    let (upstream, trace) = tracing();
    let plan = format!(
        "target: TARGET
rate: [ {{ hold: 40/s for 1s }}, {{ name: spike, jump: 200/s for 1s }}, {{ pause: 500ms }}, {{ hold: 40/s for 500ms }} ]
thresholds: [ 'spike: p50<1s', 'spike: iterations>150', 'spike: checks>99%', 'hold_2: iteration.p50<1s' ]
defaults: {{ checks: [ status=200 ] }}
scenarios: {{ s: {{ steps: {STEPS} }} }}"
    );
    let plan = plan
        .replace("hold: 40/s for 1s,", "{ hold: 40/s for 1s },")
        .replace("pause: 500ms,", "{ pause: 500ms },");
    let dir = TempDir::new().unwrap();
    let finished = run_in(dir.path(), &upstream, &plan, &["--threads=2", "--html", "r.html"]);
    finished.expect_code(0);
    let r = saved(dir.path(), &finished);
    let want = [("hold", 40, 40, 40), ("spike", 200, 200, 200), ("pause", 0, 0, 0), ("hold_2", 20, 20, 20)];
    assert_eq!(told(&r.parts), want);
    assert_eq!(r.parts.iter().map(|p| p.counts.responses).sum::<u64>(), 520, "two steps of each iteration");
    assert_eq!((r.parts[1].checks.len(), r.parts[1].checks[0].check.as_str()), (1, "status=200"));
    assert!(r.thresholds.len() == 4 && r.thresholds.iter().all(|t| t.passed), "{:?}", r.thresholds);
    // Ticks: planned and started iterations, and requests.
    let sum = |of: fn(&weir_report::report::Tick) -> u64| r.series.ticks.iter().map(of).sum::<u64>();
    assert_eq!((sum(|t| t.planned), sum(|t| t.started), sum(|t| t.requests)), (260, 260, 520));
    assert!(r.series.ticks[0].planned < 60 && r.series.ticks[1].planned > 150, "{:?}", r.series.ticks);
    let first = trace.lock().unwrap().iter().map(|(_, at)| *at).min().unwrap();
    let lists = trace.lock().unwrap().iter().filter(|(path, _)| path == "/list").count();
    let in_spike = |at: &Instant| (0.9..2.2).contains(&at.duration_since(first).as_secs_f64());
    let spike = trace.lock().unwrap().iter().filter(|(path, at)| path == "/list" && in_spike(at)).count();
    assert_eq!(lists, 260);
    assert!((170..=210).contains(&spike), "{spike}");
    for text in ["by part", "started", "spike", "4 parts of a rate"] {
        assert!(finished.stdout.contains(text), "{text}\n{}", finished.stdout);
    }
    let page = std::fs::read_to_string(dir.path().join("r.html")).unwrap();
    for text in ["<h2>Parts</h2>", "iterations started a second", "planned starts a second"] {
        assert!(page.contains(text), "{text}");
    }
}

#[test]
fn each_load_has_its_parts_and_joins_when_it_should() {
    let (upstream, trace) = tracing();
    let plan = "target: TARGET
thresholds: [ 'browse.spike: p50<1s', 'ramp: p50<1s' ]
scenarios:
  browse:
    rate: [ { hold: 40/s for 1s }, { name: spike, jump: 100/s for 500ms } ]
    steps: [ { name: list, get: /browse } ]
  buy:
    start_at: 500ms
    users: [ { ramp: 3 over 500ms }, { hold: 3 for 500ms } ]
    steps: [ { name: list, get: /buy }, { pause: 20ms } ]
  watch:
    rate: 20/s
    steps: [ { name: list, get: /watch } ]
";
    let r = report_of(&upstream, plan, &["--threads=2"]);
    let names: Vec<&str> = r.parts.iter().map(|p| p.name.as_str()).collect();
    assert_eq!(names, ["browse.hold", "browse.spike", "buy.ramp", "buy.hold"]);
    assert_eq!(told(&r.parts)[..2], [("browse.hold", 40, 40, 40), ("browse.spike", 50, 50, 50)]);
    assert!(r.parts[2].planned == 0 && r.parts[3].counts.responses > r.parts[2].counts.responses);
    assert!(r.thresholds.iter().all(|t| t.passed), "{:?}", r.thresholds);
    let Pace::Shape { parts, .. } = &r.scenarios[1].pace else { panic!("{:?}", r.scenarios[1].pace) };
    assert_eq!((parts[0].begin_ns, parts[1].end_ns), (500_000_000, 1_500_000_000));
    // The constant load lasts as long as the parts.
    let all = trace.lock().unwrap();
    let of = |path: &str| all.iter().filter(|(p, _)| p == path).map(|(_, at)| *at).collect::<Vec<_>>();
    assert_eq!((of("/browse").len(), of("/watch").len()), (90, 30));
    let late = of("/buy").iter().min().unwrap().duration_since(*of("/browse").iter().min().unwrap());
    assert!(late.as_secs_f64() > 0.45, "{late:?}");
}

#[test]
fn counts_are_exact_for_any_spacing_and_number_of_threads() {
    for (spacing, threads) in [("even", 1), ("even", 2), ("poisson", 1), ("poisson", 2), ("burst(7)", 2)] {
        let (upstream, trace) = tracing();
        let plan = format!(
            "target: TARGET
rate: [ {{ file: {{ csv: rates.csv, every: 250ms }} }}, {{ ramp: 80/s over 500ms }} ]
spacing: {spacing}
scenarios: {{ s: {{ steps: [ {{ name: a, get: / }} ] }} }}"
        );
        let dir = TempDir::new().unwrap();
        std::fs::write(dir.path().join("rates.csv"), "13\n0\n27\n4\n").unwrap();
        let finished = run_in(dir.path(), &upstream, &plan, &["--threads", &threads.to_string()]);
        let r = saved(dir.path(), &finished);
        // 44 of the file; from 16/s to 80/s in half a second: 24.
        assert_eq!((r.counts.requests, r.counts.unsent), (68, 0), "{spacing} {threads}: {:?}", r.counts);
        assert_eq!(trace.lock().unwrap().len(), 68);
        assert_eq!(told(&r.parts).iter().map(|p| p.1).sum::<u64>(), 68);
        if spacing == "even" {
            assert_eq!(told(&r.parts), [("file", 44, 44, 44), ("ramp", 24, 24, 24)]);
        }
    }
}

#[test]
fn each_part_of_a_plan_has_its_verdict_and_a_spike_its_recovery() {
    let begun: Arc<Mutex<Option<Instant>>> = Arc::default();
    let upstream = Upstream::script(move |conn| {
        while conn.next_request().is_some() {
            let since = begun.lock().unwrap().get_or_insert_with(Instant::now).elapsed();
            let bad = (1.0..2.0).contains(&since.as_secs_f64());
            conn.send(if bad { "HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n" } else { OK });
        }
    });
    let plan = "target: TARGET
rate: [ { hold: 50/s for 1s }, { name: spike, jump: 100/s for 950ms }, { pause: 100ms }, { hold: 50/s for 1s } ]
thresholds: [ 'spike: failed<1%', 'hold: p50<1s' ]
scenarios: { s: { steps: [ { name: a, get: / } ] } }";
    let dir = TempDir::new().unwrap();
    let finished = run_in(dir.path(), &upstream, plan, &["--junit", "r.xml"]);
    finished.expect_code(1);
    let r = saved(dir.path(), &finished);
    assert_eq!(r.thresholds.iter().map(|t| t.passed).collect::<Vec<_>>(), [false, true]);
    assert_eq!(r.parts[1].verdict.grade, Grade::Invalid, "{:?}", r.parts[1].verdict);
    assert!(r.parts[3].verdict.grade < Grade::Invalid, "{:?}", r.parts[3].verdict);
    expect_reason(&r, "part_invalid", Grade::Suspect);
    assert!(r.parts[1].recovery.is_some() && r.parts[0].recovery.is_none());
    assert!(finished.stdout.contains("recovery     spike: "), "{}", finished.stdout);
}

#[test]
fn a_part_that_found_no_user_says_so() {
    let (_origin, slow) = origin("/delay/50");
    let plan = "rate: [ { hold: 10/s for 500ms }, { jump: 200/s for 500ms } ]
users_max: 2
scenarios: { s: { steps: [ { name: a, get: SLOW } ] } }";
    let dir = TempDir::new().unwrap();
    std::fs::write(dir.path().join("plan.yaml"), plan.replace("SLOW", &slow)).unwrap();
    let args = ["load", "-f", "plan.yaml", "--save", "r.json", "--no-dry-run", "--threads=2"];
    let finished = run_weir(dir.path(), &args);
    let r = saved(dir.path(), &finished);
    assert_eq!((r.parts[0].counts.unsent, r.parts[0].planned, r.parts[1].planned), (0, 5, 100));
    let started = r.parts[1].iterations.as_ref().unwrap().started;
    assert_eq!(r.parts[1].counts.unsent + started, 100, "{:?}", r.parts[1].counts);
    assert!(r.parts[1].counts.unsent > 50);
    assert!(r.series.ticks.iter().any(|t| t.backlog > 0) || r.health.backlog_max > 0, "{:?}", r.health);
    assert!(codes(&r).contains(&"rate_missed"), "{:?}", r.verdict);
    assert!(r.parts[1].verdict.reasons.iter().any(|reason| reason.code == "rate_missed"));
}

#[test]
fn options_that_contradict_parts_of_a_plan_are_refused() {
    let upstream = Upstream::fixed(OK);
    let plan = "target: TARGET
scenarios:
  a: { rate: [ { hold: 5/s for 2s } ], steps: [ { name: x, get: / } ] }
";
    let both = format!("{plan}  b: {{ rate: 1/s, steps: [ {{ name: y, get: / }} ] }}\n");
    for (plan, args, want) in [
        (plan, ["-d", "5s"], "-d: the parts of the plan's `rate` or `users` set the duration already"),
        (&both, ["-d", "1s"], "-d: ends before the parts of the plan, which take 2.000 s"),
        (plan, ["--warmup", "1s"], "--warmup: a load with parts has no warm-up"),
        (plan, ["--rounds", "5"], "--rounds 5: blocks compare only under a constant load"),
        (plan, ["--threshold", "hodl: p99<1s"], "no scenario, step or part `hodl`"),
    ] {
        let dir = TempDir::new().unwrap();
        let finished = run_in(dir.path(), &upstream, plan, &args);
        finished.expect_code(2);
        assert!(finished.stderr.contains(want), "{args:?}: {}", finished.stderr);
    }
    assert_eq!(upstream.requests().len(), 0);
}

// === changes by hand ===

/// Sends a command and returns the answer.
fn told_by(socket: &Path, command: &str) -> String {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.write_all(format!("{command}\n").as_bytes()).unwrap();
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer).unwrap();
    answer
}

#[test]
fn the_rates_of_a_plan_are_changed_by_hand() {
    let (upstream, trace) = tracing();
    let dir = TempDir::new().unwrap();
    let plan = "target: TARGET
duration: 60s
dry_run: false
scenarios:
  browse: { rate: 20/s, steps: [ { name: list, get: /browse } ] }
  buy: { rate: [ { hold: 20/s for 60s } ], steps: [ { name: list, get: /buy } ] }
";
    let plan = plan.replace("TARGET", url(&upstream).trim_end_matches('/'));
    std::fs::write(dir.path().join("plan.yaml"), plan).unwrap();
    let socket = dir.path().join("load.sock");
    let control = format!("unix:{}", socket.display());
    let args = ["load", "-f", "plan.yaml", "--control", &control, "--format", "json", "--threads=2"];
    let mut command = weir_command(dir.path());
    let run = command.args(args).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let count = |path: &str| trace.lock().unwrap().iter().filter(|(p, _)| p == path).count();
    eventually("both have begun", || count("/browse") > 5 && count("/buy") > 5);
    let names = "error: which scenario? `rate NAME 500/s`; the names are browse, buy\n";
    assert_eq!(told_by(&socket, "rate 400/s"), names);
    assert_eq!(told_by(&socket, "rate basket 4/s"), "error: there is no scenario `basket`\n");
    assert!(
        told_by(&socket, "rate buy 0.0000001/s").starts_with("error: expected a rate from 0.001/h to 10M/s")
    );
    assert!(told_by(&socket, "rate browse 400/s").starts_with("ok: rate browse 400/s from "));
    let (browse, buy) = (count("/browse"), count("/buy"));
    eventually("it is faster", || count("/browse") > browse + 200);
    assert!(count("/buy") < buy + 100, "the other one is not");
    assert!(told_by(&socket, "pause").starts_with("ok: pause from "));
    assert!(told_by(&socket, "pause").starts_with("error: it is paused already"));
    let mut last = (0, Instant::now());
    eventually("nothing more comes", || {
        let n = trace.lock().unwrap().len();
        if n != last.0 {
            last = (n, Instant::now());
        }
        last.1.elapsed().as_millis() > 500
    });
    assert!(told_by(&socket, "go").starts_with("ok: go from "));
    eventually("it goes on", || trace.lock().unwrap().len() > last.0 + 50);
    assert!(told_by(&socket, "stop").starts_with("ok: stopping"));
    let r: Report = serde_json::from_slice(&run.wait_with_output().unwrap().stdout).unwrap();
    let commands: Vec<&str> = r.changes.iter().map(|c| c.command.as_str()).collect();
    assert_eq!(commands, ["rate browse 400/s", "pause", "go", "stop"]);
    assert_eq!((r.end.clone(), r.counts.unsent), (End::Stopped, 0));
    assert_eq!(r.counts.responses as usize, trace.lock().unwrap().len());
    let planned: u64 = r.series.ticks.iter().map(|t| t.planned).sum();
    let started: u64 = r.series.ticks.iter().map(|t| t.started).sum();
    assert_eq!((planned, started), (r.counts.requests, r.counts.requests), "exact after the changes");
    expect_reason(&r, "changed_by_hand", Grade::Suspect);
}

#[test]
fn a_command_after_the_end_is_refused() {
    let (_origin, target) = origin("/delay/2000");
    let dir = TempDir::new().unwrap();
    let socket = dir.path().join("load.sock");
    let control = format!("unix:{}", socket.display());
    let args = ["load", "--rate", "10/s", "-d", "500ms", "--control", &control, "--format", "json", &target];
    let begun = Instant::now();
    let run =
        weir_command(dir.path()).args(args).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    eventually("the run has begun", || socket.exists());
    // The answers take two seconds, so that the run is still there when its load is over.
    let mut answers = Vec::new();
    eventually("the load is over", || {
        answers.push(told_by(&socket, "rate 20/s"));
        answers.last().is_some_and(|answer| answer.contains("the load is over"))
            || begun.elapsed().as_secs() > 8
    });
    assert_eq!(told_by(&socket, "stop"), "error: the load is over: only answers are awaited\n");
    let r: Report = serde_json::from_slice(&run.wait_with_output().unwrap().stdout).unwrap();
    assert_eq!(r.end, End::Duration);
    let accepted = answers.iter().filter(|answer| answer.starts_with("ok")).count();
    assert_eq!(r.changes.len(), accepted, "{answers:?}");
    assert!(answers.iter().any(|answer| answer.starts_with("error: the load")), "{answers:?}");
}

#[test]
fn commands_need_rates() {
    let upstream = Upstream::fixed(OK);
    let plan = "target: TARGET\nscenarios: { s: { users: 2, steps: [ { name: a, get: / } ] } }";
    let dir = TempDir::new().unwrap();
    let finished = run_in(dir.path(), &upstream, plan, &["--control", "unix:c.sock"]);
    finished.expect_code(2);
    assert!(finished.stderr.contains("--control: changes rates: the plan has `users`"), "{finished:#?}");
    assert!(!dir.path().join("c.sock").exists());
}
