//! Guards that ask what a proxy says of the client. Weir drops such fields of clients that nobody trusts, so the guards
//! would never hold: they are refused, and what they guard is closed.

#![allow(clippy::unwrap_used, reason = "this is test code: a panic is how a test fails")]

use weir_import::{Memory, import, system};

fn imported(of: &str, source: &str) -> String {
    let files = Memory::of(&[("source", source)]);
    let import = import(system(of).unwrap(), &files, &["source".to_owned()]).unwrap();
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
    for file in import.written() {
        text.push_str(&format!("==> {}\n{}", file.path, file.text));
    }
    text
}

fn nginx(location: &str, beside: &str) -> String {
    format!(
        "{beside} server {{ listen 80; server_name a.test; location / {{ {location} proxy_pass http://10.0.0.9; }} }}"
    )
}

fn haproxy(lines: &str) -> String {
    format!(
        "defaults\n mode http\n timeout connect 5s\n timeout server 5s\nfrontend f\n bind :80\n{lines}\n default_backend b\n\
         backend b\n server s 10.0.0.9:80\n"
    )
}

#[test]
fn guards_by_what_proxies_say_are_closed() {
    let cases = [
        ("nginx", nginx("if ($http_x_real_ip = 10.0.0.1) { return 403; }", ""), "if ($http_x_real_ip"),
        ("nginx", nginx("if ($http_x_forwarded_for ~ ^10) { return 403; }", ""), "if ($http_x_forwarded_for"),
        (
            "nginx",
            nginx("if ($bad) { return 403; }", "map $http_x_real_ip $bad { default 0; 10.0.0.3 1; }"),
            "map $http_x_real_ip",
        ),
        ("haproxy", haproxy(" acl bad hdr_ip(x-real-ip) 10.1.0.0/16\n http-request deny if bad"), "acl bad"),
        ("haproxy", haproxy(" http-request deny if { hdr(x-forwarded-for) 10.1.0.1 }"), "http-request deny"),
        (
            "caddy",
            "a.test {\n@bad header X-Real-IP 10.0.0.1\nrespond @bad 403\nreverse_proxy 10.0.0.9:80\n}\n"
                .to_owned(),
            "X-Real-IP 10.0.0.1",
        ),
    ];
    for (of, source, line) in cases {
        let text = imported(of, &source);
        let refused = text.lines().find(|told| told.starts_with("[refused]") && told.contains(line));
        assert!(refused.is_some_and(|told| told.contains("trusted_proxies")), "{source}\n{text}");
        assert!(text.contains("CLOSED by weir import") && text.contains("status: 503"), "{source}\n{text}");
    }
}

#[test]
fn what_is_no_guard_is_told_as_changed() {
    let cases = [
        ("nginx", nginx("if ($http_x_forwarded_proto = http) { return 301 https://$host$request_uri; }", "")),
        ("haproxy", haproxy(" http-request redirect scheme https if { hdr(x-forwarded-proto) http }")),
    ];
    for (of, source) in cases {
        let text = imported(of, &source);
        let told = text.lines().find(|line| line.contains("Weir drops `x-forwarded-proto`"));
        assert!(told.is_some_and(|line| line.starts_with("[changed]")) && !text.contains("CLOSED"), "{text}");
    }
}

/// Behind a proxy that nobody has named, every client would be sent in a circle.
#[test]
fn a_redirect_that_never_ends_is_refused() {
    let cases = [
        (
            "nginx",
            nginx("if ($http_x_forwarded_proto != https) { return 301 https://$host$request_uri; }", ""),
        ),
        ("haproxy", haproxy(" http-request redirect scheme https unless { hdr(x-forwarded-proto) https }")),
    ];
    for (of, source) in cases {
        let text = imported(of, &source);
        assert!(text.contains("[refused]") && text.contains("CLOSED by weir import"), "{text}");
    }
}

/// Weir passes on what it does not know to be such a field, so a guard by it holds as before.
#[test]
fn other_fields_are_any_clients() {
    let text = imported("haproxy", &haproxy(" http-request deny if { hdr(cf-connecting-ip) 10.1.0.1 }"));
    assert!(!text.contains("CLOSED") && !text.contains("Weir drops"), "{text}");
}

/// Where the source says whom to trust, the import trusts them, too.
#[test]
fn a_trusted_proxy_may_say_it() {
    let trusts = "set_real_ip_from 10.0.0.0/8; real_ip_header X-Forwarded-For;";
    let text = imported("nginx", &nginx("if ($http_x_forwarded_for ~ ^10) { return 403; }", trusts));
    assert!(text.contains("trusted_proxies: [10.0.0.0/8]") && !text.contains("[refused] if"), "{text}");
    assert!(!text.contains("CLOSED"), "{text}");
}
