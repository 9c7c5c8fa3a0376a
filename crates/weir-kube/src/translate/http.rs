//! HTTPRoutes and GRPCRoutes become routes of Weir: one for each match of each rule at each listener of Weir.
//!
//! A rule that cannot be served keeps its matches, which answer with an error: a wider route may lack what guards it.
//! So does a route that is not accepted as a whole. A match that Weir cannot express is left out, as the API has it
//! (`PartiallyInvalid`, *Dropped Rule*): nothing says which requests it means.

use super::arms::{self, Handled};
use super::attach::{Attached, Findings, Place, attach, status, tell_of_gateways};
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

/// The type of a condition that is a regular expression.
const REGEX: &str = "RegularExpression";

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
    let cluster = cx.lookups.all();
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
        let mut out = cx.swap(before);
        let is_left_out = cx.refused(kind, name).is_some();
        let mut closed = Vec::new();
        if is_left_out {
            closed = std::mem::take(&mut out.routes);
            out.upstreams.clear();
            out.files.clear();
        }
        let is_accepted = attached.wrong.is_none() && findings.unusable.is_none();
        let made = Made {
            out,
            closed,
            is_attached: !attached.parents.is_empty(),
            status: status(cx, kind, meta, &attached, &findings),
            asked: attached.asked,
            listeners: if is_accepted { attached.listeners } else { Vec::new() },
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
    let types = spec.rules.iter().flat_map(|rule| &rule.matches).flat_map(types_of_http);
    let wrong = unaccepted(spec.rules.len(), types);
    route(cx, gates, of, (&spec.parent_refs, &spec.hostnames), wrong, |left| {
        spec.rules.iter().take(MAX_RULES).map(|rule| http_rule(rule, left)).collect()
    })
}

/// The types of a match's conditions.
fn types_of_http(written: &HttpMatch) -> impl Iterator<Item = &str> {
    let path = written.path.as_ref().and_then(|path| path.kind.as_deref());
    let values = written.headers.iter().chain(&written.query_params);
    path.into_iter().chain(values.filter_map(|value| value.kind.as_deref()))
}

fn grpc_route<'c>(
    cx: &mut Cx<'c>,
    gates: &[Gate<'c>],
    object: &'c Object<GrpcRoute>,
) -> (Attached<'c>, Findings) {
    let spec = &object.spec;
    let of = (Kind::GrpcRoute, &object.meta);
    let types = spec.rules.iter().flat_map(|rule| &rule.matches).flat_map(types_of_grpc);
    let wrong = unaccepted(spec.rules.len(), types);
    route(cx, gates, of, (&spec.parent_refs, &spec.hostnames), wrong, |left| {
        let rules = spec.rules.iter().take(MAX_RULES).map(|rule| Rule {
            matches: matches(&rule.matches, |written| {
                take_regexes(left, types_of_grpc(written))?;
                grpc_match(written)
            }),
            filters: &rule.filters,
            backends: &rule.backend_refs,
            timeouts: Ok(json!({})),
            retry: no_sessions(rule.session_persistence.as_ref()).map(|()| None),
        });
        rules.collect()
    })
}

/// The types of a match's conditions.
fn types_of_grpc(written: &GrpcMatch) -> impl Iterator<Item = &str> {
    let method = written.method.as_ref().and_then(|method| method.kind.as_deref());
    method.into_iter().chain(written.headers.iter().filter_map(|field| field.kind.as_deref()))
}

/// Why a route with so many rules and conditions of these types is not accepted as a whole. A type that nobody knows
/// means that, as the API has it.
fn unaccepted<'a>(rules: usize, types: impl Iterator<Item = &'a str>) -> Option<Problem> {
    let (mut regexes, mut unknown) = (0, None);
    for kind in types {
        match kind {
            REGEX => regexes += 1,
            "Exact" | "PathPrefix" => {}
            _ => unknown = Some(kind),
        }
    }
    if rules > MAX_RULES {
        return Some(unsupported(format!("it has more than {MAX_RULES} rules")));
    }
    if regexes > MAX_REGEXES {
        return Some(too_many_regexes());
    }
    unknown.map(|kind| unsupported(format!("a match of the type {} is not supported", shown(kind))))
}

/// Takes the regular expressions of a match from those that its route has left.
fn take_regexes<'a>(left: &mut usize, types: impl Iterator<Item = &'a str>) -> Result<(), Problem> {
    *left = left.checked_sub(types.filter(|kind| *kind == REGEX).count()).ok_or_else(too_many_regexes)?;
    Ok(())
}

fn too_many_regexes() -> Problem {
    unsupported(format!("it has more than {MAX_REGEXES} regular expressions"))
}

fn route<'c>(
    cx: &mut Cx<'c>,
    gates: &[Gate<'c>],
    (kind, meta): (Kind, &'c Meta),
    (parents, hostnames): (&'c [ParentRef], &'c [String]),
    wrong: Option<Problem>,
    // Gets how many regular expressions may be compiled: the matches beyond are left out.
    rules: impl FnOnce(&mut usize) -> Vec<Rule<'c>>,
) -> (Attached<'c>, Findings) {
    let attached = attach(cx, gates, kind, meta, parents, hostnames);
    let mut findings = Findings::default();
    if attached.parents.is_empty() {
        return (attached, findings);
    }
    tell_of_gateways(cx, (kind, meta), &attached);
    let closed = attached.wrong.clone().or(wrong).or_else(|| cx.closed(kind, &meta.key()));
    let mut left = MAX_REGEXES;
    let rules = rules(&mut left);
    emit(cx, (kind, meta), &attached, (&rules, closed), &mut findings);
    (attached, findings)
}

/// Makes the routes of all rules. If the whole route is `closed`, each answers with an error.
fn emit(
    cx: &mut Cx<'_>,
    of: (Kind, &Meta),
    attached: &Attached<'_>,
    (rules, closed): (&[Rule<'_>], Option<Problem>),
    findings: &mut Findings,
) {
    let gateways: BTreeSet<_> = attached.parents.iter().map(|parent| parent.gateway.clone()).collect();
    let (mut sound, mut wrong) = (0, None);
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
        let name = names::join(&[&parts[..], more].concat());
        if !cx.options.dropped_matches.contains_key(name.as_str()) {
            cx.push(rank.clone(), name, value, (kind, &meta.key()));
        }
    }
}

fn http_rule<'c>(rule: &'c HttpRule, left: &mut usize) -> Rule<'c> {
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
        matches: matches(&rule.matches, |written| {
            take_regexes(left, types_of_http(written))?;
            http_match(written)
        }),
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
    read: impl FnMut(&M) -> Result<Matching, Problem>,
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
        if method == "CONNECT" {
            return Err(unsupported("Weir refuses requests with the method CONNECT"));
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
