//! Stale answers that are served immediately while one request fetches a new one (RFC 5861).

use weir_testkit::{Client, Upstream, Weir, eventually};

use super::{ask, config, metrics};

const OLD: &str =
    "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nAge: 100\r\nETag: \"e\"\r\nContent-Length: 3\r\n\r\nold";

/// A cache that serves stale objects for an hour, with a filter behind it that upstreams see.
fn weir_with(upstream: &Upstream) -> Weir {
    let behind = "{ headers: { request: { set: { x-behind: one } } } }";
    let cache = "stale_while_revalidate: 1h } }, ".to_owned() + behind + ", { timeout: { exchange: 1h";
    // One core, so that its fetch uses the open connection.
    Weir::start(&config(&upstream.address().to_string(), &cache).replace("workers: 2", "workers: 1"))
}

/// Fills the cache with an answer that is stale on arrival; returns the upstream's end of the connection.
fn fill(weir: &Weir, upstream: &Upstream) -> (Client, weir_testkit::Conn) {
    let (mut client, mut conn) = weir.begin(upstream, "GET /a HTTP/1.1\r\nHost: weir.test\r\n\r\n");
    conn.send(OLD);
    client.read_response().expect_body("old");
    (client, conn)
}

/// No client waits, and the origin sees one request.
#[test]
fn one_request_fetches_behind_the_answer() {
    let upstream = Upstream::listen();
    let weir = weir_with(&upstream);
    let (mut client, mut conn) = fill(&weir, &upstream);
    let address = weir.address("web");
    let mut clients: Vec<Client> = (0..20).map(|_| Client::connect(&address)).collect();
    clients.iter_mut().for_each(|c| c.send("GET /a HTTP/1.1\r\nHost: weir.test\r\nRange: bytes=0-0\r\n\r\n"));
    for client in &mut clients {
        let stale = client.read_response();
        stale.expect_status(206).expect_body("o");
        let said = stale.header("cache-status").unwrap();
        assert!(
            said.starts_with("weir; hit; ttl=-") && said.ends_with("; detail=stale-while-revalidate"),
            "{said}"
        );
    }
    // Nor does the client's connection wait: it takes the next request.
    client.get("/a").expect_body("old");
    client.get("/a").expect_body("old");
    let fetch = conn.read_request();
    assert_eq!((fetch.head.header("range"), fetch.head.header("if-none-match")), (None, Some("\"e\"")));
    assert_eq!(fetch.head.header("x-behind"), Some("one"), "filters behind the cache see it");
    client.get("/a").expect_body("old");
    conn.send("HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: 3\r\n\r\nnew");
    eventually("the new one is there", || client.get("/a").text() == "new");
    client.get("/a").expect_body("new");
    assert_eq!(upstream.requests().len(), 2);
    let counted = metrics(&weir);
    assert!(counted.contains("weir_cache_refreshed_total{place=\"routes.all\"} 1"), "{counted}");
    // All client requests are counted, the last one perhaps shortly after its answer.
    let requests = || -> u64 {
        let counted = metrics(&weir);
        let mine = counted
            .lines()
            .filter(|line| line.starts_with("weir_requests_total{") && line.contains("route=\"all\""));
        mine.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
    };
    eventually("20 clients and those of the first one are counted", || requests() >= 26);
    assert_eq!(weir.logged("an exchange panicked").len(), 0);
}

/// A 304 makes the object fresh again.
#[test]
fn what_has_not_changed_is_fresh_again() {
    let upstream = Upstream::listen();
    let weir = weir_with(&upstream);
    let (mut client, mut conn) = fill(&weir, &upstream);
    client.get("/a").expect_body("old");
    conn.read_request();
    conn.send("HTTP/1.1 304 Not Modified\r\nCache-Control: max-age=60\r\nETag: \"e\"\r\nX-New: 1\r\n\r\n");
    eventually("it is fresh", || client.get("/a").header("x-new") == Some("1"));
    client.get("/a").expect_body("old");
    assert_eq!(upstream.requests().len(), 2);
}

/// An upstream that fails meanwhile affects no client; it is asked again later.
#[test]
fn a_fetch_that_fails_harms_nobody() {
    let upstream = Upstream::listen();
    let weir = weir_with(&upstream);
    let (mut client, mut conn) = fill(&weir, &upstream);
    client.get("/a").expect_body("old");
    conn.read_request();
    conn.send("HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Length: 3\r\n\r\nbad");
    conn.close();
    for _ in 0..5 {
        client.get("/a").expect_status(200).expect_body("old");
    }
    let mut later = None;
    eventually("it is asked again", || {
        client.get("/a").expect_status(200).expect_body("old");
        later = later.take().or_else(|| upstream.try_accept());
        later.is_some()
    });
    let mut conn = later.unwrap();
    conn.read_request();
    conn.send("HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: 3\r\n\r\nnew");
    eventually("the new one is there", || client.get("/a").text() == "new");
}

/// A HEAD request is answered, and fetches nothing.
#[test]
fn a_head_fetches_nothing() {
    let upstream = Upstream::listen();
    let weir = weir_with(&upstream);
    let (_client, mut conn) = fill(&weir, &upstream);
    let mut head = weir.client();
    head.send("HEAD /a HTTP/1.1\r\nHost: weir.test\r\n\r\n");
    head.read_response_to_head().expect_status(200).expect_header("content-length", "3");
    assert_eq!(upstream.requests().len(), 1);
    let mut plain = weir.client();
    ask(&mut plain, "GET /a", "").expect_body("old");
    let fetch = conn.read_request();
    assert_eq!(fetch.head.header("x-forwarded-for"), Some("127.0.0.1"));
    conn.send("HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nnew\r\n0\r\n\r\n");
    eventually("the new one is there", || plain.get("/a").text() == "new");
}
