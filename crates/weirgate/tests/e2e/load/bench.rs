//! `weir bench` sends a request to every route, leaves out each filter in turn, and cleans up.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use tempfile::TempDir;
use weir_report::Bench;
use weir_testkit::{Authority, Finished, eventually, weir_command};

/// Runs `weir bench` next to a `weir.yaml` with this text, with its own folder for temporary files.
#[track_caller]
fn bench(yaml: &str, args: &[&str]) -> (Finished, TempDir) {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("weir.yaml"), yaml).unwrap();
    fs::create_dir(dir.path().join("tmp")).unwrap();
    let mut command = weir_command(dir.path());
    command.args(["bench", "-c", "weir.yaml", "--connections", "2", "--threads=1"]).args(args);
    let output = command.env("TMPDIR", dir.path().join("tmp")).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let finished =
        Finished { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) };
    assert_eq!(fs::read_dir(dir.path().join("tmp")).unwrap().count(), 0, "it leaves files behind");
    (finished, dir)
}

#[track_caller]
fn result(finished: &Finished) -> Bench {
    serde_json::from_str(&finished.stdout).unwrap_or_else(|e| panic!("{e}: {finished:#?}"))
}

const CONFIG: &str = r#"
listeners:
  web: { address: "127.0.0.1:1" }
upstreams:
  orders: { endpoints: [ "orders.internal:443" ], tls: {} }
consumers:
  shop: { key_auth: [ shop-key ], plan: gold }
plans:
  gold: { filters: [ rate_limit: { requests: 1, per: 1h } ] }
filters:
  - request_id
routes:
  orders:
    match: { hosts: ["*.example.com"], path: "/orders/{id}", methods: [POST], headers: { x-env: blue } }
    filters: [ key_auth: {} ]
    upstream: orders
  teapot: { match: { path: /teapot }, respond: { status: 418 } }
  big:
    match: { path: /big }
    upstream: orders
    filters: [ redirect: { to: "https://elsewhere.example.com{path}" } ]
"#;

#[test]
fn every_route_and_filter_has_its_cost() {
    let (run, _dir) = bench(CONFIG, &["-d8s", "--format", "json"]);
    run.expect_code(0);
    let found = result(&run);
    let routes: Vec<_> = found.routes.iter().map(|r| (r.route.as_str(), r.status)).collect();
    assert_eq!(routes, [("orders", 200), ("teapot", 418), ("big", 308)], "{:?}", found.skipped);
    let orders = &found.routes[0];
    assert_eq!(orders.request, "POST http://any.example.com/orders/id");
    let filters: Vec<_> = orders.filters.iter().map(|f| (f.filter.as_str(), f.place.as_str())).collect();
    assert_eq!(
        filters,
        [
            ("request_id", "filters[0]"),
            ("key_auth", "routes.orders.filters[0]"),
            ("rate_limit", "plans.gold.filters[0]")
        ]
    );
    assert!(orders.gateway.cost_ns.unwrap().value > 0.0 && orders.gateway.p50_ns.is_some(), "{orders:?}");
    assert!(orders.filters.iter().all(|f| f.added.cost_ns.is_some()), "{:?}", orders.filters);
    assert!(orders.comparison.targets.iter().all(|t| t.errors == 0), "{orders:?}");
    assert!(found.routes[1].gateway.p50_ns.is_none(), "nothing is behind a route that answers by itself");
    let skipped: Vec<String> = found.skipped.iter().map(ToString::to_string).collect();
    assert_eq!(skipped, ["big, routes.big.filters[0] (redirect): without it the status is 200, not 308"]);
    assert!(
        found.notes.iter().any(|n| n.starts_with("plans.gold.filters[0]: rate_limit")),
        "{:?}",
        found.notes
    );
    // Its processes have ended.
    for target in found.routes.iter().flat_map(|r| &r.comparison.targets) {
        let address = target.url.trim_start_matches("http://").split('/').next().unwrap();
        assert!(TcpStream::connect(address).is_err(), "{address} is still there");
    }
}

#[test]
fn what_cannot_be_measured_is_named() {
    let config = CONFIG.replace("shop-key", &format!("sha256:{}", "0".repeat(64)));
    let (run, _dir) = bench(&config, &["-d1s", "--route", "orders"]);
    run.expect_code(0).expect_text("orders, routes.orders.filters[0] (key_auth): the config has hashes only");
    run.expect_text("orders: POST http://any.example.com/orders/id, 200");
    let shadowed = format!(
        "{CONFIG}  all: {{ match: {{ path: \"/{{x}}\" }}, upstream: orders }}\n  x: {{ match: {{ path: /x }}, respond: {{}} }}\n"
    );
    let (run, _dir) = bench(&shadowed, &["-d1s", "--route", "all"]);
    run.expect_code(1).expect_text("all: route x wins the request that was made up for it");
    for (yaml, args, want) in [
        ("listeners: 5\n", &[][..], "weir.yaml:1"),
        (CONFIG, &["--route", "none"], "--route none: the config has orders, teapot, big"),
        (CONFIG, &["-d", "never"], "-d never: expected a time"),
        (CONFIG, &["-d", "500ms"], "take at least 1.2s"),
    ] {
        bench(yaml, args).0.expect_code(2).expect_text(want);
    }
}

#[test]
fn a_listener_with_tls_is_asked_over_tls() {
    let authority = Authority::new();
    let certificate = authority.leaf(&["api.test"]);
    let config = format!(
        "listeners: {{ web: {{ address: 127.0.0.1:1, protocols: [h2], tls: {{ certificates: [ {} ] }} }} }}\n\
         routes: {{ r: {{ match: {{ hosts: [api.test], path: /r }}, respond: {{ status: 204 }} }} }}\n",
        certificate.yaml()
    );
    let (run, _dir) = bench(&config, &["-d1s", "--format", "json"]);
    run.expect_code(0);
    let found = result(&run);
    assert_eq!((found.routes[0].request.as_str(), found.routes[0].status), ("GET https://api.test/r", 204));
    assert_eq!(found.routes[0].comparison.load.protocol, weir_report::report::Protocol::Http2);
}

#[test]
fn who_asks_has_a_password_and_a_certificate() {
    let (authority, clients) = (Authority::new(), Authority::new());
    let config = format!(
        "listeners: {{ web: {{ address: 127.0.0.1:1, tls: {{ certificates: [ {} ], client_auth: {{ ca: {}, mode: required }} }} }} }}\n\
         consumers: {{ shop: {{ basic_auth: [ \"ann:{}\" ], mtls_auth: [ \"dns:shop.internal\" ] }} }}\n\
         routes:\n  b: {{ match: {{ path: /b }}, filters: [ basic_auth: {{ realm: b }}, circuit_breaker, concurrency: {{ requests: 1 }} ], respond: {{}} }}\n  \
         m: {{ match: {{ path: /m }}, filters: [ mtls_auth: {{}} ], respond: {{}} }}\n",
        authority.leaf(&["api.test"]).yaml(),
        clients.file().display(),
        unknown_hash(),
    );
    let (run, _dir) = bench(&config, &["-d2s", "--format", "json"]);
    run.expect_code(0);
    let found = result(&run);
    let statuses: Vec<_> = found.routes.iter().map(|r| (r.route.as_str(), r.status)).collect();
    assert_eq!(statuses, [("b", 200), ("m", 200)], "{:?}", found.skipped);
    let filters = found.routes.iter().flat_map(|r| &r.filters).map(|f| f.filter.as_str());
    assert_eq!(filters.collect::<Vec<_>>(), ["basic_auth", "circuit_breaker", "concurrency", "mtls_auth"]);
    let told = found.notes.iter().any(|note| note.starts_with("consumers.shop: has one more user"));
    assert!(told, "{:?}", found.notes);
}

/// A hash in config form with an unknown password.
fn unknown_hash() -> String {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("password");
    fs::write(&file, "unknown\n").unwrap();
    let output = weir_command(dir.path()).arg("hash").stdin(fs::File::open(file).unwrap()).output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().replace('$', "$$")
}

/// The processes whose parent is `pid`.
fn children(pid: u32) -> Vec<u32> {
    let path = format!("/proc/{pid}/task/{pid}/children");
    fs::read_to_string(path).unwrap_or_default().split_whitespace().filter_map(|p| p.parse().ok()).collect()
}

#[test]
fn ctrl_c_ends_it_and_all_it_started() {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join("weir.yaml"), CONFIG).unwrap();
    for signal in ["-INT", "-KILL"] {
        let mut command = weir_command(dir.path());
        command.args(["bench", "-c", "weir.yaml", "-d60s", "--route", "teapot"]).env("TMPDIR", dir.path());
        let mut bench = command.stdout(Stdio::piped()).spawn().unwrap();
        eventually("an origin and two gateways", || children(bench.id()).len() == 3);
        let started = children(bench.id());
        assert!(Command::new("kill").args([signal, &bench.id().to_string()]).status().unwrap().success());
        let text: Vec<String> =
            BufReader::new(bench.stdout.take().unwrap()).lines().map(Result::unwrap).collect();
        bench.wait().unwrap();
        assert!(signal == "-KILL" || text.iter().any(|line| line == "interrupted"), "{text:?}");
        let gone = |pid: &u32| !fs::exists(format!("/proc/{pid}")).unwrap();
        eventually("all are gone", || started.iter().all(gone));
    }
}
