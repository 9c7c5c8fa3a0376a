//! Arms of a split with filters of their own.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use weir_testkit::{Response, Upstream, Weir, eventually, run_weir};

use crate::cause::{ACL_DENIED, KEY_MISSING};
use crate::support::OK_BODY;

/// Requests after which two equal arms have both been taken: one of them missing has odds of 1 to 2^99.
const ENOUGH: usize = 100;

/// The upstreams `a` and `b`, which answer with their names.
fn two() -> (Upstream, Upstream) {
    (Upstream::named("a"), Upstream::named("b"))
}

/// A config with the upstreams `a` and `b`, and one route with this split.
fn config((a, b): (&Upstream, &Upstream), more: &str, split: &str) -> String {
    format!(
        "listeners: {{ web: {{ address: 127.0.0.1:0, protocols: [http1, h2] }} }}\nworkers: 2\nexpose_causes: true\n{more}\nstores: {{ pages: {{ memory: 4MiB }} }}\n\
         upstreams:\n  a: {{ endpoints: [{}] }}\n  b: {{ endpoints: [{}] }}\n\
         routes:\n  all:\n    match: {{ path: \"/*\" }}\n    {split}\n",
        a.address(),
        b.address()
    )
}

/// Sets a field of the request and one of the response.
fn mark(name: &str) -> String {
    format!(
        "{{ headers: {{ request: {{ set: {{ x-in: {name} }} }}, response: {{ set: {{ x-out: {name} }} }} }} }}"
    )
}

fn ask(weir: &Weir, fields: &str) -> Response {
    weir.client().ask(format!("GET / HTTP/1.1\r\nHost: weir.test\r\n{fields}\r\n"))
}

/// How often each answer came: body and `x-out`.
fn tally(answers: impl Iterator<Item = Response>) -> BTreeMap<(String, String), usize> {
    let mut seen = BTreeMap::new();
    for answer in answers {
        let out = answer.header("x-out").unwrap_or_default().to_owned();
        *seen.entry((answer.text(), out)).or_default() += 1;
    }
    seen
}

fn admin(weir: &Weir, target: &str) -> Response {
    let answer = weir.admin_client().ask(format!("GET {target} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"));
    answer.expect_status(200);
    answer
}

fn metric(weir: &Weir, line: &str) -> u64 {
    let page = admin(weir, "/metrics").text();
    let found = page.lines().find_map(|found| found.strip_prefix(line)?.trim().parse().ok());
    found.unwrap_or_default()
}

#[test]
fn each_arm_runs_its_own_filters_in_both_directions() {
    let (a, b) = two();
    let split = format!(
        "filters: [ {} ]\n    upstream: {{ a: {{ weight: 1, filters: [ {} ] }}, next: {{ weight: 1, upstream: b, filters: [ {} ] }} }}",
        "{ headers: { request: { set: { x-route: all } } } }",
        mark("of-a"),
        mark("of-next")
    );
    let weir = Weir::start(&config((&a, &b), "", &split));
    let mut client = weir.client();
    let seen = tally((0..ENOUGH).map(|_| client.get("/")));
    let pair = |body: &str, out: &str| (body.to_owned(), out.to_owned());
    assert_eq!(seen.keys().cloned().collect::<Vec<_>>(), [pair("a", "of-a"), pair("b", "of-next")]);
    for (upstream, expected) in [(&a, "of-a"), (&b, "of-next")] {
        for request in upstream.requests() {
            assert_eq!(request.head.all("x-in"), [expected]);
            assert_eq!(request.head.all("x-route"), ["all"]);
        }
    }
    // The same over HTTP/2, and for HEAD.
    let mut h2 = weir.h2();
    for _ in 0..ENOUGH {
        let stream = h2.get("/");
        let answer = h2.message(stream);
        let expected = if answer.text() == "a" { "of-a" } else { "of-next" };
        assert_eq!(answer.header("x-out"), Some(expected));
        let head = client.request("HEAD", "/");
        assert!(["of-a", "of-next"].contains(&head.header("x-out").unwrap_or_default()), "{head:?}");
    }
}

#[test]
fn an_arm_can_answer_for_its_share_and_one_of_weight_0_gets_nothing() {
    let (a, b) = two();
    let split = "upstream: { a: 1, broken: { weight: 1, filters: [ { respond: { status: 500, body: broken } } ] }, \
                 never: { weight: 0, filters: [ { respond: { status: 418, body: never } } ] }, b: 0 }";
    let weir = Weir::start(&config((&a, &b), "access_log: { format: json }", split));
    let mut client = weir.client();
    let seen = tally((0..300).map(|_| client.get("/")));
    let count = |body: &str| seen.get(&(body.to_owned(), String::new())).copied().unwrap_or_default();
    assert_eq!(count("a") + count("broken"), 300, "{seen:?}");
    assert!((90..=210).contains(&count("broken")), "{seen:?}");
    // Metrics, the log and `weir why` know the arm.
    let line = |arm: &str| format!("weir_split_requests_total{{place=\"routes.all\",arm=\"{arm}\"}}");
    let counted = |arm: &str| metric(&weir, &line(arm)) as usize;
    assert_eq!((counted("a"), counted("broken")), (count("a"), count("broken")));
    assert_eq!((counted("never"), counted("b")), (0, 0));
    weir.wait_stdout("\"arm\":\"broken\"");
    weir.wait_stdout("\"arm\":\"a\",\"upstream\":\"a\"");
    let why = admin(&weir, "/api/v1/why?limit=1&route=all").json();
    assert_eq!(why["found"][0]["arm"], "broken", "{why}");
    // The counts outlive a reload that changes weights.
    weir.reload_with(&config((&a, &b), "access_log: { format: json }", &split.replace("a: 1,", "a: 9,")))
        .unwrap();
    assert_eq!(counted("broken"), count("broken"));
}

/// What stops a request in an arm, names the arm.
#[test]
fn filters_of_an_arm_may_refuse() {
    let (a, b) = two();
    let more = "consumers: { shop: { key_auth: [ shop-key ] }, other: { key_auth: [ other-key ] } }";
    let split = "upstream: { a: { weight: 1, filters: [ key_auth, { acl: { allow: [ shop ] } } ] }, \
                 second: { weight: 1, upstream: a, filters: [ key_auth, { acl: { allow: [ shop ] } } ] } }";
    let weir = Weir::start(&config((&a, &b), more, split));
    for _ in 0..10 {
        ask(&weir, "").expect_cause(KEY_MISSING);
        ask(&weir, "x-api-key: other-key\r\n").expect_cause(ACL_DENIED);
        ask(&weir, "x-api-key: shop-key\r\n").expect_status(200);
    }
    assert!(
        a.requests().iter().all(|request| request.head.headers.iter().all(|(name, _)| name != "x-api-key"))
    );
}

#[test]
fn a_redirecting_arm_needs_no_upstream_and_a_preflight_meets_the_cors_of_its_arm() {
    let (a, b) = two();
    let cors = "{ cors: { origins: [ \"https://app.test\" ] } }";
    let split = format!(
        "upstream: {{ moved: {{ weight: 1, filters: [ {cors}, {{ redirect: {{ to: \"/new\", status: 308 }} }} ] }}, \
         a: {{ weight: 1, filters: [ {cors} ] }} }}"
    );
    let weir = Weir::start(&config((&a, &b), "", &split));
    let answers: Vec<u16> = (0..ENOUGH).map(|_| ask(&weir, "").status).collect();
    assert!(answers.iter().all(|status| [200, 308].contains(status)), "{answers:?}");
    assert!(answers.contains(&200) && answers.contains(&308));
    for _ in 0..10 {
        let preflight = weir.client().ask(
            "OPTIONS / HTTP/1.1\r\nHost: h\r\nOrigin: https://app.test\r\nAccess-Control-Request-Method: GET\r\n\r\n",
        );
        assert_eq!(
            preflight.header("access-control-allow-origin"),
            Some("https://app.test"),
            "{preflight:?}"
        );
    }
}

/// Each arm caches for itself, in one store.
#[test]
fn caches_of_arms_do_not_share_answers() {
    let answer = |name: &str| {
        Upstream::fixed(format!(
            "HTTP/1.1 200 OK\r\nCache-Control: max-age=600\r\nContent-Length: 1\r\n\r\n{name}"
        ))
    };
    let (a, b) = (answer("a"), answer("b"));
    let cache = |name: &str| format!("[ {}, {{ cache: {{ store: pages }} }} ]", mark(name));
    let split = format!(
        "upstream: {{ a: {{ weight: 1, filters: {} }}, b: {{ weight: 1, filters: {} }} }}",
        cache("a"),
        cache("b")
    );
    let weir = Weir::start(&config((&a, &b), "", &split));
    let mut client = weir.client();
    let seen = tally((0..ENOUGH).map(|_| client.get("/")));
    let expected = [("a".to_owned(), "a".to_owned()), ("b".to_owned(), "b".to_owned())];
    assert_eq!(seen.keys().cloned().collect::<Vec<_>>(), expected);
    assert!(a.requests().len() + b.requests().len() < ENOUGH, "something was cached");
}

/// The cookie of `sticky` brings a client back to its arm, of a split with filters and of one without.
#[test]
fn sticky_brings_a_client_back_to_its_arm() {
    let (a, b) = two();
    let sticky = "sticky: { cookie: stick, key: 0123456789abcdef }, keepalive: 0s";
    let arms = format!(
        "upstream: {{ a: {{ weight: 1, filters: [ {} ] }}, b: {{ weight: 1, filters: [ {} ] }} }}",
        mark("a"),
        mark("b")
    );
    for split in [&*arms, "upstream: { a: 1, b: 1 }"] {
        let config = config((&a, &b), "", split);
        let config = config.replace("] }\n  b:", &format!("], {sticky} }}\n  b:"));
        let config = config.replace("] }\nroutes", &format!("], {sticky} }}\nroutes"));
        assert_eq!(config.matches("sticky").count(), 2);
        let weir = Weir::start(&config);
        for _ in 0..5 {
            let first = ask(&weir, "");
            let cookie = first.header("set-cookie").unwrap().split(';').next().unwrap().to_owned();
            for _ in 0..20 {
                let again = ask(&weir, &format!("Cookie: {cookie}\r\n"));
                assert_eq!(again.text(), first.text(), "{split}");
                assert_eq!(again.header("set-cookie"), None);
            }
        }
        // A cookie of nobody takes any arm.
        let other = "Cookie: stick=00000000000000000000000000000000\r\n";
        let seen = tally((0..ENOUGH).map(|_| ask(&weir, other)));
        assert_eq!(seen.len(), 2, "{seen:?}");
    }
}

/// The cookie names an endpoint, not an arm, so it decides between no two arms that lead to the same upstream.
#[test]
fn sticky_does_not_choose_between_arms_of_one_upstream() {
    let (a, b) = two();
    let split = format!(
        "upstream: {{ canary: {{ weight: 1, upstream: a, filters: [ {} ] }}, stable: {{ weight: 1, upstream: a, filters: [ {} ] }} }}",
        mark("canary"),
        mark("stable")
    );
    let sticky = "sticky: { cookie: stick, key: 0123456789abcdef }";
    let config = config((&a, &b), "", &split).replace("] }\n  b:", &format!("], {sticky} }}\n  b:"));
    let weir = Weir::start(&config);
    let first = ask(&weir, "");
    let cookie = first.header("set-cookie").unwrap().split(';').next().unwrap().to_owned();
    let seen = tally((0..ENOUGH).map(|_| ask(&weir, &format!("Cookie: {cookie}\r\n"))));
    let expected = ["canary", "stable"].map(|arm| ("a".to_owned(), arm.to_owned()));
    assert_eq!(seen.keys().cloned().collect::<Vec<_>>(), expected);
}

/// A stored answer that is stale is served, and the cache of the arm asks that arm's upstream again.
#[test]
fn a_cache_of_an_arm_revalidates_in_the_background() {
    let asked = AtomicUsize::new(0);
    let a = Upstream::script(move |conn| {
        while conn.next_request().is_some() {
            let n = asked.fetch_add(1, Relaxed);
            conn.send(format!(
                "HTTP/1.1 200 OK\r\nCache-Control: max-age=1, stale-while-revalidate=600\r\nContent-Length: 1\r\n\r\n{n}"
            ));
        }
    });
    let split = "upstream: { a: { weight: 1, filters: [ { cache: { store: pages } } ] } }";
    let weir = Weir::start(&config((&a, &Upstream::named("b")), "", split));
    let mut client = weir.client();
    client.get("/").expect_body("0");
    eventually("the cache has a newer answer", || client.get("/").text() != "0");
}

/// A request keeps its arm over all attempts.
#[test]
fn a_retry_stays_in_the_arm() {
    let (a, b) = (Upstream::named("a"), Upstream::listen());
    let split = format!("upstream: {{ a: 0, b: {{ weight: 1, filters: [ {} ] }} }}", mark("b"));
    let config = config((&a, &b), "", &split);
    let config = config.replace("] }\nroutes", "], retry: { attempts: 2, on: [ 503 ] } }\nroutes");
    let weir = Weir::start(&config);
    let mut client = weir.client();
    client.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    b.accept_request().send("HTTP/1.1 503 Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    b.accept_request().send(OK_BODY);
    assert!(b.requests().iter().all(|request| request.head.all("x-in") == ["b"]));
    client.read_response().expect_body("ok").expect_header("x-out", "b");
}

/// `weir explain` shows each arm with its share and its filters.
#[test]
fn explain_shows_the_arms() {
    let (a, b) = two();
    let split = format!(
        "upstream: {{ a: 95, next: {{ weight: 4, upstream: b, filters: [ {} ] }}, \
         off: {{ weight: 1, filters: [ {{ respond: {{ status: 503 }} }} ] }} }}",
        mark("next")
    );
    let weir = Weir::start(&config((&a, &b), "", &split));
    let told = run_weir(weir.dir(), &["explain", "GET", "/x"]);
    for line in ["split", "next (4%)", "off (1%)", "upstream a (95%)", "b as next (4%)"] {
        told.expect_text(line);
    }
    let json = run_weir(weir.dir(), &["explain", "GET", "/x", "--format", "json"]);
    json.expect_code(0).expect_text("\"share\": 4.0");
}
