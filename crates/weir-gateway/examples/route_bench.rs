//! Measures the cost of a lookup among 10 routes and among 10,000, in interleaved rounds.
//!
//! `cargo run --profile dist -p weir-gateway --example route_bench`
//!
//! Prints nanoseconds per lookup and the median over the rounds of the ratio 10,000 : 10. Two kinds of traffic: `hot`
//! asks the same ten targets of either table, like a gateway whose traffic goes to few routes. `spread` asks all
//! 10,000 in turn, so every lookup in the large table also pays for cache misses. Both sides read their requests from
//! equally many places in memory.

use std::hint::black_box;
use std::time::Instant;

use weir_gateway::route::variables::{Bounds, Vocabulary};
use weir_gateway::route::{Canonical, Case, NoTrace, Request, RouteSpec, Slashes, Table, When, canonical};

const ROUNDS: usize = 41;
const LOOKUPS: usize = 200_000;
const LARGE: usize = 10_000;

/// Header fields of a browser.
const FIELDS: [(&str, &str); 11] = [
    ("accept", "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"),
    ("accept-encoding", "gzip, deflate, br, zstd"),
    ("accept-language", "en-US,en;q=0.5"),
    ("connection", "keep-alive"),
    ("cookie", "session=0123456789abcdef; theme=dark"),
    ("host", "api.example.com"),
    ("referer", "https://www.example.com/"),
    ("sec-fetch-dest", "empty"),
    ("sec-fetch-mode", "cors"),
    ("te", "trailers"),
    ("user-agent", "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"),
];

fn main() {
    let small = table(10);
    let begin = Instant::now();
    let large = table(LARGE);
    println!("building the table of {LARGE} routes: {} ms", begin.elapsed().as_millis());
    let few = targets(10, 10);
    let few_copied = targets(10, LARGE);
    let many = targets(LARGE, LARGE);
    println!("{ROUNDS} rounds of {LOOKUPS} lookups");
    compare("hot", (&small, &few), (&large, &few));
    compare("spread", (&small, &few_copied), (&large, &many));

    let single = Table::build(vec![RouteSpec {
        name: "all".into(),
        paths: vec!["/*".into()],
        ..RouteSpec::default()
    }]);
    let single = single.expect("one route is not a conflict");
    println!("single /* route: {:.1} ns", median((0..ROUNDS).map(|_| round(&single, &few)).collect()));

    let mixed = table_of_forms(1_000);
    let forms = targets_of_forms(1_000);
    let cost = median((0..ROUNDS).map(|_| round(&mixed, &forms)).collect());
    println!("1,000 routes with captures within segments, raw prefixes and any case: {cost:.1} ns");

    let conditions = table_of_conditions(1_000);
    let cost = median((0..ROUNDS).map(|_| round_conditions(&conditions)).collect());
    println!("1,000 routes with `when` on one path, of which the last holds: {cost:.1} ns");

    for path in ["/hello", "/api/v1/users/12345/orders/67890", "/.well-known/a/b", "/a%20b/c"] {
        let cost = median((0..ROUNDS).map(|_| round_canonical(path.as_bytes())).collect());
        println!("canonical({path}): {cost:.1} ns");
    }
}

/// A mix of literals, templates, prefixes and a few conditions and hosts.
fn table(size: usize) -> Table {
    let spec = |n: usize| {
        let mut spec = RouteSpec { name: format!("r{n}").into(), ..RouteSpec::default() };
        let path = match n % 5 {
            0 | 1 => format!("/service-{n}/status"),
            2 => format!("/service-{n}/users/{{id}}"),
            _ => format!("/service-{n}/*"),
        };
        spec.paths = vec![path];
        match n % 10 {
            3 => spec.hosts = vec![format!("host-{}.example.com", n / 100)],
            4 => spec.methods = vec!["GET".to_owned()],
            _ => {}
        }
        spec
    };
    Table::build((0..size).map(spec)).expect("paths differ")
}

/// Raw prefixes, captures within segments and paths in any case, beside plain ones.
fn table_of_forms(size: usize) -> Table {
    let spec = |n: usize| {
        let mut spec = RouteSpec { name: format!("r{n}").into(), ..RouteSpec::default() };
        let path = match n % 4 {
            0 => format!("/raw-{n}-*"),
            1 => format!("/files/{{id}}.{n}.json"),
            2 => format!("/Service-{n}/users/{{id}}"),
            _ => format!("/service-{n}/*"),
        };
        spec.paths = vec![path];
        if n % 4 == 2 {
            spec.case = Case::Insensitive;
        }
        spec
    };
    Table::build((0..size).map(spec)).expect("paths differ")
}

fn targets_of_forms(size: usize) -> Vec<(String, String)> {
    let target = |n: usize| {
        let n = n * 7919 % size;
        let path = match n % 4 {
            0 => format!("/raw-{n}-x/y"),
            1 => format!("/files/4711.{n}.json"),
            2 => format!("/SERVICE-{n}/users/4711"),
            _ => format!("/service-{n}/some/where/else"),
        };
        ("api.example.com".to_owned(), path)
    };
    (0..size).map(target).collect()
}

/// Routes on one path that expressions over one header field tell apart.
fn table_of_conditions(size: usize) -> Table {
    let vocabulary = Vocabulary::without_maps(Bounds { head_bytes: 32 * 1024, fields: 100 });
    let spec = |n: usize| {
        let source = format!("request.headers[\"x-tenant\"] == \"tenant-{n}\"");
        let when = When::compile(&source, None, &vocabulary).expect("a sound expression");
        let (name, paths) = (format!("r{n}").into(), vec!["/orders".to_owned()]);
        RouteSpec { name, paths, when: Some(Box::new(when)), ..RouteSpec::default() }
    };
    Table::build((0..size).map(spec)).expect("texts differ")
}

fn round_conditions(table: &Table) -> f64 {
    let last = format!("tenant-{}", table.len() - 1);
    let mut fields: Vec<(&str, &str)> = FIELDS.to_vec();
    fields.push(("x-tenant", &last));
    let begin = Instant::now();
    for _ in 0..LOOKUPS / 1_000 {
        let request = Request {
            listener: 0,
            host: b"api.example.com",
            method: b"GET",
            path: b"/orders",
            query: None,
            headers: &fields[..],
        };
        assert!(black_box(table.find(black_box(&request), &mut NoTrace)).is_some());
    }
    begin.elapsed().as_nanos() as f64 / (LOOKUPS / 1_000) as f64
}

/// For each route a host and a path that it matches, in an order that no prefetcher foresees.
fn targets(size: usize, copies: usize) -> Vec<(String, String)> {
    let step = if size > 10 { 7919 } else { 3 };
    let target = |n: usize| {
        let n = n * step % size;
        let host =
            if n % 10 == 3 { format!("host-{}.example.com", n / 100) } else { "api.example.com".to_owned() };
        let path = match n % 5 {
            0 | 1 => format!("/service-{n}/status"),
            2 => format!("/service-{n}/users/4711"),
            _ => format!("/service-{n}/some/where/else"),
        };
        (host, path)
    };
    (0..copies).map(target).collect()
}

fn compare(what: &str, small: (&Table, &[(String, String)]), large: (&Table, &[(String, String)])) {
    let (mut a, mut b, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for at in 0..ROUNDS {
        // The order alternates, so that a drift of the machine falls on both.
        let (x, y) = if at % 2 == 0 {
            let x = round(small.0, small.1);
            (x, round(large.0, large.1))
        } else {
            let y = round(large.0, large.1);
            (round(small.0, small.1), y)
        };
        a.push(x);
        b.push(y);
        ratios.push(y / x);
    }
    let (a, b) = (median(a), median(b));
    println!(
        "{what}: 10 routes {a:.1} ns, {LARGE} routes {b:.1} ns, median ratio {:.3}; of a 10 µs request {:+.2} %",
        median(ratios),
        (b - a) / 100.0
    );
}

fn round(table: &Table, targets: &[(String, String)]) -> f64 {
    let mut next = targets.iter().cycle();
    let begin = Instant::now();
    for _ in 0..LOOKUPS {
        let Some((host, path)) = next.next() else { break };
        let (host, path) = (host.as_bytes(), path.as_bytes());
        let request = Request { listener: 0, host, method: b"GET", path, query: None, headers: () };
        assert!(black_box(table.find(black_box(&request), &mut NoTrace)).is_some());
    }
    per_lookup(begin)
}

fn round_canonical(path: &[u8]) -> f64 {
    let mut out = Vec::new();
    let begin = Instant::now();
    for _ in 0..LOOKUPS {
        let form = canonical(black_box(path), Slashes::Merge, &mut out);
        assert_eq!(black_box(form), Ok(Canonical::AsIs));
    }
    per_lookup(begin)
}

fn per_lookup(begin: Instant) -> f64 {
    begin.elapsed().as_nanos() as f64 / LOOKUPS as f64
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
