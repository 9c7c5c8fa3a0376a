//! Filters from the client's side. Each filter's own file tests its details.

use weir_testkit::{Response, Upstream, Weir, eventually};

use crate::cause::{BODY_TOO_LARGE, KEY_MISSING, KEY_UNKNOWN, QUOTA_EXCEEDED, RATE_LIMITED};
use crate::support::{OK, OK_BODY, WEB};

/// A gateway with these filters on its only route, and further top-level config.
#[track_caller]
fn filtered(upstream: &Upstream, filters: &str, more: &str) -> Weir {
    Weir::start(&format!(
        "{WEB}\nupstreams: {{ up: {{ endpoints: [{}] }} }}\nroutes:\n  all:\n    match: {{ path: \"/{{rest*}}\" }}\n    \
         filters: [ {filters} ]\n    upstream: up\n{more}\n",
        upstream.address()
    ))
}

#[track_caller]
fn with(weir: &Weir, fields: &str) -> Response {
    weir.client().ask(format!("GET /a HTTP/1.1\r\nHost: weir.test\r\n{fields}\r\n"))
}

#[test]
fn request_id() {
    let upstream = Upstream::fixed(OK);
    let weir = filtered(&upstream, "{ request_id: {} }", "");
    with(&weir, "").expect_status(200);
    let first = upstream.take_request().head.header("x-request-id").map(str::to_owned);
    with(&weir, "").expect_status(200);
    let second = upstream.take_request().head.header("x-request-id").map(str::to_owned);
    assert!(first.is_some() && first != second, "{first:?} {second:?}");
}

#[test]
fn headers_both_ways() {
    let upstream = Upstream::fixed("HTTP/1.1 200 OK\r\nServer: old\r\nContent-Length: 0\r\n\r\n");
    let weir = filtered(
        &upstream,
        "{ headers: { request: { set: { x-a: one }, remove: [ x-b ] }, response: { set: { x-c: three }, remove: [ server ] } } }",
        "",
    );
    with(&weir, "X-A: mine\r\nX-B: gone\r\n").expect_header("x-c", "three").expect_no_header("server");
    let head = upstream.take_request().head;
    assert_eq!((head.all("x-a"), head.header("x-b")), (vec!["one"], None));
}

#[test]
fn rewrite_with_captures() {
    let upstream = Upstream::fixed(OK);
    let weir = filtered(&upstream, "{ rewrite: { path: \"/v2/{rest}\" } }", "");
    weir.client().get("/a/b?c=d").expect_status(200);
    assert_eq!(upstream.take_request().head.line, "GET /v2/a/b?c=d HTTP/1.1");
}

#[test]
fn redirect_reaches_no_upstream() {
    let upstream = Upstream::fixed(OK);
    let weir = filtered(&upstream, "{ redirect: { https: true } }", "");
    let response = weir.client().get("/a?b");
    assert!(matches!(response.status, 301 | 302 | 307 | 308), "{}", response.status);
    response.expect_header("location", "https://weir.test/a?b");
    assert_eq!(upstream.connections(), 0);
}

#[test]
fn key_auth() {
    let upstream = Upstream::fixed(OK);
    let weir = filtered(
        &upstream,
        "{ key_auth: { header: apikey } }",
        "consumers: { shop: { key_auth: [ the-key ] } }",
    );
    with(&weir, "").expect_cause(KEY_MISSING);
    with(&weir, "apikey: wrong\r\n").expect_cause(KEY_UNKNOWN);
    assert_eq!(upstream.connections(), 0);
    with(&weir, "apikey: the-key\r\n").expect_status(200);
}

#[test]
fn several_limits_costs_and_quotas() {
    let upstream = Upstream::script(|conn| {
        while conn.next_request().is_some() {
            if conn.try_send("HTTP/1.1 200 OK\r\nX-Cost: 3\r\nContent-Length: 0\r\n\r\n").is_err() {
                return;
            }
        }
    });
    let limits = "limits: [ { requests: 100, per: 1h }, { requests: 4, per: day } ]";
    let weir = filtered(
        &upstream,
        &format!("{{ rate_limit: {{ {limits}, cost: \"header:x-cost\", by: \"{{path}}\" }} }}"),
        "",
    );
    let first = with(&weir, "");
    first.expect_status(200).expect_no_header("x-cost");
    assert_eq!(first.head.all("ratelimit-policy"), ["\"default\";q=100;w=3600", "\"default-2\";q=4;w=86400"]);
    assert!(
        first.head.all("ratelimit")[1].starts_with("\"default-2\";r=1;t="),
        "{:?}",
        first.head.all("ratelimit")
    );
    with(&weir, "").expect_status(200);
    with(&weir, "").expect_cause(QUOTA_EXCEEDED);
    weir.client().get("/other").expect_status(200);
}

/// WSGI, CGI, PHP and Rack read `_` as `-`: a field that a route guarantees must have no second spelling.
#[test]
fn no_other_spelling_of_a_guarded_field_passes() {
    let consumers = "consumers: { shop: { key_auth: [ the-key ] } }";
    for (filters, more, fields) in [
        ("{ key_auth: { consumer_header: x-user } }", consumers, "X-Api-Key: the-key\r\nX_User: evil"),
        ("{ key_auth: { hide: false } }", consumers, "X-Api-Key: the-key\r\nX_Api-Key: evil"),
        ("{ key_auth: { header: api_key, hide: false } }", consumers, "api_key: the-key\r\nApi-Key: evil"),
        (
            "{ headers: { request: { set: { x-tier: one }, remove: [ x-debug ] } } }",
            "",
            "X_Tier: evil\r\nx_debug: evil",
        ),
        (
            "{ rate_limit: { requests: 9, per: 1s, by: \"header:x-tenant\" } }",
            "",
            "x-tenant: a\r\nX_Tenant: evil",
        ),
        ("{ request_id: {} }", "", "x-request-id: a\r\nX_Request_Id: evil"),
    ] {
        let upstream = Upstream::fixed(OK);
        let weir = filtered(&upstream, filters, more);
        with(&weir, &format!("{fields}\r\nx_other: mine\r\n")).expect_status(200);
        let head = upstream.take_request().head;
        assert!(!String::from_utf8_lossy(&head.raw).contains("evil"), "{filters}: {:?}", head.headers);
        assert_eq!(head.header("x_other"), Some("mine"));
    }
}

#[test]
fn no_other_spelling_of_a_field_that_chooses_the_route_passes() {
    let upstream = Upstream::fixed(OK);
    let weir = Weir::start(&format!(
        "{WEB}\nupstreams: {{ up: {{ endpoints: [{}] }} }}\nconsumers: {{ shop: {{ key_auth: [ the-key ] }} }}\nroutes:\n  \
         inner: {{ match: {{ headers: {{ x-inner: \"*\" }} }}, filters: [ {{ key_auth: {{}} }} ], upstream: up }}\n  \
         open: {{ match: {{ path: \"/*\" }}, upstream: up }}\n",
        upstream.address()
    ));
    with(&weir, "X-Inner: 1\r\n").expect_cause(KEY_MISSING);
    with(&weir, "X_Inner: 1\r\n").expect_status(200);
    assert_eq!(upstream.take_request().head.header("x_inner"), None);
}

#[test]
fn a_plan_limits_its_consumers() {
    let upstream = Upstream::fixed(OK);
    let weir = filtered(
        &upstream,
        "{ key_auth: {} }",
        "consumers:\n  free: { key_auth: [ free-key ], plan: small }\n  paid: { key_auth: [ paid-key ] }\n\
         plans: { small: { filters: [ { rate_limit: { requests: 2, per: 1h } } ] } }",
    );
    for _ in 0..2 {
        with(&weir, "x-api-key: free-key\r\n").expect_status(200);
    }
    with(&weir, "x-api-key: free-key\r\n").expect_cause(RATE_LIMITED);
    for _ in 0..4 {
        with(&weir, "x-api-key: paid-key\r\n").expect_status(200);
    }
}

/// A field that a plan sets for its consumers cannot be sent by others in another spelling, nor in a trailer.
#[test]
fn a_field_of_a_plan_has_no_twin() {
    let upstream = Upstream::fixed(OK);
    let weir = filtered(
        &upstream,
        "{ key_auth: {} }",
        "consumers:\n  rich: { key_auth: [ rich-key ], plan: gold }\n  poor: { key_auth: [ poor-key ] }\n\
         plans: { gold: { filters: [ { headers: { request: { set: { x-tier: gold } } } } ] } }",
    );
    for (key, tier) in [("rich-key", Some("gold")), ("poor-key", None)] {
        let request = format!(
            "POST / HTTP/1.1\r\nHost: h\r\nX-Api-Key: {key}\r\nX_Tier: gold\r\nTransfer-Encoding: chunked\r\n\r\n\
             1\r\na\r\n0\r\nX-Tier: gold\r\nX_Tier: gold\r\n\r\n"
        );
        weir.client().ask(request).expect_status(200);
        let request = upstream.take_request();
        assert_eq!((request.head.header("x-tier"), request.head.header("x_tier")), (tier, None));
        assert_eq!(request.body.trailers, []);
    }
}

#[test]
fn rate_limit_is_exact_over_all_workers() {
    let upstream = Upstream::fixed(OK);
    let weir = filtered(&upstream, "{ rate_limit: { requests: 10, per: 1h, by: route } }", "workers: 2");
    let answers: Vec<_> = (0..30).map(|_| with(&weir, "")).collect();
    assert_eq!(answers.iter().filter(|answer| answer.status == 200).count(), 10);
    let refused = answers.last().unwrap();
    refused.expect_cause(RATE_LIMITED);
    assert!(refused.header("retry-after").is_some_and(|after| after.parse::<u64>().is_ok()));
    assert!(refused.header("ratelimit").is_some() && refused.header("ratelimit-policy").is_some());
}

#[test]
fn body_limit() {
    let upstream = Upstream::fixed(OK);
    let weir = filtered(&upstream, "{ body_limit: { max: 8B } }", "");
    let post =
        |body: &str| format!("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    weir.client().ask(post("12345678")).expect_status(200);
    weir.client().ask(post("123456789")).expect_cause(BODY_TOO_LARGE);
    let mut client = weir.client();
    client
        .send("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n9\r\n123456789\r\n0\r\n\r\n");
    client.read_response().expect_cause(BODY_TOO_LARGE);
}

#[test]
fn a_body_refused_behind_the_response_head_is_told() {
    let upstream = Upstream::listen();
    let weir = filtered(&upstream, "{ body_limit: { max: 8B } }", "access_log: { output: stdout }");
    let mut client = weir.client();
    client.send("POST /late HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n4\r\n1234\r\n");
    let mut conn = upstream.accept();
    conn.read_until("1234\r\n");
    conn.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n");
    client.read_until("ok");
    client.send("5\r\n56789\r\n");
    client.read_to_close();
    conn.expect_close();
    let line: serde_json::Value = serde_json::from_str(&weir.wait_stdout("/late")).unwrap();
    assert_eq!((&line["cause"], &line["status"]), (&"body_too_large".into(), &200.into()), "{line}");
}

#[test]
fn forward_auth_asks_first() {
    let upstream = Upstream::fixed(OK_BODY);
    let judge = Upstream::script(|conn| {
        while let Some(request) = conn.next_request() {
            let status =
                if request.head.has_line("authorization: good") { "200 OK" } else { "403 Forbidden" };
            if conn.try_send(format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n")).is_err() {
                return;
            }
        }
    });
    let weir = Weir::start(&format!(
        "{WEB}\nupstreams: {{ up: {{ endpoints: [{}] }}, judge: {{ endpoints: [{}] }} }}\nroutes:\n  all:\n    \
         match: {{ path: \"/*\" }}\n    filters: [ {{ forward_auth: {{ upstream: judge, path: /check }} }} ]\n    upstream: up\n",
        upstream.address(),
        judge.address()
    ));
    with(&weir, "Authorization: bad\r\n").expect_status(403);
    assert_eq!(upstream.connections(), 0);
    with(&weir, "Authorization: good\r\n").expect_status(200).expect_body("ok");
    judge.verify();
}

#[test]
fn filters_of_the_gateway_run_for_every_route() {
    let upstream = Upstream::fixed(OK);
    let weir =
        Weir::in_front_of_with(&upstream, "filters: [ { headers: { request: { set: { x-all: yes } } } } ]");
    weir.client().get("/").expect_status(200);
    eventually("it arrived", || !upstream.requests().is_empty());
    assert_eq!(upstream.take_request().head.header("x-all"), Some("yes"));
}
