//! Which location takes a path, where nginx's rules meet: `^~` and regexes, rewrites of the server and exact paths.

#![allow(clippy::unwrap_used, reason = "this is test code: a panic is how a test fails")]

use weir_import::{Memory, import, system};

/// The config made from a server's body, and the verdicts.
fn imported(body: &str) -> String {
    let http = format!("server {{ listen 80; server_name a.test; {body} }}");
    let files = Memory::of(&[("nginx.conf", &http)]);
    let import = import(system("nginx").unwrap(), &files, &["nginx.conf".to_owned()]).unwrap();
    let lines = import.ledger.lines().iter().map(|line| format!("[{}] {}\n", line.verdict.key(), line.text));
    let files = import.written().into_iter().map(|file| format!("==> {}\n{}", file.path, file.text));
    lines.chain(files).collect()
}

const PASS: &str = "proxy_pass http://127.0.0.1:8080;";

#[test]
fn a_regex_behind_a_prefix_that_stops_is_left_out() {
    // Weir refuses a route that can never win.
    let dead = [
        (r"^~ /a", r"~ ^/a/[^/]+$"),
        (r"^~ /", r"~ \.php$"),
        // The longer prefix stops too.
        (r"^~ /a { return 200; } location ^~ /a/b", r"~ ^/a/b"),
    ];
    for (prefix, regex) in dead {
        let text = imported(&format!("location {prefix} {{ {PASS} }} location {regex} {{ return 403; }}"));
        assert!(text.contains(&format!("[changed] location {regex}")), "{text}");
        assert!(text.contains("[left_out] return 403"), "{text}");
        assert!(!text.contains("status: 403"), "{text}");
    }
    let alive = [
        (r"^~ /a", r"~ /a/[^/]+$"),
        (r"^~ /a", r"~* ^/a/x"),
        (r"/a", r"~ ^/a/x"),
        (r"^~ /a/x", r"~ ^/a"),
        // Below the longer prefix regexes are asked.
        (r"^~ /a { return 200; } location /a/b", r"~ ^/a/"),
        (r"^~ /a { return 200; } location /a/b", r"~ ^/a/b"),
    ];
    for (prefix, regex) in alive {
        let text = imported(&format!("location {prefix} {{ {PASS} }} location {regex} {{ return 403; }}"));
        assert!(text.contains("status: 403"), "{prefix} {regex}: {text}");
    }
}

#[test]
fn exact_paths_behind_a_rewrite_of_the_server_have_different_priorities() {
    let text = imported(&format!(
        "if ($cookie_c = 1) {{ rewrite ^(.*)$ /v1 last; }} location = /x {{ {PASS} }} location = /x/y {{ return 404; }} \
         location / {{ {PASS} }}"
    ));
    let priority = |path: &str| {
        let rest =
            text.split(&format!("path: \"{path}\"")).nth(1).unwrap_or_else(|| panic!("{path}: {text}"));
        rest.split("priority: ").nth(1).unwrap().chars().take_while(char::is_ascii_digit).collect::<String>()
    };
    assert_ne!(priority("~/x"), priority("~/x/y"), "{text}");
}

#[test]
fn an_answer_of_an_if_comes_before_the_guards() {
    // nginx: the redirect for those whom the guard keeps out too; the field is set in between.
    let guards = ["deny all;", "allow 10.0.0.0/8; deny all;"];
    for guard in guards {
        let text = imported(&format!(
            "location / {{ {guard} if ($arg_q = 1) {{ return 301 /new; }} rewrite ^/(.*)$ /in/$1 break; {PASS} }}"
        ));
        let redirect = text.find("/new").unwrap_or_else(|| panic!("{text}"));
        let kept = text.find("403").or_else(|| text.find("ip: ")).unwrap_or_else(|| panic!("{text}"));
        assert!(redirect < kept, "{text}");
    }
    // What changes the path stays behind the guard, with what follows it.
    let text = imported(&format!(
        "location / {{ allow 10.0.0.0/8; deny all; rewrite ^/(.*)$ /in/$1 break; {PASS} }}"
    ));
    assert!(text.find("ip: ").unwrap() < text.find("rewrite: ").unwrap(), "{text}");
}

/// The route's lines in the config.
fn route<'t>(text: &'t str, path: &str) -> &'t str {
    let at = text.find(&format!("path: {path}")).unwrap_or_else(|| panic!("{path}: {text}"));
    let start = text[..at].rfind("\n  a.test").unwrap();
    let end = text[at..].find("\n  a.test").map_or(text.len(), |end| at + end);
    &text[start..end]
}

#[test]
fn only_the_outermost_location_stops_the_regexes_of_the_server() {
    // nginx looks at `^~` of the location that it found in the server, not of one in it.
    let text = imported(&format!(
        "location /o {{ location ^~ /o/in {{ {PASS} }} }} location ^~ /s {{ location /s/in {{ {PASS} }} }} \
         location ~ x {{ return 403; }} location / {{ {PASS} }}"
    ));
    assert!(!route(&text, "\"/o/in*\"").contains("priority"), "{text}");
    assert!(route(&text, "\"/s/in*\"").contains("priority: 10000"), "{text}");
}

#[test]
fn nested_regexes_take_the_paths_of_locations_beside_them() {
    // Also those of locations in these, but none of a `^~` or of one beside the prefix around them.
    let text = imported(&format!(
        "location /o/ {{ {PASS} location ~ b {{ return 403; }} \
         location /o/a/ {{ {PASS} location /o/a/deep/ {{ {PASS} }} }} \
         location ^~ /o/s/ {{ {PASS} location /o/s/deep/ {{ {PASS} }} }} }} location /o/beside/ {{ {PASS} }}"
    ));
    let regex = route(&text, "\"~.*b.*\"");
    for hole in ["/o/s/", "/o/s/deep/", "/o/beside/"] {
        assert!(regex.contains(&format!("!request.path.startsWith(\"{hole}\")")), "{hole}: {text}");
    }
    assert!(!regex.contains("/o/a/"), "{text}");
}

#[test]
fn a_location_that_another_hides_is_left_out() {
    // nginx takes the longest location of the server, and looks into that alone.
    let text = imported(&format!(
        "location /o/ {{ {PASS} location /o/x/y {{ return 403; }} location = /o/x/z {{ return 403; }} }} \
         location /o/x/ {{ {PASS} }}"
    ));
    assert!(text.contains("[left_out] location /o/x/y") && !text.contains("status: 403"), "{text}");
}

#[test]
fn locations_in_an_internal_one_are_internal() {
    let text =
        imported(&format!("location /i {{ internal; location /i/x {{ {PASS} }} }} location / {{ {PASS} }}"));
    assert!(route(&text, "[\"/i*\", \"/i/x*\"]").contains("status: 404"), "{text}");
}

#[test]
fn requests_of_a_refused_rewrite_are_closed_and_no_others() {
    // Some of the new paths match the regex, others do not.
    let text = imported(&format!(
        "location /b/ {{ rewrite ^/b/(.*)$ /a/$1 last; {PASS} }} location /a/ {{ {PASS} }} location ~ /x/ {{ return 403; }}"
    ));
    assert!(text.contains("[refused] rewrite"), "{text}");
    let closed = text.matches("status: 503, body").count();
    assert!(closed >= 1, "{text}");
    assert!(!route(&text, "\"/a/*\"").contains("503"), "{text}");
}
