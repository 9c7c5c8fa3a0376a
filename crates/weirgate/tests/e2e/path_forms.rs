//! Raw prefixes, captures within a segment, and paths in any case.

use weir_testkit::{Upstream, Weir};

use crate::cause::{AMBIGUOUS_PATH, KEY_MISSING, NO_ROUTE};
use crate::support::{OK, expect_targets};

/// Routes with these lines; `key` in a line stands for the filter `key_auth`.
#[track_caller]
fn routes(upstream: &Upstream, lines: &[&str]) -> Weir {
    let lines: Vec<String> =
        lines.iter().map(|line| format!("  {}\n", line.replace("$key", "{ key_auth: {} }"))).collect();
    Weir::start(&format!(
        "listeners: {{ web: {{ address: 127.0.0.1:0 }} }}\n\
         upstreams: {{ up: {{ endpoints: [{}] }} }}\nconsumers: {{ shop: {{ key_auth: [ the-key ] }} }}\nroutes:\n{}",
        upstream.address(),
        lines.concat()
    ))
}

#[test]
fn a_raw_prefix_takes_all_that_begins_so() {
    let upstream = Upstream::fixed(OK);
    let weir = routes(
        &upstream,
        &[
            "raw: { match: { path: \"/beta*\" }, filters: [ { rewrite: { add_prefix: /raw } } ], upstream: up }",
            "below: { match: { path: \"/beta/*\" }, filters: [ { rewrite: { add_prefix: /below } } ], upstream: up }",
            "short: { match: { path: \"/be*\" }, filters: [ { rewrite: { add_prefix: /short } } ], upstream: up }",
            "secret: { match: { path: \"/secret*\" }, filters: [ $key ], upstream: up }",
        ],
    );
    expect_targets(
        &weir,
        &upstream,
        &[
            ("/betax", Ok("/raw/betax")),
            ("/betax/y?q=1", Ok("/raw/betax/y?q=1")),
            ("/beta", Ok("/below/beta")),
            ("/beta/x", Ok("/below/beta/x")),
            ("/bet", Ok("/short/bet")),
            ("/b", Err(NO_ROUTE)),
            ("/Beta", Err(NO_ROUTE)),
            ("/secrets", Err(KEY_MISSING)),
            ("/%73ecret", Err(KEY_MISSING)),
            ("/x/../secret-2/y", Err(KEY_MISSING)),
            ("/be%2F..;/secret", Err(crate::cause::BAD_PATH)),
        ],
    );
}

#[test]
fn a_capture_within_a_segment_is_the_text_between() {
    let upstream = Upstream::fixed(OK);
    let weir = routes(
        &upstream,
        &[
            "json: { match: { path: \"/users/{id}.json\" }, filters: [ { rewrite: { path: \"/api/users/{id}\" } } ], upstream: up }",
            "version: { match: { path: \"/v{major}/*\" }, filters: [ { rewrite: { query: { set: { v: \"{major}\" } } } } ], upstream: up }",
            "user: { match: { path: \"/users/{id}\" }, upstream: up }",
        ],
    );
    expect_targets(
        &weir,
        &upstream,
        &[
            ("/users/7.json", Ok("/api/users/7")),
            ("/users/a.b.json", Ok("/api/users/a.b")),
            ("/users/7", Ok("/users/7")),
            ("/users/.json", Ok("/users/.json")),
            // A capture never becomes a dot segment, so a rewritten path does not climb.
            ("/users/...json", Ok("/users/...json")),
            ("/users/a%2Fb.json", Err(AMBIGUOUS_PATH)),
            ("/users/a;b.json", Err(AMBIGUOUS_PATH)),
            ("/v2/x", Ok("/v2/x?v=2")),
            ("/v/x", Err(NO_ROUTE)),
        ],
    );
}

#[test]
fn a_route_may_ignore_the_case_of_its_path() {
    let upstream = Upstream::fixed(OK);
    let weir = routes(
        &upstream,
        &[
            "admin: { match: { path: \"/admin/*\", case: insensitive }, filters: [ $key ], upstream: up }",
            "user: { match: { path: \"/Users/{Name}\", case: insensitive }, filters: [ { rewrite: { path: \"/u/{Name}\" } } ], upstream: up }",
            "strip: { match: { path: \"/Api/*\", case: insensitive }, filters: [ { rewrite: { strip_prefix: /Api } } ], upstream: up }",
            "exact: { match: { path: /users/me }, upstream: up }",
            "open: { match: { path: \"/*\" }, upstream: up }",
        ],
    );
    expect_targets(
        &weir,
        &upstream,
        &[
            ("/admin/x", Err(KEY_MISSING)),
            ("/ADMIN/x", Err(KEY_MISSING)),
            ("/%41dmin", Err(KEY_MISSING)),
            ("/a/../AdMiN/x", Err(KEY_MISSING)),
            ("/ADMIN%2Fx", Err(AMBIGUOUS_PATH)),
            ("/ADMIN;a/x", Err(AMBIGUOUS_PATH)),
            ("/USERS/Ann", Ok("/u/Ann")),
            ("/users/me", Ok("/users/me")),
            ("/users/Me", Ok("/u/Me")),
            // Filters see the path as sent.
            ("/Api/X", Ok("/X")),
            ("/api/X", Ok("/api/X")),
            ("/other", Ok("/other")),
        ],
    );
}

/// Groups of a regex stand in every text: those without a name by their number.
#[test]
fn groups_of_a_regex_in_every_text() {
    let upstream = Upstream::fixed(OK);
    let weir = routes(
        &upstream,
        &[
            "told: { match: { path: \"~/told/v([0-9]+)/(?<who>[^/]+)\" }, respond: { body: \"{who} {1}\", headers: { x-v: \"{1}\" } } }",
            "moved: { match: { path: \"~/moved/([a-z]+)(-[0-9]+)?\" }, filters: [ { redirect: { to: \"/new/{1}{2}\" } } ] }",
            "sent: { match: { path: \"~/sent/(.*)/(.*)\" }, upstream: up, filters: [ { rewrite: { path: \"/{2}/{1}\", \
             query: { set: { first: \"{1}\" } } } }, { headers: { request: { set: { x-second: \"{2}\" } } } } ] }",
            "limited: { match: { path: \"~/limited/(.*)\" }, respond: { body: ok }, \
             filters: [ { rate_limit: { requests: 1, per: 1h, by: \"{1}\" } } ] }",
        ],
    );
    let mut client = weir.client();
    client.get("/told/v12/Ann%c3%a9").expect_body("Ann%C3%A9 12").expect_header("x-v", "12");
    client.get("/moved/a-7").expect_header("location", "/new/a-7");
    client.get("/moved/a").expect_header("location", "/new/a");
    client.get("/sent/a%2fb/c").expect_status(200);
    let sent = upstream.take_request().head;
    assert_eq!(sent.line, "GET /c/a%2Fb?first=a%2Fb HTTP/1.1");
    assert_eq!(sent.header("x-second"), Some("c"));
    client.get("/limited/a").expect_status(200);
    client.get("/limited/a").expect_status(429);
    client.get("/limited/b").expect_status(200);
}
