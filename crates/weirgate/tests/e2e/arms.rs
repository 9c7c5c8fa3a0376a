//! Arms of a split with filters of their own.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use serde_json::json;
use weir_origin::{Options, Origin};
use weir_testkit::{Authority, H3, Response, Tls, Upstream, Weir, eventually, run_weir};

use crate::cause::{ACL_DENIED, KEY_MISSING};
use crate::shadow::shadow;
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

/// A refresh that a cache before the split makes by itself takes an arm, but no client asked for it.
#[test]
fn a_refresh_in_the_background_counts_for_no_arm() {
    let asked = std::sync::Arc::new(AtomicUsize::new(0));
    let counter = std::sync::Arc::clone(&asked);
    let a = Upstream::script(move |conn| {
        while conn.next_request().is_some() {
            let n = counter.fetch_add(1, Relaxed);
            conn.send(format!(
                "HTTP/1.1 200 OK\r\nCache-Control: max-age=1, stale-while-revalidate=600\r\nContent-Length: 1\r\n\r\n{n}"
            ));
        }
    });
    let split = format!(
        "filters: [ {{ cache: {{ store: pages }} }} ]\n    upstream: {{ a: {{ weight: 1, filters: [ {} ] }} }}",
        mark("a")
    );
    let weir = Weir::start(&config((&a, &Upstream::named("b")), "", &split));
    let mut client = weir.client();
    client.get("/").expect_body("0");
    eventually("the cache has a newer answer", || client.get("/").text() != "0");
    assert!(asked.load(Relaxed) > 1);
    let counted = metric(&weir, "weir_split_requests_total{place=\"routes.all\",arm=\"a\"}");
    assert_eq!(counted, 1, "of {} requests to the upstream", asked.load(Relaxed));
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

/// The same over HTTP/3.
#[test]
fn arms_over_http3() {
    let authority = Authority::new();
    let (a, b) = two();
    let split = format!(
        "upstream: {{ a: {{ weight: 1, filters: [ {} ] }}, b: {{ weight: 1, filters: [ {} ] }} }}",
        mark("of-a"),
        mark("of-b")
    );
    let tls = format!(
        "protocols: [h3, h2, http1], tls: {{ certificates: [ {} ] }}",
        authority.leaf(&["a.test"]).yaml()
    );
    let weir = Weir::start(&config((&a, &b), "", &split).replace("protocols: [http1, h2]", &tls));
    let client = H3::connect(&weir.udp_address(), &Tls::new(&authority, "a.test"));
    let seen = tally((0..ENOUGH).map(|_| client.get("/")));
    let pair = |body: &str, out: &str| (body.to_owned(), out.to_owned());
    assert_eq!(seen.keys().cloned().collect::<Vec<_>>(), [pair("a", "of-a"), pair("b", "of-b")]);
}

/// A call of gRPC takes one arm with its head, its messages and its trailers; an arm may refuse in the form of gRPC.
#[test]
fn calls_of_grpc_take_an_arm() {
    let address = "127.0.0.1:0".parse().unwrap();
    let origin = Origin::start(Options { address, ..Options::default() }).unwrap();
    let split = format!(
        "upstream: {{ a: {{ weight: 1, filters: [ {} ] }}, off: {{ weight: 1, filters: [ {{ respond: {{ status: 503 }} }} ] }} }}",
        mark("of-a")
    );
    let (a, b) = two();
    let config = config((&a, &b), "", &split);
    let to_origin = format!("a: {{ protocol: h2c, endpoints: [{}] }}", origin.address());
    let weir = Weir::start(&config.replace(&format!("a: {{ endpoints: [{}] }}", a.address()), &to_origin));
    let mut h2 = weir.h2();
    let (mut answered, mut refused) = (0, 0);
    for _ in 0..ENOUGH {
        let head = [
            (":method", "POST"),
            (":scheme", "http"),
            (":authority", "weir.test"),
            (":path", "/helloworld.v1.Greeter/SayHello"),
            ("content-type", "application/grpc"),
            ("te", "trailers"),
        ];
        let stream = h2.request(&head, false);
        // The message arrives in pieces, after the arm was drawn.
        h2.data(stream, b"\0\0\0\0\x05\x0a", false);
        h2.data(stream, b"\x03Ann", true);
        let answer = h2.message(stream);
        if answer.header("x-out") == Some("of-a") {
            answered += 1;
            assert!(answer.text().contains("hello Ann"), "{answer:?}");
            assert!(answer.trailers.contains(&("grpc-status".to_owned(), "0".to_owned())), "{answer:?}");
        } else {
            refused += 1;
            let status = answer.header("grpc-status").map(str::to_owned);
            let trailer =
                || answer.trailers.iter().find(|(name, _)| name == "grpc-status").map(|(_, v)| v.clone());
            assert!(answer.status() == 503 || status.or_else(trailer).as_deref() == Some("14"), "{answer:?}");
        }
    }
    assert!(answered > 0 && refused > 0, "{answered} {refused}");
}

/// A shadow draws the arm that the request took, so equal configs decide alike; and it sees what an arm decides anew.
#[test]
fn a_shadow_judges_the_arm_of_the_request() {
    let (a, b) = two();
    let deny = "{ ip: { deny: [ 192.0.2.1 ] } }";
    let split = format!(
        "upstream: {{ a: {{ weight: 1, filters: [ {deny} ] }}, b: {{ weight: 1, filters: [ {deny} ] }} }}"
    );
    let running = config((&a, &b), "", &split);
    let weir = Weir::start(&running);
    let mut client = weir.client();
    let same = shadow(&weir, &running, json!({}));
    for _ in 0..20 {
        client.get("/").expect_status(200);
    }
    let report = same.end_after(20);
    assert_eq!((&report["changed"], &report["unexplained"]), (&json!(0), &json!(0)), "{report:#}");
    let candidate = running.replace("192.0.2.1 ] } } ] }, b:", "127.0.0.1 ] } } ] }, b:");
    assert_ne!(candidate, running);
    let other = shadow(&weir, &candidate, json!({}));
    for _ in 0..ENOUGH {
        client.get("/").expect_status(200);
    }
    let report = other.end_after(ENOUGH as u64);
    let denied = report["changes"]
        .as_array()
        .unwrap()
        .iter()
        .find(|row| row["after"].as_str().is_some_and(|after| after.contains("403 ip_denied")));
    let denied = denied.and_then(|row| row["count"].as_u64()).unwrap_or_default();
    assert!((1..ENOUGH as u64).contains(&denied), "{report:#}");
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
