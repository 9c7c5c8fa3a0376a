//! HTTPRoutes and GRPCRoutes become routes of Weir: one for each match of each rule at each listener of Weir.

use super::arms::{self, Handled};
use super::attach::{Attached, Findings, Place, attach, status};
use super::backends::Manner;
use super::filters::{self, Around};
use super::listeners::Gate;
use super::memo::{Made, Out, Routes};
use super::{Cx, MAX_MATCHES, MAX_RULES, Rank, groups, unsupported};
use crate::names;
use crate::objects::{
    BackendRef, Filter, GrpcMatch, GrpcRoute, HttpMatch, HttpRoute, HttpRule, Kind, Meta, Object, ParentRef,
    ValueMatch, shown,
};
use crate::status::{Problem, Status};
use crate::text;
use serde_json::{Map, Value, json};
use std::cmp::Reverse;
use std::collections::BTreeSet;

/// Most regular expressions of a route: each may take a MiB, at each listener.
const MAX_REGEXES: usize = 32;

/// A rule of either kind of route.
struct Rule<'c> {
    matches: Vec<Result<Matching, Problem>>,
    filters: &'c [Filter],
    backends: &'c [BackendRef],
    /// `timeouts` of the route.
    timeouts: Result<Value, Problem>,
    retry: Result<Option<Value>, Problem>,
}

/// A match in Weir's words.
#[derive(Default)]
struct Matching {
    path: String,
    /// The prefix as written, if the path is one.
    prefix: Option<String>,
    method: Option<String>,
    headers: Map<String, Value>,
    query: Map<String, Value>,
}

/// Translates all routes of HTTP. `known` has what was made of them before.
pub(super) fn routes<'c>(
    cx: &mut Cx<'c>,
    gates: &mut [Gate<'c>],
    known: &mut Routes,
    statuses: &mut Vec<Status>,
) {
    let cluster = cx.cluster;
    let http =
        cluster.http_routes.iter().map(|(name, object)| (object.meta.age(), name, Either::Http(object)));
    let grpc =
        cluster.grpc_routes.iter().map(|(name, object)| (object.meta.age(), name, Either::Grpc(object)));
    let mut all: Vec<_> = http.chain(grpc).collect();
    all.sort_by_key(|(age, ..)| *age);
    for (_, name, object) in all {
        let (kind, meta) = object.of();
        if let Some(made) = known.get(kind, name, gates) {
            made.join(cx, gates, statuses);
            continue;
        }
        let before = cx.swap(Out::default());
        let (attached, findings) = match object {
            Either::Http(object) => http_route(cx, gates, object),
            Either::Grpc(object) => grpc_route(cx, gates, object),
        };
        let out = cx.swap(before);
        let made = Made {
            out,
            is_attached: !attached.parents.is_empty(),
            status: status(cx, kind, meta, &attached, &findings),
            asked: attached.asked,
            listeners: if findings.unusable.is_none() { attached.listeners } else { Vec::new() },
        };
        known.put(kind, name.clone(), made).join(cx, gates, statuses);
    }
}

/// A route of either kind.
#[derive(Clone, Copy)]
enum Either<'c> {
    Grpc(&'c Object<GrpcRoute>),
    Http(&'c Object<HttpRoute>),
}

impl<'c> Either<'c> {
    const fn of(self) -> (Kind, &'c Meta) {
        match self {
            Self::Grpc(object) => (Kind::GrpcRoute, &object.meta),
            Self::Http(object) => (Kind::HttpRoute, &object.meta),
        }
    }
}

fn http_route<'c>(
    cx: &mut Cx<'c>,
    gates: &[Gate<'c>],
    object: &'c Object<HttpRoute>,
) -> (Attached<'c>, Findings) {
    let spec = &object.spec;
    let of = (Kind::HttpRoute, &object.meta);
    let all = spec.rules.iter().flat_map(|rule| &rule.matches);
    let regexes = all.map(|m| {
        let path = m.path.as_ref().and_then(|path| path.kind.as_deref());
        let values = m.headers.iter().chain(&m.query_params);
        is_regex(path) + values.map(|value| is_regex(value.kind.as_deref())).sum::<usize>()
    });
    let size = (spec.rules.len(), regexes.sum());
    route(cx, gates, of, (&spec.parent_refs, &spec.hostnames), size, || {
        spec.rules.iter().map(http_rule).collect()
    })
}

fn grpc_route<'c>(
    cx: &mut Cx<'c>,
    gates: &[Gate<'c>],
    object: &'c Object<GrpcRoute>,
) -> (Attached<'c>, Findings) {
    let spec = &object.spec;
    let of = (Kind::GrpcRoute, &object.meta);
    let all = spec.rules.iter().flat_map(|rule| &rule.matches);
    let regexes = all.map(|m| {
        let method = m.method.as_ref().and_then(|method| method.kind.as_deref());
        is_regex(method) + m.headers.iter().map(|field| is_regex(field.kind.as_deref())).sum::<usize>()
    });
    let size = (spec.rules.len(), regexes.sum());
    route(cx, gates, of, (&spec.parent_refs, &spec.hostnames), size, || {
        let rules = spec.rules.iter().map(|rule| Rule {
            matches: matches(&rule.matches, grpc_match),
            filters: &rule.filters,
            backends: &rule.backend_refs,
            timeouts: Ok(json!({})),
            retry: no_sessions(rule.session_persistence.as_ref()).map(|()| None),
        });
        rules.collect()
    })
}

/// One if a match is of this type.
fn is_regex(kind: Option<&str>) -> usize {
    usize::from(kind == Some("RegularExpression"))
}

fn route<'c>(
    cx: &mut Cx<'c>,
    gates: &[Gate<'c>],
    (kind, meta): (Kind, &'c Meta),
    (parents, hostnames): (&'c [ParentRef], &'c [String]),
    (rule_count, regexes): (usize, usize),
    rules: impl FnOnce() -> Vec<Rule<'c>>,
) -> (Attached<'c>, Findings) {
    let attached = attach(cx, gates, kind, meta, parents, hostnames);
    let mut findings = Findings::default();
    if rule_count > MAX_RULES {
        findings.unusable = Some(unsupported(format!("it has more than {MAX_RULES} rules")));
    } else if regexes > MAX_REGEXES {
        findings.unusable = Some(unsupported(format!("it has more than {MAX_REGEXES} regular expressions")));
    } else if !attached.parents.is_empty() {
        let rules = rules();
        emit(cx, (kind, meta), &attached, &rules, &mut findings);
    }
    (attached, findings)
}

fn emit(
    cx: &mut Cx<'_>,
    of: (Kind, &Meta),
    attached: &Attached<'_>,
    rules: &[Rule<'_>],
    findings: &mut Findings,
) {
    let gateways: BTreeSet<_> = attached.parents.iter().map(|parent| parent.gateway.clone()).collect();
    let (mut sound, mut wrong) = (0, None);
    let closed = cx.closed(of.0, &of.1.key());
    for (number, rule) in rules.iter().enumerate() {
        // References are judged also where no listener serves the route yet.
        let mut legs = Vec::new();
        for (identity, gateways) in cx.identities_of(&gateways) {
            let manner = Manner { identity, ..manner(of.0, rule) };
            let made = arms::legs(cx, of, (rule.backends, &manner), &gateways, findings);
            legs.push((gateways, made));
        }
        let mut problem = closed.clone().or_else(|| unusable(rule));
        let mut left_out = None;
        for (at, matching) in rule.matches.iter().take(MAX_MATCHES).enumerate() {
            let matching = match matching {
                Ok(matching) => matching,
                // What cannot be expressed cannot be answered with an error either.
                Err(problem) => {
                    left_out.get_or_insert_with(|| problem.clone());
                    continue;
                }
            };
            for place in attached.places.values().filter(|place| !place.hosts.is_empty()) {
                let around = Around { kind: of.0, meta: of.1, place, prefix: matching.prefix.as_deref() };
                let legs = legs.iter().find(|(gateways, _)| gateways.contains(&place.gateway));
                let legs = legs.map_or(&[][..], |(_, legs)| legs);
                let translated = match &problem {
                    Some(problem) => Err(problem.clone()),
                    None => arms::handled(cx, &around, rule.filters, legs, findings),
                };
                let handled = translated.unwrap_or_else(|why| {
                    problem.get_or_insert(why);
                    (Vec::new(), Some(("respond", arms::failure(of.0, 500))))
                });
                push(cx, of, (number, at), matching, place, (handled, rule));
            }
        }
        let problem = problem.or(left_out);
        sound += usize::from(problem.is_none());
        wrong = wrong.or(problem);
    }
    match wrong {
        Some(problem) if sound == 0 => findings.unusable = Some(problem),
        Some(problem) => {
            findings.partly =
                Some(Problem { message: format!("Dropped Rule: {}", problem.message), ..problem });
        }
        None => {}
    }
}

/// What the upstreams of a rule have besides their endpoints.
fn manner(kind: Kind, rule: &Rule<'_>) -> Manner {
    Manner {
        is_grpc: kind == Kind::GrpcRoute,
        retry: rule.retry.as_ref().ok().cloned().flatten(),
        ..Manner::default()
    }
}

/// Why a rule cannot be served wherever it is attached.
fn unusable(rule: &Rule<'_>) -> Option<Problem> {
    if rule.matches.len() > MAX_MATCHES {
        return Some(unsupported(format!("a rule has more than {MAX_MATCHES} matches")));
    }
    rule.timeouts.as_ref().err().or(rule.retry.as_ref().err()).cloned()
}

fn push(
    cx: &mut Cx<'_>,
    (kind, meta): (Kind, &Meta),
    (rule, matched): (usize, usize),
    matching: &Matching,
    place: &Place,
    ((filters, target), of): (Handled, &Rule<'_>),
) {
    let mut conditions = Map::new();
    conditions.insert("path".to_owned(), json!(matching.path));
    if let Some(method) = &matching.method {
        conditions.insert("methods".to_owned(), json!([method]));
    }
    for (key, all) in [("headers", &matching.headers), ("query", &matching.query)] {
        if !all.is_empty() {
            conditions.insert(key.to_owned(), json!(all));
        }
    }
    conditions.insert("listeners".to_owned(), json!([place.weir]));
    let mut value = json!({ "match": conditions });
    if !filters.is_empty() {
        value["filters"] = json!(filters);
    }
    if let Some((key, target)) = target {
        if key == "upstream"
            && let Ok(timeouts) = &of.timeouts
            && timeouts.as_object().is_some_and(|all| !all.is_empty())
        {
            value["timeouts"] = timeouts.clone();
        }
        value[key] = target;
    }
    let rank = Rank {
        has_no_method: matching.method.is_none(),
        headers: Reverse(matching.headers.len()),
        query: Reverse(matching.query.len()),
        created: meta.creation_timestamp.clone(),
        name: meta.key(),
        rule,
        matched,
        ..Rank::default()
    };
    let short = if kind == Kind::GrpcRoute { "grpc" } else { "http" };
    let numbers = (rule.to_string(), matched.to_string());
    let parts = [short, &meta.namespace, &meta.name, &numbers.0, &numbers.1, &place.weir];
    for (at, hosts) in groups(&place.hosts).into_iter().enumerate() {
        let mut value = value.clone();
        if !hosts.is_empty() {
            value["match"]["hosts"] = json!(hosts);
        }
        let more: &[&str] = if at == 0 { &[] } else { &["any"] };
        cx.push(rank.clone(), names::join(&[&parts[..], more].concat()), value, (kind, &meta.key()));
    }
}

fn http_rule(rule: &HttpRule) -> Rule<'_> {
    let timeouts = match &rule.timeouts {
        None => Ok(json!({})),
        Some(written) => {
            let mut out = Map::new();
            let keys = [("exchange", &written.request), ("response", &written.backend_request)];
            let mut wrong = None;
            for (key, text) in keys.into_iter().filter_map(|(key, text)| Some((key, text.as_deref()?))) {
                match text::duration(text) {
                    // Zero is none, which `exchange` has by default.
                    Some(time) if time.is_zero() && key == "exchange" => {}
                    Some(time) => drop(out.insert(key.to_owned(), json!(format!("{}ms", time.as_millis())))),
                    None => wrong = Some(unsupported(format!("`{}` is no duration", shown(text)))),
                }
            }
            wrong.map_or(Ok(Value::Object(out)), Err)
        }
    };
    let retry = no_sessions(rule.session_persistence.as_ref());
    let retry = retry.and_then(|()| rule.retry.as_ref().map(filters::retry).transpose());
    Rule {
        matches: matches(&rule.matches, http_match),
        filters: &rule.filters,
        backends: &rule.backend_refs,
        timeouts,
        retry,
    }
}

fn no_sessions(written: Option<&Value>) -> Result<(), Problem> {
    written.map_or(Ok(()), |_| Err(unsupported("sessionPersistence is not supported")))
}

/// Each match of a rule; a rule without one matches everything.
fn matches<M>(
    written: &[M],
    read: impl Fn(&M) -> Result<Matching, Problem>,
) -> Vec<Result<Matching, Problem>> {
    match written {
        [] => {
            vec![Ok(Matching { path: "/*".to_owned(), prefix: Some("/".to_owned()), ..Matching::default() })]
        }
        all => all.iter().map(read).collect(),
    }
}

fn http_match(written: &HttpMatch) -> Result<Matching, Problem> {
    let path = written.path.as_ref();
    let value = path.and_then(|path| path.value.as_deref()).unwrap_or("/");
    let no_path = || unsupported(format!("`{}` is a path that no request can have", shown(value)));
    let mut matching = Matching::default();
    match path.and_then(|path| path.kind.as_deref()).unwrap_or("PathPrefix") {
        "Exact" => matching.path = text::exact_path(value).ok_or_else(no_path)?,
        "PathPrefix" => {
            matching.path = text::prefix_path(value).ok_or_else(no_path)?;
            matching.prefix = Some(value.to_owned());
        }
        "RegularExpression" => matching.path = regex(value)?,
        other => {
            return Err(unsupported(format!("a path match of the type {} is not supported", shown(other))));
        }
    }
    if let Some(method) = &written.method {
        if !text::is_token(method) {
            return Err(unsupported(format!("`{}` is no method", shown(method))));
        }
        matching.method = Some(method.clone());
    }
    matching.headers = headers(&written.headers)?;
    for parameter in &written.query_params {
        if parameter.name.is_empty() {
            return Err(unsupported("a query parameter without a name is not supported"));
        }
        let value = match parameter.kind.as_deref().unwrap_or("Exact") {
            "Exact" => exact(&parameter.value),
            // It has the same form and limits as a path's.
            "RegularExpression" => regex(&parameter.value)?,
            other => {
                let message = format!("a query match of the type {} is not supported", shown(other));
                return Err(unsupported(message));
            }
        };
        // The first of several entries of one name counts.
        matching.query.entry(parameter.name.clone()).or_insert_with(|| json!(value));
    }
    Ok(matching)
}

/// A regex for the whole path, as the table will read it: within its limits, or none.
fn regex(written: &str) -> Result<String, Problem> {
    let path = format!("~{written}");
    let compiled = weir_gateway::route::Pattern::parse(&path, weir_gateway::route::Case::Sensitive);
    match compiled {
        // A group called `host` would take the place of the host in a redirect.
        Ok(pattern) if pattern.capture_names().iter().all(|name| is_number(name)) => Ok(path),
        Ok(_) => Err(unsupported("a regular expression with named groups is not supported")),
        Err(why) => Err(unsupported(format!("the regular expression is not supported: {}", why.message))),
    }
}

fn is_number(name: &str) -> bool {
    name.bytes().all(|byte| byte.is_ascii_digit())
}

/// The condition that a value is this one. Some would be read as other conditions.
fn exact(value: &str) -> String {
    match value == "*" || value.starts_with('~') {
        true => format!("~{}", text::quoted(value)),
        false => value.to_owned(),
    }
}

/// Conditions on header fields.
fn headers(written: &[ValueMatch]) -> Result<Map<String, Value>, Problem> {
    let mut all = Map::new();
    for field in written {
        let name = field.name.to_ascii_lowercase();
        if !text::is_token(&name) {
            return Err(unsupported(format!("`{}` is no header field", shown(&field.name))));
        }
        let value = match field.kind.as_deref().unwrap_or("Exact") {
            "Exact" => {
                let value = text::header_value(&field.value);
                let value = value.ok_or_else(|| {
                    unsupported(format!("the value of {name} is none that a field can have"))
                })?;
                exact(value)
            }
            "RegularExpression" => {
                // A header's regex has the same form and limits as a path's.
                regex(&field.value)?
            }
            other => {
                return Err(unsupported(format!(
                    "a header match of the type {} is not supported",
                    shown(other)
                )));
            }
        };
        // The first of several entries of one name counts.
        all.entry(name).or_insert_with(|| json!(value));
    }
    Ok(all)
}

fn grpc_match(written: &GrpcMatch) -> Result<Matching, Problem> {
    let mut matching = Matching { headers: headers(&written.headers)?, ..Matching::default() };
    let method = written.method.clone().unwrap_or_default();
    let (service, name) = (method.service.as_deref(), method.method.as_deref());
    let is_exact = match method.kind.as_deref().unwrap_or("Exact") {
        "Exact" => true,
        "RegularExpression" => false,
        other => {
            return Err(unsupported(format!("a method match of the type {} is not supported", shown(other))));
        }
    };
    let part = |text: &str| match is_exact {
        true => text::quoted(text),
        false => format!("(?:{text})"),
    };
    let whole = |text: &str| {
        let path = text::path(&format!("/{text}")).filter(|path| !text::has_syntax(path));
        path.ok_or_else(|| unsupported("service or method is no name"))
    };
    matching.path = match (service, name) {
        (None, None) => "/*".to_owned(),
        (Some(service), Some(name)) if is_exact => whole(&format!("{service}/{name}"))?,
        (Some(service), None) if is_exact => format!("{}/*", whole(service)?),
        (service, name) => {
            let any = || "[^/]+".to_owned();
            regex(&format!("/{}/{}", service.map_or_else(any, part), name.map_or_else(any, part)))?
        }
    };
    Ok(matching)
}
