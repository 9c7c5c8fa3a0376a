//! How config changes affect the state that filters keep: walks the table in docs/guide/operations.md.

use std::fs;
use std::path::Path;
use weir_testkit::{Client, Upstream, Weir, eventually};

use crate::signature::Signing;
use crate::support::{OK, WEB};

/// The environment for testing a kind of state.
struct World {
    upstream: Upstream,
    signing: Signing,
    signed: Vec<u8>,
}

/// A kind of state, as named in the table.
struct Kind {
    row: &'static str,
    /// The config with this name for the place, and these settings.
    config: fn(&World, &str, &str) -> String,
    /// The settings, and changed ones.
    settings: [&'static str; 2],
    /// Creates state.
    begin: fn(&World, &mut Client),
    /// Whether it is still there.
    is_kept: fn(&World, &mut Client) -> bool,
}

const ERROR: &str = "HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n";

fn limited(_: &World, name: &str, settings: &str) -> String {
    route(name, &format!("rate_limit: {{ {settings} }}"), "respond: { status: 200 }")
}

fn route(name: &str, filter: &str, target: &str) -> String {
    format!(
        "{WEB}\nroutes: {{ {name}: {{ match: {{ path: \"/*\" }}, filters: [ {{ {filter} }} ], {target} }} }}\n"
    )
}

fn planned(_: &World, name: &str, settings: &str) -> String {
    let route = route("all", "key_auth: {}", "respond: { status: 200 }");
    format!(
        "{route}plans: {{ {name}: {{ filters: [ {{ rate_limit: {{ {settings} }} }} ] }} }}\n\
         consumers: {{ shop: {{ plan: {name}, key_auth: [ shop-key ] }} }}\n"
    )
}

fn signed(world: &World, name: &str, settings: &str) -> String {
    let route = route(name, &format!("signature_auth: {{ {settings} }}"), "upstream: up");
    let pem = world.signing.public_pem().replace('\n', "\\n");
    format!(
        "{route}upstreams: {{ up: {{ endpoints: [ {} ] }} }}\nconsumers: {{ shop: {{ signature_auth: [ {{ key_id: k, algorithm: ed25519, \
         key: \"{pem}\" }} ] }} }}\n",
        world.upstream.address()
    )
}

fn circuit(world: &World, name: &str, settings: &str) -> String {
    let route = route(name, &format!("circuit_breaker: {{ {settings} }}"), "upstream: up");
    format!("{route}upstreams: {{ up: {{ endpoints: [ {} ] }} }}\n", world.upstream.address())
}

fn get(client: &mut Client) -> u16 {
    client.ask("GET / HTTP/1.1\r\nHost: h\r\nX-Api-Key: shop-key\r\n\r\n").status
}

fn use_up(_: &World, client: &mut Client) {
    assert_eq!([get(client), get(client), get(client)], [200, 200, 429]);
}

fn is_used_up(_: &World, client: &mut Client) -> bool {
    get(client) == 429
}

const KINDS: [Kind; 6] = [
    Kind {
        row: "a limit of `rate_limit`",
        config: limited,
        settings: ["requests: 2, per: 1h", "requests: 2, per: 1h, headers: false, keys: 100, name: other"],
        begin: use_up,
        is_kept: is_used_up,
    },
    Kind {
        row: "the same, with another `by` or `per`",
        config: limited,
        settings: ["requests: 2, per: 1h", "requests: 2, per: 2h"],
        begin: use_up,
        is_kept: is_used_up,
    },
    Kind {
        row: "a quota",
        config: limited,
        settings: ["requests: 2, per: month", "requests: 2, per: month, headers: false"],
        begin: use_up,
        is_kept: is_used_up,
    },
    Kind {
        row: "a quota in a plan",
        config: planned,
        settings: ["requests: 2, per: month", "requests: 2, per: month, keys: 100"],
        begin: use_up,
        is_kept: is_used_up,
    },
    Kind {
        row: "signatures seen by `signature_auth`",
        config: signed,
        settings: ["max_age: 60s", "max_age: 300s, remember: 50"],
        begin: |world, client| {
            client.ask(&world.signed).expect_status(200);
        },
        is_kept: |world, client| client.ask(&world.signed).status == 401,
    },
    Kind {
        row: "an open circuit",
        config: circuit,
        settings: ["minimum: 2, open: 1h", "minimum: 3, open: 1h, probes: 3"],
        begin: |_, client| assert_eq!([get(client), get(client)], [500, 500]),
        is_kept: |_, client| get(client) == 503,
    },
];

/// Changes to a config, by the table's columns: new settings, a new name, by an upgrade.
const CHANGES: [(bool, bool, bool); 5] = [
    (true, false, false),
    (false, true, false),
    (false, false, true),
    (true, false, true),
    (false, true, true),
];

/// The table's rows: the state, and what happens to it.
fn table() -> Vec<(String, Vec<String>)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/operations.md");
    let page = fs::read_to_string(path).unwrap();
    let from = page.find("## What survives a change").unwrap();
    let rows = page[from..].lines().skip_while(|line| !line.starts_with("|---")).skip(1);
    rows.take_while(|line| line.starts_with('|'))
        .map(|line| {
            let mut cells = line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned());
            (cells.next().unwrap(), cells.collect())
        })
        .collect()
}

#[test]
fn the_table_holds() {
    let table = table();
    let rows: Vec<&str> = table.iter().map(|(row, _)| row.as_str()).collect();
    assert_eq!(rows, KINDS.map(|kind| kind.row), "each row is tried, and each kind of state is told");
    std::thread::scope(|scope| {
        for (kind, (row, cells)) in KINDS.iter().zip(&table) {
            assert_eq!(cells.len(), CHANGES.len(), "{row}");
            for (change, cell) in CHANGES.iter().zip(cells) {
                scope.spawn(move || walk(kind, *change, cell));
            }
        }
    });
}

fn walk(kind: &Kind, change: (bool, bool, bool), cell: &str) {
    let (setting, renamed, upgrade) = change;
    let signing = Signing::new("k");
    let signed = signing.request("POST", "h", "/", b"hello");
    let upstream = if kind.row.contains("circuit") { Upstream::fixed(ERROR) } else { Upstream::fixed(OK) };
    let world = World { upstream, signing, signed };
    let weir = Weir::start(&(kind.config)(&world, "before", kind.settings[0]));
    (kind.begin)(&world, &mut weir.client());
    assert!((kind.is_kept)(&world, &mut weir.client()), "{}: there is no state", kind.row);

    let name = if renamed { "after" } else { "before" };
    let next = (kind.config)(&world, name, kind.settings[usize::from(setting)]);
    if upgrade {
        weir.write_config(&next);
        weir.upgrade().unwrap();
    } else {
        weir.reload_with(&next).unwrap();
    }
    let kept = (kind.is_kept)(&world, &mut weir.client());
    let told = || !weir.logged("state is forgotten").is_empty();
    let expected = match cell {
        "kept" => (true, false),
        "forgotten" => (false, true),
        other => panic!("{}: what is {other}?", kind.row),
    };
    if expected.1 {
        eventually("the log of the process that took over tells it", told);
    }
    assert_eq!((kept, told()), expected, "{}, {change:?}:\n{}", kind.row, weir.stderr());
}

/// The used part stays used when a limit moves.
#[test]
fn a_limit_that_moves_counts_on() {
    for (to, left) in [(19, 4), (40, 25), (15, 0), (10, 0)] {
        let config = |requests: u32, more: &str| {
            let settings = format!("requests: {requests}, per: month{more}");
            route("all", &format!("rate_limit: {{ {settings} }}"), "respond: { status: 200 }")
        };
        let weir = Weir::start(&config(20, ""));
        let mut client = weir.client();
        for _ in 0..15 {
            assert_eq!(get(&mut client), 200);
        }
        weir.reload_with(&config(to, ", headers: false")).unwrap();
        for nth in 1..=left + 1 {
            assert_eq!(get(&mut client), if nth <= left { 200 } else { 429 }, "{to}: request {nth}");
        }
    }
}

/// The cost comes from the upstream's unmodified answer, whatever filters behind the limit do to it.
#[test]
fn a_cost_is_read_from_the_answer_as_it_came() {
    for (behind, status) in [
        ("headers: { response: { remove: [ x-cost ] } }", 200),
        ("errors: { 5xx: { body: sorry }, upstream: [ 5xx ] }", 500),
    ] {
        let upstream =
            Upstream::fixed(format!("HTTP/1.1 {status} X\r\nX-Cost: 10\r\nContent-Length: 0\r\n\r\n"));
        let limit = "rate_limit: { requests: 20, per: 1h, cost: \"header:x-cost\" } }, {";
        let config = route("all", &format!("{limit} {behind}"), "upstream: up");
        let weir = Weir::start(&format!(
            "{config}upstreams: {{ up: {{ endpoints: [ {} ] }} }}\n",
            upstream.address()
        ));
        let mut client = weir.client();
        assert_eq!([get(&mut client), get(&mut client), get(&mut client)], [status, status, 429], "{behind}");
    }
}
