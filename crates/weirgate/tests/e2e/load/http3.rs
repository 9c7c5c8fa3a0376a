//! The load tester over HTTP/3, to Weir itself: both must count the same. What it does with a target's resets, refusals
//! and limits is in `crates/weir-load/tests/http3.rs`.

use tempfile::TempDir;
use weir_report::Report;
use weir_testkit::{Authority, Weir, run_weir};

use super::report;
use crate::health::metric;

/// A Weir whose listener `web` speaks HTTP/3 only, and its URL.
pub(super) fn target(authority: &Authority) -> (Weir, String) {
    let certificate = authority.leaf(&["a.test"]).yaml();
    let tls = format!("tls: {{ certificates: [ {certificate} ] }}");
    let weir = Weir::start(&format!(
        "listeners: {{ web: {{ address: \"127.0.0.1:0\", protocols: [h3], {tls} }} }}\n\
         routes: {{ all: {{ match: {{ path: \"/*\" }}, respond: {{ body: ok }} }} }}\n"
    ));
    let url = format!("https://{}", weir.udp_address());
    (weir, url)
}

/// Requests over HTTP/3 that Weir has counted.
pub(super) fn counted(weir: &Weir) -> Option<f64> {
    metric(weir, &["weir_connection_requests_total", "listener=\"web\"", "protocol=\"h3\""])
}

#[test]
fn every_request_is_made_once_whatever_the_pace() {
    let authority = Authority::new();
    let (weir, url) = target(&authority);
    let common = ["--http3", "--insecure", "-c2", "-m5", &url];
    let r = report(&[&common[..], &["-n500", "--threads=2"]].concat());
    assert_eq!((r.counts.requests, r.counts.responses, r.counts.errors.total()), (500, 500, 0), "{r:#?}");
    assert_eq!((r.connections.opened, r.ledger.protocols.get("HTTP/3")), (2, Some(&500)));
    assert_eq!(counted(&weir), Some(500.0));
    let r = report(&[&common[..], &["--rate=200/s", "-n200"]].concat());
    assert_eq!((r.counts.requests, r.counts.responses), (200, 200), "{r:#?}");
    assert_eq!(counted(&weir), Some(700.0));
}

const PLAN: &str = "
target: TARGET
defaults: { http3: true, checks: [ status=200 ] }
users: 2
scenarios:
  a:
    iterations: 10
    steps:
      - { name: one, post: /a, body: hi }
      - parallel: 2
        steps:
          - { name: two, get: /b }
          - { name: three, get: /c }
";

#[test]
fn users_of_a_plan_speak_it_too_with_requests_at_once() {
    let authority = Authority::new();
    let (weir, url) = target(&authority);
    let dir = TempDir::new().unwrap();
    let plan = PLAN.replace("TARGET", &url);
    std::fs::write(dir.path().join("plan.yaml"), plan).unwrap();
    let finished = run_weir(dir.path(), &["load", "-f", "plan.yaml", "--insecure", "--format", "json"]);
    let r: Report = serde_json::from_str(&finished.stdout).unwrap_or_else(|e| panic!("{e}: {finished:#?}"));
    assert_eq!((r.counts.responses, r.counts.errors.total()), (30, 0), "{r:#?}");
    assert_eq!(r.ledger.protocols.get("HTTP/3"), Some(&30));
    assert_eq!(counted(&weir), Some(33.0), "with the dry run");
}

/// The target has no TCP port, so every answer came over HTTP/3.
#[test]
fn rounds_comparisons_and_searches_speak_it_too() {
    let authority = Authority::new();
    let (_weir, url) = target(&authority);
    let common = ["--http3", "--insecure", "-c1", "-m2", "--threads=1"];
    let r = report(&[&common[..], &["--rounds", "5", "-d1s", &url]].concat());
    assert_eq!((r.blocks.len(), r.counts.errors.total()), (5, 0), "{r:#?}");
    assert_eq!(r.ledger.protocols.get("HTTP/3"), Some(&r.counts.responses));
    let dir = TempDir::new().unwrap();
    let run = |command: &str, args: &[&str]| {
        run_weir(dir.path(), &[&[command], &common[..], &["--format", "json"], args].concat())
    };
    let (a, b) = (format!("a={url}"), format!("b={url}"));
    let compared = run("compare", &["-d4s", &a, &b]);
    compared.expect_code(0);
    let comparison: serde_json::Value = serde_json::from_str(&compared.stdout).unwrap();
    for i in 0..2 {
        let one = &comparison["targets"][i];
        assert!(one["responses"].as_u64() > Some(0) && one["errors"] == 0, "{one:#}");
    }
    let found = run("load", &["--find-knee", "errors<50%", "-d300ms", "--warmup", "0", &url]);
    let knee: weir_report::Knee =
        serde_json::from_str(&found.stdout).unwrap_or_else(|e| panic!("{e}: {found:#?}"));
    assert!(knee.rate.is_some(), "{knee:#?}");
}
