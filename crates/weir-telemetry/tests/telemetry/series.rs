//! Series by name: the same cells for the same name, bounded in number, gone when nobody uses them.

use weir_telemetry::{Exposition, Setup, Telemetry};

use crate::parser::parse;

#[test]
fn the_same_name_finds_the_same_cells() {
    let telemetry = Telemetry::new(Setup::default());
    let before = telemetry.route("orders");
    let core = telemetry.core(0);
    core.route(&before).requests.record(200);
    let after = telemetry.route("orders");
    assert_eq!(before, after);
    assert_ne!(before, telemetry.route("other"));
    drop(before);
    assert_eq!(telemetry.retire(), 1, "the other one");
    assert_eq!(core.route(&after).requests.total(), 1);
    assert_ne!(telemetry.endpoint("a", "127.0.0.1:1"), telemetry.endpoint("b", "127.0.0.1:1"));
}

#[test]
fn names_beyond_the_cap_count_as_overflow() {
    let telemetry = Telemetry::new(Setup { route_cap: 10, ..Setup::default() });
    let core = telemetry.core(0);
    let ids: Vec<_> = (0..25).map(|i| telemetry.route(&format!("r{i}"))).collect();
    for id in &ids {
        core.route(id).requests.record(200);
    }
    let metrics = parse(&telemetry.expose(Exposition::Text), false);
    assert_eq!(metrics.value("weir_requests_total{route=\"r9\",code=\"200\"}"), 1.0);
    assert_eq!(metrics.value("weir_requests_total{route=\"overflow\",code=\"200\"}"), 15.0);
    assert_eq!(metrics.value("weir_series_folded_total{kind=\"route\"}"), 15.0);
    assert!(!metrics.samples.contains_key("weir_requests_total{route=\"r10\",code=\"200\"}"));
    // A config that calls a route so shares the series and makes no second one.
    let overflow = telemetry.route("overflow");
    assert_eq!(ids.iter().filter(|id| **id == overflow).count(), 15);
    // Where old names have gone, new ones find room, without a scrape between.
    drop(ids);
    assert!((0..10).all(|i| telemetry.route(&format!("new{i}")) != overflow));
}

#[test]
fn unused_series_show_once_more_and_then_go() {
    let telemetry = Telemetry::new(Setup::default());
    let core = telemetry.core(0);
    let shows = |name: &str| telemetry.expose(Exposition::Text).contains(name);
    let gone = telemetry.endpoint("orders", "10.0.0.1:80");
    let cells = core.endpoint(&gone);
    cells.active.inc();
    drop(gone);
    for _ in 0..3 {
        assert!(shows("10.0.0.1:80"), "an attempt still counts on it");
    }
    drop(cells);
    assert!(shows("10.0.0.1:80"), "its last counts");
    assert!(!shows("10.0.0.1:80"));
}

#[test]
fn names_of_a_refused_config_never_show() {
    let telemetry = Telemetry::new(Setup::default());
    let built = telemetry.route("never-served");
    assert!(!telemetry.expose(Exposition::Text).contains("never-served"));
    drop(built);
    assert_eq!(telemetry.retire(), 1);
}

#[test]
fn totals_over_all_cores() {
    let telemetry = Telemetry::new(Setup { cores: 3, ..Setup::default() });
    let (listener, route) = (telemetry.listener("web"), telemetry.route("orders"));
    for index in 0..3 {
        let core = telemetry.core(index);
        core.listener(&listener).open();
        core.route(&route).requests.record(200);
        core.route(&route).active.inc();
    }
    // A connection that another core took over.
    telemetry.core(1).listener(&listener).active.dec();
    telemetry.core(1).listener(&listener).active.dec();
    let metrics = parse(&telemetry.expose(Exposition::Text), false);
    assert_eq!(metrics.value("weir_connections_active{listener=\"web\"}"), 1.0);
    assert_eq!(metrics.value("weir_requests_active{route=\"orders\"}"), 3.0);
    assert_eq!(telemetry.requests_total(), 3);
}

#[test]
fn a_total_keeps_the_counts_of_dropped_series() {
    let telemetry = Telemetry::new(Setup { cores: 2, route_cap: 2, ..Setup::default() });
    let serve = |name: &str| {
        let route = telemetry.route(name);
        (0..2).for_each(|core| telemetry.core(core).route(&route).requests.record(200));
        route
    };
    let (removed, kept) = (serve("removed"), serve("kept"));
    let overflow = serve("beyond the cap");
    assert_eq!(telemetry.requests_total(), 6);
    drop((removed, overflow));
    assert_eq!((telemetry.retire(), telemetry.requests_total()), (1, 6));
    // A route of the same name counts from zero and adds to the total.
    let again = serve("removed");
    assert_eq!(telemetry.route_figures("removed").unwrap().statuses[&200], 2);
    assert_eq!(telemetry.requests_total(), 8);
    // A full table drops series too.
    drop((again, kept));
    let _new = serve("new");
    assert_eq!((telemetry.route_figures("removed"), telemetry.requests_total()), (None, 10));
}
