//! The traps between Kong and Weir: for each a piece of a declarative file, and what the config or the report must
//! say.
//! None may be silent.

#![allow(clippy::unwrap_used, reason = "this is test code: a panic is how a test fails")]

use weir_import::Memory;

/// A consumer with a key and a password.
const CALLERS: &str = "\nconsumers: [{ username: c, keyauth_credentials: [{ key: k }], basicauth_credentials: [{ \
    username: u, password: p }] }]";

/// What the import of a file says and writes.
fn imported(text: &str) -> String {
    let memory = Memory([("kong.yaml".to_owned(), text.as_bytes().to_vec())].into());
    let system = weir_import::system("kong").unwrap();
    match weir_import::import(system, &memory, &["kong.yaml".to_owned()]) {
        Ok(import) => {
            let files: String = import.written().iter().map(|file| file.text.clone()).collect();
            format!("{}{files}", import.to_text())
        }
        Err(unreadable) => format!("unreadable: {unreadable}"),
    }
}

/// A file with one service and one route with `keys`, and further top-level text.
fn route(keys: &str, more: &str) -> String {
    format!(
        "_format_version: \"3.0\"\nservices:\n- name: s\n  url: http://s.test/base\n  routes:\n  - {{ name: r, \
            {keys} }}\n{more}\n"
    )
}

fn plugin(text: &str) -> String {
    route("paths: [/p]", &format!("plugins:\n- {text}"))
}

#[test]
fn every_trap_is_told() {
    let cases: Vec<(&str, String, &[&str])> = vec![
        ("1 plain path is a raw prefix", route("paths: [/auth/v1/verify]", ""), &["path: \"/auth/v1/verify*\""]),
        ("1 a path with a slash does not take its \
            folder", route("paths: [/a/]", ""), &["when: 'request.path != \"/a\"'"]),
        ("2 a regex is anchored at its start", route("paths: [\"~/a/[0-9]+\"], strip_path: false", ""), &["path: \
            \"~/a/[0-9]+.*\""]),
        (
            "2 without `~` in 1.1",
            "_format_version: \"1.1\"\nservices: [{ name: s, url: http://s.test, routes: [{ name: r, paths: \
                [\"/a/\\\\d+$\"], strip_path: false }] }]".to_owned(),
            &["path: '~/a/\\d+'"],
        ),
        ("3 strip_path is the default", route("paths: [/p]", ""), &["strip_prefix: /p"]),
        ("4 what a regex matched is removed", route("paths: [\"~/v[0-9]+\"]", ""), &["(?<after_match>.*)", "path: \
            \"/base/{after_match}\""]),
        ("5 joins", route("paths: [/p]", ""), &["add_prefix: /base", "Kong sends `/base`"]),
        ("6 preserve_host is off", route("paths: [/p]", ""), &["host: endpoint"]),
        ("6 preserve_host", route("paths: [/p], preserve_host: true", ""), &["the service sees the client's Host"]),
        ("7 forwarding fields", route("paths: [/p]", ""), &["X-Forwarded-For: Kong appends", "X-Forwarded-Path"]),
        (
            "8 more kinds of condition win",
            route("paths: [/a], methods: [GET], strip_path: false", "routes:\n- { name: longer, paths: [/a/b], \
                service: s }"),
            &["Kong prefers `r`", "!(request.method in [\"GET\"])"],
        ),
        (
            "8 a path with a method beats a host",
            route("paths: [/a], methods: [GET], strip_path: false", "routes:\n- { name: h, hosts: [h.test, \
                \"*.x.test\"], service: s }"),
            &["!(request.path.startsWith(\"/a\") && request.method in [\"GET\"])"],
        ),
        (
            "8 regex_priority",
            route("paths: [\"~/a/[0-9]+\"], regex_priority: 1", "routes:\n- { name: q, paths: [\"~/a/.*\"], \
                regex_priority: 9, service: s }"),
            &["priority: 1"],
        ),
        ("8 a route that is never used", route("paths: [/a]", "routes:\n- { name: twin, paths: [/a], service: s \
            }"), &["Kong never uses it: route `r`"]),
        ("9 hosts at the start", route("hosts: [\"api.*\"]", ""), &["request.host.startsWith(\"api.\")"]),
        ("10 a port in hosts", route("hosts: [\"a.test:8443\"]", ""), &["Weir compares hosts without it", "the route answers 503"]),
        ("11 any value of a field, without case", route("headers: { X-Env: [Blue, Green] }", ""), &["request.headers[\"x-env\"].all().exists(v, v.matches(\"(?i)^(?:Blue|Green)$"]),
        ("11 a field by regex", route("headers: { X-Env: [\"~*^b.*e$\"] }", ""), &["request.headers[\"x-env\"].all().exists(v, v.matches(\"(?i)^b.*e$"]),
        ("12 methods", route("methods: [GET]", ""), &["methods: [GET]"]),
        ("13 https only is 426", route("paths: [/p], protocols: [https]", ""), &["status: 426", "request.scheme \
            == \"http\""]),
        ("13 or a redirect", route("paths: [/p], protocols: [https], https_redirect_status_code: \
            302", ""), &["https: true, status: 302"]),
        ("14 retries", route("paths: [/p]", ""), &["attempts: 6", "[connect, reset, timeout]"]),
        ("15 timeouts", route("paths: [/p]", ""), &["connect: 60s, response: 60s"]),
        ("16 buffering", route("paths: [/p], request_buffering: true", ""), &["Weir streams; the filter buffer"]),
        (
            "17 https is not verified",
            "_format_version: \"3.0\"\nservices: [{ name: s, url: \"https://s.test\", routes: [{ name: r, paths: \
                [/p] }] }]".to_owned(),
            &["verify: false", "Kong does not verify"],
        ),
        (
            "18 the most specific instance wins whole",
            route(
                "paths: [/p], plugins: [{ name: rate-limiting, config: { second: 7, policy: local } }]",
                "plugins:\n- { name: rate-limiting, config: { hour: 9, policy: local } }",
            ),
            &["rate_limit: { requests: 7, per: 1s }", "no route of the file uses this plugin"],
        ),
        (
            "19 order by number",
            route("paths: [/p], plugins: [{ name: request-size-limiting }, { name: cors }]", ""),
            &["body_limit: { max: 128MiB }"],
        ),
        (
            "20 several auth plugins must all pass",
            plugin(&format!("{{ name: key-auth }}\n- {{ name: basic-auth }}{CALLERS}")),
            &["- key_auth:", "- basic_auth:"],
        ),
        (
            "20 anonymous makes them alternatives",
            plugin("{ name: key-auth, config: { anonymous: a } }\n- { name: basic-auth, config: { anonymous: a } \
                }\n- { name: request-termination, consumer: a, config: { status_code: 401 } }\nconsumers: [{ username: a, keyauth_credentials: [{ key: k }], basicauth_credentials: [{ username: u, password: p }] }]"),
            &["any:", "refused by the filters above"],
        ),
        ("21 key-auth reads header and query", plugin(&format!("{{ name: key-auth }}{CALLERS}")), &["header: \
            apikey, query: apikey"]),
        ("21 and the body", plugin("{ name: key-auth, config: { key_in_body: true } }"), &["does not look for \
            keys in bodies"]),
        ("22 credentials are not hidden", plugin(&format!("{{ name: key-auth }}{CALLERS}")), &["hide: false"]),
        ("23 fields of consumers", plugin("{ name: key-auth }\nconsumers: [{ username: \"a b\", custom_id: \"7\" \
            }]"), &["maps.usernames", "maps.custom_ids", "not X-Consumer-ID"]),
        ("24 flat acls", plugin("{ name: acl, config: { allow: [g] } }\nconsumers: [{ username: c }]\nacls: [{ \
            consumer: c, group: g }]"), &["groups: [g]", "allow: [group:g]"]),
        ("25 groups are sent", plugin("{ name: acl, config: { allow: [g] } }"), &["x-consumer-groups"]),
        ("26 windows", plugin("{ name: rate-limiting, config: { minute: 100, policy: local } }"), &["fixed \
            windows", "requests: 100, per: 1m"]),
        ("26 by address", plugin("{ name: rate-limiting, config: { minute: 100, limit_by: ip } }"), &["by: \
            address", "by /64"]),
        ("27 names of fields", plugin("{ name: rate-limiting, config: { minute: 1 } }"), &["not X-RateLimit-*"]),
        ("28 fault_tolerant", plugin("{ name: rate-limiting, config: { minute: 1, policy: redis, redis: { host: h \
            } } }"), &["without_store: open"]),
        ("29 add only where absent", plugin("{ name: request-transformer, config: { add: { headers: [\"a:1\"] } } \
            }"), &["'!has(request.headers[\"a\"])'"]),
        ("29 replace only where present", plugin("{ name: request-transformer, config: { replace: { headers: \
            [\"a:1\"] } } }"), &["'has(request.headers[\"a\"])'"]),
        ("30 templates", plugin("{ name: request-transformer, config: { append: { headers: [\"a:$(headers.x_y)\"] \
            } } }"), &["request.headers[\"x-y\"]"]),
        ("30 other Lua", plugin("{ name: request-transformer, config: { append: { headers: [\"a:$(os.time())\"] } \
            } }"), &["Refused", "`os` of Lua"]),
        ("31 cors", plugin("{ name: cors }"), &["origins: [\"*\"]", "headers: [\"*\"]"]),
        ("31 cors with credentials for everybody", plugin("{ name: cors, config: { credentials: true } \
            }"), &["any page could read"]),
        ("31 preflight_continue", plugin("{ name: cors, config: { preflight_continue: true } }"), &["always \
            answers preflights itself"]),
        ("32 ip-restriction", plugin("{ name: ip-restriction, config: { deny: [10.0.0.1] } }"), &["ip: { deny: \
            [10.0.0.1] }"]),
        ("33 sizes are binary", plugin("{ name: request-size-limiting, config: { allowed_payload_size: 3 } \
            }"), &["max: 3MiB", "413, not 417"]),
        (
            "34 each key is bound to its issuer, and exp counts",
            plugin("{ name: jwt }\nconsumers: [{ username: c, jwt_secrets: [{ key: i, secret: \
                0123456789abcdef0123456789abcdef }] }]"),
            &["issuers: [i]", "consumer: iss", "always refuses a token whose `exp`", "allow_endless: true"],
        ),
        ("34 nobody has a key: closed", plugin("{ name: jwt }"), &["status: 503", "no consumer has a key"]),
        (
            "35 passwords",
            plugin("{ name: basic-auth }\nconsumers: [{ username: c, basicauth_credentials: [{ username: u, \
                password: p }] }]"),
            &["weir hash --user u", "password ***"],
        ),
        (
            "36 upstreams",
            "_format_version: \"3.0\"\nupstreams: [{ name: u, algorithm: consistent-hashing, hash_on: consumer, \
                slots: 100, targets: [{ target: \"a:1\", weight: 0 }, { target: b }] }]\nservices: [{ name: s, host: u, routes: [{ name: r, paths: [/p] }] }]".to_owned(),
            &["cannot choose an endpoint by this", "weight 0 gets no requests", "endpoints: [b:8000]"],
        ),
        ("37 proxy-cache", plugin("{ name: proxy-cache, config: { vary_query_params: [q] } }"), &["Weir's key has \
            the whole query", "cache: { store: answers, ttl: 300s"]),
        ("38 session", plugin("{ name: session }"), &["Weir has no plugin `session`", "the filter oidc"]),
        ("38 openid-connect leaves the route closed", plugin("{ name: openid-connect, config: { issuer: \
            \"https://i\", client_secret: [hush] } }"), &["CLOSED by weir import", "client_secret ***"]),
        ("38 an unknown plugin leaves the route closed", plugin("{ name: my-guard }"), &["CLOSED by weir \
            import", "ext_proc", "upstream: s"]),
        (
            "39 variables",
            plugin("{ name: key-auth }\nconsumers: [{ username: c, keyauth_credentials: [{ key: $KEY_A }, { key: \
                \"{vault://env/key-b}\" }, { key: '${{ env \"DECK_C\" }}' }] }]"),
            &["${KEY_A}", "${KEY_B}", "${DECK_C}"],
        ),
        ("40 no route", route("paths: [/p]", ""), &["no Route matched"]),
        ("unknown keys", route("paths: [/p], frobnicate: 1", ""), &["does not know this key of a route"]),
        ("unknown settings", plugin("{ name: cors, config: { frobnicate: [1] } }"), &["does not know this setting \
            of the plugin cors"]),
        ("lost references", route("paths: [/p]", "routes:\n- { name: x, paths: [/x], service: nowhere \
            }"), &["`nowhere` is not in the file"]),
        ("bytes", route("protocols: [tcp], paths: [/p]", ""), &["passes these on as bytes"]),
    ];
    let mut silent = Vec::new();
    for (name, text, said) in &cases {
        let all = imported(text).split_whitespace().collect::<Vec<_>>().join(" ");
        for words in *said {
            if !all.contains(words) {
                silent.push(format!("{name}: no `{words}` in\n{}", imported(text)));
            }
        }
    }
    assert!(silent.is_empty(), "{}", silent.join("\n\n"));
}

#[test]
fn wrong_types_everywhere_are_refused_not_guessed() {
    let keys = [
        "_format_version",
        "services",
        "routes",
        "plugins",
        "consumers",
        "upstreams",
        "certificates",
        "acls",
        "x",
    ];
    let values = [
        "1",
        "text",
        "[1, 2]",
        "{ a: 1 }",
        "[[x]]",
        "[{ name: { a: 1 }, paths: 5, config: [], target: {} }]",
        "true",
        "null",
        "[null]",
    ];
    for key in keys {
        for value in values {
            let version = if key == "_format_version" { "" } else { "_format_version: \"3.0\"\n" };
            let text = imported(&format!("{version}{key}: {value}\n"));
            assert!(!text.is_empty());
        }
    }
}

#[test]
fn five_thousand_routes_are_imported_in_time() {
    let mut text = String::from("_format_version: \"3.0\"\nplugins:\n- { name: key-auth }\nservices:\n");
    for service in 0..500 {
        text.push_str(&format!("- name: s{service}\n  url: http://s{service}.test:8080\n  routes:\n"));
        for route in 0..10 {
            text.push_str(&format!(
                "  - {{ name: r{service}-{route}, hosts: [h{}.test], paths: [/s{service}/r{route}, \
                    \"~/s{service}/r{route}/[0-9]+\"], methods: [GET, POST] }}\n",
                service % 7
            ));
        }
    }
    let memory = Memory([("kong.yaml".to_owned(), text.into_bytes())].into());
    let system = weir_import::system("kong").unwrap();
    let import = weir_import::import(system, &memory, &["kong.yaml".to_owned()]).unwrap();
    assert_eq!(import.config.routes.len(), 10_000);
}

/// Kong says who calls in these fields, or removes them: a client cannot choose them.
#[test]
fn no_client_chooses_what_says_who_calls() {
    let text = imported(&plugin(&format!("{{ name: key-auth }}{CALLERS}")));
    for name in ["x-anonymous-consumer", "x-consumer-custom-id", "x-consumer-id", "x-credential-identifier"] {
        let removed = text.split("remove:").nth(1).unwrap_or_default();
        assert!(removed.contains(name), "{name}\n{text}");
    }
}

/// A field that Kong overwrites with a value that Weir lacks does not reach the service as the client sent it.
#[test]
fn refused_identity_fields_are_withheld() {
    let text = imported(&plugin(
        "{ name: request-transformer, config: { replace: { headers: [\"X-Who:$(kong.ctx.shared.who)\"] } } }",
    ));
    assert!(text.to_lowercase().contains("remove: [x-who]"), "{text}");
}
