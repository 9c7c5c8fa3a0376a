//! Which endpoint and which upstream a request goes to.

use weir_testkit::{Upstream, Weir};

use crate::support::{GET, OK_BODY, WEB, config};

/// Asks n times on one connection, and returns the bodies: the names of the endpoints that answered.
fn answers(weir: &Weir, n: usize) -> Vec<String> {
    let mut client = weir.client();
    (0..n).map(|_| client.get("/").text()).collect()
}

fn count(answers: &[String], name: &str) -> usize {
    answers.iter().filter(|answer| *answer == name).count()
}

#[test]
fn round_robin_takes_turns() {
    let (a, b) = (Upstream::named("a"), Upstream::named("b"));
    let weir = Weir::start(&config(&format!(
        "endpoints: [{}, {}], balancer: round_robin",
        a.address(),
        b.address()
    )));
    let answers = answers(&weir, 6);
    assert!(answers.windows(2).all(|pair| pair[0] != pair[1]), "{answers:?}");
}

#[test]
fn round_robin_is_weighted_and_smooth() {
    let (a, b) = (Upstream::named("a"), Upstream::named("b"));
    let weir = Weir::start(&config(&format!(
        "endpoints: [{{ address: {}, weight: 3 }}, {}], balancer: round_robin",
        a.address(),
        b.address()
    )));
    let answers = answers(&weir, 12);
    assert_eq!((count(&answers, "a"), count(&answers, "b")), (9, 3), "{answers:?}");
    // Smooth: the lighter one is not left to the end of each round.
    assert!(!answers.windows(5).any(|run| run.iter().all(|answer| answer == "a")), "{answers:?}");
}

#[test]
fn p2c_uses_every_endpoint() {
    let (a, b) = (Upstream::named("a"), Upstream::named("b"));
    let weir = Weir::start(&config(&format!("endpoints: [{}, {}]", a.address(), b.address())));
    let answers = answers(&weir, 60);
    assert!(count(&answers, "a") > 5 && count(&answers, "b") > 5, "{answers:?}");
}

#[test]
fn p2c_avoids_the_busy_one() {
    let (stuck, idle) = (Upstream::listen(), Upstream::named("idle"));
    let weir = Weir::start(&config(&format!("endpoints: [{}, {}]", stuck.address(), idle.address())));
    // Requests that hang, until one of them is stuck at the first endpoint.
    let mut waiting = Vec::new();
    let _conn = loop {
        let mut client = weir.client();
        client.send(GET);
        client.set_deadline(std::time::Duration::from_millis(200));
        if client.try_read_response().is_err() {
            waiting.push(client);
            break stuck.accept();
        }
    };
    let answers = answers(&weir, 20);
    assert_eq!(count(&answers, "idle"), 20, "{answers:?}");
}

#[test]
fn ewma_avoids_the_one_that_fails_fast() {
    let (broken, good) = (Upstream::fixed("no response at all\r\n\r\n"), Upstream::named("good"));
    let weir = Weir::start(&config(&format!(
        "endpoints: [{}, {}], balancer: ewma",
        broken.address(),
        good.address()
    )));
    let answers = answers(&weir, 40);
    // Each is tried while nothing is known of it.
    assert_eq!(count(&answers, "good"), 39, "{answers:?}");
}

#[test]
fn upstreams_are_split_by_weight() {
    let (old, new) = (Upstream::named("old"), Upstream::named("new"));
    let weir = Weir::start(&format!(
        "{WEB}\nupstreams:\n  old: {{ endpoints: [{}] }}\n  new: {{ endpoints: [{}] }}\n\
         routes: {{ all: {{ match: {{ path: \"/*\" }}, upstream: {{ old: 80, new: 20 }} }} }}\n",
        old.address(),
        new.address()
    ));
    let answers = answers(&weir, 300);
    let new = count(&answers, "new");
    assert!((20..120).contains(&new), "{new} of 300 went to the new one");
}

#[test]
fn routes_find_their_upstreams() {
    let (a, b) = (Upstream::named("a"), Upstream::named("b"));
    let weir = Weir::start(&format!(
        "{WEB}\nupstreams:\n  a: {{ endpoints: [{}] }}\n  b: {{ endpoints: [{}] }}\n\
         routes:\n  a: {{ match: {{ path: \"/a/*\" }}, upstream: a }}\n  b: {{ match: {{ path: \"/a/b/*\" }}, upstream: b }}\n  \
         hello: {{ match: {{ path: /hello }}, respond: {{ status: 200, body: \"hello\\n\" }} }}\n",
        a.address(),
        b.address()
    ));
    let mut client = weir.client();
    client.get("/a/x").expect_body("a");
    client.get("/a").expect_body("a");
    client.get("/a/b/x").expect_body("b");
    client.get("/a/../a/b").expect_body("b");
    client.get("/hello").expect_body("hello\n");
    client.get("/ax").expect_cause(crate::cause::NO_ROUTE);
    client.get("/hello/x").expect_cause(crate::cause::NO_ROUTE);
}

#[test]
fn an_endpoint_that_comes_back_is_used_again() {
    let upstream = Upstream::listen();
    let weir = Weir::in_front_of(&upstream);
    let mut client = weir.client();
    for _ in 0..3 {
        client.send(GET);
        let mut conn = upstream.accept();
        conn.read_request();
        conn.reset();
        assert_eq!(client.read_response().status, 502);
    }
    client.send(GET);
    let mut conn = upstream.accept();
    conn.read_request();
    conn.send(OK_BODY);
    client.read_response().expect_body("ok");
}
