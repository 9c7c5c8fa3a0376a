//! Destinations of a report: every layout, files, Prometheus, and a saved report that is read again.

use super::{load, origin, url};
use crate::support::OK_BODY;
use tempfile::TempDir;
use weir_report::Report;
use weir_report::layout::{FORMATS, render};
use weir_testkit::{Finished, Upstream, run_weir, unused_address};

/// Runs `weir` in a folder.
#[track_caller]
fn weir(dir: &TempDir, args: &[&str]) -> Finished {
    run_weir(dir.path(), args)
}

#[test]
fn stdout_holds_only_the_layout_and_stderr_the_verdict() {
    let (_origin, url) = origin("/body/1KiB");
    // The first lines of the real tools.
    let begins = [
        ("ab", "Benchmarking 127.0.0.1 (be patient)"),
        ("csv", "unix_ms,end_s,"),
        ("csv-summary", "name,started_unix_ms,"),
        ("ghz", "\nSummary:"),
        ("github", ""),
        ("gitlab", "["),
        ("html", "<!DOCTYPE html>"),
        ("json", "{\"schema\":"),
        ("junit", "<?xml"),
        ("k6", "\n"),
        ("k6-full", "\n"),
        ("k6-json", "{"),
        ("markdown", "### "),
        ("oha-json", "{"),
        ("text", ""),
        ("wrk", "Running "),
        ("wrk2", "Running "),
    ];
    assert_eq!(begins.map(|(name, _)| name).to_vec(), FORMATS.iter().map(|f| f.name).collect::<Vec<_>>());
    for (name, begin) in &begins {
        let run = load(&["-n20", "-c2", "--no-keepalive", "--format", name, &url]);
        run.expect_code(0);
        assert!(
            run.stdout.trim_start_matches('\n').starts_with(begin.trim_start_matches('\n')),
            "{}",
            run.stdout
        );
        let foreign = *name != "text";
        assert_eq!(run.stderr.contains("no_keepalive"), foreign, "{}", run.stderr);
        if foreign && !["html", "json", "junit", "markdown"].contains(name) {
            assert!(!run.stdout.contains("no_keepalive"), "{}", run.stdout);
        }
    }
    load(&["-n20", "--format", "wrk", "--require", "valid", "--threshold", "p99<10s", &url])
        .expect_code(1)
        .expect_text("Requests/sec:");
    load(&["-n20", "--format", "hey", &url]).expect_code(2).expect_text("there is no report format `hey`");
}

#[test]
fn a_saved_report_prints_as_it_did() {
    let (_origin, url) = origin("/body/1KiB");
    let dir = TempDir::new().unwrap();
    let run = weir(&dir, &["load", "-n50", "-c2", "--save", "r.json", "--html", "r.html", &url]);
    run.expect_code(0);
    let saved = std::fs::read_to_string(dir.path().join("r.json")).unwrap();
    let report: Report = serde_json::from_str(&saved).unwrap();
    assert_eq!(report.counts.responses, 50);
    assert_eq!(weir(&dir, &["report", "r.json"]).stdout, run.stdout);
    for format in FORMATS {
        let again = weir(&dir, &["report", "r.json", "--format", format.name]);
        assert_eq!(again.expect_code(0).stdout, render(&report, format), "{}", format.name);
    }
    let page = std::fs::read_to_string(dir.path().join("r.html")).unwrap();
    assert_eq!(weir(&dir, &["report", "r.json", "--format", "html"]).stdout, page);
}

#[test]
fn a_changed_report_is_found_out() {
    let (_origin, url) = origin("/body/1KiB");
    let dir = TempDir::new().unwrap();
    weir(&dir, &["load", "-n50", "-c2", "--save", "r.json", &url]).expect_code(0);
    weir(&dir, &["report", "r.json", "--verify"]).expect_code(0).expect_text("every number follows");
    let saved = std::fs::read_to_string(dir.path().join("r.json")).unwrap();
    let changed = saved.replace("\"requests\":50", "\"requests\":51");
    assert_ne!(changed, saved);
    std::fs::write(dir.path().join("r.json"), changed).unwrap();
    weir(&dir, &["report", "r.json", "--verify"])
        .expect_code(1)
        .expect_text("counts.requests: the report says 51, its raw data say 50");
    let judged = ["-n50", "-c2", "--threshold", "p50<1ns", "--check", "status=404", "--save", "r.json"];
    weir(&dir, &[&["load"], &judged[..], &[&url]].concat()).expect_code(1);
    weir(&dir, &["report", "r.json", "--verify"]).expect_code(0);
    let saved = std::fs::read_to_string(dir.path().join("r.json")).unwrap();
    std::fs::write(dir.path().join("r.json"), saved.replace("\"passed\":false", "\"passed\":true")).unwrap();
    weir(&dir, &["report", "r.json", "--verify"])
        .expect_code(1)
        .expect_text("thresholds[0].passed: the report says true, its raw data say false");
}

#[test]
fn what_is_no_report_is_refused() {
    let dir = TempDir::new().unwrap();
    for (name, text) in [("broken.json", "{"), ("other.json", "{\"a\":1}")] {
        std::fs::write(dir.path().join(name), text).unwrap();
        for more in [&[][..], &["--verify"]] {
            let args = [&["report", name], more].concat();
            weir(&dir, &args)
                .expect_code(2)
                .expect_text(name)
                .expect_text("expected what `weir load --save` writes");
        }
    }
    std::fs::write(dir.path().join("compare.json"), r#"{"schema":"weir.compare/1","end":"time"}"#).unwrap();
    let told = "its schema is `weir.compare/1`, not `weir.load/";
    weir(&dir, &["report", "compare.json"]).expect_code(2).expect_text(told);
    weir(&dir, &["report", "none.json"]).expect_code(2).expect_text("none.json: No such file");
}

#[test]
fn what_cannot_be_kept_is_not_measured() {
    let upstream = Upstream::fixed(OK_BODY);
    let target = url(&upstream);
    load(&["-n1", "--save", "/no/such/dir/r.json", "--html", "/no/such/dir/r.html", &target])
        .expect_code(2)
        .expect_text("/no/such/dir/r.json: No such file")
        .expect_text("/no/such/dir/r.html: No such file");
    load(&["-n1", "-o", "prometheus=https://x", &target])
        .expect_code(2)
        .expect_text("-o prometheus: `https://x`");
    load(&["-n1", "-o", "statsd=x", &target]).expect_code(2).expect_text("expected prometheus=URL");
    assert_eq!(upstream.connections(), 0);
}

#[test]
fn a_mistake_costs_no_baseline() {
    let dir = TempDir::new().unwrap();
    let target = "now=http://127.0.0.1:1/";
    for args in [
        &["load", "http://127.0.0.1:1/", "--threshold", "p99"][..],
        &["load", "http://127.0.0.1:1/", "--find-knee", "p99"],
        &["compare", target, "--against", "base.json", "--fail-if", "p99 wrose 5%"],
    ] {
        std::fs::write(dir.path().join("base.json"), "what was measured before").unwrap();
        let saving = [args, &["--save", "base.json", "--html", "new.html"]].concat();
        weir(&dir, &saving).expect_code(2);
        let kept = std::fs::read_to_string(dir.path().join("base.json")).unwrap();
        assert_eq!(kept, "what was measured before", "{args:?}");
        assert!(!dir.path().join("new.html").exists(), "{args:?}");
    }
}

#[test]
fn prometheus_is_told_while_it_runs_and_at_the_end() {
    let (_origin, url) = origin("/body/1KiB");
    let prometheus = Upstream::script(|conn| {
        conn.read_request();
        conn.send("HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n");
    });
    let to = format!("prometheus=http://{}", prometheus.address());
    let run = load(&["-d1200ms", "--rate", "100/s", "-o", &to, "--name", "nightly", &url]);
    run.expect_code(0);
    assert!(!run.stderr.contains("prometheus"), "{}", run.stderr);
    let writes = prometheus.requests();
    assert!(writes.len() >= 2, "a tick and the end: {writes:?}");
    for write in &writes {
        assert_eq!(write.head.line, "POST /api/v1/write HTTP/1.1");
        assert_eq!(write.head.header("content-encoding"), Some("snappy"));
        assert!(write.body.bytes.windows(7).any(|w| w == b"nightly"), "the name is a label");
    }
}

#[test]
fn a_prometheus_that_is_gone_fails_no_run() {
    let (_origin, url) = origin("/body/1KiB");
    let to = format!("prometheus=http://{}", unused_address());
    let run = load(&["-n20", "-o", &to, &url]);
    run.expect_code(0).expect_text("status       200: 20");
    run.expect_text("weir load: prometheus:").expect_text("writes failed, the first because:");
}

#[test]
fn the_words_of_k6_run_and_export() {
    let (_origin, url) = origin("/body/100");
    let dir = TempDir::new().unwrap();
    let host = url.trim_start_matches("http://");
    let words =
        ["load", "--vus", "2", "--iterations", "50", "--latency", "--summary-export", "out.json", host];
    let limits =
        ["--threshold", "http_req_failed: rate<0.01", "--threshold", "http_req_duration: p(95)<0.000001"];
    let told = run_weir(dir.path(), &[&words[..], &limits].concat());
    told.expect_code(1);
    let text = std::fs::read_to_string(dir.path().join("out.json")).unwrap();
    let export: serde_json::Value = serde_json::from_str(&text).unwrap();
    let metrics = &export["metrics"];
    assert_eq!(metrics["http_reqs"]["count"], 50, "{text}");
    assert_eq!(metrics["http_req_failed"]["thresholds"]["rate<0.01"], false, "true says broken: {text}");
    assert_eq!(metrics["http_req_duration"]["thresholds"]["p(95)<0.000001"], true, "{text}");

    let told = run_weir(dir.path(), &["load", "-q", "5", "-k", host]);
    told.expect_code(2);
    assert!(told.stderr.starts_with("weir load: -q 5: write --rate 5/s"), "{}", told.stderr);
    assert!(told.stderr.contains("\nweir load: -k: write --insecure"), "{}", told.stderr);
}
