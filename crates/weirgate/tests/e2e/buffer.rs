//! `buffer`: upstreams meet no slow clients, in either direction.

mod overflow;

use tempfile::TempDir;
use weir_testkit::h2::{H2, H2Origin, Options, setting};
use weir_testkit::{Client, Upstream, Weir, decoded, eventually};

use crate::cause::{BODY_TOO_LARGE, BUFFER_DISK, BUFFER_MEMORY};
use crate::support::{GET, OK, OK_BODY};

const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;

/// More than the sockets of a client that does not read take.
const LONG: usize = 16 * MIB;

/// A gateway with these filters in front of an upstream.
#[track_caller]
fn start(upstream: &str, filters: &str) -> Weir {
    Weir::start(&format!(
        "listeners: {{ web: {{ address: 127.0.0.1:0, protocols: [http1, h2] }} }}\nexpose_causes: true\n\
         admin: {{ address: 127.0.0.1:0 }}\nstores: {{ pages: {{ memory: 64MiB }} }}\nupstreams: {{ up: {upstream} }}\n\
         routes: {{ all: {{ match: {{ path: \"/*\" }}, filters: [ {filters} ], upstream: up }} }}\n",
    ))
}

#[track_caller]
fn buffering(upstream: &Upstream, filters: &str) -> Weir {
    start(&format!("{{ endpoints: [{}] }}", upstream.address()), filters)
}

const REQUESTS: &str = "{ buffer: { request: 64KiB } }";
const RESPONSES: &str = "{ buffer: { response: 32MiB } }";

/// A figure of the filter.
fn figure(weir: &Weir, name: &str) -> u64 {
    let metrics = weir.admin_client().ask("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").text();
    let line = metrics.lines().find(|line| line.starts_with(&format!("weir_buffer_{name}{{")));
    line.and_then(|line| line.rsplit(' ').next()).map_or(0, |value| value.parse().unwrap())
}

fn held(weir: &Weir) -> u64 {
    figure(weir, "memory_bytes")
}

// === Requests ===

#[test]
fn the_upstream_is_asked_when_all_has_arrived() {
    let upstream = Upstream::fixed(OK_BODY);
    let weir = buffering(&upstream, REQUESTS);
    let mut client = weir.client();
    client.send("POST /a HTTP/1.1\r\nHost: weir.test\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n");
    eventually("the piece is held", || held(&weir) == 6);
    client.send("2\r\nde\r\n0\r\nX-Sum: 1\r\n\r\nGET /next HTTP/1.1\r\nHost: weir.test\r\n\r\n");
    client.read_response().expect_status(200).expect_body("ok");
    client.read_response().expect_status(200);
    let requests = upstream.requests();
    assert_eq!(requests[0].head.all("content-length"), ["5"]);
    assert_eq!(requests[0].head.header("transfer-encoding"), None);
    assert_eq!(requests[0].body.bytes, b"abcde");
    assert_eq!(requests[1].head.line, "GET /next HTTP/1.1", "what was pipelined follows");
    eventually("all is freed", || held(&weir) == 0);

    let mut h2 = weir.h2();
    let stream = h2.post("/h2");
    h2.data(stream, "abc", false);
    eventually("the piece is held", || held(&weir) == 6);
    assert_eq!(upstream.requests().len(), 2);
    h2.data(stream, "de", true);
    h2.message(stream).expect_status(200).expect_body("ok");
    let request = &upstream.requests()[2];
    assert_eq!(
        (request.head.all("content-length"), request.body.bytes.as_slice()),
        (vec!["5"], &b"abcde"[..])
    );
}

#[test]
fn a_client_that_waits_to_be_asked() {
    let upstream = Upstream::fixed(OK_BODY);
    let weir = buffering(&upstream, REQUESTS);
    let mut client = weir.client();
    client.send("POST / HTTP/1.1\r\nHost: weir.test\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n");
    client.expect("HTTP/1.1 100 Continue\r\n\r\n");
    client.send("abcde");
    client.read_response().expect_status(200);
    let request = upstream.take_request();
    assert_eq!((request.head.header("expect"), request.body.bytes.as_slice()), (None, &b"abcde"[..]));
    let mut client = weir.client();
    client
        .send("POST / HTTP/1.1\r\nHost: weir.test\r\nExpect: 100-continue\r\nContent-Length: 65537\r\n\r\n");
    client.read_response().expect_cause(BODY_TOO_LARGE); // and no 100 before it
}

#[test]
fn bodies_that_are_too_long() {
    let upstream = Upstream::fixed(OK_BODY);
    let page = "{ errors: { 413: { body: \"at most 64 KiB\" } } }";
    let weir = buffering(&upstream, &format!("{page}, {REQUESTS}"));
    let body = "x".repeat(64 * KIB);
    let head = "POST / HTTP/1.1\r\nHost: weir.test\r\n";
    for (more, status) in [("", 200), ("y", 413)] {
        let length = body.len() + more.len();
        let response = weir.client().ask(format!("{head}Content-Length: {length}\r\n\r\n{body}{more}"));
        response.expect_status(status);
        let response = weir.client().ask(format!(
            "{head}Transfer-Encoding: chunked\r\n\r\n{:x}\r\n{body}{more}\r\n0\r\n\r\n",
            length
        ));
        response.expect_status(status);
        if status == 413 {
            response.expect_cause(BODY_TOO_LARGE).expect_body("at most 64 KiB");
        }
    }
    let mut h2 = weir.h2();
    let stream = h2.post("/");
    h2.body(stream, &[b'x'; 65 * KIB], false);
    let refused = h2.wait(stream, "a refusal", |message| message.body == b"at most 64 KiB");
    refused.expect_header("x-weir-cause", BODY_TOO_LARGE.1);
    assert_eq!(upstream.requests().len(), 2);
    eventually("all is freed", || held(&weir) == 0);
}

#[test]
fn a_client_that_leaves_meanwhile() {
    let upstream = Upstream::listen();
    let weir = buffering(&upstream, REQUESTS);
    for framing in ["Content-Length: 5\r\n\r\nabc", "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"] {
        let mut client = weir.client();
        client.send(format!("POST / HTTP/1.1\r\nHost: weir.test\r\n{framing}"));
        eventually("the piece is held", || held(&weir) == 6);
        client.reset();
        eventually("it is freed", || held(&weir) == 0);
    }
    let mut h2 = weir.h2();
    let stream = h2.post("/");
    h2.data(stream, "abc", false);
    eventually("the piece is held", || held(&weir) == 6);
    h2.reset(stream, weir_testkit::h2::code::CANCEL);
    eventually("it is freed", || held(&weir) == 0);
    upstream.expect_no_connection();
}

#[test]
fn memory_is_bounded_over_all_clients() {
    let upstream = Upstream::fixed(OK_BODY);
    let weir = buffering(&upstream, "{ buffer: { request: 4KiB, memory: 8KiB } }");
    let mut first = weir.client();
    first.send(format!(
        "POST / HTTP/1.1\r\nHost: weir.test\r\nContent-Length: 4096\r\n\r\n{}",
        "x".repeat(4095)
    ));
    eventually("it is held", || held(&weir) == 8190);
    let response = weir.client().ask("POST / HTTP/1.1\r\nHost: weir.test\r\nContent-Length: 2\r\n\r\nab");
    response.expect_cause(BUFFER_MEMORY);
    assert_eq!((figure(&weir, "refused_total"), held(&weir)), (1, 8190));
    first.send("x");
    first.read_response().expect_status(200);
    weir.client().ask("POST / HTTP/1.1\r\nHost: weir.test\r\nContent-Length: 2\r\n\r\nab").expect_status(200);
}

#[test]
fn every_attempt_sends_it() {
    let busy = "HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n";
    let (bad, good, next) = (Upstream::fixed(busy), Upstream::fixed(OK_BODY), Upstream::fixed(OK));
    let weir = Weir::start(&format!(
        "listeners: {{ web: {{ address: 127.0.0.1:0 }} }}\nupstreams:\n  next: {{ endpoints: [{}] }}\n  up: {{ endpoints: [{}, {}], \
         balancer: round_robin, retry: {{ attempts: 2, on: [ 503 ], methods: all, body: 0B }} }}\nroutes: {{ all: {{ match: {{ path: \"/*\" }}, \
         filters: [ {REQUESTS}, {{ mirror: {{ upstream: next }} }} ], upstream: up }} }}\n",
        next.address(),
        bad.address(),
        good.address(),
    ));
    let body = "x".repeat(50_000);
    let mut client = weir.client();
    for _ in 0..2 {
        let request = format!(
            "POST / HTTP/1.1\r\nHost: weir.test\r\nTransfer-Encoding: chunked\r\n\r\nc350\r\n{body}\r\n0\r\n\r\n"
        );
        client.ask(request).expect_status(200);
    }
    // The mirror's second may still be on its way.
    for (upstream, count) in [(&bad, 1), (&good, 2), (&next, 2)] {
        let requests = upstream.wait_requests(count);
        assert!(requests.iter().all(|request| request.body.bytes == body.as_bytes()));
    }
    assert_eq!(good.requests().len(), 2);
    assert_eq!(next.requests().len(), 2, "the mirror sees each once");
}

#[test]
fn a_hedge_sends_it_too() {
    let (a, b) = (Upstream::listen(), Upstream::listen());
    let up = format!(
        "{{ endpoints: [{}, {}], hedge: {{ after: 10ms, budget: 100% }} }}",
        a.address(),
        b.address()
    );
    let weir = start(&up, REQUESTS);
    let mut client = weir.client();
    client
        .send("PUT / HTTP/1.1\r\nHost: weir.test\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n");
    let (mut first, mut second) = (a.accept(), b.accept());
    for conn in [&mut first, &mut second] {
        assert_eq!(conn.read_request().body.bytes, b"abc");
    }
    second.send(OK_BODY);
    client.read_response().expect_status(200);
}

#[test]
fn streams_pass() {
    let upstream = Upstream::listen();
    let weir = buffering(&upstream, "{ buffer: { request: 1KiB, response: 1KiB } }");
    let mut client = weir.client();
    client.send("GET /ws HTTP/1.1\r\nHost: weir.test\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n");
    let mut conn = upstream.accept();
    conn.read_request();
    conn.send("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n");
    client.read_head();
    for _ in 0..3 {
        client.send("ping");
        conn.expect("ping");
        conn.send("pong");
        client.expect("pong");
    }

    let origin = H2Origin::new(Options::default(), |h2, stream, request| {
        let fields = [(":status", "200"), ("content-type", "application/grpc")];
        h2.answer(stream, &fields, request.body);
    });
    let weir = start(
        &format!("{{ endpoints: [{}], protocol: h2c }}", origin.address()),
        "{ buffer: { request: 1KiB } }",
    );
    let mut h2 = weir.h2();
    let fields = [
        (":method", "POST"),
        (":scheme", "http"),
        (":authority", "weir.test"),
        (":path", "/a.B/C"),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
    ];
    let stream = h2.request(&fields, false);
    h2.body(stream, &[b'x'; 10_000], true);
    h2.message(stream).expect_status(200).expect_body([b'x'; 10_000]);
}

// === Disk ===

/// A filter that holds 64 KiB in memory and 4 MiB in this folder.
fn to_disk(folder: &TempDir, more: &str) -> String {
    format!("{{ buffer: {{ request: 64KiB, disk: 4MiB, folder: {}{more} }} }}", folder.path().display())
}

fn chunked(body: &str) -> String {
    let (first, rest) = body.split_at(body.len() / 3);
    format!(
        "POST / HTTP/1.1\r\nHost: weir.test\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n{first}\r\n{:x}\r\n{rest}\r\n0\r\n\r\n",
        first.len(),
        rest.len()
    )
}

/// Bytes whose order shows.
fn numbered(length: usize) -> String {
    (0..length / 8).map(|number| format!("{number:08x}")).collect()
}

#[test]
fn a_long_body_goes_through_a_file() {
    let (upstream, folder) = (Upstream::fixed(OK_BODY), TempDir::new().unwrap());
    let weir = buffering(&upstream, &to_disk(&folder, ""));
    let mut client = weir.client();
    for length in [64 * KIB, 64 * KIB + 8, 700_000, 4 * MIB] {
        let body = numbered(length);
        client.ask(chunked(&body)).expect_status(200);
        let request = upstream.take_request();
        assert_eq!(request.head.all("content-length"), [length.to_string()]);
        assert!(request.body.bytes == body.as_bytes(), "{length}");
        let head = format!("POST / HTTP/1.1\r\nHost: weir.test\r\nContent-Length: {length}\r\n\r\n");
        client.send(format!("{head}{body}GET /next HTTP/1.1\r\nHost: weir.test\r\n\r\n"));
        client.read_response().expect_status(200);
        client.read_response().expect_status(200);
        let requests = upstream.requests();
        assert!(requests[0].body.bytes == body.as_bytes(), "{length}");
        assert_eq!(requests[1].head.line, "GET /next HTTP/1.1", "what was pipelined follows");
        upstream.forget();
    }
    for long in [
        chunked(&numbered(4 * MIB + 8)),
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4194305\r\n\r\n".into(),
    ] {
        weir.client().ask(long).expect_cause(BODY_TOO_LARGE);
    }
    let mut h2 = weir.h2();
    let stream = h2.post("/h2");
    h2.body(stream, numbered(700_000).as_bytes(), true);
    h2.message(stream).expect_status(200);
    assert!(upstream.take_request().body.bytes == numbered(700_000).as_bytes());
    eventually("all is freed", || (held(&weir), figure(&weir, "disk_bytes")) == (0, 0));
}

/// A client may leave a file behind only as long as it is there; nobody else can read it.
#[test]
fn a_file_without_a_name() {
    let (upstream, folder) = (Upstream::listen(), TempDir::new().unwrap());
    let weir = buffering(&upstream, &to_disk(&folder, ""));
    let mut client = weir.client();
    let body = numbered(MIB);
    client.send(format!("POST / HTTP/1.1\r\nHost: weir.test\r\nContent-Length: 2097152\r\n\r\n{body}"));
    eventually("it is on disk", || figure(&weir, "disk_bytes") > 512 * KIB as u64);
    assert!(held(&weir) <= 64 * KIB as u64);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    client.reset();
    eventually("it is freed", || (held(&weir), figure(&weir, "disk_bytes")) == (0, 0));
    upstream.expect_no_connection();
}

#[test]
fn the_disk_is_bounded_and_may_fail() {
    let (upstream, folder) = (Upstream::fixed(OK_BODY), TempDir::new().unwrap());
    let weir = buffering(&upstream, &to_disk(&folder, ", disk_total: 4MiB"));
    let mut slow = weir.client();
    let body = numbered(3 * MIB);
    slow.send(format!("POST / HTTP/1.1\r\nHost: weir.test\r\nContent-Length: 3145729\r\n\r\n{body}"));
    eventually("it is on disk", || figure(&weir, "disk_bytes") >= 2 * MIB as u64);
    weir.client().ask(chunked(&numbered(3 * MIB))).expect_cause(BUFFER_DISK);
    assert_eq!(figure(&weir, "disk_failed_total"), 1);
    slow.send("x");
    slow.read_response().expect_status(200);
    std::fs::remove_dir(folder.path()).unwrap();
    weir.client().ask(chunked(&numbered(MIB))).expect_cause(BUFFER_DISK);
    weir.client().ask(chunked("short")).expect_status(200);
    assert_eq!(figure(&weir, "disk_failed_total"), 2);
    eventually("all is freed", || (held(&weir), figure(&weir, "disk_bytes")) == (0, 0));
}

#[test]
fn every_attempt_sends_it_from_the_file() {
    let busy = "HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n";
    let (bad, good, folder) = (Upstream::fixed(busy), Upstream::fixed(OK_BODY), TempDir::new().unwrap());
    let up = format!(
        "{{ endpoints: [{}, {}], balancer: round_robin, hedge: {{ after: 1ms, budget: 100% }}, \
         retry: {{ attempts: 2, on: [ 503 ], methods: all, body: 0B, budget: 100% }} }}",
        bad.address(),
        good.address()
    );
    let weir = start(&up, &to_disk(&folder, ""));
    let body = numbered(MIB);
    let mut client = weir.client();
    for _ in 0..4 {
        client.ask(chunked(&body)).expect_status(200);
        client.ask(chunked(&body).replace("POST", "PUT")).expect_status(200);
    }
    let requests = [bad.requests(), good.requests()].concat();
    assert!(requests.iter().all(|request| request.body.bytes == body.as_bytes()));
    assert!(!bad.requests().is_empty());
}

/// Filters behind it see the pieces; one that needs the body whole reads it into memory.
#[test]
fn filters_behind_a_file() {
    let (upstream, other, folder) = (Upstream::fixed(OK_BODY), Upstream::fixed(OK), TempDir::new().unwrap());
    let up =
        format!("{{ endpoints: [{}] }}, other: {{ endpoints: [{}] }}", upstream.address(), other.address());
    let body = numbered(MIB);
    for (filters, status) in [
        ("{ mirror: { upstream: other, body: 2MiB } }", 200),
        ("{ body_limit: { max: 2MiB } }", 200),
        ("{ body_limit: { max: 1000KiB } }", 413),
        ("{ forward_auth: { upstream: other, body: 2MiB } }", 200),
        ("{ forward_auth: { upstream: other, body: 1000KiB } }", 413),
    ] {
        let weir = start(&up, &format!("{}, {filters}", to_disk(&folder, "")));
        weir.client().ask(chunked(&body)).expect_status(status);
        if status == 200 {
            assert!(upstream.take_request().body.bytes == body.as_bytes(), "{filters}");
            if !filters.contains("body_limit") {
                assert!(other.take_request().body.bytes == body.as_bytes(), "{filters}");
            }
        }
        eventually("all is freed", || (held(&weir), figure(&weir, "disk_bytes")) == (0, 0));
    }
}

// === Responses ===

/// An upstream that takes one connection at a time: whoever waits for it, waits for whoever holds it.
fn busy(upstream: &Upstream) -> String {
    format!(
        "{{ endpoints: [{}], limits: {{ connections: 1 }}, timeouts: {{ connect: 4s }} }}",
        upstream.address()
    )
}

/// Sends `LONG` bytes on `/long` and a word otherwise, in chunks or with a length.
fn long_or_short(chunked: bool) -> Upstream {
    Upstream::script(move |conn| {
        while let Some(request) = conn.next_request() {
            let fields = "Content-Type: text/plain\r\nCache-Control: max-age=60\r\n";
            if !request.head.line.starts_with("GET /long") {
                conn.send(OK_BODY);
            } else if chunked {
                conn.send(format!("HTTP/1.1 200 OK\r\n{fields}Transfer-Encoding: chunked\r\n\r\n"));
                for _ in 0..LONG / MIB {
                    conn.send(format!("{MIB:x}\r\n{}\r\n", "y".repeat(MIB)));
                }
                conn.send("0\r\nX-Sum: 1\r\n\r\n");
            } else {
                conn.send(format!("HTTP/1.1 200 OK\r\n{fields}Content-Length: {LONG}\r\n\r\n"));
                conn.send("y".repeat(LONG));
            }
        }
    })
}

const ASK_LONG: &str = "GET /long HTTP/1.1\r\nHost: weir.test\r\nTE: trailers\r\nConnection: te\r\n\r\n";

fn slow_client(weir: &Weir) -> Client {
    let mut client = weir.client();
    client.send(ASK_LONG);
    client
}

#[test]
fn a_slow_client_holds_no_connection() {
    for chunked in [false, true] {
        let upstream = long_or_short(chunked);
        for filters in [RESPONSES.to_owned(), format!("{{ compress: {{ minimum: 32MiB }} }}, {RESPONSES}")] {
            let weir = start(&busy(&upstream), &filters);
            let mut slow = slow_client(&weir);
            weir.client().get("/short").expect_status(200).expect_body("ok");
            let bound = if chunked { 32 * MIB } else { LONG };
            eventually("only the long one is held", || held(&weir) == bound as u64);
            let response = slow.read_response();
            assert_eq!(response.body.bytes.len(), LONG, "{filters}");
            assert_eq!(!response.body.trailers.is_empty(), chunked);
            slow.get("/short").expect_status(200); // the connection goes on
            eventually("all is freed", || held(&weir) == 0);
        }
    }
}

#[test]
fn a_slow_stream_holds_no_connection() {
    let upstream = long_or_short(false);
    let weir = start(&busy(&upstream), RESPONSES);
    let options = Options { window: 0, ..Options::default() }.with(&[(setting::WINDOW, 1000)]);
    let mut slow = H2::client_with(weir.client(), &options);
    let stream = slow.get("/long");
    slow.wait(stream, "its first bytes", |message| message.body.len() == 1000);
    weir.client().get("/short").expect_status(200);
    slow.reset(stream, weir_testkit::h2::code::CANCEL);
    eventually("all is freed", || held(&weir) == 0);
}

/// A route that finishes what clients leave reads at least as far ahead.
#[test]
fn a_slow_client_of_an_exchange_that_is_finished_anyway() {
    let upstream = long_or_short(false);
    let weir = start(&busy(&upstream).replace("limits", "client_gone: finish, limits"), RESPONSES);
    let mut slow = slow_client(&weir);
    weir.client().get("/short").expect_status(200);
    assert_eq!(slow.read_response().body.bytes.len(), LONG);
}

#[test]
fn without_it_the_connection_waits() {
    let upstream = long_or_short(false);
    let weir = start(&busy(&upstream).replace("4s", "200ms"), "{ request_id: {} }");
    let slow = slow_client(&weir);
    eventually("it is taken", || weir.client().get("/short").status == 503);
    drop(slow);
}

#[test]
fn a_slow_client_that_leaves() {
    let upstream = long_or_short(false);
    let weir = start(&busy(&upstream), RESPONSES);
    let slow = slow_client(&weir);
    weir.client().get("/short").expect_status(200);
    slow.reset();
    eventually("all is freed", || held(&weir) == 0);
    weir.client().get("/short").expect_status(200);
}

#[test]
fn beyond_the_bound_it_goes_on_at_the_speed_of_the_client() {
    let upstream = long_or_short(true);
    let weir = buffering(&upstream, "{ buffer: { response: 100KiB, memory: 150KiB } }");
    let mut slow = slow_client(&weir);
    slow.read_head();
    assert_eq!(held(&weir), 100 * KIB as u64);
    let response = weir.client().ask(ASK_LONG); // it finds no memory, and needs none
    assert_eq!(response.body.bytes.len(), LONG);
    assert_eq!(figure(&weir, "unbuffered_total"), 1);
    assert_eq!(slow.read_chunked().bytes.len(), LONG);
}

#[test]
fn a_cache_on_either_side() {
    for filters in [
        format!("{{ cache: {{ store: pages, max_object: 32MiB }} }}, {RESPONSES}"),
        format!("{RESPONSES}, {{ cache: {{ store: pages, max_object: 32MiB }} }}"),
    ] {
        let upstream = long_or_short(false);
        let weir = start(&busy(&upstream), &filters);
        let mut slow = slow_client(&weir);
        weir.client().get("/short").expect_status(200);
        let response = weir.client().ask(ASK_LONG); // kept, although the first client has not read it
        assert_eq!(response.body.bytes.len(), LONG);
        assert_eq!(slow.read_response().body.bytes.len(), LONG);
        let long = upstream.requests().into_iter().filter(|request| request.head.line.contains("/long"));
        assert_eq!(long.count(), 1, "{filters}");
    }
}

#[test]
fn with_replace_and_compress() {
    let upstream = long_or_short(true);
    let replace =
        "{ replace: { types: [ text/plain ], text: { \"yyyyyyyyyyyyyyyy\": \"zzzzzzzzzzzzzzzz\" } } }";
    for filters in [format!("{RESPONSES}, {replace}"), format!("{replace}, {RESPONSES}")] {
        let weir = start(&busy(&upstream), &filters);
        let mut slow = slow_client(&weir);
        weir.client().get("/short").expect_status(200);
        let body = slow.read_response().body.bytes;
        assert!(body.len() == LONG && body.iter().all(|&byte| byte == b'z'), "{filters}");
    }
    for filters in
        [format!("{RESPONSES}, {{ compress: {{}} }}"), format!("{{ compress: {{}} }}, {RESPONSES}")]
    {
        let weir = buffering(&upstream, &filters);
        let request = ASK_LONG.replace("TE:", "Accept-Encoding: br\r\nTE:");
        let response = weir.client().ask(request);
        assert_eq!(decoded("br", &response.body.bytes).len(), LONG, "{filters}");
    }
}

/// A body that is buffered whole is compressed to the same bytes, however it arrives.
#[test]
fn what_is_buffered_whole_is_compressed_alike() {
    let upstream = Upstream::listen();
    let text: String = (0..30_000).map(|n| format!("{} ", n * n % 1009)).collect();
    let length = text.len();
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    let ask = GET.replace("Host", "Accept-Encoding: gzip\r\nHost");
    let compress = "{ compress: {} }";
    for filters in [format!("{RESPONSES}, {compress}"), format!("{compress}, {RESPONSES}")] {
        let up = format!("{{ up: {{ endpoints: [{}] }} }}", upstream.address());
        let weir = Weir::start(&format!(
            "workers: 1\nlisteners: {{ web: {{ address: 127.0.0.1:0 }} }}\nupstreams: {up}\n\
             routes: {{ all: {{ match: {{ path: \"/*\" }}, filters: [ {filters} ], upstream: up }} }}\n"
        ));
        let (mut client, mut conn) = weir.begin(&upstream, &ask);
        conn.send(format!("{head}{text}"));
        let whole = client.read_response().body.bytes;
        assert_eq!(decoded("gzip", &whole), text.as_bytes(), "{filters}");
        for at in [1, 5_000, 70_000] {
            let (mut client, mut conn) = weir.begin(&upstream, &ask);
            conn.send(format!("{head}{}", &text[..at]));
            // Once the core answers this, it has seen the pause.
            weir.client().request("TRACE", "/").expect_status(501);
            conn.send(&text[at..]);
            assert!(client.read_response().body.bytes == whole, "{filters} {at}");
        }
    }
}

#[test]
fn events_arrive_when_they_are_sent_and_a_cut_is_seen() {
    let upstream = Upstream::listen();
    let weir = buffering(&upstream, RESPONSES);
    let (mut client, mut conn) = weir.begin(&upstream, GET);
    conn.send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n");
    client.read_head();
    for _ in 0..3 {
        conn.send("9\r\ndata: 1\n\n\r\n");
        client.expect("9\r\ndata: 1\n\n\r\n");
    }
    conn.close();
    client.expect_close();
    eventually("all is freed", || held(&weir) == 0);
}
