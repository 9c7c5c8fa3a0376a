//! Expressions of the config: `match.when`, `is` of the filter acl, and texts with expressions.

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
    // So it is with a name that is known at run time only.
    let upstream = Upstream::fixed(crate::support::OK);
    let is = "'!has(request.headers[\"x-\" + request.args.by])'";
    let weir = Weir::start(&format!(
        "{WEB}\nupstreams: {{ up: {{ endpoints: [{}] }} }}\nroutes:\n  open: {{ match: {{ path: \"/*\" }}, \
         filters: [ {{ acl: {{ is: {is} }} }} ], upstream: up }}\n",
        upstream.address()
    ));
    let ask =
        |field: &str| weir.client().ask(format!("GET /?by=staff HTTP/1.1\r\nHost: h\r\n{field}: 1\r\n\r\n"));
    ask("X-Staff").expect_cause(ACL_DENIED);
    ask("X_Staff").expect_status(200);
    assert_eq!(upstream.take_request().head.header("x_staff"), None);
}

/// A gateway with these filters in front of one upstream, which answers with its request.
fn texts(upstream: &Upstream, more: &str, filters: &str) -> Weir {
    Weir::start(&format!(
        "{WEB}\nexpose_causes: true\n{more}\nupstreams: {{ up: {{ endpoints: [{}] }} }}\n\
         routes:\n  all:\n    match: {{ path: \"/users/{{id}}\" }}\n    filters: [ {filters} ]\n    upstream: up\n",
        upstream.address()
    ))
}

#[test]
fn texts_take_expressions_where_they_take_placeholders() {
    let upstream = Upstream::fixed("HTTP/1.1 203 X\r\nX-Own: 1\r\nX-Own: 2\r\nContent-Length: 0\r\n\r\n");
    let filters = r#"{ headers: { request: { set: { x-a: '{method} {= request.params.id + "!" }, {{= x }} {= "}" }', x-b: '= request.args.q', x-c: '{= request.args.none }' } },
          response: { set: { x-r: '{= response.status + 1 }/{= request.args.q }/{= response.headers["x-own"] }/{= request.headers["x-many"].all().size() }' } } } },
        { rewrite: { path: '/p/{= request.args.q }/{= request.params.id }', query: { set: { n: '{= (int(request.args.n) ?? 0) + 1 }' } } } }"#;
    let weir = texts(&upstream, "", filters);
    let ask = |query: &str| {
        weir.client().ask(format!(
            "GET /users/7?{query} HTTP/1.1\r\nHost: h\r\nX-C: forged\r\nX-Many: 1\r\nX-Many: 2\r\n\r\n"
        ))
    };
    ask("q=a%2Fb&n=4").expect_status(203).expect_header("x-r", "204/a/b/1, 2/2");
    let request = upstream.take_request();
    assert_eq!(request.head.header("x-a"), Some("GET 7!, {= x } }"));
    assert_eq!(request.head.header("x-b"), Some("a/b"));
    assert_eq!(request.head.header("x-c"), None, "an empty value removes the field");
    assert!(request.head.line.starts_with("GET /p/a%2Fb/7?q=a%2Fb&n=5 "), "{}", request.head.line);
    // Neither a line break nor a segment `..` leaves its place.
    ask("q=..%2F..%2Fadmin").expect_status(400);
    ask("q=%0D%0AX-Evil:%201").expect_status(400);
    let fields = "{ headers: { request: { set: { x-b: '{= request.args.q }' } }, response: { set: { x-b: '= request.args.q' } } } }";
    let weir = texts(&upstream, "", fields);
    let answer = weir.client().ask("GET /users/7?q=%0D%0AX-Evil:%201 HTTP/1.1\r\nHost: h\r\nX-B: 1\r\n\r\n");
    let request = upstream.take_request();
    assert_eq!((request.head.header("x-b"), request.head.header("x-evil")), (None, None));
    assert_eq!((answer.header("x-b"), answer.header("x-evil")), (None, None));
}

#[test]
fn bodies_redirects_and_keys_take_expressions() {
    let upstream = Upstream::fixed(crate::support::OK);
    let filters = r#"{ rate_limit: { requests: 1, per: 1h, by: '= request.cookies.sid ?? client.ip' } },
        { when: { is: 'request.params.id == "r"', filters: [ { redirect: { to: 'https://www.example.com/{= request.args.q }', keep_query: false } } ] } },
        { when: { is: 'request.params.id == "b"', filters: [ { respond: { body: '<p>{= request.args.q }</p>{a:1}', headers: { content-type: text/html } } } ] } }"#;
    let weir = texts(&upstream, "", filters);
    let ask = |id: &str, sid: &str| {
        let query = "q=%3Cb%3E%0D%0A%2F..";
        weir.client().ask(format!("GET /users/{id}?{query} HTTP/1.1\r\nHost: h\r\nCookie: sid={sid}\r\n\r\n"))
    };
    ask("r", "1").expect_status(308).expect_header("location", "https://www.example.com/%3Cb%3E%0D%0A%2F..");
    ask("b", "2").expect_status(200).expect_body("<p>&lt;b&gt;\r\n/..</p>{a:1}");
    ask("b", "1").expect_cause(crate::cause::RATE_LIMITED);
    ask("b", "3").expect_status(200);
}

/// Answers are kept apart by what an expression in the key comes to, whatever else differs.
#[test]
fn keys_of_caches_take_expressions() {
    let upstream = Upstream::fixed(
        "HTTP/1.1 200 OK\r\nCache-Control: max-age=600\r\nX-Own: 1\r\nContent-Length: 2\r\n\r\nok",
    );
    let more = "stores: { pages: { memory: 4MiB } }\n\
                maps: { plans: { of: 'request.headers[\"x-tenant\"]', values: { a: gold, b: gold }, default: free } }";
    let filters = "{ cache: { store: pages, key: [ '= maps.plans', \"{method} {= base64.decode(request.args.b) }\" ] } }";
    let weir = texts(&upstream, more, filters);
    let mut client = weir.client();
    let mut is_hit = |query: &str, tenant: &str| {
        let request = format!("GET /users/7{query} HTTP/1.1\r\nHost: h\r\nX-Tenant: {tenant}\r\n\r\n");
        client.ask(request).expect_status(200).header("cache-status").unwrap().contains("hit")
    };
    let rows = [
        ("", "a", false),
        ("", "b", true),
        ("", "c", false),
        ("", "d", true),
        ("", "a", true),
        // Zero bytes, and more bytes than a key takes as they are.
        ("?b=AAAA", "a", false),
        ("?b=AAAA", "b", true),
        ("?b=AAAA", "c", false),
    ];
    for (query, tenant, want) in rows {
        assert_eq!(is_hit(query, tenant), want, "{query} {tenant}");
    }
    let long = format!("?b={}", "AAAB".repeat(100));
    assert!(!is_hit(&long, "a") && is_hit(&long, "b") && !is_hit(&long, "c"));
}

/// The name in the TLS handshake, which need not be that of the request.
#[test]
fn the_name_of_the_handshake_is_a_variable() {
    use weir_testkit::{Authority, Client, Tls};
    let authority = Authority::new();
    let weir = Weir::start(&format!(
        "listeners: {{ web: {{ address: 127.0.0.1:0, tls: {{ certificates: [ {} ] }} }} }}\n\
         routes:\n\
         \x20 a: {{ match: {{ path: \"/*\", when: 'client.sni == \"a.test\"' }}, respond: {{ body: \"a\" }} }}\n\
         \x20 rest: {{ match: {{ path: \"/*\" }}, respond: {{ body: \"<{{= client.sni }}>\" }} }}\n\
         \x20 filtered: {{ match: {{ path: /f }}, filters: [ headers: {{ response: {{ set: {{ x-sni: '= client.sni' }} }} }} ], respond: {{}} }}\n",
        authority.leaf(&["a.test"]).yaml()
    ));
    let address = weir.address("web");
    for (tls, want) in
        [(Tls::new(&authority, "a.test"), "a"), (Tls::new(&authority, "a.test").without_sni(), "<>")]
    {
        let mut client = Client::connect_tls(&address, &tls);
        assert_eq!(client.get("/").expect_status(200).text(), want);
    }
    let mut client = Client::connect_tls(&address, &Tls::new(&authority, "a.test"));
    client.get("/f").expect_header("x-sni", "a.test");
}

/// Which upstream a request went to: known when the response is there, whoever made it.
#[test]
fn the_upstream_is_a_variable_of_responses() {
    let upstream = Upstream::fixed(crate::support::OK);
    let fields = "{ headers: { response: { set: { x-from: '<{= upstream.name }>' } } } }";
    let weir = texts(
        &upstream,
        "",
        &format!("{{ when: {{ is: 'request.params.id == \"0\"', filters: [ respond: {{}} ] }} }}, {fields}"),
    );
    let mut client = weir.client();
    client.get("/users/1").expect_header("x-from", "<up>");
    let weir = texts(
        &upstream,
        "",
        &format!("{fields}, {{ when: {{ is: 'request.params.id == \"0\"', filters: [ respond: {{}} ] }} }}"),
    );
    weir.client().get("/users/0").expect_header("x-from", "<>");
}

#[test]
fn claims_of_a_token_are_variables() {
    use weir_wire::base64::encode_url;
    let secret = "a secret of more than thirty-two bytes";
    let token = |claims: &str| {
        let signed = format!("{}.{}", encode_url(br#"{"alg":"HS256"}"#), encode_url(claims.as_bytes()));
        let key = aws_lc_rs::hmac::Key::new(aws_lc_rs::hmac::HMAC_SHA256, secret.as_bytes());
        format!("{signed}.{}", encode_url(aws_lc_rs::hmac::sign(&key, signed.as_bytes()).as_ref()))
    };
    let upstream = Upstream::fixed(crate::support::OK);
    let filters = format!(
        r#"{{ jwt: {{ secret: "{secret}", optional: true }} }}, {{ acl: {{ is: 'jwt.realm.admin == true || "read" in jwt.scopes || !has(jwt.sub)' }} }},
           {{ headers: {{ request: {{ set: {{ x-user: '{{= jwt.sub }}', x-age: '{{= jwt["https://a/age"] }}' }} }} }} }}"#
    );
    let weir = texts(&upstream, "", &filters);
    let ask = |claims: &str| {
        weir.client().ask(format!(
            "GET /users/1 HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer {}\r\n\r\n",
            token(claims)
        ))
    };
    for (claims, user) in [
        (r#"{"sub":"ann","exp":99999999999,"realm":{"admin":true},"https://a/age":7}"#, Some("ann")),
        (r#"{"sub":"bob","exp":99999999999,"scopes":["read"]}"#, Some("bob")),
        (r#"{"sub":"eve","exp":99999999999,"realm":{"admin":"true"}}"#, None),
    ] {
        // The second time, the token is remembered.
        for _ in 0..2 {
            match user {
                None => drop(ask(claims).expect_cause(ACL_DENIED)),
                Some(user) => {
                    ask(claims).expect_status(200);
                    let request = upstream.take_request();
                    assert_eq!(request.head.header("x-user"), Some(user));
                    assert_eq!(request.head.header("x-age"), (user == "ann").then_some("7"));
                }
            }
        }
    }
    weir.client().ask("GET /users/1 HTTP/1.1\r\nHost: h\r\nX-User: root\r\n\r\n").expect_status(200);
    assert_eq!(upstream.take_request().head.header("x-user"), None);
}

#[test]
fn mistakes_in_texts_have_their_place() {
    let dir = tempfile::TempDir::new().unwrap();
    let check = |filter: &str| {
        let text = format!(
            "{WEB}\nroutes:\n  all:\n    match: {{ path: /a }}\n    respond: {{ body: a }}\n    filters:\n    - {filter}\n"
        );
        std::fs::write(dir.path().join("weir.yaml"), text).unwrap();
        let mut command = weir_testkit::weir_command(dir.path());
        let out =
            command.args(["check"]).env("EVIL", "{= request.host }").env("NAME", "host").output().unwrap();
        String::from_utf8_lossy(&[out.stdout, out.stderr].concat()).into_owned()
    };
    for (filter, expected) in [
        (
            "headers: { request: { set: { x-a: 'é {= request.hots }' } } }",
            "weir.yaml:7:47: routes.all.filters[0].headers.request.set.x-a: there is no variable `request.hots`",
        ),
        (
            "headers: { request: { set: { x-a: '{= response.status }' } } }",
            "`response.status` is not known yet: it is from phase `response` on, and this runs in phase `body`",
        ),
        ("acl: { is: 'response.status == 200' }", "here are known: `request`, `client`"),
        (
            "headers: { response: { set: { x-a: '{= request.headers[request.host] }' } } }",
            "a name that is computed is not known when the response is there",
        ),
        ("headers: { request: { set: { x-a: '{= request.host' } } }", "this expression does not end"),
        (
            "headers: { request: { set: { x-a: '${EVIL}' } } }",
            "what a variable brings in is never a part of an expression",
        ),
        (
            "headers: { request: { set: { x-a: '{= request.${NAME} }' } } }",
            "what a variable brings in is never a part",
        ),
        ("headers: { request: { set: { x-a: 'a {= request.host # }' } } }", "unexpected `#`"),
        ("rate_limit: { requests: 1, per: 1s, by: '= request.hots' }", "there is no variable `request.hots`"),
        (
            "rate_limit: { requests: 1, per: 1s, by: '= ${NAME}' }",
            "what a variable brings in is never a part",
        ),
        ("redirect: { to: 'https://{= request.host }/a' }", "a client could choose another host"),
        ("redirect: { to: '= request.path' }", "a client could choose another host"),
        ("redirect: { to: '{= request.path }' }", "a client could choose another host"),
        ("respond: { body: '{= request.hots }' }", "there is no variable `request.hots`"),
    ] {
        let told = check(filter);
        assert!(told.contains(expected), "{filter}: {told}");
    }
    // A variable beside an expression is text.
    let told = check("headers: { request: { set: { x-a: '${NAME} {= request.host }' } } }");
    assert!(told.contains("0 errors"), "{told}");
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
