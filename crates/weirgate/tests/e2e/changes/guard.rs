//! The guard never loosens access: restrictions stay, however many strangers are refused and whatever the upstream
//! does.

use super::{TempDir, api, fs, weir};
use std::time::{Duration, Instant};
use weir_testkit::{Client, eventually_within};

const BEFORE: &str = "
consumers:
  shop: { key_auth: [ shop-key ] }
  eve: { key_auth: [ eve-key ] }
routes:
  a: { match: { path: /a }, respond: { status: 200 } }
  b: { match: { path: /b }, filters: [ { key_auth: {} } ], respond: { status: 200 } }
";

/// One change closes a route to strangers and revokes a key; both clients continue as before.
#[test]
fn who_is_refused_cannot_take_a_change_back() {
    let folder = TempDir::new().unwrap();
    let api = api(folder.path());
    let put = |text: &str| fs::write(api.weir.dir().join("a.yaml"), text).unwrap();
    put(BEFORE);
    weir(&api, &["apply", "a.yaml"]).expect_code(0);
    let mut client = api.weir.client();
    let began = Instant::now();
    let both = |client: &mut Client| {
        let open = client.get("/a").status;
        let host = api.weir.address("web");
        (open, client.ask(format!("GET /b HTTP/1.1\r\nhost: {host}\r\nx-api-key: eve-key\r\n\r\n")).status)
    };
    while began.elapsed() < Duration::from_secs(5) {
        assert_eq!(both(&mut client), (200, 200));
    }
    put("consumers: { eve: null }\n\
         routes: { a: { match: { path: /a }, filters: [ { key_auth: {} } ], respond: { status: 200 } } }\n");
    weir(&api, &["apply", "a.yaml", "--watch", "10s"]).expect_code(0).expect_text(
        "the watch will not revert this change, because it restricts access (consumers.eve, routes.a.filters)",
    );
    let trial = || {
        let status = api.weir.admin_client().ask(super::request(&api.weir.admin(), "GET /status", "", ""));
        status.json()["trial"].clone()
    };
    assert_eq!(trial()["restricts"][0], "consumers.eve");
    let began = Instant::now();
    while !trial().is_null() {
        assert_eq!(both(&mut client), (401, 401), "it went back:\n{}", api.weir.stderr());
        assert!(began.elapsed() < Duration::from_secs(30), "the trial has no end:\n{}", api.weir.stderr());
    }
    assert_eq!(both(&mut client), (401, 401));
    let told = api.ask("GET /api/v1/revisions", "", "").json();
    assert_eq!(told["running"], 3, "{told}");
    let verdict = told["revisions"][0]["verdict"].as_str().unwrap();
    assert!(
        verdict.starts_with("watched, and not reverted: ") && verdict.contains("were refused (key_"),
        "{verdict}"
    );
    api.weir.wait_log("CHANGE MAY BE HARMFUL, and is not reverted automatically: use `weir rollback`");
}

/// An unconfirmed change is reverted, unless that would restore a revoked key.
#[test]
fn what_nobody_confirms_gives_nothing_back() {
    let folder = TempDir::new().unwrap();
    let api = api(folder.path());
    let apply = |query: &str, body: &str| api.ask(&format!("POST /api/v1/config:apply{query}"), "", body);
    let (one, two) = (
        r#"{"consumers": {"eve": {"key_auth": ["one"]}}}"#,
        r#"{"consumers": {"eve": {"key_auth": ["two"]}}}"#,
    );
    apply("", one).expect_status(200);
    let filters =
        r#"{"routes": {"a": {"match": {"path": "/a"}, "respond": {"status": 200}, "filters": FILTERS}}}"#;
    apply("", &filters.replace("FILTERS", "[]")).expect_status(200);
    let closed = filters.replace("FILTERS", r#"[{"key_auth": {}}]"#);
    apply("?confirm=10s", &closed).expect_status(200);
    api.weir.client().get("/a").expect_status(401);
    eventually_within(Duration::from_secs(30), "the filter is gone", || {
        api.weir.client().get("/a").status == 200
    });

    let warned = apply("?confirm=10s", two).expect_status(200).json()["text"].to_string();
    assert!(warned.contains("this change stays even without a confirmation"), "{warned}");
    // Earlier warnings on the config are not repeated with each change.
    assert!(warned.contains(" warnings as before") && !warned.contains("port 0"), "{warned}");
    eventually_within(Duration::from_secs(30), "the time is over", || {
        !api.weir.logged("CHANGE NOT REVERTED: an operator must decide").is_empty()
    });
    let told = api.ask("GET /api/v1/revisions", "", "").json();
    assert_eq!(told["running"], 6, "{told}");
    let verdict = told["revisions"][0]["verdict"].as_str().unwrap();
    assert!(verdict.contains("a rollback would restore consumers.eve"), "{verdict}");
}
