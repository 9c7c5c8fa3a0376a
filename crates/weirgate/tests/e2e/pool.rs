//! Connections to upstreams: reuse, races, refusals, and retries.

use weir_testkit::{Client, Conn, Upstream, Weir, eventually, refusing_address, table};

use crate::cause::{CONNECT_REFUSED, NO_ENDPOINT, NO_HEALTHY_ENDPOINT, UPSTREAM_CLOSED, UPSTREAM_RESET};
use crate::support::{GET, OK, OK_BODY, config, weir_with};

const POST: &str = "POST /order HTTP/1.1\r\nHost: weir.test\r\nContent-Length: 4\r\n\r\nbody";

// === Reuse ===

#[test]
fn clients_share_connections() {
    let upstream = Upstream::fixed(OK);
    let weir = Weir::in_front_of(&upstream);
    for _ in 0..5 {
        weir.client().get("/").expect_status(200);
    }
    assert_eq!(upstream.connections(), 1);
}

#[test]
fn a_busy_connection_is_not_shared() {
    let upstream = Upstream::listen();
    let weir = Weir::in_front_of(&upstream);
    let (mut one, mut two) = (weir.client(), weir.client());
    one.send(GET);
    let mut first = upstream.accept_request();
    two.send(GET);
    let mut second = upstream.accept_request();
    second.send("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\ntwo");
    two.read_response().expect_body("two");
    first.send("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\none");
    one.read_response().expect_body("one");
}

#[test]
fn an_upstream_that_says_close_is_not_reused() {
    let upstream = Upstream::fixed("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
    let weir = Weir::in_front_of(&upstream);
    let mut client = weir.client();
    client.get("/").expect_status(200);
    client.get("/").expect_status(200);
    assert_eq!(upstream.connections(), 2);
}

#[test]
fn no_reuse_where_keepalive_is_off() {
    let upstream = Upstream::fixed(OK);
    let weir = weir_with(&upstream, "keepalive: 0s");
    let mut client = weir.client();
    client.get("/").expect_status(200);
    client.get("/").expect_status(200);
    assert_eq!(upstream.connections(), 2);
}

#[test]
fn an_idle_connection_is_closed_in_time() {
    let upstream = Upstream::listen();
    let weir = weir_with(&upstream, "keepalive: 100ms");
    let (mut client, mut conn) = weir.begin(&upstream, GET);
    conn.send(OK);
    client.read_response();
    conn.expect_eof();
}

#[test]
fn a_connection_that_the_upstream_closed_is_forgotten() {
    let upstream = Upstream::listen();
    let weir = Weir::in_front_of(&upstream);
    let (mut client, mut conn) = weir.begin(&upstream, POST);
    conn.send(OK);
    client.read_response().expect_status(200);
    conn.half_close();
    conn.expect_eof();
    // A POST cannot be retried: it must find a fresh connection immediately.
    client.send(POST);
    let mut conn = upstream.accept_request();
    conn.send(OK_BODY);
    client.read_response().expect_body("ok");
}

/// A connection is checked before use, even if it was good until this moment and nobody noticed its end.
#[test]
fn a_connection_that_is_no_longer_good_is_not_taken() {
    type End = fn(&mut Conn);
    let ends: [(&str, End); 3] = [
        ("closed", |conn| conn.half_close()),
        ("an answer to nothing", |conn| conn.send("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil")),
        ("a byte", |conn| conn.send("\n")),
    ];
    table(
        &ends,
        |(name, _)| *name,
        |(_, end)| {
            let upstream = Upstream::listen();
            let weir = Weir::in_front_of(&upstream);
            let (mut client, mut conn) = weir.begin(&upstream, GET);
            conn.send(OK);
            client.read_response().expect_status(200);
            end(&mut conn);
            client.send(POST); // which cannot be tried again
            let mut fresh = upstream.accept_request();
            fresh.send(OK_BODY);
            client.read_response().expect_status(200).expect_body("ok");
        },
    );
}

#[test]
fn a_client_that_leaves_spoils_its_connection_only() {
    let upstream = Upstream::listen();
    let weir = Weir::in_front_of(&upstream);
    let (mut client, mut conn) = weir.begin(&upstream, GET);
    conn.send("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf");
    client.read_until("half");
    client.reset();
    conn.expect_close();
    let (mut client, mut conn) = weir.begin(&upstream, GET);
    conn.send(OK_BODY);
    client.read_response().expect_body("ok");
}

// === The keep-alive race ===

/// Uses a connection once, then lets the upstream close it just as the next request arrives.
#[track_caller]
fn raced(request: &str) -> (Weir, Upstream, Client) {
    let upstream = Upstream::listen();
    let weir = Weir::in_front_of(&upstream);
    let (mut client, mut conn) = weir.begin(&upstream, GET);
    conn.send(OK);
    client.read_response().expect_status(200);
    client.send(request);
    conn.read_request();
    conn.close();
    (weir, upstream, client)
}

#[test]
fn a_get_that_lost_the_race_is_sent_again() {
    let (_weir, upstream, mut client) = raced(GET);
    let mut conn = upstream.accept_request();
    conn.send(OK_BODY);
    client.read_response().expect_status(200).expect_body("ok");
}

#[test]
fn a_put_without_a_body_is_sent_again() {
    let (_weir, upstream, mut client) =
        raced("PUT / HTTP/1.1\r\nHost: weir.test\r\nContent-Length: 0\r\n\r\n");
    let mut conn = upstream.accept_request();
    conn.send(OK_BODY);
    client.read_response().expect_body("ok");
}

#[test]
fn a_post_is_never_sent_twice() {
    let (weir, upstream, mut client) = raced(POST);
    client.read_response().expect_cause(UPSTREAM_CLOSED);
    drop(weir);
    upstream.expect_no_connection();
    let posts = upstream.requests().iter().filter(|request| request.head.line.starts_with("POST")).count();
    assert_eq!(posts, 1);
}

#[test]
fn a_get_on_a_fresh_connection_is_not_sent_again() {
    let upstream = Upstream::listen();
    let weir = Weir::in_front_of(&upstream);
    let (mut client, conn) = weir.begin(&upstream, GET);
    conn.close();
    client.read_response().expect_cause(UPSTREAM_CLOSED);
    upstream.expect_no_connection();
}

#[test]
fn a_get_is_not_sent_again_once_an_answer_began() {
    let upstream = Upstream::listen();
    let weir = Weir::in_front_of(&upstream);
    let (mut client, mut conn) = weir.begin(&upstream, GET);
    conn.send(OK);
    client.read_response();
    client.send(GET);
    conn.read_request();
    conn.send("HTTP/1.1 2");
    conn.close();
    let response = client.read_response();
    assert_eq!(response.status, 502);
    upstream.expect_no_connection();
}

#[test]
fn a_reset_is_told_from_a_close() {
    let upstream = Upstream::listen();
    let weir = Weir::in_front_of(&upstream);
    let (mut client, conn) = weir.begin(&upstream, GET);
    conn.reset();
    client.read_response().expect_cause(UPSTREAM_RESET);
}

// === Refused connects ===

#[test]
fn a_refused_connect_is_a_502() {
    let (_closed, address) = refusing_address();
    let weir = Weir::start(&config(&format!("endpoints: [{address}]")));
    let mut client = weir.client();
    client.get("/").expect_cause(CONNECT_REFUSED);
    // The client's connection is fine.
    assert!([CONNECT_REFUSED.0, NO_HEALTHY_ENDPOINT.0].contains(&client.get("/").status));
}

#[test]
fn a_refused_connect_goes_to_another_endpoint() {
    let (_closed, refusing) = refusing_address();
    let upstream = Upstream::named("here");
    let address = upstream.address();
    for balancer in ["p2c", "round_robin"] {
        let weir = Weir::start(&config(&format!("endpoints: [{refusing}, {address}], balancer: {balancer}")));
        let mut client = weir.client();
        for _ in 0..8 {
            client.ask(POST).expect_status(200).expect_body("here");
        }
    }
}

#[test]
fn a_name_that_does_not_resolve_is_no_reason_not_to_start() {
    let weir = Weir::start(&config("endpoints: [ \"nothing.invalid:80\" ]"));
    weir.client().get("/").expect_cause(NO_ENDPOINT);
}

#[test]
fn a_name_is_each_of_its_addresses() {
    let upstream = Upstream::named("here");
    let weir = Weir::start(&config(&format!("endpoints: [ \"localhost:{}\" ]", upstream.address().port())));
    // ::1 may be among them, and nobody listens there.
    for _ in 0..4 {
        weir.client().get("/").expect_body("here");
    }
}

// === Age ===

#[test]
fn a_connection_does_not_outlive_its_age() {
    let upstream = Upstream::fixed(OK);
    let weir = weir_with(&upstream, "max_age: 50ms");
    let mut client = weir.client();
    eventually("an old connection is replaced", || {
        client.get("/").expect_status(200);
        upstream.connections() > 1
    });
}
