//! Plans with scenarios: conversations with a scripted shop whose own trace is the truth.

use std::collections::{BTreeMap, BTreeSet};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tempfile::TempDir;
use weir_report::Report;
use weir_report::report::{Grade, StepStats};
use weir_testkit::{Finished, Request, Upstream, run_weir, weir_command};

use super::{codes, expect_reason, url};

/// Runs a plan; `TARGET` in it is the upstream.
#[track_caller]
pub(super) fn run(upstream: &Upstream, plan: &str, args: &[&str]) -> Finished {
    run_with(upstream, plan, &[], args)
}

/// The same, with files beside it.
#[track_caller]
pub(super) fn run_with(upstream: &Upstream, plan: &str, files: &[(&str, &str)], args: &[&str]) -> Finished {
    let dir = TempDir::new().unwrap();
    let plan = plan.replace("TARGET", &format!("http://{}", upstream.address()));
    std::fs::write(dir.path().join("plan.yaml"), plan).unwrap();
    for (name, text) in files {
        std::fs::write(dir.path().join(name), text).unwrap();
    }
    run_weir(dir.path(), &[&["load", "-f", "plan.yaml", "--format", "json"], args].concat())
}

#[track_caller]
pub(super) fn report(finished: &Finished) -> Report {
    serde_json::from_str(&finished.stdout).unwrap_or_else(|e| panic!("{e}: {finished:#?}"))
}

#[track_caller]
pub(super) fn step<'a>(report: &'a Report, name: &str) -> &'a StepStats {
    report
        .steps
        .iter()
        .find(|s| s.full_name() == name)
        .unwrap_or_else(|| panic!("{name}: {:#?}", report.steps))
}

/// An answer with this status, more fields, and this body.
pub(super) fn answer(status: u16, fields: &str, body: &str) -> String {
    format!("HTTP/1.1 {status} X\r\n{fields}Content-Length: {}\r\n\r\n{body}", body.len())
}

/// A server that answers each request by this function.
pub(super) fn shop(of: impl Fn(&Request) -> String + Send + Sync + 'static) -> Upstream {
    Upstream::script(move |conn| {
        while let Some(request) = conn.next_request() {
            if conn.try_send(of(&request)).is_err() {
                return;
            }
        }
    })
}

/// The method and path of a request.
pub(super) fn line(request: &Request) -> &str {
    request.head.line.rsplit_once(' ').map_or("", |(line, _)| line)
}

#[test]
fn a_user_logs_in_keeps_its_token_and_fills_its_basket() {
    let users = AtomicUsize::new(0);
    let upstream = shop(move |request| match line(request) {
        "POST /login" => {
            let n = users.fetch_add(1, Ordering::Relaxed);
            let cookie = format!("Set-Cookie: sid=s{n}; Path=/\r\n");
            answer(200, &cookie, &format!("{{\"token\":\"t{n}\",\"role\":\"buyer\"}}"))
        }
        "GET /items?tenant=7" => answer(200, "ETag: \"v1\"\r\n", r#"{"items":[{"id":4},{"id":5}]}"#),
        "POST /basket" => answer(201, "", ""),
        "POST /logout" => answer(204, "", ""),
        _ => answer(404, "", ""),
    });
    let plan = "
target: TARGET
values: { tenant: 7 }
defaults: { checks: [ status=2xx ] }
scenarios:
  shop:
    users: 3
    iterations: 30
    start:
      - { name: login, post: /login, json: { user: me }, keep: { token: 'json:$.token' } }
    steps:
      - name: list
        get: /items?tenant={{tenant}}
        headers: { authorization: 'Bearer {{token}}' }
        keep: { id: 'json:$.items[*].id|last', etag: 'header:etag' }
      - name: add
        post: /basket
        headers: { authorization: 'Bearer {{token}}', if-match: '{{etag}}' }
        json: { id: '{{id|int}}' }
    end:
      - { name: logout, post: /logout, headers: { authorization: 'Bearer {{token}}' } }
";
    let finished = run(&upstream, plan, &["--no-dry-run", "--threads", "2"]);
    finished.expect_code(0);
    let r = report(&finished);
    assert_eq!((r.scenarios[0].started, r.scenarios[0].done), (30, 30), "{:#?}", r.scenarios);
    assert_eq!(r.scenarios[0].iteration.count(), 30);
    for (name, n) in [("login", 3), ("list", 30), ("add", 30), ("logout", 3)] {
        let step = step(&r, &format!("shop.{name}"));
        assert_eq!((step.requests, step.responses, step.checked()), (n, n, (n, 0)), "{name}");
    }
    // What the shop saw is what the report says.
    let seen = upstream.requests();
    assert_eq!(seen.len() as u64, r.counts.requests);
    let of_user = |request: &Request| {
        let token =
            request.head.header("authorization").and_then(|a| a.strip_prefix("Bearer t")).unwrap().to_owned();
        let cookie = request.head.header("cookie").and_then(|c| c.strip_prefix("sid=s")).unwrap().to_owned();
        assert_eq!(token, cookie, "a user has the cookie of another: {}", request.head.line);
        (token, request.connection)
    };
    let mut connections: BTreeMap<String, BTreeSet<usize>> = BTreeMap::new();
    for request in seen.iter().filter(|r| line(r) != "POST /login") {
        let (user, connection) = of_user(request);
        connections.entry(user).or_default().insert(connection);
        if line(request) == "POST /basket" {
            assert_eq!(request.body.bytes, br#"{"id":5}"#, "the last id of the list");
            assert_eq!(request.head.header("if-match"), Some("\"v1\""));
            assert_eq!(request.head.header("content-type"), Some("application/json"));
        }
    }
    assert_eq!(connections.len(), 3);
    assert!(connections.values().all(|c| c.len() == 1), "a user keeps its connection: {connections:?}");
    assert_eq!(upstream.connections(), 3);
}

#[test]
fn weights_are_exact_over_threads() {
    let upstream = shop(|_| answer(200, "", ""));
    let plan = "
target: TARGET
users: 4
scenarios:
  a: { weight: 7, steps: [ { name: x, get: /a }, { pause: 'uniform(0s,3ms)' } ] }
  b: { weight: 3, steps: [ { name: y, get: /b }, { pause: '10ms' } ] }
";
    let finished = run(&upstream, plan, &["--no-dry-run", "--threads", "2", "-d", "700ms"]);
    let r = report(&finished);
    let (a, b) = (r.scenarios[0].started, r.scenarios[1].started);
    let whole = (a + b) / 10;
    assert!(whole > 5, "{a} {b}");
    assert!(a.abs_diff(whole * 7) <= 7 && b.abs_diff(whole * 3) <= 3, "{a} {b}");
    assert!(!codes(&r).contains(&"weights_missed"), "{:?}", r.verdict);
    let seen = upstream.requests();
    let of = |path: &str| seen.iter().filter(|r| line(r) == path).count() as u64;
    assert_eq!((of("GET /a"), of("GET /b")), (a, b), "iterations started at the origin");
}

#[test]
fn each_row_is_used_once_over_threads_and_then_the_scenario_ends() {
    let upstream = shop(|_| answer(200, "", ""));
    let rows: String = (0..50).map(|n| format!("u{n}\n")).collect();
    let plan = "
target: TARGET
data: { users: { file: users.csv, pick: once, at_end: stop } }
scenarios:
  a: { users: 7, steps: [ { name: x, get: '/u/{{users.name}}' } ] }
";
    let files = [("users.csv", &*format!("name\n{rows}"))];
    let finished = run_with(&upstream, plan, &files, &["--no-dry-run", "--threads", "2"]);
    let r = report(&finished);
    let seen: Vec<String> = upstream.requests().iter().map(|r| line(r).to_owned()).collect();
    let distinct: BTreeSet<&String> = seen.iter().collect();
    assert_eq!((seen.len(), distinct.len()), (50, 50), "each row once");
    assert_eq!((r.scenarios[0].done, r.scenarios[0].data_ended.as_deref()), (50, Some("users")));
    expect_reason(&r, "data_ended", Grade::Valid);

    let plan = plan.replace("at_end: stop", "at_end: fail");
    let finished = run_with(&upstream, &plan, &files, &["--no-dry-run"]);
    finished.expect_code(1);
    assert!(finished.stdout.contains("has no more rows"), "{finished:#?}");
}

#[test]
fn a_failed_keep_ends_its_iteration_and_is_told() {
    let n = AtomicUsize::new(0);
    let upstream = shop(move |request| match line(request) {
        "GET /list" if n.fetch_add(1, Ordering::Relaxed) % 4 == 3 => {
            answer(200, "", r#"{"error":"busy","token":"s3cret"}"#)
        }
        "GET /list" => answer(200, "", r#"{"id":1}"#),
        "GET /item/1" => answer(404, "", "none"),
        _ => answer(500, "", ""),
    });
    let plan = "
target: TARGET
scenarios:
  a:
    users: 1
    iterations: 40
    steps:
      - { name: list, get: /list, keep: { id: 'json:$.id' } }
      - { name: item, get: '/item/{{id}}', checks: [ 'status=200,404' ], keep: { text: 'body~(none)' } }
      - { name: never, get: '/never/{{text}}', checks: [ status=5xx ] }
";
    let r = report(&run(&upstream, plan, &["--no-dry-run", "--threads", "1"]));
    assert_eq!((r.scenarios[0].started, r.scenarios[0].done), (40, 30));
    assert_eq!(r.scenarios[0].broken_off, [("list".to_owned(), 10)].into());
    let list = step(&r, "a.list");
    assert_eq!((list.keeps[0].taken, list.keeps[0].failed), (30, 10));
    let sample = list.keeps[0].sample.as_deref().unwrap();
    assert!(sample.contains("busy") && !sample.contains("s3cret"), "{sample}");
    // A 404 that the step expects keeps like any other answer.
    let item = step(&r, "a.item");
    assert_eq!((item.responses, item.checked(), item.keeps[0].taken), (30, (30, 0), 30));
    expect_reason(&r, "failed_keeps", Grade::Suspect);
    let most = plan.replace("json:$.id", "json:$.no_such");
    let r = report(&run(&upstream, &most, &["--no-dry-run"]));
    expect_reason(&r, "failed_keeps", Grade::Invalid);
    expect_reason(&r, "unreached_step", Grade::Suspect);
}

#[test]
fn a_failed_check_goes_on_unless_the_step_says_otherwise() {
    let upstream = shop(|request| answer(if line(request) == "GET /bad" { 500 } else { 200 }, "", ""));
    let plan = "
target: TARGET
defaults: { checks: [ status=2xx ] }
scenarios:
  a: { users: 1, iterations: 5, steps: [ { name: bad, get: /bad }, { name: next, get: /next } ] }
";
    let r = report(&run(&upstream, plan, &["--no-dry-run"]));
    assert_eq!((r.scenarios[0].done, step(&r, "a.next").responses), (5, 5));
    assert_eq!((step(&r, "a.bad").checked(), r.counts.failed_checks), ((0, 5), 5));
    expect_reason(&r, "failed_checks", Grade::Suspect);

    let ends = plan.replace("users: 1,", "users: 1, on_failure: end,");
    let r = report(&run(&upstream, &ends, &["--no-dry-run"]));
    assert_eq!((r.scenarios[0].done, step(&r, "a.next").requests), (0, 0));
    assert_eq!(r.scenarios[0].broken_off, [("bad".to_owned(), 5)].into());

    let stops = plan.replace("users: 1,", "users: 1, on_failure: stop,");
    let finished = run(&upstream, &stops, &["--no-dry-run"]);
    finished.expect_code(1);
    assert!(finished.stdout.contains("step `bad` failed"), "{finished:#?}");
}

#[test]
fn a_hanging_step_is_slower_than_every_percentile() {
    let n = Mutex::new(0);
    let upstream = Upstream::script(move |conn| {
        while let Some(request) = conn.next_request() {
            let hangs = line(&request) == "GET /slow" && {
                let mut n = n.lock().unwrap();
                *n += 1;
                *n % 5 == 0
            };
            if hangs {
                conn.expect_eof(); // the tester gives up
                return;
            }
            if conn.try_send(answer(200, "", "")).is_err() {
                return;
            }
        }
    });
    let plan = "
target: TARGET
defaults: { timeout: 200ms }
scenarios:
  a: { users: 1, iterations: 20, steps: [ { name: slow, get: /slow }, { name: fast, get: /fast } ] }
thresholds: [ 'slow: p50<150ms', 'slow: p99<1h', 'slow: max<1h', 'fast: p99<1h', 'a: iterations>19' ]
";
    let finished = run(&upstream, plan, &["--no-dry-run"]);
    finished.expect_code(1);
    let r = report(&finished);
    assert_eq!((step(&r, "a.slow").errors.timeout, step(&r, "a.fast").responses), (4, 20));
    let passed: Vec<bool> = r.thresholds.iter().map(|t| t.passed).collect();
    assert_eq!(passed, [true, false, false, true, true], "{:#?}", r.thresholds);
    assert!(r.thresholds[1].unanswered);
}

#[test]
fn a_dry_run_tells_what_fails_and_sends_nothing_more() {
    let upstream = shop(|request| match line(request) {
        "POST /login?key=k3y" => answer(200, "Set-Cookie: sid=s3cret\r\n", r#"{"token":"s3cret"}"#),
        _ => answer(403, "X-Reason: no\r\n", "denied"),
    });
    let plan = "
target: TARGET
defaults: { checks: [ status=2xx ] }
scenarios:
  a:
    users: 50
    start: [ { name: login, post: '/login?key=k3y', json: { password: p4ss }, keep: { t: 'json:$.token' } } ]
    steps: [ { name: list, get: /list, headers: { authorization: 'Bearer {{t}}' } }, { name: x, get: /x } ]
";
    let finished = run(&upstream, plan, &[]);
    finished.expect_code(1);
    for told in [
        "dry run of `a`",
        "step `list` failed: check status=2xx: 403",
        "> GET /list HTTP/1.1",
        "< x-reason: no",
    ] {
        assert!(finished.stderr.to_lowercase().contains(&told.to_lowercase()), "{told}: {finished:#?}");
    }
    assert!(!finished.stderr.contains("s3cret"), "{finished:#?}");
    assert!(finished.stdout.is_empty(), "{finished:#?}");
    let seen: Vec<String> = upstream.requests().iter().map(|r| line(r).to_owned()).collect();
    assert!(seen.len() <= 3, "{seen:?}");
}

/// Ctrl-C is heard before there is a load to end.
#[test]
fn ctrl_c_ends_a_setup_that_hangs() {
    let upstream = Upstream::listen();
    let dir = TempDir::new().unwrap();
    let plan = format!(
        "target: {}\nsetup: [ {{ name: token, get: /token, timeout: 60s }} ]\nscenarios: {{ a: {{ users: 1, iterations: 1, steps: [ {{ name: x, get: /x }} ] }} }}\n",
        url(&upstream)
    );
    std::fs::write(dir.path().join("plan.yaml"), plan).unwrap();
    let mut command = weir_command(dir.path());
    let child =
        command.args(["load", "plan.yaml"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut held = upstream.accept();
    held.read_request();
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let ended = child.wait_with_output().unwrap();
    let told = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(1), "{told}");
    assert!(told.contains("interrupted before the load began"), "{told}");
}

#[test]
fn setup_runs_once_and_its_values_are_everyones() {
    let upstream = shop(|request| match line(request) {
        "POST /token" => answer(200, "", r#"{"t":"abc"}"#),
        _ => answer(200, "", ""),
    });
    let plan = "
target: TARGET
setup: [ { name: token, post: /token, keep: { t: 'json:$.t' } } ]
scenarios: { a: { users: 3, iterations: 9, steps: [ { name: x, get: /x, headers: { authorization: '{{t}}' } } ] } }
teardown: [ { name: bye, delete: '/token/{{t}}' } ]
";
    let r = report(&run(&upstream, plan, &[]));
    let seen = upstream.requests();
    let of = |path: &str| seen.iter().filter(|r| line(r) == path).count();
    // One iteration is the dry run's.
    assert_eq!((of("POST /token"), of("GET /x"), of("DELETE /token/abc")), (1, 10, 1));
    assert!(
        seen.iter().filter(|r| line(r) == "GET /x").all(|r| r.head.header("authorization") == Some("abc"))
    );
    assert_eq!((step(&r, "token").responses, step(&r, "bye").responses, r.counts.responses), (1, 1, 9));
    expect_reason(&r, "one_identity", Grade::Valid);
}

#[test]
fn starts_of_a_rate_that_find_no_user_are_told() {
    let upstream = Upstream::script(|conn| {
        while conn.next_request().is_some() {
            conn.expect_silence(Duration::from_millis(100)); // a slow service
            if conn.try_send(answer(200, "", "")).is_err() {
                return;
            }
        }
    });
    let plan = "
target: TARGET
scenarios: { a: { rate: 100/s, users_max: 2, steps: [ { name: x, get: /x } ] } }
";
    let args = ["--no-dry-run", "-d", "1s", "--threads", "1"];
    let r = report(&run(&upstream, plan, &args));
    let s = &r.scenarios[0];
    assert!((96..=104).contains(&(s.started + s.not_started)), "{s:?}");
    assert!(s.started <= 22 && s.users == 2, "{s:?}");
    // Their times count from when they should have begun.
    assert!(s.iteration.max() > 300_000_000, "{}", s.iteration.max());
    expect_reason(&r, "rate_missed", Grade::Invalid);
    assert!(upstream.connections() <= 2, "{}", upstream.connections());
}

#[test]
fn redirects_are_requests_of_their_own() {
    let upstream = shop(|request| match line(request) {
        "POST /old" => answer(303, "Location: /new?a=1\r\nSet-Cookie: c=d\r\n", ""),
        "GET /new?a=1" => answer(200, "", r#"{"ok":true}"#),
        "GET /loop?code=s3cret" => answer(302, "Location: /loop?code=s3cret\r\n", ""),
        _ => answer(404, "", ""),
    });
    let plan = "
target: TARGET
defaults: { redirects: 3, checks: [ status=2xx ] }
scenarios:
  a: { users: 1, iterations: 4, steps: [ { name: go, post: /old, body: hello, keep: { ok: 'json:$.ok' } }, { name: end, get: '/new?a=1', headers: { x: '{{ok}}' } } ] }
  b: { users: 1, iterations: 2, steps: [ { name: round, get: '/loop?code=s3cret' } ] }
";
    let r = report(&run(&upstream, plan, &["--no-dry-run"]));
    assert_eq!((step(&r, "a.go").responses, step(&r, "a.go (redirect)").responses), (4, 4));
    assert_eq!(step(&r, "a.go").checked(), (4, 0), "checks look at the last answer");
    let hop = upstream.requests().into_iter().find(|r| line(r) == "GET /new?a=1").unwrap();
    assert_eq!((hop.head.header("cookie"), hop.head.header("content-length")), (Some("c=d"), None));
    assert_eq!((r.scenarios[1].done, r.scenarios[1].broken()), (0, 2), "a loop ends the iteration");
    assert!(r.counts.error_texts.keys().any(|t| t.contains("loop of redirects")), "{:?}", r.counts);
    // Nobody got the answer that the checks are about.
    assert_eq!((step(&r, "b.round").checked(), r.counts.failed_checks), ((0, 2), 2));
    assert!(!r.counts.error_texts.keys().any(|t| t.contains("s3cret")), "{:?}", r.counts);
}

#[test]
fn resources_of_a_page_are_fetched_at_once() {
    let (now, most) = (AtomicUsize::new(0), std::sync::Arc::new(AtomicUsize::new(0)));
    let seen = most.clone();
    let upstream = Upstream::script(move |conn| {
        while let Some(request) = conn.next_request() {
            let at_once = now.fetch_add(1, Ordering::SeqCst) + 1;
            seen.fetch_max(at_once, Ordering::SeqCst);
            if line(&request) != "GET /" {
                conn.expect_silence(Duration::from_millis(40)); // so that requests overlap
            }
            now.fetch_sub(1, Ordering::SeqCst);
            if conn.try_send(answer(200, "", "")).is_err() {
                return;
            }
        }
    });
    let plan = "
target: TARGET
scenarios:
  a:
    users: 1
    iterations: 2
    steps:
      - { name: page, get: / }
      - parallel: 3
        steps: [ { name: a, get: /a }, { name: b, get: /b }, { name: c, get: /c }, { name: d, get: /d } ]
      - { name: last, get: / }
";
    let r = report(&run(&upstream, plan, &["--no-dry-run"]));
    assert_eq!((r.scenarios[0].done, r.counts.responses), (2, 12));
    assert_eq!((most.load(Ordering::SeqCst), upstream.connections()), (3, 3), "at most three at once");
}

#[test]
fn conditions_and_repeats_decide_what_is_sent() {
    let upstream = shop(|request| match line(request) {
        "GET /list" => answer(200, "ETag: x\r\n", r#"{"more":true}"#),
        _ => answer(200, "", ""),
    });
    let plan = "
target: TARGET
scenarios:
  a:
    users: 1
    iterations: 2
    steps:
      - { name: list, get: /list, keep: { etag: 'header:etag|optional', none: 'header:nothing|optional' } }
      - { if: etag, then: [ { name: has, get: /has } ] }
      - { if: none, then: [ { name: no, get: /no } ], else: [ { name: else, get: /else } ] }
      - { repeat: 3, steps: [ { name: more, get: '/more?page={{index}}' } ] }
";
    let r = report(&run(&upstream, plan, &["--no-dry-run"]));
    let seen: Vec<String> = upstream.requests().iter().map(|r| line(r).to_owned()).collect();
    let once =
        ["GET /list", "GET /has", "GET /else", "GET /more?page=0", "GET /more?page=1", "GET /more?page=2"];
    assert_eq!(seen, [once, once].concat());
    assert_eq!(step(&r, "a.no").requests, 0);
    expect_reason(&r, "unreached_step", Grade::Suspect);
}

#[test]
fn a_user_speaks_http2_with_a_stream_for_each_request_at_once() {
    let (origin, _) = super::origin("/");
    let plan = format!(
        "
target: http://{}
defaults: {{ http2: true, checks: [ status=200 ] }}
scenarios:
  a:
    users: 2
    iterations: 6
    steps:
      - {{ name: page, get: /body/100, keep: {{ type: 'header:content-type' }} }}
      - parallel: 3
        steps: [ {{ name: a, get: /delay/30 }}, {{ name: b, get: /delay/30 }}, {{ name: c, get: /delay/30 }} ]
      - {{ name: send, post: /body/10, body: 'kind {{{{type}}}}' }}
",
        origin.address()
    );
    let upstream = Upstream::fixed("");
    let r = report(&run(&upstream, &plan, &["--no-dry-run", "--threads", "1"]));
    assert_eq!((r.scenarios[0].done, r.counts.responses), (6, 30), "{:#?}", r.counts);
    assert_eq!(r.ledger.protocols, [("HTTP/2".to_owned(), 30)].into());
    assert_eq!(r.connections.opened, 2, "one for each user");
    // One after another, the last of the three would take 90 ms.
    let last = step(&r, "a.c").response.min();
    assert!(last < 75_000_000, "{last}");
    assert!(!codes(&r).contains(&"wrong_protocol"), "{:?}", r.verdict);
}

#[test]
fn cookies_last_as_long_as_the_plan_says() {
    let upstream = shop(|request| match line(request) {
        "GET /first" => answer(200, "Set-Cookie: first=1; Path=/\r\n", ""),
        "GET /set" => answer(200, "Set-Cookie: step=1; Path=/\r\n", ""),
        _ => answer(200, "", ""),
    });
    let plan = "
target: TARGET
scenarios:
  s:
    users: 1
    iterations: 3
    cookies: COOKIES
    start: [ { name: first, get: /first } ]
    steps: [ { name: begin, get: /begin }, { name: set, get: /set }, { name: end, get: /end } ]
";
    for (cookies, begin, end) in [
        (
            "true",
            &[Some("first=1"), Some("first=1; step=1"), Some("first=1; step=1")],
            Some("first=1; step=1"),
        ),
        ("iteration", &[Some("first=1"); 3], Some("first=1; step=1")),
        ("false", &[None; 3], None),
    ] {
        upstream.forget();
        run(&upstream, &plan.replace("COOKIES", cookies), &["--no-dry-run"]).expect_code(0);
        let requests = upstream.requests();
        let sent = |path: &str| -> Vec<Option<String>> {
            let of_path = requests.iter().filter(|request| line(request) == format!("GET {path}"));
            of_path.map(|request| request.head.header("cookie").map(str::to_owned)).collect()
        };
        let owned = |wanted: &[Option<&str>]| -> Vec<Option<String>> {
            wanted.iter().map(|cookie| cookie.map(str::to_owned)).collect()
        };
        assert_eq!(sent("/begin"), owned(begin), "{cookies}");
        assert_eq!(sent("/end"), owned(&[end; 3]), "{cookies}");
    }
}

#[test]
fn a_plan_of_one_plain_request_runs_like_one_without_a_plan() {
    let upstream = shop(|request| match line(request) {
        "GET /cookie" => answer(200, "Set-Cookie: a=b\r\n", ""),
        _ => answer(200, "", ""),
    });
    let plan = "
target: TARGET
defaults: { checks: [ status=2xx ] }
scenarios: { a: { users: 2, iterations: 20, steps: [ { name: x, get: /x, headers: { accept: text/plain } } ] } }
thresholds: [ 'x: p99<10s', 'a: iterations>19' ]
";
    let finished = run(&upstream, plan, &[]);
    finished.expect_code(0);
    let r = report(&finished);
    assert_eq!(
        (r.scenarios[0].done, step(&r, "a.x").responses, step(&r, "a.x").checked()),
        (20, 20, (20, 0))
    );
    assert!(
        r.ledger.first_request.contains("accept: text/plain"),
        "only the other engine keeps it: {:?}",
        r.ledger
    );
    assert_eq!(upstream.requests().len(), 21, "and the dry run's");

    // With a cookie, users are more than connections.
    upstream.forget();
    let r = report(&run(&upstream, &plan.replace("/x", "/cookie"), &[]));
    assert_eq!((r.scenarios[0].done, r.ledger.first_request.as_str()), (20, ""));
    let with_cookie = upstream.requests().iter().filter(|r| r.head.header("cookie") == Some("a=b")).count();
    assert_eq!(with_cookie, 18, "all but the first of each user, and the dry run's");
}
