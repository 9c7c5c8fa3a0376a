//! nginx's traps: places where the obvious translation is silently wrong. Each row is a source and what its import
//! must show, in the config or in the ledger.

#![allow(clippy::unwrap_used, reason = "this is test code: a panic is how a test fails")]

mod guards;

use weir_import::{Memory, import, system};

/// What is written and what the ledger says, in one text.
fn imported(http: &str) -> String {
    let files = Memory::of(&[("nginx.conf", http)]);
    let import = import(system("nginx").unwrap(), &files, &["nginx.conf".to_owned()]).unwrap();
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

fn server(body: &str) -> String {
    format!("server {{ listen 80; server_name a.test; {body} }}")
}

const PASS: &str = "proxy_pass http://127.0.0.1:8080;";

/// `weir check` refuses a listener for each family, so one serves both, and the report says what that changes.
#[test]
fn both_families_share_a_listener() {
    let text = imported(
        "server { listen 80 default_server; listen [::]:80 default_server; return 200 a; }
         server { listen 80; server_name b.test; return 200 b; }
         server { listen 443 ssl http2; listen [::]:443 ssl; server_name b.test; ssl_certificate /c; \
                  ssl_certificate_key /k; return 200 c; }",
    );
    assert!(
        text.contains("web: { address: \"[::]:80\" }") && text.contains("address: \"[::]:443\""),
        "{text}"
    );
    assert!(!text.contains("0.0.0.0") && !text.contains("web-2"), "{text}");
    assert!(text.contains("[changed] listen 80 — Weir has one listener for both families"), "{text}");
    // The default server of IPv6 alone loses the unknown hosts.
    let text = imported(
        "server { listen 80; return 200 a; } server { listen [::]:80 default_server; return 200 b; }",
    );
    assert!(text.contains("unknown hosts go to the default server of IPv4"), "{text}");
    // Either `listen` may have the word for the server, here HTTP/2.
    let text = imported(
        "server { listen 80; listen [::]:80 http2; server_name a.test; return 200 a; }
         server { listen [::]:80; listen 80 http2; server_name b.test; return 200 b; }",
    );
    assert!(text.contains("[::]:80") && text.contains("h2") && !text.contains("0.0.0.0"), "{text}");
}

/// If the two differ, the import takes IPv4, and the report says what to do for IPv6.
#[test]
fn families_that_differ_leave_ipv6_out() {
    let cases = [
        ("listen 443 ssl; listen [::]:443", "IPv4 has TLS (`ssl`) at this port and IPv6 has not"),
        ("listen [::]:443 ssl; listen 443", "IPv6 has TLS (`ssl`) at this port and IPv4 has not"),
        ("listen 443; listen [::]:443 http2", "`http2` is on for one family"),
        ("listen 443 proxy_protocol; listen [::]:443", "`proxy_protocol` is on for one family"),
    ];
    for (listens, why) in cases {
        let text = imported(&format!(
            "server {{ {listens}; ssl_certificate /c; ssl_certificate_key /k; return 200 a; }}"
        ));
        assert!(text.contains("address: 0.0.0.0:443") && !text.contains("address: \"[::]:443\""), "{text}");
        assert!(text.contains("[refused] listen [::]:443") && text.contains(why), "{text}");
        assert!(text.contains("so IPv6 clients cannot connect write the same options in both"), "{text}");
    }
    // This leaves a server on IPv6 alone without an address: its routes must not go to all listeners.
    let text = imported(
        "server { listen 80; return 200 four; }
         server { listen [::]:80 http2; server_name b.test; return 200 six; }",
    );
    assert!(text.contains("[refused] server") && !text.contains("body: six"), "{text}");
}

/// Joined, the first server of a name would take the clients of both families.
#[test]
fn a_name_with_a_server_for_each_family_keeps_that_of_ipv4() {
    let guarded = "allow 10.0.0.0/8; deny all; return 200 guarded;";
    for (ipv6, ipv4) in [("[::]:80", "80"), ("[::]:80", "10.0.0.1:80")] {
        let text = imported(&format!(
            "server {{ listen {ipv6}; server_name a.test; return 200 open; }}
             server {{ listen {ipv4}; server_name a.test; {guarded} }}"
        ));
        assert!(!text.contains("address: \"[::]") && !text.contains("body: open"), "{text}");
        assert!(text.contains("[refused] listen [::]:80") && text.contains("body: guarded"), "{text}");
        assert!(text.contains("let the same servers listen for both families and import again"), "{text}");
    }
    // Other names do not matter, and neither does a second server that nginx ignores.
    let text = imported(
        "server { listen 80; listen [::]:80; server_name a.test; return 200 a; }
         server { listen 80; server_name b.test; return 200 b; }
         server { listen [::]:80; server_name c.test a.test; return 200 c; }",
    );
    assert!(text.contains("address: \"[::]:80\"") && !text.contains("[refused]"), "{text}");
}

/// Whoever binds IPv6 alone may rely on it to keep clients of IPv4 out.
#[test]
fn a_server_for_ipv6_alone_is_told_to_take_both() {
    let told = |listen: &str| imported(&format!("server {{ listen {listen}; return 200 a; }}"));
    let why = "takes clients of IPv4 too";
    assert!(told("[::]:80").contains(why) && told("[::]:80 ipv6only=on").contains(why));
    assert!(!told("[::]:80 ipv6only=off").contains(why) && !told("80").contains(why));
    assert!(!told("80; listen [::]:80").contains(why) && !told("[::1]:80").contains(why));
}

/// nginx puts a decoded `&`, `#` or space of the path into the query as it is; Weir's filter would escape it.
#[test]
fn a_query_made_of_the_path_is_closed() {
    for pass in ["/path?x=$1", "/path?x=$1&$args", "/path?x=$1&y=2", "/p?$1"] {
        let text = imported(&server(&format!("location ~ ^/a/(.*)$ {{ proxy_pass http://up{pass}; }}")));
        assert!(text.contains("puts the variable into the query unescaped"), "{pass}: {text}");
        assert!(text.contains("[refused] proxy_pass") && text.contains("status: 503"), "{pass}: {text}");
        assert!(!text.contains("upstream: up"), "{pass}: {text}");
    }
    // The client's own query follows as it is.
    let text = imported(&server("location ~ ^/a/(.*)$ { proxy_pass http://up/b/$1$is_args$args; }"));
    assert!(text.contains("rewrite: { path: \"/b/{1}\" }") && !text.contains("[refused]"), "{text}");
}

/// The host that scripts see is the client's, or one made of it.
#[test]
fn scripts_see_the_host_that_nginx_names() {
    let told = |value: &str| {
        imported(&server(&format!(
            "location / {{ root /srv; fastcgi_pass php:9000; fastcgi_param HTTP_HOST {value}; }}"
        )))
    };
    for (value, wanted) in [
        ("$host", "rewrite: { host: \"{= request.host }\" }"),
        ("$host:$server_port", "rewrite: { host: \"{= request.host }:80\" }"),
        ("shop.test", "HTTP_HOST: shop.test"),
        ("$server_name", "HTTP_HOST: a.test"),
    ] {
        let text = told(value);
        assert!(text.contains(wanted) && !text.contains("[refused]"), "{value}: {text}");
    }
    let text = told("$http_host");
    assert!(text.contains("[same] fastcgi_param HTTP_HOST $http_host — Weir sets it"), "{text}");
    // Variables may be empty, and then nginx sends an empty HTTP_HOST.
    for value in ["$http_x_host", "$host$uri", "x$host"] {
        let text = told(value);
        assert!(text.contains("[refused] fastcgi_param") && !text.contains("rewrite"), "{value}: {text}");
    }
}

/// Numbers and sources of traps within a server, with what must be there.
fn traps() -> Vec<(&'static str, String, Vec<&'static str>)> {
    let pass = |path: &str| format!("location {path} {{ {PASS} }}");
    let own = |line: &str| format!("location / {{ {line} {PASS} }}");
    let all = "location / { return 200 root; }";
    vec![
        (
            "1 searching regexes",
            format!(r"{} {}", pass(r"~ \.php"), pass("~ (/x)?/api")),
            vec![r"~.*\.php.*", "~.*(/x)?/api.*"],
        ),
        (
            "2 ^~ stops regexes",
            format!("{} {}", pass("^~ /p"), pass(r"~ \.php$")),
            vec!["path: \"/p*\" }, priority: 10000"],
        ),
        (
            "3 regexes in file order",
            format!("{} {}", pass("~ a"), pass("~ b")),
            vec!["\"~.*a.*\" }, priority: 2", "\"~.*b.*\" }, priority: 1"],
        ),
        ("4 raw prefixes", pass("/p"), vec!["path: \"/p*\""]),
        (
            "5 /p/ does not hold /p",
            format!("location /p/ {{ return 200 p; }} {all}"),
            vec!["# /p/ does not take /p.", "path: /p }"],
        ),
        (
            "6 /p/ with proxy_pass redirects /p",
            pass("/p/"),
            vec!["path: /p }", "redirect: { to: /p/, status: 301 }"],
        ),
        (
            "7 nested locations",
            format!(
                r"location /o/ {{ {PASS} location ~ \.js$ {{ return 200 js; }} }} location /o/x/ {{ return 200 x; }}"
            ),
            vec![r"~/o/.*\.js", "!request.path.startsWith(\"/o/x/\")"],
        ),
        (
            "11 a variable sends the path as it came",
            own("set $u 127.0.0.1; proxy_pass http://$u:9;").replace(PASS, ""),
            vec!["endpoints: [127.0.0.1:9]"],
        ),
        (
            "12 the prefix is replaced",
            "location /a/ { proxy_pass http://127.0.0.1/b/; } location /c { proxy_pass http://127.0.0.1/d/; } location /e/ { proxy_pass http://127.0.0.1/f; }".to_owned(),
            vec![
                "strip_prefix: /a, add_prefix: /b",
                "nginx sends `/d//x` for `/c/x`",
                "[refused] proxy_pass http://127.0.0.1/f",
                "CLOSED",
            ],
        ),
        (
            "13 rewrite break",
            own("rewrite ^/(.*)$ /v1/$1 break;"),
            vec!["rewrite: { path: \"/v1{path}\" }", "[changed] rewrite"],
        ),
        (
            "13 rewrite last stays in its location",
            own("rewrite ^/old/(.*)$ /new/$1 last; rewrite ^/gone /new;"),
            vec![
                "[changed] rewrite ^/old/(.*)$ /new/$1 last",
                "rewrite: { replace: { \"^/old/(.*)$\": \"/new/{1}\" } }",
                "rewrite: { replace: { \"^/gone.*$\": /new } }",
            ],
        ),
        (
            "13 rewrite last to another location",
            format!("location /wiki/ {{ rewrite ^/wiki/(.*)$ /w/index.html?title=$1 last; }} \
                location /blog {{ rewrite ^/blog/([0-9]+)$ /posts/$1 last; return 404; }} \
                location /posts/ {{ proxy_set_header X-Post 1; proxy_pass http://127.0.0.1:9090/p/; }} {}", pass("/")),
            vec![
                "[changed] rewrite ^/wiki/(.*)$",
                "path: \"~/wiki/(.*)\"",
                "\"^/wiki/(.*)$\": /w/index.html",
                "query: { set: { title: \"{1}\" } }",
                "path: \"~/blog/([0-9]+)\"",
                "\"^/blog/([0-9]+)$\": \"/posts/{1}\"",
                "strip_prefix: /posts, add_prefix: /p",
            ],
        ),
        (
            "13 rewrite last of the server",
            format!("rewrite ^/old/(.*)$ /new/$1 last; location = /old/exact {{ return 200 x; }} {} {}", pass("/new/"), all),
            vec![
                "path: \"~/old/(.*)\" }\n    priority: 200001",
                "path: \"~/old/exact\" }\n    priority: 100000",
                "\"^/old/(.*)$\": \"/new/{1}\"",
            ],
        ),
        (
            "13 rewrite last in an if",
            format!("location / {{ if ($http_x_beta = 1) {{ rewrite ^ /beta.html last; }} {PASS} }} \
                location = /beta.html {{ internal; root /srv; }}"),
            vec!["when: 'request.headers[\"x-beta\"] == \"1\"'", "rewrite: { path: /beta.html }"],
        ),
        (
            "13 a regex in between",
            format!(r"location / {{ rewrite ^/old/(.*)$ /new/$1 last; {PASS} }} location ~ ^/.*w {{ return 200 n; }}"),
            vec![r"[refused] rewrite ^/old/(.*)$ /new/$1 last — of the new paths `~ ^/.*w` may take some"],
        ),
        (
            "13 a regex for the end decides by the old path",
            format!(r"rewrite ^/old/(.*)$ /new/$1 last; {} location ~ \.png$ {{ return 200 png; }}", pass("/")),
            vec![
                "path: \"~/old/(.*)\", when: 'request.path.matches(\"\\\\.png$$\")' }\n    priority: 200002",
                "path: \"~/old/(.*)\" }\n    priority: 200001",
            ],
        ),
        (
            "13 a rewrite of a rewritten path",
            own("rewrite ^/a /b; rewrite ^/b /c last;") + "location /l { rewrite ^/l/(.*)$ /l/x/$1 last; }",
            vec![
                "[refused] rewrite ^/a /b — without a flag",
                "[refused] rewrite ^/l/(.*)$ /l/x/$1 last — the location of the new path rewrites it again",
            ],
        ),
        (
            "13 rewrites keep to their location",
            format!("location /p {{ rewrite ^/p/(.*)$ /q/$1 redirect; {PASS} }} location /p/deep {{ {PASS} }} \
                location ~ \\.php$ {{ rewrite ^/x/(.*)$ /y/$1 redirect; {PASS} }}"),
            vec![
                "path: \"~/p/(.*)\", when: '!request.path.startsWith(\"/p/deep\")'",
                "path: \"~/x/(.*)\", when: 'request.path.matches(\"\\\\.php$$\")' }\n    priority: 2",
                "path: '~.*\\.php', when: 'request.path.startsWith(\"/\")' }\n    priority: 1",
            ],
        ),
        (
            "13 the path of an exact location is known",
            format!(r"location = /a/7 {{ rewrite ^/a/(\d+)$ /b/$1 break; rewrite ^/z /y break; {PASS} }}"),
            vec!["rewrite: { path: /b/7 }", "[left_out] rewrite ^/z /y break"],
        ),
        (
            "27 satisfy any",
            format!("location /a {{ satisfy any; allow 10.0.0.0/8; deny all; auth_request /auth; {PASS} }} \
                location /b {{ satisfy any; deny 10.0.0.0/8; auth_request /auth; {PASS} }} \
                location /c {{ satisfy any; deny 192.0.2.7; allow all; auth_request /auth; {PASS} }} \
                location /d {{ satisfy any; deny all; auth_request /auth; {PASS} }} \
                location /e {{ satisfy any; deny 10.1.0.0/16; allow 10.0.0.0/8; auth_request /auth; {PASS} }} \
                location = /auth {{ internal; {PASS} }}"),
            vec![
                "[same] satisfy any",
                "- ip: { allow: [10.0.0.0/8] }",
                "- ip: { deny: [192.0.2.7] }",
                "- ip: { allow: [10.0.0.0/8], deny: [10.1.0.0/16] }",
            ],
        ),
        (
            "lists of paths",
            format!("{} {} location /c {{ return 200 c; }}", pass("/a"), pass("= /b")),
            vec!["path: [\"/a*\", /b]"],
        ),
        (
            "36 error_page with a redirect",
            own("error_page 401 = @login; error_page 403 https://h.test/no; error_page 404 =303 /x; proxy_intercept_errors on;") +
                "location @login { return 302 https://id.test/?rd=$scheme://$host$request_uri; } location /x { return 303 /y; }",
            vec![
                "[same] error_page 401 = @login",
                "https://id.test/?rd=http://{host}{=",
                "\"403\": { redirect: https://h.test/no }",
                "\"404\": { redirect: /y, status: 303 }",
                "upstream: [401, 403, 404]",
            ],
        ),
        (
            "36 error_page with a page of an upstream",
            own("error_page 502 /sorry.html; error_page 404 =200 /sorry.html; error_page 403 @other;") +
                "location = /sorry.html { proxy_pass http://127.0.0.1:9000/pages/sorry.html; } \
                 location @other { proxy_pass http://127.0.0.1:9001; }",
            vec![
                "[changed] error_page 502 /sorry.html — Weir asks for the page with GET",
                "[refused] error_page 404 =200 /sorry.html — a page with another status",
                "\"502\": { upstream: 127.0.0.1-9000, path: /pages/sorry.html }",
                "\"403\": { upstream: 127.0.0.1-9001, path: \"{path}\" }",
            ],
        ),
        (
            "36 error_page with the text of a return",
            own("error_page 403 @no; error_page 404 = @gone; error_page 500 =503 @later; error_page 401 = @no;") +
                "location @no { default_type application/json; return 200 '{\"sorry\":\"{path}\"}'; } \
                 location @gone { return 404 gone; } location @later { return 503 later; }",
            vec![
                "[same] error_page 403 @no",
                "[same] error_page 404 = @gone",
                "[refused] error_page 500 =503 @later — a page with another status",
                "[refused] error_page 401 = @no — a page with another status than the error's errors: { 401: { redirect",
                "\"403\": { body: '{\"sorry\":\"{{path}}\"}', type: application/json }",
                "\"404\": { body: gone, type: text/plain }",
            ],
        ),
        (
            "14 the query follows a rewrite",
            "rewrite ^/o/(.*)$ /n/$1 permanent; rewrite ^/q$ /r? redirect;".to_owned() + all,
            vec![
                "redirect: { to: \"/n/{1}\", status: 301 }",
                "redirect: { to: /r, status: 302, keep_query: false }",
            ],
        ),
        (
            "14 to https behind a trusted proxy, without an exception for its requests",
            "set_real_ip_from 10.0.0.0/8; real_ip_header X-Forwarded-For; \
             location / { return 301 https://$host$request_uri; }"
                .to_owned(),
            vec!["redirect: { to: \"https://{host}{path}\", status: 301 }"],
        ),
        ("15 Host is $proxy_host", pass("/"), vec!["host: endpoint"]),
        (
            "16 Host $host loses the port",
            own("proxy_set_header Host $host;"),
            vec!["[changed] proxy_set_header Host $host"],
        ),
        (
            "17 X-Forwarded-For of strangers",
            own("proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;"),
            vec!["[changed] proxy_set_header X-Forwarded-For"],
        ),
        (
            "18 X-Forwarded-Proto of strangers",
            own("proxy_set_header X-Forwarded-Proto $http_x_forwarded_proto;"),
            vec!["[changed] proxy_set_header X-Forwarded-Proto"],
        ),
        (
            "19 set_real_ip_from",
            "set_real_ip_from 10.0.0.0/8; real_ip_header X-Forwarded-For; ".to_owned() + &pass("/"),
            vec!["trusted_proxies: [10.0.0.0/8]", "[same] real_ip_header"],
        ),
        (
            "19 another field",
            "set_real_ip_from 10.0.0.0/8; real_ip_header CF-Connecting-IP; ".to_owned() + &pass("/"),
            vec!["[refused] real_ip_header CF-Connecting-IP"],
        ),
        ("20 no X-Forwarded at all", pass("/"), vec!["[note] Weir tells upstreams about the client"]),
        (
            "21 add_header is inherited whole or not at all",
            format!("add_header A 1 always; location /in {{ add_header B 2 always; {PASS} }} {}", pass("/")),
            vec![
                "path: \"/in*\" }\n    filters: [ { headers: { response: { add: { b: \"2\" } } } } ]",
                "add: { a: \"1\" }",
            ],
        ),
        (
            "22 add_header without always",
            own("add_header A 1;"),
            vec!["[changed] add_header A 1 — Weir adds the field to errors too"],
        ),
        ("23 bodies of 1 MB", pass("/"), vec!["body_bytes: 1MiB"]),
        (
            "23 bodies differ",
            format!(
                "client_max_body_size 10m; {} location /big {{ client_max_body_size 0; {PASS} }}",
                pass("/")
            ),
            vec!["body_limit: { max: 10MiB }"],
        ),
        ("24 25 timeouts of 60 s", pass("/"), vec!["timeouts: { connect: 60s, response: 60s }"]),
        (
            "25 timeouts",
            own("proxy_connect_timeout 3s; proxy_read_timeout 5m;"),
            vec!["timeouts: { response: 300s, body: 300s }"],
        ),
        (
            "27 request buffering",
            own("proxy_request_buffering on;"),
            vec!["[same] proxy_request_buffering on — Weir streams bodies"],
        ),
        (
            "30 31 limit_req",
            format!("location / {{ limit_req zone=z burst=5; {PASS} }}"),
            vec![
                "rate_limit: { requests: 10, per: 1s, burst: 6, by: address",
                "nginx delays requests of the burst",
                "Weir refuses with 429",
            ],
        ),
        (
            "32 relative redirects",
            "return 301 /x;".to_owned(),
            vec!["[changed] return 301 /x — Location is the path alone"],
        ),
        (
            "33 the query is dropped",
            "return 301 https://h.test/x;".to_owned(),
            vec!["to: https://h.test/x, status: 301, keep_query: false"],
        ),
        (
            "33 the query is kept",
            "return 301 https://h.test$request_uri;".to_owned(),
            vec!["to: \"https://h.test{path}\", status: 301 }"],
        ),
        (
            "a redirect by a field of a balancer would not end",
            format!("if ($http_x_forwarded_proto != \"https\") {{ return 301 https://$host$request_uri; }} {all}"),
            vec!["[refused] if ($http_x_forwarded_proto != https )", "trusted_proxies", "CLOSED"],
        ),
        (
            "34 35 auth_request",
            format!("location = /auth {{ internal; proxy_pass_request_body off; proxy_set_header Content-Length \"\"; \
                proxy_set_header X-Original-URI $request_uri; {PASS} }} \
                location / {{ auth_request /auth; auth_request_set $u $upstream_http_x_user; proxy_set_header X-User $u; {PASS} }}"),
            vec![
                "[changed] auth_request /auth — the service sees the host that the client asked for",
                "[same] proxy_set_header X-Original-URI $request_uri",
                "upstream: 127.0.0.1-8080\n          path: /auth\n",
                "copy_request: all",
                "copy: [x-user]",
                "x-original-uri:",
                "answers: nginx",
            ],
        ),
        (
            "24 cookies' flags, paths and domains",
            own("proxy_cookie_flags session secure httponly samesite=strict; proxy_cookie_flags ~ secure; \
                proxy_cookie_flags late httponly; proxy_cookie_path /app/ /; proxy_cookie_domain old.test new.test;"),
            vec![
                "[left_out] proxy_cookie_flags late",
                "session:\n            secure: true\n            http_only: true\n            same_site: strict\n",
                "\"*\": { secure: true, path: { /app/: / }, domain: { old.test: new.test } }",
            ],
        ),
        (
            "24 flags behind a path",
            own("proxy_cookie_path / \"/; HTTPOnly; Secure; SameSite=Lax\";"),
            vec!["cookies: { \"*\": { secure: true, http_only: true, same_site: lax } }"],
        ),
        (
            "24 cookies by a regex",
            own("proxy_cookie_flags ~^s secure; proxy_cookie_path ~/a /b; proxy_cookie_domain x $host;"),
            vec![
                "[refused] proxy_cookie_flags ~^s",
                "[refused] proxy_cookie_path ~/a",
                "[refused] proxy_cookie_domain x $host",
            ],
        ),
        (
            "30 sub_filter",
            own("sub_filter http://a https://b; sub_filter_once off; sub_filter x $host;"),
            vec![
                "[changed] sub_filter http://a https://b — case matters in Weir",
                "[refused] sub_filter x $host",
                "replace: { types: [text/html], text: { http://a: https://b } }",
            ],
        ),
        (
            "30 mirror",
            format!("location = /m {{ internal; proxy_pass http://10.0.0.9:80$request_uri; }} \
                location / {{ mirror /m; mirror_request_body off; {PASS} }}"),
            vec!["[changed] mirror /m", "mirror: { upstream: 10.0.0.9-80, body: 0B }"],
        ),
        (
            "36 error_page leads elsewhere",
            own("error_page 404 = @x; error_page 403 =301 https://h.test/; error_page 500 /$host.html;"),
            vec!["[refused] error_page 404 = @x", "[refused] error_page 403", "[refused] error_page 500"],
        ),
        (
            "37 internal",
            format!("location /in/ {{ internal; root /srv; }} {}", pass("/")),
            vec!["# internal: no client reaches it", "status: 404"],
        ),
        (
            "38 proxy_cache",
            own("proxy_cache c; proxy_cache_valid 200 302 10m; proxy_cache_valid any 1m; \
                proxy_ignore_headers Cache-Control Set-Cookie X-Accel-Expires;"),
            vec![
                "[changed] proxy_cache c",
                "[same] proxy_cache_valid 200 302 10m",
                "[changed] proxy_ignore_headers",
                "an answer that sets a cookie is kept without it",
                "\"200\": 10m",
                "any: 60s",
                "ignore: [cache-control, set-cookie]",
            ],
        ),
        (
            "39 try_files to the app",
            format!("location / {{ root /srv; try_files $uri @app; }} location @app {{ {PASS} }}"),
            vec!["files: { root: /srv, index: [], missing: 127.0.0.1-8080 }"],
        ),
        (
            "39 try_files with folders sends their index",
            format!("location / {{ root /srv; try_files $uri $uri/ @app; }} location @app {{ {PASS} }}"),
            vec!["files: { root: /srv, missing: 127.0.0.1-8080 }"],
        ),
        (
            "39 try_files without folders, the last of which is a page",
            "location / { root /srv; autoindex on; try_files $uri /index.html; }".to_owned(),
            vec!["files: { root: /srv, index: [], fallback: /index.html }"],
        ),
        (
            "39 a front controller that sees the whole path",
            "location / { root /srv; try_files $uri /index.php$request_uri; } \
             location ~ \\.php(?:$|/) { root /srv; fastcgi_pass php:9000; }"
                .to_owned(),
            vec!["files: { root: /srv, index: [], missing: php }"],
        ),
        (
            "36 an application answers for files that are missing",
            format!("location /f/ {{ root /srv; error_page 404 = @app; }} location @app {{ {PASS} }} \
                location /p/ {{ error_page 404 = @app; {PASS} }}"),
            vec![
                "files: { root: /srv, missing: 127.0.0.1-8080 }",
                "[changed] error_page 404 = @app — the named location gets requests with other methods",
                "[refused] error_page 404 = @app — a page with another status",
            ],
        ),
        (
            "keys of a map have no case, its regexes have one",
            format!("location / {{ if ($bad_agent) {{ return 403; }} if ($mixed) {{ return 403; }} {PASS} }}"),
            vec![
                "of: 'request.headers[\"user-agent\"].lowerAscii()'",
                "badbot: \"1\"",
                "\"~(?i)BadBot\": \"1\", \"~.*Other.*\": \"2\"",
            ],
        ),
        (
            "values of a map with variables",
            "location / { add_header Access-Control-Allow-Origin $cors; return 200 x; }".to_owned(),
            vec!["https://app.test: computed-1", "maps.cors == \"computed-1\" ? request.headers[\"origin\"] : maps.cors"],
        ),
        (
            "an `if` with fields of its own",
            format!("location / {{ add_header A 1 always; if ($request_method = OPTIONS) {{ add_header B 2; \
                add_header Content-Length 0; return 204; }} if ($arg_x) {{ add_header C 3; return 403; }} {PASS} }}"),
            vec![
                "'!(request.method == \"OPTIONS\" ||",
                "[left_out] add_header Content-Length 0",
                "[left_out] add_header C 3 — without `always`",
                "add: { b: \"2\" }",
                "respond: { status: 204 }",
            ],
        ),
        (
            "what stands behind a return",
            "location / { auth_basic off; allow all; access_log off; return 200 x; }".to_owned(),
            vec!["[left_out] auth_basic off — nginx never comes to it", "[left_out] allow all", "[changed] access_log off"],
        ),
        (
            "40 dot files",
            "location / { root /srv; }".to_owned(),
            vec!["[note] Weir serves no files whose names begin with a dot"],
        ),
        ("11 26 27 28 41 differences everywhere", pass("/"), vec!["[note] Weir compares and sends paths in one canonical form", "[note] Weir speaks HTTP/1.1", "[note] where nothing is said, nginx repeats", "[note] nginx drops fields"]),
        ("a guard before a rewrite with groups", "location /a { if ($arg_no) { return 403; } rewrite ^/a/(.*)$ /b/$1 permanent; return 200 a; }".to_owned(), vec!["path: \"~/a/(.*)\"", "indexOf(\"&no=\")"]),
        ("41 underscores", own("proxy_set_header X_User a;"), vec!["[refused] proxy_set_header X_User a"]),
        (
            "41 fields with underscores of clients",
            "underscores_in_headers on;".to_owned() + &pass("/"),
            vec!["[left_out] underscores_in_headers on"],
        ),
    ]
}

#[test]
fn no_trap_within_a_server_is_silent() {
    let http = "limit_req_zone $binary_remote_addr zone=z:1m rate=10r/s; proxy_cache_path /c keys_zone=c:1m; \
                map $http_user_agent $bad_agent { BadBot 1; } map $http_user_agent $mixed { ~Other 2; BadBot 1; } \
                map $http_origin $cors { https://app.test $http_origin; }";
    let mut wrong = Vec::new();
    for (trap, body, expected) in traps() {
        let text = imported(&format!("{http}{}", server(&body)));
        for part in expected {
            if !text.contains(part) {
                wrong.push(format!("{trap}: no `{part}` in\n{text}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn no_trap_of_servers_and_upstreams_is_silent() {
    let cases: &[(&str, &str, &[&str])] = &[
        (
            "30 an empty key is not counted",
            "limit_req_zone $http_x_user zone=u:1m rate=5r/s; server { listen 80; location / { limit_req zone=u; proxy_pass http://a; } }",
            &["'request.headers[\"x-user\"] ?? \"\" != \"\"'", "requests: 5"],
        ),
        (
            "8 x.* and regexes",
            "server { listen 80; return 444; } server { listen 80; server_name sonarr.* ~^(?<sub>.+)\\.b\\.test$; return 200 x; }",
            &["hosts: [\"sonarr.*\", '~(?i)(?<sub>.+)\\.b\\.test']"],
        ),
        (
            "8 a group of a server's name",
            "server { listen 80; return 444; } map $tenant $tier { Acme gold; default free; } \
             server { listen 80; server_name ~^(?<tenant>.+)\\.b\\.test$; location / { proxy_set_header X-Tenant $tenant; \
             proxy_set_header X-Tier $tier; proxy_pass http://a; } }",
            &["x-tenant: \"{tenant}\"", "of: 'request.params[\"tenant\"].lowerAscii()'", "acme: gold"],
        ),
        (
            "8 of regexes that match the first wins",
            "server { listen 80; return 444; } server { listen 80; server_name ~^(?<a>.+)\\.b\\.test$; return 200 x; } \
             server { listen 80; server_name ~^x.*$ y.test ~^z\\.c\\.test$; return 200 y; }",
            &[
                "hosts: [y.test]",
                "hosts: [\"~(?i)x.*\", '~(?i)z\\.c\\.test'], not: { hosts: ['~(?i)(?<a>.+)\\.b\\.test'] }",
            ],
        ),
        (
            "9 the first server takes unknown hosts",
            "server { listen 80; server_name a.test; return 200 a; } server { listen 80; server_name b.test; return 200 b; }",
            &[
                "# For any host: nginx's default server takes unknown ones too, beside a.test.",
                "hosts: [b.test]",
            ],
        ),
        (
            "10 the default differs by address",
            "server { listen 80; server_name a.test; return 200 a; } server { listen 8080; listen 80 default_server; server_name b.test; return 200 b; }",
            &["hosts: [a.test], listeners: [web]", "b.test.root: { respond: { status: 200, body: b"],
        ),
        (
            "28 29 weights, backup, down",
            "upstream u { server 10.0.0.1:80 weight=2; server 10.0.0.2:80 backup; server 10.0.0.3:80 down; server 10.0.0.4:80 max_fails=2 max_conns=9; } server { location / { proxy_pass http://u; } }",
            &[
                "{ address: 10.0.0.1:80, weight: 2 }",
                "{ address: 10.0.0.2:80, priority: 1 }",
                "# 10.0.0.3:80 is marked `down`",
                "balancer: round_robin",
                "[refused] server 10.0.0.4:80",
                "outlier: { errors: 2 }",
            ],
        ),
        (
            "29 ip_hash",
            "upstream u { ip_hash; server 10.0.0.1:80; server 10.0.0.2:80; } server { location / { proxy_pass http://u; } }",
            &["[changed] ip_hash", "hash: { by: address }"],
        ),
        (
            "28 proxy_next_upstream",
            "upstream u { server 10.0.0.1:80; server 10.0.0.2:80; server 10.0.0.3:80; } server { location / { proxy_next_upstream error timeout non_idempotent; proxy_pass http://u; } }",
            &["[changed] proxy_next_upstream", "methods: all", "attempts: 3"],
        ),
        (
            "26 keepalive",
            "upstream u { server 10.0.0.1:80; keepalive 16; } server { location / { proxy_pass http://u; } }",
            &["[same] keepalive 16"],
        ),
        (
            "15 Host is the name of the group",
            "upstream u { server 10.0.0.1:80; } server { location / { proxy_pass http://u; } }",
            &["host: u"],
        ),
    ];
    for (trap, source, expected) in cases {
        let text = imported(source);
        for part in *expected {
            assert!(text.contains(part), "{trap}: no `{part}` in\n{text}");
        }
    }
}

/// Lists of ciphers and curves keep what Weir has.
#[test]
fn ciphers_are_those_that_there_are() {
    let secure = |lines: &str| {
        imported(&format!(
            "server {{ listen 443 ssl; ssl_certificate a.pem; ssl_certificate_key a.key; {lines} return 200; }}"
        ))
    };
    let text = secure(
        "ssl_ciphers ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-RSA-AES128-GCM-SHA256:DHE-RSA-AES128-GCM-SHA256:!aNULL; ssl_ecdh_curve X25519:secp521r1; ssl_session_tickets off;",
    );
    for part in [
        "ciphers: [ECDHE-ECDSA-AES128-GCM-SHA256, ECDHE-RSA-AES128-GCM-SHA256]",
        "curves: [X25519]",
        "tickets: false",
        "Weir does not have DHE-RSA-AES128-GCM-SHA256",
        "Weir does not have secp521r1",
        "[changed] ssl_session_tickets off",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let none = secure("ssl_ciphers AES256-SHA; ssl_ecdh_curve auto;");
    assert!(
        none.contains("[changed] ssl_ciphers")
            && !none.contains("ciphers: [")
            && none.contains("[same] ssl_ecdh_curve")
    );
    assert!(secure("ssl_ciphers HIGH:!aNULL:!MD5;").contains("[same] ssl_ciphers"));
}

#[test]
fn hostile_configs_end() {
    let nested = "location /a { ".repeat(60) + &"}".repeat(60);
    let cases = [
        ("server { ".to_owned() + &nested + "}", "more than 50 blocks"),
        ("server { server_name a;\0 }".to_owned(), "NUL"),
        ("include nginx.conf;".to_owned(), "includes itself"),
    ];
    for (source, why) in cases {
        let files = Memory::of(&[("nginx.conf", &source)]);
        let read = import(system("nginx").unwrap(), &files, &["nginx.conf".to_owned()]);
        let told = read.err().unwrap().to_string();
        assert!(told.contains(why), "{told}");
    }
    // Patterns that would take exponential time or memory elsewhere.
    for pattern in
        ["^(a+)+$", "(x{1000}){1000}", &"(".repeat(2000), "[a-z]{1,1000}{1,1000}", "(?:a?){500}a{500}"]
    {
        let text =
            imported(&server(&format!("location ~ \"{pattern}\" {{ {PASS} }} location ~ b {{ {PASS} }}")));
        assert!(text.contains("location"), "{text}");
    }
    // A map that reads itself, and one that another needs.
    let circle = "map $b $a { default x; } map $a $b { default y; } server { location / { proxy_set_header X $a$b; proxy_pass http://127.0.0.1; } }";
    assert!(imported(circle).contains("reads itself"));
    // A secret that is nowhere but in its own file.
    let secret = imported(&server(&format!(
        "location / {{ proxy_set_header Authorization \"Bearer hunter2\"; {PASS} }}"
    )));
    assert_eq!(secret.matches("hunter2").count(), 1, "{secret}");
    assert!(secret.contains("authorization: \"${AUTHORIZATION}\""));
    // What a source says cannot leave its comment or its quotes.
    let broken = imported(&server(
        "location / { add_header X \"a\\nrespond: {}\"; return 200 \"${host}\\n---\\n{path}\"; }",
    ));
    assert!(!broken.contains("\nrespond:") && !broken.contains("\n---"), "{broken}");
}

/// The lines of a table are values, and share its fate.
#[test]
fn lines_of_tables_are_no_directives() {
    let text = imported(&format!(
        "types {{ text/html html; image/gif gif; }} map $host $unused {{ a.test 1; }} {}",
        server(&format!("location / {{ {PASS} }}"))
    ));
    assert!(text.contains("text/html html — a line of the table") && !text.contains("[refused]"), "{text}");
}
