//! Caddy's traps: places where the obvious translation is silently wrong. Each row is a source and what its import
//! must show, in the config or in the ledger.

#![allow(clippy::unwrap_used, reason = "this is test code: a panic is how a test fails")]

use weir_import::{Memory, import, system};

/// What is written and what the ledger says, in one text.
fn imported(source: &str) -> String {
    let files = Memory::of(&[("Caddyfile", source)]);
    let import = import(system("caddy").unwrap(), &files, &["Caddyfile".to_owned()]).unwrap();
    let mut text = String::new();
    for line in import.ledger.lines() {
        let why = line.why.join("; ");
        let nearest = line.nearest.join("; ");
        text.push_str(&format!("[{}] {} — {why} {nearest}\n", line.verdict.key(), line.text));
    }
    import.ledger.notes().iter().for_each(|note| text.push_str(&format!("[note] {note}\n")));
    for file in import.written().iter().filter(|file| file.path != "tests.yaml") {
        text.push_str(&format!("==> {}\n{}", file.path, file.text));
    }
    text
}

/// A site without TLS for any host.
fn site(body: &str) -> String {
    format!(":80 {{\n{body}\n}}\n")
}

const PROXY: &str = "reverse_proxy up:80";

/// Numbers and sources of traps, with what must be there. A text that begins with `!` must not.
fn traps() -> Vec<(&'static str, String, Vec<&'static str>)> {
    vec![
        (
            "1 the order of directives is fixed",
            site("reverse_proxy up:80\nredir /a /b\nheader X-A 1\nrespond /r hi"),
            vec!["redirect: { to: /b, status: 302", "respond: { body: hi }", "add: { x-a: \"1\" }"],
        ),
        ("2 paths ignore case", site("respond /Admin no 403"), vec!["path: /admin, case: insensitive"]),
        (
            "3 /x/* does not take /x",
            site("handle /x/* {\nreverse_proxy up:80\n}\nhandle {\nrespond rest\n}"),
            vec!["path: /x, case: insensitive", "/x/* of Caddy does not take /x", "path: \"/x/*\""],
        ),
        (
            "4 prefixes, suffixes, parts",
            site("respond /x* a\n@s path *.js\nrespond @s b\n@m path *mid*\nrespond @m c"),
            vec!["path: \"/x*\"", r"path: '~(?i).*\.js'", "path: \"~(?i).*mid.*\""],
        ),
        (
            "5 one kind is OR, kinds are AND, and not",
            site("@a {\npath /a /b\nmethod GET\nnot header X-No 1\n}\nrespond @a a\nrespond rest"),
            vec![
                "path: [/a, /b]",
                "methods: [GET]",
                "when: !request.headers[\"x-no\"].all().exists(v, v == \"1\")",
            ],
        ),
        (
            "6 handle blocks exclude one another",
            site(
                "handle {\nrespond all\n}\nhandle /a/* {\nheader X-A 1\nrespond a\n}\nhandle_path /b/* {\nreverse_proxy up:80\n}",
            ),
            vec!["path: \"/a/*\"", "path: \"/b/{rest*}\"", "rewrite: { path: \"/{rest}\" }", "body: all"],
        ),
        (
            "7 redir drops the query, {uri} holds it",
            site("redir /old /new\nredir /keep https://h.test{uri}"),
            vec![
                "redirect: { to: /new, status: 302, keep_query: false }",
                "redirect: { to: \"https://h.test{path}\", status: 302 }",
            ],
        ),
        (
            "8 302 by default, permanent is 301",
            site("redir /a /b permanent\nredir /c /d"),
            vec!["to: /b, status: 301", "to: /d, status: 302"],
        ),
        (
            "9 a site without a port has TLS, ACME and a redirect",
            format!("a.test {{\n{PROXY}\n}}\n"),
            vec![
                "acme: { domains: [a.test] }",
                "redirect: { to: \"https://{host}{path}\" }",
                "address: \"[::]:80\"",
            ],
        ),
        ("10 :80 has none", site(PROXY), vec!["web: { address: \"[::]:80\" }", "!acme", "!redirect"]),
        (
            "10 bind of one family is both",
            site("bind 0.0.0.0 [::]\nrespond x"),
            vec!["web: { address: \"[::]:80\" }", "!0.0.0.0:80", "!web-2", "as Caddy does"],
        ),
        (
            "11 header ops: set, default, delete, add, defer",
            site("header {\nX-S s\n?X-D d\n-X-R\n+X-A a\n}\nheader >X-L l\nreverse_proxy up:80"),
            vec![
                "x-d: '{= response.headers[\"x-d\"] ?? \"d\" }'",
                "remove: [x-r]",
                "add: { x-a: a }",
                "x-s: s",
                "x-l: l",
            ],
        ),
        (
            "11 an upstream's field is added to one that was set before",
            site("header X-S s\nreverse_proxy up:80"),
            vec!["response: { add: { x-s: s } }"],
        ),
        (
            "12 pages of handle_errors",
            site(
                "root * /srv\nhandle_errors {\n@404 expression {err.status_code} == 404\nrewrite @404 /404.html\nfile_server\n}\nfile_server",
            ),
            vec!["errors: { 404: { file: /srv/404.html } }"],
        ),
        (
            "12 redirects of handle_errors",
            site(
                "handle_errors 404 {\nredir https://help.example.com/?from={uri}\n}\nhandle_errors 5xx {\nredir * /sorry 303\n}\nreverse_proxy up:80",
            ),
            vec![
                "https://help.example.com/?from={path}",
                "[changed] redir https://help.example.com/?from={uri}",
                "5xx: { redirect: /sorry, status: 303 }",
                "[same] redir * /sorry 303",
            ],
        ),
        (
            "12 a permanent redirect of handle_errors",
            site("handle_errors {\nredir * /gone permanent\n}\nreverse_proxy up:80"),
            vec!["[refused] redir * /gone permanent"],
        ),
        (
            "12 a page with a status of its own",
            site("handle_errors 404 {\nrespond \"none\" 410\n}\nreverse_proxy up:80"),
            vec!["[changed] respond none 410", "404: { body: none"],
        ),
        (
            "12 a page that makes a success of an error",
            site("handle_errors 404 {\nrespond \"none\" 200\n}\nreverse_proxy up:80"),
            vec!["[refused] respond none 200"],
        ),
        (
            "12 a page with the status of the error",
            site("handle_errors 404 {\nrespond \"none\" {err.status_code}\n}\nreverse_proxy up:80"),
            vec!["body: none", "[same] respond"],
        ),
        (
            "13 X-Forwarded-* are replaced, Host is kept",
            site(
                "reverse_proxy up:80 {\nheader_up X-Forwarded-Proto {http.request.header.X-Forwarded-Proto}\nheader_up Host {host}\n}",
            ),
            vec!["[changed] header_up X-Forwarded-Proto", "[same] header_up Host", "!host: "],
        ),
        (
            "14 Host stays the client's for https upstreams",
            site("reverse_proxy https://up.test"),
            vec!["endpoints: [up.test:443]", "tls: {}", "!host: endpoint"],
        ),
        (
            "14 unless it says otherwise",
            site("reverse_proxy https://up.test {\nheader_up Host {upstream_hostport}\n}"),
            vec!["host: endpoint"],
        ),
        ("15 random, and no retries", site("reverse_proxy a:80 b:80"), vec!["balancer: random", "!retry"]),
        (
            "15 policies",
            site("reverse_proxy a:80 b:80 {\nlb_policy ip_hash\nlb_try_duration 5s\n}"),
            vec!["hash: { by: address }", "[changed] lb_try_duration"],
        ),
        (
            "16 passive checks",
            site("reverse_proxy a:80 b:80 {\nfail_duration 30s\nmax_fails 3\n}"),
            vec!["outlier: { window: 30s, eject: 30s, errors: 3 }", "[changed] fail_duration"],
        ),
        ("17 no timeout of the answer", site(PROXY), vec!["timeouts: { response: 0s }"]),
        (
            "18 nothing is buffered",
            site("reverse_proxy up:80 {\nflush_interval -1\n}"),
            vec!["[same] flush_interval -1"],
        ),
        (
            "19 encode",
            site("encode gzip zstd\nreverse_proxy up:80"),
            vec!["compress: { algorithms: [gzip, zstd], minimum: 512B }"],
        ),
        (
            "20 files that begin with a dot",
            site("root * /srv\nfile_server"),
            vec!["[changed] file_server — Weir serves no files whose names begin with a dot"],
        ),
        (
            "21 try_files of an application in the browser",
            site("root * /srv\ntry_files {path} {path}/ /index.html\nfile_server"),
            vec!["fallback: /index.html"],
        ),
        (
            "21 try_files that leads to a proxy",
            site("root * /srv\ntry_files {path} /app\nreverse_proxy up:80"),
            vec!["[refused] reverse_proxy", "CLOSED", "status: 503"],
        ),
        (
            "21 files, then an application",
            site("root * /srv\n@no not file\nreverse_proxy @no up:80\nfile_server"),
            vec!["missing: up"],
        ),
        (
            "22 php_fastcgi",
            site("root * /srv\nphp_fastcgi unix//run/php.sock\nfile_server"),
            vec!["fastcgi: { root: /srv }", "missing: php", "protocol: fastcgi", "unix:/run/php.sock"],
        ),
        ("23 root", site("root * /srv\nfile_server browse"), vec!["root: /srv", "browse: true"]),
        (
            "24 basicauth",
            site(
                "basicauth /in/* {\nbob $2a$14$Zkx19XLiW6VYouLHR5NmfOFU0z2GTNmpkT/5qqR7hx4IjWJPDhjvG\n}\nreverse_proxy up:80",
            ),
            vec![
                "basic_auth: { realm: restricted, hide: false }",
                "acl: { allow: [bob] }",
                "startsWith(\"/in/\")",
                "BASIC_AUTH_BOB",
                "[same] bob ***",
            ],
        ),
        (
            "24 other hashes close the route",
            site("basicauth scrypt {\nbob abc\n}\nreverse_proxy up:80"),
            vec!["[refused] basicauth scrypt", "CLOSED"],
        ),
        (
            "25 forward_auth sets fields of the question",
            site("forward_auth auth:9 {\nuri /verify\nheader_up X-Zone {host}\n}\nreverse_proxy up:80"),
            vec!["[changed] forward_auth", "set: { x-zone: \"{host}\" }"],
        ),
        (
            "25 forward_auth removes a field of the question",
            site("forward_auth auth:9 {\nuri /verify\nheader_up -X-Zone\n}\nreverse_proxy up:80"),
            vec!["[refused] forward_auth", "CLOSED"],
        ),
        (
            "25 forward_auth sends all fields",
            site(
                "forward_auth auth:9 {\nuri /verify\ncopy_headers Remote-User>X-User Remote-Groups\n}\nreverse_proxy up:80",
            ),
            vec![
                "[changed] forward_auth",
                "copy: [remote-user, remote-groups]",
                "x-user: '{= request.headers[\"remote-user\"] }'",
                "path: /verify",
            ],
        ),
        (
            "26 request_body",
            site("request_body {\nmax_size 10MB\n}\nreverse_proxy up:80"),
            vec!["body_limit: { max: 10000000B }"],
        ),
        ("27 respond", site("respond \"a {host}\" 418"), vec!["status: 418, body: \"a {host}\""]),
        (
            "28 placeholders",
            site(
                "header X-H {http.request.header.X-In}\nheader X-Q {query.a}\nheader X-E {env.WHO}\nheader X-T {time.now.unix}\nrespond ok",
            ),
            vec![
                "x-h: '{= request.headers[\"x-in\"] }'",
                "x-q: '{= request.args[\"a\"] }'",
                "x-e: \"${WHO:-}\"",
                "[refused]",
                "{time.now.unix}",
            ],
        ),
        (
            "29 map",
            site("map {path} {kind} {\n/a/* text\n~^/b b\ndefault other\n}\nheader X-K {kind}\nrespond ok"),
            vec!["kind: { of: request.path", "\"~/b.*\": b", "default: other", "{= maps.kind }"],
        ),
        (
            "30 snippets with arguments, and variables",
            "(s) {\nreverse_proxy {args[0]}:{args.1}\n}\n{$SITE:http://a.test} {\nimport s up 8080\n}\n"
                .to_owned(),
            vec![
                "endpoints: [up:8080]",
                "hosts: [a.test]",
                "[note] SITE comes from the environment",
                "!acme",
            ],
        ),
        (
            "31 log of a site",
            site("log\nrespond ok"),
            vec!["access_log:", "[changed] log — Weir has one access log"],
        ),
        (
            "32 encode asks the upstream for a coding",
            site("encode gzip\nreverse_proxy up:80"),
            vec!["[changed] encode gzip — Weir asks the upstream for a coding only if the client does"],
        ),
        (
            "32 Caddy 1",
            site("proxy / up:80 {\ntransparent\n}\ngzip"),
            vec!["[refused] proxy / up:80 — `proxy` is of Caddy 1", "[refused] transparent", "CLOSED"],
        ),
        (
            "an unknown directive closes the site, and its words may be secrets",
            site("jwt_guard hunter22 {\nkey hunter23\n}\nreverse_proxy up:80"),
            vec!["[refused] jwt_guard ***", "[refused] key ***", "CLOSED", "!hunter"],
        ),
        (
            "uri strip_prefix ignores case where the route is another",
            site(
                "@a path /Api/* /v1/*\nroute @a {\nuri strip_prefix /Api\nrewrite /new{path}\nuri strip_prefix /New\nreverse_proxy up:80\n}",
            ),
            vec!["rewrite: { replace: { \"(?i)^/new(?:/|$)\": / } }", "!strip_prefix:"],
        ),
        (
            "uri path_regexp",
            site("uri path_regexp ^/old/(.*)$ /new/$1\nreverse_proxy up:80"),
            vec!["[same] uri path_regexp", "rewrite: { replace: { \"^/old/(.*)$\": /new/$$1 } }"],
        ),
        (
            "uri path_regexp that may match twice",
            site("uri path_regexp a b\nreverse_proxy up:80"),
            vec!["[refused] uri path_regexp a b — Weir replaces the first match", "CLOSED"],
        ),
        (
            "slashes are merged",
            site("uri path_regexp /{2,} /\nreverse_proxy up:80"),
            vec!["[same] uri path_regexp", "!CLOSED"],
        ),
        (
            "Caddy listens on IPv6",
            site("respond ok"),
            vec!["on a machine without IPv6, write `0.0.0.0:PORT`"],
        ),
        (
            "a guard by a field cannot be avoided by sending the field twice",
            site("@bad header X-Bad yes\nrespond @bad 403\nreverse_proxy up:80"),
            vec!["when: request.headers[\"x-bad\"].all().exists(v, v == \"yes\")", "!headers: {"],
        ),
        (
            "nor by a parameter that is sent twice",
            site("@bad query debug=1\nrespond @bad 403\nreverse_proxy up:80"),
            vec!["when: request.args[\"debug\"].all().exists(v, v == \"1\")", "!query: {"],
        ),
        (
            "the presence of a field is no matter of its values",
            site("@bad header X-Bad *\nrespond @bad 403\nreverse_proxy up:80"),
            vec!["headers: { x-bad: \"*\" }"],
        ),
        (
            "several parameters: any in Caddy 2.6, all in 2.7",
            site("@q query a=1 b=2\nrespond @q 403\nreverse_proxy up:80"),
            vec!["[changed] @q query a=1 b=2 — Weir asks for all these parameters, as Caddy since 2.7"],
        ),
        (
            "several parameters within not and braces",
            site("@q {\nnot {\nquery a=1\nquery b=2\n}\n}\nrespond @q 403\nreverse_proxy up:80"),
            vec!["[changed] @q — Weir asks for all these parameters"],
        ),
        (
            "a placeholder in a value is no text",
            site("@q header X-Key {http.request.header.X-Other}\nrespond @q no 403\nreverse_proxy up:80"),
            vec!["[refused]", "the value `{http.request.header.X-Other}` is not fixed", "CLOSED"],
        ),
        (
            "a variable of the environment in a value",
            site("@q header X-Key {env.KEY}\nrespond @q no 403\nreverse_proxy up:80"),
            vec!["exists(v, v == \"${KEY:-}\")"],
        ),
        (
            "a variable of the environment in a body",
            site("respond \"hi {env.WHO}\""),
            vec!["body: \"hi ${WHO:-}\""],
        ),
        (
            "an unknown matcher closes what it decides",
            site("@x geoip DE\nrespond @x no 403\nreverse_proxy up:80"),
            vec!["[refused] @x geoip DE", "CLOSED"],
        ),
        (
            "a guard behind a matcher stays behind it",
            site("@out not remote_ip 10.0.0.0/8\nrespond @out 403\nreverse_proxy up:80"),
            vec!["when: '!(client.ip in [\"10.0.0.0/8\"])'", "status: 403"],
        ),
        (
            "a rewrite changes what later matchers see",
            site("rewrite /a /b\nrespond /b from-b\nrespond other"),
            vec!["path: [/a, /b], case: insensitive }, respond: { body: from-b }"],
        ),
        (
            "what was not matched before a rewrite may match behind it",
            site("redir /b /c\nrewrite /a /b\nrespond /b from-b\nrespond other"),
            vec!["path: /a, case: insensitive }, respond: { body: from-b }", "to: /c"],
        ),
        (
            "a host that no site has gets 200",
            "http://a.test {\nrespond a\n}\n".to_owned(),
            vec!["unknown: { respond: {} }"],
        ),
        (
            "expressions",
            site("@e expression `{method} == \"GET\" && path('/x/*')`\nrespond @e e\nrespond r"),
            vec!["request.method == \\\"GET\\\" && (request.path.lowerAscii().startsWith(\\\"/x/\\\"))"],
        ),
    ]
}

#[test]
fn every_trap_is_told_or_translated() {
    let mut wrong = Vec::new();
    for (name, source, musts) in traps() {
        let text = imported(&source);
        // One spelling for what YAML may quote in either way, and no line breaks that a width makes.
        let plain = |text: &str| text.replace("\\\"", "\"").replace("''", "'").replace(['\'', '"'], "");
        let flat = plain(&text);
        for must in musts {
            let found = match must.strip_prefix('!') {
                Some(not) if !not.starts_with('(') => !flat.contains(&plain(not)),
                _ => flat.contains(&plain(must)),
            };
            if !found {
                wrong.push(format!("{name}: {must}\n{text}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{} are wrong\n{}", wrong.len(), wrong.join("\n----\n"));
}

#[test]
fn secrets_leave_the_files_that_anybody_reads() {
    let source = site(
        "@key header X-Api-Key letmein99\nrespond @key yes\nredir /cb https://h.test/?access_token=tok4567\n\
         reverse_proxy up:80 {\nheader_up Authorization \"Basic Ym9iOnNlY3JldA==\"\nheader_up X-Db-Password hunter22\n}",
    );
    let files = Memory::of(&[("Caddyfile", &source)]);
    let import = import(system("caddy").unwrap(), &files, &["Caddyfile".to_owned()]).unwrap();
    let secrets = ["letmein99", "tok4567", "Ym9iOnNlY3JldA==", "hunter22"];
    for file in import.written().iter().filter(|file| !file.is_secret) {
        for secret in secrets {
            assert!(!file.text.contains(secret), "{} is for anybody: {}", file.path, file.text);
        }
    }
    let env = import.written().into_iter().find(|file| file.path == "secrets.env").unwrap();
    for secret in &secrets[1..] {
        assert!(env.text.contains(secret), "{secret}: {}", env.text);
    }
    let report = format!("{}{}", import.to_text(), import.to_json());
    for secret in secrets {
        assert!(!report.contains(secret), "{secret}: {report}");
    }
}

/// `weir check` refuses the later of two listeners that share a port: the public sites stay.
#[test]
fn a_listener_for_all_addresses_is_written_before_one_address() {
    let text = imported(
        "http://a.test {\nbind 127.0.0.1\nrespond internal\n}\nhttp://b.test {\nrespond public\n}\n",
    );
    let at = |address: &str| text.find(&format!("address: {address}")).unwrap();
    assert!(at("\"[::]:80\"") < at("127.0.0.1:80"), "{text}");
}

#[test]
fn json_is_read_as_the_same() {
    let json = r#"{"apps":{"http":{"servers":{"srv0":{"listen":[":80"],"routes":[
        {"match":[{"path":["/a/*"]}],"handle":[{"handler":"reverse_proxy","upstreams":[{"dial":"up:80"}]}]},
        {"handle":[{"handler":"static_response","status_code":404,"body":"none"}]}]}}}}}"#;
    let text = imported(json);
    for must in
        ["path: \"/a/*\"", "endpoints: [\"up:80\"]", "status: 404, body: none", "path: /a, case: insensitive"]
    {
        assert!(text.replace('"', "").contains(&must.replace('"', "")), "{must}\n{text}");
    }
}

#[test]
fn hostile_files_end() {
    let looping = "(a) {\nimport b\n}\n(b) {\nimport a\n}\n:80 {\nimport a\n}\n";
    let files =
        Memory::of(&[("Caddyfile", looping), ("self", "import self\n"), ("open", ":80 {\nrespond \"x\n}\n")]);
    for (name, why) in
        [("Caddyfile", "nested more than"), ("self", "imports itself"), ("open", "nothing closes")]
    {
        let error = import(system("caddy").unwrap(), &files, &[name.to_owned()]).err().unwrap();
        assert!(error.message.contains(why), "{name}: {}", error.message);
    }
    let doubling: String =
        (0..40).map(|n| format!("(s{n}) {{\nimport s{}\nimport s{}\n}}\n", n + 1, n + 1)).collect();
    let files =
        Memory::of(&[("Caddyfile", &format!("{doubling}(s40) {{\nheader A b\n}}\n:80 {{\nimport s0\n}}\n"))]);
    assert!(import(system("caddy").unwrap(), &files, &["Caddyfile".to_owned()]).is_err());
}

/// What stands behind a line that was not imported is kept for the person who takes the closing filter out.
#[test]
fn a_closed_route_keeps_what_stands_behind() {
    let guards = [
        "frobnicate on",
        "basicauth scrypt {\nbob abc\n}",
        "forward_auth auth:9 {\nuri /{path}\n}",
        "@odd frobnicate x\nrespond @odd no 403",
    ];
    for guard in guards {
        let body = format!("{guard}\nheader X-A 1\nreverse_proxy up:80 {{\nheader_up X-B 2\n}}");
        let text = imported(&site(&body));
        let (closed, set, upstream) =
            (text.find("CLOSED"), text.find("x-b: \"2\""), text.find("    upstream: up"));
        assert!(text.contains("[refused]") && closed.is_some(), "{guard}\n{text}");
        assert!(closed < set && set < upstream && text.contains("x-a: \"1\""), "{guard}\n{text}");
    }
    // What would have answered leaves nothing to those behind it.
    let text = imported(&site("metrics /metrics\nreverse_proxy up:80"));
    assert!(text.contains("CLOSED") && text.contains("respond: { status: 404 }"), "{text}");
}

/// A field that Caddy removes by a part of its name, or changes in part, does not pass as the client sent it.
#[test]
fn fields_are_removed_by_a_part_of_their_names() {
    for (line, told, written) in [
        ("header_up -X-Int-*", "[same]", "remove: [\"x-int-*\"]"),
        ("header_up -*-Token", "[same]", "remove: [\"*-token\"]"),
        ("header_up -X-*", "[changed]", "remove: [\"x-*\"]"),
        ("header_up X-Role ^admin$ user", "[refused]", "remove: [x-role]"),
    ] {
        let text = imported(&site(&format!("reverse_proxy up:80 {{\n{line}\n}}")));
        assert!(text.contains(&format!("{told} {line}")) && text.contains(written), "{line}\n{text}");
        let line = line.replace("header_up", "request_header");
        let text = imported(&site(&format!("{line}\nreverse_proxy up:80")));
        assert!(text.contains(&line) && text.contains(written), "{line}\n{text}");
    }
}

/// A field that Caddy overwrites, with a value that Weir lacks, does not reach the upstream as the client sent it.
#[test]
fn refused_identity_fields_are_withheld() {
    for body in [
        "request_header X-Who {http.request.uuid}\nreverse_proxy up:80",
        "reverse_proxy up:80 {\nheader_up X-Who {http.request.uuid}\n}",
    ] {
        let text = imported(&site(body));
        assert!(text.contains("[refused]") && text.contains("remove: [x-who]"), "{body}\n{text}");
    }
    let text = imported(&site("reverse_proxy up:80 {\nheader_up X-Who {http.auth.user.id}\n}"));
    assert!(text.contains("set: { x-who: \"{consumer}\" }"), "{text}");
}
