//! What a change restricts, and what going back from it would restore.

use super::*;
use std::path::Path;
use weir_config::{Diagnostics, parse::parse, secrecy::mark_secrets};
use weir_filter::filter::{Judged, Settings};

fn kind(name: &'static str) -> FilterKind {
    fn build(
        _: &mut Settings<'_>,
        _: &mut weir_filter::filter::Build<'_>,
    ) -> Option<weir_filter::filter::Built> {
        None
    }
    fn schema() -> schemars::Schema {
        schemars::schema_for!(bool)
    }
    FilterKind {
        name,
        schema,
        causes: &[],
        access: Access::Decides,
        lists: &[],
        index: None,
        judged: Judged::Never,
        build,
    }
}

fn found(before: &str, after: &str) -> Restriction {
    let tree = |text: &str| {
        let mut tree = parse(text, Path::new("t"), &mut Diagnostics::default()).unwrap();
        mark_secrets(&mut tree);
        tree
    };
    let kinds =
        [kind("key_auth"), kind("timeout").without_access(), kind("acl"), kind("own").without_access()];
    let kinds: Vec<&FilterKind> = kinds.iter().collect();
    Restriction::of(&tree(before), &tree(after), &kinds).unwrap_or_default()
}

/// The start of each case. A change replaces one text by another; then which settings restrict, and what going back
/// restores.
const BEFORE: &str = "listeners: { web: { address: 127.0.0.1:80 } }
upstreams: { api: { endpoints: [ 10.0.0.1:80, 10.0.0.9:80 ], sticky: { key: old } } }
consumers: { shop: { key_auth: [ old, older ] } }
plans: { gold: { filters: [ { rate_limit: { requests: 9 } } ] } }
routes:
  a: { match: { hosts: [ a.test, b.test ] }, upstream: api, filters: [ { acl: { allow: [ shop, bob ] } }, { timeout: { response: 1s } } ] }
  b: { match: { path: /b }, respond: { status: 200 } }
";

/// Weights decide who meets the filters of an arm, also if its upstream stays the same.
#[test]
fn weights_of_arms_restrict() {
    let config = |split: &str| BEFORE.replace("upstream: api,", &format!("upstream: {{ {split} }},"));
    let arms = |free: u32, guarded: u32| {
        format!(
            "api: {free}, guarded: {{ weight: {guarded}, upstream: api, filters: [ {{ key_auth: {{}} }} ] }}, \
             fast: {{ weight: 1, upstream: api, filters: [ {{ timeout: {{ response: 2s }} }} ] }}"
        )
    };
    for (before, after, restricts) in [
        ((9, 1), (8, 2), false),
        ((9, 1), (9, 0), false),
        ((9, 0), (9, 1), true),
        ((9, 0), (0, 0), false),
        ((0, 1), (9, 1), false),
    ] {
        let found = found(&config(&arms(before.0, before.1)), &config(&arms(after.0, after.1)));
        let expected: &[&str] = if restricts { &["routes.a.upstream"] } else { &[] };
        assert_eq!(found.restricts, expected, "{before:?} {after:?}");
    }
    // Without the arm that asks for nothing, everybody meets the one that does.
    let only = "guarded: { weight: 1, upstream: api, filters: [ { key_auth: {} } ] }";
    let both = format!("api: 1, {only}");
    assert_eq!(
        found(&config(&both), &config(&both.replace("api: 1", "api: 0"))).restricts,
        ["routes.a.upstream"]
    );
}

#[test]
fn what_restricts() {
    for (from, to, restricts, revokes) in [
        // Ways of serving.
        ("10.0.0.1:80, 10.0.0.9:80", "10.0.0.1:80, 10.0.0.9:80, 10.0.0.2:80", "", ""),
        ("10.0.0.1:80, 10.0.0.9:80", "10.0.0.2:80", "", ""),
        ("{ timeout: { response: 1s } }", "{ timeout: { response: 1ms } }", "", ""),
        ("{ timeout: { response: 1s } }", "{ own: { unheard_of: 1 } }", "", ""),
        (", { timeout: { response: 1s } } ]", " ]", "", ""),
        ("upstream: api,", "upstream: api, timeouts: { response: 1s },", "", ""),
        ("upstream: api,", "upstream: { api: 9, other: 1 },", "", ""),
        ("status: 200", "status: 500", "", ""),
        ("status: 200", "status: 200, headers: { x: y }", "routes.b.respond", ""),
        ("  b: {", "  c: { match: { hosts: [ c.test ], path: /c }, upstream: other }\n  b: {", "", ""),
        ("  b: {", "  c: { match: { hosts: [ a.test ], path: /c }, upstream: api }\n  b: {", "", ""),
        ("consumers: {", "consumers: { new: {},", "", ""),
        ("routes:", "log: { level: debug }\nroutes:", "", ""),
        ("routes:", "stores: { s: { memory: 1MiB } }\nroutes:", "stores.s", ""),
        // Filters.
        ("filters: [ { acl", "filters: [ { key_auth: {} }, { acl", "routes.a.filters", ""),
        ("filters: [ { acl", "filters: [ { unheard_of: {} }, { acl", "routes.a.filters", ""),
        ("filters: [ { acl", "filters: [ { fault: { status: 403 } }, { acl", "routes.a.filters", ""),
        ("filters: [ { acl", "filters: [ { ip: { allow: [ 10.0.0.0/8 ] } }, { acl", "routes.a.filters", ""),
        (
            "filters: [ { acl",
            "filters: [ { ip: { deny: [ 10.0.0.0/8 ] } }, { acl",
            "routes.a.filters",
            "routes.a.filters.ip",
        ),
        ("{ timeout: { response: 1s } }", "{ timeout: { only: 1 } }", "routes.a.filters", ""),
        ("[ shop, bob ]", "[ shop ]", "routes.a.filters", "routes.a.filters.acl"),
        ("[ shop, bob ]", "[ shop, bob, eve ]", "routes.a.filters", ""),
        ("[ shop, bob ]", "[ shop, bob ], deny: [ eve ]", "routes.a.filters", "routes.a.filters.acl"),
        ("{ acl: { allow: [ shop, bob ] } }, ", "", "routes.a.filters", ""),
        (
            "{ acl: { allow: [ shop, bob ] } }, ",
            "{ key_auth: {} }, ",
            "routes.a.filters",
            "routes.a.filters.acl",
        ),
        ("requests: 9", "requests: 8", "plans.gold.filters", "plans.gold.filters.rate_limit"),
        ("routes:", "filters: [ { key_auth: {} } ]\nroutes:", "filters", ""),
        ("  b: {", "  c: { upstream: api, filters: [ { key_auth: {} } ] }\n  b: {", "routes.c.filters", ""),
        // Those of an arm of a split.
        (
            "upstream: api,",
            "upstream: { api: { weight: 9, filters: [ { key_auth: {} } ] } },",
            "routes.a.upstream.api.filters",
            "",
        ),
        (
            "upstream: api,",
            "upstream: { any: { weight: 9, upstream: api, filters: [ { timeout: { response: 2s } } ] } },",
            "",
            "",
        ),
        (
            "  b: {",
            "  c: { match: { hosts: [ c.test ], path: /c }, upstream: { api: { weight: 1, filters: [ { key_auth: {} } ] } } }\n  b: {",
            "routes.c.upstream.api.filters",
            "",
        ),
        // Things that are removed or serve fewer.
        ("10.0.0.1:80, 10.0.0.9:80", "10.0.0.1:80", "upstreams.api.endpoints", ""),
        (
            "[ 10.0.0.1:80, 10.0.0.9:80 ]",
            "[ 10.0.0.1:80, { address: 10.0.0.9:80, weight: 0 } ]",
            "upstreams.api.endpoints",
            "",
        ),
        ("key: old }", "key: new }", "upstreams.api.sticky", "upstreams.api.sticky"),
        ("api: { endpoints", "api2: { endpoints", "upstreams.api.sticky", "upstreams.api.sticky"),
        ("  b: { match: { path: /b }, respond: { status: 200 } }\n", "", "routes.b", ""),
        ("  a: {", "  a2: {", "routes.a, routes.a2.filters", "routes.a.filters"),
        ("status: 200", "status: 403", "routes.b.respond", ""),
        ("status: 200", "status: 503", "routes.b.respond", ""),
        ("respond: { status: 200 }", "upstream: api", "routes.b.upstream", ""),
        ("  b: {", "  c: { respond: { status: 404 } }\n  b: {", "routes.c.respond", ""),
        ("  b: {", "  c: { match: { path: /b/c }, upstream: other }\n  b: {", "routes.c", ""),
        ("  b: {", "  c: { match: { path: '/{x}' }, files: { root: . } }\n  b: {", "routes.c", ""),
        ("upstream: api,", "respond: { status: 200 },", "routes.a.upstream", ""),
        ("upstream: api,", "upstream: other,", "routes.a.upstream", ""),
        ("upstream: api,", "upstream: { api: 0, other: 1 },", "routes.a.upstream", ""),
        ("[ a.test, b.test ]", "[ a.test ]", "routes.a.match", ""),
        ("path: /b }", "path: /b, headers: { x: y } }", "routes.b.match", "routes.b.match"),
        ("upstream: api,", "upstream: api, priority: 1,", "routes.a.priority", ""),
        ("upstream: api,", "upstream: api, unheard_of: 1,", "routes.a.unheard_of", "routes.a.unheard_of"),
        ("shop: { key_auth: [ old, older ] }", "", "consumers.shop", "consumers.shop"),
        ("[ old, older ]", "[ old ]", "consumers.shop", "consumers.shop"),
        ("consumers: {", "consumers: { new: { plan: gold },", "consumers.new", ""),
        ("key: old } }", "key: old }, tls: {} }", "upstreams.api.tls", ""),
        ("address: 127.0.0.1:80", "address: 127.0.0.1:81", "listeners.web.address", ""),
        ("listeners: { web: { address: 127.0.0.1:80 } }\n", "", "listeners.web.address", ""),
        ("routes:", "trusted_proxies: [ 10.0.0.0/8 ]\nroutes:", "trusted_proxies", ""),
        ("routes:", "unheard_of: 1\nroutes:", "unheard_of", "unheard_of"),
    ] {
        assert!(BEFORE.contains(from), "{from}");
        let found = found(BEFORE, &BEFORE.replace(from, to));
        assert_eq!((found.what().as_str(), found.revokes.join(", ").as_str()), (restricts, revokes), "{to}");
    }
}

/// Each of these excluded some callers: holders of an older credential, or callers from a network no longer listed.
#[test]
fn what_going_back_would_return() {
    let route = |filters: &str| format!("routes: {{ a: {{ upstream: o, filters: [ {filters} ] }} }}");
    let tls = |tls: &str| format!("listeners: {{ a: {{ address: 127.0.0.1:1, tls: {{ {tls} }} }} }}");
    let log = |log: &str| format!("access_log: {{ {log} }}");
    for (before, after) in [
        (route("{ key_auth: { file: a } }"), route("{ key_auth: { file: b } }")),
        (route("{ key_auth: { file: a } }"), route("{ key_auth: {} }")),
        (route("{ key_auth: {} }"), route("{ key_auth: { file: a } }")),
        (route("{ jwt: { keys: a } }"), route("{ jwt: { keys: b } }")),
        (route("{ jwt: { keys: a } }"), route("{ jwt: { keys: a, require: { role: b } } }")),
        (route("{ jwt: { issuers: [ a, b ] } }"), route("{ jwt: { issuers: [ a ] } }")),
        (route("{ jwt: {} }"), route("{ jwt: { issuers: [ a ] } }")),
        (route("{ jwt: { audiences: [ a ] } }"), route("{ jwt: { audiences: [ b ] } }")),
        (route("{ jwt: { secret: a } }"), route("{ oidc: {} }")),
        (route("{ jwt: { optional: true } }, { acl: {} }"), route("{ acl: {} }")),
        (route("{ jwt: {} }, { acl: {} }"), route("{ acl: {} }, { jwt: {} }")),
        (route("{ ip: { allow_file: a } }"), route("{ ip: { allow_file: b } }")),
        (route("{ ip: { file: a } }"), route("{ ip: { file: b } }")),
        (route("{ ip: { allow: [ a, b ] } }"), route("{ ip: { allow: [ b ] } }")),
        (route("{ ip: { allow: [ a ] } }"), route("{ ip: { allow: [ a ], allow_file: b } }")),
        (route("{ ip: { deny: [ a ] } }"), route("{ ip: { deny: [ a, b ] } }")),
        (route("{ forward_auth: { url: a } }"), route("{ forward_auth: { url: b } }")),
        (route("{ any: [ key_auth, { jwt: {} } ] }"), route("{ any: [ key_auth ] }")),
        (route("{ any: [ { jwt: { keys: a } } ] }"), route("{ any: [ { jwt: { keys: b } } ] }")),
        (tls("client_auth: { ca: a }"), tls("client_auth: { ca: b }")),
        (tls("client_auth: { ca: a, mode: optional }"), tls("client_auth: { ca: a }")),
        (tls("certificates: [ { cert: a, key: b } ]"), tls("certificates: [ { cert: c, key: d } ]")),
        (log("format: json"), log("redact: { a: b }")),
        (
            "routes: { a: { respond: { mix: [ { status: 200, headers: { x: a } } ] } } }".to_owned(),
            "routes: { a: { respond: { mix: [ { status: 200, headers: { x: b } } ] } } }".to_owned(),
        ),
        (log("redact: { a: b }"), log("redact: { a: c }")),
        (
            "upstreams: { a: { discover: { consul: { token: a } } } }".to_owned(),
            "upstreams: { a: { discover: { consul: { token: b } } } }".to_owned(),
        ),
        ("trusted_proxies: [ a, b ]".to_owned(), "trusted_proxies: [ a ]".to_owned()),
    ] {
        let found = found(&before, &after);
        assert!(!found.revokes.is_empty() && !found.restricts.is_empty(), "{before} -> {after}: {found:?}");
    }
    // Adding a condition can be undone: nobody had to show anything before.
    for (before, after) in [
        (route(""), route("{ key_auth: { file: b } }")),
        (route("{ acl: {} }"), route("{ jwt: { secret: b } }, { acl: {} }")),
        (tls("min_version: '1.2'"), tls("min_version: '1.2', client_auth: { ca: a }")),
        (route("{ any: [ key_auth ] }"), route("{ any: [ key_auth, { jwt: {} } ] }")),
    ] {
        let found = found(&before, &after);
        assert!(found.revokes.is_empty() && !found.restricts.is_empty(), "{before} -> {after}: {found:?}");
    }
}
