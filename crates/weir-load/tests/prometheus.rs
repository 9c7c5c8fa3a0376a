//! Remote write to a real Prometheus, which must be installed: its query API must return what was written.

#![allow(clippy::unwrap_used, reason = "this is test code: a panic is how a test fails")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use weir_load::RemoteWrite;
use weir_report::Report;
use weir_report::report::Tick;

/// Prometheus's answer to a query, as JSON.
fn query(address: &str, query: &str) -> serde_json::Value {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET /api/v1/query?query={query} HTTP/1.0\r\nHost: {address}\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    serde_json::from_str(body).unwrap_or_else(|e| panic!("{e}: {answer}"))
}

#[test]
fn prometheus_gives_back_what_was_written() {
    let dir = std::env::temp_dir().join(format!("weir-prometheus-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    std::fs::write(dir.join("config.yml"), "").unwrap();
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let mut prometheus = Command::new("prometheus")
        .arg("--web.enable-remote-write-receiver")
        .arg(format!("--config.file={}/config.yml", dir.display()))
        .arg(format!("--storage.tsdb.path={}/data", dir.display()))
        .arg(format!("--web.listen-address={address}"))
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut log = BufReader::new(prometheus.stderr.take().unwrap()).lines();
    assert!(log.any(|line| line.unwrap().contains("Server is ready")), "it did not start");
    // Keep draining its output, or the pipe would fill.
    std::thread::spawn(move || log.for_each(drop));

    let labels = [("testid".to_owned(), "t1".to_owned())];
    let mut remote = RemoteWrite::new(&format!("http://{address}"), &labels).unwrap();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis() as u64;
    let mut tick = Tick { responses: 90, errors: 10, users: 7, ..Tick::default() };
    tick.service.p99 = 20_000_000;
    let written = [remote.tick(&tick, now - 2000), remote.tick(&tick, now - 1000)];
    let during =
        ["k6_http_reqs_total", "k6_http_req_duration_p99", "k6_vus"].map(|name| query(&address, name));
    let mut report = Report::default();
    report.counts.responses = 300;
    report.counts.statuses = [(200, 300)].into();
    report.phases.waiting.record_n(1_000_000, 300);
    let ended = remote.end(&report, now);
    let after = query(&address, "k6_http_req_waiting_p95");
    prometheus.kill().unwrap();
    prometheus.wait().unwrap();
    std::fs::remove_dir_all(&dir).unwrap();

    written.into_iter().chain([ended]).for_each(|result| result.unwrap());
    let results = during.map(|answer| answer["data"]["result"].as_array().unwrap().clone());
    let [reqs, p99, users] = &results;
    assert_eq!(reqs.len(), 2, "{reqs:?}");
    let expected = reqs.iter().find(|series| series["metric"]["expected_response"] == "true").unwrap();
    assert_eq!((&expected["value"][1], &expected["metric"]["testid"]), (&"180".into(), &"t1".into()));
    assert_eq!((&p99[0]["value"][1], &users[0]["value"][1]), (&"0.02".into(), &"7".into()));
    assert_eq!(after["data"]["result"][0]["value"][1], "0.001");
}
