//! `concurrency` and `timeout`: slots are taken, awaited and released, however an exchange ends.

use weir_testkit::{Client, Conn, Upstream, Weir, eventually};

use crate::cause::{
    CLIENT_CONCURRENCY, CONCURRENCY_LIMIT, CONCURRENCY_TIMEOUT, EXCHANGE_TIMEOUT, RESPONSE_TIMEOUT,
};
use crate::support::{GET, WEB};
use crate::upgrade::tunnel_to;

/// An answer that closes, so that the next request uses a new connection, whatever its core.
const LAST: &str = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";

#[track_caller]
fn start(upstream: &Upstream, filters: &str) -> Weir {
    Weir::start(&format!(
        "{WEB}\nadmin: {{ address: 127.0.0.1:0 }}\nworkers: 2\nupstreams: {{ up: {{ endpoints: [{}] }} }}\nroutes:\n  all: \
         {{ match: {{ path: \"/*\" }}, filters: [ {filters} ], upstream: up }}\n",
        upstream.address()
    ))
}

/// A request that its upstream has received but not answered.
fn under_way(weir: &Weir, upstream: &Upstream) -> (Client, Conn) {
    let mut client = weir.client();
    client.send(GET);
    let mut conn = upstream.accept();
    conn.read_head();
    (client, conn)
}

/// Retries until a request reaches the upstream: events on another connection are noticed with a delay.
#[track_caller]
fn reaches(weir: &Weir, upstream: &Upstream) {
    let mut clients = Vec::new();
    eventually("a place is free", || {
        let mut client = weir.client();
        client.send(GET);
        clients.push(client);
        upstream.try_accept().is_some()
    });
}

#[test]
fn one_at_a_time_one_in_the_queue_and_the_next_refused() {
    let upstream = Upstream::listen();
    let weir = start(&upstream, "{ concurrency: { requests: 1, queue: 1, wait: 1h } }");
    let (mut first, mut conn) = under_way(&weir, &upstream);
    std::thread::scope(|scope| {
        let others: Vec<_> = (0..3).map(|_| scope.spawn(|| weir.client().ask(GET))).collect();
        eventually("two of them are refused", || {
            let metrics = weir.admin_client().ask("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").text();
            metrics.contains("weir_causes_total{cause=\"concurrency_limit\"} 2\n")
        });
        upstream.expect_no_connection();
        conn.send(LAST);
        first.read_response().expect_status(200);
        let mut conn = upstream.accept();
        conn.read_head();
        conn.send(LAST);
        let answers: Vec<_> = others.into_iter().map(|other| other.join().unwrap()).collect();
        let refused: Vec<_> = answers.iter().filter(|answer| answer.status != 200).collect();
        assert_eq!(refused.len(), 2);
        refused[0].expect_cause(CONCURRENCY_LIMIT).expect_header("retry-after", "1");
    });
}

#[test]
fn who_waits_too_long_is_refused() {
    let upstream = Upstream::listen();
    let weir = start(&upstream, "{ concurrency: { requests: 1, queue: 1, wait: 20ms } }");
    let _held = under_way(&weir, &upstream);
    weir.client().ask(GET).expect_cause(CONCURRENCY_TIMEOUT);
}

#[test]
fn each_client_has_its_own_places() {
    let upstream = Upstream::listen();
    let weir = start(&upstream, "{ concurrency: { requests: 1, by: \"header:x-tenant\" } }");
    let ask = |tenant: &str| format!("GET / HTTP/1.1\r\nHost: weir.test\r\nX-Tenant: {tenant}\r\n\r\n");
    let mut first = weir.client();
    first.send(ask("a"));
    let _conn = upstream.accept();
    weir.client().ask(ask("a")).expect_cause(CLIENT_CONCURRENCY);
    let mut other = weir.client();
    other.send(ask("b"));
    upstream.accept().read_head();
}

#[test]
fn a_client_that_leaves_gives_its_place_back() {
    let upstream = Upstream::listen();
    let weir = start(&upstream, "{ concurrency: { requests: 1 } }");
    let (client, _conn) = under_way(&weir, &upstream);
    weir.client().ask(GET).expect_cause(CONCURRENCY_LIMIT);
    client.reset();
    reaches(&weir, &upstream);
}

/// A closed connection looks the same as a half-closed one, and others queue behind it.
#[test]
fn a_client_that_sends_nothing_more_leaves_the_queue() {
    let upstream = Upstream::listen();
    let weir = start(&upstream, "{ concurrency: { requests: 1, queue: 1, wait: 1h } }");
    let mut first = weir.client();
    first.send("POST / HTTP/1.1\r\nHost: weir.test\r\nContent-Length: 0\r\n\r\n");
    let mut conn = upstream.accept();
    conn.read_head();
    first.half_close(); // a POST that has a slot keeps it, and its client may still read
    let mut second = weir.client();
    second.send(GET);
    second.half_close();
    eventually("the second has left the queue", || {
        let metrics = weir.admin_client().ask("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").text();
        metrics.contains("weir_causes_total{cause=\"client_closed\"} 1\n")
    });
    let mut third = weir.client();
    third.send(GET);
    conn.send(LAST);
    first.read_response().expect_status(200);
    let mut conn = upstream.accept();
    conn.read_head();
    conn.send(LAST);
    third.read_response().expect_status(200);
}

#[test]
fn a_tunnel_holds_its_place_until_it_ends() {
    let upstream = Upstream::listen();
    let weir = start(&upstream, "{ concurrency: { requests: 1 } }");
    let (client, conn) = tunnel_to(&weir, &upstream, "/ws");
    weir.client().ask(GET).expect_cause(CONCURRENCY_LIMIT);
    drop((client, conn));
    reaches(&weir, &upstream);
}

#[test]
fn a_tunnel_holds_no_place_of_an_adaptive_limit() {
    let upstream = Upstream::listen();
    let weir = start(&upstream, "{ concurrency: { adaptive: true, requests: 1 } }");
    let _tunnel = tunnel_to(&weir, &upstream, "/ws");
    let _other = under_way(&weir, &upstream);
    weir.client().ask(GET).expect_cause(CONCURRENCY_LIMIT);
}

#[test]
fn the_filter_timeout_shortens_what_the_upstream_allows() {
    let upstream = Upstream::listen();
    for (settings, cause) in [
        ("exchange: 30ms", EXCHANGE_TIMEOUT),
        ("response: 30ms", RESPONSE_TIMEOUT),
        ("exchange: 30ms, response: 1h", EXCHANGE_TIMEOUT),
    ] {
        let weir = start(&upstream, &format!("{{ timeout: {{ {settings} }} }}"));
        weir.client().ask(GET).expect_cause(cause);
    }
}

#[test]
fn a_wait_in_the_queue_ends_with_the_exchange() {
    let upstream = Upstream::listen();
    let filters = "{ timeout: { exchange: 100ms } }, { concurrency: { requests: 1, queue: 1, wait: 1h, by: \"{path}\" } }";
    let weir = start(&upstream, filters);
    let held = tunnel_to(&weir, &upstream, "/");
    weir.client().ask(GET).expect_cause(EXCHANGE_TIMEOUT);
    drop(held);
}
