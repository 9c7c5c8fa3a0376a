//! HAProxy's traps: places where the obvious translation is silently wrong. Each row is a source and what its import
//! must show, in the config or in the ledger.

#![allow(clippy::unwrap_used, reason = "this is test code: a panic is how a test fails")]

use weir_import::{Memory, import, system};

/// What is written and what the ledger says, in one text.
fn imported(source: &str) -> String {
    let files = Memory::of(&[
        ("haproxy.cfg", source),
        ("hosts.map", "a.test b1\nb.test b2\nc.test gone\n"),
        ("blocked.lst", "# addresses\n10.9.0.0/16\n10.8.1.1\n"),
        ("errors/503.http", "HTTP/1.0 503 Gone\r\nContent-Type: text/html\r\n\r\n<h1>later</h1>\n"),
    ]);
    let import = import(system("haproxy").unwrap(), &files, &["haproxy.cfg".to_owned()]).unwrap();
    let mut text = String::new();
    for line in import.ledger.lines() {
        let why = line.why.join("; ");
        text.push_str(&format!(
            "[{}] {} — {why} {}\n",
            line.verdict.key(),
            line.text,
            line.nearest.join("; ")
        ));
    }
    import.ledger.notes().iter().for_each(|note| text.push_str(&format!("[note] {note}\n")));
    for file in import.written() {
        text.push_str(&format!("==> {}\n{}", file.path, file.text));
    }
    text
}

const DEFAULTS: &str =
    "defaults\n mode http\n timeout connect 5s\n timeout client 30s\n timeout server 30s\n";
const BACKENDS: &str = "backend b1\n server s 10.0.0.1:80\nbackend b2\n server s 10.0.0.2:80\n";

/// A frontend with these lines, before two backends.
fn front(lines: &str) -> String {
    let lines: Vec<String> = lines.split(';').map(|line| format!(" {}", line.trim())).collect();
    format!("{DEFAULTS}frontend f\n bind :80\n{}\n default_backend b1\n{BACKENDS}", lines.join("\n"))
}

/// A backend with these lines and one server.
fn back(lines: &str) -> String {
    let lines: Vec<String> = lines.split(';').map(|line| format!(" {}", line.trim())).collect();
    let lines = lines.join("\n");
    format!(
        "{DEFAULTS}frontend f\n bind :80\n default_backend b\nbackend b\n{lines}\n server s1 10.0.0.1:80\n"
    )
}

/// A backend with these servers.
fn servers(lines: &str) -> String {
    back(lines).replace(" server s1 10.0.0.1:80\n", "")
}

/// Numbers of traps, sources, and what must be there.
#[allow(clippy::too_many_lines, reason = "a table")]
fn traps() -> Vec<(&'static str, String, Vec<&'static str>)> {
    vec![
        (
            "a rule for a backend that is not translated lets nobody take the rules behind it",
            front("use_backend b2 if { lua.who -m found }"),
            vec!["[refused] use_backend b2", "f-closed:", "status: 503", "CLOSED by weir import: `use_backend b2 if { lua.who -m found }`", "upstream: b2"],
        ),
        (
            "what is known of such a rule says whom it closes",
            front("use_backend b2 if { path_beg /admin/ } { lua.who -m found }"),
            vec!["[refused] use_backend b2", "f-closed:", "path: \"/admin/*\"", "b1: { upstream: b1 }"],
        ),
        (
            "a share of requests is a split",
            front("acl canary rand(100) lt 5;use_backend b2 if canary;use_backend b2 if { path /x }"),
            vec!["[same] use_backend b2 if canary", "upstream: { b1: 95, b2: 5 }", "path: /x }, upstream: b2"],
        ),
        (
            "a ban by a counter that Weir has not closes the route",
            front("http-request track-sc0 src;http-request deny if { sc0_get_gpc0 gt 0 }"),
            vec!["[refused] http-request deny", "CLOSED", "status: 503"],
        ),
        (
            "a redirect whose condition is not known closes the route",
            front("http-request redirect location /login if { path_beg /app/ } !{ lua.who -m found }"),
            vec!["[refused] http-request redirect", "CLOSED", "startsWith(\"/app/\")"],
        ),
        (
            "an answer whose page is not known closes the route",
            front("http-request return status 403 file /no/such/page if { path_beg /in/ }"),
            vec!["[refused] http-request return", "CLOSED"],
        ),
        (
            "a path that would be another closes the route",
            front("http-request set-uri /x%[path] if { path_beg /in/ }"),
            vec!["[refused] http-request set-uri", "CLOSED", "startsWith(\"/in/\")"],
        ),
        (
            "a script may decide who passes",
            front("http-request lua.guard if { path_beg /in/ }"),
            vec!["[refused] http-request lua.guard", "CLOSED", "startsWith(\"/in/\")"],
        ),
        (
            "revoked certificates must not pass",
            front("x").replace(" bind :80\n x\n", " bind :443 ssl crt /a.pem ca-file /ca.pem verify required crl-file /crl.pem\n"),
            vec!["[refused] bind :443", "CLOSED", "`crl-file`"],
        ),
        (
            "bytes do not take the rules behind one that is not translated",
            "defaults\n mode tcp\nfrontend f\n bind :443\n tcp-request inspect-delay 5s\n use_backend b2 if { src 10.0.0.0/8 }\n \
             default_backend b1\nbackend b1\n server s 10.0.0.1:80\nbackend b2\n server s 10.0.0.2:80\n"
                .to_owned(),
            vec!["[refused] use_backend b2", "[refused] frontend f — not written"],
        ),
        (
            "1 rules run by kind, then in the order of the file",
            front("use_backend b2 if { path_beg /x }; redirect location /r if { path /y }; http-request deny if { path /y }"),
            vec![
                "filters:\n  - acl: { is: '!(request.path == \"/y\")' }\n  - when:\n      is: 'request.path == \"/y\"'\n      filters: [ { redirect: { to: /r",
            ],
        ),
        (
            "2 the first use_backend wins",
            front("use_backend b2 if { path_beg /a }; use_backend b1 if { path_beg /a/b } METH_POST; use_backend b1 if { hdr(host) h.test }"),
            vec![
                "b2: { match: { path: \"/a*\" }, upstream: b2 }",
                "A rule for `b2` stands before it in HAProxy, so its requests are left to it.",
                "when: '!request.path.startsWith(\"/a\")'",
            ],
        ),
        (
            "3 lines of a name are alternatives, terms of a condition are not",
            front("acl api path_beg /a; acl api path_beg /b; use_backend b2 if api METH_POST"),
            vec!["path: \"/a*\", methods: [POST]", "path: \"/b*\", methods: [POST]"],
        ),
        (
            "4 path_beg is raw, path_dir and path_reg search",
            front("use_backend b2 if { path_beg /api }; use_backend b2 if { path_dir x }; use_backend b2 if { path_reg \\.php }"),
            vec!["path: \"/api*\"", "(?:^|[/?])x(?:[/?]|$$)", "request.path.matches(\"\\\\.php\")"],
        ),
        (
            "5 hdr(host) compares with the port",
            front("use_backend b2 if { hdr(host) -i a.test }; http-request deny unless { hdr(host) -i a.test b.test }"),
            vec![
                "HAProxy took a Host with a port to the rules behind it",
                // What guards stays exact.
                "request.headers[\"host\"].lowerAscii() in [\"a.test\", \"b.test\"]",
            ],
        ),
        (
            "6 hdr() looks at each value",
            front("http-request redirect scheme https unless { hdr(X-Forwarded-Proto) https }"),
            vec!["request.headers[\"x-forwarded-proto\"].matches(\"(?:^|,)\\\\s*https\\\\s*(?:,|$$)\")"],
        ),
        (
            "7 paths are compared as they come",
            front("option httplog"),
            vec!["[note] Weir compares and sends paths in one canonical form", "slashes: keep"],
        ),
        (
            "8 option forwardfor adds a line",
            front("option forwardfor except 127.0.0.0/8"),
            vec!["[changed] option forwardfor except 127.0.0.0/8 — Weir sends the client's address in one line"],
        ),
        ("9 no field tells of the client", front("option httplog"), vec!["[note] Weir tells upstreams about the client"]),
        (
            "10 a colon in a name",
            front("http-request set-header X-Forwarded-Proto: https"),
            vec!["[refused] http-request set-header X-Forwarded-Proto: https — `X-Forwarded-Proto:` is no name of a field"],
        ),
        (
            "11 times without a unit are milliseconds",
            front("timeout http-request 5000; timeout client 500"),
            vec!["timeouts: { head: 5s, body: 500ms", "[note] `timeout client 500` is 500ms"],
        ),
        (
            "11 none is without end",
            "defaults\n mode http\nfrontend f\n bind :80\n default_backend b1\nbackend b1\n server s 10.0.0.1:80\n".to_owned(),
            vec!["response: 0s, body: 0s", "[note] where no `timeout server` is set", "[note] where no `timeout connect` is set"],
        ),
        (
            "12 timeout server is silence, and tunnels have it too",
            back("timeout server 10s"),
            vec!["timeouts: { connect: 5s, response: 10s, body: 10s, tunnel: 10s }"],
        ),
        ("12 timeout tunnel", back("timeout tunnel 2h"), vec!["tunnel: 2h"]),
        ("13 timeout queue", back("timeout queue 5s"), vec!["[changed] timeout queue 5s — a request waits for a connection"]),
        (
            "14 retries are of connects",
            back("retries 3; option redispatch"),
            vec!["[changed] retries 3", "[same] option redispatch", "[note] Weir repeats an idempotent request that was reset"],
        ),
        (
            "15 retry-on",
            back("retry-on all-retryable-errors; retries 2"),
            vec!["retry: { attempts: 3, \"on\": [connect, reset, timeout, 500, 502, 503, 504], methods: all }"],
        ),
        (
            "16 maxconn of a server",
            servers("server a 10.0.0.1:80 maxconn 10; server b 10.0.0.2:80 maxconn 20"),
            vec!["limits: { connections: 30, pending: 1024 }", "[changed] server a 10.0.0.1:80 maxconn 10"],
        ),
        (
            "17 balancing",
            servers("balance source; server a 10.0.0.1:80 weight 10; server b 10.0.0.2:80 weight 30"),
            vec!["[changed] balance source", "hash: { by: address }", "weight: 30"],
        ),
        (
            "18 cookie insert",
            servers("cookie S insert indirect nocache maxlife 8h; server a 10.0.0.1:80 cookie a; server b 10.0.0.2:80 cookie b"),
            vec!["[changed] cookie S insert", "cookie: S", "ttl: 8h", "key: \"${STICKY_KEY}\""],
        ),
        ("18 cookie prefix", back("cookie JSESSIONID prefix"), vec!["[refused] cookie JSESSIONID prefix"]),
        (
            "19 checks are of TCP unless told",
            servers("server a 10.0.0.1:80 check fall 5"),
            vec!["probe: { kind: tcp, interval: 2s, timeout: 2s, unhealthy: 5 }"],
        ),
        (
            "19 httpchk asks with OPTIONS",
            servers("option httpchk; server a 10.0.0.1:80 check"),
            vec!["[changed] option httpchk — Weir asks with GET, HAProxy with OPTIONS", "path: /, expect: [\"200-399\"]"],
        ),
        (
            "20 backup",
            servers("server a 10.0.0.1:80; server b 10.0.0.2:80 backup"),
            vec!["{ address: 10.0.0.2:80, priority: 1 }", "[changed] server b 10.0.0.2:80 backup"],
        ),
        ("20 no server", servers("option httplog"), vec!["[note] backend `b` has no server: HAProxy answers 503", "status: 503"]),
        (
            "21 redirects are 302 and keep the query",
            front("redirect scheme https if !{ ssl_fc }; redirect prefix /n drop-query if { path /o }"),
            vec!["redirect: { to: \"https://{authority}{path}\", status: 302 }", "redirect: { to: \"/n{path}\", status: 302, keep_query: false }"],
        ),
        (
            "22 deny and its like",
            front("http-request deny if { src -f blocked.lst }; http-request deny deny_status 410 if { path /a }; http-request tarpit if { path /b }; http-request silent-drop if { path /c }"),
            vec![
                "ip: { deny: [10.9.0.0/16, 10.8.1.1] }",
                "respond: { status: 410 }",
                "[changed] http-request tarpit if { path /b } — Weir answers at once",
                "[changed] http-request silent-drop if { path /c } — Weir answers 403",
            ],
        ),
        (
            "23 without default_backend it is 503",
            front("use_backend b2 if { path_beg /x }").replace(" default_backend b1\n", ""),
            vec!["# No rule of HAProxy takes these requests: it answers 503.\n  f-none: { respond: { status: 503 } }"],
        ),
        (
            "24 counters slide",
            front("stick-table type ip size 1m store http_req_rate(10s); http-request track-sc0 src; http-request deny deny_status 429 if { sc_http_req_rate(0) gt 20 }"),
            vec!["rate_limit: { requests: 20, per: 10s, by: address, keys: 1048576, headers: false }", "HAProxy's window slides over two periods"],
        ),
        (
            "24 tracked later than read",
            front("stick-table type ip size 1m store http_req_rate(10s); http-request deny if { sc_http_req_rate(0) gt 20 }; http-request track-sc0 src"),
            vec!["[left_out] http-request deny if { sc_http_req_rate(0) gt 20 } — nothing before it tracks counter 0, so it is always 0: HAProxy's rule does nothing"],
        ),
        (
            "25 nothing tracks",
            front("stick-table type ip size 1m store http_req_rate(10s); http-request deny if { src_http_req_rate(f) ge 20 }"),
            vec!["[left_out] http-request deny if { src_http_req_rate(f) ge 20 } — nothing tracks addresses in the table `f`"],
        ),
        (
            "26 other counters",
            front("stick-table type ip size 1m store gpc0,conn_rate(3s); http-request track-sc0 src; http-request deny if { sc_get_gpc0(0) gt 0 }; tcp-request connection reject if { src_conn_cur ge 11 }"),
            vec!["[refused] http-request deny if { sc_get_gpc0(0) gt 0 }", "per_client: { connections: 10 }"],
        ),
        (
            "26 connections of one client",
            front("http-request track-sc0 src; http-request deny deny_status 429 if { sc_conn_cur(0) gt 50 }"),
            vec!["[changed] http-request deny deny_status 429", "per_client: { connections: 50 }"],
        ),
        (
            "a user of another group",
            format!("userlist u\n group g users b\n user b password $2y$10$abcdefghijklmnopqrstuuR9h.cIPz0giURNNX3kh2OPST9.PgBkq\n{}", front("http-request auth unless { http_auth_group(u) g }")),
            vec!["[changed] http-request auth unless { http_auth_group(u) g } — a user who is in none of the groups", "group:u.g"],
        ),
        (
            "27 http-response is for answers of servers",
            front("http-response set-header X-A 1; http-request deny if { path /d }"),
            vec![
                "[ { acl: { is: '!(request.path == \"/d\")' } }, { headers: { response: { set: { x-a: \"1\" } } } } ]",
                "[changed] http-response set-header X-A 1 — Weir does so to answers of its own",
            ],
        ),
        (
            "28 an errorfile has a head",
            back("errorfile 503 /etc/haproxy/errors/503.http; errorfile 500 /nowhere.http"),
            vec!["errors: { \"503\": { file: ../pages/503.html } }", "==> pages/503.html\n<h1>later</h1>", "[refused] errorfile 500"],
        ),
        (
            "29 expressions and variables",
            front("http-request set-var(txn.t) req.hdr(X-T),lower; http-request set-header X-Q \"%[var(txn.t)] %[src] %%\"; http-response set-header X-R %[res.hdr(X-N)]"),
            vec!["x-q: '{= request.headers[\"x-t\"].lowerAscii() } {client} %'", "x-r: '{= response.headers[\"x-n\"] }'"],
        ),
        (
            "30 maps of hosts",
            front("use_backend %[req.hdr(host),lower,map(hosts.map)]"),
            vec!["hosts: [b.test] }, upstream: b2", "the map names backends that are not there (gone)"],
        ),
        (
            "31 compression",
            back("compression algo gzip; compression offload"),
            vec!["[changed] compression algo gzip", "[changed] compression offload", "compress: { algorithms: [gzip], types: [\"*/*\"] }"],
        ),
        (
            "32 mode tcp",
            "defaults\n mode tcp\n timeout client 1h\n timeout server 2h\nfrontend f\n bind :443\n use_backend b1 if { req.ssl_sni -i a.test }\n default_backend b2\n".to_owned() + BACKENDS,
            vec!["sni: { a.test: { upstream: b1, idle: 1h } }", "otherwise: { upstream: b2, idle: 1h }"],
        ),
        (
            "33 bind",
            front("bind :443 ssl crt site.pem alpn h2,http/1.1 ca-file ca.pem verify optional no-tls-tickets"),
            vec!["client_auth: { ca: /etc/haproxy/ca.pem, mode: optional }", "cert: /etc/haproxy/site.pem", "tickets: false", "without tickets every handshake is a full one"],
        ),
        (
            "33 ciphers and curves, of global too",
            format!(
                "global\n ssl-default-bind-ciphers ECDHE-RSA-AES128-GCM-SHA256:AES128-SHA\n ssl-default-bind-ciphersuites \
                 TLS_AES_256_GCM_SHA384\n{}",
                front("bind :443 ssl crt site.pem curves X25519:P-256")
            ),
            vec![
                "ciphers: [TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, TLS_AES_256_GCM_SHA384]",
                "curves: [X25519, secp256r1]",
                "[changed] ssl-default-bind-ciphers",
                "[same] ssl-default-bind-ciphersuites",
            ],
        ),
        (
            "28 errorloc",
            front("errorloc 503 https://down.test/;errorloc303 502 /oops"),
            vec!["\"503\": { redirect: https://down.test/ }", "\"502\": { redirect: /oops, status: 303 }"],
        ),
        ("34 http-reuse", back("http-reuse safe"), vec!["[changed] http-reuse safe"]),
        ("35 http-server-close", back("option http-server-close"), vec!["[changed] option http-server-close — Weir keeps connections"]),
        (
            "36 Lua, SPOE and peers",
            front("http-request lua.check; filter spoe engine x config x.conf; stats enable")
                + "peers p\n peer a 10.0.0.1:1024\nprogram x\n command y\n",
            vec!["[refused] http-request lua.check", "[refused] filter spoe", "[left_out] stats enable", "[left_out] peer a", "[refused] command y"],
        ),
        (
            "36 variables stand in double quotes only",
            front("http-request set-header X-A \"$TOKEN-x\"; http-request set-header X-B $TOKEN; http-request set-header X-C '\"$T\"'"),
            vec!["x-a: \"${TOKEN}-x\"", "x-b: \"$$TOKEN\"", "x-c: '\"$$T\"'"],
        ),
        (
            "an address from the environment",
            servers("server a \"${APP}:80\""),
            vec!["[refused] server a \"${APP}:80\" — its value stands in the environment"],
        ),
        (
            "lines between .if and .endif",
            front(".if feature(OPENSSL);bind :8443;.endif"),
            vec!["[refused] .if feature(OPENSSL)", "[refused] bind :8443 — it stands between .if and .endif"],
        ),
        (
            "defaults by name and in turn",
            "defaults a\n mode http\n timeout server 1s\ndefaults b from a\n timeout connect 2s\nfrontend f from a\n bind :80\n default_backend b1\nbackend b1\n server s 10.0.0.1:80\n".to_owned(),
            vec!["timeouts: { connect: 2s, response: 1s, body: 1s, tunnel: 1s }"],
        ),
        (
            "a request that rules changed before it is routed",
            front("http-request set-path /x%[path]; use_backend b2 if { path_beg /x }"),
            vec!["[refused] use_backend b2 if { path_beg /x } — its condition reads what a rule before it changed"],
        ),
        (
            "users with hashes that are cheap to try out",
            format!("userlist u\n user a password $6$salt$hash\n user b password $2y$10$abcdefghijklmnopqrstuuR9h.cIPz0giURNNX3kh2OPST9.PgBkq\n{}", front("http-request auth unless { http_auth(u) }")),
            vec!["[refused] user *** — a hash of crypt's SHA-512", "basic_auth: [\"${BASIC_AUTH_B}\"]", "filters: [ { basic_auth: { hide: false } } ]"],
        ),
    ]
}

#[test]
fn no_trap_is_silent() {
    let mut wrong = Vec::new();
    for (trap, source, expected) in traps() {
        let text = imported(&source);
        for part in expected {
            if !text.contains(part) {
                wrong.push(format!("{trap}: no `{part}` in\n{text}"));
            }
        }
        if text.contains("not understood") {
            wrong.push(format!("{trap}: a line is not understood\n{text}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

/// A rule that denies and cannot be translated answers 503 to every request that it might deny.
#[test]
fn no_guard_is_lost() {
    let guards = [
        ("http-request deny if { path_beg /g } { req.fhdr_cnt(x) gt 1 }", "request.path.startsWith(\"/g\")"),
        ("http-request deny unless { lua.allowed }", ""),
        ("http-request deny if unknown_acl", ""),
        ("http-request deny if { path_beg /g } { src_is_local }", "request.path.startsWith(\"/g\")"),
        ("http-request deny if { path_beg /g } { hdr(x) -f nowhere.lst }", "request.path.startsWith(\"/g\")"),
        ("http-request auth unless { http_auth(nobody) } or { path /x }", "CLOSED-OR-AUTH"),
        ("http-request tarpit if { ssl_c_verify gt 0 }", ""),
        ("tcp-request content reject if { req.payload(0,1) -m bin 00 }", ""),
    ];
    for (guard, at) in guards {
        let text = imported(&front(guard));
        if at == "CLOSED-OR-AUTH" {
            assert!(text.contains("no consumer could call it") || text.contains("CLOSED"), "{guard}\n{text}");
            continue;
        }
        assert!(
            text.contains("[refused]") && text.contains("CLOSED") && text.contains("status: 503"),
            "{guard}\n{text}"
        );
        assert!(text.contains(at), "{guard}\n{text}");
    }
    // A file that is not there is read by the filter itself.
    let text = imported(&front("http-request deny unless { src -f /etc/allowed.lst }"));
    assert!(text.contains("ip: { allow_file: /etc/allowed.lst }"), "{text}");
}

#[test]
fn hostile_configs_end() {
    let cases = [
        ("bind :80\n".to_owned(), "before the first section"),
        ("frontend f\n bind \"x\n".to_owned(), "a quote is not closed"),
        (format!("frontend f\n {}\n", "x ".repeat(70)), "more than 64 words"),
        (format!("frontend f\n {}\n", "x".repeat(40_000)), "bytes"),
        ("global\n x \0\n".to_owned(), "NUL"),
    ];
    for (source, why) in cases {
        let files = Memory::of(&[("haproxy.cfg", &source)]);
        let read = import(system("haproxy").unwrap(), &files, &["haproxy.cfg".to_owned()]);
        let told = read.err().unwrap().to_string();
        assert!(told.contains(why), "{told}");
    }
    // Conditions that would explode, and patterns that would elsewhere.
    let many = (0..60).map(|n| format!("{{ path /{n} }} {{ path /x{n} }}")).collect::<Vec<_>>().join(" or ");
    let many: String = many.split(' ').take(55).collect::<Vec<_>>().join(" ");
    imported(&front(&format!("http-request deny unless {many}")));
    for pattern in ["^(a+)+$", "(x{1000}){1000}", "(?:a?){500}a{500}"] {
        imported(&front(&format!("use_backend b2 if {{ path_reg {pattern} }}")));
    }
    // What a source says cannot leave its quotes.
    let text = imported(&front("http-request set-header X-A \"a\\nrespond: {}\""));
    assert!(!text.contains("\nrespond:"), "{text}");
}

#[test]
fn secrets_are_not_shown() {
    let text = imported(&format!(
        "userlist u\n user a insecure-password topsecret\n{}",
        front("http-request set-header Authorization \"Basic topsecret\"")
    ));
    let shown: Vec<&str> = text.split("==> ").filter(|part| !part.starts_with("secrets.env")).collect();
    assert!(!shown.join("").contains("topsecret"), "{text}");
}

/// A rule that changes the path of some requests closes these alone, where a later condition reads the path.
#[test]
fn a_changed_path_closes_its_own_requests() {
    let rule = "http-request replace-path /old/(.*) /new/\\1 if { hdr(x-v) 1 }";
    let text = imported(&front(&format!("{rule}; use_backend b2 if {{ path_beg /new }}")));
    assert!(text.contains("[refused] use_backend b2"), "{text}");
    let routes = text.split("==> routes/").nth(1).unwrap();
    // The others go where they went.
    assert!(routes.contains("upstream: b2") && routes.contains("/new*"), "{text}");
    let closed = routes.find("CLOSED").unwrap_or_else(|| panic!("{text}"));
    assert!(routes[closed.saturating_sub(300)..].contains("x-v"), "{text}");
    // Where it changes every path, all are closed that the condition may take.
    let text = imported(&front("http-request set-path /x; use_backend b2 if { path_beg /new }"));
    let (closed, upstream) = (text.find("CLOSED").unwrap(), text.find("upstream: b2").unwrap());
    assert!(closed < upstream && text.matches("upstream: b2").count() == 1, "{text}");
}

/// Fields with several values, at a cost that Weir allows: `every_sample_passes_check` runs fields.cfg.
#[test]
fn each_value_of_a_field_counts() {
    let cases = [
        ("hdr_sub(x-k) bad", r#"contains(\"bad\")"#),
        ("hdr_reg(x-k) ^a.c$", r#"matches(\"(?:^|,)\\\\s*a[^,]c\\\\s*(?:,|$$)\")"#),
        ("hdr_reg(x-k) ^[^/]+/[]x]", r#"[^,/]+/[\\\\]x]"#),
        ("hdr_dir(x-k) adm", r#"(?:(?:^|,)\\\\s*|[/?])(?:adm)(?:[/?]|"#),
        ("hdr_ip(x-forwarded-for) 10.0.0.0/8", r#".split(\",\", 100).exists(v, (ip(v.trim())"#),
    ];
    for (test, expected) in cases {
        let text = imported(&front(&format!("http-request deny if {{ {test} }}")));
        // Quoted by YAML in one way or the other.
        let plain = |text: &str| text.replace(['\\', '"', '\''], "");
        assert!(plain(&text).contains(&plain(expected)), "{test}: {text}");
    }
    // What may find a comma is no pattern for one value.
    let text = imported(&front("http-request deny if { hdr_reg(x-k) a\\Sb }"));
    assert!(text.contains("CLOSED"), "{text}");
}

/// A field that HAProxy overwrites or removes, and Weir cannot, does not reach the server as the client sent it.
#[test]
fn refused_identity_fields_are_withheld() {
    for (rule, written) in [
        ("http-request set-header X-Who %[unknown]", "remove: [x-who]"),
        ("http-request set-header X_Who %[src]", "remove: [x-who]"),
        ("http-request set-header X-Who %[unknown] if { path /a }", "remove: [x-who]"),
        ("http-request set-header X-Who staff if { unknown }", "remove: [x-who]"),
        ("http-request del-header X-Who if { unknown }", "remove: [x-who]"),
    ] {
        let text = imported(&front(rule));
        assert!(text.contains(&format!("[refused] {rule}")) && text.contains(written), "{rule}\n{text}");
    }
    // HAProxy keeps the client's value beside the one that it adds.
    assert!(!imported(&front("http-request add-header X-Who %[unknown]")).contains("remove:"));
}

/// Fields that HAProxy removes by a part of their names do not reach the server.
#[test]
fn fields_are_removed_by_a_part_of_their_names() {
    for (rule, written) in [
        ("http-request del-header x-int- -m beg", "remove: [\"x-int-*\"]"),
        ("http-request del-header -id -m end if { path /a }", "remove: [\"*-id\"]"),
        ("http-request del-header ^x-int-.* -m reg", "remove: [\"x-int-*\"]"),
        ("http-request del-header legacy -m sub", "remove: [\"*legacy*\"]"),
    ] {
        let text = imported(&front(rule));
        assert!(text.contains(&format!("[same] {rule}")) && text.contains(written), "{rule}\n{text}");
    }
    let text = imported(&front("http-request del-header ^x-(a|b)$ -m reg"));
    assert!(text.contains("[refused]") && text.contains("CLOSED"), "{text}");
}

/// What stands behind a rule that was not imported is kept for the person who takes the closing filter out.
#[test]
fn a_closed_route_keeps_what_stands_behind() {
    for rule in ["http-request deny if { unknown }", "http-response deny if { res.hdr(X-N) -f /nowhere }"] {
        let text = imported(&front(&format!(
            "{rule}; http-request deny if {{ path /own }}; http-request set-header X-B 2; http-response set-header X-C 3"
        )));
        assert!(text.contains("[refused]") && text.contains("CLOSED"), "{rule}\n{text}");
        for kept in ["request.path == \"/own\"", "x-b: \"2\"", "x-c: \"3\"", "upstream: b1"] {
            assert!(text.contains(kept), "{rule}: {kept}\n{text}");
        }
    }
    let text = imported(&front("use_backend b2 if { unknown }"));
    let closed = text.find("CLOSED by weir import").unwrap();
    assert!(text[closed..].contains("    upstream: b2"), "{text}");
}

/// A `?` would become a part of the path.
#[test]
fn a_path_with_a_query_is_no_path() {
    for rule in [
        "http-request set-path /b?c=1",
        "http-request replace-path ^/a$ /b?c=1",
        "http-request replace-path ^/a/(.*) /b/\\1?c=1",
    ] {
        let text = imported(&front(rule));
        assert!(text.contains(&format!("[refused] {rule}")) && text.contains("CLOSED"), "{rule}\n{text}");
    }
}

/// The kernel gives IPv4 clients to the frontend that binds IPv4, but Weir's `[::]` would take them too.
#[test]
fn frontends_of_each_family_are_joined_or_ipv6_is_left_out() {
    let both = |mode: &str, ipv4: &str, ipv6: &str| {
        imported(&format!(
            "defaults\n mode {mode}\n timeout client 30s\n timeout server 30s\nfrontend v6\n {ipv6}\nfrontend v4\n \
             {ipv4}\n{BACKENDS}"
        ))
    };
    let to = |bind: &str, backend: &str| format!("bind {bind}\n default_backend {backend}");
    for (mode, own) in [("http", "routes:"), ("tcp", "tcp: { upstream: b1")] {
        for ipv6 in ["[::]:80", ":::80 v4v6", ":::80 v6only", "ipv6@:80"] {
            let text = both(mode, &to("*:80", "b1"), &to(ipv6, "b1"));
            assert!(text.contains("address: \"[::]:80\"") && !text.contains("0.0.0.0:80"), "{text}");
            assert!(
                text.contains("[changed] frontend v6 — joined with `v4`") && text.contains(own),
                "{text}"
            );
            assert!(!text.contains("[refused]"), "{text}");
            let text = both(mode, &to("0.0.0.0:80", "b1"), &to(ipv6, "b2"));
            assert!(text.contains("address: 0.0.0.0:80") && !text.contains("address: \"[::]"), "{text}");
            assert!(
                text.contains("[refused] bind ") && text.contains("`v4` serves IPv4 at this port"),
                "{text}"
            );
            assert!(text.contains("so IPv6 clients cannot connect use the same lines for"), "{text}");
        }
    }
    // A frontend that reads its own name is not the other one.
    let named = |bind: &str| format!("{}\n http-request set-header x-front %[fe_name]", to(bind, "b1"));
    let text = both("http", &named("*:80"), &named(":::80"));
    assert!(text.contains("`v4` serves IPv4 at this port, with other lines"), "{text}");
    // In one frontend, the settings of both must be the same.
    let text = both(
        "http",
        "bind *:443 ssl crt /a.pem\n bind :::443 ssl crt /b.pem\n default_backend b1",
        "bind :81",
    );
    assert!(
        text.contains("[refused] bind :::443 ssl") && text.contains("its settings differ from those"),
        "{text}"
    );
    let text = both("http", "bind 127.0.0.1:443\n bind :::443\n default_backend b1", "bind :81");
    assert!(text.contains("its frontend has one address of IPv4 at this port, too"), "{text}");
    assert!(text.contains("left out, so its clients cannot connect"), "{text}");
    // Alone, `v6only` keeps IPv4 out.
    let text = both("http", &to(":::80 v6only", "b1"), "bind :81");
    assert!(text.contains("[changed] bind :::80 v6only — HAProxy takes IPv6 only here"), "{text}");
}

/// `[::]` takes the clients of one IPv4 address, too, so a frontend for IPv6 alone must not take those of a guarded one.
#[test]
fn an_open_frontend_of_ipv6_does_not_take_clients_of_a_guarded_one() {
    for ipv6 in ["[::]:443 v6only", "[::0]:443 v6only", "::0:443", "[0:0:0:0:0:0:0:0]:443"] {
        for ipv4 in [":443", "10.0.0.1:443"] {
            let text = imported(&format!(
                "defaults\n mode http\n timeout client 30s\n timeout server 30s\nfrontend six\n bind {ipv6}\n \
                 default_backend b2\nfrontend four\n bind {ipv4}\n http-request deny unless {{ src 10.0.0.0/8 }}\n \
                 default_backend b1\n{BACKENDS}"
            ));
            assert!(!text.contains("address: \"[::"), "{ipv6} {ipv4}\n{text}");
            assert!(text.contains("10.0.0.0/8") && text.contains("[refused] bind "), "{ipv6} {ipv4}\n{text}");
            assert!(text.contains("`four` serves IPv4 at this port"), "{ipv6} {ipv4}\n{text}");
        }
    }
}
