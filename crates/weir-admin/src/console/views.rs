//! Builds the view models from the gateway's state. Blocking: it waits for a running reload, and reads files.

use super::record::{self, Look, Record, Things, ThingsLook};
use serde_json::Value;
use std::collections::HashMap;
use std::time::Instant;
use weir_console::view::{
    Config, ConfigEntry, Consumer, Drift, Figures, Plan, Pulse, Route, RouteTrend, Target, UpstreamTrend,
};
use weir_gateway::Gateway;
use weir_gateway::config::managed;
use weir_gateway::config::node::Value as NodeValue;
use weir_gateway::config::schema;
use weir_gateway::config::{Config as Running, Node, Texts};
use weir_gateway::history::diff;
use weir_telemetry::RouteFigures;

// === routes ===

/// The current counters of each route and upstream.
pub(super) fn look(gateway: &Gateway) -> ThingsLook {
    ThingsLook::of(&gateway.figures(), &gateway.upstream_figures(), Instant::now())
}

/// A route with its history; `None` if no route has this name.
pub(super) fn route(
    gateway: &Gateway,
    running: &Running,
    things: &Things,
    name: &str,
) -> Option<(Route, RouteTrend)> {
    let (_, written) = running.routes.iter().find(|(known, _)| *known == name)?;
    let mut trend = things.route(&look(gateway), name);
    if let Some((_, figures)) = gateway.figures().into_iter().find(|(known, _)| known == name) {
        trend.statuses = figures.statuses.into_iter().collect();
        trend.causes = figures.causes.into_iter().map(|(cause, n)| (cause.to_owned(), n)).collect();
        trend.causes.sort_by_key(|(_, n)| std::cmp::Reverse(*n));
    }
    Some((described(name, written), trend))
}

/// An upstream with its history.
pub(super) fn upstream(running: &Running, things: &Things, look: &ThingsLook, name: &str) -> UpstreamTrend {
    let leads = |route: &schema::Route| {
        route.upstream.as_ref().is_some_and(|split| split.0.iter().any(|share| *share.upstream == *name))
    };
    let routes = running.routes.iter().filter(|(_, route)| leads(route));
    let routes: Vec<&str> = routes.map(|(name, _)| name).collect();
    things.upstream(look, name, &routes)
}

/// All routes as written, with their figures.
pub(super) fn routes(gateway: &Gateway, running: &Running, record: &Record) -> Vec<Route> {
    let all = gateway.figures();
    let rates = record.rates(&Look::of(&all, Instant::now()));
    let counted: HashMap<&str, &RouteFigures> =
        all.iter().map(|(name, figures)| (name.as_str(), figures)).collect();
    let figures = |name: &str| {
        let counted = *counted.get(name)?;
        let (requests, failed) = record::counted(counted);
        Some(Figures {
            rate: rates.get(name).copied().unwrap_or(0.0),
            requests,
            failed,
            active: u64::try_from(counted.active).unwrap_or(0),
            p99_ms: record::p99(&counted.duration),
        })
    };
    running
        .routes
        .iter()
        .map(|(name, route)| Route { figures: figures(name), ..described(name, route) })
        .collect()
}

fn described(name: &str, route: &schema::Route) -> Route {
    let matches = &route.matches;
    // Values may be secrets, so only names; the page of the route shows the values as written.
    let pairs = |kind: &str, pairs: &schema::Pairs| {
        pairs.0.iter().map(|(name, _)| format!("{kind} {name}")).collect::<Vec<_>>()
    };
    let mut conditions = pairs("header", &matches.headers);
    conditions.extend(pairs("query", &matches.query));
    conditions.extend(pairs("cookie", &matches.cookies));
    conditions.extend(matches.clients.iter().map(|network| format!("from {}", network.0)));
    conditions.extend(matches.not.all.iter().map(|_| "not".to_owned()));
    conditions.extend(matches.listeners.iter().map(|listener| format!("on {listener}")));
    if matches.case == schema::Case::Insensitive {
        conditions.push("path in any case".to_owned());
    }
    // An expression may compare with credentials, so only those who may change the config see it.
    conditions.extend(matches.when.iter().map(|_| "when".to_owned()));
    Route {
        name: name.to_owned(),
        hosts: matches.hosts.iter().map(ToString::to_string).collect(),
        path: matches.path.to_string(),
        methods: matches.methods.to_vec(),
        conditions,
        priority: route.priority,
        target: target(route),
        filters: route.all_filters().map(|filter| filter.name.clone()).collect(),
        figures: None,
    }
}

fn target(route: &schema::Route) -> Target {
    if let Some(split) = &route.upstream {
        let total: u32 = split.0.iter().map(|share| share.weight).sum();
        let percent = |weight: u32| f64::from(weight) / f64::from(total.max(1)) * 100.0;
        return Target::Upstreams(
            split.0.iter().map(|share| (share.name().to_string(), percent(share.weight))).collect(),
        );
    }
    if let Some(respond) = &route.respond {
        return Target::Own(format!("answers {} itself", respond.status));
    }
    if let Some(files) = &route.files {
        return Target::Own(format!("files of {}", files.root.0.display()));
    }
    Target::Own("answered by its filters".to_owned())
}

// === config ===

/// The config page.
pub(super) fn config(texts: &Texts, tree: &Node, drift: Drift) -> Config {
    let mut config = Config {
        files: texts.written.iter().map(|text| text.path.display().to_string()).collect(),
        managed: texts.managed_path.as_ref().map(|path| path.display().to_string()),
        drift,
        ..Config::default()
    };
    for (section, things) in tree.entries() {
        if managed::is_section(&section.text) && matches!(things.value, NodeValue::Map(_)) {
            let things = things.entries().iter().map(|(name, _)| thing(texts, &section.text, name));
            config.things.extend(things);
        } else {
            config.settings.push((section.text.to_string(), section.at.to_string()));
        }
    }
    config
}

fn thing(texts: &Texts, section: &str, name: &weir_gateway::config::node::Key) -> ConfigEntry {
    ConfigEntry {
        section: section.to_owned(),
        name: name.text.to_string(),
        at: name.at.to_string(),
        managed: texts.managed_path.as_deref() == Some(name.at.file.as_path()),
        both: false,
        movable: texts.managed_path.is_some(),
    }
}

/// A named entry, and its value without secrets.
pub(super) fn one(texts: &Texts, tree: &Node, section: &str, name: &str) -> Option<(ConfigEntry, Value)> {
    if !managed::is_section(section) {
        return None;
    }
    let (key, value) = tree.get(section)?.entries().iter().find(|(key, _)| &*key.text == name)?;
    let mut thing = thing(texts, section, key);
    thing.both = !thing.managed
        && texts
            .managed_tree()
            .is_some_and(|tree| tree.get(section).is_some_and(|of| of.get(name).is_some()));
    Some((thing, diff::shown(value)))
}

// === consumers ===

/// All consumers, with the results of their requests.
pub(super) fn consumers(gateway: &Gateway, running: &Running) -> Vec<Consumer> {
    let answers = |name: &str| {
        let statuses = gateway.consumer_statuses(name)?;
        let sum =
            |fits: fn(u16) -> bool| statuses.iter().filter(|(code, _)| fits(**code)).map(|(_, n)| n).sum();
        Some((sum(|_| true), sum(|code| code == 429), sum(|code| (400..500).contains(&code) && code != 429)))
    };
    let credentials = |consumer: &schema::Consumer| {
        let of = |known: &schema::Credentials| (known.filter.clone(), known.node.elements().len().max(1));
        consumer.credentials.iter().map(of).collect()
    };
    running
        .consumers
        .iter()
        .map(|(name, consumer)| Consumer {
            name: name.to_owned(),
            plan: consumer.plan.clone(),
            groups: consumer.groups.clone(),
            credentials: credentials(consumer),
            networks: consumer.allow_ips.iter().map(|network| network.0.to_string()).collect(),
            answers: answers(name),
        })
        .collect()
}

/// The plans as written, with the settings of their filters.
pub(super) fn plans(tree: &Node, running: &Running) -> Vec<Plan> {
    let users = |name: &str| {
        running.consumers.iter().filter(|(_, consumer)| consumer.plan.as_deref() == Some(name)).count()
    };
    let plans = tree.get("plans").map_or(&[][..], Node::entries);
    plans
        .iter()
        .map(|(name, plan)| Plan {
            name: name.text.to_string(),
            filters: plan.get("filters").map(|filters| filters_of(&diff::shown(filters))).unwrap_or_default(),
            consumers: users(&name.text),
        })
        .collect()
}

/// Parses a list of filters: each is a name, or a name with settings.
fn filters_of(list: &Value) -> Vec<(String, Value)> {
    let one = |filter: &Value| match filter {
        Value::Object(map) => map.iter().next().map(|(name, settings)| (name.clone(), settings.clone())),
        other => other.as_str().map(|name| (name.to_owned(), Value::Object(serde_json::Map::new()))),
    };
    list.as_array().into_iter().flatten().filter_map(one).collect()
}

/// The figures of the gateway, summed over all routes.
pub(super) fn pulse(gateway: &Gateway, record: &Record) -> Pulse {
    record.pulse(&Look::of(&gateway.figures(), Instant::now()))
}
