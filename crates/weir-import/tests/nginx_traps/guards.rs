//! What keeps requests out in nginx keeps them out after the import, or closes the route.

use super::{PASS, imported, server};
use weir_import::{Memory, import, system};

/// Files of users: those with bcrypt alone are taken, others closed with their lines, and no hash is repeated.
#[test]
fn files_of_users_are_read() {
    const BCRYPT: &str = "$2y$05$abcdefghijklmnopqrstuuVXkQ1XGcWDYWvnTZOHgmkQlD1vc4Suu";
    let import_with = |users: &str| {
        let http = server(&format!(
            "location /g {{ auth_basic \"Staff only\"; auth_basic_user_file /etc/nginx/users; {PASS} }}"
        ));
        let files = Memory::of(&[("nginx.conf", &*http), ("users", users)]);
        let import = import(system("nginx").unwrap(), &files, &["nginx.conf".to_owned()]).unwrap();
        let written: String = import.written().iter().map(|file| file.text.clone()).collect();
        let told: String = import
            .ledger
            .lines()
            .iter()
            .map(|line| format!("{} {}\n", line.text, line.why.join("; ")))
            .collect();
        (written, told)
    };
    let (written, told) = import_with(&format!("\u{feff}# us\r\nann:{BCRYPT}\r\nbob:{BCRYPT}:x\n"));
    let expected = "basic_auth: { file: /etc/nginx/users, realm: Staff only, hide: false }";
    assert!(written.contains(expected) && !written.contains("CLOSED"), "{written}\n{told}");
    let (written, told) = import_with(&format!("ann:{BCRYPT}\nbob:$apr1$salt$hash\ncid:{{SHA}}x\nnothing\n"));
    assert!(written.contains("CLOSED") && !written.contains("basic_auth:"), "{written}");
    for part in ["line 2 (`bob`): apr1", "line 3 (`cid`): SHA-1", "line 4: no USER:HASH"] {
        assert!(told.contains(part), "{told}");
    }
    assert!(!told.contains("salt") && !written.contains("salt"), "{told}");
}

/// With `satisfy any`, a translation lets in nobody whom nginx keeps out.
#[test]
fn satisfy_any_lets_in_nobody_more() {
    const BCRYPT: &str = "$2y$05$abcdefghijklmnopqrstuuVXkQ1XGcWDYWvnTZOHgmkQlD1vc4Suu";
    let import_with = |rules: &str| {
        let http = server(&format!(
            "location /g {{ satisfy any; {rules} auth_basic x; auth_basic_user_file /etc/nginx/users; {PASS} }}"
        ));
        let users = format!("ann:{BCRYPT}\n");
        let files = Memory::of(&[("nginx.conf", &*http), ("users", &*users)]);
        let import = import(system("nginx").unwrap(), &files, &["nginx.conf".to_owned()]).unwrap();
        let written = import.written();
        written.iter().find(|file| file.path.ends_with("a.test.yaml")).unwrap().text.clone()
    };
    // The rules, the member `ip` of `any`; none where no address passes without a password.
    let cases = [
        ("allow 10.0.0.0/8; deny all;", Some("ip: { allow: [10.0.0.0/8] }")),
        ("allow 10.0.0.0/8;", Some("ip: { allow: [10.0.0.0/8] }")),
        ("deny 10.1.0.0/16; allow 10.0.0.0/8;", Some("ip: { allow: [10.0.0.0/8], deny: [10.1.0.0/16] }")),
        ("deny 10.1.0.0/16; allow all;", Some("ip: { deny: [10.1.0.0/16] }")),
        ("allow all;", Some("ip: { allow: [0.0.0.0/0, \"::/0\"] }")),
        ("deny 10.1.0.0/16;", None),
        ("deny 10.1.0.0/16; deny all;", None),
        ("deny all;", None),
        ("deny all; allow 10.0.0.0/8;", None),
        ("", None),
    ];
    for (rules, member) in cases {
        let text = import_with(rules);
        let password = text.find("basic_auth:").unwrap_or_else(|| panic!("{rules}: {text}"));
        match member {
            Some(member) => {
                let any = text.find("any:").unwrap_or_else(|| panic!("{rules}: {text}"));
                let ip = text.find(member).unwrap_or_else(|| panic!("{rules}: no `{member}` in {text}"));
                assert!(any < password && password < ip, "{rules}: {text}");
            }
            None => assert!(!text.contains("any:") && !text.contains("ip:"), "{rules}: {text}"),
        }
    }
    // Part of the denied addresses would be let in: the route stays closed.
    assert!(import_with("allow 10.1.0.0/16; deny 10.0.0.0/8; allow all;").contains("CLOSED"));
}

/// What guards a location and cannot be translated closes the route.
#[test]
fn no_guard_is_lost() {
    let guards = [
        "auth_basic a; auth_basic_user_file /x;",
        "allow 10.0.0.0/24; deny 10.0.0.0/8;",
        "deny $blocked;",
        "auth_request /nowhere;",
        "if ($nothing) { return 403; }",
        "if (-f /tmp/x) { return 503; }",
        "access_by_lua_block { ngx.exit(403) }",
        "access_by_lua_file /x.lua;",
        "rewrite_by_lua_block { ngx.exit(403) }",
        "auth_jwt x;",
        "secure_link $arg_md5;",
        "limit_except GET { allow 10.0.0.1; deny all; }",
        "js_access x;",
        "auth_digest x;",
        "auth_pam x;",
        "modsecurity on;",
    ];
    for guard in guards {
        let text = imported(&server(&format!("location /g {{ {guard} {PASS} }}")));
        assert!(text.contains("[refused]"), "{guard}\n{text}");
        let route = text.split("path: \"/g*\"").nth(1).unwrap_or_default();
        let is_closed = route.split("\n  a.test").next().is_some_and(|route| route.contains("CLOSED"));
        assert!(is_closed || route.contains("respond: { status: 403 }"), "{guard}\n{text}");
    }
}

/// Weir asks the auth service at the path that its location makes of the URI. A service that accepts
/// unknown paths would let everybody in if Weir asked at another one.
#[test]
fn auth_request_asks_at_the_path_of_its_location() {
    for (location, sent, uri, path) in [
        ("= /auth", "/verify", "/auth", "/verify"),
        ("/auth", "/verify", "/auth", "/verify"),
        ("/auth", "/verify/", "/auth", "/verify/"),
        ("/auth", "/verify/", "/auth/check", "/verify/check"),
        ("/auth/", "/", "/auth/check", "/check"),
        ("/auth/", "/v1/", "/auth/check", "/v1/check"),
        ("/auth", "", "/auth/check", "/auth/check"),
    ] {
        let text = imported(&server(&format!(
            "location {location} {{ internal; proxy_pass http://127.0.0.1:7000{sent}; }} \
             location / {{ auth_request {uri}; {PASS} }}"
        )));
        assert!(text.contains(&format!("path: {path}, copy_request")), "{location} {sent} {uri}\n{text}");
    }
}

/// A route of its own for the groups of a `rewrite` keeps what stands before it.
#[test]
fn a_guard_before_a_rewrite_stays() {
    let body =
        "location /a { if ($arg_no) { return 403; } rewrite ^/a/(.*)$ /b/$1 permanent; return 200 a; }";
    let text = imported(&server(body));
    let route = text.split("a.test.a-rewrite:").nth(1).unwrap();
    let (guard, redirect) = (route.find("&no=").unwrap(), route.find("/b/{1}").unwrap());
    assert!(guard < redirect, "{text}");
    // In nginx the order is that of the file: here the redirect comes first.
    let text = imported(&server(&format!(
        "rewrite ^/o/(.*)$ /n/$1 permanent; if ($arg_no) {{ return 403; }} {}",
        "return 200 a;"
    )));
    let route = text.split("a.test.rewrite:").nth(1).unwrap().split("a.test.root").next().unwrap();
    assert!(!route.contains("&no="), "{text}");
}

/// A field that nginx overwrites, with a value that Weir lacks, does not reach the upstream as the client sent it.
#[test]
fn refused_identity_fields_are_withheld() {
    let own = |lines: &str| imported(&server(&format!("location / {{ {lines} {PASS} }}")));
    for (line, removed) in [
        ("proxy_set_header X-Who $unknown;", "remove: [x-who]"),
        ("proxy_set_header REMOTE_USER $remote_user;", "remove: [remote-user]"),
        ("set $who staff; set $who $unknown; proxy_set_header X-Who $who;", "remove: [x-who]"),
    ] {
        let text = own(line);
        assert!(text.contains("[refused] proxy_set_header") && text.contains(removed), "{line}\n{text}");
    }
    // Nor does it reach the service that decides.
    let text = imported(&server(&format!(
        "location = /auth {{ proxy_set_header X-Who $unknown; {PASS} }} location / {{ auth_request /auth; {PASS} }}"
    )));
    assert!(text.contains("set: { x-who: \"\" }"), "{text}");
}

/// `set` in an `if` is a choice that each request makes, and not the value before it.
#[test]
fn a_variable_of_an_if_is_chosen_for_each_request() {
    let guarded = |lines: &str| imported(&server(&format!("{lines} location / {{ {PASS} }}")));
    let text = guarded("set $block 0; if ($arg_a = b) { set $block 1; } if ($block = 1) { return 403; }");
    assert!(text.contains("[same] if ($block = 1)") && !text.contains("[refused]"), "{text}");
    assert!(text.replace('\\', "").contains("? \"1\" : \"0\") == \"1\""), "{text}");
    // A condition that Weir cannot ask leaves no value behind.
    let text = guarded("set $block 0; if (-f /tmp/x) { set $block 1; } if ($block = 1) { return 403; }");
    assert!(text.contains("CLOSED"), "{text}");
    // Each `if` may double the value: there is an end.
    let many: String = (0..40)
        .map(|n| format!("if ($arg_a{n}) {{ set $all \"${{all}}{n}\"; }}"))
        .collect::<Vec<_>>()
        .concat();
    let text = guarded(&format!("set $all \"\"; {many} if ($all = 12) {{ return 403; }}"));
    assert!(text.contains("CLOSED") && text.len() < 300_000, "{}", text.len());
}

/// Only fields of the service's answer are copied from it, and only where it is asked do variables read them.
#[test]
fn answers_of_the_service_are_no_fields_of_clients() {
    let text = imported(&server(&format!(
        "location = /auth {{ {PASS} }} location / {{ set $origin $http_origin; auth_request /auth; \
         auth_request_set $user $upstream_http_x_user; proxy_set_header X-User $user; \
         add_header Access-Control-Allow-Origin $origin; {PASS} }}"
    )));
    assert!(text.contains("copy: [x-user]"), "{text}");
    // Where nobody is asked, nginx sends no field.
    let text = imported(&server(&format!(
        "auth_request /auth; auth_request_set $user $upstream_http_x_user; location = /auth {{ {PASS} }} \
         location / {{ auth_request off; proxy_set_header X-User $user; {PASS} }}"
    )));
    assert!(text.contains("remove: [x-user]") && !text.contains("request.headers[\"x-user\"]"), "{text}");
}
