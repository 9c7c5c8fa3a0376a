//! Writes the parts of a frontend as routes.

use super::super::context::Cx;
use super::super::model::Proxy;
use super::super::rules::Rules;
use super::{Backend, Part, backend, rule_for};
use crate::config::{Filter, Route, Target};
use crate::shared::filters::{closed, respond};
use crate::shared::order::{self, Candidate};
use std::collections::HashMap;

pub(super) fn write<'a>(
    cx: &mut Cx<'a, '_, '_>,
    proxy: &Proxy<'a>,
    parts: Vec<Part<'a>>,
    backends: &mut HashMap<String, Backend>,
    rules: &Rules,
    is_global: bool,
    listeners: &[String],
) {
    let candidates: Vec<Candidate> = parts.iter().map(|part| part.candidate.clone()).collect();
    let mut kept = order::keep(&candidates);
    let is_exact = kept.iter().any(|kept| kept.unsolved.is_some());
    if is_exact {
        let count = i64::try_from(parts.len()).unwrap_or(i64::MAX);
        for (at, kept) in kept.iter_mut().enumerate() {
            *kept =
                order::Kept { priority: count - i64::try_from(at).unwrap_or(0), ..order::Kept::default() };
        }
    }
    let titles: Vec<String> = parts.iter().map(|part| part.backend.clone()).collect();
    let mut names: Vec<Option<String>> = vec![None; parts.len()];
    let file = crate::config::name_of(proxy.name);
    for (at, part) in parts.into_iter().enumerate() {
        let kept = &kept[at];
        if let Some(by) = kept.covered_by {
            if let Some(line) = part.line {
                let why = format!(
                    "not written, because HAProxy never uses it: a {} before it takes all its requests",
                    rule_for(&titles[by])
                );
                cx.ledger.changed(line.piece, why);
            }
            continue;
        }
        let mut route = Route { file: file.clone(), priority: kept.priority, ..Route::default() };
        if is_exact {
            if at == 0 {
                route.comment.push("HAProxy's order: the first route whose `when` holds.".to_owned());
            }
            let when = &part.exact;
            route.matches.when = (when.as_constant() != Some(true)).then(|| when.as_str().to_owned());
            if route.matches.when.is_none() {
                route.priority = 0;
            }
        } else {
            for not in &kept.nots {
                let title = &titles[*not];
                let line = format!(
                    "A {} stands before it in HAProxy, so its requests are left to it.",
                    rule_for(title)
                );
                if !route.comment.contains(&line) {
                    route.comment.push(line);
                }
            }
            route.matches = part.candidate.matches.clone();
            route.matches.hosts = part.candidate.hosts.iter().map(ToString::to_string).collect();
            route.matches.path = part.written.clone();
            route.matches.when = order::when(&candidates, kept, at);
        }
        route.matches.listeners = listeners.to_vec();
        let backend = backend(cx, backends, &part.backend);
        if let Some(why) = &part.closed {
            route.filters.push(closed(why));
        }
        if !is_global {
            route.filters.extend(rules.filters.iter().cloned());
        }
        if rules.answers {
            answered(&mut route);
        } else {
            // What both inherit from `defaults` is done once.
            let is_there = |filter: &&Filter| {
                matches!(filter.name, "compress" | "errors") && rules.filters.contains(filter)
            };
            route.filters.extend(backend.filters.iter().filter(|filter| !is_there(filter)).cloned());
            route.target.clone_from(&backend.target);
            if backend.target.is_none() {
                answered(&mut route);
            }
        }
        if rules.answers && is_global {
            // The filters for every route answer; the route needs something behind them.
            route.target = Some(Target::Respond(respond(503, None, None)));
        }
        if backend.has_limit
            && kept.nots.is_empty()
            && titles.iter().filter(|title| **title == part.backend).count() > 1
        {
            cx.ledger
                .note("a limit of a backend counts for each route alone where several routes lead to it");
        }
        give_shares(cx, backends, &part, &mut route);
        if part.closed.is_none() && part.backend.is_empty() {
            route.comment.push("No rule of HAProxy takes these requests: it answers 503.".to_owned());
        }
        let wish = match (&part.closed, &*part.backend) {
            (Some(_), _) => format!("{}-closed", proxy.name),
            (None, "") => format!("{}-none", proxy.name),
            (None, backend) => backend.to_owned(),
        };
        let piece = part.line.map_or(proxy.section.head.piece, |line| line.piece);
        names[at] = Some(cx.config.add_route(&wish, route, vec![piece]));
    }
    if is_exact {
        return;
    }
    for (case, winner) in order::cases(&candidates) {
        if let Some(name) = winner.and_then(|at| names[at].clone()) {
            cx.config.tests.push(crate::config::Case {
                route: Some(name),
                listener: listeners.first().cloned(),
                ..case
            });
        }
    }
}

/// Gives shares of a route's requests to other backends.
fn give_shares<'a>(
    cx: &mut Cx<'a, '_, '_>,
    backends: &mut HashMap<String, Backend>,
    part: &Part<'a>,
    route: &mut Route,
) {
    if part.shares.is_empty() || part.closed.is_some() {
        return;
    }
    let mut shares: Vec<(String, u32)> = Vec::new();
    let (mut rest, mut kept) = (100, 0);
    for (line, name, percent) in &part.shares {
        let other = backend(cx, backends, name);
        let taken = rest * percent / 100;
        if *name == part.backend {
            kept += taken;
            rest -= taken;
            continue;
        }
        match (&route.target, &other.target) {
            (Some(Target::Upstream(_)), Some(Target::Upstream(upstream)))
                if other.filters.is_empty() && taken > 0 =>
            {
                if taken * 100 != rest * percent {
                    cx.ledger.changed(line.piece, "Weir's shares are whole percents of all requests");
                }
                shares.push((upstream.clone(), taken));
                rest -= taken;
            }
            _ => {
                let why =
                    "a share of requests for a backend whose own rules Weir would have to run for that share";
                cx.ledger.refused(line.piece, why, "upstream: { a: 95, b: 5 }");
                let why = format!("`{}` at {} was not translated", super::super::words(line), line.place);
                route.filters.insert(0, closed(&why));
                return;
            }
        }
    }
    if let Some(Target::Upstream(upstream)) = &route.target {
        shares.insert(0, (upstream.clone(), rest + kept));
        if shares.len() == 1 {
            return;
        }
        route.target = Some(Target::Split(shares));
    }
}

/// Makes the last filter of a route that always answers its target.
fn answered(route: &mut Route) {
    let last = route.filters.last().map(|filter| filter.name);
    match last {
        Some("respond") => {
            if let Some(Filter { settings: crate::yaml::Value::Map(map), comment, .. }) = route.filters.pop()
            {
                route.comment.extend(comment);
                route.target = Some(Target::Respond(map));
            }
        }
        Some("redirect") => route.target = None,
        _ => route.target = Some(Target::Respond(respond(503, None, None))),
    }
}
