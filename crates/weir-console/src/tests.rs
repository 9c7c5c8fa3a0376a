//! Tests of every page: outside data is escaped, and nothing that the policy forbids appears.

mod samples;

use crate::frame::{Frame, Screen};
use crate::view::*;
use crate::{POLICY, history};
use samples::{
    EVIL, autopsy, evil, explanation, fleet, history_of_one, route, route_trend, shadow, some_evil,
    some_upstreams, status, with_endpoints, with_upstream,
};
use serde_json::json;
use std::collections::BTreeMap;
use std::path::PathBuf;
use weir_gateway::autopsy::CauseShown;
use weir_gateway::{LeftOutStatus, ReloadStatus};

/// Every page, built from hostile data.
fn pages(frame: &Frame<'_>, status: &Status) -> Vec<(&'static str, String)> {
    let difference =
        || Difference { path: evil(), before: Some(json!(EVIL)), after: Some(json!({ EVIL: [EVIL] })) };
    let drift = Drift {
        drift: true,
        disk: some_evil(),
        differences: vec![difference()],
        more: Some(1),
        text: evil(),
        ..Drift::default()
    };
    let thing =
        ConfigEntry { section: evil(), name: evil(), at: evil(), managed: true, both: false, movable: true };
    let both = ConfigEntry { managed: false, both: true, ..thing.clone() };
    let by_hand = ConfigEntry { both: false, ..both.clone() };
    let pulse = Pulse {
        points: vec![
            Point { requests: 1.0, failed: 0.5, ..Point::default() },
            Point { requests: 2.0, p99_ms: Some(3.0), ..Point::default() },
        ],
        step: 5,
        recent: Recent { causes: vec![(evil(), 2)], ..Recent::default() },
        upstreams: BTreeMap::new(),
    };
    let revisions = history_of_one();
    let question = Question { method: evil(), url: evil(), fields: evil(), listener: evil() };
    let config = Config {
        files: vec![evil()],
        managed: Some(evil()),
        things: vec![thing.clone()],
        settings: vec![(evil(), evil())],
        drift: drift.clone(),
    };
    let consumer = Consumer {
        name: evil(),
        plan: Some(evil()),
        groups: vec![evil()],
        credentials: vec![(evil(), 2)],
        networks: vec![evil()],
        answers: Some((3, 2, 1)),
    };
    let plan = Plan { name: evil(), filters: vec![(evil(), json!({ EVIL: EVIL }))], consumers: 1 };
    let why = Autopsies {
        found: vec![autopsy()],
        held: 1,
        since: some_evil(),
        sample: 1000,
        on: true,
        ..Autopsies::default()
    };
    let sought = WhyQuery { kind: evil(), cause: evil(), route: evil(), each: false, wrong: Some(evil()) };
    let unreadable = Drift { disk: None, ..drift.clone() };
    let managed = ManagedText { path: EVIL.into(), text: evil(), tag: evil(), hidden: 2 };
    let differences = Ok(Differences { differences: vec![difference()], more: 2, ..Differences::default() });
    vec![
        ("overview", crate::overview(frame, status, &pulse, revisions.revisions.first(), Some(&drift))),
        (
            "routes",
            crate::routes(frame, &[route()], EVIL, &[evil(), evil()], &question, Some(&Ok(explanation()))),
        ),
        ("no answer", crate::routes(frame, &[], EVIL, &[], &question, Some(&Err(evil())))),
        ("route", crate::route(frame, &route(), &route_trend())),
        ("upstream", upstream_page(frame, status)),
        ("many upstreams", many(frame)),
        ("upstreams", crate::upstreams(frame, status, &BTreeMap::new(), &UpstreamsQuery::default())),
        ("failures", crate::failures(frame, &why, &sought)),
        ("failure", crate::failure(frame, &autopsy())),
        ("config", crate::config::list(frame, &config)),
        ("unreadable", crate::config::list(frame, &Config { drift: unreadable, ..config.clone() })),
        ("thing", crate::config::thing(frame, &thing, &json!({ EVIL: EVIL }))),
        ("both", crate::config::thing(frame, &both, &json!(EVIL))),
        ("by hand", crate::config::thing(frame, &by_hand, &json!(EVIL))),
        ("editor", crate::config::edit(frame, &managed, true)),
        ("history", history::list(frame, Some(&revisions))),
        ("no history", history::list(frame, None)),
        ("go back", history::compare(frame, "running", "6", &differences)),
        ("compare", history::compare(frame, EVIL, EVIL, &differences)),
        ("not compared", history::compare(frame, "1", "2", &Err(evil()))),
        ("certificates", crate::certificates(frame, status)),
        ("consumers", crate::consumers(frame, &[consumer], &[plan], &status.filters)),
        ("fleet", crate::fleet(frame, status.fleet.as_ref().unwrap(), &fleet())),
        (
            "no fleet",
            crate::fleet(
                frame,
                &FleetStatus::default(),
                &Fleet { unknown: Some(evil()), ..Fleet::default() },
            ),
        ),
        ("shadow", crate::shadow(frame, Some(&shadow()), true)),
        ("shadow without history", crate::shadow(frame, Some(&shadow()), false)),
        ("no shadow", crate::shadow(frame, None, true)),
        ("sign in", crate::sign_in(frame, EVIL, Some(EVIL))),
        ("around", crate::around(frame, Screen::Routes)),
        ("message", crate::message(frame, Screen::Config, EVIL, EVIL)),
    ]
}

fn upstream_page(frame: &Frame<'_>, status: &Status) -> String {
    let point = UpstreamPoint { answered: 1.0, failed: 1.0, ..UpstreamPoint::default() };
    let outcomes = vec![("answered", 10), ("connect_failed", 10)];
    let trend = UpstreamTrend {
        points: vec![point; 3],
        step: 15,
        seconds: 45,
        outcomes,
        routes: vec![evil()],
        ..UpstreamTrend::default()
    };
    let (name, _) = status.upstreams.first().unwrap();
    crate::upstream(frame, status, &BTreeMap::new(), name, &trend).unwrap()
}

fn many(frame: &Frame<'_>) -> String {
    crate::upstreams(
        frame,
        &some_upstreams(20),
        &BTreeMap::new(),
        &UpstreamsQuery { wanted: evil(), state: evil() },
    )
}

fn with_frame<T>(role: Role, test: impl FnOnce(&Frame<'_>, &Status) -> T) -> T {
    let (viewer, status) = (Viewer { name: evil(), role, csrf: Some(evil()) }, status());
    test(&Frame { place: EVIL, theme: Some(EVIL), viewer: Some(&viewer), status: Some(&status) }, &status)
}

#[test]
fn what_comes_from_outside_cannot_break_out() {
    for (name, page) in with_frame(Role::Admin, pages) {
        for broken in ["<script>", "alert('1')", "\"&--", "</textarea>{x}", "data-theme"] {
            assert!(!page.contains(broken), "{name} holds {broken}: {page}");
        }
        assert!(page.contains("&lt;script&gt;alert(&#39;1&#39;)"), "{name}: {page}");
    }
}

#[test]
fn nothing_is_inline_and_nothing_comes_from_elsewhere() {
    for (name, page) in with_frame(Role::Admin, pages) {
        let scripts: Vec<&str> = page.matches("<script").collect();
        assert_eq!(scripts.len(), 1, "{name}: one script, from here");
        assert!(page.contains("<script type=\"module\" src=\"/console.js?"), "{name}");
        for forbidden in [
            " style=",
            "<style",
            " onclick",
            " onload",
            " onsubmit",
            "javascript:",
            "src=\"http",
            "href=\"http",
            "@import",
            "<base",
            "<iframe",
        ] {
            assert!(!page.contains(forbidden), "{name} holds {forbidden}");
        }
    }
    assert!(!POLICY.contains("unsafe") && POLICY.starts_with("default-src 'none';"), "{POLICY}");
}

#[test]
fn nobody_is_offered_what_they_may_not_do() {
    let offers =
        |role: Role| -> String { with_frame(role, pages).into_iter().map(|(_, page)| page).collect() };
    let (read, operate, write) = (offers(Role::Read), offers(Role::Operate), offers(Role::Write));
    let admin = offers(Role::Admin);
    for call in [":adopt\"", ":release\""] {
        assert!(!write.contains(call) && admin.contains(call), "{call}");
    }
    assert!(!read.contains("data-call"), "{read}");
    for (call, at_least) in
        [(":confirm\"", &operate), ("data-url=\"/reload\"", &operate), ("data-open=\"take-out\"", &operate)]
    {
        assert!(!read.contains(call) && at_least.contains(call), "{call}");
    }
    for call in [":rollback\"", "Go back…", "/config/edit", ":promote?watch=", ":end\"", "href=\"/shadow\""]
    {
        assert!(!operate.contains(call) && write.contains(call), "{call}");
    }
}

#[test]
fn what_is_wrong_is_said_first() {
    let page = |status: &Status, recent: Recent| {
        let frame = Frame { place: "a", theme: None, viewer: None, status: None };
        crate::overview(&frame, status, &Pulse { recent, ..Pulse::default() }, None, None)
    };
    let recent = |requests, failed| Recent { requests, failed, ..Recent::default() };
    let well = with_upstream(with_endpoints(&[true]));
    assert!(page(&well, recent(100, 0)).contains("All is well"));
    assert!(page(&well, recent(1000, 3)).contains("3 requests of 1,000 failed"));
    assert!(page(&well, recent(100, 20)).contains("20.0 % of the last minute"));
    let half = with_upstream(with_endpoints(&[true, false]));
    assert!(page(&half, recent(0, 0)).contains("1 of 2 endpoints</a> is out of rotation"));
    let mut none = with_upstream(with_endpoints(&[false]));
    none.upstreams.push(("b".to_owned(), UpstreamStatus::default()));
    assert!(
        page(&none, recent(0, 0))
            .contains("2 upstreams</a> are failing, the worst is up: no endpoint in rotation")
    );
    let expired = CertificateStatus { days_left: -1, ..CertificateStatus::default() };
    let expired = Status { certificates: vec![expired], ..Status::default() };
    assert!(page(&expired, recent(0, 0)).contains("1 certificate</a> has expired"));
    let refused = ReloadStatus { result: "refused", at: "x".to_owned(), error: Some("line 3".to_owned()) };
    let refused = Status { last_reload: Some(refused), ..Status::default() };
    let page = page(&refused, recent(0, 0));
    assert!(page.contains("on the config before the last reload") && page.contains("line 3"), "{page}");
}

#[test]
fn a_registry_is_told_of() {
    let told = |discovery: DiscoveryStatus| {
        let status = with_upstream(UpstreamStatus { discovery: Some(discovery), ..with_endpoints(&[true]) });
        let with = |frame: &Frame<'_>, _: &Status| {
            (
                crate::upstreams(frame, &status, &BTreeMap::new(), &UpstreamsQuery::default()),
                crate::overview(frame, &status, &Pulse::default(), None, None),
            )
        };
        with_frame(Role::Read, with)
    };
    let etcd = |state| DiscoveryStatus {
        registry: "etcd",
        place: "http://e /orders".to_owned(),
        state,
        listed: 2,
        age_seconds: Some(4),
        ..DiscoveryStatus::default()
    };
    let (page, overview) = told(etcd("following"));
    assert!(
        page.contains("Listed by etcd <code>http://e /orders</code>: 2 instances, asked last 4 s ago."),
        "{page}"
    );
    assert!(!overview.contains("is away"), "{overview}");
    let (page, overview) = told(DiscoveryStatus {
        away_since: Some("2026-03-01T12:00:00.000Z".to_owned()),
        last_good: Some("2026-03-01T11:59:00.000Z".to_owned()),
        error: Some("connection refused".to_owned()),
        ..etcd("away")
    });
    for words in [
        "is away</b> since",
        "2026-03-01T12:00:00",
        "serves: 2 instances",
        "2026-03-01T11:59:00",
        "connection refused",
    ] {
        assert!(page.contains(words), "{words:?} is not in {page}");
    }
    assert!(overview.contains("is away: the last good list serves"), "{overview}");
    let left_out = vec![LeftOutStatus { id: "orders-old".to_owned(), why: "it is version v1".to_owned() }];
    assert!(
        told(DiscoveryStatus { unusable: 1, left_out, ..etcd("following") })
            .0
            .contains("<code>orders-old</code> it is version v1")
    );
    assert!(told(etcd("waiting")).0.contains("has not answered yet"));
}

#[test]
fn texts_of_the_editor_stay_as_they_are() {
    for text in ["", "\n", "\n\na: 1\n", "a: \"<&>\"\n"] {
        let (path, tag) = (PathBuf::new(), String::new());
        let managed = ManagedText { text: text.to_owned(), path, tag, hidden: 0 };
        let page = with_frame(Role::Write, |frame, _| crate::config::edit(frame, &managed, false));
        let (_, rest) = page.split_once("autocapitalize=\"off\">\n").unwrap();
        let (kept, _) = rest.split_once("</textarea>").unwrap();
        let plain =
            kept.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&amp;", "&");
        assert_eq!(plain, text);
    }
}

#[test]
fn more_routes_than_a_page_holds_are_filtered_by_the_gateway() {
    let routes: Vec<Route> = (0..3000)
        .map(|n| Route { name: format!("r{n}"), path: format!("/p{n}/*"), ..Route::default() })
        .collect();
    let frame = Frame { place: "a", theme: None, viewer: None, status: None };
    let ask = |wanted: &str| crate::routes(&frame, &routes, wanted, &[], &Question::default(), None);
    let all = ask("");
    assert!(all.contains("2,000 of 3,000 routes") && !all.contains("data-filter"), "the page has some");
    let one = ask("/P2999/");
    assert!(one.contains("1 of 3,000 routes") && one.contains(">r2999<") && !one.contains(">r0<"));
    let few = crate::routes(&frame, &routes[..10], "r3", &[], &Question::default(), None);
    assert!(few.contains("data-filter=\"routes\"") && few.contains(">r0<") && few.contains("value=\"r3\""));
}

#[test]
fn a_fleet_is_shown_where_there_is_one() {
    let viewer = Viewer { name: String::new(), role: Role::Read, csrf: None };
    let page = |status: &Status| {
        let frame = Frame { place: "a", theme: None, viewer: Some(&viewer), status: Some(status) };
        crate::upstreams(&frame, status, &BTreeMap::new(), &UpstreamsQuery::default())
    };
    let alone = Status::default();
    assert!(!page(&alone).contains("/fleet") && page(&alone).contains("data-key=\"n\""));
    let own = |refused: Option<&str>| FleetStatus {
        state: "following",
        refused: refused.map(str::to_owned),
        ..FleetStatus::default()
    };
    let well = Status { fleet: Some(own(None)), ..Status::default() };
    assert!(page(&well).contains("href=\"/fleet\" data-key=\"l\">Fleet</a>"), "{}", page(&well));
    let refused = Status { fleet: Some(own(Some("b"))), ..Status::default() };
    assert!(page(&refused).contains("does not follow") && page(&refused).contains("was refused here"));
}

#[test]
fn a_rollout_in_words() {
    let frame = Frame { place: "a", theme: None, viewer: None, status: None };
    let page = |state: &str, open: usize| {
        let steps = vec![RolloutStep { who: "10 % of the nodes".to_owned(), there: 1, all: 2 }; 3];
        let rollout =
            Rollout { state: state.to_owned(), open, steps, to: "abc".to_owned(), ..Rollout::default() };
        let own = FleetStatus { node: "one".to_owned(), state: "away", ..FleetStatus::default() };
        crate::fleet(&frame, &own, &Fleet { rollout: Some(rollout), ..Fleet::default() })
    };
    assert!(page("running", 2).contains("<code>abc</code> is under way: step 2 of 3 is open."));
    assert!(page("halted", 0).contains("was halted, and every node returns to the previous bundle"));
    assert!(page("halted", 1).contains("is halted at step 1 of 3"));
    let done = page("done", 3);
    assert!(done.contains("covers every node") && done.contains("cannot reach its source"));
}

#[test]
fn three_hundred_upstreams_show_the_worst_first() {
    let status = some_upstreams(300);
    let of = |failed, errors| Seen { attempts: 100, failed, errors, ..Seen::default() };
    let seen: BTreeMap<String, Seen> =
        [("u200", of(90, 0)), ("u150", of(0, 100)), ("u299", of(10, 0)), ("u007", of(0, 0))]
            .map(|(name, seen)| (name.to_owned(), seen))
            .into();
    let page = |asked: &UpstreamsQuery| {
        let frame = Frame { place: "a", theme: None, viewer: None, status: None };
        crate::upstreams(&frame, &status, &seen, asked)
    };
    let all = page(&UpstreamsQuery::default());
    let at = |text: &str| all.find(text).unwrap_or_else(|| panic!("{text} is not in {all}"));
    // 100 % of 5xx is worse than 90 % of failures, both are worse than 10 %, and all three come before healthy
    // ones.
    let order = [at("u150</a>"), at("u200</a>"), at("u299</a>"), at("u000</a>"), at("u007</a>")];
    assert!(order.is_sorted(), "{order:?}");
    assert!(all.contains("100.0 % of attempts answered 5xx") && all.contains("90.0 % of attempts fail"));
    assert!(all.contains("id=\"is-failing\" open") && all.contains("id=\"is-well\"><summary>"), "folded");
    assert!(all.contains("Failing <small>3</small>") && all.contains("Degraded <small>1</small>"), "{all}");
    let few = page(&UpstreamsQuery { state: "degraded".to_owned(), ..UpstreamsQuery::default() });
    assert!(few.contains("u299</a>") && !few.contains("u150</a>"), "{few}");
}

#[test]
fn an_endpoint_that_fails_in_rotation_is_not_green() {
    let endpoint = EndpointStatus {
        address: "a:1".to_owned(),
        healthy: true,
        answered: 5,
        errors: 5,
        failed: 95,
        ..EndpointStatus::default()
    };
    let status = with_upstream(UpstreamStatus { endpoints: vec![endpoint], ..UpstreamStatus::default() });
    let frame = Frame { place: "a", theme: None, viewer: None, status: None };
    let page = crate::upstreams(&frame, &status, &BTreeMap::new(), &UpstreamsQuery::default());
    assert!(
        page.contains("in rotation, fails</span><small>100.0 % of 100 attempts since the start"),
        "{page}"
    );
    assert!(page.contains("no attempt has succeeded yet"), "{page}");
}

#[test]
fn one_stands_for_all_that_are_alike() {
    let autopsy = |alike: u64| Autopsy {
        alike,
        cause: Some(CauseShown { code: "connect_refused", ..CauseShown::default() }),
        ..Autopsy::default()
    };
    let found = vec![autopsy(41), autopsy(0)];
    let told = Autopsies { found, on: true, held: 42, sample: 1000, ..Autopsies::default() };
    let frame = Frame { place: "a", theme: None, viewer: None, status: None };
    let page = crate::failures(&frame, &told, &WhyQuery::default());
    assert_eq!(page.matches(" like it</a>").count(), 1, "{page}");
    assert!(page.contains("cause=connect_refused&amp;route=&amp;each=1\">41 like it</a>"), "{page}");
}
