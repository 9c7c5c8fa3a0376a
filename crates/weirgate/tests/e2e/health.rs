//! Unreachable endpoints: their effect on requests, what an operator sees, and how they return.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use weir_testkit::h2::{H2Origin, Options};
use weir_testkit::{
    Authority, ServerTls, Upstream, Weir, black_hole, eventually, refusing_address, run_weir, stop_listening,
};

use crate::cause::{CONNECT_REFUSED, CONNECT_TIMEOUT, EXCHANGE_TIMEOUT, NO_HEALTHY_ENDPOINT};
use crate::support::{OK, WEB, config};

const POST: &str = "POST /order HTTP/1.1\r\nHost: weir.test\r\nContent-Length: 4\r\n\r\nbody";

/// One page of the admin listener.
pub(crate) fn admin(weir: &Weir, path: &str) -> String {
    let host = weir.admin();
    weir.admin_client().ask(format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n")).text()
}

/// The value of the first sample whose line contains all of these.
pub(crate) fn metric(weir: &Weir, parts: &[&str]) -> Option<f64> {
    let text = admin(weir, "/metrics");
    let mut samples = text.lines().filter(|line| !line.starts_with('#'));
    let line = samples.find(|line| parts.iter().all(|part| line.contains(part)))?;
    line.rsplit(' ').next()?.parse().ok()
}

fn is_healthy(weir: &Weir, endpoint: SocketAddr) -> bool {
    metric(weir, &["weir_endpoint_healthy", &endpoint.to_string()]) == Some(1.0)
}

/// Two endpoints, this one first.
fn beside(endpoint: SocketAddr, good: &Upstream, more: &str) -> String {
    config(&format!("endpoints: [{endpoint}, {}], {more}", good.address()))
}

#[test]
fn a_connect_that_times_out_goes_to_another_endpoint() {
    let (_full, hole) = black_hole();
    let good = Upstream::named("good");
    let weir = Weir::start(&beside(hole, &good, "balancer: round_robin, timeouts: { connect: 150ms }"));
    let mut client = weir.client();
    // A POST as well, because nothing of it was sent.
    for _ in 0..4 {
        client.ask(POST).expect_status(200).expect_body("good");
    }
    assert!(!is_healthy(&weir, hole), "a connect that timed out counts at once");
    assert_eq!(good.requests().len(), 4);
}

#[test]
fn the_deadline_of_an_exchange_ends_connecting_too() {
    let (_full, hole) = black_hole();
    let weir = Weir::start(&config(&format!(
        "endpoints: [{hole}], timeouts: {{ connect: 60s, exchange: 200ms, response: 100ms }}"
    )));
    weir.client().get("/").expect_status(504).expect_cause(EXCHANGE_TIMEOUT);
    assert!(is_healthy(&weir, hole), "it was our time that ended, not its");
}

/// Half of the deadline is reserved for another endpoint, with either protocol and any method.
#[test]
fn a_deadline_shorter_than_a_connect_leaves_time_for_another_endpoint() {
    let (_full, hole) = black_hole();
    let good = Upstream::named("good");
    let by_h2 = H2Origin::new(Options::default(), |peer, stream, _| {
        peer.headers(stream, &[(":status", "200"), ("content-length", "4")], false);
        peer.data(stream, *b"good", true);
    });
    for (address, protocol) in [(good.address(), "http1"), (by_h2.address(), "h2c")] {
        let weir = Weir::start(&config(&format!(
            "endpoints: [{hole}, {address}], balancer: round_robin, protocol: {protocol}, \
             timeouts: {{ connect: 60s, exchange: 2s }}"
        )));
        let mut client = weir.client();
        // One of two requests tries the black hole first.
        for _ in 0..2 {
            client.ask(POST).expect_status(200).expect_body("good");
        }
        assert!(is_healthy(&weir, hole), "it may still answer");
    }
}

/// A filter's call to an upstream also leaves time for another endpoint.
#[test]
fn a_call_of_a_filter_goes_to_another_endpoint_within_its_deadline() {
    let (_full, hole) = black_hole();
    let (up, auth) = (Upstream::named("up"), Upstream::named("auth"));
    let weir = Weir::start(&format!(
        "{WEB}\nupstreams:\n  up: {{ endpoints: [{}] }}\n  auth: {{ endpoints: [{hole}, {}], balancer: round_robin, \
         timeouts: {{ connect: 60s, exchange: 2s }} }}\nroutes: {{ all: {{ match: {{ path: \"/*\" }}, \
         filters: [ {{ forward_auth: {{ upstream: auth }} }} ], upstream: up }} }}\n",
        up.address(),
        auth.address()
    ));
    let mut client = weir.client();
    // One of two requests tries the black hole first.
    for _ in 0..2 {
        client.get("/").expect_status(200).expect_body("up");
    }
    assert!(is_healthy(&weir, hole), "it may still answer");
}

/// The gateway learns that an endpoint is unreachable even if a deadline is short or a client leaves.
#[test]
fn a_black_hole_is_found_though_no_request_waits_so_long() {
    let (_full, hole) = black_hole();
    for (protocol, leaves) in [("http1", false), ("http1", true), ("h2c", false)] {
        let exchange = if leaves { "60s" } else { "100ms" };
        let weir = Weir::start(&config(&format!(
            "endpoints: [{hole}], protocol: {protocol}, timeouts: {{ connect: 1s, exchange: {exchange} }}"
        )));
        let mut client = weir.client();
        if leaves {
            client.send(POST);
            eventually("it is dialled", || {
                let active = metric(&weir, &["weir_endpoint_attempts_active", &hole.to_string()]);
                active == Some(1.0)
            });
            drop(client);
        } else {
            client.ask(POST).expect_cause(EXCHANGE_TIMEOUT);
        }
        eventually("it is out of rotation", || !is_healthy(&weir, hole));
        let failed = ["weir_endpoint_attempts_total", &hole.to_string(), "failed"];
        assert_eq!(metric(&weir, &failed), Some(1.0), "{protocol}, {leaves}");
    }
}

#[test]
fn an_attempt_that_was_none_is_not_told() {
    let (_closed, refusing) = refusing_address();
    let upstream = config(&format!("endpoints: [{refusing}]"));
    let weir = Weir::start(&format!("{upstream}access_log: {{ output: stdout }}\n"));
    let mut client = weir.client();
    client.get("/").expect_cause(CONNECT_REFUSED);
    let line = weir.wait_stdout(CONNECT_REFUSED.1);
    assert!(line.contains("\"attempts\":1") && line.contains("failed_attempts"), "{line}");
    // It is not dialed again immediately.
    eventually("it is avoided", || client.get("/").status == NO_HEALTHY_ENDPOINT.0);
    let line = weir.wait_stdout(NO_HEALTHY_ENDPOINT.1);
    for none in ["\"attempts\"", "failed_attempts", "\"endpoint\""] {
        assert!(!line.contains(none), "{line}");
    }
}

/// Retries are counted like attempts in the log: an avoided endpoint is neither.
#[test]
fn an_endpoint_that_is_avoided_is_no_retry() {
    let ((_closed, dead), (dying, address)) = (refusing_address(), refusing_address());
    dying.listen(16).unwrap();
    let upstream = config(&format!("endpoints: [{dead}, {address}], balancer: round_robin"));
    let weir = Weir::start(&format!("{upstream}access_log: {{ output: stdout }}\n"));
    // One of two requests tries the dead endpoint first, which is avoided from then on.
    for path in ["/1", "/2"] {
        let mut client = weir.client();
        client.send(format!("GET {path} HTTP/1.1\r\nHost: weir.test\r\n\r\n"));
        let (mut conn, _) = dying.accept().unwrap();
        read_head(&mut conn);
        conn.write_all(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n").unwrap();
        client.read_response().expect_status(204);
    }
    stop_listening(dying);
    weir.client().get("/3").expect_cause(CONNECT_REFUSED);
    let retries = ["/1", "/2", "/3"].map(|path| {
        let line: serde_json::Value =
            serde_json::from_str(&weir.wait_stdout(&format!("{path:?}"))).expect("JSON");
        line["attempts"].as_u64().expect("a number") - 1
    });
    let counted = metric(&weir, &["weir_upstream_retries_total"]);
    assert_eq!(counted, Some(retries.iter().sum::<u64>() as f64), "{retries:?}");
}

#[test]
fn an_endpoint_that_refuses_is_avoided() {
    let (_closed, refusing) = refusing_address();
    let good = Upstream::named("good");
    let weir = Weir::start(&beside(refusing, &good, "balancer: round_robin"));
    let mut client = weir.client();
    let began = Instant::now();
    for _ in 0..50 {
        client.ask(POST).expect_status(200).expect_body("good");
    }
    let failures = metric(&weir, &["weir_upstream_connect_failures_total"]).unwrap();
    // One dial, and more after 1 s, 2 s and so on if this machine is that slow.
    assert!(failures <= 1.0 + began.elapsed().as_secs_f64(), "{failures} dials");
    assert!(!is_healthy(&weir, refusing) && is_healthy(&weir, good.address()));
    let line = weir.wait_log("endpoint out of rotation");
    assert_eq!(line.field("endpoint"), Some(&*refusing.to_string()));
    assert_eq!(line.field("cause"), Some(CONNECT_REFUSED.1));
    let status = admin(&weir, "/status");
    for part in ["\"cause\": \"connect_refused\"", "\"since\": \"20", "\"until\": \"20"] {
        assert!(status.contains(part), "{status}");
    }
}

#[test]
fn an_endpoint_that_comes_back_is_found_in_the_background() {
    let (closed, address) = refusing_address();
    let good = Upstream::named("good");
    let weir = Weir::start(&beside(address, &good, "balancer: round_robin"));
    let mut client = weir.client();
    client.get("/").expect_body("good");
    client.get("/").expect_body("good");
    assert!(!is_healthy(&weir, address));
    serve(closed, "back");
    eventually("it is in rotation again", || {
        // No request waits for the trial dial, or fails because of it.
        client.get("/").expect_status(200);
        is_healthy(&weir, address)
    });
    let bodies: Vec<String> = (0..4).map(|_| client.get("/").text()).collect();
    assert!(bodies.iter().any(|body| body == "back"), "{bodies:?}");
    assert_eq!(weir.wait_log("endpoint back in rotation").field("endpoint"), Some(&*address.to_string()));
}

#[test]
fn an_endpoint_that_comes_back_is_found_without_a_request() {
    let (closed, address) = refusing_address();
    let good = Upstream::named("good");
    let weir = Weir::start(&beside(address, &good, "balancer: round_robin"));
    let mut client = weir.client();
    client.get("/").expect_body("good");
    client.get("/").expect_body("good");
    assert!(!is_healthy(&weir, address));
    serve(closed, "back");
    eventually("it is in rotation again", || is_healthy(&weir, address));
    assert_eq!(weir.wait_log("endpoint back in rotation").field("endpoint"), Some(&*address.to_string()));
    assert_eq!(admin(&weir, "/status").matches("\"state\": \"healthy\"").count(), 2);
}

#[test]
fn a_dead_endpoint_is_never_due_for_long() {
    let (_closed, address) = refusing_address();
    let good = Upstream::named("good");
    let weir = Weir::start(&beside(address, &good, "balancer: round_robin"));
    let mut client = weir.client();
    client.get("/").expect_body("good");
    client.get("/").expect_body("good");
    let until = || {
        let status: serde_json::Value = serde_json::from_str(&admin(&weir, "/status")).unwrap();
        let endpoints = status["upstreams"]["up"]["endpoints"].as_array().unwrap().clone();
        let dead = endpoints.into_iter().find(|endpoint| endpoint["address"] == address.to_string()).unwrap();
        let state = dead["state"].as_str().unwrap().to_owned();
        let until = dead["reasons"][0]["until"].as_str().map(str::to_owned);
        // An expired time is not shown: the endpoint is to be tried now, and soon will be.
        assert_eq!(state == "to_be_tried", until.is_none(), "{dead}");
        until
    };
    let first = until();
    eventually("it was tried without a request, and is avoided for longer", || {
        let now = until();
        now.is_some() && now > first
    });
    assert!(!is_healthy(&weir, address));
}

#[test]
fn where_all_are_dead_few_are_dialled() {
    let ((one, first), (_two, second)) = (refusing_address(), refusing_address());
    let weir = Weir::start(&config(&format!("endpoints: [{first}, {second}]")));
    let mut client = weir.client();
    let began = Instant::now();
    client.get("/").expect_cause(CONNECT_REFUSED);
    let mut dialled = 1;
    let mut refused = 0;
    for _ in 0..200 {
        let response = client.get("/");
        match response.status {
            502 => dialled += 1,
            503 => {
                response.expect_cause(NO_HEALTHY_ENDPOINT);
                refused += 1;
            }
            other => panic!("{other}"),
        }
    }
    let most = 2.0 * (1.0 + began.elapsed().as_secs_f64() / 0.1);
    let failures = metric(&weir, &["weir_upstream_connect_failures_total"]).unwrap();
    assert!(failures <= most, "{failures} dials, {most} are allowed");
    assert!(refused > 0 && f64::from(dialled) <= failures, "{dialled} dialled, {refused} refused");
    // An endpoint that returns is found by the next request that may dial.
    serve(one, "back");
    eventually("it answers", || client.get("/").status == 200);
    client.get("/").expect_body("back");
}

#[test]
fn a_pooled_connection_serves_while_new_ones_are_refused() {
    let (closed, address) = refusing_address();
    closed.listen(16).unwrap();
    let weir = Weir::start(&config(&format!("endpoints: [{address}]")));
    let (mut one, mut two) = (weir.client(), weir.client());
    one.send(crate::support::GET);
    let (mut conn, _) = closed.accept().unwrap();
    read_head(&mut conn);
    stop_listening(closed); // open connections stay
    two.get("/").expect_cause(CONNECT_REFUSED);
    conn.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\none").unwrap();
    one.read_response().expect_body("one");
    two.send(crate::support::GET);
    read_head(&mut conn);
    conn.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\ntwo").unwrap();
    two.read_response().expect_body("two");
}

#[test]
fn what_is_known_survives_a_reload() {
    let (_closed, refusing) = refusing_address();
    let good = Upstream::named("good");
    let weir = Weir::start(&beside(refusing, &good, "balancer: round_robin"));
    let mut client = weir.client();
    client.get("/");
    client.get("/");
    let before = metric(&weir, &["weir_upstream_connect_failures_total"]).unwrap();
    assert!(!is_healthy(&weir, refusing));
    weir.reload_with(&beside(refusing, &good, "balancer: random, keepalive: 59s")).unwrap();
    let reloaded = Instant::now();
    assert!(!is_healthy(&weir, refusing));
    for _ in 0..20 {
        client.get("/").expect_body("good");
    }
    let after = metric(&weir, &["weir_upstream_connect_failures_total"]).unwrap();
    assert!(after <= before + reloaded.elapsed().as_secs_f64().ceil(), "{before} dials, then {after}");
    weir.client().get("/").expect_status(200);
}

#[test]
fn a_lone_endpoint_that_times_out_is_said_so() {
    let (_full, hole) = black_hole();
    let weir = Weir::start(&config(&format!("endpoints: [{hole}], timeouts: {{ connect: 150ms }}")));
    weir.client().get("/").expect_cause(CONNECT_TIMEOUT);
}

/// Starts listening on a socket that refused until now; answers each request with this.
fn serve(socket: socket2::Socket, body: &'static str) {
    socket.listen(16).unwrap();
    let listener = TcpListener::from(socket);
    std::thread::spawn(move || {
        while let Ok((mut conn, _)) = listener.accept() {
            std::thread::spawn(move || {
                while read_head(&mut conn) {
                    let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
                    if conn.write_all(answer.as_bytes()).is_err() {
                        return;
                    }
                }
            });
        }
    });
}

/// Reads a request without a body; false at the end of the connection.
fn read_head(conn: &mut impl Read) -> bool {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        match conn.read(&mut byte) {
            Ok(1) => head.push(byte[0]),
            _ => return false,
        }
    }
    true
}

/// Runs `weir endpoint`.
fn endpoint(weir: &Weir, args: &[&str]) -> weir_testkit::Finished {
    let admin = weir.admin();
    let args: Vec<&str> =
        ["endpoint"].into_iter().chain(args.iter().copied()).chain(["--admin", &admin]).collect();
    run_weir(weir.dir(), &args)
}

#[test]
fn an_endpoint_is_drained_and_put_back_by_hand() {
    let (one, two) = (Upstream::named("one"), Upstream::named("two"));
    let weir = Weir::start(&beside(one.address(), &two, "balancer: round_robin"));
    let mut client = weir.client();
    let mut bodies = || -> Vec<String> { (0..4).map(|_| client.get("/").text()).collect() };
    assert!(bodies().contains(&"one".to_owned()));
    let address = one.address().to_string();
    let said = endpoint(&weir, &["drain", "up", &address, "--for", "10m"]);
    said.expect_code(0).expect_text(&format!("{address} of up is draining until 20"));
    endpoint(&weir, &["drain", "up", &address, "--for", "10m", "--format", "json"])
        .expect_code(0)
        .expect_text("\"state\": \"draining\"")
        .expect_text("\"until\"");
    assert_eq!(bodies(), ["two"; 4]);
    let line = weir.wait_log("endpoint out of rotation");
    assert_eq!((line.field("reason"), line.field("cause")), (Some("draining"), Some("by_hand")));
    let since = metric(&weir, &["weir_endpoint_out_since_timestamp_seconds", &address, "draining"]);
    assert!(since > Some(1.7e9));
    // This state is not in the config, and a reload that changes the upstream keeps it.
    weir.reload_with(&beside(one.address(), &two, "balancer: random, keepalive: 59s")).unwrap();
    assert_eq!(bodies(), ["two"; 4]);
    endpoint(&weir, &["out", "up", &address]).expect_code(0).expect_text("is out until 20");
    assert_eq!(bodies(), ["two"; 4]);
    // Even without another endpoint.
    endpoint(&weir, &["out", "up", &two.address().to_string()]).expect_code(0);
    weir.client().get("/").expect_cause(NO_HEALTHY_ENDPOINT);
    endpoint(&weir, &["in", "up", &address]).expect_code(0).expect_text("is healthy\n");
    assert_eq!(bodies(), ["one"; 4]);
}

#[test]
fn the_only_endpoint_can_be_put_out_and_comes_back_in_time() {
    let good = Upstream::named("good");
    let weir = Weir::in_front_of(&good);
    let address = good.address().to_string();
    weir.client().get("/").expect_body("good");
    endpoint(&weir, &["out", "up", &address, "--for", "300ms"]).expect_code(0);
    weir.client().get("/").expect_cause(NO_HEALTHY_ENDPOINT);
    eventually("it is back", || weir.client().get("/").status == 200);
    assert_eq!(weir.wait_log("endpoint back in rotation").field("reason"), Some("out"));
}

#[test]
fn what_is_wrong_with_a_change_by_hand_is_said() {
    let good = Upstream::named("good");
    let weir = Weir::in_front_of(&good);
    endpoint(&weir, &["drain", "app", "1.2.3.4:5"]).expect_code(1).expect_text("expected one of: up");
    let unknown = endpoint(&weir, &["drain", "up", "1.2.3.4:5"]);
    unknown.expect_code(1).expect_text(&format!("it has: {}", good.address()));
    let time = endpoint(&weir, &["drain", "up", &good.address().to_string(), "--for", "10"]);
    time.expect_code(1).expect_text("`10` is not a duration");
    let host = weir.admin();
    let path = format!("/api/v1/endpoints/up/{}:drain", good.address());
    let get = weir.admin_client().ask(format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
    get.expect_status(405);
    let foreign = weir.admin_client().ask(format!(
        "POST {path} HTTP/1.1\r\nHost: {host}\r\nOrigin: http://evil.example\r\nContent-Length: 0\r\n\r\n"
    ));
    foreign.expect_status(403);
    weir.client().get("/").expect_body("good");
}

/// An endpoint whose answers to probes and requests change at runtime.
fn switchable(name: &'static str) -> (Upstream, Arc<AtomicBool>) {
    let well = Arc::new(AtomicBool::new(true));
    let asked = Arc::clone(&well);
    let upstream = Upstream::script(move |conn| {
        while let Some(request) = conn.next_request() {
            let probe = request.head.line.starts_with("GET /healthz ");
            let status = if !probe || asked.load(Relaxed) { "200 OK" } else { "503 Service Unavailable" };
            conn.send(format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{name}", name.len()));
        }
    });
    (upstream, well)
}

const FAST: &str = "balancer: round_robin, health: { probe: { interval: 20ms, timeout: 5s, unhealthy: 2 } }";

#[test]
fn probes_take_an_endpoint_out_and_in_again() {
    let ((one, well), good) = (switchable("one"), Upstream::named("good"));
    let weir = Weir::start(&beside(one.address(), &good, FAST));
    let mut client = weir.client();
    eventually("it was probed", || metric(&weir, &["weir_endpoint_probes_total", "passed"]) > Some(1.0));
    assert!(is_healthy(&weir, one.address()));
    well.store(false, Relaxed);
    eventually("it is out", || !is_healthy(&weir, one.address()));
    let bodies: Vec<String> = (0..4).map(|_| client.get("/").text()).collect();
    assert_eq!(bodies, ["good"; 4]);
    let line = weir.wait_log("endpoint out of rotation");
    assert_eq!((line.field("reason"), line.field("cause")), (Some("probe_failed"), Some("probe_status")));
    let status = admin(&weir, "/status");
    for part in ["\"state\": \"probe_failed\"", "\"detail\": \"it answered 503; expected 200-299\""] {
        assert!(status.contains(part), "{status}");
    }
    let told = run_weir(weir.dir(), &["explain", "GET", "/", "-c", "weir.yaml", "--admin", &weir.admin()]);
    told.expect_code(0)
        .expect_text("probe    GET /healthz every 20ms")
        .expect_text("probe_failed (probe_status");
    assert!(admin(&weir, "/upstreams").contains("probe failed</span><small> <code>probe_status</code>"));
    // A reload that changes the upstream keeps the state; one that removes the probe ends it.
    weir.reload_with(&beside(one.address(), &good, &format!("{FAST}, keepalive: 59s"))).unwrap();
    assert!(!is_healthy(&weir, one.address()));
    well.store(true, Relaxed);
    eventually("it is back", || is_healthy(&weir, one.address()));
    well.store(false, Relaxed);
    eventually("it is out", || !is_healthy(&weir, one.address()));
    weir.reload_with(&beside(one.address(), &good, "balancer: round_robin")).unwrap();
    eventually("nobody asks any more", || is_healthy(&weir, one.address()));
}

#[test]
fn an_endpoint_is_probed_once_however_many_workers_there_are() {
    let good = Upstream::named("good");
    let probe = "health: { probe: { interval: 1h, kind: http } }";
    let yaml = format!("{}workers: 4\n", crate::support::config_for(&good, probe));
    let weir = Weir::start(&yaml);
    eventually("it was probed", || metric(&weir, &["weir_endpoint_probes_total"]) == Some(1.0));
    // Unchanged endpoints are not probed again.
    weir.reload_with(&format!("{yaml}expose_causes: false\n")).unwrap();
    weir.client().get("/").expect_body("good");
    assert_eq!(good.requests().len(), 2, "one probe and one request");
}

#[test]
fn readiness_can_wait_for_probes() {
    let (one, well) = switchable("one");
    well.store(false, Relaxed);
    let probe = "health: { probe: { interval: 20ms, timeout: 5s, healthy: 1, readyz: true } }";
    let weir = Weir::start(&crate::support::config_for(&one, probe));
    let host = weir.admin();
    let ready = || weir.admin_client().ask(format!("GET /readyz HTTP/1.1\r\nHost: {host}\r\n\r\n"));
    eventually("it was probed", || metric(&weir, &["weir_endpoint_probes_total", "failed"]) > Some(0.0));
    ready().expect_status(503);
    assert!(ready().text().contains("waiting for the probes of 1 upstream"));
    // Requests are served anyway: the only endpoint is used, healthy or not.
    weir.client().get("/").expect_body("one");
    assert_eq!(
        weir.wait_log("too few endpoints in rotation: failing ones are used too").field("upstream"),
        Some("up")
    );
    assert_eq!(metric(&weir, &["weir_upstream_panic"]), Some(1.0));
    well.store(true, Relaxed);
    eventually("it is ready", || ready().status == 200);
    well.store(false, Relaxed);
    eventually("it is out again", || !is_healthy(&weir, one.address()));
    ready().expect_status(200);
}

#[test]
fn grpc_endpoints_are_probed() {
    let serving = Arc::new(AtomicBool::new(true));
    let asked = Arc::clone(&serving);
    let origin = H2Origin::new(Options::default(), move |peer, stream, _| {
        let status = if asked.load(Relaxed) { 1 } else { 2 };
        peer.headers(stream, &[(":status", "200"), ("content-type", "application/grpc")], false);
        peer.data(stream, [0, 0, 0, 0, 2, 8, status], false);
        peer.headers(stream, &[("grpc-status", "0")], true);
    });
    let weir = Weir::start(&config(&format!(
        "endpoints: [{}], protocol: h2c, health: {{ probe: {{ kind: grpc, interval: 20ms, timeout: 5s, unhealthy: 1 }} }}",
        origin.address()
    )));
    eventually("it was probed", || metric(&weir, &["weir_endpoint_probes_total", "passed"]) > Some(1.0));
    serving.store(false, Relaxed);
    eventually("it is out", || !is_healthy(&weir, origin.address()));
    assert!(
        weir.wait_log("endpoint out of rotation")
            .field("detail")
            .is_some_and(|it| it.contains("NOT_SERVING"))
    );
    serving.store(true, Relaxed);
    eventually("it is back", || is_healthy(&weir, origin.address()));
}

#[test]
fn a_drain_goes_to_the_process_that_an_upgrade_starts() {
    let (one, two) = (Upstream::named("one"), Upstream::named("two"));
    let weir = Weir::start_installed(&beside(one.address(), &two, "balancer: round_robin"));
    endpoint(&weir, &["drain", "up", &one.address().to_string()]).expect_code(0);
    weir.upgrade().unwrap();
    let bodies: Vec<String> = (0..4).map(|_| weir.client().get("/").text()).collect();
    assert_eq!(bodies, ["two"; 4]);
    assert!(admin(&weir, "/status").contains("\"state\": \"draining\""));
    endpoint(&weir, &["in", "up", &one.address().to_string()]).expect_code(0);
    let bodies: Vec<String> = (0..4).map(|_| weir.client().get("/").text()).collect();
    assert!(bodies.contains(&"one".to_owned()), "{bodies:?}");
}

/// TLS settings that differ for probes; requests use the upstream's.
#[test]
fn probes_may_have_tls_of_their_own() {
    let authority = Authority::new();
    let tls = ServerTls::new(&authority.leaf(&["svc.test", "probe.test"]));
    let upstream = Upstream::fixed_tls(&tls, OK);
    let start = |ca: &Authority, own: &str| {
        Weir::start(&config(&format!(
            "endpoints: [{}], tls: {{ ca: {}, server_name: svc.test }}, \
             health: {{ probe: {{ interval: 1h, timeout: 1m, tls: {{ {own} }} }} }}",
            upstream.address(),
            ca.file().display()
        )))
    };
    let weir = start(&authority, "server_name: probe.test");
    let probe = upstream.take_request();
    assert_eq!(
        (&*probe.head.line, probe.server_name.as_deref()),
        ("GET /healthz HTTP/1.1", Some("probe.test"))
    );
    weir.client().get("/").expect_status(200);
    assert_eq!(upstream.take_request().server_name.as_deref(), Some("svc.test"));
    drop(weir);

    let weir = start(&Authority::new(), "verify: false");
    let probe = upstream.take_request();
    assert_eq!(
        (&*probe.head.line, probe.server_name.as_deref()),
        ("GET /healthz HTTP/1.1", Some("svc.test"))
    );
    weir.client().get("/").expect_cause(crate::cause::UPSTREAM_TLS);
}
