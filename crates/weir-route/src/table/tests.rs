//! Cases of precedence, and the table against a reference implementation written directly from the rules.

mod reference;

use super::super::testing::{Pairs, excluding, request, route, without};
use super::super::{ConflictKind, Exclusion, NoTrace, Rule, explain};
use super::*;

fn table(routes: Vec<RouteSpec>) -> Table {
    Table::build(routes).unwrap_or_else(|conflicts| panic!("{conflicts:#?}"))
}

/// The name of the route that wins.
fn winner<'t, H: Headers>(table: &'t Table, request: &Request<'_, H>) -> &'t str {
    table.find(request, &mut NoTrace).map_or("-", |id| table.name(id).unwrap())
}

#[test]
fn the_more_specific_path_wins() {
    let table = table(vec![
        route("everything", "/*"),
        route("root", "/"),
        route("hello", "/hello"),
        route("hello/", "/hello/"),
        route("beta", "/beta/*"),
        route("beta-deep", "/beta/deep/{rest*}"),
        route("user", "/users/{id}"),
        route("me", "/users/me"),
        route("posts", "/users/{id}/posts"),
        route("me-any", "/users/me/{thing}"),
        route("users-below", "/users/*"),
        route("user-below", "/users/{id}/*"),
        route("me-below", "/users/me/*"),
        route("digits", "~/users/[0-9]+(/x)?").header("x-regex", "*"),
        route("digits-2", "~/users/[0-9]+/y"),
    ]);
    let cases = [
        ("/", "root"),
        ("/x", "everything"),
        ("/hello", "hello"),
        ("/hello/", "hello/"),
        ("/hello/x", "everything"),
        ("/beta", "beta"),
        ("/beta/", "beta"),
        ("/betax", "everything"),
        ("/beta/deep", "beta-deep"),
        ("/beta/deepx", "beta"),
        ("/beta/deep/er", "beta-deep"),
        ("/users", "users-below"),
        ("/users/", "users-below"),
        ("/users/me", "me"),
        ("/users/7", "user"),
        ("/users/7/posts", "posts"),
        ("/users/me/posts", "me-any"),
        ("/users/me/", "me-below"),
        ("/users/me/a/b", "me-below"),
        ("/users/7/", "user-below"),
        ("/users/7/y", "digits-2"),
        ("/users/7/x", "user-below"),
        ("/users/7/a/b/c", "user-below"),
        ("*", "everything"),
        ("", "everything"),
    ];
    for (path, want) in cases {
        assert_eq!(winner(&table, &request("GET", "a", path, &[])), want, "{path}");
    }
    assert_eq!(winner(&table, &request("GET", "a", "/users/7/x", &[("X-Regex", "1")])), "digits");
}

#[test]
fn the_more_specific_host_wins_and_a_failed_one_falls_through() {
    let table = table(vec![
        route("any", "/*"),
        route("com", "/*").hosts(&["*.com"]),
        route("example", "/*").hosts(&["*.example.com"]),
        route("deep", "/only").hosts(&["*.deep.example.com"]),
        route("api", "/v1/*").hosts(&["api.example.com", "[::1]"]),
        route("api-post", "/v1/*").hosts(&["api.example.com"]).methods(&["POST"]),
        route("api-form", "/form").hosts(&["api.example.com"]).methods(&["POST"]),
    ]);
    let cases = [
        ("GET", "api.example.com", "/v1/x", "api"),
        ("POST", "api.example.com", "/v1/x", "api-post"),
        ("GET", "API.Example.COM.:8080", "/v1", "api"),
        ("GET", "[0::1]:8080", "/v1", "api"),
        ("GET", "[::2]", "/v1", "any"),
        ("GET", "api.example.com", "/v2", "example"),
        ("GET", "api.example.com", "/form", "example"),
        ("POST", "api.example.com", "/form", "api-form"),
        ("GET", "x.deep.example.com", "/only", "deep"),
        ("GET", "x.deep.example.com", "/other", "example"),
        ("GET", "a.b.example.com", "/", "example"),
        ("GET", "example.com", "/", "com"),
        ("GET", "com", "/", "any"),
        ("GET", ".com", "/", "any"),
        ("GET", "", "/", "any"),
        ("GET", "\u{0}\u{fffd}.\u{1}", "/", "any"),
    ];
    for (method, host, path, want) in cases {
        assert_eq!(winner(&table, &request(method, host, path, &[])), want, "{method} {host}{path}");
    }
    assert_eq!(winner(&table, &request("GET", &"a.".repeat(4000), "/", &[])), "any");
}

#[test]
fn hosts_by_their_beginning_and_by_regex() {
    let table = table(vec![
        route("any", "/*"),
        route("exact", "/a").hosts(&["www.example.com"]),
        route("wild", "/b").hosts(&["*.example.com"]),
        route("www", "/*").hosts(&["www.*"]),
        route("www.example", "/c").hosts(&["www.example.*"]),
        route("sub", "/*").hosts(&[r"~^(?<sub>.+)\.example\.com$"]),
        route("api", "/deep/*").hosts(&[r"~api[0-9]+\..*"]),
        route("api-regex", "~/deep/x+").hosts(&[r"~api[0-9]+\..*"]).priority(-1),
        route("api-exact", "/deep/x").hosts(&[r"~api7\..*"]),
        route("several", "/several").hosts(&[r"~(?<a>x+)\.test", r"~(?<a>[xy]+)\.(?<b>test)", "plain.test"]),
    ]);
    for (host, path, want) in [
        ("www.example.com", "/a", "exact"),
        ("www.example.com", "/b", "wild"),
        ("www.example.com", "/c", "www.example"),
        ("WWW.Example.org.:80", "/c", "www.example"),
        ("www.example.com", "/d", "www"),
        ("www", "/d", "any"),
        ("www.", "/d", "any"),
        ("a.b.example.com", "/d", "sub"),
        ("A.EXAMPLE.COM", "/d", "sub"),
        ("example.com", "/d", "any"),
        ("a.example.com.evil", "/d", "any"),
        ("api1.example.com", "/d", "sub"),
        // Both regexes match: the better path wins, and between prefix and regex the priority.
        ("api1.example.com", "/deep/y", "api"),
        ("api1.example.com", "/deep/xx", "api"),
        ("api7.example.com", "/deep/x", "api-exact"),
        ("api1.example.com", "/deep/x", "api"),
        ("[::1]", "/d", "any"),
        ("", "/d", "any"),
    ] {
        assert_eq!(winner(&table, &request("GET", host, path, &[])), want, "{host} {path}");
    }
    let captured = |host: &str, path: &str| {
        let id = table.find(&request("GET", host, path, &[]), &mut NoTrace).unwrap();
        let all = table.parameters(id, path.as_bytes(), host.as_bytes()).unwrap().all();
        let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
        all.iter().map(|(name, value)| format!("{name}={}", text(value))).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(captured("A.b.Example.com.:8080", "/d"), "sub=a.b");
    assert_eq!(captured("xx.test", "/several"), "a=xx");
    assert_eq!(captured("XY.test", "/several"), "a=xy b=test");
    assert_eq!(captured("plain.test", "/several"), "");
    // Longer than any name of the DNS: no route but those for any host.
    assert_eq!(
        winner(&table, &request("GET", &format!("{}.example.com", "a".repeat(250)), "/d", &[])),
        "any"
    );
}

#[test]
fn more_conditions_win_then_priority() {
    let table = table(vec![
        route("plain", "/a"),
        route("get", "/a").methods(&["GET"]),
        route("blue", "/a").header("X-Env", "blue").priority(1),
        route("blue-get", "/a").header("x-env", "blue").methods(&["GET"]),
        route("v2", "/a").query("v", "2").header("x-env", "*").listeners(&[0, 3]).methods(&["GET"]),
    ]);
    let cases: [(&str, &str, Pairs<'_>, &str); 7] = [
        ("PUT", "/a", &[], "plain"),
        ("GET", "/a", &[], "get"),
        ("PUT", "/a", &[("x-env", "blue")], "blue"),
        ("GET", "/a", &[("x-env", "blue")], "blue-get"),
        ("GET", "/a", &[("x-env", "green")], "get"),
        ("GET", "/a?v=2", &[("x-env", "green")], "v2"),
        ("GET", "/b", &[], "-"),
    ];
    for (method, target, headers, want) in cases {
        assert_eq!(
            winner(&table, &request(method, "a", target, headers)),
            want,
            "{method} {target} {headers:?}"
        );
    }
    let elsewhere = Request { listener: 2, ..request("GET", "a", "/a?v=2", &[("x-env", "green")]) };
    assert_eq!(winner(&table, &elsewhere), "get");
}

#[test]
fn a_made_up_request_avoids_a_rival() {
    let table = table(vec![
        route("raw", "/api*"),
        route("below", "/api/*"),
        route("exact", "/status"),
        route("any", "/status").insensitive(),
        route("part", "/{id}.json"),
        route("both", "/Api*").insensitive(),
    ]);
    let path = |route: u32| {
        let sample = table.sample(RouteId(route)).unwrap();
        assert_eq!(table.find(&sample.request(), &mut NoTrace), Some(RouteId(route)), "{sample}");
        sample.path
    };
    let paths: Vec<_> = (0..6).map(path).collect();
    assert_eq!(paths, ["/api-x", "/api", "/status", "/STATUS", "/id.json", "/Api"]);
}

#[test]
fn captures_come_from_the_winner() {
    let table = table(vec![route("spot", "/spot/{rest*}"), route("user", "/u/{id}/{what}")]);
    let id = table.find(&request("GET", "", "/u/7/x", &[]), &mut NoTrace).unwrap();
    let captures = table.parameters(id, b"/u/7/x", b"").unwrap();
    assert_eq!(
        (captures.get("id").as_deref(), captures.get("what").as_deref()),
        (Some(&b"7"[..]), Some(&b"x"[..]))
    );
    assert!(table.parameters(RouteId(9), b"/", b"").is_none());
    assert_eq!(table.pattern(id, b"/u/7/x").unwrap().capture_names(), ["id", "what"]);
    assert_eq!((table.len(), table.is_empty()), (2, false));
}

/// A request of a client with an address.
struct From(&'static str);

impl Headers for From {
    fn get_all<'a>(&'a self, _: &[u8]) -> impl Iterator<Item = &'a [u8]> {
        std::iter::empty()
    }

    fn client_ip(&self) -> Option<std::net::IpAddr> {
        self.0.parse().ok()
    }
}

#[test]
fn clients_are_compared_as_addresses() {
    let table = table(vec![
        route("any", "/*"),
        route("inside", "/*").clients(&["10.0.0.0/8", "2001:db8::1"]),
        route("mapped", "/*").clients(&["::ffff:192.0.2.0/120"]),
        route("outside", "/outside").not(excluding(without().clients(&["10.0.0.0/8"]))),
    ]);
    for (client, path, want) in [
        ("10.1.2.3", "/", "inside"),
        ("::ffff:10.1.2.3", "/", "inside"),
        ("2001:db8::1", "/", "inside"),
        ("2001:db8::2", "/", "any"),
        ("192.0.2.7", "/", "mapped"),
        ("::ffff:192.0.2.7", "/", "mapped"),
        ("11.0.0.0", "/", "any"),
        ("::ffff:10.0.0.1", "/outside", "inside"),
        ("11.0.0.1", "/outside", "outside"),
        ("", "/", "any"),
        ("", "/outside", "outside"),
    ] {
        let headers = From(client);
        let request =
            Request { listener: 0, host: b"", method: b"GET", path: path.as_bytes(), query: None, headers };
        assert_eq!(winner(&table, &request), want, "{client} {path}");
    }
}

#[test]
fn cookies_are_conditions_like_headers() {
    let table = table(vec![
        route("plain", "/*"),
        route("beta", "/*").cookie("beta", "1"),
        route("any", "/*").cookie("beta", "*").priority(-1),
        route("lang", "/*").cookie("lang", "~de|fr").priority(-2),
        route("both", "/*").cookie("beta", "1").cookie("lang", "de"),
    ]);
    for (fields, want) in [
        (&[][..], "plain"),
        (&["beta=1"], "beta"),
        (&["x=2; beta=1 ;y"], "beta"),
        (&["beta=2"], "any"),
        (&["beta=1; beta=1"], "any"),
        (&["beta=1", "beta=2"], "any"),
        (&["Beta=1"], "plain"),
        (&["lang=fr"], "lang"),
        (&["lang=fra"], "plain"),
        (&["lang=de", "beta=1"], "both"),
        (&["beta"], "plain"),
        (&["beta="], "any"),
        (&["xbeta=1"], "plain"),
    ] {
        let headers: Vec<(&str, &str)> = fields.iter().map(|value| ("Cookie", *value)).collect();
        assert_eq!(winner(&table, &request("GET", "", "/", &headers)), want, "{fields:?}");
    }
}

#[test]
fn a_route_may_have_several_paths() {
    let table = table(vec![
        route("all", "/*"),
        route("list", "/a/{id}")
            .or_path("/b/*")
            .or_path("~/(?<id>c+)")
            .or_path("/both/{id}/*")
            .or_path("/both/x/*"),
        route("a", "/a/*"),
        route("b", "/b/deep/*"),
        route("when", "/w/{id}").or_path("/w/{other}.json").when(r#"request.params.other == "1""#),
        route("after", "/z"),
    ]);
    for (path, want, captured) in [
        ("/a/1", "list", "id=1"),
        ("/a/1/2", "a", ""),
        ("/b/x", "list", ""),
        ("/b/deep/x", "b", ""),
        ("/ccc", "list", "id=ccc"),
        ("/both/y/z", "list", "id=y"),
        ("/both/x/z", "list", ""),
        ("/w/1.json", "when", "other=1"),
        ("/w/2.json", "all", ""),
        ("/w/1", "all", ""),
        ("/z", "after", ""),
    ] {
        let found = table.find(&request("GET", "", path, &[]), &mut NoTrace).unwrap();
        let all = table.parameters(found, path.as_bytes(), b"").unwrap().all();
        let all: Vec<_> = all.iter().map(|(n, v)| format!("{n}={}", String::from_utf8_lossy(v))).collect();
        assert_eq!((table.name(found).unwrap(), &*all.join(" ")), (want, captured), "{path}");
    }
    assert_eq!(table.len(), 6);
    let sample = |route: u32| table.sample(RouteId(route)).unwrap();
    assert_eq!((sample(5).path.as_str(), sample(1).path.as_str()), ("/z", "/a/id"));
    let told = explain(&table, &request("GET", "", "/b/x", &[]), 9).to_string();
    assert!(told.contains("a: path; it is for /a/*\n"), "{told}");
    let told = explain(&table, &request("GET", "", "/y", &[]), 9).to_string();
    let paths = "list: path; it is for /a/{id}, /b/*, ~/(?<id>c+), /both/{id}/*, /both/x/*\n";
    assert!(told.contains(paths) && told.matches("list:").count() == 1, "{told}");
}

#[test]
fn what_is_excluded_goes_to_the_next_route() {
    let table = table(vec![
        route("all", "/*"),
        route("api", "/api/*")
            .not(excluding(route("", "/api/Internal/*").insensitive()))
            .not(excluding(without().methods(&["PUT", "DELETE"]).header("x-admin", "*"))),
        route("wild", "/w")
            .hosts(&["*.test"])
            .not(excluding(without().hosts(&["secret.test", "~x[0-9]\\.test"]))),
        route("many", "/m").not(Exclusion {
            paths: vec!["/m".into()],
            methods: vec!["GET".into()],
            ..Default::default()
        }),
    ]);
    let admin = [("x-admin", "1")];
    for (method, host, path, headers, want) in [
        ("GET", "", "/api/x", &[][..], "api"),
        ("GET", "", "/api/INTERNAL/x", &[], "all"),
        ("GET", "", "/api/internal", &[], "all"),
        ("GET", "", "/api/internalx", &[], "api"),
        ("PUT", "", "/api/x", &[], "api"),
        ("PUT", "", "/api/x", &admin, "all"),
        ("GET", "", "/api/x", &admin, "api"),
        ("GET", "a.test", "/w", &[], "wild"),
        ("GET", "SECRET.test.:80", "/w", &[], "all"),
        ("GET", "x1.test", "/w", &[], "all"),
        ("GET", "xx.test", "/w", &[], "wild"),
        ("GET", "", "/m", &[], "all"),
        ("PUT", "", "/m", &[], "many"),
    ] {
        assert_eq!(
            winner(&table, &request(method, host, path, headers)),
            want,
            "{method} {host}{path} {headers:?}"
        );
    }
}

#[test]
fn an_empty_table_matches_nothing() {
    let table = table(Vec::new());
    assert!(table.is_empty());
    assert_eq!(winner(&table, &request("GET", "a", "/", &[])), "-");
}

#[test]
fn every_mistake_is_told_at_once() {
    let conflicts = Table::build(vec![
        route("a", "/x").hosts(&["ok.example", "bad:80"]).methods(&["GET", "get"]),
        route("b", "no")
            .header("x y", "1")
            .header("x-a", "1")
            .header("X-A", "2")
            .query("", "1")
            .query("v", "~("),
        route("c", "/same"),
        route("d", "/same"),
    ])
    .unwrap_err();
    let got: Vec<_> = conflicts.iter().map(|c| (c.kind, c.route, &*c.field)).collect();
    let want = [
        (ConflictKind::BadHost, 0, "match.hosts[1]"),
        (ConflictKind::BadMethod, 0, "match.methods[1]"),
        (ConflictKind::BadHeader, 1, "match.headers.x y"),
        (ConflictKind::BadHeader, 1, "match.headers.X-A"),
        (ConflictKind::BadQuery, 1, "match.query."),
        (ConflictKind::BadQuery, 1, "match.query.v"),
        (ConflictKind::BadPattern, 1, "match.path"),
        (ConflictKind::Ambiguous, 3, "match"),
    ];
    assert_eq!(got, want);
}

#[test]
fn a_hostile_path_is_cheap_and_harmless() {
    let table = table(vec![
        route("templates", "/{a}/{b}/{c}/{d}"),
        route("mixed", "/x/{b}/x/*"),
        route("regex", "~/x/y/.*z"),
        route("part", "/x{a}/x{b}/{c}x/{d}"),
        route("cased", "/X/{b}x/*").insensitive(),
        route("raw", "/x/x/x*"),
        route("everything", "/*"),
    ]);
    for path in ["/".repeat(8192), "/x".repeat(4096), format!("/x/y/{}", "z/".repeat(4000))] {
        assert_ne!(winner(&table, &request("GET", "a", &path, &[])), "-");
    }
}

#[test]
fn priority_decides_between_the_best_prefix_and_the_best_regex() {
    // `^~ /static/`, `~ \.png$` and `/` of nginx, and a longer prefix without `^~`.
    let table = table(vec![
        route("static", "/static/*").priority(2),
        route("png", r"~.*\.png").priority(1),
        route("gif", r"~.*\.gif"),
        route("deep", "/static/deep/*"),
        route("raw", "/st*").priority(3),
        route("one", "/static/one.png"),
        route("all", "/*").priority(9),
    ]);
    for (path, want) in [
        ("/static/a.png", "static"),
        ("/static/a.txt", "static"),
        // The best prefix is `/static/deep/*`, which has no priority over the regex. No other prefix is asked.
        ("/static/deep/a.png", "png"),
        ("/static/deep/a.txt", "deep"),
        ("/static/one.png", "one"),
        ("/sta.png", "raw"),
        ("/x.gif", "all"),
    ] {
        assert_eq!(winner(&table, &request("GET", "a", path, &[])), want, "{path}");
    }
}

#[test]
fn an_expression_decides_after_the_number_of_conditions_and_before_priority() {
    let table = table(vec![
        route("plain", "/a").priority(5),
        route("beta", "/a").when(r#"request.cookies.beta == "1""#),
        route("urgent", "/a").when(r#"request.cookies.beta == "1" && has(request.args.now)"#).priority(1),
        route("get", "/a").methods(&["GET"]),
        route("id", "/users/{id}").when(r#"request.params.id == "7" && request.path == "/users/7""#),
        route("users", "/users/*"),
        route("host", "/h").when(r#"request.host == "api.example.com" && request.url.endsWith("/h")"#),
    ]);
    for (method, target, cookie, want) in [
        ("POST", "/a", "", "plain"),
        ("POST", "/a", "beta=1", "beta"),
        ("POST", "/a", "x=2; beta=1", "beta"),
        ("POST", "/a", "beta=2; beta=1", "plain"),
        ("POST", "/a?now", "beta=1", "urgent"),
        ("GET", "/a?now", "beta=1", "get"),
        ("GET", "/users/7", "", "id"),
        ("GET", "/users/8", "", "users"),
        ("GET", "/h", "", "host"),
    ] {
        let headers = [("Cookie", cookie)];
        let request = request(method, "API.example.com.:80", target, &headers);
        assert_eq!(winner(&table, &request), want, "{method} {target} {cookie}");
    }
}

/// The order of the Gateway API: a method beats two headers, and of equal routes the older one wins.
#[test]
fn a_rank_decides_instead_of_conditions() {
    let ranked = |routes: Vec<RouteSpec>| {
        let ranks = (1..).map(Some);
        table(routes.into_iter().zip(ranks).map(|(route, rank)| RouteSpec { rank, ..route }).collect())
    };
    let table = ranked(vec![
        route("get", "/a/*").methods(&["GET"]),
        route("headers", "/a/*").header("x-a", "1").header("x-b", "1"),
        route("older", "/a/*"),
        route("newer", "/a/*"),
        route("longer", "/a/b/*"),
        route("host", "/*").hosts(&["a.test"]),
    ]);
    let both: &[(&str, &str)] = &[("x-a", "1"), ("x-b", "1")];
    for (method, host, path, headers, wins) in [
        ("GET", "", "/a/x", both, "get"),
        ("PUT", "", "/a/x", both, "headers"),
        ("PUT", "", "/a/x", &[], "older"),
        // Hosts and paths come before the rank.
        ("PUT", "", "/a/b", both, "longer"),
        ("GET", "a.test", "/a/b", both, "host"),
    ] {
        assert_eq!(winner(&table, &request(method, host, path, headers)), wins, "{method} {host}{path}");
    }
    let decision = explain(&table, &request("PUT", "", "/a/x", &[]), 0);
    let lost: Vec<_> = decision.lost.iter().map(|lost| (&*lost.route, lost.rule)).collect();
    assert_eq!(lost, [("newer", Rule::Rank)]);
}
