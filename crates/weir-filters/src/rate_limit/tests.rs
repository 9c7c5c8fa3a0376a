//! Limits against a brute-force oracle, with all settings, across cores and across reloads.

use super::super::testing::Stand;
use super::gcra::Rate;
use super::table::Key;
use super::*;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;

const MILLI: Time = SECOND / 1000;

/// The oracle: a bucket of tokens, counted in exact fractions. It shares no code with GCRA.
struct Bucket {
    /// Tokens times the length of `per`.
    level: u128,
    full: u128,
    at: Time,
    requests: u128,
    per: u128,
}

impl Bucket {
    fn new(requests: u32, per: u64, burst: u32) -> Self {
        let (per, requests) = (u128::from(per), u128::from(requests));
        let full = u128::from(burst) * per;
        Self { level: full, full, at: 0, requests, per }
    }

    fn take(&mut self, now: Time) -> bool {
        let refill = u128::from(now - self.at) * self.requests;
        self.level = self.full.min(self.level + refill);
        self.at = now;
        let allowed = self.level >= self.per;
        if allowed {
            self.level -= self.per;
        }
        allowed
    }
}

fn rate(requests: u32, per: Time, burst: u32) -> Rate {
    Rate::new(requests, std::time::Duration::from_nanos(per / 16), burst).unwrap()
}

fn allowed(decision: Decision) -> bool {
    matches!(decision, Decision::Allowed { .. })
}

#[test]
fn decides_as_a_bucket_of_tokens_does() {
    // Rates with a whole interval, so that both count the same.
    for (requests, per, burst) in
        [(1, SECOND, 1), (10, SECOND, 10), (100, SECOND, 7), (5, 60 * SECOND, 20), (1000, MILLI * 500, 1)]
    {
        let (rate, cell, table) = (rate(requests, per, burst), Cell::default(), Table::new(64));
        let key = table.key("a");
        let mut bucket = Bucket::new(requests, per, burst);
        let (mut random, mut now) = (fastrand::Rng::with_seed(u64::from(requests)), 1);
        for i in 0..20_000 {
            now += random.u64(..if i % 100 == 0 { 3 * rate.window } else { 2 * rate.interval });
            let expected = bucket.take(now);
            assert_eq!(allowed(cell.charge(&rate, now)), expected, "{requests} {burst} at {i}");
            assert_eq!(allowed(table.charge(key, &rate, now)), expected, "table: {requests} {burst} at {i}");
        }
    }
}

#[test]
fn never_more_than_the_limit_where_the_interval_is_no_whole_number() {
    for requests in [3, 7, 99_999, 999_983] {
        let (rate, cell) = (rate(requests, SECOND, 1), Cell::default());
        let mut bucket = Bucket::new(requests, SECOND, 1);
        let (mut now, mut passed) = (1, 0);
        while now < SECOND / 10 {
            if allowed(cell.charge(&rate, now)) {
                assert!(bucket.take(now), "{requests} at {now}");
                passed += 1;
            }
            now += rate.interval / 8 + 1;
        }
        assert!(passed * 100 > requests / 10 * 80, "{requests}: {passed} in a tenth of a second");
    }
}

#[test]
fn burst_and_refill_boundaries() {
    let (rate, cell) = (rate(10, SECOND, 3), Cell::default());
    let start = 5 * SECOND;
    for left in [2, 1, 0] {
        let Decision::Allowed { used } = cell.charge(&rate, start) else { panic!("refused at {left}") };
        assert_eq!(rate.remaining(used), left);
    }
    let denied = Decision::Denied { used: 300 * MILLI, wait: 100 * MILLI };
    assert_eq!(cell.charge(&rate, start), denied);
    assert_eq!(
        cell.charge(&rate, start + 100 * MILLI - 1),
        Decision::Denied { used: 200 * MILLI + 1, wait: 1 }
    );
    assert!(allowed(cell.charge(&rate, start + 100 * MILLI)));
    assert!(!allowed(cell.charge(&rate, start + 100 * MILLI)));
    // A long pause brings back only the burst.
    let late = start + 1000 * SECOND;
    assert_eq!((0..10).filter(|_| allowed(cell.charge(&rate, late))).count(), 3);
    // A core whose clock reading is slightly older changes nothing.
    assert!(!allowed(cell.charge(&rate, late - 5)));
}

#[test]
fn four_threads_share_one_cell_exactly() {
    let (rate, cell, passed) = (rate(1000, SECOND, 100), Cell::default(), AtomicU64::new(0));
    for (now, expected) in [(SECOND, 100), (SECOND + 50 * MILLI, 50), (9 * SECOND, 100)] {
        passed.store(0, Relaxed);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let mine = (0..5000).filter(|_| allowed(cell.charge(&rate, now))).count();
                    passed.fetch_add(mine as u64, Relaxed);
                });
            }
        });
        assert_eq!(passed.load(Relaxed), expected, "at {now}");
    }
}

#[test]
fn four_threads_share_one_table_exactly() {
    const KEYS: u64 = 200;
    let rate = rate(5, SECOND, 5);
    // Few buckets for many rounds of new keys: every slot changes its owner many times, always after it has expired.
    let table = Table::new(4096).with_patience(u32::MAX);
    for round in 0..40 {
        let now = SECOND + round * 10 * SECOND;
        let keys: Vec<_> = (0..KEYS).map(|k| table.key((round, k))).collect();
        let passed: Vec<AtomicU64> = (0..KEYS).map(|_| AtomicU64::new(0)).collect();
        thread::scope(|scope| {
            for thread in 0..4 {
                let (table, keys, passed) = (&table, &keys, &passed);
                scope.spawn(move || {
                    // First all in the same order, so that all threads insert the same keys at the same time; then in
                    // random order.
                    let mut random = fastrand::Rng::with_seed(round * 4 + thread);
                    let ordered = 0..KEYS;
                    for k in ordered.chain((0..4000).map(|_| random.u64(..KEYS))) {
                        if allowed(table.charge(keys[k as usize], &rate, now)) {
                            passed[k as usize].fetch_add(1, Relaxed);
                        }
                    }
                });
            }
        });
        for (k, passed) in passed.iter().enumerate() {
            let passed = passed.load(Relaxed);
            assert_eq!(passed, 5, "round {round}: key {k}");
        }
    }
}

#[test]
fn four_threads_insert_into_one_bucket_exactly() {
    // The worst case for claims: every insertion meets the others in the same eight slots.
    let rate = rate(3, SECOND, 3);
    let table = Table::new(8).with_patience(u32::MAX);
    for round in 0..2000 {
        let now = SECOND + round * 10 * SECOND;
        let keys: Vec<_> = (0..4).map(|k| table.key((round, k))).collect();
        let passed: [AtomicU64; 4] = Default::default();
        thread::scope(|scope| {
            for thread in 0..4 {
                let (table, keys, passed) = (&table, &keys, &passed);
                scope.spawn(move || {
                    for i in 0..16 {
                        // Clocks differ slightly between cores: a slot that has expired for one has not for another.
                        let k = (i / 2 + thread) % 4;
                        if allowed(table.charge(keys[k], &rate, now + thread as u64)) {
                            passed[k].fetch_add(1, Relaxed);
                        }
                    }
                });
            }
        });
        assert_eq!(passed.map(AtomicU64::into_inner), [3; 4], "round {round}");
    }
}

#[test]
fn a_full_bucket_forgets_who_has_used_least() {
    let rate = rate(20, SECOND, 20);
    let table = Table::new(8);
    let keys: Vec<_> = (0..17).map(|k| table.key(k)).collect();
    for (k, key) in keys[..16].iter().enumerate() {
        for _ in 0..=k {
            assert!(allowed(table.charge(*key, &rate, SECOND)));
        }
    }
    let first = |key: Key| match table.charge(key, &rate, SECOND) {
        Decision::Allowed { used } => used == rate.interval,
        Decision::Denied { .. } => false,
    };
    assert!(first(keys[16]), "a new key passes");
    assert!(!first(keys[15]), "who has used most is still known");
    assert!(first(keys[0]), "who had used least begins anew");
}

/// With as many active clients as `keys` says, none is evicted.
#[test]
fn a_table_holds_as_many_keys_as_it_is_for() {
    let rate = rate(10, SECOND, 10);
    for keys in [8, 9, 100, 3000, 65_536] {
        let table = Table::new(keys);
        for second in 1..=2 {
            for k in 0..keys {
                let Decision::Allowed { used } = table.charge(table.key(k), &rate, SECOND) else {
                    panic!("{k} of {keys}")
                };
                assert_eq!(used, second * rate.interval, "client {k} of {keys} was forgotten");
            }
        }
    }
}

#[test]
fn expired_slots_are_used_again_before_anyone_is_forgotten() {
    let rate = rate(10, SECOND, 10);
    let table = Table::new(8);
    let heavy = table.key("heavy");
    for _ in 0..10 {
        assert!(allowed(table.charge(heavy, &rate, SECOND)));
    }
    // Each of these expires after 100 ms, so six slots are in use at a time; the heavy key keeps its debt for a
    // second.
    for k in 0..50 {
        let now = SECOND + k * 18 * MILLI;
        assert!(allowed(table.charge(table.key(k), &rate, now)));
    }
    let used = |d| match d {
        Decision::Allowed { used } | Decision::Denied { used, .. } => used,
    };
    assert!(used(table.charge(heavy, &rate, SECOND)) > 9 * rate.interval, "the heavy one is still known");
}

#[test]
fn a_claim_that_never_ends_stops_nobody() {
    let rate = rate(1, SECOND, 1);
    let table = Table::new(8).with_patience(3);
    let [a, b] = ["a", "b"].map(|k| table.key(k));
    table.claim_for_ever(a);
    assert!(allowed(table.charge(a, &rate, SECOND)));
    assert!(!allowed(table.charge(a, &rate, SECOND)), "who has a slot is counted");
    assert!(allowed(table.charge(b, &rate, SECOND)));
    assert!(!allowed(table.charge(b, &rate, SECOND)), "and a new key finds one");
}

fn burst_of(settings: Value) -> Stand {
    Stand::new(&KIND, settings)
}

async fn passes(running: &super::super::testing::Running, request: &str) -> bool {
    matches!(running.request(request).await.flow, Flow::Continue)
}

#[tokio::test]
async fn answers_tell_of_the_limit() {
    let running = burst_of(json!({ "requests": 2, "per": "1h" })).build();
    let mut exchange = running.request("GET /").await;
    let response = exchange.expect_continue().response("200");
    response.expect_header("ratelimit-policy", "\"default\";q=2;w=3600");
    response.expect_header("ratelimit", "\"default\";r=1;t=1800");
    running.request("GET /").await.response("500").expect_header("ratelimit", "\"default\";r=0;t=3600");
    let mut refused = running.request("GET /").await;
    refused
        .expect_status(429)
        .expect_cause(&RATE_LIMITED)
        .expect_header("retry-after", "1800")
        .expect_header("ratelimit-policy", "\"default\";q=2;w=3600")
        .expect_header("ratelimit", "\"default\";r=0;t=3600");
    refused.response("429").expect_no_header("ratelimit");
}

#[tokio::test]
async fn fields_can_be_off() {
    let mut stand = burst_of(json!({ "requests": 1, "per": "1h", "headers": false }));
    let running = stand.build();
    running.request("GET /").await.response("200").expect_no_header("ratelimit");
    running.request("GET /").await.expect_status(429).expect_no_header("ratelimit");
}

#[tokio::test]
async fn limits_side_by_side_have_names() {
    let at = |scope: &str| burst_of(json!({ "requests": 9, "per": "500ms" })).scope(scope).build();
    for (scope, policy) in
        [("plans.gold", "\"plan\";q=9"), ("routes.a", "\"default\";q=9"), ("filters", "\"global\";q=9")]
    {
        let mut exchange = at(scope).request("GET /").await;
        exchange.response("200").expect_header("ratelimit-policy", policy);
        // A second limit adds its fields to those of the first.
        let response = exchange.response("200\nRateLimit-Policy: \"other\";q=1");
        assert_eq!(response.head.headers.get_all("ratelimit-policy").count(), 2);
    }
    let named = burst_of(json!({ "requests": 9, "per": "1s", "name": "hourly" })).build();
    named.request("GET /").await.response("200").expect_header("ratelimit", "\"hourly\";r=8;t=1");
}

#[tokio::test]
async fn addresses() {
    let running = burst_of(json!({ "requests": 1, "per": "1h", "by": "address" })).build();
    for (client, expected) in [
        ("192.0.2.1", true),
        ("192.0.2.1", false),
        ("::ffff:192.0.2.1", false),
        ("192.0.2.2", true),
        ("2001:db8::1", true),
        ("2001:db8::ffff:2", false),
        ("2001:db8:0:1::1", true),
    ] {
        assert_eq!(passes(&running.from(client), "GET /").await, expected, "{client}");
    }
    let wide = burst_of(json!({ "requests": 1, "per": "1h", "by": "address", "ipv6_prefix": 48 })).build();
    assert!(passes(&wide.from("2001:db8::1"), "GET /").await);
    assert!(!passes(&wide.from("2001:db8:0:1::1"), "GET /").await);
    let exact = burst_of(json!({ "requests": 1, "per": "1h", "by": "address", "ipv6_prefix": 128 })).build();
    assert!(passes(&exact.from("2001:db8::1"), "GET /").await);
    assert!(passes(&exact.from("2001:db8::2"), "GET /").await);
}

#[tokio::test]
async fn headers_and_routes() {
    let running = burst_of(json!({ "requests": 1, "per": "1h", "by": "header:X-Tenant" })).build();
    for (request, expected) in [
        ("GET /\nx-tenant: a", true),
        ("GET /\nX-Tenant: a", false),
        ("GET /\nx-tenant: b", true),
        ("GET /", true),
        ("GET /", false),
    ] {
        assert_eq!(passes(&running, request).await, expected, "{request}");
    }
    assert!(passes(&running.from("192.0.2.9"), "GET /").await, "without the header the address counts");
    for scope in ["routes.a", "filters"] {
        let running = burst_of(json!({ "requests": 1, "per": "1h", "by": "route" })).scope(scope).build();
        assert!(passes(&running, "GET /").await);
        assert!(!passes(&running.from("192.0.2.9"), "GET /").await, "{scope}");
    }
}

#[tokio::test]
async fn consumers() {
    let consumer = |name: &str| Consumer { name: name.to_owned(), ..Consumer::default() };
    let mut stand = burst_of(json!({ "requests": 1, "per": "1h" })).consumer(consumer("a")).named();
    let running = stand.build();
    assert!(passes(&running, "GET /").await);
    assert!(!passes(&running.from("192.0.2.9"), "GET /").await);
    // After a reload that puts another consumer first, `a` is still known by name; the new consumer starts from zero.
    stand = stand.consumers(vec![consumer("b"), consumer("a")]).named();
    assert!(!passes(&stand.build(), "GET /").await);
    stand = stand.consumers(vec![consumer("a"), consumer("b")]).named();
    assert!(passes(&stand.build(), "GET /").await);
    let nobody = burst_of(json!({ "requests": 1, "per": "1h" })).consumer(consumer("a")).build();
    assert!(passes(&nobody, "GET /").await);
    assert!(!passes(&nobody, "GET /").await);
    assert!(passes(&nobody.from("192.0.2.9"), "GET /").await);
    // A number that no consumer has is counted by address.
    let unknown = burst_of(json!({ "requests": 1, "per": "1h" })).consumer(consumer("a")).named();
    let unknown = unknown.consumers(Vec::new()).build();
    assert!(passes(&unknown, "GET /").await);
    assert!(!passes(&unknown, "GET /").await);
    assert!(passes(&unknown.from("192.0.2.9"), "GET /").await);
}

#[tokio::test]
async fn counters_survive_a_reload() {
    let mut stand = burst_of(json!({ "requests": 1, "per": "1h", "by": "address" }));
    assert!(passes(&stand.build(), "GET /").await);
    assert!(!passes(&stand.build(), "GET /").await);
}

#[test]
fn the_resolved_settings_are_complete() {
    let settings = burst_of(json!({ "requests": 5, "per": "60s" })).build().settings;
    let expected = json!({
        "requests": 5, "per": "1m", "burst": 5, "by": "consumer", "cost": 1, "ipv6_prefix": 64, "keys": 65536,
        "headers": true, "name": null, "store": null, "without_store": null, "strict": false, "lease": null
    });
    assert_eq!(settings, expected);
}

#[test]
fn mistakes() {
    for (settings, expected) in [
        (json!({ "per": "1s" }), "requests"),
        (json!({ "requests": 1 }), "per"),
        (json!({ "requests": 0, "per": "1s" }), "above zero"),
        (json!({ "requests": 1, "per": "1" }), "duration"),
        (json!({ "requests": 1, "per": "0s" }), "out of range"),
        (json!({ "requests": 4_000_000_000u32, "per": "1s" }), "out of range"),
        (json!({ "requests": 1, "per": "365d", "burst": 4_000_000_000u32 }), "out of range"),
        (json!({ "requests": 1, "per": "1s", "by": "header:a b" }), "not a header name"),
        (json!({ "requests": 1, "per": "1s", "by": "ip" }), "expected address"),
        (json!({ "requests": 1, "per": "1s", "ipv6_prefix": 0 }), "write 64"),
        (json!({ "requests": 1, "per": "1s", "keys": 1 }), "65536"),
        (json!({ "requests": 1, "per": "1s", "name": "a\"b" }), "letters"),
        (json!({ "requests": 1, "per": "1s", "name": "a".repeat(257) }), "at most 256"),
        (json!({ "requests": 1, "per": "1s", "limit": 1 }), "unknown key"),
        (json!({ "requests": 1, "per": "week" }), "day or month"),
        (json!({ "requests": 1, "per": "day", "burst": 5 }), "quota has no burst"),
        (json!({ "requests": 3, "per": "1s", "cost": 4 }), "at most 3"),
        (json!({ "requests": 3, "per": "1s", "cost": 0 }), "header:NAME"),
        (json!({ "requests": 3, "per": "1s", "cost": "x-cost" }), "header:NAME"),
        (json!({ "limits": [] }), "limits nothing"),
        (json!({ "requests": 1, "per": "1s", "limits": [{ "requests": 1, "per": "1s" }] }), "two places"),
        (
            json!({ "limits": [{ "requests": 1, "per": "1s", "name": "a" }, { "requests": 1, "per": "day", "name": "a" }] }),
            "called `a`",
        ),
        (json!({ "limits": [{ "requests": 1, "per": "1s" }], "burst": 2 }), "into the list"),
        (json!({ "requests": 1, "per": "1s", "by": "{usr}" }), "not a placeholder"),
    ] {
        let mistakes = burst_of(settings.clone()).mistakes();
        assert!(mistakes[0].contains(expected), "{settings}: {mistakes:#?}");
        assert_eq!(mistakes.len(), 1, "{settings}: {mistakes:#?}");
    }
}

// === Several limits, costs, quotas ===

#[tokio::test]
async fn several_limits_take_all_or_nothing() {
    let limits = json!([{ "requests": 3, "per": "1h", "name": "few" }, { "requests": 100, "per": "day" }]);
    let running = burst_of(json!({ "limits": limits, "by": "address" })).build();
    let mut exchange = running.request("GET /").await;
    let response = exchange.expect_continue().response("200");
    let policies: Vec<_> = response.head.headers.get_all("ratelimit-policy").collect();
    assert_eq!(policies, [&b"\"few\";q=3;w=3600"[..], b"\"default-2\";q=100;w=86400"]);
    let left = |response: &super::super::testing::Response| {
        let all = response.head.headers.get_all("ratelimit");
        all.map(|v| String::from_utf8_lossy(v).split(';').nth(1).unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(left(&response), ["r=2", "r=99"]);
    for _ in 0..2 {
        assert!(passes(&running, "GET /").await);
    }
    for _ in 0..10 {
        let mut refused = running.request("GET /").await;
        refused
            .expect_status(429)
            .expect_cause(&RATE_LIMITED)
            .expect_header("ratelimit-policy", "\"few\";q=3;w=3600");
    }
    // A refused request takes nothing from the other limit either.
    let daily = &json!([{ "requests": 3, "per": "1h" }, { "requests": 4, "per": "month", "name": "m" }]);
    let running = burst_of(json!({ "limits": daily, "by": "address", "cost": 2 })).build();
    assert!(passes(&running, "GET /").await);
    for _ in 0..5 {
        running.request("GET /").await.expect_cause(&RATE_LIMITED);
    }
    let spot = running.from("192.0.2.200").request("GET /").await.response("200");
    assert_eq!(left(&spot), ["r=1", "r=2"]);
}

#[tokio::test]
async fn costs_are_taken_at_once_or_afterwards() {
    let running = burst_of(json!({ "requests": 10, "per": "1h", "cost": 4 })).build();
    running.request("GET /").await.response("200").expect_header("ratelimit", "\"default\";r=6;t=1440");
    assert!(passes(&running, "GET /").await);
    let mut refused = running.request("GET /").await;
    refused.expect_status(429).expect_header("retry-after", "720"); // two more must come back

    for by in ["address", "route"] {
        let running =
            burst_of(json!({ "requests": 10, "per": "1h", "cost": "header:x-cost", "by": by })).build();
        let told = async |fields: &str| {
            let mut exchange = running.request("GET /").await;
            let response = exchange.expect_continue().response(&format!("200\n{fields}"));
            response.expect_no_header("x-cost");
            let limit = response.head.headers.get_str("ratelimit").unwrap().to_vec();
            String::from_utf8(limit).unwrap().split(';').nth(1).unwrap().to_owned()
        };
        assert_eq!(told("X-Cost: 3").await, "r=7");
        assert_eq!(told("x-cost: 0").await, "r=7", "it gives its one back");
        assert_eq!(told("x-cost: nonsense").await, "r=6");
        assert_eq!(told("").await, "r=5");
        assert_eq!(told("x-cost: 8").await, "r=0", "more than there is");
        let mut refused = running.request("GET /").await;
        refused.expect_status(429).expect_header("retry-after", "1440"); // 13 of 10 are taken, one must fit
        assert_eq!(refused.header("ratelimit"), ["\"default\";r=0;t=4680"]);
    }
}

#[test]
fn a_debt_has_an_end() {
    let rate = rate(10, SECOND, 10);
    let cell = Cell::default();
    assert_eq!(cell.force(&rate, u64::MAX / 4, 5 * SECOND), 10 * SECOND);
    let table = Table::new(8);
    let key = table.key("a");
    assert_eq!(table.force(key, &rate, u64::MAX / 4, 5 * SECOND), 10 * SECOND);
}

#[test]
fn a_key_that_lost_its_slot_pays_all_the_same() {
    let rate = rate(10, SECOND, 10);
    let table = Table::new(8);
    let key = table.key("slow");
    assert_eq!(table.force(key, &rate, 5 * rate.interval, SECOND), 5 * rate.interval);
    table.refund(table.key("nobody"), rate.interval);
}

#[test]
fn a_quota_comes_back_with_its_span_and_not_before() {
    let quota = Rate::quota(5, std::time::Duration::from_secs(86_400));
    let (day, cell, table) = (86_400 * SECOND, Cell::default(), Table::new(8));
    let key = table.key("a");
    for begins in [40 * day, 41 * day, 42 * day] {
        for nth in 0..9 {
            assert_eq!(allowed(cell.charge(&quota, begins)), nth < 5, "{nth}");
            assert_eq!(allowed(table.charge(key, &quota, begins)), nth < 5, "{nth}");
        }
    }
}

#[tokio::test]
async fn quotas_have_a_cause_of_their_own() {
    for (per, window) in [("day", ";w=86400"), ("month", "")] {
        let running = burst_of(json!({ "requests": 1, "per": per })).build();
        assert!(passes(&running, "GET /").await);
        let mut refused = running.request("GET /").await;
        refused.expect_status(429).expect_cause(&QUOTA_EXCEEDED);
        refused.expect_header("ratelimit-policy", &format!("\"default\";q=1{window}"));
        let seconds: u64 = refused.header("retry-after")[0].parse().unwrap();
        assert!((1..=31 * 86_400).contains(&seconds), "{seconds}");
    }
}

#[tokio::test]
async fn texts_with_placeholders_tell_clients_apart() {
    let running = burst_of(json!({ "requests": 1, "per": "1h", "by": "{client} {path}" })).build();
    assert!(passes(&running, "GET /a").await);
    assert!(!passes(&running, "GET /a?b").await);
    assert!(passes(&running, "GET /b").await);
    assert!(passes(&running.from("192.0.2.9"), "GET /a").await);

    let by = "{header:x-tenant}/{cookie:plan}/{query:user}";
    let running = burst_of(json!({ "requests": 1, "per": "1h", "by": by })).build();
    for (request, fine) in [
        ("GET /?user=a%62c\nX-Tenant: a\nCookie: x=1; plan=gold", true),
        ("GET /other?b=1&user=abc\nX-Tenant: a\nCookie: plan=gold", false),
        ("GET /?user=abc\nX-Tenant: b\nCookie: plan=gold", true),
        ("GET /?user=abc\nX-Tenant: a\nCookie: plan=free", true),
        ("GET /?user=abd\nX-Tenant: a\nCookie: plan=gold", true),
        // Missing values are empty, for every client.
        ("GET /", true),
        ("GET /?user=\nX-Tenant:", false),
    ] {
        assert_eq!(passes(&running, request).await, fine, "{request}");
    }
    assert!(!passes(&running.from("192.0.2.9"), "GET /").await);
}
