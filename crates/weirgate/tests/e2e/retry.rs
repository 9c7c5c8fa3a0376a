//! The requests that a retry policy repeats, counted at the origin; and endpoints ejected for their answers.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use weir_testkit::{Client, Conn, Upstream, Weir, eventually, refusing_address};

use crate::cause::{RESPONSE_TIMEOUT, UPSTREAM_RESET};
use crate::support::{GET, OK_BODY, config};

const POST: &str = "POST /order HTTP/1.1\r\nHost: weir.test\r\nContent-Length: 4\r\n\r\nbody";
const PUT: &str = "PUT /order HTTP/1.1\r\nHost: weir.test\r\nContent-Length: 4\r\n\r\nbody";
const UNAVAILABLE: &str = "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 3\r\n\r\nbad";

/// A gateway that sends requests to these two in turn, starting with either.
fn in_front_of(bad: &Upstream, good: &Upstream, more: &str) -> Weir {
    let (bad, good) = (bad.address(), good.address());
    Weir::start(&config(&format!("endpoints: [{bad}, {good}], balancer: round_robin, {more}")))
}

#[test]
fn a_listed_status_goes_to_another_endpoint() {
    let (bad, good) = (Upstream::fixed(UNAVAILABLE), Upstream::named("good"));
    let (at_bad, at_good) = (bad.address(), good.address());
    let upstream = format!("endpoints: [{at_bad}, {at_good}], balancer: round_robin, retry: {{ on: [503] }}");
    let weir = Weir::start(&format!("{}access_log: {{ output: stdout }}\n", config(&upstream)));
    let mut client = weir.client();
    for _ in 0..6 {
        client.get("/").expect_status(200).expect_body("good");
    }
    assert_eq!(good.requests().len(), 6);
    assert!((3..=6).contains(&bad.requests().len()), "the balancer chooses who is asked first");
    assert_eq!(bad.connections(), 1, "what answers whole keeps its connection");
    let line = weir.wait_stdout("failed_attempts");
    assert!(line.contains(&format!("\"failed_attempts\":\"{} 503 ", bad.address())), "{line}");
}

#[test]
fn another_zone_is_asked_first() {
    let (one, two, good) =
        (Upstream::fixed(UNAVAILABLE), Upstream::fixed(UNAVAILABLE), Upstream::named("good"));
    let (_closed, refusing) = refusing_address();
    let weir_with = |first: SocketAddr| {
        let endpoints = [(first, "west"), (two.address(), "west"), (good.address(), "east")]
            .map(|(address, zone)| format!("{{ address: {address}, zone: {zone} }}"));
        let retry = "balancer: round_robin, retry: { attempts: 2, on: [503], budget: 100% }";
        Weir::start(&config(&format!("endpoints: [{}], {retry}", endpoints.join(", "))))
    };
    let weir = weir_with(one.address());
    for _ in 0..12 {
        weir.client().get("/").expect_status(200).expect_body("good");
    }
    // A refused connect also moves to the other endpoint, and is no attempt.
    let weir = weir_with(refusing);
    weir.client().get("/").expect_body("good");
}

#[test]
fn a_body_is_sent_again_whole_and_a_post_is_not() {
    let (bad, good) = (Upstream::fixed(UNAVAILABLE), Upstream::named("good"));
    let weir = in_front_of(&bad, &good, "retry: { on: [503] }");
    let mut client = weir.client();
    for _ in 0..4 {
        client.ask(PUT).expect_status(200);
    }
    let seen = good.requests();
    assert!(seen.len() == 4 && seen.iter().all(|request| request.body.bytes == b"body"), "{seen:?}");
    let mut statuses: Vec<u16> = (0..2).map(|_| client.ask(POST).status).collect();
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 503], "one of the two POSTs met the bad one");
    let all = in_front_of(&bad, &good, "retry: { on: [503], methods: all }");
    let mut client = all.client();
    assert!((0..4).all(|_| client.ask(POST).status == 200));
}

#[test]
fn a_body_beyond_its_cap_is_sent_once() {
    let (bad, good) = (Upstream::fixed(UNAVAILABLE), Upstream::named("good"));
    let weir = in_front_of(&bad, &good, "retry: { on: [503], body: 3B }");
    let mut client = weir.client();
    let mut statuses: Vec<u16> = (0..2).map(|_| client.ask(PUT).status).collect();
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 503]);
}

#[test]
fn the_last_answer_is_passed_on_when_attempts_are_spent() {
    let bad = Upstream::fixed(UNAVAILABLE);
    let weir = Weir::start(&config(&format!(
        "endpoints: [{}], retry: {{ attempts: 3, backoff: 1ms, on: [503] }}",
        bad.address()
    )));
    weir.client().get("/").expect_status(503).expect_body("bad");
    assert_eq!(bad.requests().len(), 3);
}

#[test]
fn a_connection_that_ends_is_a_reset() {
    let bad = Upstream::script(|conn| {
        conn.next_request();
    });
    let good = Upstream::named("good");
    let weir = in_front_of(&bad, &good, "retry: { on: [reset] }");
    let mut client = weir.client();
    for _ in 0..4 {
        client.get("/").expect_status(200).expect_body("good");
    }
    let statuses: Vec<u16> = (0..2).map(|_| client.ask(POST).status).collect();
    assert!(statuses.contains(&502), "a POST may have been seen: {statuses:?}");
}

#[test]
fn one_attempt_has_its_own_time() {
    let (stuck, good) = (Upstream::listen(), Upstream::named("good"));
    let weir = in_front_of(&stuck, &good, "retry: { on: [timeout], per_try: 100ms }");
    let mut client = weir.client();
    for _ in 0..2 {
        client.get("/").expect_status(200).expect_body("good");
    }
    // Without a retry left, the response was too late.
    let alone = Weir::start(&config(&format!(
        "endpoints: [{}], retry: {{ attempts: 1, per_try: 50ms }}",
        stuck.address()
    )));
    alone.client().get("/").expect_cause(RESPONSE_TIMEOUT);
}

#[test]
fn an_answer_that_asks_to_wait_for_long_is_passed_on() {
    let busy = Upstream::fixed("HTTP/1.1 503 Busy\r\nRetry-After: 3600\r\nContent-Length: 0\r\n\r\n");
    let weir = Weir::start(&config(&format!("endpoints: [{}], retry: {{ on: [503] }}", busy.address())));
    weir.client().get("/").expect_status(503).expect_header("retry-after", "3600");
    assert_eq!(busy.requests().len(), 1);
}

#[test]
fn a_reset_get_goes_elsewhere_without_a_policy() {
    let resets = || {
        Upstream::script(|conn| {
            conn.next_request();
        })
    };
    let (bad, good) = (resets(), Upstream::named("good"));
    let weir = in_front_of(&bad, &good, "");
    for _ in 0..4 {
        // Each time on a new connection: this is not the keep-alive race.
        weir.client().get("/").expect_status(200).expect_body("good");
    }
    assert!((1..=4).contains(&bad.requests().len()));
    let statuses: Vec<u16> = (0..2).map(|_| weir.client().ask(POST).status).collect();
    assert!(statuses.contains(&502), "a POST may have been seen: {statuses:?}");
    // Once, and not if the config disables retries.
    let all_bad = Weir::start(&config(&format!(
        "endpoints: [{}, {}, {}]",
        bad.address(),
        resets().address(),
        resets().address()
    )));
    let before = bad.requests().len();
    all_bad.client().get("/").expect_status(502);
    assert!(bad.requests().len() - before <= 2);
    let never = in_front_of(&bad, &good, "retry: { attempts: 1 }");
    let statuses: Vec<u16> = (0..2).map(|_| never.client().get("/").status).collect();
    assert!(statuses.contains(&502), "{statuses:?}");
}

#[test]
fn a_reset_put_goes_elsewhere_with_its_body_without_a_policy() {
    let bad = Upstream::script(|conn| {
        conn.next_request();
    });
    let good = Upstream::named("good");
    let weir = in_front_of(&bad, &good, "");
    for _ in 0..2 {
        weir.client().ask(PUT).expect_status(200).expect_body("good");
    }
    assert_eq!(bad.requests().len(), 1, "one of the two was sent there first");
    assert!(good.requests().iter().all(|request| request.body.bytes == b"body"));
}

#[test]
fn a_reset_is_told_where_there_is_one_endpoint() {
    let upstream = Upstream::listen();
    let weir = Weir::in_front_of(&upstream);
    let (mut client, conn) = weir.begin(&upstream, GET);
    conn.reset();
    client.read_response().expect_cause(UPSTREAM_RESET);
    client.send(GET);
    let mut conn = upstream.accept_request();
    conn.send(OK_BODY);
    client.read_response().expect_body("ok");
}

// === Ejection ===

#[test]
fn an_endpoint_that_answers_badly_is_ejected() {
    let (bad, good) = (Upstream::fixed(UNAVAILABLE), Upstream::named("good"));
    let weir = in_front_of(&bad, &good, "health: { outlier: { errors: 3, eject: 1h } }");
    let mut client = weir.client();
    let statuses: Vec<u16> = (0..20).map(|_| client.get("/").status).collect();
    assert_eq!(statuses.iter().filter(|status| **status == 503).count(), 3, "{statuses:?}");
    assert_eq!(bad.requests().len(), 3);
    let line = weir.wait_log("endpoint out of rotation");
    assert_eq!((line.field("reason"), line.field("cause")), (Some("ejected"), Some("errors_in_a_row")));
}

#[test]
fn an_endpoint_comes_back_when_its_time_is_over() {
    let (bad, good) = (Upstream::fixed(UNAVAILABLE), Upstream::named("good"));
    let weir = in_front_of(&bad, &good, "health: { outlier: { errors: 1, eject: 50ms } }");
    let mut client = weir.client();
    while client.get("/").status != 503 {}
    let before = bad.requests().len();
    eventually("it is asked again", || {
        client.get("/");
        bad.requests().len() > before
    });
}

#[test]
fn the_only_endpoint_is_never_ejected() {
    let bad = Upstream::fixed(UNAVAILABLE);
    let weir = Weir::start(&config(&format!(
        "endpoints: [{}], health: {{ outlier: {{ errors: 1, max: 100% }} }}",
        bad.address()
    )));
    let mut client = weir.client();
    for _ in 0..10 {
        client.get("/").expect_status(503).expect_body("bad");
    }
    assert_eq!(bad.requests().len(), 10);
}

#[test]
fn after_an_outage_of_all_every_endpoint_is_asked_again() {
    let (dead, arrived) = <(Arc<AtomicBool>, Arc<AtomicUsize>)>::default();
    dead.store(true, Ordering::SeqCst);
    let all: Vec<Upstream> = (0..4).map(|_| until_dead(&dead, &arrived, Some(UNAVAILABLE))).collect();
    let endpoints: Vec<String> = all.iter().map(|upstream| upstream.address().to_string()).collect();
    let weir = Weir::start(&config(&format!(
        "endpoints: [{}], balancer: round_robin, health: {{ outlier: {{ errors: 3, eject: 1h }} }}",
        endpoints.join(", ")
    )));
    let mut client = weir.client();
    eventually("half of them are ejected", || {
        client.get("/").expect_status(503);
        weir.logged("endpoint out of rotation").len() == 2
    });
    // The other two fail as well, so those two are not to blame.
    for _ in 0..20 {
        client.get("/").expect_status(503);
    }
    dead.store(false, Ordering::SeqCst);
    let seen = || all.iter().map(|upstream| upstream.requests().len()).collect::<Vec<_>>();
    let before = seen();
    eventually("all four are asked", || {
        client.get("/").expect_status(200);
        seen().iter().zip(&before).all(|(now, before)| now > before)
    });
}

// === The budget ===

/// Answers well until `dead` is set, then fails with this answer, or none. Counts requests from then on.
fn until_dead(dead: &Arc<AtomicBool>, arrived: &Arc<AtomicUsize>, fails: Option<&'static str>) -> Upstream {
    let (dead, arrived) = (Arc::clone(dead), Arc::clone(arrived));
    Upstream::script(move |conn| {
        while conn.next_request().is_some() {
            if !dead.load(Ordering::SeqCst) {
                // A reused connection could be found closed, and retries after that race are free.
                let _ = conn.try_send("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok");
                return;
            }
            arrived.fetch_add(1, Ordering::SeqCst);
            if fails.is_none_or(|answer| conn.try_send(answer).is_err()) {
                return;
            }
        }
    })
}

#[test]
fn an_outage_after_health_is_not_multiplied() {
    let asked = "retry: { attempts: 3, on: [reset, 503] }";
    for (policy, fails) in [(asked, Some(UNAVAILABLE)), (asked, None), ("", None)] {
        let (dead, arrived) = <(Arc<AtomicBool>, Arc<AtomicUsize>)>::default();
        let [one, two] = [(); 2].map(|()| until_dead(&dead, &arrived, fails));
        let endpoints = format!("endpoints: [{}, {}], {policy}", one.address(), two.address());
        let weir = Weir::start(&format!("workers: 2\n{}", config(&endpoints)));
        let mut clients = [weir.client(), weir.client()];
        for i in 0..1_000 {
            clients[i % 2].get("/").expect_status(200);
        }
        let healthy = Instant::now();
        eventually("a second has passed", || healthy.elapsed().as_millis() > 1_100);
        dead.store(true, Ordering::SeqCst);
        let began = Instant::now();
        for i in 0..400 {
            assert!(clients[i % 2].get("/").status >= 502);
        }
        let seconds = began.elapsed().as_secs() as usize + 1;
        let (arrived, allowed) = (arrived.load(Ordering::SeqCst), 400 + 400 / 5 + 3 * seconds);
        assert!(arrived <= allowed, "{arrived} attempts for 400 requests in {seconds} s: {policy}");
        assert!(arrived > 400, "the budget is used: {policy}");
    }
}

/// A GET that its only endpoint has been asked twice: again after 10 ms.
struct Twice {
    weir: Weir,
    upstream: Upstream,
    client: Client,
    first: Conn,
    second: Conn,
}

impl Twice {
    #[track_caller]
    fn asked(settings: &str) -> Self {
        let upstream = Upstream::listen();
        let endpoints = format!("endpoints: [{}]", upstream.address());
        let hedge = "hedge: { after: 10ms, budget: 100% }";
        let weir = Weir::start(&config(&format!("{endpoints}, {settings} {hedge}")));
        let (client, first) = weir.begin(&upstream, GET);
        let second = upstream.accept_request();
        Self { weir, upstream, client, first, second }
    }
}

#[test]
fn hedges_and_retries_share_one_count_of_attempts() {
    for (retry, expected) in [("", 2), ("retry: { attempts: 3, on: [reset, 503] },", 3)] {
        let Twice { weir: _weir, upstream, mut client, first, second } = Twice::asked(retry);
        first.reset();
        second.reset();
        if expected == 3 {
            let third = upstream.accept_request();
            third.reset();
        }
        client.read_response().expect_cause(UPSTREAM_RESET);
        assert_eq!(upstream.requests().len(), expected, "{retry}");
    }
}

// === Hedging ===

/// Two endpoints: the first stays silent until told to answer, the second answers immediately. `round_robin` starts
/// with either.
fn hedged(slow: &Upstream, good: &Upstream, more: &str) -> Weir {
    let (slow, good) = (slow.address(), good.address());
    let upstream = config(&format!("endpoints: [{slow}, {good}], balancer: round_robin, {more}"));
    Weir::start(&format!("{upstream}access_log: {{ output: stdout }}\n"))
}

fn metrics(weir: &Weir) -> String {
    weir.admin_client().ask(format!("GET /metrics HTTP/1.1\r\nHost: {}\r\n\r\n", weir.admin())).text()
}

fn status(weir: &Weir) -> String {
    weir.admin_client().ask(format!("GET /status HTTP/1.1\r\nHost: {}\r\n\r\n", weir.admin())).text()
}

/// The value of a series.
fn sample(metrics: &str, series: &str) -> usize {
    let value = metrics.lines().find_map(|line| line.strip_prefix(series)).map(str::trim);
    value.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no {series} in\n{metrics}"))
}

#[test]
fn another_endpoint_answers_in_place_of_a_slow_one() {
    let (slow, good) = (Upstream::listen(), Upstream::named("good"));
    let weir = hedged(&slow, &good, "hedge: { after: 20ms, budget: 100% }");
    let mut client = weir.client();
    for request in [GET, PUT, GET, PUT] {
        client.ask(request).expect_status(200).expect_body("good");
    }
    let seen = good.requests();
    assert_eq!(seen.iter().filter(|request| request.body.bytes == b"body").count(), 2, "{seen:?}");
    // The superseded attempt is dropped and reported.
    let mut conn = slow.accept_request();
    conn.expect_close();
    let line = weir.wait_stdout("canceled");
    assert!(line.contains(&format!("\"failed_attempts\":\"{} canceled ", slow.address())), "{line}");
    let metrics = metrics(&weir);
    // The balancer decides which requests try the slow one first.
    let hedges = sample(&metrics, "weir_upstream_hedges_total{upstream=\"up\"}");
    assert!((1..=4).contains(&hedges), "{hedges}");
    for (series, expected) in [
        ("weir_upstream_hedges_won_total{upstream=\"up\"}", hedges),
        ("weir_upstream_attempts_total{upstream=\"up\",outcome=\"canceled\"}", hedges),
        ("weir_upstream_attempts_total{upstream=\"up\",outcome=\"answered\"}", 4),
    ] {
        assert_eq!(sample(&metrics, series), expected, "{series}");
    }
}

#[test]
fn a_slow_answer_wins_over_a_bad_one() {
    let Twice { weir, upstream: _upstream, mut client, mut first, mut second } = Twice::asked("");
    second.send(UNAVAILABLE);
    second.expect_close(); // it was read, and dropped
    first.send(OK_BODY);
    client.read_response().expect_status(200).expect_body("ok");
    assert!(metrics(&weir).contains("weir_upstream_hedges_won_total{upstream=\"up\"} 0"));
}

#[test]
fn an_error_that_loses_counts_at_its_endpoint() {
    for second_is_bad in [false, true] {
        let Twice { weir, upstream: _upstream, mut client, mut first, mut second } = Twice::asked("");
        let (bad, good) = if second_is_bad { (&mut second, &mut first) } else { (&mut first, &mut second) };
        bad.send(UNAVAILABLE);
        if second_is_bad {
            bad.expect_close(); // it was read, and dropped
        }
        good.send(OK_BODY);
        client.read_response().expect_status(200).expect_body("ok");
        let status: serde_json::Value = serde_json::from_str(&status(&weir)).unwrap();
        let endpoint = &status["upstreams"]["up"]["endpoints"][0];
        assert_eq!((&endpoint["errors"], &endpoint["answered"]), (&1.into(), &2.into()), "{endpoint}");
    }
}

#[test]
fn a_post_is_never_hedged() {
    let (slow, good) = (Upstream::listen(), Upstream::named("good"));
    let weir = hedged(&slow, &good, "hedge: { after: 1ms, budget: 100% }, timeouts: { response: 100ms }");
    // Without a body, only the method forbids it.
    for (i, post) in
        [POST, "POST /order HTTP/1.1\r\nHost: weir.test\r\nContent-Length: 0\r\n\r\n"].into_iter().enumerate()
    {
        let mut statuses: Vec<u16> = (0..2).map(|_| weir.client().ask(post).status).collect();
        statuses.sort_unstable();
        assert_eq!((statuses, good.requests().len()), (vec![200, 504], i + 1));
    }
    assert!(metrics(&weir).contains("weir_upstream_hedges_total{upstream=\"up\"} 0"));
}

#[test]
fn a_budget_bounds_the_second_attempts() {
    let (slow, good) = (Upstream::listen(), Upstream::named("good"));
    let weir = hedged(&slow, &good, "hedge: { after: 1ms, budget: 1% }, timeouts: { response: 50ms }");
    let late = (0..10).filter(|_| weir.client().get("/").status == 504).count();
    let metrics = metrics(&weir);
    let of = |name: &str| sample(&metrics, &format!("weir_upstream_{name}_total{{upstream=\"up\"}}"));
    // Three tokens exist at the start; at least half of the requests tried the slow one first.
    assert!((1..=7).contains(&late), "{late}");
    assert_eq!(of("hedges"), 3);
    assert!(of("hedges_refused") >= late, "on a busy machine the good one is late for its millisecond too");
}

#[test]
fn the_only_endpoint_is_asked_twice() {
    let Twice { weir: _weir, upstream: _upstream, mut client, mut first, mut second } = Twice::asked("");
    second.send(OK_BODY);
    client.read_response().expect_status(200).expect_body("ok");
    first.expect_close();
}

#[test]
fn a_failed_first_attempt_leaves_it_to_the_second() {
    let Twice { weir: _weir, upstream: _upstream, mut client, first, mut second } = Twice::asked("");
    first.reset();
    second.send(OK_BODY);
    client.read_response().expect_status(200).expect_body("ok");
}
