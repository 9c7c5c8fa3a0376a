//! Certificates by ACME, from a real authority: Pebble, which rejects nonces at random, forgets everything on exit,
//! and checks proofs strictly.
//!
//! Without Pebble these tests print a note and pass; `make test` builds it. Longer scenarios are in
//! `conformance/acme.py`.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use weir_testkit::{Client, Pebble, Tls, Weir, eventually_within, unused_address};

/// How long a certificate may take: the authority validates when it likes, and a busy machine is slow.
const ISSUED: Duration = Duration::from_secs(60);

/// A gateway with a certificate for `a.test` and an authority for it.
struct Stage {
    pebble: Pebble,
    clear: u16,
    tls: u16,
}

impl Stage {
    /// `None` without Pebble.
    fn new() -> Option<Self> {
        let (clear, tls) = (unused_address().port(), unused_address().port());
        Some(Self { pebble: Pebble::new(clear, tls)?, clear, tls })
    }

    /// The config with these settings of `acme`.
    fn config(&self, acme: &str) -> String {
        let (clear, tls) = (self.clear, self.tls);
        format!(
            "listeners:\n  web: {{ address: \"127.0.0.1:{clear}\" }}\n  \
             secure:\n    address: \"127.0.0.1:{tls}\"\n    \
             tls: {{ acme: {{ {}, storage: \"{{dir}}/acme\", {acme} }} }}\n\
             routes: {{ all: {{ match: {{ path: \"/*\" }}, respond: {{ body: route }} }} }}\n",
            self.pebble.yaml()
        )
    }

    /// Waits until clients that trust the authority get its certificate for this name.
    #[track_caller]
    fn wait_issued(&self, name: &str) {
        let tls = Tls::trusting(self.pebble.root(), name);
        let shown = || Client::try_connect_tls(format!("127.0.0.1:{}", self.tls), &tls).is_ok();
        eventually_within(ISSUED, "a certificate is shown", shown);
    }
}

/// The admin listener's report on the first certificate.
#[track_caller]
fn status(weir: &Weir) -> serde_json::Value {
    let answer = weir.admin_client().ask("GET /status HTTP/1.1\r\nHost: localhost\r\n\r\n");
    answer.expect_status(200).json()["certificates"][0].clone()
}

#[track_caller]
fn metrics(weir: &Weir) -> String {
    let answer = weir.admin_client().ask("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
    answer.expect_status(200).text()
}

/// The stored certificate for a name.
fn kept(weir: &Weir, file: &str) -> PathBuf {
    let authority = fs::read_dir(weir.dir().join("acme")).unwrap().next().unwrap().unwrap().path();
    authority.join("certificates").join(file)
}

/// A DNS hook for the test's DNS server. It waits until `{dir}/go` exists.
fn hook(dir: &Path, pebble: &Pebble) {
    let script = format!(
        "set -e\ntouch {dir}/called\nwhile [ ! -e {dir}/go ]; do sleep 0.05; done\n\
         case $1 in present) call=set-txt value=\", \\\"value\\\": \\\"$3\\\"\" ;; cleanup) call=clear-txt value= ;; esac\n\
         curl -sf -d \"{{ \\\"host\\\": \\\"$2.\\\"$value }}\" http://{records}/$call\n",
        dir = dir.display(),
        records = pebble.records()
    );
    fs::write(dir.join("hook.sh"), script).unwrap();
}

#[test]
fn a_proof_over_http_after_the_authority_was_away() {
    let Some(mut stage) = Stage::new() else { return };
    let weir = Weir::start(&stage.config("domains: [ a.test ], challenge: http-01, email: ops@example.com"));
    weir.wait_log("clients see a self-signed stand-in until a certificate is issued");
    let failed = weir.wait_log("certificate not issued");
    assert_eq!((failed.field("reason"), failed.field("name")), (Some("away"), Some("a.test")));
    assert_eq!(status(&weir)["acme"]["state"], "stand_in");
    assert!(metrics(&weir).contains("weir_acme_stand_in{name=\"a.test\"} 1\n"));
    stage.pebble.start();
    stage.wait_issued("a.test");
    eventually_within(ISSUED, "the status says so", || status(&weir)["acme"]["state"] == "issued");
    assert_ne!(status(&weir)["days_left"], 0); // the authority chooses the profile
    for line in ["weir_acme_stand_in{name=\"a.test\"} 0\n", "weir_acme_failures{name=\"a.test\"} 0\n"] {
        eventually_within(ISSUED, line, || metrics(&weir).contains(line));
    }
    // No challenge is pending any more: the path belongs to the routes.
    weir.client().get("/.well-known/acme-challenge/token").expect_status(200).expect_body("route");
    assert!(kept(&weir, "a.test/certificate.pem").exists());
}

#[test]
fn a_proof_in_a_handshake() {
    let Some(mut stage) = Stage::new() else { return };
    stage.pebble.start();
    // Two names, two certificates; the default challenge.
    let weir = Weir::start(&stage.config("domains: [ a.test, b.test ], profile: shortlived"));
    for name in ["a.test", "b.test"] {
        stage.wait_issued(name);
    }
    eventually_within(ISSUED, "the status says so", || status(&weir)["acme"]["state"] == "issued");
    assert_eq!(status(&weir)["days_left"], 5);
    // Other clients never see a proof.
    let tls = Tls::trusting(stage.pebble.root(), "a.test").alpn(&["acme-tls/1"]);
    assert!(Client::try_connect_tls(weir.address("secure"), &tls).is_err());
}

#[test]
fn a_proof_in_dns_and_a_restart_in_the_middle() {
    let Some(mut stage) = Stage::new() else { return };
    stage.pebble.start();
    let shared = tempfile::tempdir().unwrap();
    hook(shared.path(), &stage.pebble);
    let exec = format!("[ /bin/sh, {}/hook.sh ]", shared.path().display());
    let acme = format!("domains: [ \"*.c.test\" ], challenge: dns-01, dns: {{ exec: {exec}, wait: 0s }}");
    let config = stage.config(&acme).replace("{dir}", &shared.path().display().to_string());
    let mut first = Weir::start(&config);
    let called = shared.path().join("called");
    eventually_within(ISSUED, "the command was called", || called.exists());
    first.signal(libc::SIGKILL);
    first.wait_exit(ISSUED);
    fs::write(shared.path().join("go"), "").unwrap();
    let second = Weir::start(&config);
    stage.wait_issued("any.c.test");
    second.wait_log("certificate order resumed");
    second.wait_log("certificate issued");
}

#[test]
fn a_refused_order_is_told_with_its_reason() {
    let Some(mut stage) = Stage::new() else { return };
    stage.pebble.start();
    let weir = Weir::start(&stage.config("domains: [ a.test ], profile: gold"));
    let failed = weir.wait_log("certificate not issued");
    assert_eq!(failed.field("reason"), Some("refused"));
    let error = "the certificate authority has no profile `gold`; it has: default, shortlived";
    assert_eq!(failed.field("error"), Some(error));
    // A later config can fix it: names are added and removed at runtime.
    weir.reload_with(&stage.config("domains: [ b.test ]")).unwrap();
    stage.wait_issued("b.test");
    assert_eq!(status(&weir)["names"][0], "b.test");
}
