//! HTTPRoutes and GRPCRoutes become routes of Weir: one for each match of each rule at each listener of Weir.

use super::attach::{Attached, Findings, Place, attach, count, report};
use super::backends::{Backend, Manner, resolve};
use super::filters::{self, Around};
use super::listeners::Gate;
use super::{Cx, MAX_MATCHES, MAX_RULES, Rank, answer, groups, unsupported};
use crate::names;
use crate::objects::{
    BackendRef, Filter, GrpcMatch, HttpMatch, HttpRule, Kind, Meta, ParentRef, ValueMatch, shown,
};
use crate::status::{Problem, Status};
use crate::text;
use serde_json::{Map, Value, json};
use std::cmp::Reverse;
use std::collections::BTreeSet;

/// Most weights of a rule together, so that shares stay exact.
const MAX_WEIGHT: u32 = 1_000_000;

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

/// Where the requests of a rule go: filters that decide a part of it, and the target.
struct Target {
    filters: Vec<Value>,
    key: &'static str,
    value: Value,
}

/// Translates all routes of HTTP.
pub(super) fn routes<'c>(cx: &mut Cx<'c>, gates: &mut [Gate<'c>], statuses: &mut Vec<Status>) {
    let cluster = cx.cluster;
    for object in cluster.http_routes.values() {
        let spec = &object.spec;
        let of = (Kind::HttpRoute, &object.meta);
        let all = spec.rules.iter().flat_map(|rule| &rule.matches);
        let regexes = all.map(|m| {
            let path = m.path.as_ref().and_then(|path| path.kind.as_deref());
            is_regex(path) + m.headers.iter().map(|field| is_regex(field.kind.as_deref())).sum::<usize>()
        });
        let size = (spec.rules.len(), regexes.sum());
        route(cx, gates, of, (&spec.parent_refs, &spec.hostnames), size, statuses, || {
            spec.rules.iter().map(http_rule).collect()
        });
    }
    for object in cluster.grpc_routes.values() {
        let spec = &object.spec;
        let of = (Kind::GrpcRoute, &object.meta);
        let all = spec.rules.iter().flat_map(|rule| &rule.matches);
        let regexes = all.map(|m| {
            let method = m.method.as_ref().and_then(|method| method.kind.as_deref());
            is_regex(method) + m.headers.iter().map(|field| is_regex(field.kind.as_deref())).sum::<usize>()
        });
        let size = (spec.rules.len(), regexes.sum());
        route(cx, gates, of, (&spec.parent_refs, &spec.hostnames), size, statuses, || {
            let rules = spec.rules.iter().map(|rule| Rule {
                matches: matches(&rule.matches, grpc_match),
                filters: &rule.filters,
                backends: &rule.backend_refs,
                timeouts: Ok(json!({})),
                retry: no_sessions(rule.session_persistence.as_ref()).map(|()| None),
            });
            rules.collect()
        });
    }
}

/// One if a match is of this type.
fn is_regex(kind: Option<&str>) -> usize {
    usize::from(kind == Some("RegularExpression"))
}

fn route<'c>(
    cx: &mut Cx<'c>,
    gates: &mut [Gate<'c>],
    (kind, meta): (Kind, &'c Meta),
    (parents, hostnames): (&'c [ParentRef], &'c [String]),
    (rule_count, regexes): (usize, usize),
    statuses: &mut Vec<Status>,
    rules: impl FnOnce() -> Vec<Rule<'c>>,
) {
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
    count(gates, &attached, &findings);
    report(cx, (kind, meta), &attached, &findings, statuses);
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
    for (number, rule) in rules.iter().enumerate() {
        // References are judged also where no listener serves the route yet.
        let target = target(cx, of, rule, &gateways, findings);
        let mut problem = unusable(rule);
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
                let translated = match &problem {
                    Some(problem) => Err(problem.clone()),
                    None => chain(cx, &around, rule, &target, findings),
                };
                let (chain, target) = translated.unwrap_or_else(|why| {
                    problem.get_or_insert(why);
                    (Vec::new(), Some(("respond", answer(500))))
                });
                push(cx, of, (number, at), matching, place, (chain, target, rule));
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

/// Why a rule cannot be served wherever it is attached.
fn unusable(rule: &Rule<'_>) -> Option<Problem> {
    if rule.matches.len() > MAX_MATCHES {
        return Some(unsupported(format!("a rule has more than {MAX_MATCHES} matches")));
    }
    rule.timeouts.as_ref().err().or(rule.retry.as_ref().err()).cloned()
}

/// A route's filters and its target, which is none if the filters answer.
type Handled = (Vec<Value>, Option<(&'static str, Value)>);

fn chain(
    cx: &mut Cx<'_>,
    around: &Around<'_>,
    rule: &Rule<'_>,
    target: &Target,
    findings: &mut Findings,
) -> Result<Handled, Problem> {
    let translated = filters::translate(cx, around, rule.filters, findings)?;
    let mut chain = translated.filters;
    if translated.answers {
        return Ok((chain, None));
    }
    chain.extend(target.filters.iter().cloned());
    let mut own =
        rule.backends.iter().filter(|backend| backend.weight != Some(0)).map(|backend| &backend.filters);
    let of_backends = own.next().map_or(&[][..], Vec::as_slice);
    if own.any(|filters| filters[..] != *of_backends) {
        return Err(unsupported("filters of some of several backendRefs are not supported"));
    }
    let of_backends = filters::translate(cx, around, of_backends, findings)?;
    chain.extend(of_backends.filters);
    let target = (!of_backends.answers).then(|| (target.key, target.value.clone()));
    Ok((chain, target))
}

/// Where a rule's requests go.
fn target(
    cx: &mut Cx<'_>,
    of: (Kind, &Meta),
    rule: &Rule<'_>,
    gateways: &BTreeSet<crate::objects::Name>,
    findings: &mut Findings,
) -> Target {
    let manner = Manner {
        is_grpc: of.0 == Kind::GrpcRoute,
        retry: rule.retry.as_ref().ok().cloned().flatten(),
        ..Manner::default()
    };
    let mut shares: Map<String, Value> = Map::new();
    let (mut good, mut broken, mut empty) = (0u64, 0u64, 0u64);
    for backend in rule.backends {
        let weight = u64::from(backend.weight.unwrap_or(1).min(MAX_WEIGHT));
        match resolve(cx, of, backend, &manner, gateways) {
            Ok(Backend::Upstream(name)) => {
                let before = shares.get(&name).and_then(Value::as_u64).unwrap_or_default();
                shares.insert(name, json!((before + weight).min(u64::from(MAX_WEIGHT))));
                good += weight;
            }
            Ok(Backend::Empty) => empty += weight,
            Err(problem) => {
                findings.unresolved(problem);
                broken += weight;
            }
        }
    }
    if good == 0 {
        // Where nothing can be reached: 503 if it may come back by itself, 500 if the config is wrong.
        let (status, other) = if broken == 0 && empty > 0 { (503, 0) } else { (500, empty) };
        let filters = if other > 0 { vec![fails(other, other + broken, 503)] } else { Vec::new() };
        return Target { filters, key: "respond", value: answer(status) };
    }
    let mut filters = Vec::new();
    if broken > 0 {
        filters.push(fails(broken, good + empty + broken, 500));
    }
    if empty > 0 {
        filters.push(fails(empty, good + empty, 503));
    }
    shares.retain(|_, weight| weight.as_u64() != Some(0));
    let mut names = shares.keys();
    let value = match (names.next(), names.next()) {
        (Some(only), None) => json!(only),
        _ => Value::Object(shares),
    };
    Target { filters, key: "upstream", value }
}

/// Answers a share of the requests with an error.
fn fails(share: u64, of: u64, status: u16) -> Value {
    let share = share as f64 * 100.0 / of as f64;
    json!({ "fault": { "share": format!("{share}%"), "status": status } })
}

fn push(
    cx: &mut Cx<'_>,
    (kind, meta): (Kind, &Meta),
    (rule, matched): (usize, usize),
    matching: &Matching,
    place: &Place,
    (filters, target, of): (Vec<Value>, Option<(&'static str, Value)>, &Rule<'_>),
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
        is_last: false,
        has_no_method: matching.method.is_none(),
        headers: Reverse(matching.headers.len()),
        query: Reverse(matching.query.len()),
        created: meta.creation_timestamp.clone(),
        name: meta.key(),
        rule,
        matched,
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
        if parameter.kind.as_deref().unwrap_or("Exact") != "Exact" {
            return Err(unsupported("query parameters are not compared with regular expressions"));
        }
        // Weir would read these as other conditions.
        if parameter.value == "*" || parameter.value.starts_with('~') || parameter.name.is_empty() {
            return Err(unsupported(format!(
                "a query parameter with `{}` is not supported",
                shown(&parameter.value)
            )));
        }
        // The first of several entries of one name counts.
        matching.query.entry(parameter.name.clone()).or_insert_with(|| json!(parameter.value));
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
                // Weir would read these as other conditions.
                match value == "*" || value.starts_with('~') {
                    true => format!("~{}", text::quoted(value)),
                    false => value.to_owned(),
                }
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
