//! What conditions cost on a request as it was read: a head of HTTP/1.1 with 12 fields.
//!
//! `cargo bench -p weir-filter` tells nanoseconds; callgrind counts instructions, as in `benches/condition.rs` of
//! weir-expr.

use std::hint::black_box;
use std::net::IpAddr;
use std::time::Instant;
use weir_expr::Condition;
use weir_h1::{Limits, RequestHead, parse_request};
use weir_route::variables::{Bounds, REQUEST, Seen, Vocabulary};
use weir_route::{Headers, Request};

/// How many evaluations a count runs.
const COUNTED: usize = 10_000;

const CONDITIONS: &[(&str, &str)] = &[
    ("one comparison", r#"request.method == "GET""#),
    ("two without a field", r#"request.method == "GET" && request.path == "/users/7/orders""#),
    ("two comparisons", r#"request.method == "GET" && request.headers["x-env"] == "blue""#),
    ("a field that is absent", r#"request.method == "GET" && request.headers["x-new"] == "blue""#),
    ("host", r#"request.method == "GET" && request.host == "api.example.com""#),
    ("argument", r#"request.method == "GET" && request.args.v == "2""#),
    ("map of ten texts", r#"maps.ten == "v3""#),
    ("map of 100,000 texts", r#"maps.many == "v3""#),
    ("map of 100,000 prefixes", r#"maps.prefixes == "v3""#),
    ("map of 5,000 nested prefixes", r#"maps.nested == "v0""#),
    ("map of 100,000 networks", r#"maps.networks == "v3""#),
    ("cookie", r#"request.method == "GET" && request.cookies.sid == "0123456789abcdef""#),
];

const HEAD: &str = "GET /users/7/orders?v=2 HTTP/1.1\r\nHost: api.example.com\r\n\
    User-Agent: Mozilla/5.0 (X11; Linux x86_64)\r\nAccept: */*\r\nAccept-Encoding: gzip, br\r\nAccept-Language: en\r\n\
    Cache-Control: no-cache\r\nX-Count: 12\r\nCookie: sid=0123456789abcdef\r\nX-Env: blue\r\n\
    Referer: https://example.com/\r\nX-Request-Id: 0123456789abcdef\r\nConnection: keep-alive\r\n\r\n";

struct Received(RequestHead);

impl Headers for Received {
    #[inline]
    fn get_all<'a>(&'a self, name: &[u8]) -> impl Iterator<Item = &'a [u8]> {
        self.0.headers.get_all(name)
    }

    #[inline]
    fn is(&self, name: &[u8], value: &[u8]) -> bool {
        self.0.headers.is(name, value)
    }

    fn client_ip(&self) -> Option<IpAddr> {
        Some(IpAddr::from([10, 0, 0, 3]))
    }
}

/// Name, expression, number of entries, and the key of each.
type MapOf<'a> = (&'a str, &'a str, usize, &'a dyn Fn(usize) -> String);

/// With maps from the value of `x-env`, or the client's address, to one of ten values.
fn vocabulary() -> Vocabulary {
    let bounds = Bounds { head_bytes: 32 * 1024, fields: 100 };
    let ten = |i: usize| if i == 3 { "blue".to_owned() } else { format!("t{i}") };
    let maps: [MapOf<'_>; 5] = [
        ("ten", "request.headers[\"x-env\"]", 10, &ten),
        ("many", "request.headers[\"x-env\"]", 100_000, &ten),
        ("prefixes", "request.headers[\"x-env\"]", 100_000, &|i| {
            if i == 3 { "blu*".to_owned() } else { format!("t{i:06}*") }
        }),
        // "blue" comes behind all of them and begins with the first.
        ("nested", "request.headers[\"x-env\"]", 5_000, &|i| "b".repeat(i + 1) + "*"),
        ("networks", "client.ip", 100_000, &|i| format!("10.{}.{}.{}", i >> 16, i >> 8 & 255, i & 255)),
    ];
    let mut builder = Vocabulary::maps(bounds, maps.map(|(name, ..)| name));
    for (at, (_, of, count, key)) in maps.into_iter().enumerate() {
        let keys = builder.key(at, of).expect("an expression");
        let entries: Vec<_> = (0..count).map(|i| (key(i), format!("v{}", i % 10))).collect();
        let entries: Vec<_> = entries.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        builder.entries(at, keys, &entries, None, false).expect("sound entries");
    }
    Vocabulary::new(bounds, builder).0
}

/// What callgrind counts.
#[inline(never)]
fn counted(condition: &Condition, seen: &Seen<'_, '_, Received>) -> usize {
    (0..COUNTED).filter(|_| black_box(condition).holds(black_box(seen))).count()
}

fn main() {
    let mut head = RequestHead::default();
    head.buffer_mut().extend_from_slice(HEAD.as_bytes());
    parse_request(&mut head, &Limits::default()).expect("a head");
    let vocabulary = vocabulary();
    let (path, query) = (head.path().to_vec(), head.query().map(<[u8]>::to_vec));
    let request = Request {
        listener: 0,
        host: b"api.example.com",
        method: b"GET",
        path: &path,
        query: query.as_deref(),
        headers: Received(head),
    };
    let seen = Seen { request: &request, parameters: None, vocabulary: &vocabulary };
    let words: Vec<String> = std::env::args().skip(1).collect();
    let only = words.iter().position(|word| word == "--count");
    let only = only.map(|at| words.get(at + 1).map_or("two comparisons", String::as_str));
    // `cargo test --all-targets` runs this too: it passes no --bench, and one round is enough to see that it works.
    let rounds = if words.iter().any(|word| word == "--bench") { 200 } else { 1 };
    for (name, source) in CONDITIONS.iter().filter(|(name, _)| only.is_none_or(|only| only == *name)) {
        let condition = Condition::compile(source, &vocabulary.schema(None), REQUEST).expect("a condition");
        if only.is_some() {
            println!("{name}: {} of {COUNTED}", counted(&condition, &seen));
            continue;
        }
        let mut best = f64::INFINITY;
        for _ in 0..rounds {
            let start = Instant::now();
            counted(&condition, &seen);
            best = best.min(start.elapsed().as_nanos() as f64 / COUNTED as f64);
        }
        println!("{name:<26} {best:>7.1} ns  {source}");
    }
}
