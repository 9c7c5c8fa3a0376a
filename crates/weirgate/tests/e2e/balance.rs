//! Which endpoint and which upstream a request goes to.

use weir_testkit::{Response, Upstream, Weir};

use crate::support::{GET, OK_BODY, WEB, config};

/// Sends n requests on one connection; returns the bodies, which name the endpoints.
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
    // Smooth: the lighter endpoint does not get its turns only at the end of each round.
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
    // Requests hang until one of them is stuck at the first endpoint.
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
    // Each endpoint gets one try while its health is unknown.
    assert_eq!(count(&answers, "good"), 39, "{answers:?}");
}

/// Sends one request with this header line; returns the name of the endpoint that answered.
fn answer(weir: &Weir, target: &str, line: &str) -> String {
    weir.client().ask(format!("GET {target} HTTP/1.1\r\nHost: weir.test\r\n{line}\r\n")).text()
}

#[test]
fn hash_sends_a_key_to_its_endpoint_and_moves_no_other() {
    let all: Vec<Upstream> = ["a", "b", "c", "d"].map(Upstream::named).into();
    let with = |endpoints: &[&Upstream]| {
        let endpoints: Vec<String> = endpoints.iter().map(|u| u.address().to_string()).collect();
        let hash = "balancer: { hash: { by: \"header:x-user\" } }";
        format!("workers: 2\n{}", config(&format!("endpoints: [{}], {hash}", endpoints.join(", "))))
    };
    let weir = Weir::start(&with(&all.iter().collect::<Vec<_>>()));
    let owners = || (0..60).map(|i| answer(&weir, "/", &format!("X-User: {i}\r\n"))).collect::<Vec<_>>();
    let before = owners();
    assert_eq!(before, owners(), "whichever core it is");
    assert!(["a", "b", "c", "d"].iter().all(|name| count(&before, name) > 0), "{before:?}");
    weir.reload_with(&with(&[&all[0], &all[1], &all[3]])).unwrap();
    for (before, after) in before.iter().zip(owners()) {
        assert!(after != "c" && (*before == after || before == "c"), "{before} to {after}");
    }
    // Requests without a key may go anywhere.
    let keyless: Vec<String> = (0..60).map(|_| answer(&weir, "/", "")).collect();
    assert!(["a", "b", "d"].iter().all(|name| count(&keyless, name) > 0), "{keyless:?}");
}

#[test]
fn hash_goes_by_what_it_is_told() {
    let (a, b) = (Upstream::named("a"), Upstream::named("b"));
    for (by, in_the_key, not_in_it) in [
        ("path", ("/KEY", ""), ("/x?KEY", "")),
        ("query:id", ("/?a=1&id=KEY", ""), ("/KEY?id=", "")),
        ("cookie:sid", ("/", "Cookie: a=b; sid=KEY\r\n"), ("/", "Cookie: sid2=KEY\r\n")),
        ("address", ("/", "X: KEY\r\n"), ("/", "")),
        ("= request.args.id ?? request.cookies.sid", ("/?id=KEY", "Cookie: sid=1\r\n"), ("/?i=KEY", "")),
        ("= request.headers['x-a'].trim()", ("/", "X-A: KEY \r\n"), ("/", "X-B: KEY\r\n")),
    ] {
        let weir = Weir::start(&config(&format!(
            "endpoints: [{}, {}], balancer: {{ hash: {{ by: \"{by}\" }} }}",
            a.address(),
            b.address()
        )));
        let ask = |(target, line): (&str, &str), key: &str| {
            answer(&weir, &target.replace("KEY", key), &line.replace("KEY", key))
        };
        let of = |form| (0..40).map(|i| ask(form, &i.to_string())).collect::<Vec<_>>();
        let (first, second) = (of(in_the_key), of(in_the_key));
        assert_eq!(first, second, "{by}");
        // All of them come from one address.
        let expected = if by == "address" { 0..1 } else { 5..36 };
        let fewer = count(&first, "a").min(count(&first, "b"));
        assert!(expected.contains(&fewer), "{by}: {first:?}");
        if by == "path" {
            assert!(of(not_in_it).windows(2).all(|pair| pair[0] == pair[1]), "the query is not part of it");
        } else if by != "address" {
            assert_ne!(of(not_in_it), of(not_in_it), "{by}: no key, so anywhere");
        }
    }
}

#[test]
fn hash_goes_elsewhere_while_the_endpoint_is_down() {
    let (a, b) = (Upstream::named("a"), Upstream::named("b"));
    let weir = Weir::start(&config(&format!(
        "endpoints: [{}, {}, {}], balancer: {{ hash: {{ by: path }} }}",
        a.address(),
        b.address(),
        weir_testkit::unused_address()
    )));
    let asked: Vec<String> = (0..40).map(|i| answer(&weir, &format!("/{i}"), "")).collect();
    assert!(count(&asked, "a") > 5 && count(&asked, "b") > 5, "{asked:?}");
    let again: Vec<String> = (0..40).map(|i| answer(&weir, &format!("/{i}"), "")).collect();
    assert_eq!(asked, again);
}

#[test]
fn bounded_hash_passes_a_busy_endpoint_over() {
    let (a, b) = (Upstream::listen(), Upstream::listen());
    let weir = Weir::start(&format!(
        "workers: 1\n{}",
        config(&format!(
            "endpoints: [{}, {}], balancer: {{ hash: {{ by: path, bounded: 100% }} }}",
            a.address(),
            b.address()
        ))
    ));
    // Four concurrent requests with the same key: neither of two endpoints gets more than half of them.
    let mut clients: Vec<_> = (0..4).map(|_| weir.client()).collect();
    clients.iter_mut().for_each(|client| client.send(GET));
    let held: Vec<_> = [&a, &a, &b, &b].map(Upstream::accept).into();
    for mut conn in held {
        conn.read_request();
        conn.send(OK_BODY);
    }
    clients.iter_mut().for_each(|client| {
        client.read_response().expect_body("ok");
    });
}

#[test]
fn the_next_priority_takes_what_the_first_cannot_carry() {
    let (a, b) = (Upstream::named("a"), Upstream::named("b"));
    let endpoints = |first: std::net::SocketAddr| {
        format!(
            "workers: 1\n{}",
            config(&format!(
                "endpoints: [{{ address: {}, priority: 1 }}, {}, {first}], balancer: round_robin, keepalive: 0s",
                b.address(),
                a.address()
            ))
        )
    };
    let other = Upstream::named("a");
    let weir = Weir::start(&endpoints(other.address()));
    assert_eq!(count(&answers(&weir, 20), "a"), 20);
    // Half of priority 0 is gone: the rest takes 70 %.
    weir.reload_with(&endpoints(weir_testkit::unused_address())).unwrap();
    answers(&weir, 4);
    let shares = answers(&weir, 200);
    assert!((105..175).contains(&count(&shares, "a")), "{} of 200", count(&shares, "a"));
    drop((a, other));
    let left = answers(&weir, 20);
    assert_eq!(count(&left, "b"), 20, "{left:?}");
}

#[test]
fn the_own_zone_comes_first() {
    let (near, far) = (Upstream::named("near"), Upstream::named("far"));
    let in_zone = |zone: &str| {
        format!(
            "zone: {zone}\n{}",
            config(&format!(
                "endpoints: [{{ address: {}, zone: east }}, {{ address: {}, zone: west }}], keepalive: 0s",
                far.address(),
                near.address()
            ))
        )
    };
    let weir = Weir::start(&in_zone("west"));
    assert_eq!(count(&answers(&weir, 20), "near"), 20);
    weir.reload_with(&in_zone("east")).unwrap();
    assert_eq!(count(&answers(&weir, 20), "far"), 20);
    weir.reload_with(&in_zone("west")).unwrap();
    drop(near);
    let left = answers(&weir, 20);
    assert_eq!(count(&left, "far"), 20, "{left:?}");
}

/// The cookie that an answer sets, in the form that a client returns, and its attributes.
fn cookie_of(answer: &Response) -> Option<(String, String)> {
    let line = answer.header("set-cookie")?;
    let (pair, attributes) = line.split_once("; ").unwrap();
    Some((format!("Cookie: {pair}\r\n"), attributes.to_owned()))
}

#[test]
fn sticky_brings_a_client_back_until_its_endpoint_is_gone() {
    let mut all: Vec<(&str, Upstream)> = ["a", "b", "c"].map(|name| (name, Upstream::named(name))).into();
    let with = |ttl: &str| {
        let endpoints: Vec<String> = all.iter().map(|(_, u)| u.address().to_string()).collect();
        let sticky = format!("keepalive: 0s, sticky: {{ cookie: stick, ttl: {ttl}, key: 0123456789abcdef }}");
        format!("workers: 2\n{}", config(&format!("endpoints: [{}], {sticky}", endpoints.join(", "))))
    };
    let (first, second) = (with("1h"), with("2h"));
    let weir = Weir::start(&first);
    let ask = |weir: &Weir, line: &str| {
        weir.client().ask(format!("GET / HTTP/1.1\r\nHost: weir.test\r\n{line}\r\n"))
    };
    let answer = ask(&weir, "");
    let (cookie, attributes) = cookie_of(&answer).unwrap();
    assert_eq!(attributes, "Path=/; HttpOnly; SameSite=Lax; Max-Age=3600");
    let name = answer.text();
    let owner = all.iter().position(|(known, _)| *known == name).unwrap();
    let address = all[owner].1.address();
    assert!(!cookie.contains(&address.port().to_string()), "{cookie}");
    let returns = |weir: &Weir| {
        for _ in 0..20 {
            let answer = ask(weir, &cookie);
            assert_eq!(cookie_of(&answer), None, "the client knows it");
            assert_eq!(answer.text(), name);
        }
    };
    returns(&weir);
    weir.reload_with(&second).unwrap();
    returns(&weir);
    returns(&Weir::start(&first)); // another gateway with the same key
    // A foreign cookie is ignored and replaced.
    assert!(cookie_of(&ask(&weir, &cookie.replace(|c: char| c.is_ascii_digit(), "0"))).is_some());
    drop(all.remove(owner));
    let moved = ask(&weir, &cookie);
    let (next, _) = cookie_of(&moved).unwrap();
    assert!(moved.status == 200 && moved.text() != name && next != cookie);
    assert_eq!(ask(&weir, &next).text(), moved.text());
}

#[test]
fn a_draining_endpoint_keeps_its_sessions_and_gets_no_new_ones() {
    let all = ["a", "b"].map(Upstream::named);
    let endpoints: Vec<String> = all.iter().map(|u| u.address().to_string()).collect();
    let sticky = "keepalive: 0s, sticky: { cookie: stick, key: 0123456789abcdef }";
    let weir = Weir::start(&format!(
        "workers: 2\n{}",
        config(&format!("endpoints: [{}], {sticky}", endpoints.join(", ")))
    ));
    let ask = |line: &str| weir.client().ask(format!("GET / HTTP/1.1\r\nHost: weir.test\r\n{line}\r\n"));
    let by_hand = |what: &str, at: usize| {
        let args = ["endpoint", what, "up", &endpoints[at], "--admin", &weir.admin()];
        weir_testkit::run_weir(weir.dir(), &args).expect_code(0);
    };
    let first = ask("");
    let (cookie, _) = cookie_of(&first).unwrap();
    let (name, owner) = (first.text(), if first.text() == "a" { 0 } else { 1 });
    by_hand("drain", owner);
    for _ in 0..10 {
        let again = ask(&cookie);
        assert_eq!((again.text(), cookie_of(&again)), (name.clone(), None));
        assert_ne!(ask("").text(), name);
    }
    // With the other endpoint drained too, there is none for new clients, but still one for each session.
    by_hand("drain", 1 - owner);
    ask("").expect_cause(crate::cause::NO_HEALTHY_ENDPOINT);
    ask(&cookie).expect_body(&name);
    by_hand("in", 1 - owner);
    // An endpoint that is taken out keeps none.
    by_hand("out", owner);
    let moved = ask(&cookie);
    assert!(moved.text() != name && cookie_of(&moved).is_some());
    // Nor does one that is both drained and dead.
    by_hand("drain", owner);
    ask(&cookie).expect_body(&name);
    let [a, b] = all;
    let left = if owner == 0 { (drop(a), b).1 } else { (drop(b), a).1 };
    for _ in 0..4 {
        assert_ne!(ask(&cookie).expect_status(200).text(), name);
    }
    drop(left);
}

#[test]
fn sticky_cookies_are_secure_where_the_client_came_by_tls() {
    let a = Upstream::named("a");
    let weir = Weir::start(&format!(
        "trusted_proxies: [127.0.0.1]\n{}",
        config(&format!("endpoints: [{}], sticky: {{ key: 0123456789abcdef }}", a.address()))
    ));
    let said = |line: &str| {
        let request = format!("GET / HTTP/1.1\r\nHost: weir.test\r\n{line}\r\n");
        cookie_of(&weir.client().ask(request)).unwrap().1
    };
    assert_eq!(said("X-Forwarded-Proto: https\r\n"), "Path=/; HttpOnly; SameSite=Lax; Secure");
    assert_eq!(said("X-Forwarded-Proto: http\r\n"), "Path=/; HttpOnly; SameSite=Lax");
}

#[test]
fn one_that_joins_gets_its_share_little_by_little() {
    let (a, b, new) = (Upstream::named("a"), Upstream::named("b"), Upstream::named("new"));
    let with = |endpoints: &[&Upstream]| {
        let endpoints: Vec<String> = endpoints.iter().map(|u| u.address().to_string()).collect();
        config(&format!("endpoints: [{}], balancer: round_robin, slow_start: 1h", endpoints.join(", ")))
    };
    let weir = Weir::start(&format!("workers: 1\n{}", with(&[&a, &b])));
    let before = answers(&weir, 40);
    assert_eq!(count(&before, "a"), 20, "from the start each has its share: {before:?}");
    weir.reload_with(&format!("workers: 1\n{}", with(&[&a, &b, &new]))).unwrap();
    let after = answers(&weir, 300);
    let got = count(&after, "new");
    assert!((1..30).contains(&got), "{got} of 300 instead of 10");
}

#[test]
fn explain_tells_how_an_endpoint_is_chosen() {
    let text = "zone: a\nupstreams:\n  up:\n    endpoints: [{ address: 127.0.0.1:1, weight: 3, zone: a }, { address: 127.0.0.1:2, priority: 1 }]\n    \
                balancer: { hash: { by: \"header:x-user\", bounded: 125% } }\n    sticky: { key: secret-of-the-cookie, ttl: 1h }\n    slow_start: 30s\n";
    let dir = tempfile::TempDir::new().unwrap();
    std::fs::write(dir.path().join("weir.yaml"), format!("{WEB}\n{text}{}\n", crate::support::ALL_TO_UP))
        .unwrap();
    let explained = weir_testkit::run_weir(dir.path(), &["explain", "GET", "/"]);
    explained.expect_code(0).expect_text(
        "hash by header:x-user, bounded by 125%, sticky by cookie weir for 3600s, slow start over 30s, from zone a: \
         127.0.0.1:1 (weight 3, zone a), 127.0.0.1:2 (priority 1)",
    );
    assert!(!format!("{explained:?}").contains("secret-of-the-cookie"));
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
        let conn = upstream.accept_request();
        conn.reset();
        assert_eq!(client.read_response().status, 502);
    }
    client.send(GET);
    let mut conn = upstream.accept_request();
    conn.send(OK_BODY);
    client.read_response().expect_body("ok");
}
