//! Which sets of routes are refused, and the reported reasons.

use std::time::{Duration, Instant};

use super::super::testing::{excluding, route, without};
use super::super::{RouteSpec, Table};
use super::*;

fn conflicts(routes: Vec<RouteSpec>) -> Vec<Conflict> {
    Table::build(routes).err().unwrap_or_default()
}

fn kinds(routes: Vec<RouteSpec>) -> Vec<(ConflictKind, usize, Option<usize>)> {
    conflicts(routes).iter().map(|c| (c.kind, c.route, c.other)).collect()
}

#[test]
fn ties_are_refused() {
    let a = || route("a", "/x/{id}");
    let pairs = [
        (a(), route("b", "/x/{other}")),
        (a().methods(&["GET", "PUT"]), route("b", "/x/{id}").methods(&["PUT", "POST"])),
        (a().methods(&["GET"]), route("b", "/x/{id}").header("x-a", "1")),
        (a().header("x-a", "1"), route("b", "/x/{id}").header("x-b", "1")),
        (a().header("x-a", "1"), route("b", "/x/{id}").header("X-A", "*")),
        (a().header("x-a", "ab"), route("b", "/x/{id}").header("x-a", "~a.*")),
        (a().query("v", "1"), route("b", "/x/{id}").query("w", "1")),
        (a().listeners(&[1, 2]), route("b", "/x/{id}").listeners(&[2, 3])),
        (a().hosts(&["a.test", "b.test"]), route("b", "/x/{id}").hosts(&["B.test", "c.test"])),
        (route("a", "/x/*"), route("b", "/x/{rest*}")),
        (route("a", "/x*"), route("b", "/x*").methods(&[])),
        (route("a", "/x/{id}.json"), route("b", "/x/{name}.json")),
        (route("a", "/x/a{id}.json/b*"), route("b", "/x/a{name}.json/b*")),
        (route("a", "/x/Ab").insensitive(), route("b", "/X/aB").insensitive()),
        (route("a", "/Ab*").insensitive(), route("b", "/aB*").insensitive()),
        (route("a", "/u{x}Ab").insensitive(), route("b", "/U{y}aB").insensitive()),
        (route("a", "/1/{x}").insensitive(), route("b", "/1/{y}")),
        (route("a", "~/x/[0-9]+"), route("b", "~/x/.*")),
        (route("a", "~/x/[0-9]+"), route("b", "~/x/[0-9]+")),
        (route("a", "~.*"), route("b", "~/y")),
        (a().cookie("c", "1"), route("b", "/x/{id}").cookie("c", "~1|2")),
        (a().clients(&["10.0.0.0/8"]), route("b", "/x/{id}").clients(&["10.1.0.0/16", "::1"])),
        (a().clients(&["10.0.0.0/8"]), route("b", "/x/{id}").cookie("c", "*")),
        (a().cookie("c", "1"), route("b", "/x/{id}").not(excluding(without().methods(&["GET"])))),
        (a().not(excluding(route("", "/x/1"))), route("b", "/x/{id}").not(excluding(route("", "/x/2")))),
        (route("a", "/y").or_path("/x"), route("b", "/x").or_path("/z")),
        (route("a", "/x").hosts(&["www.*"]), route("b", "/x").hosts(&["WWW.*."])),
        (route("a", "/x").hosts(&["~.*a"]), route("b", "/x").hosts(&["~a.*"])),
        (route("a", "/x").hosts(&["~.*a", "~b"]), route("b", "/x").hosts(&["~c", "~.*a"])),
    ];
    for (a, b) in pairs {
        let told = conflicts(vec![a.clone(), b.clone()]);
        let [tie] = &told[..] else { panic!("{a:?} {b:?}: {told:?}") };
        assert_eq!((tie.kind, tie.route, tie.other), (ConflictKind::Ambiguous, 1, Some(0)), "{a:?} {b:?}");
        assert!(tie.message.contains("`a`") && tie.message.contains("`b`"), "{}", tie.message);
        let hard = a.paths[0].starts_with('~') || a.hosts.iter().any(|host| host.starts_with('~'));
        assert!(tie.example.is_some() || hard, "{a:?} {b:?}");
    }
}

#[test]
fn a_tie_says_what_to_do() {
    const ONE: &str = "routes `b` and `a` can match one request, and nothing decides between them";
    const SAME: &str = "route `b` matches exactly the same requests as `a`";
    let (a, b) = (|| route("a", "/x"), || route("b", "/x"));
    for (a, b, message, hint) in [
        (a(), b(), SAME, "remove one, or make their `match` differ"),
        (route("a", "~/x/[0-9]+"), route("b", "~/x/[0-9]+"), SAME, "remove one"),
        (a().methods(&["GET", "PUT"]), b().methods(&["PUT", "POST"]), ONE, "one more condition; the higher"),
        (a().header("x-a", "*"), b().header("x-a", "1"), ONE, "one more condition; the higher"),
        (a().header("x-a", "1"), b().header("x-a", "*"), ONE, "one more condition; the higher"),
        (route("a", "~/x/[0-9]+"), route("b", "~/x/.*"), ONE, "or begin their regexes with different text"),
    ] {
        let told = conflicts(vec![a, b]);
        assert_eq!(told[0].message, message);
        assert!(told[0].hint.contains(hint), "{}", told[0].hint);
    }
}

#[test]
fn routes_that_exclude_each_other_or_differ_in_rank_are_no_tie() {
    let a = || route("a", "/x");
    let b = || route("b", "/x");
    let pairs = [
        (a().methods(&["GET"]), b().methods(&["POST"])),
        (a().header("x-a", "1"), b().header("x-a", "2")),
        (a().header("x-a", "1"), b().header("x-a", "~[2-9]")),
        (a().query("v", "1"), b().query("v", "2")),
        (a().listeners(&[1]), b().listeners(&[2])),
        (a().hosts(&["a.test"]), b().hosts(&["b.test"])),
        (a().hosts(&["a.test"]), b()),
        (a().cookie("c", "1"), b().cookie("c", "2")),
        (a().cookie("c", "1"), b().cookie("C", "1").priority(1)),
        (a().clients(&["10.0.0.0/8"]), b().clients(&["11.0.0.0/8", "::1"])),
        (a().clients(&["10.0.0.0/8"]), b()),
        (a().clients(&["::ffff:10.0.0.0/104"]), b().clients(&["11.0.0.0/8"])),
        (a().not(excluding(without().methods(&["GET", "PUT"]))), b().methods(&["GET"])),
        (a().not(excluding(without().header("x-a", "*"))), b().header("x-a", "1")),
        (a().not(excluding(without().cookie("c", "1"))), b().cookie("c", "1")),
        (a().not(excluding(without().clients(&["10.0.0.0/8"]))), b().clients(&["10.7.0.0/16"])),
        (a().not(excluding(without().query("v", "1"))), b().query("v", "1")),
        (a().not(excluding(without().listeners(&[1]))), b().listeners(&[1])),
        (
            a().hosts(&["~.*a"]).not(excluding(without().hosts(&["~a.*"]))),
            b().hosts(&["~a.*"]).header("x-a", "*"),
        ),
        (
            a().hosts(&["~.*a.test"]).not(excluding(without().hosts(&["b.*"]))),
            b().hosts(&["~b\\..*"]).methods(&["GET"]),
        ),
        (route("a", "~/x/.*").not(excluding(route("", "/x/y/*"))), route("b", "~/x/y/.*").methods(&["GET"])),
        (
            a().not(excluding(without().methods(&["GET"]).header("x-a", "1"))),
            b().methods(&["GET"]).priority(-1),
        ),
        (route("a", "/x").priority(1), route("b", "/x").or_path("/y")),
        (route("a", "/y").or_path("/x").priority(1), route("b", "/x").or_path("/y").or_path("/z")),
        (route("a", "/x").or_path("~/y+").or_path("~/[xy]+"), route("b", "/z")),
        (a().hosts(&["a.*"]), b().hosts(&["*.a"])),
        (a().hosts(&["a.*"]), b().hosts(&["a.b.*"])),
        (a().hosts(&["a.*"]), b().hosts(&["~a.*"])),
        (a().hosts(&[r"~.+\.a\.test"]), b().hosts(&[r"~.+\.b\.test"])),
        (a().hosts(&["~.+a", "~b"]), b().hosts(&["~.+c", "~d"])),
        (a().hosts(&["~.+a"]), b().hosts(&["~.+"]).priority(1)),
        (a().hosts(&["~.+a"]), route("b", "/x/*").hosts(&["~.+"])),
        (a(), b().methods(&["GET"])),
        (a(), route("b", "/x/")),
        (a(), route("b", "/{x}")),
        (route("a", "/{x}/b"), route("b", "/a/{y}")),
        (a(), route("b", "/x").insensitive()),
        (a(), route("b", "/X")),
        (route("a", "/X").insensitive(), route("b", "/y").insensitive()),
        (route("a", "/x/*"), route("b", "/x*")),
        (route("a", "/xy*"), route("b", "/x*")),
        (route("a", "/x*"), route("b", "/X*").insensitive()),
        (route("a", "/{x}.json"), route("b", "/{x}")),
        (route("a", "/a{x}"), route("b", "/{x}a")),
        (route("a", "/a{x}").priority(1), route("b", "/a{x}").insensitive()),
        (route("a", "/x").insensitive().priority(9), route("b", "/x")),
        (route("a", "/x/*").priority(1), route("b", "~/x.*png")),
        (route("a", "/x/*").priority(1), route("b", "~.*png")),
        (route("a", "/{x}/*").priority(1), route("b", "~/x/.*")),
        (route("a", "/X/*").insensitive().priority(1), route("b", "~/x/.*")),
        (route("a", "/x/*").priority(1).methods(&["GET"]), route("b", "~/x/.*")),
        (route("a", "/x/*").priority(1), route("b", "~/x/.*").hosts(&["a.test"])),
        (route("a", "/x/*"), route("b", "~/x/.*")),
        (route("a", "/x/*"), route("b", "~/x/.*").priority(1)),
        (route("a", "~/a/[0-9]+"), route("b", "~/b/[0-9]+")),
        (route("a", "~/a/[0-9]+").priority(1), route("b", "~/a/.*")),
        (a().methods(&["GET"]).priority(1), b().header("x-a", "1")),
        (a().methods(&["GET"]).priority(1), b().methods(&["GET", "POST"])),
        (a().hosts(&["a.test"]).priority(1), b().hosts(&["a.test", "b.test"])),
    ];
    for (a, b) in pairs {
        assert_eq!(kinds(vec![a.clone(), b.clone()]), [], "{a:?} {b:?}");
    }
}

#[test]
fn routes_that_never_win_are_refused() {
    let pairs = [
        (route("a", "/x").priority(1), route("b", "/x")),
        (route("a", "/x/*").priority(1), route("b", "/x/{rest*}")),
        (route("a", "/x*").priority(1), route("b", "/x*")),
        (route("a", "/{x}.js").priority(1), route("b", "/{y}.js").methods(&[])),
        (route("a", "/X").insensitive().priority(1), route("b", "/x").insensitive()),
        (route("a", "/X*").insensitive().priority(1), route("b", "/x*").insensitive()),
        (route("a", "/1").insensitive().priority(1), route("b", "/1")),
        (route("a", "/x").methods(&["GET", "POST"]).priority(1), route("b", "/x").methods(&["GET"])),
        (route("a", "/x").header("x-a", "*").priority(1), route("b", "/x").header("x-a", "1")),
        (route("a", "~/x/.*").priority(1), route("b", "~/x/.*")),
        (route("a", "/x").hosts(&["a.test", "b.test"]).priority(1), route("b", "/x").hosts(&["a.test"])),
        (route("a", "/x").cookie("c", "*").priority(1), route("b", "/x").cookie("c", "1")),
        (route("a", "/x").clients(&["10.0.0.0/8"]).priority(1), route("b", "/x").clients(&["10.1.0.0/16"])),
        (
            route("a", "/x").not(excluding(without().methods(&["GET"]))).priority(1),
            route("b", "/x").not(excluding(without().methods(&["GET"]))),
        ),
        (
            route("a", "/x").not(excluding(without().methods(&["GET"]))).priority(1),
            route("b", "/x").methods(&["PUT"]),
        ),
        (route("a", "/x").hosts(&["~a", "~b"]).priority(1), route("b", "/x").hosts(&["~b", "~a"])),
        (route("a", "/y").or_path("/x").priority(1), route("b", "/x").or_path("/y")),
        // A prefix over a regex.
        (route("a", "/*").priority(1), route("b", "~.*x")),
        (route("a", "/x/*").priority(1), route("b", "~/x/.*png")),
        (route("a", "/x/y*").priority(1), route("b", "~/x/y(a|b)")),
        (route("a", "/x/*").methods(&["GET", "PUT"]).priority(1), route("b", "~/x/.*").methods(&["GET"])),
    ];
    for (a, b) in pairs {
        assert_eq!(
            kinds(vec![a.clone(), b.clone()]),
            [(ConflictKind::Unreachable, 1, Some(0))],
            "{a:?} {b:?}"
        );
        assert_eq!(
            kinds(vec![b.clone(), a.clone()]),
            [(ConflictKind::Unreachable, 0, Some(1))],
            "{b:?} {a:?}"
        );
    }
}

#[test]
fn a_regex_under_a_prefix_may_win_where_a_better_prefix_has_no_priority() {
    let all = |better: &str| {
        let routes = vec![route("p", "/x/*").priority(1), route("r", "~/x/y/.*png"), route("better", better)];
        kinds(routes).len()
    };
    assert_eq!(all("/x/y/*"), 0);
    assert_eq!(all("/x/{name}/*"), 0);
    assert_eq!(all("/x/Y/*"), 1);
    assert_eq!(all("/y/z/*"), 1);
}

#[test]
fn paths_of_one_route_differ() {
    for (a, b, refused) in [
        ("/x", "/x", true),
        ("/x/{a}", "/x/{b}", true),
        ("/x/*", "/x/{rest*}", true),
        ("~/x", "~/x", true),
        ("/x", "/x/", false),
        ("~/x", "/x", false),
        ("/x", "no", true),
    ] {
        let told = conflicts(vec![route("first", "/"), route("a", a).or_path(b)]);
        let told: Vec<_> = told.iter().map(|c| (c.kind, c.route, &*c.field)).collect();
        let want = [(ConflictKind::BadPattern, 1, "match.path[1]")];
        assert_eq!(told, if refused { &want[..] } else { &[] }, "{a} {b}");
    }
    // A later route keeps its number.
    let told = kinds(vec![route("a", "/a").or_path("/b"), route("b", "/c").or_path("/d"), route("c", "/d")]);
    assert_eq!(told, [(ConflictKind::Ambiguous, 2, Some(1))]);
}

#[test]
fn an_exclusion_that_leaves_nothing_is_refused() {
    let all = |spec: RouteSpec, not: RouteSpec| {
        conflicts(vec![spec.not(excluding(not))])
            .iter()
            .map(|c| (c.kind, c.field.clone()))
            .collect::<Vec<_>>()
    };
    let refused = [(ConflictKind::BadExclusion, "match.not[0]".to_owned())];
    for (spec, not) in [
        (route("a", "/x"), without()),
        (route("a", "/x"), route("", "/*")),
        (route("a", "/x"), route("", "/x")),
        (route("a", "/x"), without().hosts(&["*"])),
        (route("a", "/x/y/*"), route("", "/x/*")),
        (route("a", "/x/{id}"), route("", "/x/*")),
        (route("a", "/x/yz*"), route("", "/x/y*")),
        (route("a", "/x"), route("", "~/(x|y)")),
        (route("a", "/x").methods(&["GET"]), without().methods(&["GET", "PUT"])),
        (route("a", "/x").hosts(&["a.test", "b.test"]), without().hosts(&["*.test"])),
        (route("a", "/x").clients(&["10.1.0.0/16"]), without().clients(&["10.0.0.0/8"])),
    ] {
        assert_eq!(all(spec.clone(), not.clone()), refused, "{spec:?} {not:?}");
    }
    for (spec, not) in [
        (route("a", "/x/*"), route("", "/x/y/*")),
        (route("a", "/x*"), route("", "/x/*")),
        (route("a", "/{id}"), route("", "/x")),
        (route("a", "/x"), route("", "/X")),
        (route("a", "/x").methods(&["GET", "PUT"]), without().methods(&["GET"])),
        (route("a", "/x").hosts(&["a.test", "b.org"]), without().hosts(&["*.test"])),
        (route("a", "/x").header("x-a", "*"), without().header("x-a", "1")),
    ] {
        assert_eq!(all(spec.clone(), not.clone()), [], "{spec:?} {not:?}");
    }
}

#[test]
fn an_example_matches_both() {
    let told = conflicts(vec![
        route("a", "/x").clients(&["2001:db8::/32", "10.0.0.0/8"]).cookie("c", "1"),
        route("b", "/x").clients(&["10.7.0.0/16"]).cookie("d", "*"),
    ]);
    assert_eq!(
        told[0].example.as_deref(),
        Some("GET http://localhost/x -H 'cookie: c=1; d=x' --client 10.7.0.0")
    );
    let told = conflicts(vec![
        route("a", "/x/{id}").hosts(&["*.a.test"]).header("x-a", "1").query("v", "a b"),
        route("b", "/x/{id}").hosts(&["*.a.test"]).header("x-a", "*").methods(&["POST", "PUT"]),
    ]);
    assert_eq!(told[0].example.as_deref(), Some("POST http://any.a.test/x/id?v=a%20b -H 'x-a: 1'"));
    let told =
        conflicts(vec![route("a", "/X{id}.Js/y*").insensitive(), route("b", "/x{n}.js/Y*").insensitive()]);
    assert_eq!(told[0].example.as_deref(), Some("GET http://localhost/Xid.Js/y"));
    let told = conflicts(vec![route("a", "~/v[0-9]+/.*"), route("b", "~/v1/[a-z]{3}")]);
    assert_eq!(told[0].example.as_deref(), Some("GET http://localhost/v1/aaa"));
}

#[test]
fn a_pile_of_ties_is_told_briefly_and_quickly() {
    let begin = Instant::now();
    let same = (0..10_000).map(|n| route(&format!("r{n}"), "/same")).collect();
    assert_eq!(conflicts(same).len(), MAX_TIES);
    assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", begin.elapsed());
}

#[test]
fn ten_thousand_routes_that_one_value_tells_apart_are_quick() {
    let begin = Instant::now();
    let mut routes: Vec<_> =
        (0..10_000).map(|n| route(&format!("r{n}"), "/same").header("x-tenant", &n.to_string())).collect();
    routes.push(route("again", "/same").header("x-tenant", "77"));
    routes.push(route("regex", "/same").header("x-tenant", "~9{4}"));
    let told = kinds(routes);
    assert_eq!(
        told,
        [(ConflictKind::Ambiguous, 10_000, Some(77)), (ConflictKind::Ambiguous, 10_001, Some(9999))]
    );
    assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", begin.elapsed());
}

#[test]
fn ten_thousand_expressions_that_one_text_tells_apart_are_quick() {
    let begin = Instant::now();
    let when =
        |tenant: &str| format!("request.headers[\"x-tenant\"] == \"{tenant}\" && request.path != \"\"");
    let mut routes: Vec<_> =
        (0..10_000).map(|n| route(&format!("r{n}"), "/same").when(&when(&n.to_string()))).collect();
    routes.push(route("again", "/same").when(&when("77")));
    routes.push(route("list", "/same").when("request.headers[\"x-tenant\"] in [\"9999\", \"x\"]"));
    assert_eq!(
        kinds(routes),
        [(ConflictKind::Ambiguous, 10_000, Some(77)), (ConflictKind::Ambiguous, 10_001, Some(9999))]
    );
    assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", begin.elapsed());
}

#[test]
fn expressions_exclude_each_other_by_different_constants() {
    let (a, b) = (|| route("a", "/x"), || route("b", "/x"));
    let is = |value: &str| format!("request.headers[\"x-env\"] == \"{value}\"");
    // Apart, or by weight.
    for (a, b) in [
        (a().when(&is("blue")), b().when(&is("green"))),
        (a().when(&is("blue")), b().when(&format!("{} && now > timestamp(0)", is("green")))),
        (a().when("request.method in [\"GET\", \"HEAD\"]"), b().when("request.method == \"POST\"")),
        (a().when("has(request.args.v)"), b().when("!has(request.args.v)")),
        (a().when(&is("blue")), b()),
        (a().when(&is("blue")), b().header("x-env", "blue")),
        (a().when(&is("blue")), b().when("client.tls").priority(1)),
    ] {
        assert_eq!(kinds(vec![a.clone(), b.clone()]), [], "{a:?} {b:?}");
    }
    let tie = [(ConflictKind::Ambiguous, 1, Some(0))];
    assert_eq!(kinds(vec![a().when(&is("blue")), b().when("client.tls")]), tie);
    assert_eq!(kinds(vec![a().when(&is("blue")), b().when(&is("blue"))]), tie);
    let same = conflicts(vec![a().when(&is("blue")), b().when(&is("blue"))]);
    assert!(same[0].message.contains("exactly the same requests"), "{}", same[0].message);
    // The same expression of higher priority leaves nothing.
    let told = kinds(vec![a().when(&is("blue")), b().when(&is("blue")).priority(1)]);
    assert_eq!(told, [(ConflictKind::Unreachable, 0, Some(1))]);
}
