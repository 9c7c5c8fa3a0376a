//! Answers that belong to one caller: no cache serves them to another, whichever filter identifies callers and
//! wherever it is.

use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use aws_lc_rs::hmac;
use serde_json::json;
use tempfile::TempDir;
use weir_testkit::{Client, Response, Upstream, Weir};

use super::ask;
use crate::support::WEB;

/// An upstream that returns the request's fields together with these, like a service that knows its users.
fn echo(fields: &str) -> Upstream {
    let (count, fields) = (AtomicUsize::new(0), fields.to_owned());
    Upstream::script(move |conn| {
        while let Some(request) = conn.next_request() {
            let asked = request.head.headers.iter().filter(|(name, _)| is_shown(name));
            let asked: Vec<String> = asked.map(|(name, value)| format!("{name}={value}")).collect();
            let body = format!("{} {}", count.fetch_add(1, SeqCst), asked.join(";"));
            let head = format!("HTTP/1.1 200 OK\r\n{fields}Content-Length: {}\r\n\r\n", body.len());
            if conn.try_send([head, body].concat()).is_err() {
                return;
            }
        }
    })
}

fn is_shown(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    matches!(&*name, "authorization" | "cookie" | "forwarded") || name.starts_with("x-")
}

/// A gateway with these filters in front of one upstream.
fn weir(upstream: &Upstream, more: &str, filters: &str) -> Weir {
    Weir::start(&format!(
        "{WEB}\nworkers: 2\n{more}\nstores: {{ pages: {{ memory: 4MiB }} }}\n\
         upstreams: {{ up: {{ endpoints: [{address}] }}, auth: {{ endpoints: [{address}] }} }}\n\
         routes: {{ all: {{ match: {{ path: \"/*\" }}, filters: [ {filters} ], upstream: up }} }}",
        address = upstream.address(),
    ))
}

pub(super) fn secret() -> String {
    "a secret of more than thirty-two bytes".to_owned()
}

/// A token signed with that secret.
pub(super) fn token(claims: &serde_json::Value) -> String {
    let part = |value: &serde_json::Value| weir_wire::base64::encode_url(value.to_string().as_bytes());
    let signed = format!("{}.{}", part(&json!({ "alg": "HS256" })), part(claims));
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret().as_bytes());
    let signature = weir_wire::base64::encode_url(hmac::sign(&key, signed.as_bytes()).as_ref());
    format!("{signed}.{signature}")
}

fn is_hit(response: &Response) -> bool {
    response.header("cache-status").is_some_and(|said| said.contains("hit"))
}

/// The answers to each of two users, asked twice: the second may be a hit, but never the other's.
#[track_caller]
fn stays_apart(weir: &Weir, alice: &str, bob: &str) -> [bool; 2] {
    let mut client = weir.client();
    let mut all = |fields: &str| {
        let [first, second] =
            [ask(&mut client, "GET /account", fields), ask(&mut client, "GET /account", fields)];
        first.expect_status(200);
        second.expect_status(200);
        [first, second]
    };
    let of_alice = all(alice);
    let of_bob = all(bob);
    assert!(!is_hit(&of_bob[0]), "{:?}", of_bob[0]);
    for mine in &of_bob {
        assert!(of_alice.iter().all(|other| other.text() != mine.text()), "{mine:?}");
    }
    [is_hit(&of_alice[1]), is_hit(&of_bob[1])]
}

#[test]
fn a_token_that_is_hidden_keeps_its_answers_apart() {
    let until = i64::MAX / 2;
    let [alice, bob] = ["alice", "bob"].map(|sub| token(&json!({ "sub": sub, "exp": until })));
    let jwt = |settings: &str| {
        format!("{{ jwt: {{ secret: \"{}\", headers: {{ x-user: sub }}, {settings} }} }}", secret())
    };
    for fields in ["Cache-Control: max-age=60\r\n", ""] {
        let upstream = echo(fields);
        let cache = "{ cache: { store: pages, ttl: 60s } }";
        let hidden = weir(&upstream, "", &format!("{}, {cache}", jwt("hide: true")));
        let of = |token: &str| format!("Authorization: Bearer {token}\r\n");
        assert_eq!(stays_apart(&hidden, &of(&alice), &of(&bob)), [true; 2], "each has a copy of his own");
        let by_header = weir(&upstream, "", &format!("{}, {cache}", jwt("hide: true, header: x-token")));
        let of = |token: &str| format!("X-Token: {token}\r\n");
        assert_eq!(stays_apart(&by_header, &of(&alice), &of(&bob)), [true; 2]);
        let by_cookie = weir(&upstream, "", &format!("{}, {cache}", jwt("hide: true, cookie: session")));
        let of = |token: &str| format!("Cookie: session={token}\r\n");
        assert_eq!(stays_apart(&by_cookie, &of(&alice), &of(&bob)), [true; 2]);
        // Another token of the same user counts as the same user.
        let again = token(&json!({ "sub": "alice", "exp": until - 1, "jti": "2" }));
        let again = ask(&mut by_cookie.client(), "GET /account", &of(&again));
        assert!(is_hit(&again), "{again:?}");
        // If the upstream sees the token too, the upstream must allow sharing (RFC 9111 §3.5).
        let shown = weir(&upstream, "", &format!("{}, {cache}", jwt("hide: false")));
        let of = |token: &str| format!("Authorization: Bearer {token}\r\n");
        assert_eq!(stays_apart(&shown, &of(&alice), &of(&bob)), [false; 2]);
    }
}

/// A claim that differs between two tokens of one user matters if the upstream gets it.
#[test]
fn a_claim_that_is_passed_on_is_part_of_the_caller() {
    let until = i64::MAX / 2;
    let [one, two] = ["1", "2"].map(|id| token(&json!({ "sub": "u", "jti": id, "exp": until })));
    let upstream = echo("Cache-Control: max-age=60\r\n");
    let jwt = format!("{{ jwt: {{ secret: \"{}\", hide: true, headers: {{ x-session: jti }} }} }}", secret());
    let weir = weir(&upstream, "", &format!("{jwt}, {{ cache: {{ store: pages }} }}"));
    let of = |token: &str| format!("Authorization: Bearer {token}\r\n");
    assert_eq!(stays_apart(&weir, &of(&one), &of(&two)), [true; 2]);
}

/// A consumer's name that is written behind the cache is in no key but the caller's.
#[test]
fn a_consumer_that_is_named_behind_the_cache_is_kept_out() {
    let upstream = echo("Cache-Control: public, max-age=60\r\n");
    let consumers = "consumers: { alice: { key_auth: [ ka ] }, bob: { key_auth: [ kb ] } }";
    let [alice, bob] = ["X-Api-Key: ka\r\n", "X-Api-Key: kb\r\n"];
    let names = "{ headers: { request: { set: { x-you: \"{consumer}\" } } } }";
    for (key, hits) in [("[ shared ]", false), ("[]", false), ("[ caller ]", true)] {
        let filters = format!("{{ key_auth: {{}} }}, {{ cache: {{ store: pages, key: {key} }} }}, {names}");
        assert_eq!(stays_apart(&weir(&upstream, consumers, &filters), alice, bob), [hits; 2], "{key}");
    }
}

/// An expression that reads a credential verifies callers, as other filters do.
#[test]
fn an_expression_that_reads_a_credential_keeps_answers_apart() {
    let upstream = echo("Cache-Control: public, max-age=60\r\n");
    let maps = "maps:\n  known: { of: request.cookies.session, values: { alice: \"yes\", bob: \"yes\" } }\n  \
                trusted: { of: maps.known, values: { \"yes\": \"1\" } }";
    for (is, field) in [
        ("maps.known == \"yes\"", "Cookie: session="),
        ("maps.trusted == \"1\"", "Cookie: session="),
        ("request.cookies.session in [\"alice\", \"bob\"]", "Cookie: session="),
        ("has(request.headers[\"X-Key\"])", "X-Key: "),
        ("has(request.headers[\"x-\" + request.args.by])", "X-Key: "),
        ("request.headers.authorization != \"\"", "Authorization: "),
    ] {
        let acl = format!("{{ acl: {{ is: '{is}' }} }}");
        let [alice, bob] = ["alice", "bob"].map(|name| format!("{field}{name}\r\n"));
        for (filters, hits) in [
            (format!("{acl}, {{ cache: {{ store: pages }} }}"), true),
            (format!("{{ cache: {{ store: pages }} }}, {acl}"), false),
        ] {
            let weir = weir(&upstream, maps, &filters);
            let path = "GET /account?by=key";
            let mut client = weir.client();
            let mut all = |fields: &str| [ask(&mut client, path, fields), ask(&mut client, path, fields)];
            let (of_alice, of_bob) = (all(&alice), all(&bob));
            for mine in &of_bob {
                mine.expect_status(200);
                assert!(of_alice.iter().all(|other| other.text() != mine.text()), "{is} {filters}: {mine:?}");
            }
            assert_eq!([is_hit(&of_alice[1]), is_hit(&of_bob[1])], [hits; 2], "{is} {filters}");
            ask(&mut client, path, "").expect_cause(crate::cause::ACL_DENIED);
        }
    }
}

/// A service behind the cache may refuse requests for reasons other than a credential.
#[test]
fn what_an_auth_service_behind_the_cache_lets_pass_is_not_stored() {
    let upstream = echo("Cache-Control: public, max-age=60\r\n");
    let weir = weir(&upstream, "", "{ cache: { store: pages } }, { forward_auth: { upstream: auth } }");
    let mut client = weir.client();
    for _ in 0..2 {
        let answer = ask(&mut client, "GET /account", "");
        answer.expect_status(200);
        assert!(!is_hit(&answer), "{answer:?}");
    }
}

/// Many users may share a consumer.
#[test]
fn users_of_one_consumer_are_not_one_user() {
    let upstream = echo("Cache-Control: max-age=60\r\n");
    let filters = format!(
        "{{ jwt: {{ secret: \"{}\", hide: true, consumer: tenant, headers: {{ x-user: sub }} }} }}, {{ cache: {{ store: pages }} }}",
        secret()
    );
    let weir = weir(&upstream, "consumers: { shop: { jwt: [ shop ] } }", &filters);
    let of = |sub: &str| {
        let token = token(&json!({ "sub": sub, "tenant": "shop", "exp": i64::MAX / 2 }));
        format!("Authorization: Bearer {token}\r\n")
    };
    assert_eq!(stays_apart(&weir, &of("alice"), &of("bob")), [true; 2]);
}

/// A service that admits every request with `x-session`, and names its user.
fn sessions() -> Upstream {
    Upstream::script(|conn| {
        while let Some(request) = conn.next_request() {
            let user = request.head.header("x-session").unwrap_or("nobody").to_owned();
            if conn.try_send(format!("HTTP/1.1 204 No Content\r\nX-User: {user}\r\n\r\n")).is_err() {
                return;
            }
        }
    })
}

#[test]
fn who_an_auth_service_lets_pass_is_told_apart() {
    let (upstream, service) = (echo("Cache-Control: max-age=60\r\n"), sessions());
    let config = |filters: &str| {
        format!(
            "{WEB}\nworkers: 2\nstores: {{ pages: {{ memory: 4MiB }} }}\n\
             upstreams: {{ up: {{ endpoints: [{}] }}, auth: {{ endpoints: [{}] }} }}\n\
             routes: {{ all: {{ match: {{ path: \"/*\" }}, filters: [ {filters} ], upstream: up }} }}",
            upstream.address(),
            service.address()
        )
    };
    let auth = "{ forward_auth: { upstream: auth, copy_request: [ x-session ], copy: [ x-user ] } }";
    let cache = "{ cache: { store: pages } }";
    let remove = "{ headers: { request: { remove: [ x-session ] } } }";
    let before = Weir::start(&config(&format!("{auth}, {remove}, {cache}")));
    assert_eq!(stays_apart(&before, "X-Session: alice\r\n", "X-Session: bob\r\n"), [true; 2]);
    // Behind the cache it cannot refuse hits, so its answers are not stored.
    let behind = Weir::start(&config(&format!("{cache}, {auth}")));
    assert_eq!(stays_apart(&behind, "X-Session: alice\r\n", "X-Session: bob\r\n"), [false; 2]);
    let last = ask(&mut behind.client(), "GET /", "X-Session: alice\r\n");
    last.expect_header("cache-status", "weir; fwd=uri-miss; fwd-status=200; detail=caller");
}

/// RFC 9111 §3.5 refers to the request as received.
#[test]
fn a_credential_that_a_filter_removed_counts() {
    let upstream = echo("Cache-Control: max-age=60\r\n");
    let filters = "{ headers: { request: { remove: [ authorization ] } } }, { cache: { store: pages } }";
    let gateway = weir(&upstream, "", filters);
    let response = ask(&mut gateway.client(), "GET /", "Authorization: Basic YTpi\r\n");
    response.expect_header("cache-status", "weir; fwd=uri-miss; fwd-status=200; detail=authorization");
    // Nor does one filter's caller cover another filter's credential.
    let filters = "{ key_auth: {} }, { headers: { request: { remove: [ authorization ] } } }, { cache: { store: pages } }";
    let gateway = weir(&upstream, "consumers: { shop: { key_auth: [ key ] } }", filters);
    let response = ask(&mut gateway.client(), "GET /", "X-API-Key: key\r\nAuthorization: Basic YTpi\r\n");
    response.expect_header("cache-status", "weir; fwd=uri-miss; fwd-status=200; detail=authorization");
}

/// Without the caller in the key, an answer must allow sharing explicitly; `shared` allows it for all answers.
#[test]
fn sharing_is_said() {
    let consumers = "consumers: { alice: { key_auth: [ a ] }, bob: { key_auth: [ b ] } }";
    let ask_as =
        |gateway: &Weir, key: &str| ask(&mut gateway.client(), "GET /", &format!("X-API-Key: {key}\r\n"));
    for (fields, key, shares) in [
        ("Cache-Control: max-age=60\r\n", "[]", false),
        ("Cache-Control: max-age=60\r\n", "[ \"header:x-lang\" ]", false),
        ("Cache-Control: max-age=60, public\r\n", "[]", true),
        ("Cache-Control: s-maxage=60\r\n", "[]", true),
        ("Cache-Control: max-age=60\r\n", "[ shared ]", true),
        ("Cache-Control: max-age=60, public\r\n", "[ caller ]", false),
        ("Cache-Control: max-age=60\r\n", "[ consumer ]", false),
    ] {
        let upstream = echo(fields);
        let gateway = weir(
            &upstream,
            consumers,
            &format!("{{ key_auth: {{}} }}, {{ cache: {{ store: pages, key: {key} }} }}"),
        );
        ask_as(&gateway, "a").expect_status(200);
        assert_eq!(is_hit(&ask_as(&gateway, "b")), shares, "{fields} {key}");
    }
}

/// The URL reported by a trusted proxy determines the upstream's answer.
#[test]
fn tenants_of_a_trusted_proxy_are_told_apart() {
    let upstream = echo("Cache-Control: max-age=60\r\n");
    let gateway = weir(&upstream, "trusted_proxies: [ 127.0.0.0/8 ]", "{ cache: { store: pages } }");
    for (a, b) in [
        ("X-Forwarded-Host: a.test", "X-Forwarded-Host: b.test"),
        ("X-Forwarded-Prefix: /a", "X-Forwarded-Prefix: /b"),
        ("X-Forwarded-Port: 81", "X-Forwarded-Port: 82"),
        ("X-Forwarded-Tenant: a", "X-Forwarded-Tenant: b"),
        ("X-Forwarded-Proto: http", "X-Forwarded-Proto: https"),
        ("Forwarded: for=192.0.2.1;host=a.test", "Forwarded: for=192.0.2.1;host=b.test"),
        ("X-Scheme: http", "X-Scheme: https"),
        ("X-Envoy-Original-Path: /a", "X-Envoy-Original-Path: /b"),
        ("X-Envoy-Original-Path: /c", ""),
        ("X-Envoy-Original-Host: a.test", "X-Envoy-Original-Host: b.test"),
        ("X-Envoy-Internal: true", "X-Envoy-Internal: false"),
        // One parser sees an unclosed quote where another sees a host.
        ("Forwarded: for=\"_a;host=a.test", "Forwarded: for=\"_a;host=b.test"),
    ] {
        let line = |field: &str| if field.is_empty() { String::new() } else { format!("{field}\r\n") };
        assert_eq!(stays_apart(&gateway, &line(a), &line(b)), [true; 2], "{a} {b}");
    }
    // The client's address is not part of the URL; otherwise clients behind a proxy could share nothing.
    let mut client = gateway.client();
    let from = |address: &str| {
        let names = ["X-Forwarded-For", "X-Real-IP", "X-Envoy-External-Address"];
        names.map(|name| format!("{name}: {address}\r\n")).concat()
    };
    ask(&mut client, "GET /any", &from("192.0.2.1")).expect_status(200);
    let other = ask(&mut client, "GET /any", &from("192.0.2.2"));
    assert!(is_hit(&other), "{other:?}");
    // An answer that varies by one of these fields is therefore never stored.
    let varying = echo("Cache-Control: max-age=60\r\nVary: X-Envoy-External-Address\r\n");
    let gateway = weir(&varying, "trusted_proxies: [ 127.0.0.0/8 ]", "{ cache: { store: pages } }");
    for address in ["192.0.2.1", "192.0.2.1", "192.0.2.2"] {
        let answer = ask(&mut gateway.client(), "GET /", &from(address));
        assert!(answer.text().contains(address) && !is_hit(&answer), "{answer:?}");
    }
}

/// None of these is accepted from a client, so none can place an answer where others find it.
#[test]
fn a_strangers_claims_reach_no_upstream() {
    let upstream = echo("Cache-Control: max-age=60\r\n");
    let gateway = weir(&upstream, "", "{ cache: { store: pages } }");
    let names = [
        "X-Scheme",
        "X-URL-Scheme",
        "Front-End-Https",
        "X-Envoy-External-Address",
        "X-Envoy-Internal",
        "X-Envoy-Original-Host",
        "X-Envoy-Original-Path",
        "X-Original-URL",
        "X-Real-IP",
    ];
    let claims = names.map(|name| format!("{name}: 192.0.2.1\r\n")).concat();
    ask(&mut gateway.client(), "GET /", &claims).expect_status(200);
    let request = upstream.requests().pop().unwrap();
    for name in names {
        assert_eq!(request.head.header(name), None, "{name}");
    }
}

/// Values of the client that a filter writes behind the cache are in no key.
#[test]
fn what_is_written_behind_the_cache_is_kept_out() {
    let clients = |gateway: &Weir, set: &str, hits: bool| {
        let from = |address: &str| {
            let mut client = gateway.client();
            ask(&mut client, "GET /", &format!("X-Forwarded-For: {address}\r\n"))
        };
        from("192.0.2.1").expect_status(200);
        assert_eq!(is_hit(&from("192.0.2.2")), hits, "{set}");
    };
    let proxies = "trusted_proxies: [ 127.0.0.0/8 ]";
    let headers = |set: &str| format!("{{ headers: {{ request: {{ set: {{ {set} }} }} }} }}");
    let cache = "{ cache: { store: pages } }";
    for fields in ["Cache-Control: max-age=60\r\nVary: x-client\r\n", "Cache-Control: public, max-age=60\r\n"]
    {
        let upstream = echo(fields);
        for (set, hits) in [
            ("x-client: \"{client}\"", false),
            ("x-other: \"{client}\"", false),
            ("x-other: fixed", true),
            ("x-real-ip: \"{client}\"", true),
        ] {
            let behind = weir(&upstream, proxies, &format!("{cache}, {}", headers(set)));
            clients(&behind, set, hits);
            let before = weir(&upstream, proxies, &format!("{}, {cache}", headers(set)));
            clients(&before, set, hits);
        }
    }
    // `Vary` refers to the sent value, with which the next request cannot be compared.
    let upstream = echo("Cache-Control: max-age=60\r\nVary: x-request-id\r\n");
    let gateway = weir(&upstream, proxies, &format!("{cache}, {{ request_id: {{}} }}"));
    clients(&gateway, "request_id", false);
    // A route's own answer that contains the address also belongs to one client.
    let respond = format!(
        "{WEB}\n{proxies}\nstores: {{ pages: {{ memory: 4MiB }} }}\nroutes: {{ all: {{ match: {{ path: \"/*\" }}, \
         filters: [ {{ cache: {{ store: pages, ttl: 60s }} }} ], respond: {{ status: 200, body: \"you are {{client}}\" }} }} }}"
    );
    clients(&Weir::start(&respond), "respond", false);
}

/// Staff see content that is not public yet.
#[test]
fn what_staff_see_during_maintenance_is_not_for_everybody() {
    let upstream = echo("Cache-Control: max-age=60\r\n");
    let maintenance = "{ maintenance: { allow_headers: { x-preview: sesame-9 } } }";
    let behind = weir(&upstream, "", &format!("{{ cache: {{ store: pages }} }}, {maintenance}"));
    ask(&mut behind.client(), "GET /", "X-Preview: sesame-9\r\n").expect_status(200);
    ask(&mut behind.client(), "GET /", "").expect_status(503);
    let before = weir(&upstream, "", &format!("{maintenance}, {{ cache: {{ store: pages }} }}"));
    ask(&mut before.client(), "GET /", "X-Preview: sesame-9\r\n").expect_status(200);
    ask(&mut before.client(), "GET /", "").expect_status(503);
    let again = ask(&mut before.client(), "GET /", "X-Preview: sesame-9\r\n");
    assert!(is_hit(&again), "{again:?}");
}

/// No request follows the fetch of another caller.
#[test]
fn nobody_follows_the_fetch_of_another_caller() {
    let upstream = Upstream::listen();
    let consumers = "consumers: { alice: { key_auth: [ a ] }, bob: { key_auth: [ b ] } }";
    let gateway = weir(&upstream, consumers, "{ key_auth: {} }, { cache: { store: pages } }");
    let mut clients: Vec<Client> = ["a", "b"]
        .map(|key| {
            let mut client = gateway.client();
            client.send(format!("GET / HTTP/1.1\r\nHost: weir.test\r\nX-API-Key: {key}\r\n\r\n"));
            client
        })
        .into();
    // Both arrive before either is answered: a follower would not arrive.
    let mut both = [upstream.accept(), upstream.accept()];
    for conn in &mut both {
        conn.read_request();
    }
    for (n, conn) in both.iter_mut().enumerate() {
        conn.send(format!("HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: 1\r\n\r\n{n}"));
    }
    let mut bodies: Vec<String> = clients.iter_mut().map(|client| client.read_response().text()).collect();
    bodies.sort();
    assert_eq!(bodies, ["0", "1"]);
}

/// A delay that the leader requested from a filter behind the cache applies to it alone: requests for the same object
/// do not wait for it.
#[test]
fn nobody_waits_for_the_delay_of_another() {
    let upstream = echo("Cache-Control: max-age=60\r\n");
    let fault = "{ fault: { share: 0%, ask: x-fault, ask_delay: 5m } }";
    let admin = "admin: { address: 127.0.0.1:0 }";
    let gateway = weir(&upstream, admin, &format!("{{ cache: {{ store: pages }} }}, {fault}"));
    let mut slow = gateway.client();
    slow.send("GET / HTTP/1.1\r\nHost: weir.test\r\nX-Fault: delay=5m\r\n\r\n");
    weir_testkit::eventually("it waits", || slow_requests(&gateway) == 1);
    // They reach the upstream as one request, too.
    let mut others: Vec<Client> = (0..20).map(|_| gateway.client()).collect();
    others.iter_mut().for_each(|client| client.send("GET / HTTP/1.1\r\nHost: weir.test\r\n\r\n"));
    for client in &mut others {
        client.read_response().expect_status(200);
    }
    assert_eq!(upstream.requests().len(), 1);
    drop(slow);
}

/// The number of requests that the filter `fault` has delayed.
fn slow_requests(gateway: &Weir) -> u64 {
    let metrics = super::metrics(gateway);
    let delayed = metrics.lines().filter(|line| line.starts_with("weir_fault_delayed_total"));
    delayed.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
}

/// An object stored on a disk by an earlier build may have a key without its caller.
#[test]
fn what_an_earlier_build_kept_is_never_served() {
    let upstream = echo("Cache-Control: max-age=600\r\n");
    let folder = TempDir::new().unwrap();
    fs::create_dir_all(folder.path().join("00")).unwrap();
    fs::write(folder.path().join("weir-cache"), "weir-cache 1\n1\n").unwrap();
    let old = folder.path().join("00/0000000000000100");
    fs::write(&old, b"weirobj\x01 whatever it holds").unwrap();
    let config = format!(
        "{WEB}\nworkers: 1\nstores: {{ pages: {{ memory: 4MiB, disk: {{ path: {}, size: 64MiB }} }} }}\n\
         upstreams: {{ up: {{ endpoints: [{}] }} }}\n\
         routes: {{ all: {{ match: {{ path: \"/*\" }}, filters: [ {{ cache: {{ store: pages }} }} ], upstream: up }} }}",
        folder.path().display(),
        upstream.address()
    );
    let gateway = Weir::start(&config);
    gateway.client().get("/").expect_status(200);
    weir_testkit::eventually("it is removed", || !old.exists());
    let mark = fs::read_to_string(folder.path().join("weir-cache")).unwrap();
    assert!(mark.starts_with("weir-cache 1\n"), "0.1 must find its own mark: {mark}");
}

/// `weir check` warns the author of a config about shared answers.
#[test]
fn check_tells_who_shares_answers() {
    let dir = TempDir::new().unwrap();
    let config = |key: &str| {
        format!(
            "listeners: {{ web: {{ address: 127.0.0.1:8080 }} }}\nstores: {{ pages: {{ memory: 4MiB }} }}\n\
             consumers: {{ shop: {{ key_auth: [ \"sha256:{}\" ] }} }}\n\
             routes:\n  a: {{ match: {{ path: /a }}, filters: [ {{ key_auth: {{}} }}, {{ cache: {{ store: pages, key: {key} }} }} ], \
             respond: {{ body: ok }} }}\n",
            "0".repeat(64)
        )
    };
    for (key, told) in [
        ("[ caller ]", "each caller that key_auth verifies has answers of its own"),
        ("[ shared ]", "all callers that key_auth lets pass share its answers"),
        ("[]", "is kept for all if it says public"),
    ] {
        fs::write(dir.path().join("weir.yaml"), config(key)).unwrap();
        let checked = weir_testkit::run_weir(dir.path(), &["check", "-c", "weir.yaml"]);
        assert_eq!(checked.code, Some(0), "{}{}", checked.stdout, checked.stderr);
        let line = checked.stdout.lines().find(|line| line.contains("routes.a: cache: ")).unwrap_or_default();
        assert!(line.contains(told), "{}", checked.stdout);
    }
}

/// One client's remaining limit and request cost are not the next client's.
#[test]
fn limits_and_costs_are_of_one_client() {
    let upstream = echo("Cache-Control: max-age=60\r\nX-Cost: 10\r\n");
    let limit = "{ rate_limit: { requests: 100, per: 1h, cost: \"header:x-cost\", by: consumer } }";
    let consumers = "consumers: { shop: { key_auth: [ key ] } }";
    let left = |response: &Response| response.header("ratelimit").map(str::to_owned).unwrap_or_default();
    let gateway = weir(
        &upstream,
        consumers,
        &format!("{{ key_auth: {{}} }}, {limit}, {{ cache: {{ store: pages }} }}"),
    );
    let ask_one = || ask(&mut gateway.client(), "GET /", "X-API-Key: key\r\n");
    let first = ask_one();
    assert!(left(&first).contains("r=90"), "{first:?}");
    let hit = ask_one();
    assert!(is_hit(&hit) && left(&hit).contains("r=89"), "a hit costs the upstream nothing: {hit:?}");
    assert_eq!(hit.header("x-cost"), None);
    let behind = weir(
        &upstream,
        "",
        &format!("{{ cache: {{ store: pages }} }}, {}", limit.replace(", by: consumer", "")),
    );
    let first = ask(&mut behind.client(), "GET /", "");
    assert!(!left(&first).is_empty(), "{first:?}");
    let hit = ask(&mut behind.client(), "GET /", "");
    assert!(is_hit(&hit) && left(&hit).is_empty(), "{hit:?}");
}

/// The log shows a consumer with its own credential, not with that of an earlier filter.
#[test]
fn the_log_tells_one_caller() {
    let upstream = echo("");
    let consumers = "access_log: { output: stdout, format: json }\n\
                     consumers: { site: { key_auth: [ key ] }, ann: { jwt: [ ann ] } }";
    let filters = format!("{{ key_auth: {{}} }}, {{ jwt: {{ secret: \"{}\", consumer: sub }} }}", secret());
    let gateway = weir(&upstream, consumers, &filters);
    let token = token(&json!({ "sub": "ann", "exp": i64::MAX / 2 }));
    ask(&mut gateway.client(), "GET /", &format!("X-API-Key: key\r\nAuthorization: Bearer {token}\r\n"))
        .expect_status(200);
    weir_testkit::eventually("it is logged", || gateway.stdout().contains("\"consumer\":\"ann\""));
    let digits = "2c70e12b"; // of SHA-256 of `key`
    assert!(!gateway.stdout().contains(digits), "{}", gateway.stdout());
}
