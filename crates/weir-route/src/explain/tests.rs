//! Explanations of decisions.

use super::super::testing::{request, route};
use super::super::{NEAR_MISSES, RouteSpec, Shown, Table};
use super::*;

fn routes() -> Table {
    Table::build(vec![
        route("everything", "/*"),
        route("orders", "/orders/{id}").hosts(&["api.example.com"]),
        route("orders-blue", "/orders/{id}").hosts(&["api.example.com"]).header("x-env", "blue"),
        route("orders-v2", "/orders/{id}").hosts(&["api.example.com"]).query("v", "2").priority(-2),
        route("orders-post", "/orders/{id}")
            .hosts(&["api.example.com"])
            .methods(&["POST"])
            .header("x-env", "*"),
        route("wild", "/orders/*").hosts(&["*.example.com"]),
        route("below", "/orders/*").hosts(&["api.example.com"]),
        route("elsewhere", "/orders/{id}").hosts(&["www.example.com"]),
        route("secure", "/orders/{id}")
            .hosts(&["api.example.com"])
            .listeners(&[7])
            .header("x-s", "1")
            .priority(1),
        route("low", "/orders/{id}").hosts(&["api.example.com"]).header("x-low", "*").priority(-1),
    ])
    .unwrap()
}

#[test]
fn tells_the_winner_and_why_the_others_lost() {
    let headers = [("X-Env", "blue"), ("x-low", "1")];
    let request = request("GET", "api.example.com", "/orders/7", &headers);
    let decision = explain(&routes(), &request, NEAR_MISSES);
    let winner = decision.winner.as_ref().unwrap();
    assert_eq!((&*winner.route, winner.conditions, &*winner.captures[0].value), ("orders-blue", 1, "7"));
    let lost: Vec<_> = decision.lost.iter().map(|lost| (&*lost.route, lost.rule)).collect();
    let want = [
        ("low", Rule::Priority),
        ("orders", Rule::Conditions),
        ("below", Rule::Path),
        ("wild", Rule::Host),
        ("everything", Rule::Host),
    ];
    assert_eq!(lost, want);
    let misses: Vec<_> = decision.near_misses.iter().map(|miss| (&*miss.route, &*miss.failed)).collect();
    let want =
        [("orders-v2", "query v"), ("orders-post", "method"), ("secure", "listener"), ("elsewhere", "host")];
    assert_eq!(misses, want);
    assert_eq!(decision.omitted, 0);
}

#[test]
fn near_misses_are_capped_with_the_nearest_first() {
    let request = request("GET", "api.example.com", "/nowhere", &[]);
    let table = Table::build(vec![
        route("far", "/nothing").hosts(&["other.test"]),
        route("near", "/nowhere").hosts(&["other.test"]),
        route("nearest", "/nowhere").methods(&["PUT"]),
        route("path", "/now").hosts(&["api.example.com"]),
    ])
    .unwrap();
    let decision = explain(&table, &request, 3);
    assert_eq!(decision.winner, None);
    let names: Vec<_> = decision.near_misses.iter().map(|miss| &*miss.route).collect();
    assert_eq!((names, decision.omitted), (vec!["nearest", "near", "path"], 1));
}

#[test]
fn what_a_route_is_for_is_told_as_it_is_written() {
    let shown = Shown {
        hosts: vec!["${HOST}".to_owned()],
        paths: vec!["/${PATH}".to_owned()],
        methods: vec!["${METHOD}".to_owned()],
    };
    let hosts: [&[&str]; 4] = [&["b.test", "A.test"], &["c.test"], &["C.test"], &["d.test"]];
    let [several, plain, large, secret] = hosts.map(|hosts| route("r", "/x").hosts(hosts));
    let told = |spec: RouteSpec, host: &str, path: &str| {
        let table = Table::build(vec![spec]).unwrap();
        explain(&table, &request("GET", host, path, &[]), 1).near_misses.remove(0).why
    };
    assert_eq!(told(several, "e.test", "/x"), "it is for b.test, A.test");
    assert_eq!(told(plain, "e.test", "/x"), "it is for c.test");
    assert_eq!(told(large, "e.test", "/x"), "it is for C.test");
    let secret = RouteSpec { shown: Some(Box::new(shown)), ..secret.methods(&["PUT"]) };
    assert_eq!(told(secret.clone(), "e.test", "/x"), "it is for ${HOST}");
    assert_eq!(told(secret.clone(), "d.test", "/y"), "it is for /${PATH}");
    assert_eq!(told(secret, "d.test", "/x"), "it takes ${METHOD}");
    assert_eq!(told(route("r", "/x").methods(&["PUT", "GET-"]), "e.test", "/x"), "it takes PUT, GET-");
}

#[test]
fn reads_as_text_and_as_json() {
    let request = request("GET", "api.example.com", "/orders/7", &[("x-env", "a"), ("x-env", "b")]);
    let decision = explain(&routes(), &request, 2);
    let text = "\
route: orders
  matched: host api.example.com, path /orders/{id}
  captured: id = 7
also match, but lose:
  below: the path `/orders/{id}` of `orders` is more specific than `/orders/*`
  wild: the host `api.example.com` of `orders` is more specific than `*.example.com`
  everything: the host `api.example.com` of `orders` is more specific than `*`
do not match:
  orders-blue: header x-env; it occurs more than once, which no value matches
  orders-v2: query v; it is absent, has another value or is repeated
  and 4 more
";
    assert_eq!(decision.to_string(), text);
    let json = serde_json::to_value(&decision).unwrap();
    assert_eq!(json["winner"]["route"], "orders");
    assert_eq!(json["winner"]["asked_before"], 5);
    assert_eq!(json["lost"][0]["rule"], "path");
    assert_eq!(json["near_misses"][0]["failed"], "header x-env");
}

#[test]
fn an_expression_tells_what_it_read() {
    let table = Table::build(vec![
        route("beta", "/a").when(r#"request.cookies.beta == "1" && size(request.headers["X-Long"]) < 9"#),
        route("plain", "/a"),
        route("gamma", "/a").when(r#"request.cookies.beta == "2" && request.cookies.beta != "3""#),
    ]);
    let headers = [("cookie", "beta=1")];
    let decision = explain(&table.unwrap(), &request("GET", "a", "/a", &headers), NEAR_MISSES);
    assert_eq!(decision.lost[0].rule, Rule::When);
    assert_eq!(
        decision.to_string(),
        "route: beta\n  matched: host *, path /a\n  \
         when: its expression is true; request.cookies[\"beta\"] is \"1\", request.headers[\"x-long\"] is absent\n\
         also match, but lose:\n  plain: `beta` has a `when`, this one none\n\
         do not match:\n  gamma: when; its expression is false; request.cookies[\"beta\"] is \"1\"\n"
    );
}

#[test]
fn tells_why_a_more_exact_path_wins() {
    let table = Table::build(vec![
        route("json", "/api/{id}.json"),
        route("v", "/api/v{id}"),
        route("n", "/api/{id}n"),
        route("id", "/api/{id}"),
        route("ap", "/ap*"),
        route("a", "/a*"),
        route("any", "/API/{id}").insensitive(),
    ])
    .unwrap();
    let decision = explain(&table, &request("GET", "a", "/api/van.json", &[]), 9);
    let whys: Vec<_> = decision.lost.iter().map(|lost| (&*lost.route, &*lost.why)).collect();
    let json = "the path `/api/{id}.json` of `json` is more specific than";
    let want = [
        ("v", format!("{json} `/api/v{{id}}`: its segment 2 has more literal text")),
        ("n", format!("{json} `/api/{{id}}n`: its segment 2 has more literal text")),
        ("id", format!("{json} `/api/{{id}}`")),
        ("any", format!("{json} `/API/{{id}}`")),
        ("ap", format!("{json} `/ap*`")),
        ("a", format!("{json} `/a*`")),
    ];
    assert_eq!(whys, want.iter().map(|(name, why)| (*name, &**why)).collect::<Vec<_>>());

    let why = |path: &str, loser: &str| {
        let decision = explain(&table, &request("GET", "a", path, &[]), 0);
        decision.lost.into_iter().find(|lost| lost.route == loser).unwrap().why
    };
    assert!(
        why("/api/van", "n").ends_with("`/api/{id}n`: its segment 2 has more literal text before the name")
    );
    assert!(why("/api/x", "any").ends_with("`/API/{id}`: it compares letters exactly"));
    assert!(why("/apx", "a").ends_with("`/a*`: it has more text after its last slash"));
}

#[test]
fn tells_how_a_prefix_and_a_regex_compete() {
    let table = Table::build(vec![
        route("static", "/static/*").priority(2),
        route("png", "~.*png").priority(1),
        route("any", "~.*static.*"),
        route("raw", "/st*").priority(9),
        route("php", "~.*php").priority(3),
        route("all", "/*"),
    ])
    .unwrap();
    let told = |path: &str| {
        let decision = explain(&table, &request("GET", "a", path, &[]), 0);
        decision.to_string()
    };
    assert_eq!(
        told("/static/a.png"),
        "\
route: static
  matched: host *, path /static/*
also match, but lose:
  raw: the path `/static/*` of `static` is more specific than `/st*`
  png: `static` has priority 2, this one 1: it decides between the best prefix and the best regex
  any: `png` has priority 1, this one 0, and `static` beats that one
  all: the path `/static/*` of `static` is more specific than `/*`
  and 1 more
"
    );
    assert_eq!(
        told("/static/php"),
        "\
route: php
  matched: host *, path ~.*php
also match, but lose:
  static: `php` has priority 3, this one 2: it decides between the best prefix and the best regex
  raw: the path `/static/*` of `static` is more specific than `/st*`, and `php` beats that one
  any: `php` has priority 3, this one 0
  all: the path `/static/*` of `static` is more specific than `/*`, and `php` beats that one
  and 1 more
"
    );
    assert!(told("/x.php").contains("all: `php` has priority 3, this one 0: it decides between"));
}

#[test]
fn case_is_told() {
    let table = Table::build(vec![route("any", "/Status").insensitive(), route("exact", "/health")]).unwrap();
    let told = explain(&table, &request("GET", "a", "/STATUS", &[]), 0);
    assert!(told.to_string().contains("  matched: host *, path /Status in any case\n"), "{told}");
    assert_eq!(serde_json::to_value(&told).unwrap()["winner"]["ignores_case"], true);
    let told = explain(&table, &request("GET", "a", "/Health", &[]), 9).to_string();
    assert!(told.contains("exact: path; it is for /health, and only the case of letters differs"), "{told}");
    assert!(told.contains("any: path; it is for /Status\n"), "{told}");
}
