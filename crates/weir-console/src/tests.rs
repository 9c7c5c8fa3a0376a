//! Tests of every page: outside data is escaped, and nothing that the policy forbids appears.

use crate::frame::{Frame, Screen};
use crate::view::*;
use crate::{POLICY, history};
use serde_json::json;
use std::collections::BTreeMap;
use std::path::PathBuf;
use weir_gateway::autopsy::{CauseShown, ClientShown, KeyShown, Neighbour, RequestShown, RouteShown};
use weir_gateway::explain::{ExpressionShown, FilterShown, Understood};
use weir_gateway::history::Origin;
use weir_gateway::prelude::Figure;
use weir_gateway::route::{Captured, Decision, Lost, NearMiss, Rule, Winner};
use weir_gateway::{
    AcmeError, AcmeStatus, CauseCount, LastError, LeftOutStatus, ListenerStatus, NameStatus, OutOfRotation,
    ReloadStatus,
};

const EVIL: &str = "<script>alert('1')</script>\"&--></textarea>{x}";

fn evil() -> String {
    EVIL.to_owned()
}

fn some_evil() -> Option<String> {
    Some(evil())
}

static FIGURE: Figure = Figure::gauge(EVIL, EVIL, EVIL);

/// A status in which every text is hostile.
fn status() -> Status {
    let reason =
        OutOfRotation { reason: EVIL, cause: evil(), detail: some_evil(), since: evil(), until: some_evil() };
    let out = EndpointStatus {
        address: evil(),
        weight: 1,
        priority: 2,
        zone: some_evil(),
        healthy: false,
        state: EVIL,
        reasons: vec![reason],
        answered: 3,
        failed: 2,
        errors: 0,
        first_byte_ms: Some(1.5),
        last_error: Some(LastError { cause: EVIL, at: evil() }),
    };
    let well = EndpointStatus { healthy: true, ..out.clone() };
    let name = NameStatus { name: evil(), addresses: vec![evil()], age_seconds: None, error: some_evil() };
    let discovery = DiscoveryStatus {
        registry: EVIL,
        place: evil(),
        state: "away",
        left_out: vec![LeftOutStatus { id: evil(), why: evil() }],
        unusable: 1,
        last_good: some_evil(),
        away_since: some_evil(),
        error: some_evil(),
        ..DiscoveryStatus::default()
    };
    let acme = AcmeStatus {
        state: EVIL,
        directory: evil(),
        challenge: EVIL,
        renews_at: some_evil(),
        error: Some(AcmeError { reason: EVIL, text: evil(), hint: EVIL, at: evil() }),
        next_try: some_evil(),
        ..AcmeStatus::default()
    };
    let certificate = CertificateStatus {
        cert: evil(),
        names: vec![evil()],
        not_after: evil(),
        days_left: 3,
        not_before: None,
        acme: Some(acme),
    };
    let filter =
        |filter, what| FilterStatus { place: evil(), filter, what, of: evil(), value: 1, figure: &FIGURE };
    let upstream = UpstreamStatus {
        panic: true,
        endpoints: vec![out, well],
        names: vec![name],
        discovery: Some(discovery),
    };
    Status {
        version: evil(),
        revision: evil(),
        state: "draining",
        number: Some(7),
        last_reload: Some(ReloadStatus { at: evil(), result: "refused", error: some_evil() }),
        causes: vec![CauseCount { cause: EVIL, count: 3 }],
        trial: Some(TrialStatus {
            number: 7,
            back_to: 6,
            watched_until: None,
            confirm_by: some_evil(),
            restricts: vec![evil()],
            revokes: vec![evil()],
            warnings: vec![evil()],
        }),
        pinned: some_evil(),
        unsaved: some_evil(),
        fleet: Some(FleetStatus {
            source: evil(),
            node: evil(),
            labels: [(evil(), evil())].into(),
            state: EVIL,
            bundle: some_evil(),
            since: some_evil(),
            contact_seconds_ago: Some(3),
            refused: some_evil(),
            why: some_evil(),
            trouble: some_evil(),
            coordinates: true,
            ..FleetStatus::default()
        }),
        filters: vec![filter(EVIL, EVIL), filter("maintenance", "on")],
        listeners: vec![(
            evil(),
            ListenerStatus { address: Some(evil()), passes: Some(evil()), connections: 1, udp: vec![evil()] },
        )],
        certificates: vec![certificate],
        upstreams: vec![(evil(), upstream), ("none".to_owned(), UpstreamStatus::default())],
        ..Status::default()
    }
}

/// The status of a gateway with one upstream.
fn with_upstream(upstream: UpstreamStatus) -> Status {
    Status { upstreams: vec![("up".to_owned(), upstream)], ..Status::default() }
}

fn with_endpoints(healthy: &[bool]) -> UpstreamStatus {
    let endpoint = |healthy: &bool| EndpointStatus { healthy: *healthy, ..EndpointStatus::default() };
    UpstreamStatus { endpoints: healthy.iter().map(endpoint).collect(), ..UpstreamStatus::default() }
}

fn route() -> Route {
    Route {
        name: evil(),
        hosts: vec![evil()],
        path: evil(),
        methods: vec![evil()],
        conditions: vec![evil()],
        priority: 3,
        target: Target::Upstreams(vec![(evil(), 95.0), (evil(), 5.0)]),
        filters: vec![evil()],
        figures: Some(Figures { rate: 1.0, requests: 2, failed: 1, active: 1, p99_ms: Some(3.0) }),
    }
}

fn explanation() -> Explanation {
    let winner = Winner {
        index: 0,
        route: evil(),
        host: evil(),
        path: evil(),
        ignores_case: true,
        conditions: 0,
        captures: vec![Captured { name: evil(), value: evil() }],
        when: Some(vec![Captured { name: evil(), value: evil() }]),
        asked_before: 0,
    };
    Explanation {
        request: Understood {
            method: evil(),
            host: evil(),
            path: evil(),
            query: some_evil(),
            listener: evil(),
            listener_reason: some_evil(),
            note: some_evil(),
        },
        decision: Decision {
            winner: Some(winner),
            lost: vec![Lost { index: 1, route: evil(), rule: Rule::Host, why: evil() }],
            near_misses: vec![NearMiss { index: 2, route: evil(), failed: evil(), why: evil() }],
            omitted: 4,
        },
        filters: vec![FilterShown {
            name: EVIL,
            settings: json!({ EVIL: EVIL }),
            tells: vec![evil()],
            expressions: vec![ExpressionShown {
                key: evil(),
                expression: some_evil(),
                value: some_evil(),
                unknown: None,
                reads: Vec::new(),
            }],
            lists: Vec::new(),
        }],
        target: Some(TargetShown::Files {
            root: evil(),
            index: vec![evil()],
            browse: false,
            fallback: some_evil(),
            missing: Vec::new(),
        }),
        files_by_header: vec![evil()],
        grpc: None,
        early_data: Some(EVIL),
    }
}

fn autopsy() -> Autopsy {
    let other = || Neighbour { route: evil(), why: evil() };
    let moment = |at_us, took_us| Moment { at_us, took_us, what: evil() };
    Autopsy {
        id: evil(),
        kind: EVIL,
        at: evil(),
        sentence: evil(),
        status: 502,
        total_us: 12,
        key: Some(KeyShown { key: evil(), at: some_evil(), value: some_evil(), note: some_evil() }),
        cause: Some(CauseShown { code: EVIL, meaning: EVIL, change: EVIL }),
        timeline: vec![moment(0, Some(u64::MAX)), moment(u64::MAX, None)],
        client: ClientShown {
            address: some_evil(),
            peer: some_evil(),
            protocol: EVIL,
            tls: some_evil(),
            listener: evil(),
        },
        request: RequestShown {
            method: evil(),
            host: evil(),
            path: evil(),
            query: vec![evil()],
            fields: vec![evil()],
            cut: true,
        },
        route: RouteShown { name: some_evil(), runner_up: Some(other()), near: vec![other()] },
        filters: vec![evil()],
        consumer: some_evil(),
        arm: some_evil(),
        upstream: some_evil(),
        endpoint: some_evil(),
        revision: evil(),
        config_changed: true,
        ..Autopsy::default()
    }
}

fn history_of_one() -> HistoryStatus {
    let revision = RevisionStatus {
        number: 7,
        hash: evil(),
        parent: Some(6),
        time: evil(),
        author: evil(),
        source: Origin::Api,
        message: evil(),
        verdict: evil(),
        changed: vec![evil()],
    };
    HistoryStatus { running: Some(8), pinned: None, why: None, revisions: vec![revision] }
}

/// A fleet in which every text is hostile.
fn fleet() -> Fleet {
    let node = |refused: Option<String>| FleetNode {
        name: evil(),
        labels: [(evil(), evil())].into(),
        zone: evil(),
        version: evil(),
        runs: Some(evil()),
        since: evil(),
        is_late: true,
        refused,
        unwell: Some(evil()),
        trouble: evil(),
        cached: false,
    };
    Fleet {
        rollout: Some(Rollout {
            generation: 3,
            to: evil(),
            from: Some(evil()),
            author: evil(),
            time: evil(),
            message: evil(),
            state: evil(),
            why: evil(),
            open: 1,
            steps: vec![RolloutStep { who: evil(), there: 1, all: 2 }, RolloutStep::default()],
        }),
        nodes: Some(vec![node(None), node(Some(evil()))]),
        silent: vec![evil(), evil()],
        unknown: None,
    }
}

/// Every page, built from hostile data.
/// A shadow in which every text is hostile.
fn shadow() -> ShadowReport {
    let example = ShadowExample {
        id: evil(),
        method: evil(),
        host: evil(),
        path: evil(),
        query: vec![evil()],
        fields: vec![evil()],
        status: 200,
    };
    let change = ChangedDecision {
        before: evil(),
        after: evil(),
        key: evil(),
        estimate: true,
        count: 1,
        share: 0.5,
        examples: vec![example.clone()],
    };
    let odd = Unexplained { why: EVIL, decision: evil(), count: 1, examples: vec![example] };
    ShadowReport {
        id: evil(),
        state: "running",
        ended: some_evil(),
        holder: evil(),
        since: evil(),
        for_seconds: 600.0,
        ran_seconds: 60.0,
        sample: 0.1,
        seen: 20,
        sampled: 2,
        dropped: 0,
        not_judged: 0,
        unexplained: 1,
        judged: 2,
        changed: 1,
        share: 0.5,
        max_change: Some(0.1),
        min_judged: 1,
        verdict: "over",
        sentence: evil(),
        cpu_ms: 1.0,
        changes: vec![change],
        more: 3,
        misfits: vec![odd],
        not_shown: vec![evil()],
        text: evil(),
    }
}

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

fn route_trend() -> RouteTrend {
    let quantiles = Quantiles { p50: Some(1.0), p95: Some(2.0), p99: Some(3.0) };
    let point = RoutePoint {
        classes: [0.0, 0.0, 9.0, 0.0, 0.0, 1.0],
        own: 1.0,
        duration: quantiles,
        first_byte: quantiles,
    };
    RouteTrend {
        points: vec![point; 3],
        step: 15,
        seconds: 45,
        classes: [0, 0, 90, 0, 0, 10],
        own: 10,
        duration: quantiles,
        statuses: vec![(200, 90), (502, 10)],
        causes: vec![(evil(), 10)],
        ..RouteTrend::default()
    }
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

fn some_upstreams(number: usize) -> Status {
    let upstream = |n: usize| {
        let address = format!("10.0.0.{n}:80");
        let endpoint = EndpointStatus { address, healthy: true, ..EndpointStatus::default() };
        (format!("u{n:03}"), UpstreamStatus { endpoints: vec![endpoint], ..UpstreamStatus::default() })
    };
    let mut status = Status { upstreams: (0..number).map(upstream).collect(), ..Status::default() };
    status.upstreams.push((evil(), UpstreamStatus::default()));
    status
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
