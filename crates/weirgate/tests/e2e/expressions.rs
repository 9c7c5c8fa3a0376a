//! Expressions of the config: `match.when`, and `is` of the filter acl.

use weir_testkit::{Upstream, Weir, run_weir};

use crate::cause::{ACL_DENIED, AMBIGUOUS_PATH, NO_ROUTE};
use crate::support::WEB;

/// A gateway whose routes each answer with their name; `routes` are name and `match`.
#[track_caller]
fn routes(routes: &[(&str, &str)], more: &str) -> Weir {
    Weir::start(&config(routes, more))
}

fn config(routes: &[(&str, &str)], more: &str) -> String {
    let each = |(name, matches): &(&str, &str)| {
        format!("  {name}:\n    match: {matches}\n    respond: {{ body: {name} }}\n")
    };
    format!("{WEB}\n{more}\nroutes:\n{}", routes.iter().map(each).collect::<String>())
}

#[track_caller]
fn route_of(weir: &Weir, target: &str, fields: &str) -> String {
    let answer = weir.client().ask(format!("GET {target} HTTP/1.1\r\nHost: Weir.test:80\r\n{fields}\r\n"));
    answer.expect_status(200);
    answer.text()
}

const BETA: &str = r#"{ path: "/*", when: 'request.cookies.beta == "1" && !(client.ip in ["10.0.0.0/8"])' }"#;

#[test]
fn a_condition_chooses_the_route() {
    let weir = routes(
        &[
            ("beta", BETA),
            ("all", r#"{ path: "/*" }"#),
            ("large", r#"{ path: /up, when: '(request.size ?? 0) > 1024' }"#),
            ("user", r#"{ path: "/users/{id}", when: 'int(request.params.id) ?? 0 > 100' }"#),
            ("named", r#"{ path: /host, when: 'request.host == "weir.test" && request.scheme == "http"' }"#),
            ("listed", r#"{ path: /args, when: '"b" in request.args.v.all()' }"#),
        ],
        "trusted_proxies: [ 127.0.0.1 ]",
    );
    for (target, fields, want) in [
        ("/", "", "all"),
        ("/", "Cookie: beta=1\r\n", "beta"),
        ("/", "Cookie: a=b; beta=1; c\r\n", "beta"),
        ("/", "Cookie: beta=11\r\n", "all"),
        ("/", "Cookie: beta=1\r\nX-Forwarded-For: 10.1.2.3\r\n", "all"),
        ("/", "Cookie: beta=1\r\nX-Forwarded-For: 192.0.2.1\r\n", "beta"),
        ("/up", "Content-Length: 1025\r\n", "large"),
        ("/up", "Content-Length: 1024\r\n", "all"),
        ("/users/101", "", "user"),
        ("/users/100", "", "all"),
        ("/users/x", "", "all"),
        ("/host", "", "named"),
        ("/host", "X-Forwarded-Proto: https\r\n", "all"),
        ("/args?v=a&v=b", "", "listed"),
        ("/args?v=a&w=b", "", "all"),
        ("/args?v=%62", "", "listed"),
    ] {
        let mut client = weir.client();
        let body = if fields.starts_with("Content-Length") { "x".repeat(1025) } else { String::new() };
        let answer = client.ask(format!("GET {target} HTTP/1.1\r\nHost: Weir.test:80\r\n{fields}\r\n{body}"));
        assert_eq!(answer.expect_status(200).text(), want, "{target} {fields}");
    }
}

#[test]
fn no_reading_of_a_path_gets_around_a_condition() {
    let upstream = Upstream::fixed(crate::support::OK);
    let weir = Weir::start(&format!(
        "{WEB}\nupstreams: {{ up: {{ endpoints: [{}] }} }}\nroutes:\n  open: {{ match: {{ path: \"/*\", when: \
         '!request.path.startsWith(\"/admin/\")' }}, upstream: up }}\n",
        upstream.address()
    ));
    let ask = |path: &str| weir.client().ask(format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n"));
    ask("/x/y").expect_status(200);
    ask("/x%2Fy").expect_status(200);
    for path in ["/admin/x", "/%61dmin/x", "/a/../admin/x", "//admin/x"] {
        ask(path).expect_cause(NO_ROUTE);
    }
    for path in ["/admin%2Fx", "/admin;a/x", "/%2Fadmin/x"] {
        ask(path).expect_cause(AMBIGUOUS_PATH);
    }
    assert_eq!(upstream.requests().len(), 2);
}

/// Some servers read `X_Env` as `X-Env`.
#[test]
fn a_condition_sees_the_field_that_the_upstream_sees() {
    let is = "'!has(request.headers[\"X-Staff\"])'";
    for (route, refused) in [
        (format!("match: {{ path: \"/*\", when: {is} }}"), NO_ROUTE),
        (format!("match: {{ path: \"/*\" }}, filters: [ {{ acl: {{ is: {is} }} }} ]"), ACL_DENIED),
    ] {
        let upstream = Upstream::fixed(crate::support::OK);
        let weir = Weir::start(&format!(
            "{WEB}\nupstreams: {{ up: {{ endpoints: [{}] }} }}\nroutes:\n  open: {{ {route}, upstream: up }}\n",
            upstream.address()
        ));
        let ask = |field: &str| weir.client().ask(format!("GET / HTTP/1.1\r\nHost: h\r\n{field}: 1\r\n\r\n"));
        ask("x-staff").expect_cause(refused);
        ask("X_Staff").expect_status(200);
        assert_eq!(upstream.take_request().head.header("x_staff"), None);
    }
}

#[test]
fn explain_tells_what_a_condition_came_to() {
    let dir = tempfile::TempDir::new().unwrap();
    let text = config(&[("beta", BETA), ("all", r#"{ path: "/*" }"#)], "");
    std::fs::write(dir.path().join("weir.yaml"), text).unwrap();
    let explain = |cookie: &str| run_weir(dir.path(), &["explain", "GET", "/", "-H", cookie]);
    explain("cookie: beta=1")
        .expect_code(0)
        .expect_text("route: beta\n")
        .expect_text("its expression is true; request.cookies[\"beta\"] is \"1\", client.ip is 127.0.0.1\n")
        .expect_text("all: `beta` has a `when`, this one none");
    explain("cookie: beta=2")
        .expect_code(0)
        .expect_text("route: all\n")
        .expect_text("beta: when; its expression is false; request.cookies[\"beta\"] is \"2\"");
}

#[test]
fn a_condition_comes_and_goes_with_a_reload() {
    let weir = routes(&[("all", r#"{ path: "/*" }"#), ("beta", BETA)], "");
    assert_eq!(route_of(&weir, "/", "Cookie: beta=1\r\n"), "beta");
    let other = BETA.replace("== \"1\"", "== \"2\"");
    weir.reload_with(&config(&[("all", r#"{ path: "/*" }"#), ("beta", &other)], "")).unwrap();
    assert_eq!(route_of(&weir, "/", "Cookie: beta=1\r\n"), "all");
    assert_eq!(route_of(&weir, "/", "Cookie: beta=2\r\n"), "beta");
    // A mistake keeps what runs.
    let broken = BETA.replace("cookies.beta", "cookie.beta");
    let told = weir.reload_with(&config(&[("all", r#"{ path: "/*" }"#), ("beta", &broken)], "")).unwrap_err();
    // A log may have other readers than the author, who learns the rest from `weir check`.
    assert!(told.contains("weir.yaml:8:33: routes.beta.match.when: there is no variable `***`"), "{told}");
    assert_eq!(route_of(&weir, "/", "Cookie: beta=2\r\n"), "beta");
}

#[test]
fn an_acl_refuses_by_an_expression() {
    let weir = Weir::start(&format!(
        "{WEB}\nconsumers: {{ shop: {{ key_auth: [ shop-key ], groups: [ staff ] }}, desk: {{ key_auth: [ desk-key ] }} }}\n\
         routes:\n  all:\n    match: {{ path: \"/users/{{id}}\" }}\n    filters:\n    - key_auth: {{}}\n    \
         - acl: {{ is: 'request.method == \"GET\" || (\"staff\" in consumer.groups && request.params.id != \"1\")' }}\n    \
         respond: {{ body: ok }}\n"
    ));
    let ask = |method: &str, id: &str, key: &str| {
        weir.client().ask(format!(
            "{method} /users/{id} HTTP/1.1\r\nHost: h\r\nX-Api-Key: {key}\r\nContent-Length: 0\r\n\r\n"
        ))
    };
    ask("GET", "1", "desk-key").expect_status(200);
    ask("POST", "2", "shop-key").expect_status(200);
    ask("POST", "2", "desk-key").expect_cause(ACL_DENIED);
    ask("POST", "1", "shop-key").expect_cause(ACL_DENIED);
}
