//! `weir replay`, and the access log format that it reads: what was recorded is what is sent, when and by whom, and
//! nothing else.

use crate::support::OK;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::process::Stdio;
use tempfile::TempDir;
use weir_report::Report;
use weir_report::report::{End, Grade, Protocol};
use weir_testkit::{Finished, Upstream, Weir, eventually, run_weir, weir_command};

/// Replays a file with this content, and returns what the command said.
#[track_caller]
fn replay(recording: &str, target: &str, args: &[&str]) -> Finished {
    let dir = TempDir::new().unwrap();
    std::fs::write(dir.path().join("log"), recording).unwrap();
    run_weir(dir.path(), &[&["replay", "log", "--target", target, "--report", "json"], args].concat())
}

#[track_caller]
fn report(finished: &Finished) -> Report {
    serde_json::from_str(&finished.stdout).unwrap_or_else(|e| panic!("{e}: {finished:#?}"))
}

fn url(upstream: &Upstream) -> String {
    format!("http://{}", upstream.address())
}

/// Request lines in the order of arrival.
fn lines(upstream: &Upstream) -> Vec<String> {
    upstream.requests().iter().map(|r| r.head.line.clone()).collect()
}

fn codes(report: &Report) -> Vec<&str> {
    report.verdict.reasons.iter().map(|r| r.code.as_str()).collect()
}

#[track_caller]
fn expect_reason(report: &Report, code: &str, grade: Grade) {
    let found = report.verdict.reasons.iter().find(|r| r.code == code);
    let found = found.unwrap_or_else(|| panic!("no {code} in {:#?}", report.verdict));
    assert_eq!(found.grade, grade, "{found:?}");
}

/// A gateway that records, in front of an upstream. The second text is the filters of its route.
fn recording(upstream: &Upstream, filters: &str, more: &str) -> Weir {
    Weir::start(&format!(
        "listeners: {{ web: {{ address: 127.0.0.1:0, protocols: [http1, h2] }} }}\n\
         access_log: {{ output: ./log, format: replay{more} }}\n\
         upstreams: {{ up: {{ endpoints: [{}] }} }}\n\
         routes: {{ all: {{ match: {{ path: \"/*\" }}, filters: [ {filters} ], upstream: up }} }}\n",
        upstream.address()
    ))
}

/// The lines of its log, once there are `n`.
#[track_caller]
fn recorded(dir: &Path, n: usize) -> String {
    let read = || std::fs::read_to_string(dir.join("log")).unwrap_or_default();
    eventually("the lines are written", || read().lines().count() >= n);
    read()
}

// === the round trip ===

#[test]
fn what_a_gateway_recorded_is_sent_again() {
    let origin = Upstream::fixed(OK);
    let weir = recording(
        &origin,
        "{ log_body: { limit: 64KiB } }, { headers: { request: { set: { x-added: \"1\" } } } }",
        "",
    );
    let huge = "x".repeat(100_000);
    let mut sent = Vec::new();
    for client in 0..3 {
        let mut conn = weir.client();
        for i in 0..5 {
            let head = format!("Host: shop.example\r\nX-Client: {client}\r\nX-N: {i}\r\n");
            let request = match i {
                0 => format!("GET /a?b=%20{i}&c={client} HTTP/1.1\r\n{head}\r\n"),
                1 => format!("HEAD /h/{i} HTTP/1.1\r\n{head}\r\n"),
                2 => format!("POST /p HTTP/1.1\r\n{head}Content-Length: 6\r\n\r\n\"a\"\\\n\x01"),
                3 => format!(
                    "PUT /c HTTP/1.1\r\n{head}Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
                ),
                _ => format!("POST /huge HTTP/1.1\r\n{head}Content-Length: {}\r\n\r\n{huge}", huge.len()),
            };
            conn.send(&request);
            if i == 1 {
                conn.read_response_to_head()
            } else {
                conn.read_response()
            };
            sent.push((client, i));
        }
    }
    let log = recorded(weir.dir(), sent.len());
    let second = Upstream::fixed(OK);
    let again = recording(&second, "", "");
    let target = format!("http://{}", again.address("web"));
    let finished = replay(&log, &target, &["--methods", "all", "--connections-by", "client"]);
    finished.expect_code(0);
    let r = report(&finished);
    let stats = r.replay.as_ref().unwrap();
    // The huge bodies were cut, and are left out.
    assert_eq!((r.counts.responses, stats.planned, stats.records), (12, 12, 15), "{:?}", r.counts);
    assert_eq!(stats.left_out, BTreeMap::from([("body cut by the log".to_owned(), 3)]));
    assert_eq!(
        (stats.statuses_changed(), stats.lengths_compared, stats.lengths_changed),
        (0, 12, 0),
        "{stats:?}"
    );
    assert!(stats.then.count() == 12 && stats.routes.iter().all(|route| route.route == "all"), "{stats:?}");
    // The origin's trace: the same requests in the same order per client.
    let trace = |upstream: &Upstream| -> BTreeMap<String, Vec<String>> {
        let mut all: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for r in upstream.requests() {
            let field = |name| r.head.header(name).unwrap_or_default().to_owned();
            if r.head.line.starts_with("POST /huge") {
                continue;
            }
            let text =
                format!("{} {} {:?}", r.head.line, field("x-n"), String::from_utf8_lossy(&r.body.bytes));
            all.entry(field("x-client")).or_default().push(text);
        }
        all
    };
    assert_eq!(trace(&origin), trace(&second));
    // A filter's field was not recorded: the second gateway's filters add their own.
    assert!(second.requests().iter().all(|r| r.head.header("x-added").is_none()));
}

#[test]
fn a_request_that_did_not_arrive_whole_is_not_replayed() {
    let origin = Upstream::fixed(OK);
    let weir = recording(&origin, "{ log_body: { limit: 64KiB } }", "");
    // Not a request at all: it has no line, so that nobody takes it for one.
    let answer = weir.client().ask("GET /bad HTTP/1.1\r\nHost: a b\r\n\r\n");
    assert_eq!(answer.status, 400);
    // The client leaves in the middle of its body.
    let mut leaving = weir.client();
    leaving.send(format!("POST /half HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n{}", "x".repeat(50)));
    drop(leaving);
    recorded(weir.dir(), 1);
    weir.client().ask("GET /good HTTP/1.1\r\nHost: a\r\n\r\n");
    let log = recorded(weir.dir(), 2);
    assert!(!log.contains("/bad") && log.lines().count() == 2, "{log}");
    assert!(log.lines().any(|line| line.contains("/half") && line.contains("\"body_cut\":true")), "{log}");
    let target = Upstream::fixed(OK);
    let r = report(&replay(&log, &url(&target), &["--methods", "all"]));
    assert_eq!(lines(&target), ["GET /good HTTP/1.1"], "{:?}", r.replay);
}

#[test]
fn what_http2_clients_asked_is_recorded_too() {
    let origin = Upstream::fixed(OK);
    let weir = recording(&origin, "{ log_body: {} }", "");
    let target = format!("http://{}/two?x=1", weir.address("web"));
    let args = ["load", "-n1", "--http2", "-XPOST", "--data", "body", "-Hx-a: b", &target];
    run_weir(weir.dir(), &args).expect_code(0);
    let log = recorded(weir.dir(), 1);
    let line: serde_json::Value = serde_json::from_str(log.lines().next().unwrap()).unwrap();
    assert_eq!((&line["method"], &line["url"]), (&"POST".into(), &target.into()), "{line}");
    assert_eq!((&line["headers"]["x-a"], &line["body"]), (&"b".into(), &"body".into()), "{line}");
}

#[test]
fn secrets_are_not_recorded() {
    let origin = Upstream::fixed(OK);
    let filters = "{ key_auth: { header: x-shop, query: pass } }";
    let yaml = format!(
        "listeners: {{ web: {{ address: 127.0.0.1:0 }} }}\n\
         access_log: {{ output: ./log, format: replay, redact: {{ \"query:session\": hide, \"header:x-mail\": hide, \
         \"header:x-gone\": drop, client: truncate }} }}\n\
         upstreams: {{ up: {{ endpoints: [{}] }} }}\n\
         consumers: {{ shop: {{ key_auth: [ OPENSESAME ] }} }}\n\
         routes: {{ all: {{ match: {{ path: \"/*\" }}, filters: [ {filters} ], upstream: up }} }}\n",
        origin.address()
    );
    let weir = Weir::start(&yaml);
    let mut conn = weir.client();
    conn.send(
        "GET /a?pass=OPENSESAME&session=OPENSESAME&x=1&keyword=k&X-Amz-Signature=OPENSESAME HTTP/1.1\r\nHost: h\r\nX-Shop: OPENSESAME\r\n\
         Authorization: Bearer OPENSESAME\r\nCookie: a=OPENSESAME\r\nX-Api-Key: OPENSESAME\r\n\
         X-JWT-Assertion: OPENSESAME\r\nX-PWD: OPENSESAME\r\nX-CSRF-Token: OPENSESAME\r\nX-Otp: OPENSESAME\r\n\
         X-XSRF: OPENSESAME\r\nX-Shipping: fast\r\n\
         X-Mail: OPENSESAME\r\nX-Gone: OPENSESAME\r\nReferer: http://h/?pass=OPENSESAME&id_token=OPENSESAME\r\nAccept: a\r\n\r\n",
    );
    conn.read_response();
    let log = recorded(weir.dir(), 1);
    assert!(!log.contains("OPENSESAME"), "{log}");
    let line: serde_json::Value = serde_json::from_str(log.trim()).unwrap();
    assert_eq!(line["url"], "http://h/a?pass=***&session=***&x=1&keyword=k&X-Amz-Signature=***");
    assert_eq!((&line["client"], &line["headers"]["accept"]), (&"127.0.0.0".into(), &"a".into()));
    assert_eq!(line["headers"]["x-shipping"], "fast", "`pin` is a word of its own only");
    assert!(line["headers"]["x-gone"].is_null() && line["headers"]["authorization"] == "***", "{line}");
    // A masked key is a mistake of the replay, unless it is set.
    let second = Upstream::fixed(OK);
    let finished = replay(&log, &url(&second), &[]);
    finished
        .expect_code(2)
        .expect_text("line 1 has the key `pass` as `***`: give its value with --set pass=VALUE");
    assert_eq!(second.connections(), 0);
    let set = [
        "--set",
        "pass=new",
        "--set",
        "session=s s",
        "--set",
        "X-Amz-Signature=0",
        "-H",
        "authorization: Bearer new",
    ];
    let finished = replay(&log, &url(&second), &set);
    finished.expect_code(0);
    let request = second.take_request();
    assert_eq!(request.head.line, "GET /a?pass=new&session=s%20s&x=1&keyword=k&X-Amz-Signature=0 HTTP/1.1");
    assert_eq!(
        (request.head.header("authorization"), request.head.header("cookie")),
        (Some("Bearer new"), None)
    );
    let masked = report(&finished).replay.unwrap().masked_fields;
    assert_eq!(
        masked.keys().map(String::as_str).collect::<Vec<_>>(),
        [
            "cookie",
            "referer",
            "x-api-key",
            "x-csrf-token",
            "x-jwt-assertion",
            "x-mail",
            "x-otp",
            "x-pwd",
            "x-shop",
            "x-xsrf"
        ]
    );
}

#[test]
fn a_body_that_a_filter_changed_is_marked_and_not_replayed() {
    let origin = Upstream::fixed(OK);
    let change = "{ transform: { request: { id: \"= request.body.id\" } } }";
    let record = "{ log_body: {} }";
    let zipped = weir_testkit::gzip(br#"{"id":7,"more":1}"#);
    let head = format!(
        "POST /a HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nContent-Encoding: gzip\r\nContent-Length: {}\r\n\r\n",
        zipped.len()
    );
    for (filters, is_whole) in [(format!("{record}, {change}"), true), (format!("{change}, {record}"), false)]
    {
        let weir = recording(&origin, &filters, "");
        let mut conn = weir.client();
        conn.send([head.as_bytes(), &zipped].concat());
        assert_eq!(conn.read_response().status, 200);
        let log = recorded(weir.dir(), 1);
        let line: serde_json::Value = serde_json::from_str(log.trim()).unwrap();
        assert_eq!(line["body_changed"] == true, !is_whole, "{filters}: {line}");
        let target = Upstream::fixed(OK);
        let finished = replay(&log, &url(&target), &["--methods", "all"]);
        if is_whole {
            let sent = target.take_request();
            assert_eq!(sent.body.bytes, zipped, "what the client sent");
            assert_eq!(sent.head.header("content-encoding"), Some("gzip"));
        } else {
            finished.expect_code(2).expect_text("body changed by a filter 1");
        }
    }
}

#[test]
fn the_recorded_length_is_what_the_client_got() {
    let text = "a text that compresses well. ".repeat(500);
    let origin = Upstream::fixed(format!(
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n\r\n{text}",
        text.len()
    ));
    let weir = recording(&origin, "{ compress: {} }", "");
    weir.client().ask("GET /a HTTP/1.1\r\nHost: h\r\nAccept-Encoding: gzip\r\n\r\n");
    weir.client().ask("GET /b HTTP/1.1\r\nHost: h\r\n\r\n");
    let log = recorded(weir.dir(), 2);
    let bytes =
        |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap()["bytes"].as_u64().unwrap();
    let mut lengths: Vec<u64> = log.lines().map(bytes).collect();
    lengths.sort_unstable();
    assert!(lengths[0] > 20 && lengths[0] < 1000 && lengths[1] == text.len() as u64, "{lengths:?}");
    let r = report(&replay(&log, &format!("http://{}", weir.address("web")), &[]));
    let stats = r.replay.as_ref().unwrap();
    assert_eq!((stats.lengths_compared, stats.lengths_changed), (2, 0), "{stats:?}");
}

#[test]
fn a_body_filter_without_its_format_is_warned_of() {
    let dir = TempDir::new().unwrap();
    let yaml = "listeners: { web: { address: 127.0.0.1:0 } }\nroutes: { a: { match: { path: / }, filters: [ { log_body: {} } ], respond: { status: 200 } } }\n";
    std::fs::write(dir.path().join("weir.yaml"), yaml).unwrap();
    run_weir(dir.path(), &["check"])
        .expect_code(0)
        .expect_text("no line of the access log has request bodies");
}

// === times ===

/// JSON lines at these milliseconds, from clients in turn.
fn at(times: &[u64], clients: usize) -> String {
    let mut log = String::new();
    for (i, ms) in times.iter().enumerate() {
        let client = i % clients;
        writeln!(
            log,
            r#"{{"at":{}.{:03},"url":"/{i}","client":"c{client}"}}"#,
            1_700_000_000 + ms / 1000,
            ms % 1000
        )
        .unwrap();
    }
    log
}

#[test]
fn requests_start_at_their_recorded_distances() {
    let upstream = Upstream::fixed(OK);
    let log = at(&[0, 400, 200, 600], 1);
    let finished = replay(&log, &url(&upstream), &["--speed", "2"]);
    finished.expect_code(0);
    assert_eq!(
        lines(&upstream),
        ["GET /0 HTTP/1.1", "GET /2 HTTP/1.1", "GET /1 HTTP/1.1", "GET /3 HTTP/1.1"]
    );
    let r = report(&finished);
    let stats = r.replay.unwrap();
    assert!(r.duration_ns >= 300_000_000, "{}", r.duration_ns);
    assert_eq!((stats.gap_ns, stats.drift.count(), stats.out_of_order), (100_000_000, 4, 0));
    let planned: u64 = r.series.ticks.iter().map(|t| t.planned).sum();
    assert_eq!((planned, r.end), (4, End::Requests));
}

#[test]
fn requests_out_of_order_are_counted_and_sent() {
    let upstream = Upstream::fixed(OK);
    // The third is an hour late in the file.
    let log = at(&[3_600_000, 3_600_500, 0, 3_600_600], 1);
    let finished = replay(&log, &url(&upstream), &["--reorder", "100ms", "--speed", "5"]);
    let r = report(&finished);
    assert_eq!((r.counts.responses, r.replay.as_ref().unwrap().out_of_order), (4, 1));
    assert!(r.duration_ns < 5_000_000_000, "{}", r.duration_ns);
    expect_reason(&r, "out_of_order", Grade::Suspect);
}

#[test]
fn a_gap_can_be_cut_and_a_file_repeated() {
    let upstream = Upstream::fixed(OK);
    let log = at(&[0, 3_600_000], 1);
    let finished = replay(&log, &url(&upstream), &["--gap-max", "100ms", "--loop", "3"]);
    finished.expect_code(0);
    let r = report(&finished);
    assert_eq!((r.counts.responses, lines(&upstream).len()), (6, 6));
    assert!((450_000_000..60_000_000_000).contains(&r.duration_ns), "{}", r.duration_ns);
}

#[test]
fn a_record_with_a_wrong_time_holds_nothing_up() {
    let upstream = Upstream::fixed(OK);
    let log = at(&[0, 100, 3_000_000_000_000, 200, 300], 1);
    let r = report(&replay(&log, &url(&upstream), &[]));
    let stats = r.replay.as_ref().unwrap();
    assert_eq!((r.counts.responses, stats.planned), (4, 4));
    assert_eq!(stats.left_out, BTreeMap::from([("wrong time".to_owned(), 1)]));
    assert_eq!((stats.first_unread[0].line, stats.gaps_cut), (3, 0), "{stats:?}");
    // A gap is cut by default, which is told.
    let log = at(&[0, 80_000_000, 80_000_001, 80_000_002, 80_000_003], 1);
    let finished = replay(&log, &url(&upstream), &["--speed", "1000000"]);
    let stats = report(&finished).replay.unwrap();
    assert_eq!((stats.planned, stats.gaps_cut, stats.gaps_cut_ns), (5, 1, 79_400_000_000_000));
    let uncut = ["--speed", "1000000", "--gap-max", "none"];
    assert_eq!(report(&replay(&log, &url(&upstream), &uncut)).replay.unwrap().gaps_cut, 0);
}

#[test]
fn a_late_response_counts_from_the_planned_moment() {
    let options =
        weir_origin::Options { address: "127.0.0.1:0".parse().unwrap(), ..weir_origin::Options::default() };
    let slow = weir_origin::Origin::start(options).unwrap();
    let log: String = (0..4).map(|i| format!("{{\"at\":1.00{i},\"url\":\"/delay/100\"}}\n")).collect();
    let finished = replay(&log, &format!("http://{}", slow.address()), &["-c1", "--threads", "1"]);
    let r = report(&finished);
    // One connection: the last request waits for three others.
    assert!(r.latency.response.max() >= 390_000_000, "{}", r.latency.response.max());
    assert!(r.latency.service.max() < 300_000_000, "{}", r.latency.service.max());
    expect_reason(&r, "late_starts", Grade::Suspect);
}

#[test]
fn each_client_keeps_its_connection_and_its_order() {
    let upstream = Upstream::fixed(OK);
    let times: Vec<u64> = (0..200).collect();
    let finished = replay(&at(&times, 7), &url(&upstream), &["--connections-by", "client", "--speed", "4"]);
    finished.expect_code(0);
    let mut by_connection: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for request in upstream.requests() {
        let number = request.head.line.split(['/', ' ']).nth(2).unwrap().parse().unwrap();
        by_connection.entry(request.connection).or_default().push(number);
    }
    assert_eq!(by_connection.len(), 7, "{by_connection:?}");
    for numbers in by_connection.values() {
        assert!(numbers.is_sorted() && numbers.iter().all(|n| n % 7 == numbers[0] % 7), "{numbers:?}");
    }
}

#[test]
fn as_fast_as_responses_come() {
    let upstream = Upstream::fixed(OK);
    let times: Vec<u64> = (0..300).map(|i| i * 3_600_000).collect();
    let finished = replay(&at(&times, 3), &url(&upstream), &["--speed", "max", "-c4"]);
    finished.expect_code(0);
    let r = report(&finished);
    assert_eq!((r.counts.responses, r.replay.unwrap().drift.count()), (300, 0));
    assert!(upstream.connections() <= 4);
}

#[test]
fn a_log_on_stdin_is_replayed_while_it_is_written() {
    let upstream = Upstream::fixed(OK);
    let mut command = weir_command("/".as_ref());
    let command =
        command.args(["replay", "-", "--target", &url(&upstream), "--report", "json", "--reorder", "0"]);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(at(&[0, 10], 1).as_bytes()).unwrap();
    upstream.wait_requests(1);
    stdin.write_all(at(&[20, 30], 1).as_bytes()).unwrap();
    drop(stdin);
    let out = child.wait_with_output().unwrap();
    let r: Report = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!((r.counts.responses, r.replay.unwrap().log), (4, "-".to_owned()));
}

// === then and now ===

#[test]
fn old_and_new_responses_are_compared() {
    let upstream = Upstream::script(|conn| {
        while let Some(request) = conn.next_request() {
            let status = if request.head.line.contains("/gone") { "404 Not Found" } else { "200 OK" };
            if conn.try_send(format!("HTTP/1.1 {status}\r\nContent-Length: 2\r\n\r\nok")).is_err() {
                return;
            }
        }
    });
    let mut log = String::new();
    for i in 0..20 {
        let (path, bytes) = if i < 5 {
            ("gone", 2)
        } else if i < 8 {
            ("longer", 9)
        } else {
            ("same", 2)
        };
        writeln!(log, r#"{{"at":1.{i:03},"url":"/{path}/{i}","status":200,"bytes":{bytes},"ms":1000.5}}"#)
            .unwrap();
    }
    let finished = replay(&log, &url(&upstream), &[]);
    let r = report(&finished);
    let stats = r.replay.as_ref().unwrap();
    let pairs: Vec<_> = stats.statuses.iter().map(|p| (p.then, p.now, p.requests)).collect();
    assert_eq!(pairs, [(Some(200), Some(200), 15), (Some(200), Some(404), 5)]);
    assert_eq!((stats.statuses_changed(), stats.lengths_compared, stats.lengths_changed), (5, 15, 3));
    let route = |name: &str| {
        stats.routes.iter().find(|r| r.route == name).unwrap_or_else(|| panic!("{:?}", stats.routes))
    };
    assert_eq!((route("GET /gone/{}").statuses_changed, route("GET /longer/{}").lengths_changed), (5, 3));
    let ratio = route("GET /same/{}").ratio().unwrap();
    let (low, high) = ratio.range.unwrap();
    assert!(ratio.value < 0.5 && low <= ratio.value && ratio.value <= high, "{ratio:?}");
    expect_reason(&r, "status_mix", Grade::Suspect);
    // Conditions on the replay itself.
    for (condition, code) in [
        ("statuses-changed<=25%", 0),
        ("statuses-changed<25%", 1),
        ("GET /same/{}: statuses-changed<=0", 0),
        ("GET /gone/{}: statuses-changed<1%", 1),
        ("lengths-changed<=20%", 0),
        ("ratio<0.9", 0),
        ("GET /same/{}: ratio<0.0000001", 1),
        ("ratio.p50<0.9", 0),
        ("drift.p50<1ns", 1),
    ] {
        replay(&log, &url(&upstream), &["--threshold", condition]).expect_code(code);
    }
    // All layouts have it, and the saved figures fit together.
    let dir = TempDir::new().unwrap();
    std::fs::write(dir.path().join("r.json"), &finished.stdout).unwrap();
    run_weir(dir.path(), &["report", "r.json", "--verify"]).expect_code(0);
    for format in ["text", "html"] {
        let shown = run_weir(dir.path(), &["report", "r.json", "--format", format]);
        shown.expect_code(0);
        for text in ["200 to 404: 5", "3 of 15 bodies have another length", "GET /same/{}"] {
            assert!(shown.stdout.contains(text), "{format}: {text}: {}", shown.stdout);
        }
    }
}

#[test]
fn statuses_that_the_log_has_are_no_reason_for_doubt() {
    let upstream = Upstream::fixed("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
    let log: String =
        (0..20).map(|i| format!("{{\"at\":1.{i:03},\"url\":\"/{i}\",\"status\":404}}\n")).collect();
    let r = report(&replay(&log, &url(&upstream), &[]));
    assert!(!codes(&r).iter().any(|code| ["status_mix", "mostly_refused"].contains(code)), "{:?}", r.verdict);
}

#[test]
fn thresholds_and_requirements_decide_the_exit_code() {
    let upstream = Upstream::fixed(OK);
    let log = at(&[0, 1], 1);
    replay(&log, &url(&upstream), &["--threshold", "p99<1ns"]).expect_code(1);
    replay(&log, &url(&upstream), &["--threshold", "p99<1ns", "--exit-codes", "split"]).expect_code(10);
    let unused = weir_testkit::unused_address();
    replay(&log, &format!("http://{unused}"), &[]).expect_code(1).expect_text("there was no response");
}

// === what is left out, and hostile recordings ===

#[test]
fn only_safe_methods_are_replayed_unless_asked_for() {
    let upstream = Upstream::fixed(OK);
    let log = "1.1.1.1 - - [10/Oct/2000:13:55:36 -0700] \"DELETE /a HTTP/1.1\" 200 2 \"-\" \"-\"\n\
               1.1.1.1 - - [10/Oct/2000:13:55:36 -0700] \"GET /b HTTP/1.1\" 200 2 \"-\" \"-\"\n\
               1.1.1.1 - - [10/Oct/2000:13:55:36 -0700] \"POST /c HTTP/1.1\" 200 2 \"-\" \"-\"\n";
    let r = report(&replay(log, &url(&upstream), &[]));
    let left_out = r.replay.unwrap().left_out;
    assert_eq!(left_out, BTreeMap::from([("method DELETE".to_owned(), 1), ("method POST".to_owned(), 1)]));
    assert_eq!(lines(&upstream), ["GET /b HTTP/1.1"]);
    let refused = replay(log, &url(&upstream), &["--methods", "POST"]);
    refused
        .expect_code(2)
        .expect_text("a recording of the form combined has no bodies: add --body-from FILE");
    upstream.forget();
    let dir = TempDir::new().unwrap();
    let body = dir.path().join("body");
    std::fs::write(&body, "abc").unwrap();
    let args = ["--methods", "DELETE,POST", "--body-from", body.to_str().unwrap()];
    replay(log, &url(&upstream), &args).expect_code(0);
    let bodies: Vec<_> = upstream.requests().iter().map(|r| r.body.bytes.clone()).collect();
    assert!(bodies.contains(&b"abc".to_vec()), "{bodies:?}");
}

#[test]
fn nothing_leaves_the_target_and_nothing_is_smuggled() {
    let upstream = Upstream::fixed(OK);
    let elsewhere = Upstream::fixed(OK);
    let other = elsewhere.address();
    let log = [
        format!(r#"{{"at":1,"url":"http://{other}/absolute","headers":{{"Host":"{other}"}}}}"#),
        r#"{"at":1,"url":"//evil.example/double"}"#.to_owned(),
        r#"{"at":1,"url":"/a b"}"#.to_owned(),
        r#"{"at":1,"url":"/x\r\nX-Evil: 1"}"#.to_owned(),
        r#"{"at":1,"url":"/h","headers":{"a":"b\r\nX-Evil: 1"}}"#.to_owned(),
        r#"{"at":1,"url":"/n","headers":{"a\r\nX-Evil":"1"}}"#.to_owned(),
        r#"{"at":1,"method":"GET / HTTP/1.1\r\nX-Evil: 1\r\n\r\nGET","url":"/m"}"#.to_owned(),
        r#"{"at":1,"method":"CONNECT","url":"/c"}"#.to_owned(),
        r#"{"at":1,"url":"/z\u0000"}"#.to_owned(),
        r#"{"at":1,"method":"POST","url":"/te","headers":{"Transfer-Encoding":"chunked","Content-Length":"999","Connection":"close, x-a","X-A":"1"},"body":"0\r\n\r\nGET /evil HTTP/1.1\r\n\r\n"}"#.to_owned(),
        "\0\0\0".to_owned(),
    ]
    .join("\n");
    let finished = replay(&log, &url(&upstream), &["--methods", "all", "-c1"]);
    let r = report(&finished);
    assert_eq!(elsewhere.connections(), 0);
    let all = upstream.requests();
    let sent: Vec<_> = all.iter().map(|r| r.head.line.as_str()).collect();
    assert_eq!(sent, ["GET /absolute HTTP/1.1", "GET //evil.example/double HTTP/1.1", "POST /te HTTP/1.1"]);
    assert!(all.iter().all(|r| r.head.header("host") == Some(&upstream.address().to_string())), "{all:?}");
    assert!(all[2].head.header("transfer-encoding").is_none() && all[2].body.bytes.ends_with(b"\r\n\r\n"));
    assert!(upstream.stray().is_empty());
    let left_out = r.replay.as_ref().unwrap().left_out.clone();
    let want = [("method CONNECT", 1), ("not sendable", 6), ("unreadable", 1)];
    assert_eq!(left_out, want.map(|(why, n)| (why.to_owned(), n)).into());
    expect_reason(&r, "unread_records", Grade::Suspect);
    // The first ones are named.
    assert_eq!(r.replay.unwrap().first_unread[0].line, 3);
}

#[test]
fn the_recorded_host_is_sent_if_asked_for() {
    let upstream = Upstream::fixed(OK);
    let log = "{\"at\":1,\"url\":\"https://shop.example/a\"}\n{\"at\":1,\"url\":\"https://cdn.example/b\"}\n";
    let finished = replay(log, &url(&upstream), &["--keep-host", "--only-host", "shop.example"]);
    finished.expect_code(0);
    assert_eq!(upstream.take_request().head.header("host"), Some("shop.example"));
    assert_eq!(report(&finished).replay.unwrap().left_out, BTreeMap::from([("host".to_owned(), 1)]));
}

#[test]
fn a_target_with_http2_gets_the_same_requests() {
    let origin = Upstream::fixed(OK);
    let weir = recording(&origin, "", "");
    let log = r#"{"at":1,"method":"POST","url":"/a?b","headers":{"x-a":"b","connection":"x-a","te":"gzip"},"body":"xyz"}
{"at":1,"method":"HEAD","url":"/h"}"#;
    let target = format!("http://{}", weir.address("web"));
    let finished = replay(log, &target, &["--http2", "--methods", "POST,HEAD"]);
    finished.expect_code(0);
    let r = report(&finished);
    assert_eq!(
        (r.counts.responses, r.plan.protocol, r.verdict.grade < Grade::Invalid),
        (2, Protocol::Http2, true)
    );
    let posted = origin.requests().into_iter().find(|r| r.head.line == "POST /a?b HTTP/1.1").unwrap();
    assert_eq!((posted.head.header("x-a"), posted.body.bytes.as_slice()), (Some("b"), &b"xyz"[..]));
}

#[test]
fn mistakes_are_told_before_anything_is_sent() {
    let upstream = Upstream::fixed(OK);
    let target = url(&upstream);
    let good = at(&[0], 1);
    for (log, args, said) in [
        (
            good.as_str(),
            &["--speed", "1e9"][..],
            "--speed 1e9: expected a factor of 0.001 to 1000000, or max",
        ),
        (&good, &["--format", "nonsense"], "--format nonsense: expected weir, replay"),
        (&good, &["--rounds", "5"], "unexpected argument '--rounds'"),
        (&good, &["--pipeline", "2"], "unexpected argument '--pipeline'"),
        (&good, &["--threshold", "orders: p99<1s"], "of a route, only ratio, statuses-changed"),
        (&good, &["--abort-on", "ratio>2"], "only --threshold of `weir replay` knows this figure"),
        (&good, &["--http2", "--connections-by", "client"], "works with HTTP/1.1 only"),
        (&good, &["--by", "client"], "--by client: says how a sample is taken"),
        ("what is this\n", &[], "its first lines have no form that is known"),
        ("", &["--format", "weir"], "no request is left to replay: it is empty"),
        (
            "{\"at\":1,\"method\":\"POST\",\"url\":\"/\"}\n",
            &[],
            "no request is left to replay: left out: method POST 1",
        ),
    ] {
        let finished = replay(log, &target, args);
        finished.expect_code(2).expect_text(said);
    }
    replay(&good, &format!("{target}/path?x"), &[])
        .expect_code(2)
        .expect_text("give the target without them");
    let dir = TempDir::new().unwrap();
    let none = run_weir(dir.path(), &["replay", "none", "--target", &target]);
    none.expect_code(2).expect_text("none: No such file");
    assert_eq!(upstream.connections(), 0);
}

#[test]
fn a_compressed_recording_is_read() {
    let upstream = Upstream::fixed(OK);
    let dir = TempDir::new().unwrap();
    std::fs::write(dir.path().join("log"), at(&[0, 1, 2], 1)).unwrap();
    let zipped = std::process::Command::new("gzip").arg(dir.path().join("log")).status().unwrap();
    assert!(zipped.success());
    run_weir(dir.path(), &["replay", "log.gz", "--target", &url(&upstream)]).expect_code(0);
    assert_eq!(lines(&upstream).len(), 3);
}
