//! `weir shadow`: another config judged on live heads, by the API and by the command.

use serde_json::{Value, json};
use std::process::Stdio;
use std::time::Duration;
use weir_testkit::{Client, Response, Upstream, Weir, eventually, run_weir, weir_command};

use crate::support::{OK, WEB};

/// One listener, two upstreams, an admin listener.
fn config(upstream: &Upstream, routes: &str) -> String {
    let address = upstream.address();
    format!(
        "{WEB}\nadmin: {{ address: 127.0.0.1:0 }}\nwatch: false\n\
         upstreams: {{ one: {{ endpoints: [{address}] }}, two: {{ endpoints: [{address}] }} }}\n\
         consumers: {{\n  shop: {{ key_auth: [ key-of-shop-0123456789 ] }},\n  \
         desk: {{ key_auth: [ key-of-desk-0123456789 ] }} }}\n\
         filters: [ {{ request_id: {{}} }} ]\n{routes}\n"
    )
}

/// Sends a call to the admin listener.
fn call(weir: &Weir, line: &str, token: &str, body: &str) -> Response {
    let token = if token.is_empty() { String::new() } else { format!("Authorization: Bearer {token}\r\n") };
    let length = body.len();
    Client::connect(weir.admin()).ask(format!(
        "{line} HTTP/1.1\r\nHost: {}\r\n{token}Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}",
        weir.admin()
    ))
}

/// What the call that starts a shadow sends.
fn body(candidate: &str, more: Value) -> String {
    let mut body = json!({
        "files": [ { "name": "weir.yaml", "text": candidate } ], "sample": "100%", "min_judged": 1, "for": "1m"
    });
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body.to_string()
}

/// A shadow that judges everything.
pub(crate) struct Running<'a>(&'a Weir, String);

#[track_caller]
pub(crate) fn shadow<'a>(weir: &'a Weir, candidate: &str, more: Value) -> Running<'a> {
    let begun = call(weir, "POST /api/v1/shadow", "", &body(candidate, more));
    begun.expect_status(201);
    Running(weir, begun.json()["id"].as_str().unwrap().to_owned())
}

impl Running<'_> {
    #[track_caller]
    fn end(&self) -> Value {
        call(self.0, &format!("POST /api/v1/shadow/{}:end", self.1), "", "").expect_status(200).json()
    }

    /// Ends it once this many requests were sampled: an exchange is recorded shortly after its answer.
    #[track_caller]
    pub(crate) fn end_after(&self, requests: u64) -> Value {
        eventually(&format!("{requests} requests are sampled"), || {
            let told = call(self.0, &format!("GET /api/v1/shadow/{}", self.1), "", "").json();
            told["sampled"].as_u64().unwrap() >= requests
        });
        self.end()
    }
}

/// The only change that a report has: what was decided, what would be, and the key.
#[track_caller]
fn only_change(report: &Value) -> (String, String, String) {
    let rows = report["changes"].as_array().unwrap();
    assert_eq!(rows.len(), 1, "{report:#}");
    let text = |key: &str| rows[0][key].as_str().unwrap().to_owned();
    (text("before"), text("after"), text("key"))
}

fn expect(report: &Value, before: &str, after: &str, key: &str) {
    assert_eq!(only_change(report), (before.to_owned(), after.to_owned(), key.to_owned()), "{report:#}");
    assert_eq!(report["unexplained"], 0, "{report:#}");
}

const ROUTES: &str = "routes:\n  a: { match: { path: \"/a/*\" }, upstream: one }\n  \
                      b: { match: { path: \"/b/*\" }, upstream: one }";

/// A route for everything with these filters.
fn filtered(filters: &str) -> String {
    format!("routes:\n  a: {{ match: {{ path: \"/*\" }}, filters: [ {filters} ], upstream: one }}")
}

#[test]
fn the_same_config_changes_nothing() {
    let upstream = Upstream::fixed(OK);
    let running = config(&upstream, ROUTES);
    let weir = Weir::start(&running);
    // Another way to write it is the same config.
    let candidate =
        running.replace("path: \"/a/*\"", "path: /a/*").replace("watch: false", "watch: false # no");
    let shadow = shadow(&weir, &candidate, json!({ "max_change": "0%" }));
    let mut client = weir.client();
    client.get("/a/1").expect_status(200);
    client.get("/b/1").expect_status(200);
    client.get("/none").expect_status(404);
    client.request("TRACE", "/a/1").expect_status(501);
    let report = shadow.end_after(4);
    for (key, number) in [("seen", 4), ("sampled", 4), ("judged", 4), ("changed", 0), ("unexplained", 0)] {
        assert_eq!(report[key], number, "{key}: {report:#}");
    }
    assert_eq!((&report["verdict"], &report["state"]), (&json!("within"), &json!("ended")));
    assert!(report["text"].as_str().unwrap().contains("verdict  NO CHANGE"), "{report:#}");
}

#[test]
fn a_changed_route() {
    let upstream = Upstream::fixed(OK);
    let running = config(&upstream, ROUTES);
    let weir = Weir::start(&running);
    let candidate = running.replace("match: { path: \"/b/*\" }", "match: { path: \"/b/{id}\" }");
    let shadow = shadow(&weir, &candidate, json!({}));
    let mut client = weir.client();
    for path in ["/b/1", "/b/1/2", "/b/1/2/3", "/a/1"] {
        client.get(path).expect_status(200);
    }
    let report = shadow.end_after(4);
    expect(&report, "route b: upstream one", "404 no_route", "routes.b.match");
    assert_eq!((&report["changed"], &report["judged"]), (&json!(2), &json!(4)));
    let example = &report["changes"][0]["examples"][0];
    assert_eq!(
        (&example["method"], &example["path"], &example["status"]),
        (&json!("GET"), &json!("/b/1/2"), &json!(200))
    );
    assert_eq!(example["id"].as_str().map(str::len), Some(32), "{report:#}");
}

#[test]
fn a_dropped_auth_filter() {
    let upstream = Upstream::fixed(OK);
    let running = config(&upstream, &filtered("{ key_auth: {} }, { acl: { allow: [shop] } }"));
    let weir = Weir::start(&running);
    let candidate =
        running.replace("{ key_auth: {} }, ", "").replace("allow: [shop]", "allow: [anonymous, shop]");
    let shadow = shadow(&weir, &candidate, json!({ "max_change": "10%" }));
    let ask = |key: &str, status: u16| {
        let key = if key.is_empty() { String::new() } else { format!("x-api-key: {key}\r\n") };
        weir.client().ask(format!("GET / HTTP/1.1\r\nHost: a.test\r\n{key}\r\n")).expect_status(status);
    };
    ask("", 401);
    ask("key-of-shop-0123456789", 200);
    ask("key-of-desk-0123456789", 403);
    let report = shadow.end_after(3);
    assert_eq!(
        (&report["changed"], &report["unexplained"], &report["verdict"]),
        (&json!(3), &json!(0), &json!("over"))
    );
    let rows: Vec<String> = report["changes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| {
            format!(
                "{} → {} ({})",
                row["before"].as_str().unwrap(),
                row["after"].as_str().unwrap(),
                row["key"].as_str().unwrap()
            )
        })
        .collect();
    for row in [
        "route a: 401 key_missing by key_auth → route a: upstream one (routes.a.filters.acl)",
        "route a: 403 acl_denied by acl, consumer desk → route a: upstream one (routes.a.filters.acl)",
        "route a: upstream one, consumer shop → route a: upstream one (routes.a.filters.acl)",
    ] {
        assert!(rows.iter().any(|told| told == row), "{row}: {rows:#?}");
    }
}

/// A page in place of a refusal hides neither who refused nor why.
#[test]
fn error_pages_are_no_decision() {
    let upstream = Upstream::fixed("HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n");
    let errors = "{ errors: { upstream: [ 5xx ], 401: { body: page }, 5xx: { body: page } } }";
    let running = config(&upstream, &filtered(&format!("{errors}, {{ key_auth: {{}} }}")));
    let weir = Weir::start(&running);
    let shadow = shadow(&weir, &running, json!({}));
    weir.client().get("/").expect_status(401).expect_body("page");
    let asked = "GET / HTTP/1.1\r\nHost: a.test\r\nx-api-key: key-of-shop-0123456789\r\n\r\n";
    weir.client().ask(asked).expect_status(503).expect_body("page");
    let report = shadow.end_after(2);
    assert_eq!((&report["judged"], &report["changed"]), (&json!(2), &json!(0)), "{report:#}");
}

#[test]
fn changed_weights_and_timeouts() {
    let upstream = Upstream::fixed(OK);
    let routes = "routes:\n  a: { match: { path: \"/a\" }, upstream: { one: 90, two: 10 } }\n  \
                  b: { match: { path: \"/b\" }, upstream: two }\n  c: { match: { path: \"/c\" }, upstream: one }";
    let running = config(&upstream, routes);
    let weir = Weir::start(&running);
    let candidate = running
        .replace("one: 90, two: 10", "one: 50, two: 50")
        .replace("two: { endpoints", "two: { timeouts: { response: 5s }, endpoints");
    let shadow = shadow(&weir, &candidate, json!({}));
    let mut client = weir.client();
    for path in ["/a", "/b", "/c"] {
        client.get(path).expect_status(200);
    }
    let report = shadow.end_after(3);
    let keys: Vec<&str> =
        report["changes"].as_array().unwrap().iter().map(|row| row["key"].as_str().unwrap()).collect();
    assert_eq!(report["changed"], 2, "{report:#}");
    assert!(
        keys.contains(&"routes.a.upstream.one") && keys.contains(&"upstreams.two.timeouts"),
        "{report:#}"
    );
    assert!(report["text"].as_str().unwrap().contains("upstreams one 90, two 10"), "{report:#}");
}

/// A request is judged by the filters of the arm that it took, and by the shares of all.
#[test]
fn a_changed_filter_of_one_arm() {
    let upstream = Upstream::fixed(OK);
    let arms = |weights: (u32, u32), of_a: &str| {
        let routes = format!(
            "routes:\n  r: {{ match: {{ path: \"/*\" }}, upstream: {{ \
             a: {{ weight: {}, upstream: one{of_a} }}, b: {{ weight: {}, upstream: two }} }} }}",
            weights.0, weights.1
        );
        config(&upstream, &routes)
    };
    let sets =
        |value: &str| format!(", filters: [ {{ headers: {{ response: {{ set: {{ x-v: {value} }} }} }} }} ]");
    for (weights, of_a, changed) in
        [((1, 0), sets("two"), 1), ((0, 1), sets("two"), 0), ((0, 1), String::new(), 0)]
    {
        let weir = Weir::start(&arms(weights, &sets("one")));
        let shadow = shadow(&weir, &arms(weights, &of_a), json!({}));
        weir.client().get("/").expect_status(200);
        let report = shadow.end_after(1);
        assert_eq!(
            (&report["judged"], &report["changed"], &report["unexplained"]),
            (&json!(1), &json!(changed), &json!(0)),
            "{weights:?} {of_a}: {report:#}"
        );
        if changed == 1 {
            let (.., key) = only_change(&report);
            assert!(key.starts_with("routes.r.upstream.a.filters.headers"), "{key}");
        }
    }
    // Other shares concern everybody.
    let weir = Weir::start(&arms((0, 1), &sets("one")));
    let shadow = shadow(&weir, &arms((1, 1), ""), json!({}));
    weir.client().get("/").expect_status(200);
    let (.., key) = only_change(&shadow.end_after(1));
    assert_eq!(key, "routes.r.upstream.a.weight");
}

#[test]
fn a_candidate_with_mistakes() {
    let upstream = Upstream::fixed(OK);
    let running = config(&upstream, ROUTES);
    let weir = Weir::start(&running);
    let candidate =
        running.replace("upstream: one", "upstream: none").replace("request_id: {}", "request_idd: {}");
    let refused = call(&weir, "POST /api/v1/shadow", "", &body(&candidate, json!({})));
    refused.expect_status(422);
    let told = refused.json();
    assert_eq!(told["errors"], 3, "{told:#}");
    let text = told["text"].as_str().unwrap();
    assert!(text.contains("weir.yaml (candidate):") && text.contains("did you mean `request_id`?"), "{text}");
    for wrong in ["{}", "[", "{\"files\": [], \"x\": 1}", "{\"files\": [ { \"name\": \"a\" } ] }"] {
        call(&weir, "POST /api/v1/shadow", "", wrong).expect_status(400);
    }
    for (key, value) in
        [("sample", "0%"), ("sample", "101%"), ("for", "0s"), ("for", "2d"), ("max_change", "x")]
    {
        let sent = body(&running, json!({ key: value }));
        call(&weir, "POST /api/v1/shadow", "", &sent).expect_status(400);
    }
    for name in ["../weir.yaml", "/etc/weir.yaml", ""] {
        let sent = json!({ "files": [ { "name": name, "text": running } ] }).to_string();
        call(&weir, "POST /api/v1/shadow", "", &sent).expect_status(422);
    }
    let sent = body(&format!("include: [ gone.yaml ]\n{running}"), json!({}));
    let refused = call(&weir, "POST /api/v1/shadow", "", &sent);
    refused.expect_status(422);
    assert!(refused.json()["text"].as_str().unwrap().contains("`gone.yaml` is not among the files"));
    call(&weir, "GET /api/v1/shadow", "", "").expect_status(404);
    weir.client().get("/a/1").expect_status(200);
}

#[test]
fn one_at_a_time_and_until_a_reload() {
    let upstream = Upstream::fixed(OK);
    let running = config(&upstream, ROUTES);
    let weir = Weir::start(&running);
    let first = shadow(&weir, &running, json!({}));
    let second = call(&weir, "POST /api/v1/shadow", "", &body(&running, json!({})));
    second.expect_status(409);
    assert!(
        second.json()["detail"].as_str().unwrap().contains("`local` runs a shadow since"),
        "{}",
        second.text()
    );
    weir.client().get("/a/1").expect_status(200);
    weir.reload_with(&running.replace("\"/b/*\"", "\"/c/*\"")).unwrap();
    eventually("the shadow has ended", || {
        let told = call(&weir, &format!("GET /api/v1/shadow/{}", first.1), "", "").expect_status(200).json();
        told["state"] == "ended" && told["ended"] == "another config runs now"
    });
    // Its candidate was compared with another config.
    call(&weir, &format!("POST /api/v1/shadow/{}:promote", first.1), "", "").expect_status(409);
    // The next one may begin, and counts from nothing.
    let third = shadow(&weir, &running, json!({}));
    weir.client().get("/c/1").expect_status(200);
    let report = third.end_after(1);
    expect(&report, "route b: upstream one", "404 no_route", "routes.b.match");
}

#[test]
fn filters_that_reach_outside_are_never_called() {
    let (upstream, decider) = (Upstream::fixed(OK), Upstream::fixed("HTTP/1.1 204 No Content\r\n\r\n"));
    let running = config(&upstream, &filtered("{ rate_limit: { requests: 2, per: 1h } }"));
    let weir = Weir::start(&running);
    let auth = format!(
        "upstreams: {{ auth: {{ endpoints: [{}], health: {{ probe: {{ path: /up, interval: 100ms }} }} }},",
        decider.address()
    );
    let candidate = running
        .replace("[ { rate_limit", "[ { forward_auth: { upstream: auth, path: /auth } }, { rate_limit")
        .replace("upstreams: {", &auth);
    let shadow = shadow(&weir, &candidate, json!({}));
    let mut client = weir.client();
    for status in [200, 200, 429] {
        client.get("/").expect_status(status);
    }
    let report = shadow.end_after(3);
    // The limit's own verdict is that of the live exchange, on both sides.
    let row = &report["changes"][0];
    assert_eq!((&report["changed"], &report["unexplained"]), (&json!(3), &json!(0)), "{report:#}");
    assert!(row["after"].as_str().unwrap().ends_with("upstream one, would run forward_auth"), "{report:#}");
    assert_eq!((&row["key"], &row["estimate"]), (&json!("routes.a.filters.forward_auth"), &json!(true)));
    assert_eq!(decider.connections(), 0);
    // The candidate itself touched nothing: no listener, no probe.
    assert!(weir.logged("listening").len() == 1, "{}", weir.stderr());
}

#[test]
fn passwords_are_not_hashed_again() {
    let upstream = Upstream::fixed(OK);
    // bcrypt of `secret`, with a cost that shows.
    let hash = "$2b$04$LJd2TKFBBRiXNBBuAd4NFOuFAFbTtZYsUrgeJPSRwBY/EBqBrJJ6C";
    let running = config(&upstream, &filtered("{ basic_auth: {} }")).replace(
        "desk: { key_auth: [ key-of-desk-0123456789 ] }",
        &format!("desk: {{ basic_auth: [ 'desk:{hash}' ] }}"),
    );
    let weir = Weir::start(&running);
    let candidate = running.replace("upstream: one", "upstream: two");
    let shadow = shadow(&weir, &candidate, json!({}));
    let ask = |pair: &str| {
        let pair = weir_wire::base64::encode(pair.as_bytes());
        weir.client()
            .ask(format!("GET / HTTP/1.1\r\nHost: a.test\r\nAuthorization: Basic {pair}\r\n\r\n"))
            .status
    };
    let statuses = [ask("desk:wrong"), ask("nobody:x")];
    assert_eq!(statuses, [401, 401]);
    let report = shadow.end_after(2);
    assert_eq!(
        (&report["judged"], &report["changed"], &report["unexplained"]),
        (&json!(2), &json!(0), &json!(0)),
        "{report:#}"
    );
}

#[test]
fn http2_and_http1_are_judged_alike() {
    let upstream = Upstream::fixed(OK);
    let running = config(&upstream, &filtered("{ body_limit: { max: 1MiB } }")).replace(
        "address: 127.0.0.1:0 } }\nadmin",
        "address: 127.0.0.1:0, protocols: [http1, h2] } }\nadmin",
    );
    let weir = Weir::start(&running);
    let candidate = running.replace("max: 1MiB", "max: 4B");
    let shadow = shadow(&weir, &candidate, json!({}));
    let mut h2 = weir.h2();
    let stream = h2.get("/a");
    h2.message(stream);
    let stream = h2.request(
        &[
            (":method", "POST"),
            (":scheme", "http"),
            (":authority", "a.test"),
            (":path", "/a"),
            ("content-length", "5"),
        ],
        false,
    );
    h2.data(stream, "12345", true);
    h2.message(stream);
    weir.client()
        .ask("POST /a HTTP/1.1\r\nHost: a.test\r\nContent-Length: 5\r\n\r\n12345")
        .expect_status(200);
    weir.client().ask("GET /a HTTP/1.1\r\nHost: a.test\r\n\r\n").expect_status(200);
    let report = shadow.end_after(4);
    let rows = report["changes"].as_array().unwrap();
    assert_eq!((&report["judged"], &report["changed"], rows.len()), (&json!(4), &json!(4), 2), "{report:#}");
    let refused =
        rows.iter().find(|row| row["after"] == "route a: 413 body_too_large by body_limit").unwrap();
    assert_eq!(
        (&refused["count"], &refused["key"]),
        (&json!(1), &json!("routes.a.filters.body_limit.max")),
        "{report:#}"
    );
}

/// What heads and the candidate hold stays in them.
#[test]
fn no_secret_is_shown() {
    let upstream = Upstream::fixed(OK);
    let filters = "{ key_auth: { query: key, cookie: session, path: true, optional: true } }";
    let running = config(
        &upstream,
        &format!("routes:\n  a: {{ match: {{ path: \"/*\" }}, filters: [ {filters} ], upstream: one }}"),
    );
    let weir = Weir::start(&running);
    let header = "{ headers: { request: { set: { authorization: \"Bearer hunter2-upstream\" } } } }";
    let candidate = running
        .replace("key-of-shop-0123456789", "hunter2-of-the-candidate")
        .replace("upstream: one }", "upstream: two }")
        .replace("filters: [ { key_auth", &format!("filters: [ {header}, {{ key_auth"));
    let shadow = shadow(&weir, &candidate, json!({}));
    for request in [
        "GET /a?key=hunter2-query&page=1&hunter2-alone HTTP/1.1\r\nHost: a.test\r\n\r\n",
        "GET /b/~hunter2-path/c HTTP/1.1\r\nHost: a.test\r\nCookie: session=hunter2-cookie; b=hunter2\r\n\r\n",
        "GET http://user:hunter2@a.test/d HTTP/1.1\r\nHost: a.test\r\n\r\n",
        "POST /e HTTP/1.1\r\nHost: a.test\r\nAuthorization: Basic hunter2\r\nX-Api-Key: hunter2-key\r\n\
         Referer: http://a.test/?key=hunter2\r\nContent-Length: 7\r\n\r\nhunter2",
        "GET /f HTTP/1.1\r\nHost: a.test\r\nX-Api-Key: key-of-shop-0123456789\r\n\r\n",
    ] {
        weir.client().ask(request);
    }
    let running_report = call(&weir, "GET /api/v1/shadow", "", "").text();
    let report = shadow.end_after(5);
    assert!(report["changed"].as_u64().unwrap() >= 1, "{report:#}");
    let broken = candidate
        .replace("upstream: two", "upstream: none")
        .replace("query: key", "query: hunter2-setting, kye: hunter2");
    let refused = call(&weir, "POST /api/v1/shadow", "", &body(&broken, json!({})));
    refused.expect_status(422);
    let page = call(&weir, "GET /shadow", "", "").text();
    for told in [running_report, report.to_string(), weir.stderr(), weir.stdout(), page] {
        assert!(!told.contains("hunter2-") && !told.contains("key-of-shop"), "{told}");
    }
    let seen = report["text"].as_str().unwrap();
    assert!(seen.contains("/b/~***/c") || report["changed"] != 5, "{seen}");
    assert!(!seen.contains("hunter2"), "{seen}");
    assert!(seen.contains("?key&page") && seen.contains("x-api-key") || report["changed"] != 5, "{seen}");
}

/// Who may not change the config may not try one out; who may only change named entries may not read the disk by it.
#[test]
fn roles() {
    let upstream = Upstream::fixed(OK);
    let tokens = ["read", "operate", "write", "admin"].map(|role| {
        format!("{{ name: {role}-user, role: {role}, token: \"{}\" }}", crate::changes::hash(role))
    });
    let running = config(&upstream, ROUTES).replace(
        "admin: { address: 127.0.0.1:0 }",
        &format!("admin: {{ address: 127.0.0.1:0, tokens: [ {} ] }}", tokens.join(", ")),
    );
    let weir = Weir::start(&running);
    std::fs::write(weir.dir().join("secret.txt"), "hunter2-on-disk\n").unwrap();
    let same = body(&running, json!({}));
    for token in ["read", "operate"] {
        for line in [
            "POST /api/v1/shadow",
            "GET /api/v1/shadow",
            "GET /api/v1/shadow/1",
            "POST /api/v1/shadow/1:end",
            "POST /api/v1/shadow/1:promote",
        ] {
            call(&weir, line, token, &same).expect_status(403);
        }
    }
    call(&weir, "POST /api/v1/shadow", "", &same).expect_status(401);
    let begun = call(&weir, "POST /api/v1/shadow", "write", &same);
    begun.expect_status(201);
    for token in ["read", "operate"] {
        call(&weir, "GET /shadow", token, "").expect_status(403);
        let page = call(&weir, "GET /", token, "").expect_status(200).text();
        assert!(!page.contains("href=\"/shadow\""), "{page}");
    }
    let page = call(&weir, "GET /shadow", "write", "").expect_status(200).text();
    assert!(page.contains("INCONCLUSIVE") && page.contains(":end\""), "{page}");
    assert!(!page.contains(":promote"), "without a history there is no trial: {page}");
    let other = call(&weir, "POST /api/v1/shadow", "admin", &same);
    assert!(other.expect_status(409).text().contains("write-user"));
    let id = begun.json()["id"].as_str().unwrap().to_owned();
    call(&weir, &format!("POST /api/v1/shadow/{id}:end"), "write", "").expect_status(200);
    let ip = |file: &str| {
        running.replace(
            "match: { path: \"/a/*\" }",
            &format!("filters: [ {{ ip: {{ deny_file: {file} }} }} ], match: {{ path: \"/a/*\" }}"),
        )
    };
    let variable = running.replace("key-of-desk-0123456789", "\"${file:secret.txt}\"");
    for (candidate, expected) in [
        (ip("secret.txt"), "`admin.paths`"),
        (ip("/etc/passwd"), "`admin.paths`"),
        (variable, "`${…}` may be used only where"),
    ] {
        let refused = call(&weir, "POST /api/v1/shadow", "write", &body(&candidate, json!({})));
        refused.expect_status(422);
        let text = refused.text();
        assert!(text.contains(expected) && !text.contains("hunter2") && !text.contains("root:"), "{text}");
    }
    let closed = running.replace("watch: false", "watch: false\nstores: { s: { memory: 1MiB } }");
    let refused = call(&weir, "POST /api/v1/shadow", "write", &body(&closed, json!({})));
    assert!(refused.expect_status(422).text().contains("`stores` differs"), "{}", refused.text());
}

/// The judge gets one percent of a core: of a flood it judges a part, and the rest is counted.
#[test]
fn a_flood_is_dropped_and_counted() {
    let upstream = Upstream::fixed(OK);
    let running = config(&upstream, "routes:\n  a: { match: { path: \"/*\" }, respond: { status: 204 } }");
    let weir = Weir::start(&running);
    let shadow = shadow(&weir, &running.replace("204", "205"), json!({}));
    let requests = 20_000_u64;
    let one = "GET /x HTTP/1.1\r\nHost: a.test\r\nX-Fill: yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy\r\n\r\n";
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let mut client = weir.client();
            std::thread::spawn(move || {
                for _ in 0..requests / 4 / 50 {
                    client.send(one.repeat(50));
                    for _ in 0..50 {
                        client.read_response().expect_status(204);
                    }
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let report = shadow.end_after(requests);
    let number = |key: &str| report[key].as_u64().unwrap();
    assert_eq!(number("sampled"), requests);
    assert!(number("dropped") > 0, "{report:#}");
    assert!(number("judged") + number("dropped") == requests && number("judged") > 0, "{report:#}");
    assert_eq!(report["changes"][0]["count"], report["judged"]);
    // Ahead of its share the judge may use 50 ms, and a judgement under way ends.
    let allowed = 50.0 + report["ran_seconds"].as_f64().unwrap() * 10.0 + 2000.0 * 0.01 + 20.0;
    assert!(report["cpu_ms"].as_f64().unwrap() < allowed, "{report:#}");
}

#[test]
fn the_share_is_sampled() {
    let upstream = Upstream::fixed(OK);
    let running = config(&upstream, "routes:\n  a: { match: { path: \"/*\" }, respond: { status: 204 } }");
    let weir = Weir::start(&running);
    let shadow = shadow(&weir, &running, json!({ "sample": "10%" }));
    let mut client = weir.client();
    for _ in 0..1000 {
        client.get("/").expect_status(204);
    }
    let report = shadow.end();
    let sampled = report["sampled"].as_u64().unwrap();
    assert!((50..=160).contains(&sampled), "{report:#}");
    assert!((998..=1000).contains(&report["seen"].as_u64().unwrap()), "{report:#}");
}

// === the command ===

/// Runs `weir shadow` on a candidate, in the folder of the gateway's config.
fn command(weir: &Weir, candidate: &str, args: &[&str]) -> std::process::Child {
    std::fs::write(weir.dir().join("candidate.yaml"), candidate).unwrap();
    let admin = weir.admin();
    let args = ["shadow", "-c", "candidate.yaml", "--admin", &admin].into_iter().chain(args.iter().copied());
    let mut command = weir_command(weir.dir());
    command.args(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn begun(weir: &Weir) {
    eventually("a shadow runs", || call(weir, "GET /api/v1/shadow", "", "").json()["state"] == "running");
}

#[test]
fn the_command_ends_in_its_verdict() {
    let upstream = Upstream::fixed(OK);
    let routes = format!(
        "include: [ routes.yaml ]\n{}",
        ROUTES.replace("  b: { match: { path: \"/b/*\" }, upstream: one }", "")
    );
    let running = config(&upstream, &routes);
    let weir = Weir::start(&config(&upstream, ROUTES));
    let included = "routes: { b: { match: { path: \"/b/*\" }, upstream: one } }\n";
    std::fs::write(weir.dir().join("routes.yaml"), included).unwrap();
    weir.reload_with(&running).unwrap();
    let outcome = |candidate: &str, args: &[&str], requests: usize| {
        let child = command(&weir, candidate, &[&["--sample", "100%", "--for", "2s"], args].concat());
        begun(&weir);
        (0..requests).for_each(|_| _ = weir.client().get("/a/1").expect_status(200));
        let done = child.wait_with_output().unwrap();
        (done.status.code().unwrap(), String::from_utf8(done.stdout).unwrap())
    };
    let (code, text) = outcome(&running, &["--min-judged", "3", "--max-change", "0%"], 3);
    assert!(code == 0 && text.contains("verdict  NO CHANGE"), "{code}: {text}");
    let (code, text) = outcome(&running, &["--min-judged", "3"], 1);
    assert!(code == 1 && text.contains("verdict  INCONCLUSIVE: only 1 requests"), "{code}: {text}");
    let other = running.replace("upstream: one }", "upstream: two }");
    let (code, text) = outcome(&other, &["--min-judged", "1", "--max-change", "0.1%", "--format", "json"], 2);
    let told: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((code, &told["verdict"], &told["changed"]), (1, &json!("over"), &json!(2)), "{text}");
    let (code, text) = outcome(&other, &["--min-judged", "1"], 2);
    assert!(code == 0 && text.contains("routes.a.upstream"), "{code}: {text}");
}

#[test]
fn the_command_refuses_what_it_cannot_ask() {
    let upstream = Upstream::fixed(OK);
    let running = config(&upstream, ROUTES);
    let weir = Weir::start(&running);
    let admin = weir.admin();
    run_weir(weir.dir(), &["shadow", "--admin", &admin]).expect_code(2);
    for args in [["--sample", "0"], ["--for", "0s"], ["--max-change", "200%"], ["--min-judged", "0"]] {
        run_weir(weir.dir(), &[&["shadow", "-c", "weir.yaml", "--admin", &admin][..], &args].concat())
            .expect_code(2);
    }
    let child = command(&weir, &running.replace("upstream: one", "upstream: none"), &[]);
    let done = child.wait_with_output().unwrap();
    let text = String::from_utf8(done.stderr).unwrap();
    assert!(done.status.code() == Some(1) && text.contains("candidate.yaml (candidate):"), "{text}");
    let child = command(&weir, &format!("include: [ gone.yaml ]\n{running}"), &[]);
    let done = child.wait_with_output().unwrap();
    let text = String::from_utf8(done.stderr).unwrap();
    assert!(
        done.status.code() == Some(1) && text.contains("cannot read") && text.contains("gone.yaml"),
        "{text}"
    );
}

/// Ctrl-C ends it with what it has found; a killed command's shadow ends with its lease.
#[test]
fn an_interrupted_command() {
    let upstream = Upstream::fixed(OK);
    let running = config(&upstream, ROUTES);
    let weir = Weir::start(&running);
    let child = command(&weir, &running, &["--sample", "100%", "--min-judged", "1"]);
    begun(&weir);
    weir.client().get("/a/1").expect_status(200);
    eventually("a request is sampled", || call(&weir, "GET /api/v1/shadow", "", "").json()["sampled"] == 1);
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::INT)
        .unwrap();
    let done = child.wait_with_output().unwrap();
    let text = String::from_utf8(done.stdout).unwrap();
    assert!(done.status.code() == Some(0) && text.contains("1 judged"), "{text}");
    let mut child = command(&weir, &running, &[]);
    begun(&weir);
    child.kill().unwrap();
    child.wait().unwrap();
    let told = || call(&weir, "GET /api/v1/shadow", "", "").json();
    weir_testkit::eventually_within(Duration::from_secs(40), "its lease ends", || {
        told()["ended"] == "its command is gone"
    });
}

// === promotion ===

#[test]
fn a_candidate_is_promoted_on_trial() {
    let upstream = Upstream::fixed(OK);
    let folder = tempfile::TempDir::new().unwrap();
    let at = folder.path().display();
    let admin = format!("admin: {{ address: 127.0.0.1:0, writes: {at}/managed.yaml, state: {at}/state }}");
    let running = config(&upstream, ROUTES).replace("admin: { address: 127.0.0.1:0 }", &admin);
    let weir = Weir::start(&running);
    let made =
        "{\"routes\": { \"c\": { \"match\": { \"path\": \"/c\" }, \"respond\": { \"status\": 201 } } } }";
    call(&weir, "POST /api/v1/config:apply", "", made).expect_status(200);
    weir.client().get("/c").expect_status(201);
    // The file has what the test kit adds. An entry of the API is replaced by one of its name in the candidate.
    let running = std::fs::read_to_string(weir.dir().join("weir.yaml")).unwrap();
    let candidate = running
        .replace("watch: false", "watch: false\nplans: { gold: { filters: [] } }")
        .replace(ROUTES, &format!("{ROUTES}\n  c: {{ match: {{ path: /c }}, respond: {{ status: 202 }} }}"));
    let shadow = shadow(&weir, &candidate, json!({}));
    weir.client().get("/c").expect_status(201);
    weir.client().get("/a/1").expect_status(200);
    eventually("both are judged", || call(&weir, "GET /api/v1/shadow", "", "").json()["judged"] == 2);
    let told = call(&weir, "GET /api/v1/shadow", "", "").json();
    expect(&told, "route c: 201 by respond", "route c: 202 by respond", "routes.c.respond.status");
    let line = format!("POST /api/v1/shadow/{}:promote?watch=1m", shadow.1);
    let promoted = call(&weir, &line, "", "");
    promoted.expect_status(200);
    assert_eq!(promoted.json()["things"], json!(["plans.gold", "routes.c"]), "{}", promoted.text());
    let status = call(&weir, "GET /status", "", "").json();
    assert!(status["trial"].is_object(), "{status:#}");
    weir.client().get("/c").expect_status(202);
    let told = call(&weir, "GET /api/v1/shadow", "", "").json();
    assert_eq!(told["ended"], "another config runs now", "{told:#}");
    // What people wrote in their files stays theirs.
    let other = running.replace("path: \"/a/*\"", "path: /x");
    let shadow = self::shadow(&weir, &other, json!({}));
    let refused = call(&weir, &format!("POST /api/v1/shadow/{}:promote", shadow.1), "", "");
    refused.expect_status(409);
    assert!(refused.text().contains("hand-written"), "{}", refused.text());
}
