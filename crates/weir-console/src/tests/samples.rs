//! Things that the pages show, with hostile text in every field that comes from outside.

use crate::view::*;
use serde_json::json;
use weir_gateway::autopsy::{CauseShown, ClientShown, KeyShown, Neighbour, RequestShown, RouteShown};
use weir_gateway::explain::{ExpressionShown, FilterShown, Understood};
use weir_gateway::history::Origin;
use weir_gateway::prelude::Figure;
use weir_gateway::route::{Captured, Decision, Lost, NearMiss, Rule, Winner};
use weir_gateway::{
    AcmeError, AcmeStatus, CauseCount, LastError, LeftOutStatus, ListenerStatus, NameStatus, OutOfRotation,
    ReloadStatus,
};

pub(super) const EVIL: &str = "<script>alert('1')</script>\"&--></textarea>{x}";

pub(super) fn evil() -> String {
    EVIL.to_owned()
}

pub(super) fn some_evil() -> Option<String> {
    Some(evil())
}

static FIGURE: Figure = Figure::gauge(EVIL, EVIL, EVIL);

/// A status in which every text is hostile.
pub(super) fn status() -> Status {
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
        access_log: Some(UnwrittenLog { output: evil(), since: evil(), lost: 2, error: evil() }),
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
pub(super) fn with_upstream(upstream: UpstreamStatus) -> Status {
    Status { upstreams: vec![("up".to_owned(), upstream)], ..Status::default() }
}

pub(super) fn with_endpoints(healthy: &[bool]) -> UpstreamStatus {
    let endpoint = |healthy: &bool| EndpointStatus { healthy: *healthy, ..EndpointStatus::default() };
    UpstreamStatus { endpoints: healthy.iter().map(endpoint).collect(), ..UpstreamStatus::default() }
}

pub(super) fn route() -> Route {
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

pub(super) fn explanation() -> Explanation {
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

pub(super) fn autopsy() -> Autopsy {
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

pub(super) fn history_of_one() -> HistoryStatus {
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
pub(super) fn fleet() -> Fleet {
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

/// A shadow in which every text is hostile.
pub(super) fn shadow() -> ShadowReport {
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

pub(super) fn route_trend() -> RouteTrend {
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

pub(super) fn some_upstreams(number: usize) -> Status {
    let upstream = |n: usize| {
        let address = format!("10.0.0.{n}:80");
        let endpoint = EndpointStatus { address, healthy: true, ..EndpointStatus::default() };
        (format!("u{n:03}"), UpstreamStatus { endpoints: vec![endpoint], ..UpstreamStatus::default() })
    };
    let mut status = Status { upstreams: (0..number).map(upstream).collect(), ..Status::default() };
    status.upstreams.push((evil(), UpstreamStatus::default()));
    status
}
