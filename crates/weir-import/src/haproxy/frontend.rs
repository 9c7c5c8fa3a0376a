//! Frontends: which backend takes a request, as routes.
//!
//! The first `use_backend` whose condition holds wins. Each alternative of a condition becomes a route: hosts, paths
//! and methods where it says them, `when` for the rest. `order::keep` finds the priorities and exclusions that keep
//! HAProxy's order. Where there are too many for a person to read, every condition goes into `when`, and priorities
//! count down: that is exact, too.

mod dynamic;
mod write;

use super::acl::{Facet, PathOf, Term, condition};
use super::bind;
use super::context::Cx;
use super::model::Proxy;
use super::read::Line;
use super::rules::{self, Rules};
use super::sample::{Scope, call};
use crate::config::{Filter, Match, Route, Target};
use crate::shared::expression::Expression;
use crate::shared::filters::respond;
use crate::shared::order::{Candidate, Host, Path};
use crate::yaml::Map;
use dynamic::{decoded, dynamic};
use std::collections::HashMap;
use write::write;

/// Most routes that one condition comes to.
const MAX_ROUTES: usize = 20_000;

/// A backend as it was translated: its filters and what answers.
#[derive(Clone, Default)]
pub(super) struct Backend {
    filters: Vec<Filter>,
    /// None if the filters always answer.
    target: Option<Target>,
    has_limit: bool,
}

/// A route before its order is kept.
struct Part<'a> {
    line: Option<&'a Line>,
    backend: String,
    candidate: Candidate,
    /// Everything as one expression, for the form without hosts and paths.
    exact: Expression,
    written: Option<String>,
    /// Why its requests get 503, if a rule that takes them was not translated.
    closed: Option<String>,
    /// Backends that take a share of its requests in percent: `use_backend … if { rand(100) lt 5 }` before it.
    shares: Vec<(&'a Line, String, u32)>,
}

/// Translates a frontend. `is_only` says that there is no other, so that its rules can stand for all routes.
pub(super) fn translate<'a>(
    cx: &mut Cx<'a, '_, '_>,
    proxy: &Proxy<'a>,
    backends: &mut HashMap<String, Backend>,
    is_only: bool,
) {
    let made = bind::listeners(cx, proxy, true);
    if made.is_empty() {
        let why = "no address that Weir can listen on";
        cx.ledger.refused(proxy.section.head.piece, why, "listeners.NAME.address");
        return;
    }
    let names: Vec<String> =
        made.into_iter().map(|(wish, listener)| cx.config.listeners.add(&wish, listener)).collect();
    cx.ledger.same(proxy.section.head.piece);
    let binds = bind::binds(proxy);
    let mut scope =
        Scope { acls: super::acl::acls(&proxy.lines), proxy: proxy.name.to_owned(), ..Scope::default() };
    for one in &binds {
        let ports = if one.is_tls { &mut scope.ports.1 } else { &mut scope.ports.0 };
        for port in one.addresses.iter().filter_map(|address| bind::port(address)) {
            if !ports.contains(&port) {
                ports.push(port);
            }
        }
    }
    scope.tls = match (binds.iter().any(|one| one.is_tls), binds.iter().all(|one| one.is_tls)) {
        (_, true) => Some(true),
        (false, _) => Some(false),
        _ => None,
    };
    let monitor = proxy.one(&["monitor-uri"]);
    let mut rules = rules::translate(cx, proxy, &mut scope);
    bind::close_unchecked(&binds, &mut rules.filters);
    super::pages::errors(cx, proxy, &mut rules.filters);
    super::pages::compression(cx, proxy, &mut rules);
    super::known::frontend(cx, proxy, &mut rules.filters);
    let listeners = if is_only { Vec::new() } else { names };
    let mut parts: Vec<Part<'a>> = Vec::new();
    let mut shares: Vec<(&'a Line, String, u32)> = Vec::new();
    for line in proxy.all("use_backend") {
        if let Some(percent) = share(line, &scope).filter(|_| cx.model.backend(line.word(1)).is_some()) {
            cx.ledger.same(line.piece);
            shares.push((line, line.word(1).to_owned(), percent));
            continue;
        }
        let before = parts.len();
        match parts.len() > MAX_ROUTES {
            true => cx.ledger.refused(line.piece, "more routes than weir import writes", ""),
            false => use_backend(cx, &scope, line, &mut parts),
        }
        if cx.ledger.verdict(line.piece) == Some(crate::ledger::Verdict::Refused) {
            parts.truncate(before);
            match unchanged(cx, &scope, line) {
                Some((kept, changed)) => {
                    for all in &kept {
                        alternatives(line, line.word(1), all, &mut Vec::new(), &mut parts);
                    }
                    close(cx, &scope, line, Some(changed), &mut parts);
                }
                None => close(cx, &scope, line, None, &mut parts),
            }
        }
        parts[before..].iter_mut().for_each(|part| part.shares.clone_from(&shares));
    }
    let default = proxy.one(&["default_backend"]);
    let always = |backend: &str, line: Option<&'a Line>| Part {
        line,
        backend: backend.to_owned(),
        candidate: Candidate {
            hosts: Vec::new(),
            path: Path::Prefix("/".to_owned()),
            matches: Match::default(),
        },
        exact: Expression::constant(true),
        written: None,
        closed: None,
        shares: shares.clone(),
    };
    match default {
        Some(line) if cx.model.backend(line.word(1)).is_some() => {
            cx.ledger.same(line.piece);
            parts.push(always(line.word(1), Some(line)));
        }
        Some(line) => cx.ledger.refused(line.piece, "no backend has this name", "correct the source"),
        None if proxy.kind == "listen" => parts.push(always(proxy.name, None)),
        None => {}
    }
    if !parts.iter().any(|part| part.exact.as_constant() == Some(true)) {
        // 503 of HAProxy, where Weir would say 404.
        parts.push(always("", None));
    }
    let is_global = is_only && monitor.is_none() && cx.config.filters.is_empty();
    if is_global {
        cx.config.filters = rules.filters.clone();
    }
    if let Some(line) = monitor {
        monitor_route(cx, proxy, line, &listeners);
    }
    if rules.has_limit && !is_global && parts.len() > 1 {
        cx.ledger.note("a limit of a frontend counts for each route alone where Weir writes the frontend's filters to several routes");
    }
    write(cx, proxy, parts, backends, &rules, is_global, &listeners);
}

/// `monitor-uri /path`: an answer before all rules.
fn monitor_route(cx: &mut Cx<'_, '_, '_>, proxy: &Proxy<'_>, line: &Line, listeners: &[String]) {
    let route = Route {
        file: crate::config::name_of(proxy.name),
        comment: vec![
            "`monitor-uri`. The admin listener has /healthz and /readyz for a balancer before Weir."
                .to_owned(),
        ],
        matches: Match {
            path: Some(crate::shared::path::exact(line.word(1))),
            listeners: listeners.to_vec(),
            ..Match::default()
        },
        priority: 100_000,
        target: Some(Target::Respond(respond(200, None, None))),
        ..Route::default()
    };
    cx.config.add_route(&format!("{}-monitor", proxy.name), route, vec![line.piece]);
    cx.ledger
        .changed(line.piece, "Weir answers without the line of text, and routes for hosts come before it");
}

/// The share of requests in percent that a line takes, if a share is its whole condition.
fn share(line: &Line, scope: &Scope<'_>) -> Option<u32> {
    let test = super::limits::only_test(line, 2, scope)?;
    let words: Vec<&str> =
        test.iter().map(String::as_str).filter(|word| !matches!(*word, "-m" | "int")).collect();
    let [fetch, operator, number] = &*words else { return None };
    let (name, args) = call(fetch);
    let range: u32 = args.first().map_or("100", String::as_str).parse().ok().filter(|range| *range > 0)?;
    let number: u32 = number.parse().ok()?;
    let taken = match *operator {
        "lt" => number,
        "le" => number + 1,
        "ge" => range.checked_sub(number)?,
        "gt" => range.checked_sub(number + 1)?,
        _ => return None,
    };
    let percent = taken.checked_mul(100).filter(|hundreds| hundreds % range == 0)? / range;
    (name == "rand" && (1..100).contains(&percent)).then_some(percent)
}

/// For a line that is refused because a rule before it changes the path of some requests: what it takes of the others,
/// and which requests are changed.
fn unchanged<'a>(
    cx: &mut Cx<'a, '_, '_>,
    scope: &Scope<'a>,
    line: &'a Line,
) -> Option<(Vec<Vec<Term>>, Expression)> {
    let changed = scope.path_changes.clone().filter(|changed| changed.as_constant().is_none())?;
    let is_plain = !line.word(1).contains("%[") && !super::read::has_variable(line.word(1));
    let found = condition(cx, scope, line, 2);
    let reads_other = |term: &Term| match term {
        Term::Is(is, _) => {
            let mut others = scope.touched.iter().filter(|touched| *touched != "request.path");
            others.any(|touched| is.as_str().contains(touched.as_str()))
        }
        _ => true,
    };
    if !is_plain || found.expression().is_err() || found.any.iter().flatten().any(reads_other) {
        return None;
    }
    cx.model.backend(line.word(1))?;
    let others = Term::Is(changed.clone().not(), None);
    let kept = found.any.into_iter().map(|all| all.into_iter().chain([others.clone()]).collect());
    Some((kept.collect(), changed))
}

/// Routes that answer 503 to all requests that an untranslated line might take, or to those of them of which `only` is
/// true.
fn close<'a>(
    cx: &mut Cx<'a, '_, '_>,
    scope: &Scope<'a>,
    line: &'a Line,
    only: Option<Expression>,
    parts: &mut Vec<Part<'a>>,
) {
    let why = format!("`{}` at {} was not translated", super::words(line), line.place);
    let only = only.map(|is| Term::Is(is, None));
    let found = condition(cx, scope, line, 2);
    // Terms about what an earlier rule changed are unknown: Weir chooses by the request as it came.
    let is_known = |term: &Term| matches!(term, Term::Is(is, _) if !scope.touched.iter().any(|touched| is.as_str().contains(touched.as_str())));
    for all in &found.any {
        let known = all.iter().filter(|term| is_known(term)).chain(&only).cloned();
        let known: Vec<Term> = known.collect();
        let before = parts.len();
        // Behind the filter that closes it is the backend, where there is one.
        let backend = cx.model.backend(line.word(1)).map_or("", |_| line.word(1));
        alternatives(line, backend, &known, &mut Vec::new(), parts);
        parts[before..].iter_mut().for_each(|part| part.closed = Some(why.clone()));
    }
}

/// One `use_backend` line.
fn use_backend<'a>(cx: &mut Cx<'a, '_, '_>, scope: &Scope<'a>, line: &'a Line, parts: &mut Vec<Part<'a>>) {
    let nearest = "routes with match and upstream";
    let name = line.word(1);
    if name.contains("%[") || super::read::has_variable(name) {
        return match dynamic(cx, scope, line, parts) {
            Ok(()) => {}
            Err(why) => cx.ledger.refused(line.piece, why, nearest),
        };
    }
    if cx.model.backend(name).is_none() {
        return cx.ledger.refused(line.piece, "no backend has this name", "correct the source");
    }
    let found = condition(cx, scope, line, 2);
    // Routes are chosen before filters run.
    let reads_change = |text: &str| scope.touched.iter().any(|touched| text.contains(touched.as_str()));
    if let Err(why) = found.expression() {
        let nearest = if why.starts_with("a share") {
            "upstream: { a: 95, b: 5 }"
        } else {
            "match.when, or routes by hand"
        };
        let why = format!("its condition: {why}; requests that it might take get 503");
        return cx.ledger.refused(line.piece, why, nearest);
    }
    if found.any.is_empty() {
        return cx.ledger.left_out(line.piece, "its condition never holds here");
    }
    if found.any.iter().flatten().any(|term| matches!(term, Term::Is(is, _) if reads_change(is.as_str()))) {
        let why = "its condition reads what a rule before it changed: Weir chooses routes by the request as it came";
        return cx.ledger.refused(line.piece, why, "the condition on the request as it came");
    }
    let mut changes = Vec::new();
    for all in &found.any {
        alternatives(line, name, all, &mut changes, parts);
    }
    if changes.is_empty() {
        cx.ledger.same(line.piece);
    } else {
        changes.dedup();
        cx.ledger.changed(line.piece, changes.join("; "));
    }
}

/// One alternative of a condition: a route for each path that it names.
fn alternatives<'a>(
    line: &'a Line,
    backend: &str,
    all: &[Term],
    changes: &mut Vec<String>,
    parts: &mut Vec<Part<'a>>,
) {
    let (mut hosts, mut paths, mut methods): (Option<Vec<String>>, Option<Vec<PathOf>>, Vec<String>) =
        (None, None, Vec::new());
    let (mut rest, mut exact) = (Expression::constant(true), Expression::constant(true));
    for term in all {
        let Term::Is(is, facet) = term else { continue };
        exact = exact.and(is.clone());
        match facet {
            Some(Facet::Hosts(names)) if hosts.is_none() => {
                let why = "Weir compares hosts without case and without the port: HAProxy took a Host with a port to the rules behind it";
                changes.push(why.to_owned());
                let both = names.iter().find(|name| names.contains(&format!(".{name}")));
                if let Some(name) = both {
                    changes.push(format!(
                        "a host that only contains `{name}`, such as `{name}.test`, is not taken"
                    ));
                }
                hosts = Some(names.clone());
            }
            Some(Facet::Paths(all)) if paths.is_none() => paths = Some(all.clone()),
            Some(Facet::Methods(names)) if methods.is_empty() => methods.clone_from(names),
            _ => rest = rest.and(is.clone()),
        }
    }
    let hosts: Vec<Host> = hosts
        .unwrap_or_default()
        .into_iter()
        .map(|name| if name.starts_with('.') { Host::Suffix(name) } else { Host::Exact(name) })
        .collect();
    let paths = paths.unwrap_or_else(|| vec![PathOf::Prefix("/".to_owned())]);
    for path in paths {
        let (path, written, only) = match path {
            PathOf::Exact(text) => {
                let written = crate::shared::path::exact(&decoded(&text));
                (Path::Exact(text), Some(written), Expression::constant(true))
            }
            PathOf::Prefix(text) if text == "/" => (Path::Prefix(text), None, Expression::constant(true)),
            PathOf::Prefix(text) => {
                let written = crate::shared::path::prefix(&decoded(&text));
                // `/p/*` takes `/p`, too.
                let only = match crate::shared::path::takes_its_folder(&text) {
                    Some(folder) => Expression::raw("request.path").differs(Expression::text(folder)),
                    None => Expression::constant(true),
                };
                (Path::Prefix(text), Some(written), only)
            }
        };
        let when = rest.clone().and(only);
        let matches = Match {
            methods: methods.clone(),
            when: (when.as_constant() != Some(true)).then(|| when.as_str().to_owned()),
            ..Match::default()
        };
        let candidate = Candidate { hosts: hosts.clone(), path, matches };
        parts.push(Part {
            line: Some(line),
            backend: backend.to_owned(),
            candidate,
            exact: exact.clone(),
            written,
            closed: None,
            shares: Vec::new(),
        });
    }
}

/// A backend, translated once. The empty name stands for none.
fn backend<'a>(cx: &mut Cx<'a, '_, '_>, backends: &mut HashMap<String, Backend>, name: &str) -> Backend {
    if let Some(known) = backends.get(name) {
        return known.clone();
    }
    let mut made = Backend { target: Some(Target::Respond(respond(503, None, None))), ..Backend::default() };
    let index = cx.model.proxies.iter().position(|proxy| proxy.name == name && proxy.is_back());
    let model = cx.model;
    if let Some(proxy) = index.and_then(|at| model.proxies.get(at)) {
        cx.ledger.same(proxy.section.head.piece);
        // A `listen` has its rules as a frontend already.
        let mut rules = Rules::default();
        if proxy.kind == "backend" {
            let mut scope =
                Scope { acls: super::acl::acls(&proxy.lines), proxy: name.to_owned(), ..Scope::default() };
            rules = rules::translate(cx, proxy, &mut scope);
            super::pages::errors(cx, proxy, &mut rules.filters);
            super::pages::compression(cx, proxy, &mut rules);
            super::known::backend(cx, proxy);
        }
        let upstream = super::servers::upstream(cx, proxy);
        made.has_limit = rules.has_limit;
        made.filters = rules.filters;
        made.target = match upstream {
            _ if rules.answers => None,
            Some(upstream) => Some(Target::Upstream(cx.config.upstreams.add(name, upstream))),
            None => {
                let has_server = proxy.all("server").next().is_some();
                if !has_server && !rules.answers {
                    cx.ledger.note(format!(
                        "backend `{name}` has no server: HAProxy answers 503, and so does Weir"
                    ));
                }
                Some(Target::Respond(respond(503, None, None)))
            }
        };
    }
    backends.insert(name.to_owned(), made.clone());
    made
}

/// Settings of a list that is not empty.
pub(super) fn set_list(map: &mut Map, key: &str, texts: &[String]) {
    if !texts.is_empty() {
        map.set(key, texts.to_vec());
    }
}

/// What a rule is called in a sentence. Those that answer by themselves have no backend.
fn rule_for(backend: &str) -> String {
    if backend.is_empty() {
        "rule that answers by itself".to_owned()
    } else {
        format!("rule for `{backend}`")
    }
}
