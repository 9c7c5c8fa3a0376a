//! The traps between Traefik and Weir: for each a piece of a config, and what ours or the report must say. None may be
//! silent.

#![allow(clippy::unwrap_used, reason = "this is test code: a panic is how a test fails")]

use weir_import::Memory;

/// What the import of files says and writes.
fn imported(files: &[(&str, &str)]) -> String {
    let memory = Memory::of(files);
    let names: Vec<String> = files.iter().map(|(name, _)| (*name).to_owned()).collect();
    match weir_import::import(weir_import::system("traefik").unwrap(), &memory, &names) {
        Ok(import) => {
            let written: String = import.written().iter().map(|file| file.text.clone()).collect();
            format!("{}{written}", import.to_text())
        }
        Err(unreadable) => format!("unreadable: {unreadable}"),
    }
}

/// A dynamic file with one service and routers and middlewares of these texts.
fn dynamic(routers: &str, middlewares: &str) -> String {
    format!(
        "http:\n  routers: {{ {routers} }}\n  middlewares: {{ none: {{ chain: {{ middlewares: [] }} }}, {middlewares} \
         }}\n  services:\n    s: {{ loadBalancer: {{ servers: [ {{ url: \"http://s.test:8080\" }} ] }} }}\n"
    )
}

/// A file with one router with this rule.
fn rule(rule: &str) -> String {
    dynamic(&format!("r: {{ rule: \"{}\", service: s, entryPoints: [web] }}", rule.replace('\\', "\\\\")), "")
}

/// A file with one router with this middleware.
fn middleware(text: &str) -> String {
    dynamic(
        "r: { rule: Host(`h.test`), service: s, entryPoints: [web], middlewares: [m] }",
        &format!("m: {text}"),
    )
}

/// The same with TLS.
fn over_tls(text: &str) -> String {
    dynamic(
        "r: { rule: Host(`h.test`), service: s, entryPoints: [websecure], middlewares: [m], tls: {} }",
        &format!("m: {text}"),
    )
}

/// The same with another service.
fn service(text: &str) -> String {
    format!(
        "http:\n  routers: {{ r: {{ rule: Host(`h.test`), service: s }} }}\n  services:\n    s: {text}\n    t: {{ \
         loadBalancer: {{ servers: [ {{ url: \"http://t.test\" }} ] }} }}\n"
    )
}

fn compose(labels: &str) -> String {
    format!("services:\n  app:\n    image: app\n    labels:\n{labels}")
}

const STATIC: &str = "entryPoints:\n  web:\n    address: \":80\"\n    http: { redirections: { entryPoint: { to: \
                      websecure, permanent: false } } }\n  websecure: { address: \":443\" }\n  traefik: { address: \
                      \":8080\" }\n";

#[test]
fn every_trap_is_told() {
    let cases: Vec<(&str, String, &[&str])> = vec![
        (
            "1 priority is the length of the rule",
            dynamic(
                "a: { rule: \"PathPrefix(`/a`) && Method(`GET`)\", service: s }, b: { rule: \"PathPrefix(`/a/long`)\", \
                 service: s }",
                "",
            ),
            &["Traefik prefers `a`", "!(request.method in [\"GET\"])"],
        ),
        (
            "1 unless it is given",
            dynamic(
                "a: { rule: Path(`/a`), service: s }, b: { rule: \"PathPrefix(`/`)\", priority: 99, service: s }",
                "",
            ),
            &["Traefik never uses it: `b` takes all its requests"],
        ),
        (
            "1 of equal ones nobody knows",
            dynamic("a: { rule: Host(`x.test`), service: s }, b: { rule: Path(`/aaaaa`), service: s }", ""),
            &["does not say which of equal rules wins"],
        ),
        ("2 PathPrefix is raw", rule("PathPrefix(`/api`)"), &["path: \"/api*\""]),
        (
            "2 with a slash it does not take its folder",
            rule("PathPrefix(`/api/`)"),
            &["request.path != \"/api\""],
        ),
        ("3 Path is exact", rule("Path(`/api`)"), &["path: /api }"]),
        (
            "4 templates of v2",
            dynamic("r: { rule: \"Path(`/u/{id:[0-9]+}/{rest}`)\", ruleSyntax: v2, service: s }", ""),
            &["path: \"~/u/(?:[0-9]+)/(?:[^/]+)\""],
        ),
        ("4 PathRegexp searches", rule("PathRegexp(`\\.php$`)"), &["~.*\\.php"]),
        ("4 core.defaultRuleSyntax", "see the files below".to_owned(), &[]),
        ("5 HostRegexp", rule("HostRegexp(`^.+\\.a\\.test$`)"), &["hosts: [\"*.a.test\"]"]),
        ("5 HostRegexp is searched", rule("HostRegexp(`api`)"), &["request.host.matches(\"api\")"]),
        (
            "6 alternatives share a body",
            rule("(Host(`a.test`) || Host(`b.test`)) && (Path(`/x`) || Path(`/y`))"),
            &["hosts: [a.test, b.test], path: [/x, /y]"],
        ),
        (
            "6 an alternative without a host",
            rule("Host(`a.test`) || PathPrefix(`/x`)"),
            &["matches requests for every host"],
        ),
        (
            "7 negation",
            rule("Host(`a.test`) && !PathPrefix(`/x`)"),
            &["when: '!request.path.startsWith(\"/x\")'"],
        ),
        ("8 ClientIP", rule("ClientIP(`10.0.0.0/8`)"), &["client.ip in [\"10.0.0.0/8\"]"]),
        ("9 Query", rule("Query(`v`, `2`)"), &["(\"2\" in request.args[\"v\"].all())"]),
        ("9 Header", rule("Header(`X-Env`, `blue`)"), &["(\"blue\" in request.headers[\"x-env\"].all())"]),
        ("10 Method", rule("Method(`get`) || Method(`POST`)"), &["methods: [GET, POST]"]),
        (
            "12 a router without TLS leaves the port of TLS",
            dynamic(
                "r: { rule: Host(`a.test`), service: s, entryPoints: \
            [web, websecure] }, t: { rule: Host(`b.test`), service: s, entryPoints: [websecure], tls: {} }",
                "",
            ),
            &["not on `websecure`: the router is for cleartext"],
        ),
        (
            "13 certResolver",
            dynamic("r: { rule: Host(`a.test`), service: s, tls: { certResolver: le } }", ""),
            &["acme: { \
            domains: [a.test]"],
        ),
        (
            "15 stripPrefix",
            middleware("{ stripPrefix: { prefixes: [/api] } }"),
            &["strip_prefix: /api", "Traefik sends `/x`"],
        ),
        (
            "15 several prefixes",
            middleware("{ stripPrefix: { prefixes: [/a, /b] } }"),
            &[
                "request.path == \"/a\" || \
            request.path.startsWith(\"/a/\")",
                "otherwise:",
            ],
        ),
        (
            "15 forceSlash is gone",
            middleware("{ stripPrefix: { prefixes: [/a], forceSlash: false } }"),
            &["strip_prefix: /a"],
        ),
        ("16 addPrefix", middleware("{ addPrefix: { prefix: /v1 } }"), &["add_prefix: /v1"]),
        (
            "16 replacePathRegex",
            middleware("{ replacePathRegex: { regex: \"^/a/(.*)\", replacement: \"/b/$1\" } }"),
            &[
                "path: \
            \"~/a/(.*)\"",
                "path: \"/b/{1}\"",
                "x-replaced-path",
            ],
        ),
        (
            "16 a part of the path",
            middleware("{ replacePathRegex: { regex: \"^/a\", replacement: /b } }"),
            &["~/a(?<after_match>.*)", "\"/b{after_match}\""],
        ),
        (
            "17 redirectRegex by host",
            middleware(
                "{ redirectRegex: { regex: \"^http://h\\\\.test/(.*)\", replacement: \
            \"https://new.test/$1\" } }",
            ),
            &["to: \"https://new.test{path}\", status: 307"],
        ),
        (
            "17 redirectRegex by path",
            middleware(
                "{ redirectRegex: { regex: \"^https?://[^/]+/old/(.*)\", replacement: \
            \"https://new.test/$1\", permanent: true } }",
            ),
            &["path: \"~/old/(.*)\"", "to: \"https://new.test/{1}\""],
        ),
        (
            "17 redirectRegex by a host of the request",
            middleware(
                "{ redirectRegex: { regex: \"^https?://(.+)\\\\.old/(.*)\", \
            replacement: \"https://${1}.new/${2}\" } }",
            ),
            &["Refused"],
        ),
        (
            "18 users",
            middleware(
                "{ basicAuth: { users: [\"a:$2y$05$SmqQvPoTJdz5nYWEdzGlreZ1lK6wJ2oVYtQMcaBmdBRD.3CLvjKc2\", \
                 \"b:$apr1$x$y\", \"c:{SHA}x\"] } }",
            ),
            &[
                "user b has a hash of MD5",
                "user c has a hash of SHA-1",
                "hide: false",
                "realm: traefik",
                "users ***",
            ],
        ),
        (
            "18 usersFile that is not given",
            middleware("{ basicAuth: { usersFile: /etc/.htpasswd } }"),
            &[
                "basic_auth: { realm: traefik, hide: false, file: /etc/.htpasswd }",
                "Weir takes hashes of bcrypt and argon2id",
            ],
        ),
        (
            "18 usersFile that is not given, beside users",
            middleware(
                "{ basicAuth: { users: [\"a:$2y$05$SmqQvPoTJdz5nYWEdzGlreZ1lK6wJ2oVYtQMcaBmdBRD.3CLvjKc2\"], usersFile: \
                 /etc/.htpasswd } }",
            ),
            &["`.htpasswd` is not given"],
        ),
        (
            "20 forwardAuth sends all fields",
            middleware("{ forwardAuth: { address: \"http://auth:80/verify\" } }"),
            &["copy_request: all"],
        ),
        (
            "16 a pattern behind another change of the path",
            dynamic(
                "r: { rule: Host(`h.test`), service: s, entryPoints: [web], middlewares: [p, m] }",
                "p: { addPrefix: { prefix: /v1 } }, m: { replacePathRegex: { regex: \"^/v1/(.*)\", replacement: \"/v2/$1\" } }",
            ),
            &["replace: { \"^/v1/(.*)\": \"/v2/$$1\" }", "X-Replaced-Path is not sent"],
        ),
        (
            "16 a pattern that may match twice, behind another",
            dynamic(
                "r: { rule: Host(`h.test`), service: s, entryPoints: [web], middlewares: [p, m] }",
                "p: { addPrefix: { prefix: /v1 } }, m: { replacePathRegex: { regex: a, replacement: b } }",
            ),
            &["Traefik every one", "CLOSED by weir import"],
        ),
        (
            "15 several patterns of stripPrefixRegex",
            middleware("{ stripPrefixRegex: { regex: [\"/a[0-9]+\", \"^/b\"] } }"),
            &["replace: { \"^(?:/a[0-9]+)/?\": /, \"^(?:/b)/?\": / }"],
        ),
        (
            "19 digestAuth",
            middleware("{ digestAuth: { users: [\"a:r:x\"] } }"),
            &[
                "no digest authentication",
                "CLOSED by weir \
            import",
            ],
        ),
        (
            "20 forwardAuth",
            middleware(
                "{ forwardAuth: { address: \"http://auth:80/verify\", trustForwardHeader: true, \
                 authResponseHeaders: [X-User] } }",
            ),
            &["path: /verify", "copy: [x-user]", "of clients in `trusted_proxies` alone"],
        ),
        (
            "20 authResponseHeadersRegex",
            middleware(
                "{ forwardAuth: { address: \"http://auth\", authResponseHeadersRegex: ^X- \
            } }",
            ),
            &["Weir copies fields by name", "CLOSED by weir import"],
        ),
        (
            "21 rateLimit",
            middleware("{ rateLimit: { average: 10, period: 1m, burst: 5 } }"),
            &["requests: 10, per: 60s, burst: \
            5, by: address"],
        ),
        (
            "21 average 0 is none",
            middleware("{ rateLimit: { average: 0 } }"),
            &["an average of 0 is no limit"],
        ),
        (
            "21 depth",
            middleware("{ rateLimit: { average: 1, sourceCriterion: { ipStrategy: { depth: 2 } } } }"),
            &["trusted_proxies", "CLOSED by weir import"],
        ),
        (
            "22 inFlightReq",
            middleware("{ inFlightReq: { amount: 10 } }"),
            &["concurrency: { requests: 10, by: \"{host}\" }"],
        ),
        (
            "23 ipAllowList",
            middleware("{ ipAllowList: { sourceRange: [10.0.0.0/8] } }"),
            &["ip: { allow: [10.0.0.0/8] }"],
        ),
        (
            "23 ipStrategy",
            middleware("{ ipAllowList: { sourceRange: [10.0.0.0/8], ipStrategy: { depth: 1 } } }"),
            &["CLOSED by \
            weir import"],
        ),
        (
            "24 an empty value removes",
            middleware("{ headers: { customRequestHeaders: { X-A: \"\", X-B: b } } }"),
            &[
                "remove: \
            [x-a]",
                "x-b: b",
            ],
        ),
        (
            "24 STS over TLS only",
            middleware("{ headers: { stsSeconds: 10 } }"),
            &["not sent on a router without TLS"],
        ),
        ("24 STS", over_tls("{ headers: { stsSeconds: 10, stsPreload: true } }"), &["max-age=10; preload"]),
        ("24 sslRedirect", middleware("{ headers: { sslRedirect: true } }"), &["https: true"]),
        ("24 frameDeny", middleware("{ headers: { frameDeny: true } }"), &["x-frame-options: DENY"]),
        (
            "25 buffering",
            middleware(
                "{ buffering: { maxRequestBodyBytes: 2000000, retryExpression: \"IsNetworkError() && \
            Attempts() < 3\" } }",
            ),
            &["request: 1MiB, disk: 2000000B", "attempts: 3"],
        ),
        (
            "26 compress",
            middleware("{ compress: { excludedContentTypes: [text/event-stream] } }"),
            &[
                "algorithms: [gzip, br, \
            zstd]",
                "text/css",
            ],
        ),
        (
            "27 errors",
            middleware(
                "{ errors: { status: [\"500-599\", \"404\"], service: s, query: \"/{status}.html?u={url}\" } }",
            ),
            &[
                "5xx: { upstream: s, path: \"/{status}.html?u={= url.encode(request.url) }\" }",
                "\"404\": { upstream: s,",
                "upstream: [5xx, 404]",
            ],
        ),
        (
            "27 errors with statuses that are none",
            middleware("{ errors: { status: [\"200-299\"], service: s, query: /x } }"),
            &["are no statuses of errors"],
        ),
        (
            "28 retry",
            middleware("{ retry: { attempts: 4 } }"),
            &["retry: { attempts: 4, \"on\": [connect, reset], methods: all"],
        ),
        (
            "29 circuitBreaker",
            middleware("{ circuitBreaker: { expression: \"LatencyAtQuantileMS(90.0) > 100\" } }"),
            &[
                "slow: \
            100ms",
                "slow_rate: 10%",
            ],
        ),
        (
            "29 another expression",
            middleware("{ circuitBreaker: { expression: \"a() > 1 && b() > 2\" } }"),
            &["Refused"],
        ),
        (
            "30 passHostHeader is on",
            service("{ loadBalancer: { servers: [ { url: \"http://a\" } ] } }"),
            &["endpoints: [a:80]"],
        ),
        (
            "30 passHostHeader: false",
            service(
                "{ loadBalancer: { passHostHeader: false, servers: [ { url: \"http://a\" } ] } \
            }",
            ),
            &["host: endpoint"],
        ),
        (
            "31 sticky",
            service("{ loadBalancer: { sticky: { cookie: {} }, servers: [ { url: \"http://a\" } ] } }"),
            &[
                "an HMAC by \
            a key of your own",
                "${STICKY_KEY}",
            ],
        ),
        (
            "32 another provider",
            dynamic("r: { rule: Host(`a`), service: s@kubernetescrd }", ""),
            &[
                "of the provider \
            `kubernetescrd`, whose file is not given",
                "CLOSED by weir import",
            ],
        ),
        (
            "32 a middleware of another provider",
            dynamic("r: { rule: Host(`a`), service: s, middlewares: [auth@docker] }", ""),
            &["whose file is not given", "CLOSED by weir import"],
        ),
        (
            "32 templates",
            "http:\n  routers:\n    r:\n      rule: {{ env \"X\" }}\n".to_owned(),
            &["unreadable", "a template of Go"],
        ),
        ("32 templates in texts", rule("Host(`{{ env `X` }}`)"), &["Refused"]),
        ("32 a variable in a file is literal", rule("Host(`${DOMAIN}`)"), &["has no value for the variable"]),
        (
            "upstream path",
            service("{ loadBalancer: { servers: [ { url: \"http://a/x\" } ] } }"),
            &["Traefik ignores the path"],
        ),
        (
            "weighted",
            service("{ weighted: { sticky: { cookie: {} }, services: [ { name: t, weight: 3 } ] } }"),
            &["chooses anew \
            for each request"],
        ),
        (
            "udp",
            "udp: { routers: { r: { service: s } } }\nhttp: {}\n".to_owned(),
            &["does not pass datagrams on"],
        ),
        (
            "TCP by name without TLS",
            "tcp: { routers: { r: { rule: HostSNI(`a.test`), service: s } } }\n".to_owned(),
            &["a name is \
            known only of connections with TLS"],
        ),
        (
            "unknown keys",
            dynamic("r: { rule: Host(`a`), service: s, frobnicate: 1 }", ""),
            &["does not know this key of a router"],
        ),
        (
            "an unknown middleware",
            middleware("{ frobnicate: { a: 1 } }"),
            &["does not know this middleware", "CLOSED by weir import", "    upstream: "],
        ),
        (
            "plugins",
            middleware("{ plugin: { x: { a: 1 } } }"),
            &["plugins are programs", "CLOSED by weir import"],
        ),
        (
            "an unknown setting of a guard",
            middleware("{ ipAllowList: { sourceRange: [10.0.0.1], only: x } }"),
            &["is not \
            understood"],
        ),
        (
            "a rule that cannot be read",
            rule("Host(`a`) && Frob(`b`)"),
            &["does not know the matcher `Frob`", "get 503 from its place on"],
        ),
        (
            "labels",
            compose(
                "    - traefik.http.routers.app.rule=Host(`a.test`)\n    - \
            traefik.http.services.app.loadbalancer.server.port=8080\n",
            ),
            &["endpoints: [app:8080]"],
        ),
        (
            "labels without a service",
            "services:\n  app:\n    image: app\n    expose: [\"3000\"]\n    labels: { \
            traefik.http.routers.app.rule: Host(`a.test`) }\n"
                .to_owned(),
            &["endpoints: [app:3000]"],
        ),
        (
            "labels with a dollar sign",
            compose(
                "    - traefik.http.routers.app.rule=Host(`a.test`)\n    - \
            traefik.http.routers.app.middlewares=m\n    - \
                 traefik.http.middlewares.m.basicauth.users=a:$$2y$$05$$SmqQvPoTJdz5nYWEdzGlreZ1lK6wJ2oVYtQMcaBmdBRD.3CLvjKc2\n    - \
            traefik.http.services.app.loadbalancer.server.port=1\n",
            ),
            &["\\$2y\\$05\\$SmqQ"],
        ),
        (
            "labels with a variable",
            compose("    - traefik.http.routers.app.rule=Host(`${D}`)\n"),
            &[
                "`${D}` has no value",
                "`.env` \
            beside the file",
            ],
        ),
        (
            "traefik.enable=false",
            compose("    - traefik.enable=false\n    - traefik.http.routers.app.rule=Host(`a.test`)\n"),
            &[
                "Left \
            out",
                "traefik.enable=false",
            ],
        ),
        (
            "an unknown label",
            compose("    - traefik.http.routers.app.rule=Host(`a`)\n    - traefik.http.routers.app.frob=1\n"),
            &["does \
            not know this key of a router"],
        ),
    ];
    let mut silent = Vec::new();
    for (name, text, said) in &cases {
        let all = imported(&[("dynamic.yml", text)]);
        let flat = all.split_whitespace().collect::<Vec<_>>().join(" ");
        for words in *said {
            let words = words.split_whitespace().collect::<Vec<_>>().join(" ");
            if !flat.contains(&words) {
                silent.push(format!("{name}: no `{words}` in\n{all}"));
            }
        }
    }
    assert!(silent.is_empty(), "{}", silent.join("\n\n"));
}

#[test]
fn traps_of_the_static_config_are_told() {
    let router = |keys: &str| dynamic(&format!("r: {{ rule: Host(`a.test`), service: s, {keys} }}"), "");
    let v2 = "core: { defaultRuleSyntax: v2 }\nentryPoints: { web: { address: \"1.2.3.4:80\" } }\n";
    let cases: Vec<(&str, String, String, &[&str])> = vec![
        (
            "4 core.defaultRuleSyntax",
            v2.to_owned(),
            dynamic("r: { rule: \"Host(`a.test`, `b.test`)\", service: s }", ""),
            &[
                "hosts: \
            [a.test, b.test]",
                "address: 1.2.3.4:80",
            ],
        ),
        (
            "11 no entryPoints is all but traefik's own",
            STATIC.to_owned(),
            router("tls: {}"),
            &[
                "listeners: [websecure]",
                "no router \
            is on it",
            ],
        ),
        (
            "14 redirections",
            STATIC.to_owned(),
            router("tls: {}"),
            &[
                "listeners: [web]",
                "https: true, status: 307",
                "Traefik answers \
            GET with 301 or 302",
            ],
        ),
        (
            "14 a router that is never reached",
            STATIC.to_owned(),
            router("entryPoints: [web]"),
            &["Traefik never uses it: \
            `web-to-websecure`"],
        ),
        (
            "12 TLS on the port of cleartext",
            STATIC.to_owned(),
            router("entryPoints: [web, websecure], tls: {}"),
            &["not on `web`"],
        ),
        (
            "an entry point that is in no file",
            STATIC.to_owned(),
            router("entryPoints: [other]"),
            &["`other` is in no file"],
        ),
        (
            "http3",
            "entryPoints: { web: { address: \":80\", http3: {} } }\n".to_owned(),
            router(""),
            &["weir import writes no HTTP/3"],
        ),
        (
            "insecure forwarding fields",
            "entryPoints: { web: { address: \":80\", forwardedHeaders: { insecure: true } } \
            }\n"
            .to_owned(),
            router(""),
            &["any client could forge"],
        ),
        (
            "another provider",
            "providers: { consul: {} }\nentryPoints: { web: { address: \":80\" } }\n".to_owned(),
            router(""),
            &["what the provider consul says"],
        ),
        (
            "an unknown key",
            "frob: 1\nlog: { level: INFO }\n".to_owned(),
            router(""),
            &["does not know this key of a static config"],
        ),
    ];
    let mut silent = Vec::new();
    for (name, fixed, text, said) in &cases {
        let all = imported(&[("traefik.yml", fixed), ("dynamic.yml", text)]);
        let flat = all.split_whitespace().collect::<Vec<_>>().join(" ");
        for words in *said {
            let words = words.split_whitespace().collect::<Vec<_>>().join(" ");
            if !flat.contains(&words) {
                silent.push(format!("{name}: no `{words}` in\n{all}"));
            }
        }
    }
    assert!(silent.is_empty(), "{}", silent.join("\n\n"));
}

#[test]
fn users_are_read_from_a_given_file() {
    let text = middleware("{ basicAuth: { usersFile: /etc/traefik/users.htpasswd } }");
    let users = "ann:$2y$05$SmqQvPoTJdz5nYWEdzGlreZ1lK6wJ2oVYtQMcaBmdBRD.3CLvjKc2\n";
    let all = imported(&[("dynamic.yml", &text), ("users.htpasswd", users)]);
    assert!(all.contains("ann: { basic_auth: [\"ann:${ANN_PASSWORD_HASH}\"] }"), "{all}");
}

/// Go listens on IPv6 and IPv4 unless the address names one interface.
#[test]
fn entry_points_take_both_families_as_traefik_does() {
    let fixed = "entryPoints: { a: { address: \":1000\" }, b: { address: \"0.0.0.0:2000\" }, c: { address: \
                 \"127.0.0.1:3000\" }, d: { address: \"[::]:4000/tcp\" }, e: { address: \"[::1]:5000\" } }\n";
    let routers = dynamic("r: { rule: Host(`a.test`), service: s }", "");
    let all = imported(&[("traefik.yml", fixed), ("dynamic.yml", &routers)]);
    for address in ["\"[::]:1000\"", "\"[::]:2000\"", "127.0.0.1:3000", "\"[::]:4000\"", "\"[::1]:5000\""] {
        assert!(all.contains(&format!("{{ address: {address} }}")), "{address}: {all}");
    }
    assert!(!all.contains("Changed:") && all.contains("on a machine without IPv6"), "{all}");
    // Without a static config, too.
    let all = imported(&[("dynamic.yml", &dynamic("r: { rule: Host(`a.test`), service: s }", ""))]);
    assert!(
        all.contains("web: { address: \"[::]:80\" }") && all.contains("on a machine without IPv6"),
        "{all}"
    );
}

#[test]
fn two_lists_of_users_stay_apart() {
    let hash = "$2y$05$SmqQvPoTJdz5nYWEdzGlreZ1lK6wJ2oVYtQMcaBmdBRD.3CLvjKc2";
    let text = dynamic(
        "a: { rule: Host(`a.test`), service: s, middlewares: [one] }, b: { rule: Host(`b.test`), service: s, middlewares: \
         [two] }",
        &format!(
            "one: {{ basicAuth: {{ users: [\"ann:{hash}\"] }} }}, two: {{ basicAuth: {{ users: [\"bob:{hash}\"] }} }}"
        ),
    );
    let all = imported(&[("dynamic.yml", &text)]);
    assert!(
        all.contains("acl: { allow: [group:one] }") && all.contains("acl: { allow: [group:two] }"),
        "{all}"
    );
}

#[test]
fn wrong_types_everywhere_are_refused_not_guessed() {
    let keys = [
        "http",
        "tcp",
        "tls",
        "udp",
        "entryPoints",
        "providers",
        "certificatesResolvers",
        "accessLog",
        "services",
        "x",
    ];
    let values = [
        "1",
        "text",
        "[1, 2]",
        "{ a: 1 }",
        "[[x]]",
        "true",
        "null",
        "{ routers: 1 }",
        "{ routers: { a: [] } }",
        "{ routers: { a: { rule: [], service: {} } } }",
        "{ a: { image: traefik, labels: [[1]], command: {} } }",
    ];
    for key in keys {
        for value in values {
            let text = imported(&[("a.yml", &format!("{key}: {value}\n"))]);
            assert!(!text.is_empty());
        }
    }
}

#[test]
fn two_thousand_routers_are_imported_in_time() {
    let mut text = String::from("http:\n  routers:\n");
    for n in 0..2000 {
        text.push_str(&format!(
            "    r{n}: {{ rule: \"Host(`h{}.test`) && (PathPrefix(`/a{n}`) || Path(`/b{n}`)) && Method(`GET`)\", service: s \
             }}\n",
            n % 7
        ));
    }
    text.push_str("  services: { s: { loadBalancer: { servers: [ { url: \"http://s\" } ] } } }\n");
    let memory = Memory::of(&[("a.yml", &text)]);
    let import =
        weir_import::import(weir_import::system("traefik").unwrap(), &memory, &["a.yml".to_owned()]).unwrap();
    assert_eq!(import.config.routes.len(), 2000);
}
