//! Clients that leave before their answer: what happens to the request, and what is recorded.

use weir_testkit::h2::code;
use weir_testkit::{Authority, Client, Conn, Tls, Upstream, Weir, eventually};

use crate::support::{GET, OK_BODY};

/// A POST without a body.
const POST: &str = "POST / HTTP/1.1\r\nHost: weir.test\r\nContent-Length: 0\r\n\r\n";

/// An upstream with these settings. The route `/finish` lets requests continue, `/cancel` cancels them, and the
/// others use the default.
fn start(upstream: &Upstream, settings: &str) -> Weir {
    Weir::start(&format!(
        "listeners: {{ web: {{ address: 127.0.0.1:0, protocols: [http1, h2] }} }}\nworkers: 1\n\
         access_log: {{ output: stdout }}\nupstreams: {{ up: {{ endpoints: [{}], {settings} }} }}\nroutes:\n  \
         finish: {{ match: {{ path: /finish }}, upstream: up, client_gone: finish }}\n  \
         cancel: {{ match: {{ path: /cancel }}, upstream: up, client_gone: cancel }}\n  \
         usual: {{ match: {{ path: \"/*\" }}, upstream: up }}\n",
        upstream.address()
    ))
}

fn ask(method: &str, path: &str) -> String {
    format!("{method} {path} HTTP/1.1\r\nHost: weir.test\r\nContent-Length: 0\r\n\r\n")
}

/// A request that its upstream has received but not answered.
fn under_way(weir: &Weir, upstream: &Upstream, request: &str) -> (Client, Conn) {
    let (client, conn) = weir.begin(upstream, request);
    (client, conn)
}

/// The log entry for this path.
fn logged(weir: &Weir, path: &str) -> serde_json::Value {
    let line = weir.wait_stdout(&format!("\"uri\":\"{path}\""));
    serde_json::from_str(&line).unwrap()
}

#[track_caller]
fn expect_gone(weir: &Weir, path: &str) {
    let line = logged(weir, path);
    assert_eq!(
        (line["status"].as_u64(), line["cause"].as_str()),
        (Some(499), Some("client_closed")),
        "{line}"
    );
}

#[test]
fn a_client_that_closes_cancels_its_get() {
    let upstream = Upstream::listen();
    let weir = start(&upstream, "");
    // On a connection that its core has not watched yet, and on one that it has.
    for (n, path) in ["/first", "/second"].into_iter().enumerate() {
        let mut client = weir.client();
        for _ in 0..n {
            client.send(GET);
            let mut conn = upstream.accept_request();
            conn.send("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
            client.read_response().expect_status(200);
        }
        client.send(ask("GET", path));
        let mut conn = upstream.accept_request();
        client.close();
        conn.expect_close();
        expect_gone(&weir, path);
    }
    let metrics = weir.admin_client().ask("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").text();
    assert!(metrics.contains("weir_causes_total{cause=\"client_closed\"} 2\n"), "{metrics}");
}

#[test]
fn a_client_of_tls_that_closes_cancels_its_get() {
    let (authority, upstream) = (Authority::new(), Upstream::listen());
    let weir = Weir::start(&format!(
        "listeners: {{ web: {{ address: 127.0.0.1:0, tls: {{ certificates: [ {} ] }} }} }}\naccess_log: {{ output: stdout }}\n\
         upstreams: {{ up: {{ endpoints: [{}] }} }}\n{}\n",
        authority.leaf(&["weir.test"]).yaml(),
        upstream.address(),
        crate::support::ALL_TO_UP
    ));
    for tls in [Tls::new(&authority, "weir.test"), Tls::new(&authority, "weir.test").only_1_2()] {
        let mut client = Client::connect_tls(weir.address("web"), &tls);
        client.send(GET);
        let mut conn = upstream.accept_request();
        client.half_close(); // close_notify, then FIN
        conn.expect_close();
    }
    expect_gone(&weir, "/");
}

#[test]
fn a_reset_cancels_whatever_the_method() {
    let upstream = Upstream::listen();
    let weir = start(&upstream, "");
    let (client, mut conn) = under_way(&weir, &upstream, POST);
    client.reset();
    conn.expect_close();
    expect_gone(&weir, "/");
}

/// The GET beside it shows when a client that has closed its side counts as gone.
#[test]
fn a_post_goes_on_when_its_client_closes_unless_it_is_to_be_canceled() {
    let upstream = Upstream::listen();
    let weir = start(&upstream, "");
    let (mut post, mut posted) = under_way(&weir, &upstream, &ask("POST", "/post"));
    let (cancel, mut canceled) = under_way(&weir, &upstream, &ask("POST", "/cancel"));
    let (get, mut got) = under_way(&weir, &upstream, &ask("GET", "/get"));
    post.half_close();
    cancel.close();
    get.close();
    got.expect_close();
    canceled.expect_close();
    expect_gone(&weir, "/cancel");
    // It has only closed its side, and gets its answer; the log cannot know.
    posted.send(OK_BODY);
    post.read_response().expect_status(200).expect_body("ok");
    expect_gone(&weir, "/post");
}

#[test]
fn a_request_that_is_to_finish_does_however_its_client_leaves() {
    let upstream = Upstream::listen();
    let weir = start(&upstream, "");
    let (reset, mut of_reset) = under_way(&weir, &upstream, &ask("POST", "/finish"));
    let (closed, mut of_closed) = under_way(&weir, &upstream, &ask("GET", "/finish"));
    let mut h2 = weir.h2();
    let stream = h2.get("/finish");
    let mut of_stream = upstream.accept_request();
    let (get, mut got) = under_way(&weir, &upstream, &ask("GET", "/get"));
    reset.reset();
    closed.close();
    h2.reset(stream, code::CANCEL);
    get.close();
    got.expect_close();
    let active = || {
        let metrics = weir.admin_client().ask("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").text();
        let series = "weir_upstream_connections_open{upstream=\"up\"} ";
        metrics.lines().find_map(|line| line.strip_prefix(series)).unwrap().to_owned()
    };
    eventually("each of the three counts until it ends", || active() == "3"); // the canceled one no longer
    for conn in [&mut of_reset, &mut of_closed, &mut of_stream] {
        conn.send("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nhe");
        conn.send("re");
    }
    eventually("all three are told", || {
        let lines = weir.stdout();
        let told =
            lines.lines().filter(|line| line.contains("\"/finish\"") && line.contains("client_closed"));
        told.filter(|line| line.contains("\"status\":499")).count() == 3
    });
}

#[test]
fn a_request_that_is_to_finish_has_no_longer_than_any_other() {
    let upstream = Upstream::listen();
    let weir = start(&upstream, "client_gone: finish, timeouts: { response: 100ms }");
    let (client, mut conn) = under_way(&weir, &upstream, &ask("GET", "/any"));
    client.reset();
    conn.expect_close();
    assert_eq!(logged(&weir, "/any")["cause"], "response_timeout");
}

#[test]
fn a_body_that_breaks_off_cancels_whatever_is_said() {
    let upstream = Upstream::listen();
    let weir = start(&upstream, "");
    let mut client = weir.client();
    client.send("POST /finish HTTP/1.1\r\nHost: weir.test\r\nContent-Length: 10\r\n\r\nbody");
    let mut conn = upstream.accept();
    conn.read_head();
    conn.read_until("body");
    client.half_close();
    conn.expect_close();
    expect_gone(&weir, "/finish");
}

#[test]
fn requests_before_the_last_are_answered_when_their_client_has_closed() {
    let upstream = Upstream::listen();
    let weir = start(&upstream, "");
    let mut client = weir.client();
    client.send([ask("GET", "/1"), ask("GET", "/2")].concat());
    client.half_close();
    let mut conn = upstream.accept_request();
    let (get, mut got) = under_way(&weir, &upstream, &ask("GET", "/get"));
    get.close();
    got.expect_close();
    conn.send(OK_BODY);
    client.read_response().expect_body("ok");
    assert_eq!(conn.read_request().head.line, "GET /2 HTTP/1.1");
    conn.send(OK_BODY); // within a second
    client.read_response().expect_body("ok");
    assert_eq!(logged(&weir, "/2")["status"], 200);
}

#[test]
fn a_silent_answer_ends_with_its_client() {
    let upstream = Upstream::listen();
    let weir = start(&upstream, "");
    let (mut client, mut conn) = under_way(&weir, &upstream, &ask("GET", "/events"));
    conn.send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n6\r\ndata\n\n\r\n");
    client.read_until("data\n\n");
    client.half_close();
    conn.expect_close();
    let line = logged(&weir, "/events");
    assert_eq!(
        (line["status"].as_u64(), line["cause"].as_str()),
        (Some(200), Some("client_closed")),
        "{line}"
    );
}
