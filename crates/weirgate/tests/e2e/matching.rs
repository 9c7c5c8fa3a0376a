//! Hosts by their beginning and by regex, clients, cookies, exclusions, lists of paths, and priority between prefix and
//! regex.

use weir_testkit::Weir;

use crate::support::WEB;

/// A gateway whose routes answer with this body; each is a name, `match` and body.
#[track_caller]
fn routes(routes: &[(&str, &str, &str)]) -> Weir {
    let each = |(name, matches, body): &(&str, &str, &str)| {
        format!("  {name}:\n    match: {matches}\n    respond: {{ body: \"{body}\" }}\n")
    };
    let routes: String = routes.iter().map(each).collect();
    Weir::start(&format!("{WEB}\ntrusted_proxies: [ 127.0.0.1 ]\nroutes:\n{routes}"))
}

/// What a request for this host and target, with these fields, is answered with.
#[track_caller]
fn answer(weir: &Weir, host: &str, target: &str, fields: &str) -> String {
    let answer = weir.client().ask(format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n{fields}\r\n"));
    answer.expect_status(200);
    answer.text()
}

#[test]
fn hosts_are_found_by_either_end_and_by_regex() {
    let weir = routes(&[
        ("any", "{ path: /* }", "any"),
        ("www", "{ hosts: [ \"www.*\" ] }", "www"),
        ("sub", r#"{ hosts: [ '~^(?<sub>.+)\.example\.com$' ] }"#, "sub {sub}"),
        ("six", r#"{ hosts: [ '~\[.*\]' ] }"#, "six"),
        ("idn", "{ hosts: [ \"xn--bcher-kva.*\" ] }", "idn"),
    ]);
    let long = format!("{}.example.com", "a".repeat(240));
    for (host, want) in [
        ("www.example.com", "www".to_owned()),
        ("WWW.Example.Org.:81", "www".to_owned()),
        ("www", "any".to_owned()),
        ("www.", "any".to_owned()),
        ("a.B.EXAMPLE.com.:80", "sub a.b".to_owned()),
        ("example.com", "any".to_owned()),
        ("a.example.com.evil.org", "any".to_owned()),
        ("[::1]:80", "six".to_owned()),
        ("XN--BCHER-KVA.example", "idn".to_owned()),
        (&long, format!("sub {}", "a".repeat(240))),
    ] {
        assert_eq!(answer(&weir, host, "/", ""), want, "{host}");
    }
}

#[test]
fn clients_are_those_behind_trusted_proxies() {
    let weir = routes(&[
        ("inside", "{ clients: [ 10.0.0.0/8, \"2001:db8::/32\" ] }", "inside"),
        ("outside", "{ not: { clients: [ 10.0.0.0/8, \"2001:db8::/32\" ] } }", "outside"),
    ]);
    for (told, want) in [
        ("10.1.2.3", "inside"),
        ("::ffff:10.1.2.3", "inside"),
        ("2001:db8::7", "inside"),
        ("192.0.2.1", "outside"),
        ("10.1.2.3, garbage", "outside"),
        ("unknown", "outside"),
    ] {
        assert_eq!(answer(&weir, "a", "/", &format!("X-Forwarded-For: {told}\r\n")), want, "{told}");
    }
    assert_eq!(answer(&weir, "a", "/", ""), "outside");
}

#[test]
fn a_cookie_that_is_sent_twice_matches_no_value() {
    let weir = routes(&[
        ("any", "{ path: /* }", "any"),
        ("beta", "{ cookies: { beta: \"1\" } }", "beta"),
        ("none", "{ path: /plain, not: { cookies: { beta: \"*\" } } }", "none"),
    ]);
    for (cookie, path, want) in [
        ("beta=1", "/", "beta"),
        ("a=b; beta=1; c", "/", "beta"),
        ("beta=1; beta=1", "/", "any"),
        ("BETA=1", "/", "any"),
        ("beta=2", "/plain", "any"),
        ("x=1", "/plain", "none"),
    ] {
        assert_eq!(answer(&weir, "a", path, &format!("Cookie: {cookie}\r\n")), want, "{cookie} {path}");
    }
}

#[test]
fn priority_decides_between_prefix_and_regex_and_paths_may_be_listed() {
    let weir = Weir::start(&format!(
        "{WEB}\nroutes:\n  \
         static: {{ match: {{ path: \"/static/*\" }}, priority: 1, respond: {{ body: static }} }}\n  \
         png: {{ match: {{ path: '~.*\\.png' }}, respond: {{ body: png }} }}\n  \
         new: {{ match: {{ path: \"/static/new/*\" }}, respond: {{ body: new }} }}\n  \
         list: {{ match: {{ path: [ /a, \"/b/{{id}}\", \"~/c/(?<id>[0-9]+)\" ] }}, priority: -1, respond: {{ body: \"list {{id}}\" }} }}\n"
    ));
    for (target, want) in [
        ("/static/a.png", "static"),
        ("/static/new/a.png", "png"),
        ("/static/new/a", "new"),
        ("/x/a.png", "png"),
        ("/static/../a.png", "png"),
        ("/static/%2e%2e/a.png", "png"),
        ("/a", "list "),
        ("/b/7", "list 7"),
        ("/c/77", "list 77"),
    ] {
        assert_eq!(answer(&weir, "a", target, ""), want, "{target}");
    }
}
