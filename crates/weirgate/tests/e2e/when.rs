//! The filters `when`, which chooses others by an expression, and `respond`.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use weir_testkit::{Response, Upstream, Weir, eventually, run_weir};

use crate::cause::{ACL_DENIED, BODY_TOO_LARGE, KEY_MISSING, NO_ROUTE, RATE_LIMITED};
use crate::support::WEB;

/// The config of a gateway in front of one upstream, with these filters on its route.
fn config(upstream: &Upstream, more: &str, filters: &str) -> String {
    format!(
        "{WEB}\nworkers: 2\nexpose_causes: true\n{more}\nstores: {{ pages: {{ memory: 4MiB }} }}\n\
         upstreams: {{ up: {{ endpoints: [{}] }} }}\n\
         routes:\n  all:\n    match: {{ path: \"/*\" }}\n    filters: [ {filters} ]\n    upstream: up\n",
        upstream.address()
    )
}

fn weir(upstream: &Upstream, more: &str, filters: &str) -> Weir {
    Weir::start(&config(upstream, more, filters))
}

fn ask(weir: &Weir, line: &str, fields: &str) -> Response {
    weir.client().ask(format!("{line} HTTP/1.1\r\nHost: weir.test\r\n{fields}\r\n"))
}

/// An upstream that shows the fields it received, each answer with its number.
fn echo(fields: &str) -> Upstream {
    let (count, fields) = (AtomicUsize::new(0), fields.to_owned());
    Upstream::script(move |conn| {
        while let Some(request) = conn.next_request() {
            let asked =
                request.head.headers.iter().filter(|(name, _)| name.to_ascii_lowercase().starts_with("x-"));
            let asked: Vec<String> = asked.map(|(name, value)| format!("{name}={value}")).collect();
            let body = format!("{} {}", count.fetch_add(1, SeqCst), asked.join(";"));
            let head = format!("HTTP/1.1 200 OK\r\n{fields}Content-Length: {}\r\n\r\n", body.len());
            if conn.try_send([head, body].concat()).is_err() {
                return;
            }
        }
    })
}

/// Sets a field of the request and of the response.
fn mark(name: &str) -> String {
    format!(
        "{{ headers: {{ request: {{ add: {{ x-in: {name} }} }}, response: {{ add: {{ x-out: {name} }} }} }} }}"
    )
}

#[test]
fn the_chosen_filters_run_in_place_at_all_their_hooks() {
    let upstream = Upstream::fixed(crate::support::OK_BODY);
    let inner = format!(
        "{{ when: {{ is: 'request.args.b == \"1\"', filters: [ {} ], otherwise: [ {} ] }} }}",
        mark("b"),
        mark("not-b")
    );
    let filters = format!(
        "{}, {{ when: {{ is: 'request.args.a == \"1\"', filters: [ {}, {inner}, {} ], otherwise: [ {} ] }} }}, {}",
        mark("first"),
        mark("a"),
        mark("a2"),
        mark("not-a"),
        mark("last")
    );
    let weir = weir(&upstream, "", &filters);
    for (query, chosen) in [
        ("a=1&b=1", &["first", "a", "b", "a2", "last"][..]),
        ("a=1&b=2", &["first", "a", "not-b", "a2", "last"]),
        ("a=2&b=1", &["first", "not-a", "last"]),
    ] {
        let answer = ask(&weir, &format!("GET /?{query}"), "");
        let seen = |headers: &[(String, String)], of: &str| -> Vec<String> {
            headers
                .iter()
                .filter(|(name, _)| name.eq_ignore_ascii_case(of))
                .map(|(_, value)| value.clone())
                .collect()
        };
        assert_eq!(seen(&upstream.take_request().head.headers, "x-in"), chosen, "{query}");
        let mut reversed = seen(&answer.head.headers, "x-out");
        reversed.reverse();
        assert_eq!(reversed, chosen, "{query}: responses pass in reverse");
    }
}

#[test]
fn filters_with_bodies_and_answers_work_inside() {
    let upstream =
        Upstream::fixed("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 7\r\n\r\nold old");
    let filters = "{ when: { is: 'request.path.startsWith(\"/r/\")', \
                   filters: [ { replace: { text: { old: newer } } }, { body_limit: { max: 3B } } ], \
                   otherwise: [ { when: { is: 'request.path == \"/closed\"', filters: [ { respond: { status: 410, \
                   body: \"{host}{path} is closed\", headers: { x-path: \"{path}\" } } } ] } } ] } }, { request_id: { response: true } }";
    let weir = weir(&upstream, "", filters);
    ask(&weir, "GET /r/x", "").expect_status(200).expect_body("newer newer");
    ask(&weir, "GET /x", "").expect_status(200).expect_body("old old");
    let post = |path: &str| {
        weir.client().ask(format!("POST {path} HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nfour"))
    };
    post("/r/x").expect_cause(BODY_TOO_LARGE);
    post("/x").expect_status(200);
    let closed = ask(&weir, "GET /closed", "");
    closed.expect_status(410).expect_body("weir.test/closed is closed").expect_header("x-path", "/closed");
    assert_eq!(closed.header("x-request-id"), None, "filters behind an answer do not run");
}

/// What an expression reads decides what the upstream is asked, on both sides of it.
#[test]
fn no_cache_confuses_the_outcomes() {
    let upstream = echo("Cache-Control: public, max-age=60\r\n");
    let cache = "{ cache: { store: pages } }";
    for (is, one, other) in [
        ("request.cookies.user == \"alice\"", "Cookie: user=alice\r\n", "Cookie: user=bob\r\n"),
        // Both take the same way, and are different users all the same.
        ("request.cookies.user != \"\"", "Cookie: user=alice\r\n", "Cookie: user=bob\r\n"),
        ("request.cookies.user == \"\"", "Cookie: user=alice\r\n", "Cookie: user=bob\r\n"),
        ("request.headers[\"x-key\"] == \"a\"", "X-Key: a\r\n", "X-Key: b\r\n"),
        (
            "request.headers[\"accept-language\"].startsWith(\"de\")",
            "Accept-Language: de\r\n",
            "Accept-Language: fr\r\n",
        ),
        ("client.ip in [\"10.0.0.0/8\"]", "X-Forwarded-For: 10.0.0.1\r\n", "X-Forwarded-For: 192.0.2.1\r\n"),
    ] {
        let when = format!(
            "{{ when: {{ is: '{is}', filters: [ {} ], otherwise: [ {} ] }} }}",
            mark("yes"),
            mark("no")
        );
        let inside = format!("{{ when: {{ is: '{is}', filters: [ {cache} ], otherwise: [ {cache} ] }} }}");
        for (filters, hits) in
            [(format!("{when}, {cache}"), true), (inside, true), (format!("{cache}, {when}"), false)]
        {
            let weir = weir(&upstream, "trusted_proxies: [ 127.0.0.1 ]", &filters);
            let twice = |fields| [ask(&weir, "GET /account", fields), ask(&weir, "GET /account", fields)];
            let (of_one, of_other) = (twice(one), twice(other));
            for answer in &of_other {
                answer.expect_status(200);
                assert!(
                    of_one.iter().all(|first| first.text() != answer.text()),
                    "{is} {filters}: {answer:?}"
                );
            }
            assert_eq!(of_one[0].text() == of_one[1].text(), hits, "{is} {filters}");
            assert_eq!(of_other[0].text() == of_other[1].text(), hits, "{is} {filters}");
        }
    }
}

/// A condition over the URL takes nothing from a cache.
#[test]
fn what_the_url_says_is_cached() {
    let upstream = echo("Cache-Control: max-age=60\r\n");
    let filters = format!(
        "{{ cache: {{ store: pages }} }}, {{ when: {{ is: 'request.args.a == \"1\" && request.method == \"GET\"', filters: [ {} ] }} }}",
        mark("a")
    );
    let weir = weir(&upstream, "", &filters);
    for query in ["a=1", "a=2"] {
        let line = format!("GET /?{query}");
        assert_eq!(ask(&weir, &line, "").text(), ask(&weir, &line, "").text());
    }
}

/// A filter in a list may name the consumer, whose plan follows it there; one that runs for some requests only takes
/// nothing from a plan.
#[test]
fn a_plan_follows_the_filter_that_names_its_consumer() {
    let upstream = Upstream::fixed(crate::support::OK);
    let plan = format!(
        "{}, {{ when: {{ is: 'request.path == \"/x\"', filters: [ {}, {{ request_id: {{}} }} ] }} }}",
        mark("plan"),
        mark("plan-x")
    );
    let more = format!(
        "consumers: {{ shop: {{ key_auth: [ a-key ], plan: gold }} }}\nplans: {{ gold: {{ filters: [ {plan} ] }} }}"
    );
    let inner = "{ headers: { request: { add: { x-in: inner } } } }";
    let filters = format!(
        "{{ when: {{ is: 'request.args.open == \"1\"', filters: [ {inner} ], otherwise: [ {{ key_auth: {{}} }}, {inner} ] }} }}, {{ request_id: {{ header: x-own }} }}"
    );
    let weir = weir(&upstream, &more, &filters);
    let seen = || -> Vec<String> {
        let headers = upstream.take_request().head.headers;
        let mut seen: Vec<String> = headers
            .iter()
            .filter(|(name, _)| name.eq_ignore_ascii_case("x-in"))
            .map(|(_, value)| value.clone())
            .collect();
        seen.extend(
            headers
                .iter()
                .filter(|(name, _)| name.eq_ignore_ascii_case("x-request-id"))
                .map(|_| "id".to_owned()),
        );
        seen
    };
    ask(&weir, "GET /?open=1", "X-Api-Key: a-key\r\n").expect_status(200);
    assert_eq!(seen(), ["inner"]);
    ask(&weir, "GET /", "X-Api-Key: a-key\r\n").expect_status(200);
    assert_eq!(seen(), ["plan", "inner"]);
    // The route's own `request_id` stands outside of any list, so it replaces the plan's.
    ask(&weir, "GET /x", "X-Api-Key: a-key\r\n").expect_status(200);
    assert_eq!(seen(), ["plan", "plan-x", "inner"]);
    ask(&weir, "GET /", "").expect_cause(KEY_MISSING);
}

#[test]
fn state_inside_survives_a_reload() {
    let upstream = Upstream::fixed(crate::support::OK);
    let filters = |more: &str| {
        format!(
            "{{ when: {{ is: 'request.args.limited == \"1\"', filters: [ {more} {{ rate_limit: {{ requests: 2, per: 1h, by: route }} }} ] }} }}"
        )
    };
    let weir = weir(&upstream, "", &filters(""));
    for _ in 0..3 {
        ask(&weir, "GET /", "").expect_status(200);
    }
    ask(&weir, "GET /?limited=1", "").expect_status(200);
    ask(&weir, "GET /?limited=1", "").expect_status(200);
    weir.reload_with(&config(&upstream, "", &filters("{ request_id: {} },"))).unwrap();
    ask(&weir, "GET /?limited=1", "").expect_cause(RATE_LIMITED);
    ask(&weir, "GET /", "").expect_status(200);
}

/// A stale answer is served at once, and the request goes on behind it: through the rest of the list, and what follows.
#[test]
fn a_request_goes_on_behind_an_answer_from_inside_a_list() {
    let upstream = echo("Cache-Control: max-age=60, stale-while-revalidate=600\r\nAge: 100\r\n");
    let filters = format!(
        "{{ when: {{ is: 'request.path == \"/\"', filters: [ {}, {{ cache: {{ store: pages }} }}, {} ] }} }}, {}",
        mark("before"),
        mark("inside"),
        mark("behind")
    );
    let weir = weir(&upstream, "", &filters);
    let fresh = ask(&weir, "GET /", "").text();
    assert!(fresh.starts_with("0 ") && fresh.contains("x-in=before;x-in=inside;x-in=behind"), "{fresh}");
    assert_eq!(ask(&weir, "GET /", "").text(), fresh);
    let [_, behind] = upstream.wait_requests(2).try_into().unwrap();
    let seen: Vec<&str> = behind
        .head
        .headers
        .iter()
        .filter(|(name, _)| name.eq_ignore_ascii_case("x-in"))
        .map(|(_, value)| value.as_str())
        .collect();
    assert_eq!(seen, ["before", "inside", "behind"]);
}

#[test]
fn requests_without_a_route_meet_the_pages_of_the_chosen_list() {
    let weir = Weir::start(&format!(
        "{WEB}\nexpose_causes: true\nfilters:\n- when:\n    is: 'request.headers.accept.contains(\"json\")'\n    \
         filters: [ {{ errors: {{ 404: {{ body: '{{\"no\":1}}', type: application/json }} }} }}, {{ request_id: {{}} }} ]\n    \
         otherwise: [ {{ errors: {{ 404: {{ body: nothing }} }} }} ]\n\
         routes: {{ one: {{ match: {{ path: /one }}, respond: {{ body: one }} }} }}\n"
    ));
    ask(&weir, "GET /two", "Accept: application/json\r\n").expect_cause(NO_ROUTE).expect_body("{\"no\":1}");
    ask(&weir, "GET /two", "").expect_cause(NO_ROUTE).expect_body("nothing");
}

#[test]
fn a_route_whose_lists_both_answer_needs_no_target() {
    let route = |otherwise: &str| {
        format!(
            "{WEB}\nexpose_causes: true\nroutes:\n  all:\n    match: {{ path: \"/*\" }}\n    filters:\n    - when:\n        \
             is: 'client.ip in [\"127.0.0.0/8\"]'\n        filters: [ {{ respond: {{ body: here }} }} ]\n        otherwise: [ {otherwise} ]\n"
        )
    };
    let weir = Weir::start(&route("{ redirect: { to: /elsewhere } }"));
    ask(&weir, "GET /", "").expect_status(200).expect_body("here");
    let dir = tempfile::TempDir::new().unwrap();
    std::fs::write(dir.path().join("weir.yaml"), route("{ request_id: {} }")).unwrap();
    run_weir(dir.path(), &["check"]).expect_code(1).expect_text("none of its filters answers every request");
}

#[test]
fn explain_and_check_know_the_lists() {
    let dir = tempfile::TempDir::new().unwrap();
    let upstream = Upstream::fixed(crate::support::OK);
    let write = |filters: &str| {
        let consumers = "consumers: { shop: { key_auth: [ a-key ] } }";
        std::fs::write(dir.path().join("weir.yaml"), config(&upstream, consumers, filters)).unwrap();
    };
    write(
        "{ when: { is: 'request.args.a == \"1\"', filters: [ { key_auth: {} } ], otherwise: [ { respond: { status: 403 } } ] } }",
    );
    run_weir(dir.path(), &["explain", "GET", "/?a=1"])
        .expect_code(0)
        .expect_text("filters  when {\"is\":\"***\"}\n")
        .expect_text("the expression is true; request.args[\"a\"] is \"1\"\n")
        .expect_text("           filters\n             key_auth {")
        .expect_text("           otherwise (not for this request)\n             respond {");
    write("{ when: { is: 'consumer.name == \"shop\"', filters: [ { request_id: {} } ] } }");
    run_weir(dir.path(), &["explain", "GET", "/"]).expect_text("filters (depends on the caller)");
    // All mistakes at once, each at its place.
    write(
        "{ when: { is: 'request.metod == \"GET\"', filters: [ { key_oath: {} } ], otherwise: [ { acl: { allow: [ nobody ] } } ] } }",
    );
    run_weir(dir.path(), &["check"])
        .expect_code(1)
        .expect_text("routes.all.filters[0].when.is: there is no variable `request.metod`")
        .expect_text("routes.all.filters[0].when.filters[0].key_oath: there is no filter `key_oath`")
        .expect_text("routes.all.filters[0].when.otherwise[0].acl.allow[0]: there is no consumer `nobody`");
    write(
        "{ cache: { store: pages } }, { when: { is: 'request.args.a == \"1\"', filters: [ { key_auth: {} } ] } }",
    );
    run_weir(dir.path(), &["check"]).expect_text("`key_auth` runs after it: the cache serves clients");
}

/// A filter in a list is counted and named like any other.
#[test]
fn the_log_and_the_metrics_name_inner_filters() {
    let upstream = Upstream::fixed(crate::support::OK);
    let weir = weir(
        &upstream,
        "admin: { address: 127.0.0.1:0 }",
        "{ when: { is: 'request.path == \"/no\"', filters: [ { acl: { is: 'request.method == \"PUT\"' } } ] } }",
    );
    ask(&weir, "GET /no", "").expect_cause(ACL_DENIED);
    eventually("the cause is counted", || {
        let metrics = weir.admin_client().ask("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").text();
        metrics.contains("weir_route_causes_total{route=\"all\",cause=\"acl_denied\"} 1\n")
    });
}
