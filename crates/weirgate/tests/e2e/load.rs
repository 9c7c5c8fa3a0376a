//! The load tester: its requests, its counts, and its verdict. `layouts` tests its output, `compare` comparisons.

mod agents;
mod answers;
mod bench;
mod bench_file;
mod ci;
mod ci_examples;
mod compare;
mod edges;
mod faults;
mod foreign;
mod grpc;
mod journey_ends;
mod journey_faults;
mod journeys;
mod knee;
mod layouts;
mod live;
mod mistakes;
mod origin;
mod plan_shapes;
mod rate;
mod repeats;
mod shapes;
mod steps;

mod failed_runs;
mod http2;
mod http3;
mod proxy;
mod statistics;
mod throttled;
mod unequal;
mod verdict;
mod websocket;

use std::io::{Read, Write};
use std::os::unix::net::UnixListener;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use weir_origin::{Handle, Options, Origin};
use weir_report::Report;
use weir_report::report::{End, Grade};
use weir_testkit::{Authority, Finished, ServerTls, Upstream, alone, run_weir, weir_command};

use crate::support::{OK, OK_BODY};

/// An origin, and a URL of it with this path.
fn origin(path: &str) -> (Handle, String) {
    let handle =
        Origin::start(Options { address: "127.0.0.1:0".parse().unwrap(), ..Options::default() }).unwrap();
    let url = format!("http://{}{path}", handle.address());
    (handle, url)
}

fn url(upstream: &Upstream) -> String {
    format!("http://{}/", upstream.address())
}

/// Runs `weir load` with these arguments.
#[track_caller]
fn load(args: &[&str]) -> Finished {
    run_weir(TempDir::new().unwrap().path(), &[&["load"], args].concat())
}

/// Runs `weir load` and returns its JSON report.
#[track_caller]
fn report(args: &[&str]) -> Report {
    let finished = load(&[args, &["--format", "json"]].concat());
    serde_json::from_str(&finished.stdout).unwrap_or_else(|e| panic!("{e}: {finished:#?}"))
}

fn codes(report: &Report) -> Vec<&str> {
    report.verdict.reasons.iter().map(|r| r.code.as_str()).collect()
}

#[track_caller]
fn expect_reason(report: &Report, code: &str, grade: Grade) {
    let found = report.verdict.reasons.iter().find(|r| r.code == code);
    let found = found.unwrap_or_else(|| panic!("no {code} in {:#?}", report.verdict));
    assert_eq!(found.grade, grade, "{found:?}");
    assert!(report.verdict.grade >= grade, "{:?}", report.verdict);
}

// === requests ===

#[test]
fn a_request_is_what_was_asked_for() {
    let upstream = Upstream::fixed(OK);
    let dir = TempDir::new().unwrap();
    std::fs::write(dir.path().join("body.json"), "{\"a\":1}").unwrap();
    let target = format!("http://{}/path?q=1", upstream.address());
    let args = [
        "load",
        "-n1",
        "-XPUT",
        "-HX-A: b",
        "-u",
        "me:secret",
        "--cookie",
        "c=d",
        "--cookie",
        "e=f",
        "--data",
        "@body.json",
        "--format",
        "json",
        &target,
    ];
    let finished = run_weir(dir.path(), &args);
    finished.expect_code(0);
    let sent = String::from_utf8(upstream.take_request().head.raw.clone()).unwrap();
    assert_eq!(
        sent,
        format!(
            "PUT /path?q=1 HTTP/1.1\r\nHost: {}\r\nX-A: b\r\nAuthorization: Basic bWU6c2VjcmV0\r\nCookie: c=d; e=f\r\nContent-Length: 7\r\n\r\n",
            upstream.address()
        )
    );
    let report: Report = serde_json::from_str(&finished.stdout).unwrap();
    assert_eq!((report.bytes.sent_head, report.bytes.sent_body), (sent.len() as u64, 7));
    assert!(
        report.ledger.first_request.contains("Authorization: ***\\r\\n"),
        "{}",
        report.ledger.first_request
    );
    assert!(!finished.stdout.contains("bWU6c2VjcmV0"), "a password in the report");
}

#[test]
fn a_curl_command_line_is_understood() {
    let upstream = Upstream::fixed(OK);
    let curl = format!("curl '{}x' -H 'X-Y: z' --data-raw 'a=1'", url(&upstream));
    load(&["-n1", "--curl", &curl]).expect_code(0);
    let request = upstream.take_request();
    assert_eq!((request.head.line.as_str(), request.head.header("x-y")), ("POST /x HTTP/1.1", Some("z")));
    assert_eq!(request.head.header("content-type"), Some("application/x-www-form-urlencoded"));
}

#[test]
fn requests_differ_where_they_have_places_to_fill() {
    let upstream = Upstream::fixed(OK);
    let dir = TempDir::new().unwrap();
    std::fs::write(dir.path().join("users.csv"), "id,name\n7,Ann\n8,Bo B\n").unwrap();
    let target = format!("{}u/{{{{data.name}}}}?n={{{{counter}}}}", url(&upstream));
    let args = [
        "load",
        "-n3",
        "-c1",
        "--threads=1",
        "--feed",
        "users.csv",
        "--data",
        "{\"id\":{{data.id}}}",
        "--format",
        "json",
        &target,
    ];
    let finished = run_weir(dir.path(), &args);
    finished.expect_code(0);
    let requests = upstream.requests();
    let lines: Vec<&str> = requests.iter().map(|r| r.head.line.as_str()).collect();
    assert_eq!(
        lines,
        ["POST /u/Ann?n=0 HTTP/1.1", "POST /u/Bo%20B?n=1 HTTP/1.1", "POST /u/Ann?n=2 HTTP/1.1"]
    );
    assert_eq!(requests[1].body.bytes, b"{\"id\":8}");
    let report: Report = serde_json::from_str(&finished.stdout).unwrap();
    assert_eq!(report.bytes.sent_body, 24);
    assert_eq!(report.bytes.sent_head, requests.iter().map(|r| r.head.raw.len() as u64).sum::<u64>());
    load(&["-n1", "--data", "{{nope}}", &url(&upstream)])
        .expect_code(2)
        .expect_text("`{{nope}}` is not a placeholder");
    load(&["-n1", "--raw", "--data", "{{nope}}", &url(&upstream)]).expect_code(0);
}

#[test]
fn a_multipart_body_has_its_parts() {
    let upstream = Upstream::fixed(OK);
    let dir = TempDir::new().unwrap();
    std::fs::write(dir.path().join("a.txt"), "file").unwrap();
    run_weir(dir.path(), &["load", "-n1", "-F", "k=v", "-F", "f=@a.txt", &url(&upstream)]).expect_code(0);
    let request = upstream.take_request();
    let kind = request.head.header("content-type").unwrap();
    let boundary = kind.strip_prefix("multipart/form-data; boundary=").unwrap();
    let want = format!(
        "--{boundary}\r\nContent-Disposition: form-data; name=\"k\"\r\n\r\nv\r\n\
         --{boundary}\r\nContent-Disposition: form-data; name=\"f\"; filename=\"a.txt\"\r\n\
         Content-Type: application/octet-stream\r\n\r\nfile\r\n--{boundary}--\r\n"
    );
    assert_eq!(String::from_utf8_lossy(&request.body.bytes), want);
}

#[test]
fn weights_share_out_the_requests() {
    let upstream = Upstream::fixed(OK);
    let (a, b) = (format!("3@{}a", url(&upstream)), format!("{}b", url(&upstream)));
    let report = report(&["-n8", "-c1", &a, &b]);
    let lines = upstream.requests().into_iter().filter(|r| r.head.line.contains("/a ")).count();
    assert_eq!((lines, report.targets[0].responses, report.targets[1].responses), (6, 6, 2));
    assert_eq!(report.targets[1].service.count(), 2);
}

#[test]
fn pipelined_requests_do_not_wait_for_their_responses() {
    let upstream = Upstream::script(|conn| {
        while conn.next_request().is_some() {
            conn.read_request();
            conn.read_request();
            conn.send(OK_BODY.repeat(3));
        }
    });
    let report = report(&["-n9", "-c1", "--pipeline", "3", &url(&upstream)]);
    assert_eq!((report.counts.responses, report.connections.opened), (9, 1));
    assert_eq!(report.bytes.received_body, 18);
}

#[test]
fn what_a_polite_close_leaves_of_a_pipeline_is_sent_again() {
    let close = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    let answered: Arc<Mutex<Vec<String>>> = Arc::default();
    let all = Arc::clone(&answered);
    let upstream = Upstream::script(move |conn| {
        for left in (0..5).rev() {
            let Some(request) = conn.next_request() else { return };
            all.lock().unwrap().push(request.head.line);
            conn.send(if left == 0 { close } else { OK });
        }
        while conn.next_request().is_some() {} // input that it ignores
    });
    let r = report(&["-n40", "-c1", "--pipeline", "16", &format!("{}{{{{counter}}}}", url(&upstream))]);
    assert_eq!((r.counts.responses, r.counts.errors.total()), (40, 0), "{:?}", r.counts);
    assert_eq!((r.connections.opened, r.connections.reused), (8, 32));
    let mut answered = answered.lock().unwrap().clone();
    assert_eq!(answered.len(), 40);
    answered.sort();
    answered.dedup();
    assert_eq!(answered.len(), 40, "each was answered once");
}

#[test]
fn a_close_that_nobody_announced_fails_what_is_left_of_a_pipeline() {
    let upstream = Upstream::script(|conn| {
        for _ in 0..4 {
            let _ = conn.next_request();
        }
        conn.send(OK.repeat(3));
    });
    let r = report(&["-n8", "-c1", "--pipeline", "4", &url(&upstream)]);
    assert_eq!((r.counts.responses, r.counts.errors.reset), (6, 2), "{:?}", r.counts);
}

#[test]
fn without_keepalive_each_request_has_its_connection() {
    let upstream = Upstream::fixed("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    let report = report(&["-n5", "-c2", "--no-keepalive", &url(&upstream)]);
    assert_eq!((report.connections.opened, report.connections.reused, upstream.connections()), (5, 0, 5));
    assert!(upstream.requests().iter().all(|r| r.head.header("connection") == Some("close")));
    assert_eq!(report.phases.connecting.count(), 5);
    assert!(
        report.phases.connecting.min() > 0 && report.latency.response.sum() > report.latency.service.sum()
    );
}

#[test]
fn a_name_is_resolved_as_told_and_a_unix_socket_needs_none() {
    let upstream = Upstream::fixed(OK);
    let port = upstream.address().port();
    let resolve = format!("api.weir.test:{port}:127.0.0.1");
    load(&["-n1", "--resolve", &resolve, &format!("http://api.weir.test:{port}/")]).expect_code(0);
    assert_eq!(upstream.take_request().head.header("host"), Some(format!("api.weir.test:{port}").as_str()));

    let dir = TempDir::new().unwrap();
    let path = dir.path().join("s");
    let listener = UnixListener::bind(&path).unwrap();
    let served = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut bytes = [0; 1024];
        let n = stream.read(&mut bytes).unwrap();
        stream.write_all(OK.as_bytes()).unwrap();
        String::from_utf8_lossy(&bytes[..n]).into_owned()
    });
    let report = report(&["-n1", "--unix-socket", path.to_str().unwrap(), "http://any.test/x"]);
    assert_eq!(report.counts.responses, 1);
    assert!(served.join().unwrap().starts_with("GET /x HTTP/1.1\r\nHost: any.test\r\n"));
}

#[test]
fn tls_is_verified_and_told() {
    let authority = Authority::new();
    let upstream =
        Upstream::fixed_tls(&ServerTls::new(&authority.leaf(&["127.0.0.1", "localhost"])), OK_BODY);
    let target = format!("https://localhost:{}/", upstream.address().port());
    let ca = authority.file();
    let good = report(&["-n3", "-c1", "--cacert", ca.to_str().unwrap(), &target]);
    assert_eq!(
        (good.counts.responses, good.ledger.tls_version.as_deref()),
        (3, Some("TLSv1.3")),
        "{good:#?}"
    );
    assert!(good.phases.tls.max() > 0 && good.ledger.tls_cipher.is_some());
    let group = good.ledger.tls_group.as_deref().unwrap_or_default();
    assert!(group.contains("25519") || group.starts_with("secp"), "{group}");
    assert_eq!(good.ledger.tls_key_bits, Some(256), "a key of P-256");
    let rsa = ServerTls::new(&authority.rsa_leaf(&["localhost"]));
    let rsa = Upstream::fixed_tls(&rsa, OK_BODY);
    let rsa_target = format!("https://localhost:{}/", rsa.address().port());
    load(&["-n1", "--insecure", &rsa_target]).expect_text("key of 2048 bits");
    let unknown = report(&["-n1", "-c1", &target]);
    assert_eq!((unknown.counts.responses, unknown.counts.errors.tls), (0, 1), "{:?}", unknown.counts);
    assert_eq!(report(&["-n1", "--insecure", &target]).counts.responses, 1);
}

// === counts ===

#[test]
fn a_request_that_finds_nobody_after_a_response_is_an_error() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let target = format!("http://{}/", listener.local_addr().unwrap());
    let once = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        weir_testkit::stop_listening(listener);
        let _ = stream.read(&mut [0; 1024]).unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").unwrap();
    });
    let r = report(&["-n3", "-c1", &target]);
    once.join().unwrap();
    assert_eq!((r.counts.requests, r.counts.responses, r.counts.errors.connect), (3, 1, 2), "{:?}", r.counts);
}

#[test]
fn every_request_of_a_count_is_made_and_counted_once() {
    let (_origin, url) = origin("/body/1KiB");
    let r = report(&["-n1000", "-c7", "--threads=2", &url]);
    let c = &r.counts;
    assert_eq!(
        (c.requests, c.responses, c.statuses.get(&200), r.end.clone()),
        (1000, 1000, Some(&1000), End::Requests)
    );
    assert_eq!((r.bytes.received_body, r.targets[0].document_bytes), (1_024_000, Some(1024)));
    assert_eq!(r.bytes.received(), 1000 * r.ledger.first_response_bytes);
    assert_eq!(r.connections.responses_by_client.iter().sum::<u64>(), 1000);
    assert_eq!((r.connections.opened, r.connections.reused), (7, 993));
    let p = &r.phases;
    for h in [
        &r.latency.service,
        &r.latency.response,
        &r.latency.first_byte,
        &p.blocked,
        &p.sending,
        &p.waiting,
        &p.receiving,
    ] {
        assert_eq!(h.count(), 1000);
    }
    // In k6, duration is sending, waiting and receiving, without blocked.
    assert_eq!(r.latency.service.sum(), p.sending.sum() + p.waiting.sum() + p.receiving.sum());
    assert_eq!(r.series.ticks.iter().map(|t| t.responses).sum::<u64>(), 1000);
    assert!(!codes(&r).contains(&"too_short"), "{:?}", r.verdict);
}

#[test]
fn a_tail_that_is_served_is_the_tail_that_is_shown() {
    let (origin, fast) = origin("/body/1KiB");
    // A second, so that other load on this machine matters little.
    let slow = format!("http://{}/delay/1000", origin.address());
    let r = report(&["-n1000", "-c20", "--threads=1", &format!("99@{fast}"), &slow]);
    let above = r.latency.service.buckets().filter(|(ns, _)| *ns >= 990_000_000).map(|(_, n)| n).sum::<u64>();
    assert_eq!(above, 10, "1 % of 1,000");
    let p995 = r.latency.service.quantile(0.995);
    assert!((1_000_000_000..1_300_000_000).contains(&p995), "{p995}");
    assert!(r.latency.service.quantile(0.985) < 900_000_000);
}

#[test]
fn a_fixed_rate_starts_as_many_as_it_says_and_counts_from_the_plan() {
    let (_origin, url) = origin("/delay/20");
    let r = report(&["--rate", "200/s", "-d1s", "--threads=1", &url]);
    assert_eq!((r.counts.requests, r.counts.responses, r.counts.unsent), (200, 200, 0), "{:?}", r.counts);
    // Nearly every start: those that the machine slept through are planned and late, and do not count.
    assert!((100..=200).contains(&r.health.start_lag.count()), "{}", r.health.start_lag.count());
    assert!(r.latency.response.min() >= r.latency.service.min());
}

#[test]
fn a_queue_before_the_target_is_in_the_response_time_only() {
    // One connection, 20 ms each, at 100 per second: half of the starts find it busy, and each waits longer than the
    // one before.
    let (_origin, url) = origin("/delay/20");
    let r = report(&["--rate", "100/s", "-c1", "-d1s", "--threads=1", &url]);
    let (service, response) = (r.latency.service.quantile(0.9), r.latency.response.quantile(0.9));
    assert!(response > 300_000_000 && response > 3 * service, "{service} {response}");
    assert!(r.counts.unsent > 20 && r.health.backlog_max > 20, "{:?}", r.counts);
    assert_eq!(r.counts.requests + r.counts.unsent, 100);
    expect_reason(&r, "rate_missed", Grade::Invalid);
}

#[test]
fn a_warm_up_is_not_counted() {
    let upstream = Upstream::fixed(OK);
    let r = report(&["--rate", "50/s", "--warmup", "400ms", "-d400ms", "--threads=1", &url(&upstream)]);
    assert_eq!((r.counts.requests, r.counts.responses), (20, 20), "{:?}", r.counts);
    assert_eq!(upstream.requests().len(), 40);
    assert!(r.warmup_ns == 400_000_000 && r.duration_ns < 790_000_000, "{}", r.duration_ns);
}

#[test]
fn users_come_with_their_stage() {
    let upstream = Upstream::fixed(OK);
    let r =
        report(&["--stages", "0s:1,300ms:1,0s:4,300ms:4", "--think", "10ms", "--threads=1", &url(&upstream)]);
    assert_eq!((r.plan.connections, r.connections.opened), (4, 4));
    let by = &r.connections.responses_by_client;
    assert!(by[0] > by[3] && by[3] > 0, "{by:?}");
    assert!((550_000_000..3_000_000_000).contains(&r.duration_ns), "{}", r.duration_ns);
}

#[test]
fn connections_of_all_threads_take_the_addresses_in_turn() {
    let any = Options { address: "0.0.0.0:0".parse().unwrap(), ..Options::default() };
    let origin = Origin::start(any).unwrap();
    let port = origin.address().port();
    let target = format!("http://two.weir.test:{port}/");
    let resolve = format!("two.weir.test:{port}:127.0.0.1,127.0.0.2");
    for pace in [&["--rate", "20/s"][..], &[]] {
        let r = report(&[&["-d300ms", "-c2", "--threads=2", "--resolve", &resolve, &target], pace].concat());
        assert_eq!((r.counts.errors.total(), r.connections.opened), (0, 2), "{:?}", r.counts);
        assert!(r.ledger.addresses.values().all(|used| used.opened == 1), "{:?}", r.ledger.addresses);
    }
}

#[test]
fn checks_and_thresholds_decide_the_exit_code() {
    let upstream = Upstream::fixed(OK_BODY);
    let url = url(&upstream);
    let run = |more: &[&str]| load(&[&["-n10", "-c1", url.as_str()], more].concat());
    run(&[
        "--check",
        "status=200",
        "--check",
        "body~ok",
        "--threshold",
        "p99<10s",
        "--threshold",
        "checks>=100%",
    ])
    .expect_code(0);
    run(&["--threshold", "max<1ns"]).expect_code(1).expect_text("BROKEN max<1ns");
    run(&["--threshold", "max<1ns", "--exit-codes", "k6"]).expect_code(99);
    run(&["--check", "body~nope"])
        .expect_code(0)
        .expect_text("FAILED body~nope: 0 of 10")
        .expect_text("failed_checks");
    run(&["--require", "suspect"]).expect_code(0);
    run(&["--require", "valid", "--threshold", "p99.9<10s"]).expect_code(1).expect_text("too_short");
}

#[test]
fn a_condition_ends_the_run() {
    let _alone = alone();
    let upstream = Upstream::fixed("HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n");
    let begun = Instant::now();
    let r = report(&["-d60s", "-c1", "--abort-on", "failed>50%", &url(&upstream)]);
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
    assert_eq!(r.end, End::Aborted { condition: "failed>50%".to_owned() });
    let ended = |args: &[&str]| {
        load(&[&["-d60s", "-c1", "--abort-on", "failed>50%", &url(&upstream)], args].concat())
    };
    ended(&[]).expect_code(1);
    ended(&["--exit-codes", "k6"]).expect_code(99);
    expect_reason(&r, "ended_early", Grade::Suspect);
    expect_reason(&r, "mostly_refused", Grade::Invalid);
    let failed = "checks<99%".to_owned();
    let r = report(&["-d60s", "-c1", "--check", "status=200", "--abort-on", &failed, &url(&upstream)]);
    assert_eq!(r.end, End::Aborted { condition: failed });
}

#[test]
fn ctrl_c_prints_the_report_so_far() {
    let upstream = Upstream::fixed(OK);
    let dir = TempDir::new().unwrap();
    let child = weir_command(dir.path()).args(["load", "-d60s", "-c2", &url(&upstream)]).spawn().unwrap();
    upstream.wait_requests(10);
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(text.starts_with("SUSPECT") && text.contains("ended_early: the run was interrupted"), "{text}");
    assert!(text.contains("service time"), "{text}");
}

#[test]
fn the_cost_to_the_target_is_told() {
    let upstream = Upstream::fixed(OK);
    let r = report(&[
        "-n200",
        "-c2",
        "--pid",
        "auto",
        "--threshold",
        "cost<1s",
        "--threshold",
        "percore>0.1",
        &url(&upstream),
    ]);
    let cost = r.target_cost.as_ref().unwrap();
    assert_eq!(
        (cost.responses, r.thresholds.iter().all(|t| t.passed)),
        (200, true),
        "{cost:?} {:?}",
        r.thresholds
    );
    assert!(cost.cpu_ns > 0 && cost.rss_bytes_max > 1 << 20 && cost.voluntary_switches > 0, "{cost:?}");
    load(&["-n1", "--threshold", "cost<1s", &url(&upstream)]).expect_code(2).expect_text("--pid auto");
    load(&["-n1", "--pid", "4194999", &url(&upstream)]).expect_code(2).expect_text("no such process");
}

// === bad input ===

#[test]
fn all_mistakes_are_told_in_one_go() {
    let bad = load(&[
        "-n",
        "many",
        "--rate",
        "fast",
        "-H",
        "no colon",
        "--check",
        "colour=red",
        "--threshold",
        "p99",
        "ftp://x/",
        "http://no.such.host.invalid/",
    ]);
    bad.expect_code(2);
    for text in [
        "-n many",
        "--rate fast",
        "-H \"no colon\"",
        "--check colour=red",
        "--threshold p99",
        "ftp://x/",
        "`no.such.host.invalid` can not be found",
    ] {
        bad.expect_text(text);
    }
    load(&[]).expect_code(2).expect_text("URL: expected one");
    load(&["--data", "@/no/such/file", "http://127.0.0.1:1/"]).expect_code(2).expect_text("/no/such/file");
    load(&["--cacert", "/no/such/ca", "https://127.0.0.1:1/"]).expect_code(2).expect_text("/no/such/ca");
}
