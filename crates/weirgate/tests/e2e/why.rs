//! `weir why`: twenty triggered failures, each of which must be explained with its real reason and the config line
//! that would change it; and no secret may be revealed.

use serde_json::Value;
use weir_testkit::h2::{Frame, H2, H2Origin};
use weir_testkit::{
    Authority, Client, Finished, ServerTls, Tls, Upstream, Weir, black_hole, eventually, refusing_address,
    run_weir,
};

use crate::cause::UNEXPECTED_TLS;
use crate::support::{GET, OK, OK_BODY, WEB, config, config_for};

/// The admin listener's answer.
fn ask(weir: &Weir, target: &str) -> weir_testkit::Response {
    weir.admin_client().ask(format!("GET {target} HTTP/1.1\r\nHost: {}\r\n\r\n", weir.admin()))
}

/// The last matching exchange; it is recorded shortly after the client has its answer.
#[track_caller]
fn last(weir: &Weir, query: &str) -> Value {
    let mut found = Value::Null;
    eventually(&format!("an exchange with {query} is kept"), || {
        let told = ask(weir, &format!("/api/v1/why?{query}"));
        told.expect_status(200);
        found = told.json()["found"][0].clone();
        !found.is_null()
    });
    found
}

/// Asserts that the exchange with this cause is explained with these words, this key, and its line.
#[track_caller]
fn expect(weir: &Weir, cause: &str, words: &[&str], key: Option<(&str, u32)>) -> Value {
    let told = last(weir, &format!("cause={cause}"));
    let sentence = told["sentence"].as_str().unwrap();
    for word in words {
        assert!(sentence.contains(word), "{word:?} is not in {sentence:?} of {told:#}");
    }
    let at = key.map(|(key, line)| (key.to_owned(), format!("weir.yaml:{line}")));
    let shown = told["key"].as_object().map(|key| {
        let text = |name: &str| key[name].as_str().unwrap_or_default().to_owned();
        (text("key"), text("at"))
    });
    assert_eq!(shown, at, "{told:#}");
    assert!(!told["timeline"].as_array().unwrap().is_empty(), "{told:#}");
    told
}

/// A gateway in front of an upstream with these settings, on line 2 of the config.
#[track_caller]
fn with(upstream: &Upstream, settings: &str) -> Weir {
    Weir::start(&config_for(upstream, settings))
}

const ENDPOINTS: (&str, u32) = ("upstreams.up.endpoints", 2);

// === The upstream's fault ===

#[test]
fn refused() {
    let (_closed, address) = refusing_address();
    let weir = Weir::start(&config(&format!("endpoints: [{address}]")));
    weir.client().get("/").expect_status(502);
    let told =
        expect(&weir, "connect_refused", &["Nothing listens", &address.to_string(), "`up`"], Some(ENDPOINTS));
    assert_eq!((&told["status"], &told["route"]["name"]), (&502.into(), &"all".into()));
    // It is not tried again immediately.
    weir.client().get("/").expect_status(503);
    let first = format!("Now: {address} is out since");
    let words = ["out of rotation", &first, "(`connect_refused`)"];
    expect(&weir, "no_healthy_endpoint", &words, Some(ENDPOINTS));
}

#[test]
fn all_taken_out_by_hand() {
    let addresses = [1, 2, 3, 4].map(|port| format!("127.0.0.1:{port}"));
    let weir = Weir::start(&config(&format!("endpoints: [{}]", addresses.join(", "))));
    let admin = weir.admin();
    for address in &addresses {
        run_weir(weir.dir(), &["endpoint", "out", "up", address, "--admin", &admin]).expect_code(0);
    }
    weir.client().get("/").expect_status(503);
    let words = ["Every endpoint of upstream `up` was taken out of rotation by hand", "and 1 more"];
    expect(&weir, "no_healthy_endpoint", &words, Some(ENDPOINTS));
}

#[test]
fn taken_out_by_hand_only_afterwards() {
    let (_closed, address) = refusing_address();
    let weir = Weir::start(&config(&format!("endpoints: [{address}]")));
    weir.client().get("/").expect_status(502);
    weir.client().get("/").expect_status(503);
    last(&weir, "cause=no_healthy_endpoint");
    let (admin, address) = (weir.admin(), address.to_string());
    run_weir(weir.dir(), &["endpoint", "out", "up", &address, "--admin", &admin]).expect_code(0);
    let words = ["each was tried a moment ago", "(`connect_refused`)"];
    expect(&weir, "no_healthy_endpoint", &words, Some(ENDPOINTS));
}

#[test]
fn no_answer_to_a_connect() {
    let (_full, address) = black_hole();
    let weir = Weir::start(&config(&format!("endpoints: [{address}], timeouts: {{ connect: 50ms }}")));
    weir.client().get("/").expect_status(504);
    let told = expect(
        &weir,
        "connect_timeout",
        &["did not accept a connection", "firewall"],
        Some(("upstreams.up.timeouts.connect", 2)),
    );
    assert_eq!(told["key"]["value"], "50ms");
}

#[test]
fn no_answer_to_a_request() {
    let upstream = Upstream::listen();
    let weir = with(&upstream, "timeouts: { response: 50ms }");
    weir.client().get("/").expect_status(504);
    let told = expect(
        &weir,
        "response_timeout",
        &["took the request and sent no answer"],
        Some(("upstreams.up.timeouts.response", 2)),
    );
    assert_eq!(told["attempts"], 1);
    let attempt = told["timeline"].as_array().unwrap().iter().find_map(|moment| {
        let what = moment["what"].as_str()?;
        what.contains("response_timeout").then(|| moment["took_us"].as_u64())
    });
    assert!(attempt.flatten().is_some_and(|us| us >= 50_000), "{told:#}");
}

/// Between a route's timeout and its upstream's, the one that fired is named.
#[test]
fn the_routes_own_timeout() {
    let upstream = Upstream::listen();
    let weir = Weir::start(&format!(
        "{WEB}\nupstreams: {{ up: {{ endpoints: [{}], timeouts: {{ response: 30s }} }} }}\nroutes:\n  all:\n    \
         match: {{ path: \"/*\" }}\n    timeouts: {{ response: 50ms }}\n    upstream: up\n",
        upstream.address()
    ));
    weir.client().get("/").expect_status(504);
    expect(&weir, "response_timeout", &[], Some(("routes.all.timeouts.response", 6)));
}

/// An attempt may have a shorter timeout than the answer.
#[test]
fn the_time_of_an_attempt() {
    let upstream = Upstream::listen();
    let weir = with(
        &upstream,
        "timeouts: { response: 30s }, retry: { on: [timeout], attempts: 2, per_try: 50ms, budget: 100% }",
    );
    weir.client().get("/").expect_status(504);
    let told =
        expect(&weir, "response_timeout", &["(the second attempt)"], Some(("upstreams.up.retry.per_try", 2)));
    assert_eq!((&told["key"]["value"], &told["attempts"]), (&"50ms".into(), &2.into()));
}

#[test]
fn too_long_in_all() {
    let upstream = Upstream::listen();
    let weir = with(&upstream, "timeouts: { exchange: 50ms }");
    weir.client().get("/").expect_status(504);
    expect(
        &weir,
        "exchange_timeout",
        &["the limit of the whole exchange"],
        Some(("upstreams.up.timeouts.exchange", 2)),
    );
}

#[test]
fn the_deadline_of_a_grpc_client() {
    let upstream = Upstream::listen();
    let weir = with(&upstream, "timeouts: { response: 30s }");
    let call = "POST /a.B/C HTTP/1.1\r\nHost: weir.test\r\nContent-Type: application/grpc\r\ngrpc-timeout: 50m\r\nContent-Length: 0\r\n\r\n";
    weir.client().ask(call).expect_header("grpc-status", "4");
    expect(&weir, "grpc_timeout", &["gRPC client", "grpc-timeout"], None);
}

/// For an upstream's error, the report has its code, reason and message in the form of service frameworks, and
/// nothing else of its body.
#[test]
fn what_the_upstream_said() {
    for (media, body, told) in [
        (
            "application/json",
            r#"{"code":503, "reason":"DB_DOWN", "message":"the database is away", "metadata":{"dsn":"s3cr3t"}}"#,
            "It said: code 503, reason DB_DOWN: the database is away.",
        ),
        (
            "application/json; charset=utf-8",
            r#"{"code":503,"msg":"try later"}"#,
            "It said: code 503: try later.",
        ),
        (
            "text/plain; charset=utf-8",
            "rpc error: code = Unavailable desc = nobody there\n",
            "It said: code Unavailable: nobody there.",
        ),
        ("text/html", r#"{"message":"s3cr3t"}"#, "passed that on."),
        ("application/json", r#"{"dsn":"s3cr3t"}"#, "passed that on."),
    ] {
        let answer = format!(
            "HTTP/1.1 503 Service Unavailable\r\nContent-Type: {media}\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let upstream = Upstream::fixed(&answer);
        let weir = with(&upstream, "");
        weir.client().get("/").expect_status(503).expect_body(body);
        let kept = last(&weir, "kind=failed");
        let sentence = kept["sentence"].as_str().unwrap();
        assert!(sentence.ends_with(told), "{told:?} is not in {sentence:?}");
        assert!(!kept.to_string().contains("s3cr3t"), "{kept:#}");
    }
}

/// The same if a filter translated it from a gRPC status.
#[test]
fn what_a_service_of_grpc_said() {
    let upstream = H2Origin::new(weir_testkit::h2::Options::default(), |peer, stream, _| {
        let head = [
            (":status", "200"),
            ("content-type", "application/grpc"),
            ("grpc-status", "14"),
            ("grpc-message", "the database is away"),
        ];
        peer.send(&Frame::headers(stream, &head, true));
    });
    let folder = tempfile::tempdir().unwrap();
    let proto = folder.path().join("a.proto");
    std::fs::write(
        &proto,
        "syntax = \"proto3\"; package a; service B { rpc C(M) returns (M); } message M {}",
    )
    .unwrap();
    let weir = Weir::start(&format!(
        "{WEB}\nupstreams: {{ up: {{ protocol: h2c, endpoints: [{}] }} }}\nroutes:\n  all:\n    match: {{ path: \"/*\" }}\n    \
         filters: [ {{ grpc_json: {{ proto: [ {} ], unannotated: true }} }} ]\n    upstream: up\n",
        upstream.address(),
        proto.display()
    ));
    let call = "POST /a.B/C HTTP/1.1\r\nHost: weir.test\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}";
    weir.client().ask(call).expect_status(503);
    let kept = last(&weir, "kind=failed");
    let sentence = kept["sentence"].as_str().unwrap();
    assert!(sentence.ends_with("It said: code 14: the database is away."), "{sentence:?}");
}

#[test]
fn hung_up() {
    let upstream = Upstream::script(|conn| drop(conn.next_request()));
    let weir = with(&upstream, "");
    weir.client().ask("POST / HTTP/1.1\r\nHost: weir.test\r\nContent-Length: 0\r\n\r\n").expect_status(502);
    expect(&weir, "upstream_closed", &["closed the connection", "without an answer"], None);
}

#[test]
fn reset() {
    let upstream = Upstream::listen();
    let weir = with(&upstream, "");
    let (mut client, conn) =
        weir.begin(&upstream, "POST / HTTP/1.1\r\nHost: weir.test\r\nContent-Length: 0\r\n\r\n");
    conn.reset();
    client.read_response().expect_status(502);
    expect(&weir, "upstream_reset", &["reset the connection", "reset by peer"], None);
}

#[test]
fn not_http() {
    let upstream = Upstream::fixed("garbage\r\n\r\n");
    let weir = with(&upstream, "");
    weir.client().get("/").expect_status(502);
    let told = expect(&weir, "bad_response", &["not valid HTTP: "], None);
    let sentence = told["sentence"].as_str().unwrap();
    assert!(!sentence.contains("HTTP: ."), "the rule is named: {sentence}");
}

#[test]
fn cut_short() {
    let upstream = Upstream::script(|conn| {
        if conn.next_request().is_some() {
            conn.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhal");
        }
    });
    let weir = with(&upstream, "");
    let mut client = weir.client();
    client.send(GET);
    client.read_to_close();
    let told = expect(&weir, "truncated", &["ended its answer before it was complete", "status 200"], None);
    assert_eq!(told["kind"], "failed");
}

#[test]
fn tls_that_is_not_believed() {
    let authority = Authority::new();
    let upstream = Upstream::fixed_tls(&ServerTls::new(&authority.expired_leaf(&["127.0.0.1"])), OK);
    let tls = format!("tls: {{ ca: {} }}", authority.file().display());
    let weir = with(&upstream, &tls);
    weir.client().get("/").expect_status(502);
    expect(&weir, "upstream_tls", &["TLS with it failed", "expired"], Some(("upstreams.up.tls", 2)));
}

/// An upstream's own error has no cause, but the operator asks about it anyway.
#[test]
fn its_own_error() {
    let upstream = Upstream::fixed("HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n");
    let weir = with(&upstream, "");
    weir.client().get("/").expect_status(503);
    let told = last(&weir, "route=all");
    let sentence = told["sentence"].as_str().unwrap();
    assert!(sentence.contains("answered 503 itself"), "{sentence}");
    assert!(told["cause"].is_null() && told["kind"] == "failed", "{told:#}");
}

#[test]
fn no_place_in_the_pool() {
    let upstream = Upstream::listen();
    let weir = with(&upstream, "limits: { connections: 1, pending: 1 }, timeouts: { connect: 50ms }");
    let (mut first, mut conn) = weir.begin(&upstream, GET);
    weir.client().get("/").expect_status(503);
    expect(
        &weir,
        "pending_timeout",
        &["All connections to upstream `up` were busy"],
        Some(("upstreams.up.limits.connections", 2)),
    );
    conn.send(OK);
    first.read_response().expect_status(200);
}

// === The client's fault, and decisions of the config ===

#[test]
fn no_route_and_the_nearest() {
    let weir = Weir::start(&format!(
        "{WEB}\nroutes:\n  only: {{ match: {{ path: /only, methods: [GET] }}, respond: {{ body: ok }} }}\n"
    ));
    weir.client()
        .ask("POST /only HTTP/1.1\r\nHost: weir.test\r\nContent-Length: 0\r\n\r\n")
        .expect_status(404);
    expect(
        &weir,
        "no_route",
        &["No route matches POST weir.test/only", "nearest is `only`, but it takes GET"],
        None,
    );
}

#[test]
fn the_runner_up_is_found_when_asked() {
    let upstream = Upstream::fixed("HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n");
    let weir = Weir::start(&format!(
        "{WEB}\nupstreams: {{ up: {{ endpoints: [{}] }} }}\nroutes:\n  near: {{ match: {{ path: /a/b }}, upstream: up }}\n  \
         far: {{ match: {{ path: \"/*\" }}, upstream: up }}\n",
        upstream.address()
    ));
    weir.client().get("/a/b").expect_status(500);
    let told = last(&weir, "route=near");
    assert_eq!(told["route"]["runner_up"]["route"], "far", "{told:#}");
}

/// A gateway with one filter on its route, on line 6.
#[track_caller]
fn filtered(upstream: &Upstream, filter: &str, more: &str) -> Weir {
    Weir::start(&format!(
        "{WEB}\nupstreams: {{ up: {{ endpoints: [{}] }} }}\nroutes:\n  all:\n    match: {{ path: \"/*\" }}\n    \
         filters: [ {{ request_id: {{}} }}, {filter} ]\n    upstream: up\n{more}\n",
        upstream.address()
    ))
}

#[test]
fn filters_that_refuse() {
    let upstream = Upstream::fixed(OK);
    for (filter, cause, name) in [
        ("{ rate_limit: { requests: 1, per: 1h } }", "rate_limited", "rate_limit"),
        ("{ ip: { deny: [127.0.0.0/8] } }", "ip_denied", "ip"),
        ("{ key_auth: {} }", "key_missing", "key_auth"),
    ] {
        let weir = filtered(&upstream, filter, "consumers: { app: { key_auth: [ k3y ] } }");
        let mut client = weir.client();
        client.get("/");
        client.get("/");
        let key = format!("routes.all.filters[1].{name}");
        let told = expect(
            &weir,
            cause,
            &[&format!("The filter `{name}` of `routes.all` refused it")],
            Some((&key, 6)),
        );
        assert_eq!(told["filters"], serde_json::json!(["request_id", name]));
    }
}

#[test]
fn of_several_limits_the_one_that_refused_is_named() {
    let upstream = Upstream::fixed(OK);
    let limits = "{ rate_limit: { requests: 100, per: 1s } }, { rate_limit: { requests: 1, per: 1h } }";
    let weir = filtered(&upstream, limits, "");
    let mut client = weir.client();
    client.get("/").expect_status(200);
    client.get("/").expect_status(429);
    let told = last(&weir, "cause=rate_limited");
    let sentence = told["sentence"].as_str().unwrap();
    assert!(sentence.contains("The limit is 1 in 1h"), "{sentence}");
}

/// The last attempt of an exchange is often only a consequence of the first.
#[test]
fn of_several_attempts_the_first_cause_is_named() {
    let closing = Upstream::script(|conn| {
        conn.next_request();
    });
    let malformed = Upstream::fixed("HTTP/1.1 200 OK\r\nContent-Length: 1, 2\r\n\r\n");
    let weir = Weir::start(&config(&format!(
        "endpoints: [{}, {}], balancer: round_robin, retry: {{ attempts: 2, budget: 100% }}",
        closing.address(),
        malformed.address()
    )));
    // One of two consecutive exchanges begins at the endpoint that closes.
    let mut client = weir.client();
    client.get("/").expect_status(502);
    client.get("/").expect_status(502);
    let first = format!("(attempt 2; the first, at {}, ended with `upstream_closed`)", closing.address());
    eventually("the first cause is named", || {
        let told = ask(&weir, "/api/v1/why?cause=bad_response&limit=20").json();
        let found = told["found"].as_array().unwrap();
        found.iter().any(|found| found["sentence"].as_str().is_some_and(|told| told.contains(&first)))
    });
}

#[test]
fn too_large() {
    let upstream = Upstream::fixed(OK);
    let weir = Weir::start(&format!(
        "{}limits: {{ body_bytes: 10B, header_bytes: 1KiB }}\n",
        config_for(&upstream, "")
    ));
    let body = "POST / HTTP/1.1\r\nHost: weir.test\r\nContent-Length: 100\r\n\r\n";
    weir.client().ask(body).expect_status(413);
    let told =
        expect(&weir, "body_too_large", &["larger than this gateway allows"], Some(("limits.body_bytes", 4)));
    assert_eq!(told["key"]["value"], "10B");
    let head = format!("GET / HTTP/1.1\r\nHost: weir.test\r\nX-Long: {}\r\n\r\n", "x".repeat(2000));
    weir.client().ask(head).expect_status(431);
    expect(&weir, "header_too_large", &["head is larger than allowed"], Some(("limits.header_bytes", 4)));
}

#[test]
fn not_understood() {
    let upstream = Upstream::fixed(OK);
    let weir = with(&upstream, "");
    weir.client().ask("GET / HTTP/1.1\nHost: weir.test\n\n").expect_status(400);
    expect(&weir, "bad_head", &["head is malformed", "It was refused for"], None);
    // The start of a ClientHello: TLS on a port of plain HTTP.
    weir.client().ask("\x16\x03\x01\x02\x00\x01\x00\x01\x7c\x03\x03").expect_cause(UNEXPECTED_TLS);
    let key = Some(("listeners.web.tls", 1));
    expect(&weir, "unexpected_tls", &["speaks TLS, but this port does not"], key);
    weir.client().get("/a%00b").expect_status(400);
    expect(&weir, "bad_path", &["path is refused"], None);
}

#[test]
fn slow_clients() {
    let upstream = Upstream::listen();
    let weir = Weir::start(&format!(
        "listeners: {{ web: {{ address: 127.0.0.1:0, timeouts: {{ head: 50ms, body: 50ms }} }} }}\n\
         upstreams: {{ up: {{ endpoints: [{}] }} }}\n{}\n",
        upstream.address(),
        crate::support::ALL_TO_UP
    ));
    let mut client = weir.client();
    client.send("GET / HTTP/1.1\r\nHost: weir.test\r\n");
    client.read_response().expect_status(408);
    expect(&weir, "head_timeout", &["its head was incomplete"], Some(("listeners.web.timeouts.head", 1)));
    let mut client = weir.client();
    client.send("POST / HTTP/1.1\r\nHost: weir.test\r\nContent-Length: 9\r\n\r\nabc");
    client.read_response().expect_status(408);
    expect(&weir, "body_timeout", &["stopped sending the body"], Some(("listeners.web.timeouts.body", 1)));
}

/// An HTTP/2 stream that its client resets.
#[test]
fn a_client_that_leaves() {
    let upstream = Upstream::listen();
    let weir = Weir::start(&format!(
        "listeners: {{ web: {{ address: 127.0.0.1:0, protocols: [http1, h2] }} }}\nupstreams: {{ up: {{ endpoints: [{}] }} }}\n{}\n",
        upstream.address(),
        crate::support::ALL_TO_UP
    ));
    let mut h2: H2<Client> = weir.h2();
    let stream = h2.get("/");
    let _conn = upstream.accept_request();
    h2.send(&Frame::reset(stream, 8));
    let told =
        expect(&weir, "client_closed", &["did not wait for the answer", "while Weir waited for"], None);
    assert_eq!(told["client"]["protocol"], "HTTP/2");
}

// === Connections without a request ===

#[test]
fn a_handshake_that_fails() {
    let authority = Authority::new();
    let weir = Weir::start(&format!(
        "listeners: {{ web: {{ address: 127.0.0.1:0, tls: {{ certificates: [ {} ] }} }} }}\n\
         routes: {{ all: {{ match: {{ path: \"/*\" }}, respond: {{ body: ok }} }} }}\n",
        authority.leaf(&["weir.test"]).yaml()
    ));
    let stranger = Tls::new(&Authority::new(), "weir.test");
    assert!(Client::try_connect_tls(weir.address("web"), &stranger).is_err());
    expect(
        &weir,
        "handshake_failed",
        &["TLS handshake with 127.0.0.1 failed", "does not trust"],
        Some(("listeners.web.tls", 1)),
    );
}

#[test]
fn a_flood() {
    let upstream = Upstream::fixed(OK);
    let weir = Weir::start(&format!(
        "listeners: {{ web: {{ address: 127.0.0.1:0, protocols: [http1, h2] }} }}\nupstreams: {{ up: {{ endpoints: [{}] }} }}\n{}\n\
         limits: {{ h2: {{ pings: 5 }} }}\n",
        upstream.address(),
        crate::support::ALL_TO_UP
    ));
    let mut h2 = weir.h2();
    for _ in 0..50 {
        if !h2.try_send(&Frame::ping([0; 8])) {
            break;
        }
    }
    expect(
        &weir,
        "h2_ping_flood",
        &["PING", "whole connection from 127.0.0.1"],
        Some(("limits.h2.pings", 4)),
    );
}

// === Queries ===

#[track_caller]
fn why(weir: &Weir, args: &[&str]) -> Finished {
    let admin = weir.admin();
    run_weir(weir.dir(), &[&["why", "--admin", &admin], args].concat())
}

#[test]
fn by_the_id_that_the_client_was_told() {
    let (_closed, address) = refusing_address();
    let weir = Weir::start(&config(&format!("endpoints: [{address}]")));
    let answer = weir.client().get("/lost");
    let id = answer.json()["request_id"].as_str().unwrap().to_owned();
    last(&weir, "cause=connect_refused");
    let page = why(&weir, &[&id]);
    page.expect_code(0)
        .expect_text("502 connect_refused  GET ")
        .expect_text("Nothing listens at")
        .expect_text(&id)
        .expect_text("To change: upstreams.up.endpoints  at weir.yaml:2");
    why(&weir, &[]).expect_code(0).expect_text("Nothing listens at");
    let json = why(&weir, &["--last", "--cause", "connect_refused", "--format", "json"]);
    let told: Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!(told["found"][0]["id"], *id);
    why(&weir, &["nobody"]).expect_code(1).expect_text("no exchange with the id `nobody` is kept here");
    why(&weir, &["--route", "other"]).expect_code(1).expect_text("no such request is kept");
}

#[test]
fn by_an_id_of_the_clients_own() {
    let upstream = Upstream::fixed("HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n");
    let weir = filtered(&upstream, "{ security_headers: {} }", "");
    weir.client().ask("GET / HTTP/1.1\r\nHost: weir.test\r\nX-Request-Id: mine-1\r\n\r\n").expect_status(500);
    last(&weir, "route=all");
    assert_eq!(ask(&weir, "/api/v1/why/mine-1").expect_status(200).json()["found"][0]["status"], 500);
}

/// The record has the access log's id.
#[test]
fn the_access_log_names_the_same_id() {
    let upstream = Upstream::fixed("HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n");
    let weir = Weir::in_front_of_with(&upstream, "access_log: { output: stdout }");
    weir.client().get("/").expect_status(500);
    let line: Value = serde_json::from_str(&weir.wait_stdout("\"status\":500")).unwrap();
    let told = last(&weir, "route=all");
    assert_eq!(told["id"], line["request_id"], "{line}");
    assert_eq!(told["id"].as_str().unwrap().len(), 32);
}

#[test]
fn the_cursor_tells_only_what_is_new() {
    let upstream = Upstream::fixed("HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n");
    let weir = with(&upstream, "");
    weir.client().get("/first").expect_status(500);
    last(&weir, "");
    let cursor = ask(&weir, "/api/v1/why").json()["cursor"].as_str().unwrap().to_owned();
    let since =
        |query: &str| ask(&weir, &format!("/api/v1/why?after={cursor}{query}")).json()["found"].clone();
    assert_eq!(since(""), serde_json::json!([]));
    weir.client().get("/second").expect_status(500);
    eventually("the second is told", || since("")[0]["request"]["path"] == "/second");
    assert_eq!(since("").as_array().unwrap().len(), 1);
}

/// A worker's first exchange is sampled, whatever its outcome.
#[test]
fn one_that_was_well() {
    let upstream = Upstream::fixed(OK_BODY);
    let weir = with(&upstream, "");
    weir.client().get("/fine?a=1").expect_status(200);
    let told = last(&weir, "kind=sampled");
    assert!(told["sentence"].as_str().unwrap().contains("answered 200 in"), "{told:#}");
    assert_eq!(told["request"]["query"], serde_json::json!(["a:1"]));
    assert!(told["key"].is_null());
    assert_eq!(ask(&weir, "/api/v1/why").json()["found"], serde_json::json!([]), "no failure");
}

#[test]
fn nothing_is_kept_where_it_is_off() {
    let weir = Weir::start(&format!("{}limits: {{ autopsy: 0B }}\n", config("endpoints: [127.0.0.1:1]")));
    weir.client().get("/").expect_status(502);
    let told = ask(&weir, "/api/v1/why").expect_status(200).json();
    assert_eq!((&told["on"], &told["held"]), (&false.into(), &0.into()));
    ask(&weir, "/api/v1/why/x").expect_status(404).expect_body_with("limits.autopsy");
}

#[test]
fn only_who_may_ask_is_told() {
    let upstream = Upstream::fixed(OK);
    let weir = Weir::start(&format!(
        "{}admin: {{ address: 127.0.0.1:0, token: t0ken }}\n",
        config(&format!("endpoints: [{}]", upstream.address()))
    ));
    for target in ["/api/v1/why", "/api/v1/why/x", "/api/v1/why/x.css", "/api/v1/why?cause=no_route"] {
        ask(&weir, target).expect_status(401);
    }
    why(&weir, &["--token", "t0ken"]).expect_text("no such request");
    // Where the config takes the token from a variable that only the service has, the user's is enough.
    let elsewhere = format!("admin: {{ address: {}, token: \"${{WEIR_NOT_SET}}\" }}\n", weir.admin());
    std::fs::write(weir.dir().join("elsewhere.yaml"), config("endpoints: [127.0.0.1:1]") + &elsewhere)
        .unwrap();
    let status =
        |more: &[&str]| run_weir(weir.dir(), &[&["status", "-c", "elsewhere.yaml"][..], more].concat());
    status(&["--token", "t0ken"]).expect_code(0).expect_text("config revision");
    assert_ne!(status(&[]).expect_text("WEIR_NOT_SET").code, Some(0));
}

/// A reload keeps earlier records, and marks what they say about the config.
#[test]
fn after_a_reload() {
    let (_closed, address) = refusing_address();
    let before = config(&format!("endpoints: [{address}]"));
    let weir = Weir::start(&before);
    weir.client().get("/").expect_status(502);
    last(&weir, "cause=connect_refused");
    weir.reload_with(&format!("\n\n{before}expose_causes: false\n")).unwrap();
    let told = last(&weir, "cause=connect_refused");
    assert_eq!((&told["config_changed"], &told["key"]["at"]), (&true.into(), &"weir.yaml:4".into()));
    assert!(told["key"]["note"].as_str().unwrap().contains("has changed since"), "{told:#}");
}

// === Secrets ===

/// Puts a secret in every possible place, makes each request fail, and searches all reports for it.
#[test]
fn secrets_are_never_told() {
    const SECRET: &str = "s3cr3t";
    let (_closed, address) = refusing_address();
    let upstream =
        Upstream::fixed("HTTP/1.1 500 s3cr3t\r\nSet-Cookie: a=s3cr3t\r\nContent-Length: 6\r\n\r\ns3cr3t");
    let garbling = Upstream::fixed("s3cr3t s3cr3t\r\ns3cr3t\r\n\r\n");
    let weir = Weir::start(&format!(
        "{WEB}\nupstreams:\n  gone: {{ endpoints: [{address}] }}\n  up: {{ endpoints: [{}] }}\n  bad: {{ endpoints: [{}] }}\n\
         consumers: {{ app: {{ key_auth: [ s3cr3t-key-of-app ] }} }}\n\
         admin: {{ address: 127.0.0.1:0, token: s3cr3t-token }}\n\
         routes:\n\
         \x20 gone: {{ match: {{ path: \"/gone/*\" }}, upstream: gone }}\n\
         \x20 bad: {{ match: {{ path: \"/bad/*\" }}, upstream: bad }}\n\
         \x20 keyed: {{ match: {{ path: \"/keyed/*\" }}, filters: [ {{ key_auth: {{ query: key, path: true, cookie: k }} }} ], upstream: up }}\n\
         \x20 headed: {{ match: {{ path: \"/headed/*\", headers: {{ x-secret: s3cr3t-value }} }}, upstream: up }}\n\
         \x20 own: {{ match: {{ path: \"/own/*\" }}, filters: [ {{ headers: {{ request: {{ set: {{ x-up: s3cr3t-sent }} }} }} }} ], upstream: up }}\n",
        upstream.address(),
        garbling.address()
    ));
    let fields = "Authorization: Bearer s3cr3t\r\nCookie: session=s3cr3t; k=s3cr3t\r\nX-Api-Key: s3cr3t\r\nX-Secret: s3cr3t\r\n";
    let targets = [
        "/gone/x?key=s3cr3t&s3cr3t",
        "/bad/x?token=s3cr3t",
        "/keyed/x?key=s3cr3t&k%65y=s3cr3t",
        "/keyed/~s3cr3t/x",
        "/keyed/%7Es3cr3t/x",
        "/headed/x",
        "/own/x",
        "/nowhere/~s3cr3t?s3cr3t",
        "http://user:s3cr3t@weir.test/gone/x",
    ];
    for target in targets {
        for body in ["", "s3cr3t"] {
            let length = body.len();
            let method = if body.is_empty() { "GET" } else { "POST" };
            let request = format!(
                "{method} {target} HTTP/1.1\r\nHost: weir.test\r\n{fields}Content-Length: {length}\r\n\r\n{body}"
            );
            let answer = weir.client().ask(request);
            assert!(answer.status >= 400, "{target}: {}", answer.status);
        }
    }
    // Malformed heads and bodies.
    for broken in [
        "GET / HTTP/1.1\nHost: s3cr3t:s3cr3t@x\nCookie: s3cr3t\n\n",
        "GET /gone/ HTTP/1.1\r\nHost: weir.test\r\ns3cr3t\r\n\r\n",
        "GET /gone/ HTTP/1.1\r\nHost: user:s3cr3t@weir.test\r\n\r\n",
        "CONNECT user:s3cr3t@weir.test:443 HTTP/1.1\r\nHost: weir.test\r\n\r\n",
        "POST /own/ HTTP/1.1\r\nHost: weir.test\r\nTransfer-Encoding: chunked\r\n\r\ns3cr3t\r\n",
    ] {
        weir.client().ask(broken);
    }
    let kept = || {
        let ask = |query: &str| {
            let host = weir.admin();
            let request = format!(
                "GET /api/v1/why?limit=100{query} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer s3cr3t-token\r\n\r\n"
            );
            weir.admin_client().ask(request).expect_status(200).text()
        };
        [ask(""), ask("&kind=sampled")].concat()
    };
    eventually("all are kept", || kept().matches("\"sentence\"").count() >= targets.len() * 2 + 5);
    let page = why(&weir, &["-n", "100", "--token", "s3cr3t-token"]);
    let json = why(&weir, &["-n", "100", "--token", "s3cr3t-token", "--format", "json"]);
    for told in [kept(), page.stdout, json.stdout] {
        let found = told.lines().find(|line| line.contains(SECRET));
        assert_eq!(found, None, "{told}");
        assert!(told.contains("/keyed/"), "{told}");
    }
}
