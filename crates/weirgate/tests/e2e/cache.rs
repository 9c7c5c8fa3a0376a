//! The filter `cache` as clients and an upstream see it. Unit tests in the filter's files cover its rules.
//!
//! No test waits for staleness: an answer with `Age: 100` and `max-age=60` is stale on arrival.

mod callers;
mod hostile;
mod of_route;
mod on_disk;
mod pairs;
mod places;
mod stale;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread;
use weir_testkit::{Client, Upstream, Weir, eventually, run_weir, weir_command};

use crate::cause::{CONNECT_REFUSED, NOT_CACHED};
use crate::support::WEB;

/// A two-core gateway with this cache in front of one upstream.
fn weir_with(upstream: &Upstream, cache: &str) -> Weir {
    Weir::start(&config(&upstream.address().to_string(), cache))
}

fn config(upstream: &str, cache: &str) -> String {
    format!(
        "{WEB}\nworkers: 2\nexpose_causes: true\nadmin: {{ address: 127.0.0.1:0 }}\nstores: {{ pages: {{ memory: 4MiB }} }}\n\
         upstreams: {{ up: {{ endpoints: [{upstream}] }} }}\n\
         routes: {{ all: {{ match: {{ path: \"/*\" }}, filters: [ {{ cache: {{ store: pages, {cache} }} }} ], upstream: up }} }}"
    )
}

/// An answer with these fields; its body counts the answers before it.
fn counting(fields: &str) -> Upstream {
    let (count, fields) = (AtomicUsize::new(0), fields.to_owned());
    Upstream::script(move |conn| {
        while conn.next_request().is_some() {
            let body = format!("answer {}", count.fetch_add(1, SeqCst));
            let head = format!("HTTP/1.1 200 OK\r\n{fields}Content-Length: {}\r\n\r\n", body.len());
            if conn.try_send([head, body].concat()).is_err() {
                return;
            }
        }
    })
}

fn ask(client: &mut Client, line: &str, fields: &str) -> weir_testkit::Response {
    client.ask(format!("{line} HTTP/1.1\r\nHost: weir.test\r\n{fields}\r\n"))
}

fn metrics(weir: &Weir) -> String {
    weir.admin_client().ask("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").text()
}

#[test]
fn what_is_fresh_is_served_again() {
    let upstream = counting("Cache-Control: max-age=600\r\nETag: \"e\"\r\nX-Own: 1\r\n");
    let weir = weir_with(&upstream, "");
    let mut client = weir.client();
    let first = client.get("/a?b=1");
    first.expect_body("answer 0").expect_header("cache-status", "weir; fwd=uri-miss; fwd-status=200; stored");
    let hit = client.get("/a?b=1");
    hit.expect_status(200).expect_body("answer 0").expect_header("x-own", "1").expect_header("age", "0");
    assert!(hit.header("cache-status").unwrap().starts_with("weir; hit; ttl="), "{hit:?}");
    assert_eq!(hit.header("date"), first.header("date"));
    // The same over another connection, possibly on another core.
    weir.client().get("/a?b=1").expect_body("answer 0");
    ask(&mut client, "GET /a?b=1", "If-None-Match: \"x\", \"e\"\r\n")
        .expect_status(304)
        .expect_header("etag", "\"e\"");
    ask(&mut client, "GET /a?b=1", "Range: bytes=-1\r\n")
        .expect_status(206)
        .expect_header("content-range", "bytes 7-7/8")
        .expect_body("0");
    ask(&mut client, "GET /a?b=1", "Range: bytes=8-\r\n")
        .expect_status(416)
        .expect_header("content-range", "bytes */8");
    let mut head = weir.client();
    head.send("HEAD /a?b=1 HTTP/1.1\r\nHost: weir.test\r\nConnection: close\r\n\r\n");
    let head = head.read_response_to_head();
    head.expect_status(200).expect_header("content-length", "8").expect_body("");
    assert_eq!(upstream.requests().len(), 1);
    // Another URL or another host is another object.
    client.get("/a?b=2").expect_body("answer 1");
    client.get("/a").expect_body("answer 2");
    client.ask("GET /a HTTP/1.1\r\nHost: WEIR.test:80\r\n\r\n").expect_body("answer 2");
    client.ask("GET /a HTTP/1.1\r\nHost: other.test\r\n\r\n").expect_body("answer 3");
    client.get("/%61").expect_body("answer 2");
}

/// Lifetimes by status, and answers whose Cache-Control does not count.
#[test]
fn lifetimes_are_by_status_and_fields_are_ignored() {
    let count = AtomicUsize::new(0);
    let upstream = Upstream::script(move |conn| {
        while let Some(request) = conn.next_request() {
            let status = match request.head.line.split(['/', ' ']).nth(2) {
                Some("moved") => "302 Found\r\nLocation: /x",
                Some("gone") => "404 Not Found",
                Some("broken") => "500 Oops",
                Some("no") => "403 Forbidden\r\nCache-Control: private, no-store",
                _ => "200 OK\r\nCache-Control: private\r\nSet-Cookie: s=1\r\nVary: Cookie\r\nExpires: 0",
            };
            let body = format!("answer {}", count.fetch_add(1, SeqCst));
            let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n", body.len());
            if conn.try_send([head, body].concat()).is_err() {
                return;
            }
        }
    });
    let cache = "ttl: { 200: 1h, 302: 1h, 403: 1h, any: 0s, 404: 0s }, ignore: [ cache-control, expires, set-cookie, vary ]";
    let weir = weir_with(&upstream, cache);
    let mut client = weir.client();
    let mut is_kept = |target: &str, fields: &str| {
        let line = format!("GET {target}");
        ask(&mut client, &line, fields).text() == ask(&mut client, &line, fields).text()
    };
    for (target, kept) in
        [("/moved", true), ("/gone", false), ("/broken", false), ("/no", true), ("/a", true)]
    {
        assert_eq!(is_kept(target, ""), kept, "{target}");
    }
    // The copy has no cookie, and a credential keeps its answer to itself.
    weir.client().get("/a").expect_no_header("set-cookie").expect_header("vary", "Cookie");
    assert!(!is_kept("/b", "Authorization: Basic x\r\n"));
    assert!(!is_kept("/b", "Cookie: s=1\r\n"));
    // What it risks is said.
    let told = run_weir(weir.dir(), &["check", "-c", "weir.yaml"]);
    let told = format!("{}{}", told.stdout, told.stderr);
    assert_eq!(told.matches("[cache-made-public]").count(), 3, "{told}");
}

/// A client whose copy equals the fetched object gets a 304, as with nginx. The object is stored, and followers get
/// it.
#[test]
fn who_has_what_is_fetched_does_not_get_it_again() {
    let body = "x".repeat(300_000);
    let head = format!(
        "HTTP/1.1 200 OK\r\nCache-Control: max-age=600\r\nETag: \"e\"\r\nLast-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\n\
         Content-Type: text/plain\r\nX-Own: 1\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    let upstream = Upstream::fixed([&*head, &*body].concat());
    let both = "listeners: { web: { address: 127.0.0.1:0, protocols: [ http1, h2 ] } }";
    let weir = Weir::start(&config(&upstream.address().to_string(), "").replace(WEB, both));
    let mut client = weir.client();
    for (n, condition) in
        ["If-None-Match: W/\"e\"", "If-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT"].into_iter().enumerate()
    {
        let had = ask(&mut client, &format!("GET /{n}"), &format!("{condition}\r\n"));
        had.expect_status(304).expect_body("").expect_header("etag", "\"e\"").expect_header("x-own", "1");
        had.expect_header("cache-status", "weir; fwd=uri-miss; fwd-status=200; stored");
        assert_eq!((had.header("content-length"), had.header("content-type")), (None, None));
        let kept = client.get(&format!("/{n}"));
        kept.expect_status(200).expect_body(&body).expect_header("content-type", "text/plain");
        assert!(kept.header("cache-status").unwrap().starts_with("weir; hit"), "{kept:?}");
    }
    ask(&mut client, "GET /2", "If-None-Match: \"other\"\r\n").expect_status(200).expect_body(&body);
    let mut h2 = weir.h2();
    let fields = [(":method", "GET"), (":scheme", "http"), (":authority", "weir.test"), (":path", "/3")];
    let stream = h2.request(&[&fields[..], &[("if-none-match", "\"e\"")]].concat(), true);
    h2.message(stream).expect_status(304).expect_frames(&["HEADERS END"]);
    client.get("/3").expect_status(200).expect_body(&body);
    assert_eq!(upstream.requests().len(), 4);

    // The client has its answer before the body is complete, and the connection's next answer follows it.
    let upstream = Upstream::listen();
    let weir = weir_with(&upstream, "");
    let (begin, end) = body.split_at(100_000);
    for leaves in [false, true] {
        let target = format!("/{leaves}");
        let (mut leader, mut follower) = (weir.client(), weir.client());
        leader.send(format!("GET {target} HTTP/1.1\r\nHost: weir.test\r\nIf-None-Match: \"e\"\r\n\r\n"));
        let mut conn = upstream.accept_request();
        conn.send([&*head, begin].concat());
        leader.read_response().expect_status(304);
        follower.send(format!("GET {target} HTTP/1.1\r\nHost: weir.test\r\n\r\n"));
        if leaves {
            drop(leader);
        } else {
            leader.send(format!("GET {target} HTTP/1.1\r\nHost: weir.test\r\n\r\n"));
            conn.send(end);
            leader.read_response().expect_status(200).expect_body(&body);
            follower.read_response().expect_status(200).expect_body(&body);
            continue;
        }
        conn.send(end);
        follower.read_response().expect_status(200).expect_body(&body);
        drop(conn);
    }
    // A truncated answer is not stored, and does not affect a client that got all of it.
    let (mut client, mut conn) =
        weir.begin(&upstream, "GET /broken HTTP/1.1\r\nHost: weir.test\r\nIf-None-Match: \"e\"\r\n\r\n");
    conn.send([&*head, begin].concat());
    client.read_response().expect_status(304);
    drop(conn);
    client.send("GET /broken HTTP/1.1\r\nHost: weir.test\r\n\r\n");
    let mut conn = upstream.accept_request();
    conn.send([&*head, &*body].concat());
    client.read_response().expect_status(200).expect_body(&body);
}

#[test]
fn what_is_stale_is_asked_about() {
    let upstream = Upstream::listen();
    let weir = weir_with(&upstream, "");
    let mut client = weir.client();
    client.send("GET / HTTP/1.1\r\nHost: weir.test\r\nIf-None-Match: \"mine\"\r\n\r\n");
    let mut conn = upstream.accept();
    let first = conn.read_request();
    assert_eq!(
        first.head.header("if-none-match"),
        None,
        "what the client has says nothing about what we have"
    );
    conn.send("HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nAge: 100\r\nETag: \"e\"\r\nX-A: old\r\nX-B: kept\r\nContent-Length: 2\r\n\r\nok");
    client.read_response().expect_status(200).expect_body("ok");

    client.send("GET / HTTP/1.1\r\nHost: weir.test\r\n\r\n");
    let second = conn.read_request();
    assert_eq!(second.head.header("if-none-match"), Some("\"e\""));
    conn.send("HTTP/1.1 304 Not Modified\r\nCache-Control: max-age=60\r\nETag: \"e\"\r\nX-A: new\r\n\r\n");
    let fresh = client.read_response();
    fresh.expect_status(200).expect_body("ok").expect_header("x-a", "new").expect_header("x-b", "kept");
    fresh.expect_header("cache-status", "weir; fwd=stale; fwd-status=304");
    client.get("/").expect_body("ok").expect_header("x-a", "new");
    ask(&mut client, "GET /", "If-None-Match: W/\"e\"\r\n").expect_status(304);
    assert_eq!(upstream.requests().len(), 2);
}

#[test]
fn a_new_answer_takes_the_place_of_a_stale_one() {
    let upstream = counting("Cache-Control: max-age=60\r\nAge: 100\r\nETag: \"e\"\r\n");
    let weir = weir_with(&upstream, "");
    let mut client = weir.client();
    for n in 0..3 {
        client.get("/").expect_body(format!("answer {n}"));
    }
}

/// All requests meanwhile read the same answer, and do not wait for its end.
#[test]
fn one_fetch_for_all_who_ask_for_the_same() {
    const MANY: usize = 40;
    let upstream = Upstream::listen();
    let weir = weir_with(&upstream, "");
    let address = weir.address("web");
    let mut clients: Vec<Client> = (0..MANY).map(|_| Client::connect(&address)).collect();
    clients[0].send("GET /big HTTP/1.1\r\nHost: weir.test\r\n\r\n");
    let mut conn = upstream.accept_request();
    clients[1..].iter_mut().for_each(|c| c.send("GET /big HTTP/1.1\r\nHost: weir.test\r\n\r\n"));
    conn.send(
        "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n",
    );
    for client in &mut clients {
        let head = client.read_head();
        assert_eq!(head.line, "HTTP/1.1 200 OK");
        client.expect("5\r\nfirst\r\n");
    }
    conn.send("6\r\nsecond\r\n0\r\n\r\n");
    for client in &mut clients {
        client.expect("6\r\nsecond\r\n0\r\n\r\n");
    }
    assert_eq!(upstream.requests().len(), 1);
    clients[7].get("/big").expect_body("firstsecond");
    let counted = metrics(&weir);
    assert!(
        counted.contains(&format!("weir_cache_followed_total{{place=\"routes.all\"}} {}", MANY - 1)),
        "{counted}"
    );
    weir.client().get("/big").expect_header("content-length", "11");
}

/// No request waits for an answer that cannot be shared.
#[test]
fn an_answer_that_is_not_kept_lets_the_others_go() {
    let upstream = Upstream::listen();
    let weir = weir_with(&upstream, "");
    let address = weir.address("web");
    let mut clients: Vec<Client> = (0..4).map(|_| Client::connect(&address)).collect();
    clients[0].send("GET / HTTP/1.1\r\nHost: weir.test\r\n\r\n");
    let mut first = upstream.accept_request();
    clients[1..].iter_mut().for_each(|c| c.send("GET / HTTP/1.1\r\nHost: weir.test\r\n\r\n"));
    first
        .send("HTTP/1.1 200 OK\r\nCache-Control: private\r\nConnection: close\r\nContent-Length: 1\r\n\r\n0");
    clients[0]
        .read_response()
        .expect_body("0")
        .expect_header("cache-status", "weir; fwd=uri-miss; fwd-status=200; detail=private");
    let mut others: Vec<_> = (1..4).map(|_| upstream.accept()).collect();
    for (n, conn) in others.iter_mut().enumerate() {
        conn.read_request();
        let body = n + 1;
        conn.send(format!("HTTP/1.1 200 OK\r\nCache-Control: private\r\nContent-Length: 1\r\n\r\n{body}"));
    }
    let mut bodies: Vec<String> = clients[1..].iter_mut().map(|c| c.read_response().text()).collect();
    bodies.sort();
    assert_eq!(bodies, ["1", "2", "3"]);
}

/// A failing upstream is asked by one request at a time, not by all.
#[test]
fn a_failure_sends_one_other_and_not_all() {
    let upstream = Upstream::listen();
    let weir = weir_with(&upstream, "");
    let address = weir.address("web");
    let mut clients: Vec<Client> = (0..3).map(|_| Client::connect(&address)).collect();
    clients[0].send("GET / HTTP/1.1\r\nHost: weir.test\r\n\r\n");
    let mut first = upstream.accept_request();
    clients[1..].iter_mut().for_each(|c| c.send("GET / HTTP/1.1\r\nHost: weir.test\r\n\r\n"));
    first.send("HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
    clients[0].read_response().expect_status(503);
    let mut second = upstream.accept_request();
    second.send("HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: 2\r\n\r\nok");
    clients[1..].iter_mut().for_each(|c| drop(c.read_response().expect_status(200).expect_body("ok").text()));
    assert_eq!(upstream.requests().len(), 2);
}

/// If the leader of a fetch leaves, another request takes over.
#[test]
fn a_leader_that_leaves_takes_nobody_with_it() {
    let upstream = Upstream::listen();
    let weir = weir_with(&upstream, "");
    let address = weir.address("web");
    let (mut leader, mut follower) = (Client::connect(&address), Client::connect(&address));
    leader.send("GET / HTTP/1.1\r\nHost: weir.test\r\n\r\n");
    let _first = upstream.accept_request();
    follower.send("GET / HTTP/1.1\r\nHost: weir.test\r\n\r\n");
    leader.reset();
    let mut second = upstream.accept_request();
    second.send("HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: 2\r\n\r\nok");
    follower.read_response().expect_status(200).expect_body("ok");
}

/// If it leaves in the middle of the answer, the rest is read for the others.
#[test]
fn a_leader_that_leaves_in_the_middle_cuts_nobody() {
    let upstream = Upstream::listen();
    let weir = weir_with(&upstream, "");
    let address = weir.address("web");
    let (mut leader, mut follower) = (Client::connect(&address), Client::connect(&address));
    leader.send("GET / HTTP/1.1\r\nHost: weir.test\r\n\r\n");
    let mut conn = upstream.accept_request();
    conn.send(
        "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n",
    );
    leader.read_until("first\r\n");
    follower.send("GET / HTTP/1.1\r\nHost: weir.test\r\n\r\n");
    follower.read_until("first\r\n");
    leader.reset();
    conn.send("4\r\nnext\r\n");
    follower.expect("4\r\nnext\r\n");
    conn.send("4\r\nlast\r\n0\r\n\r\n");
    follower.expect("4\r\nlast\r\n0\r\n\r\n");
    weir.client().get("/").expect_body("firstnextlast");
    assert_eq!(upstream.requests().len(), 1);
}

/// Nor does a leader that does not read delay the others.
#[test]
fn a_leader_that_does_not_read_holds_nobody_up() {
    const LARGE: usize = 24 * 1024 * 1024;
    let upstream = Upstream::script(|conn| {
        while conn.next_request().is_some() {
            let head =
                format!("HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: {LARGE}\r\n\r\n");
            if conn.try_send([head.into_bytes(), vec![b'x'; LARGE]].concat()).is_err() {
                return;
            }
        }
    });
    let yaml = config(&upstream.address().to_string(), "max_object: 24MiB")
        .replace("memory: 4MiB", "memory: 256MiB");
    let weir = Weir::start(&yaml);
    let address = weir.address("web");
    let mut leader = Client::connect(&address);
    leader.send("GET / HTTP/1.1\r\nHost: weir.test\r\n\r\n");
    upstream.wait_requests(1);
    assert_eq!(Client::connect(&address).get("/").expect_status(200).body.bytes.len(), LARGE);
    assert_eq!(leader.read_response().expect_status(200).body.bytes.len(), LARGE);
    assert_eq!(upstream.requests().len(), 1);
}

#[test]
fn half_an_answer_is_never_kept() {
    let upstream = Upstream::listen();
    let weir = weir_with(&upstream, "");
    let (mut client, mut conn) = weir.begin(&upstream, "GET / HTTP/1.1\r\nHost: weir.test\r\n\r\n");
    conn.send("HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: 10\r\n\r\nhalf");
    conn.close();
    client.read_until("half");
    client.expect_close();
    let (mut client, mut conn) = weir.begin(&upstream, "GET / HTTP/1.1\r\nHost: weir.test\r\n\r\n");
    conn.send("HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: 5\r\n\r\nwhole");
    client.read_response().expect_body("whole");
    client.get("/").expect_body("whole");
}

/// Answers differ by the fields in `Vary`, also for concurrent requests.
#[test]
fn variants_are_kept_apart() {
    let upstream = counting("Cache-Control: max-age=60\r\nVary: X-Lang\r\n");
    let weir = weir_with(&upstream, "");
    let mut client = weir.client();
    ask(&mut client, "GET /", "X-Lang: de\r\n").expect_body("answer 0");
    ask(&mut client, "GET /", "X-Lang: en\r\n").expect_body("answer 1");
    ask(&mut client, "GET /", "").expect_body("answer 2");
    ask(&mut client, "GET /", "X-Lang: de\r\n").expect_body("answer 0");
    ask(&mut client, "GET /", "X-Lang: en\r\nX-Other: 1\r\n").expect_body("answer 1");
    ask(&mut client, "GET /", "").expect_body("answer 2");
}

/// A request that only imitates another gets nothing of its answer, and leaves nothing for it.
#[test]
fn what_is_not_for_all_is_not_kept() {
    for (request, answer) in [
        ("GET / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 1\r\n\r\nx", "Cache-Control: max-age=60\r\n"),
        (
            "GET / HTTP/1.1\r\nHost: a.test\r\nAuthorization: Basic eDp5\r\n\r\n",
            "Cache-Control: max-age=60\r\n",
        ),
        (
            "GET / HTTP/1.1\r\nHost: a.test\r\nX-HTTP-Method-Override: POST\r\n\r\n",
            "Cache-Control: max-age=60\r\n",
        ),
        (
            "GET / HTTP/1.1\r\nHost: a.test\r\nCache-Control: no-store\r\n\r\n",
            "Cache-Control: max-age=60\r\n",
        ),
        ("GET / HTTP/1.1\r\nHost: a.test\r\nRange: bytes=0-1\r\n\r\n", "Cache-Control: max-age=60\r\n"),
        (
            "GET / HTTP/1.1\r\nHost: a.test\r\nX-Forwarded-For: 1.2.3.4\r\n\r\n",
            "Cache-Control: max-age=60\r\nVary: X-Forwarded-For\r\n",
        ),
        ("GET / HTTP/1.1\r\nHost: a.test\r\n\r\n", "Cache-Control: max-age=60\r\nSet-Cookie: a=b\r\n"),
        ("GET / HTTP/1.1\r\nHost: a.test\r\n\r\n", "Cache-Control: max-age=60\r\nVary: *\r\n"),
        ("GET / HTTP/1.1\r\nHost: a.test\r\n\r\n", ""),
    ] {
        let upstream = counting(answer);
        let weir = weir_with(&upstream, "");
        weir.client().ask(request).expect_body("answer 0");
        weir.client().ask("GET / HTTP/1.1\r\nHost: a.test\r\n\r\n").expect_body("answer 1");
        assert_eq!(upstream.requests().len(), 2, "{request}");
    }
}

#[test]
fn an_upstream_that_fails_is_covered_up_where_that_is_wanted() {
    let upstream = Upstream::listen();
    let weir = weir_with(&upstream, "stale_if_error: 1h");
    let (mut client, mut conn) = weir.begin(&upstream, "GET / HTTP/1.1\r\nHost: weir.test\r\n\r\n");
    conn.send("HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nAge: 100\r\nContent-Length: 2\r\n\r\nok");
    client.read_response().expect_body("ok");
    client.send("GET / HTTP/1.1\r\nHost: weir.test\r\n\r\n");
    conn.read_request();
    conn.send("HTTP/1.1 503 Service Unavailable\r\nContent-Length: 3\r\n\r\nbad");
    let stale = client.read_response();
    stale.expect_status(200).expect_body("ok");
    stale.expect_header("cache-status", "weir; fwd=stale; fwd-status=503; detail=stale-if-error");
    assert!(stale.header("age").unwrap().parse::<u64>().unwrap() >= 100);
    // The upstream gets a moment.
    let again = client.get("/");
    assert!(again.header("cache-status").unwrap().ends_with("detail=stale-if-error"), "{again:?}");
    assert_eq!(upstream.requests().len(), 2);
}

/// The gateway's own errors are never stored, whatever the default lifetimes.
#[test]
fn an_error_of_our_own_is_not_kept() {
    let (_held, refusing) = weir_testkit::refusing_address();
    let weir = Weir::start(&config(&refusing.to_string(), "ttl: 1h, negative: 1h"));
    let mut client = weir.client();
    client.get("/").expect_cause(CONNECT_REFUSED);
    // The endpoint may be out of rotation by now: another cause, but still no answer from the cache.
    let again = client.get("/");
    assert!(matches!(again.status, 502 | 503), "{again:?}");
    again.expect_no_header("age");
    ask(&mut client, "GET /", "Cache-Control: only-if-cached\r\n").expect_cause(NOT_CACHED);
}

#[test]
fn what_is_changed_is_fetched_anew() {
    let upstream = counting("Cache-Control: max-age=60\r\nLocation: /b\r\n");
    let weir = weir_with(&upstream, "");
    let mut client = weir.client();
    client.get("/a").expect_body("answer 0");
    client.get("/b").expect_body("answer 1");
    client.get("/c").expect_body("answer 2");
    client.request("DELETE", "/a").expect_body("answer 3");
    client.get("/a").expect_body("answer 4");
    client.get("/b").expect_body("answer 5");
    client.get("/c").expect_body("answer 2");
}

/// Callers have separate answers, unless the config says otherwise.
#[test]
fn consumers_have_answers_of_their_own() {
    for (key, second) in [("", "answer 1"), ("key: [ shared ]", "answer 0")] {
        let upstream = counting("Cache-Control: max-age=60\r\n");
        let weir = Weir::start(&format!(
            "{WEB}\nstores: {{ pages: {{ memory: 4MiB }} }}\nupstreams: {{ up: {{ endpoints: [{}] }} }}\n\
             consumers: {{ ann: {{ key_auth: [ one ] }}, bob: {{ key_auth: [ two ] }} }}\n\
             routes: {{ all: {{ filters: [ {{ key_auth: {{ header: apikey }} }}, {{ cache: {{ store: pages, {key} }} }} ], upstream: up }} }}",
            upstream.address()
        ));
        let mut client = weir.client();
        ask(&mut client, "GET /", "apikey: one\r\n").expect_body("answer 0");
        ask(&mut client, "GET /", "apikey: two\r\n").expect_body(second);
        ask(&mut client, "GET /", "apikey: one\r\n").expect_body("answer 0");
        ask(&mut client, "GET /", "").expect_status(401);
    }
}

#[test]
fn purges() {
    let upstream = counting("Cache-Control: max-age=60\r\nSurrogate-Key: all pages\r\n");
    let weir = weir_with(&upstream, "");
    let admin = weir.admin();
    let mut client = weir.client();
    let mut purge = |more: &[&str]| {
        client.get("/x/1").expect_status(200);
        client.get("/x/2?q=1").expect_status(200);
        let before = upstream.requests().len();
        let done = run_weir(weir.dir(), &[&["purge", "pages", "--admin", &admin][..], more].concat());
        client.get("/x/1").expect_status(200);
        client.get("/x/2?q=1").expect_status(200);
        (done, upstream.requests().len() - before)
    };
    for (what, fetched) in [
        (&["--url", "http://weir.test/x/1"][..], 1),
        (&["--url", "http://WEIR.test:80/x/2?q=1"], 1),
        (&["--url", "https://weir.test/x/1"], 0),
        (&["--prefix", "http://weir.test/x/"], 2),
        (&["--prefix", "http://weir.test/y"], 0),
        (&["--tag", "pages"], 2),
        (&["--tag", "page"], 0),
        (&["--all"], 2),
    ] {
        let (done, anew) = purge(what);
        done.expect_code(0).expect_text(&format!("{fetched} object"));
        assert_eq!(anew, fetched, "{what:?}");
    }
    purge(&[]).0.expect_code(2);
    purge(&["--url", "/x/1"]).0.expect_code(1).expect_text("is not a URL");
    let mut other = weir_command(weir.dir());
    let other = other.args(["purge", "other", "--all", "--admin", &admin]).output().unwrap();
    let said = String::from_utf8_lossy(&other.stderr);
    assert!(!other.status.success() && said.contains("those in use: pages"), "{said}");
}

/// A reload keeps stored objects, whatever else it changes about the cache.
#[test]
fn a_reload_keeps_the_store() {
    let upstream = counting("Cache-Control: max-age=60\r\n");
    let weir = weir_with(&upstream, "");
    weir.client().get("/").expect_body("answer 0");
    weir.reload_with(&config(&upstream.address().to_string(), "ttl: 1m")).unwrap();
    weir.client().get("/").expect_body("answer 0");
}

/// Many requests for different objects stay within the store's limit, and none fails.
#[test]
fn memory_is_bounded() {
    const LARGE: usize = 256 * 1024;
    let body = Arc::new(vec![b'x'; LARGE]);
    let upstream = Upstream::script(move |conn| {
        while conn.next_request().is_some() {
            let head =
                format!("HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: {LARGE}\r\n\r\n");
            if conn.try_send([head.as_bytes(), &body].concat()).is_err() {
                return;
            }
        }
    });
    let weir = weir_with(&upstream, "");
    let address = weir.address("web");
    let threads: Vec<_> = (0..4)
        .map(|n| {
            let mut client = Client::connect(&address);
            thread::spawn(move || {
                for m in 0..20 {
                    client.get(&format!("/{n}/{m}")).expect_status(200);
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    eventually("nothing is on its way", || {
        let counted = metrics(&weir);
        let of = |what: &str| {
            let line = counted.lines().find(|line| line.starts_with(&format!("weir_cache_store_{what}")));
            line.and_then(|line| line.rsplit(' ').next()?.parse::<u64>().ok())
                .unwrap_or_else(|| panic!("{counted}"))
        };
        assert!(of("bytes") <= 4 << 20 && of("objects") <= 16);
        of("memory") <= 4 << 20
    });
}
