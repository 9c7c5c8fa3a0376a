//! Measures the cost of each filter for one request, in interleaved rounds.
//!
//! `cargo run --profile dist -p weir-gateway --example filter_bench [BEGINNING OF A NAME]`
//!
//! Prints nanoseconds per request in addition to the cost of a filter that does nothing. That baseline also parses
//! request and response (ten fields and four), makes the context of the exchange, and writes both heads.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::hint::black_box;
use std::time::Instant;
use weir_gateway::filter::{Consumer, Filter, FilterKind, Hooks};
use weir_gateway::filters::KINDS;
use weir_gateway::testing::{Running, Stand};
use weir_h1::{Limits, RequestHead, ResponseHead, parse_request, parse_response};

/// Many short rounds, of which the quicker ones count: on a busy machine a long round is never undisturbed.
const ROUNDS: usize = 400;
const REQUESTS: usize = 2_000;

const REQUEST: &[u8] = b"GET /orders/12345?page=2 HTTP/1.1\r\nHost: api.example.com\r\nUser-Agent: bench/1.0\r\n\
    Accept: */*\r\nAccept-Encoding: gzip\r\nOrigin: https://www.example.com\r\nAccept-Language: en\r\nX-Api-Key: 5d41402abc4b2a76b9719d911017c592\r\n\
    X-Tenant: a\r\nReferer: https://www.example.com/\r\nCookie: session=0123456789\r\n\r\n";
const RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1024\r\n\
    Server: origin\r\nCache-Control: no-store\r\n\r\n";

/// The filter that others are compared with.
#[derive(Default, Deserialize, Serialize, JsonSchema)]
struct Nothing {}

impl Filter for Nothing {
    fn hooks(&self) -> Hooks {
        Hooks::REQUEST | Hooks::RESPONSE
    }
}

static NOTHING: FilterKind = FilterKind::of::<Nothing>("nothing");

fn main() {
    let rate = |by: &str, headers: bool| json!({ "requests": 1_000_000_000, "per": "1s", "burst": 4_000_000_000u32, "by": by, "headers": headers });
    let cases = [
        ("nothing", stand(&NOTHING, json!({}))),
        ("key_auth", stand(kind("key_auth"), json!({}))),
        ("rate_limit by consumer", stand(kind("rate_limit"), rate("consumer", true)).named()),
        (
            "rate_limit by consumer, headers: false",
            stand(kind("rate_limit"), rate("consumer", false)).named(),
        ),
        ("rate_limit by route", stand(kind("rate_limit"), rate("route", true))),
        ("rate_limit by address", stand(kind("rate_limit"), rate("address", true))),
        ("rate_limit by header", stand(kind("rate_limit"), rate("header:x-tenant", true))),
        ("request_id", stand(kind("request_id"), json!({}))),
        (
            "headers, two literals",
            stand(
                kind("headers"),
                json!({ "request": { "set": { "x-a": "1" } }, "response": { "set": { "x-b": "2" } } }),
            ),
        ),
        (
            "headers, one placeholder",
            stand(kind("headers"), json!({ "request": { "set": { "x-a": "{client}" } } })),
        ),
        ("rewrite, strip_prefix", stand(kind("rewrite"), json!({ "strip_prefix": "/orders" }))),
        ("body_limit", stand(kind("body_limit"), json!({ "max": "1MiB" }))),
        ("cors, listed origin", stand(kind("cors"), json!({ "origins": ["https://www.example.com"] }))),
        ("cors, any origin", stand(kind("cors"), json!({ "origins": ["*"] }))),
        ("security_headers", stand(kind("security_headers"), json!({}))),
        (
            "any, the second of two",
            stand(kind("any"), json!([{ "key_auth": { "header": "x-other" } }, { "key_auth": {} }])),
        ),
        ("acl", stand(kind("acl"), json!({ "allow": ["shop"] })).named()),
        ("ip, one network", stand(kind("ip"), json!({ "allow": ["192.0.2.0/24"] }))),
        ("ip, 100,000 networks", stand(kind("ip"), json!({ "deny": networks() }))),
    ];
    let wanted = std::env::args().nth(1).unwrap_or_default();
    let running: Vec<(&str, Running)> = cases
        .into_iter()
        .filter(|(name, _)| *name == "nothing" || name.starts_with(&wanted))
        .map(|(name, mut stand)| (name, stand.build()))
        .collect();
    let mut costs = vec![Vec::new(); running.len()];
    for _ in 0..ROUNDS {
        for (cost, (_, filter)) in costs.iter_mut().zip(&running) {
            cost.push(round(filter));
        }
    }
    let tenth = |cost: &mut Vec<f64>| {
        cost.sort_by(f64::total_cmp);
        cost[ROUNDS / 10]
    };
    let costs: Vec<f64> = costs.iter_mut().map(tenth).collect();
    println!("{ROUNDS} rounds of {REQUESTS} requests, tenth percentile; bare {:.0} ns", costs[0]);
    for (cost, (name, _)) in costs.iter().zip(&running).skip(1) {
        println!("{name:<42} {:>6.0} ns", cost - costs[0]);
    }
}

/// A hundred thousand networks that hold no client of this bench.
fn networks() -> Vec<String> {
    (0..100_000u32).map(|n| format!("{}.{}.{}.0/24", 10 + n % 97, n / 97 % 251, n * 7 % 253)).collect()
}

fn kind(name: &str) -> &'static FilterKind {
    KINDS.iter().find(|kind| kind.name == name).expect("the filter is registered")
}

fn stand(kind: &'static FilterKind, settings: Value) -> Stand {
    let keys = (0..1000).map(|n| format!("key-{n}")).chain(["5d41402abc4b2a76b9719d911017c592".to_owned()]);
    let credentials = [("key_auth".to_owned(), keys.collect())].into();
    Stand::new(kind, settings).kinds(KINDS).consumer(Consumer {
        name: "shop".to_owned(),
        credentials,
        ..Consumer::default()
    })
}

/// Nanoseconds per request.
fn round(filter: &Running) -> f64 {
    let (mut request, mut response) = (RequestHead::default(), ResponseHead::default());
    let (limits, mut out) = (Limits::default(), Vec::with_capacity(4096));
    let begin = Instant::now();
    for _ in 0..REQUESTS {
        request.buffer_mut().extend_from_slice(REQUEST);
        response.buffer_mut().extend_from_slice(RESPONSE);
        let parsed = (parse_request(&mut request, &limits), parse_response(&mut response, &limits));
        assert!(parsed.0.is_ok() && parsed.1.is_ok());
        request.mark_routed();
        black_box(filter.pass(&mut request, &mut response));
        out.clear();
        request.headers.write_to(&mut out);
        response.headers.write_to(&mut out);
        black_box(&out);
        request.recycle(0);
        response.recycle(0);
    }
    begin.elapsed().as_nanos() as f64 / REQUESTS as f64
}
