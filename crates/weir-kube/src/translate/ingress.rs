//! Ingresses: routes of HTTP by the older API, on ports 80 and 443 of all addresses.
//!
//! Paths follow the API's rules: the longest wins, and an exact one comes before a prefix. An `ImplementationSpecific`
//! path is a prefix by whole segments. `annotations.rs` follows those of ingress-nginx. A path that cannot be served
//! answers 503: a wider path, also one of another namespace, may lack what guards it.

use super::annotations::{self, Annotated, Canaries, Goes, note};
use super::backends::{Backend, Manner, port_of, upstream};
use super::listeners::{Gate, Pair, certificate, is_of_admin};
use super::sites::{Hosts, Site, host_of};
use super::{Cx, MAX_MATCHES, Rank, answer};
use crate::objects::{
    CertificateRef, DEFAULT_CLASS, Ingress, IngressBackend, Kind, Meta, Name, OLD_CLASS, Object, shown,
};
use crate::status::{Problem, Status};
use crate::{names, text};
use serde_json::{Map, Value, json};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use weir_import::ingress_annotations;
use weir_import::shared::regex::sure_start;

/// The names of the listeners.
const PLAIN: &str = "ingress-80";
const SECURE: &str = "ingress-443";

/// Translates the Ingresses of our classes. They do not get a port that a Gateway has.
pub(super) fn routes(cx: &mut Cx<'_>, gates: &[Gate<'_>], statuses: &mut Vec<Status>) {
    let cluster = cx.lookups.all();
    let classes =
        || cluster.ingress_classes.iter().filter(|(_, class)| class.spec.controller == cx.options.controller);
    let is_default =
        classes().any(|(_, class)| class.meta.annotations.get(DEFAULT_CLASS).is_some_and(|v| v == "true"));
    let ours: BTreeSet<&str> = classes().map(|(name, _)| name.name.as_str()).collect();
    // The older annotation names another controller's class just as well.
    let is_ours = |object: &Object<Ingress>| {
        let class = object.spec.ingress_class_name.as_ref().or(object.meta.annotations.get(OLD_CLASS));
        class.map_or(is_default, |class| ours.contains(class.as_str()))
    };
    let mut all: Vec<_> = cluster.ingresses.values().filter(|object| is_ours(object)).collect();
    all.sort_by(|a, b| a.meta.age().cmp(&b.meta.age()));
    if all.is_empty() {
        return;
    }
    // Ingresses are served at all addresses, so whichever address a Gateway has, its port is taken.
    let taken = |port: u16| {
        let has = |gate: &Gate<'_>| {
            let mut served = gate.listeners.iter().filter(|listener| listener.weir.is_some());
            served.any(|listener| gate.pod_port(listener.spec.port) == port)
        };
        gates.iter().any(has)
    };
    let (mut plain, mut secure) = (!taken(80), !taken(443));
    let certificates = certificates(cx, &all);
    for (port, is_served) in [(80, &mut plain), (443, &mut secure)] {
        let address = SocketAddr::from(([0, 0, 0, 0], port));
        let of_admin = || "the admin API of Weir listens there".to_owned();
        let why = is_of_admin(cx.options, address).then(of_admin);
        let Some(why) = why.or_else(|| cx.options.busy.get(&address).cloned()) else { continue };
        *is_served = false;
        for object in all.iter().filter(|object| port == 80 || !object.spec.tls.is_empty()) {
            let message = format!("nothing is served on port {port}: {why}");
            cx.notices.push((Kind::Ingress, object.meta.key(), Problem::new("PortUnavailable", message)));
        }
    }
    let own: Vec<Arc<Annotated>> = all.iter().map(|object| cx.annotated(object)).collect();
    let canaries = canaries(&all, &own);
    let hosts = Hosts::read(&all, &own);
    for (object, annotated) in all.iter().zip(&own) {
        let key = object.meta.key();
        let is_canary = annotated.share().is_some();
        if let Some(why) = cx.refused(Kind::Ingress, &key) {
            note(cx, &key, why.message);
            if !is_canary && !cx.dropped(Kind::Ingress, &key) {
                close(cx, object, annotated, &hosts);
            }
            continue;
        }
        if !is_canary {
            rules(cx, object, annotated, (&canaries, &own), &hosts);
        }
        let entry = |address: &String| match address.parse::<IpAddr>() {
            Ok(_) => json!({ "ip": address }),
            Err(_) => json!({ "hostname": address }),
        };
        let entries: Vec<Value> = cx.options.published.iter().map(entry).collect();
        let balancer = if entries.is_empty() { json!({}) } else { json!({ "ingress": entries }) };
        let wanted = json!({ "loadBalancer": balancer });
        statuses.push(Status { kind: Kind::Ingress, name: key, wanted: wanted.into() });
    }
    if plain {
        let value = json!({ "address": "0.0.0.0:80", "protocols": ["http1", "h2"] });
        cx.config.listeners.insert(PLAIN.to_owned(), value);
    }
    if secure && !certificates.is_empty() {
        let pairs: Vec<Value> =
            certificates.into_iter().map(|(cert, key)| json!({ "cert": cert, "key": key })).collect();
        let value = json!({ "address": "0.0.0.0:443", "tls": { "certificates": pairs } });
        cx.config.listeners.insert(SECURE.to_owned(), value);
    }
    // Routes name the listeners that there are; without one there is none.
    let there: Vec<String> = [PLAIN, SECURE]
        .into_iter()
        .filter(|name| cx.config.listeners.contains_key(*name))
        .map(str::to_owned)
        .collect();
    cx.routes.retain_mut(|route| {
        if !route.name.starts_with("ing_") {
            return true;
        }
        let route = Arc::make_mut(route);
        route.value.change(|value| value["match"]["listeners"] = json!(there));
        !there.is_empty()
    });
}

/// A certificate that an Ingress brings, with its names.
struct Brought<'c> {
    object: &'c Object<Ingress>,
    files: (String, String),
    /// Each with whether a rule of the Ingress has such a host.
    names: Vec<(String, bool)>,
}

impl Brought<'_> {
    /// A name of the certificate that another namespace has. All namespaces share one listener.
    ///
    /// A name without a rule is also another's if the other has the wildcard for it, since TLS prefers the exact name.
    fn anothers(&self, owners: &BTreeMap<String, &str>) -> Option<&str> {
        let namespace = self.object.meta.namespace.as_str();
        let has_another = |name: &str| owners.get(name).is_some_and(|owner| *owner != namespace);
        let wildcard = |name: &str| name.split_once('.').map(|(_, rest)| format!("*.{rest}"));
        let is_anothers = |(name, has_rule): &&(String, bool)| {
            has_another(name) || !has_rule && wildcard(name).is_some_and(|name| has_another(&name))
        };
        self.names.iter().find(is_anothers).map(|(name, _)| name.as_str())
    }
}

/// The certificates of all Ingresses, which are sorted by age; the first is the default. The oldest Ingress with a rule
/// for a name of its certificate has the name.
fn certificates<'c>(cx: &mut Cx<'c>, all: &[&'c Object<Ingress>]) -> Vec<(String, String)> {
    let mut brought: Vec<Brought<'c>> = Vec::new();
    for object in all.iter().copied() {
        if cx.refused(Kind::Ingress, &object.meta.key()).is_some() {
            continue;
        }
        for secret in object.spec.tls.iter().filter_map(|tls| tls.secret_name.as_ref()) {
            let reference = CertificateRef { name: secret.clone(), ..CertificateRef::default() };
            let Pair { files, names, .. } =
                match certificate(cx, Kind::Ingress, &object.meta.namespace, &reference) {
                    Ok(found) => found,
                    // It may be missing until cert-manager has created it; Events come later.
                    Err(problem) => {
                        cx.notices.push((Kind::Ingress, object.meta.key(), problem));
                        continue;
                    }
                };
            let hosts = object.spec.rules.iter().filter_map(|rule| text::host(rule.host.as_deref()?));
            let hosts: BTreeSet<String> = hosts.collect();
            let has_rule = |name: &String| {
                let meets = |host: &String| covers_label(name, host) || covers_label(host, name);
                hosts.contains(name) || hosts.iter().any(meets)
            };
            let names = names.iter().map(|name| (name.clone(), has_rule(name))).collect();
            brought.push(Brought { object, files, names });
        }
    }
    let mut owners: BTreeMap<String, &str> = BTreeMap::new();
    for one in &brought {
        for (name, _) in one.names.iter().filter(|(_, has_rule)| *has_rule) {
            owners.entry(name.clone()).or_insert(&one.object.meta.namespace);
        }
    }
    // The second round takes certificates that were kept out only by one that is not served itself.
    let mut served: BTreeMap<String, &str> = BTreeMap::new();
    let mut taken: BTreeSet<usize> = BTreeSet::new();
    for owners in [owners, BTreeMap::new()] {
        for (at, one) in brought.iter().enumerate() {
            if taken.contains(&at) || one.anothers(&owners).or(one.anothers(&served)).is_some() {
                continue;
            }
            taken.insert(at);
            for (name, _) in &one.names {
                served.entry(name.clone()).or_insert(&one.object.meta.namespace);
            }
        }
    }
    let mut pairs: Vec<(String, String)> = Vec::new();
    for (at, one) in brought.into_iter().enumerate() {
        if pairs.contains(&one.files) {
            continue;
        }
        if taken.contains(&at) {
            pairs.push(one.files);
        } else if let Some(name) = one.anothers(&served) {
            let message =
                format!("its certificate is not served: another namespace has the name {}", shown(name));
            note(cx, &one.object.meta.key(), message);
        }
    }
    pairs
}

/// Whether a wildcard stands for one label of a host.
fn covers_label(wildcard: &str, host: &str) -> bool {
    let rest = host.split_once('.').map(|(_, rest)| rest);
    rest.is_some() && rest == wildcard.strip_prefix("*.")
}

/// The paths of canaries. Of two for one path the older has it.
fn canaries<'c>(all: &[&'c Object<Ingress>], own: &[Arc<Annotated>]) -> Canaries<'c> {
    let mut found = Canaries::new();
    for (at, object) in all.iter().enumerate() {
        if own.get(at).is_none_or(|annotated| annotated.share().is_none()) {
            continue;
        }
        for rule in &object.spec.rules {
            for path in rule.http.iter().flat_map(|http| &http.paths) {
                let host = rule.host.as_deref().unwrap_or_default();
                let key = (object.meta.namespace.as_str(), host, path.path.as_deref().unwrap_or("/"));
                found.entry(key).or_insert((*object, at));
            }
        }
    }
    found
}

fn rules<'c>(
    cx: &mut Cx<'c>,
    object: &'c Object<Ingress>,
    annotated: &Annotated,
    (canaries, own): (&Canaries<'c>, &[Arc<Annotated>]),
    known: &Hosts<'c>,
) {
    let meta = &object.meta;
    let aliases = known.aliases(cx, meta, annotated);
    let mut count = 0;
    for (at, rule) in object.spec.rules.iter().enumerate() {
        let Some(host) = host_of(rule) else { continue };
        let sites = known.sites(meta, &host, &aliases);
        let has_tls = !host.is_empty() && has_tls(&object.spec, &host);
        // A host without paths gets the default backend.
        for path in rule.http.iter().flat_map(|http| &http.paths) {
            let value = path.path.as_deref().unwrap_or("/");
            if count == MAX_MATCHES {
                note(cx, &meta.key(), format!("the paths from the {}th on answer 503", MAX_MATCHES + 1));
            }
            let mut is_served = false;
            for (nth, site) in sites.iter().enumerate() {
                let Some((pattern, mut closed)) = shape(annotated.is_regex(), &path.path_type, value, site)
                else {
                    continue; // no request can have it
                };
                is_served = true;
                if count >= MAX_MATCHES {
                    closed = Some(String::new());
                }
                let mut is_closed = false;
                let filters = match closed {
                    Some(why) => Err(why),
                    None => annotated.filters(&pattern, value, has_tls),
                };
                let (filters, mut main) = match filters {
                    Ok(filters) => (filters, target(cx, meta, Some(&path.backend), &annotated.upstream)),
                    Err(why) => {
                        if !why.is_empty() && nth == 0 {
                            note(cx, &meta.key(), why);
                        }
                        is_closed = true;
                        (Vec::new(), ("respond", answer(503)))
                    }
                };
                let key = (meta.namespace.as_str(), rule.host.as_deref().unwrap_or_default(), value);
                let canary = canaries.get(&key).filter(|_| !is_closed).and_then(|(canary, at)| {
                    let annotated = own.get(*at)?;
                    let backend = backend_of(canary, key.1, value)?;
                    Some((annotated.share()?, target(cx, &canary.meta, Some(backend), &annotated.upstream)))
                });
                if filters.iter().any(annotations::answers) {
                    main = ("", Value::Null);
                }
                for variant in annotations::variants(canary.as_ref().map(|(share, _)| *share)) {
                    let to = match (variant.goes_to, &canary) {
                        (Goes::Canary(weight, total), Some((_, canary))) => {
                            split(&main, canary, weight, total)
                        }
                        _ => main.clone(),
                    };
                    let length = length(annotated.is_regex(), &path.path_type, value, &pattern);
                    let place = Place {
                        number: (at, count),
                        order: length * MAX_CHOICES + variant.order,
                        tier: site.tier(annotated.is_regex(), &path.path_type, value),
                        site: (nth, site),
                        path: &pattern,
                        when: variant.when.as_deref(),
                    };
                    push(cx, meta, &place, &filters, to);
                }
            }
            count += usize::from(is_served);
        }
        for (nth, site) in sites.iter().enumerate() {
            // Among patterns, a path that is none would precede those of older namespaces.
            let path = if site.is_patterned { "~/" } else { "/" };
            let first = Place { number: (at, count), order: 0, tier: 0, site: (nth, site), path, when: None };
            if let Some(root) = annotated.root() {
                let place = Place { number: (at, count + 1), order: usize::MAX, ..first };
                push(cx, meta, &place, &[root], ("", Value::Null));
            }
            let www = annotated.www((!host.is_empty()).then_some(host.as_str()));
            // As in nginx, a host that has rules is not redirected.
            if let Some((from, redirect)) = www.filter(|(from, _)| nth == 0 && !known.has_rule(from)) {
                let site = Site { hosts: vec![from], ..site.clone() };
                let place = Place { number: (at, count + 2), site: (0, &site), path: "/*", ..first };
                push(cx, meta, &place, &[redirect], ("", Value::Null));
            }
        }
    }
    if let Some(backend) = &object.spec.default_backend {
        let number = (object.spec.rules.len(), count);
        let (filters, to) = match annotated.filters("/*", "/", false) {
            Ok(filters) if filters.iter().any(annotations::answers) => (filters, ("", Value::Null)),
            Ok(filters) => (filters, target(cx, meta, Some(backend), &annotated.upstream)),
            Err(why) => {
                note(cx, &meta.key(), why);
                (Vec::new(), ("respond", answer(503)))
            }
        };
        let site = known.site(meta, "");
        let place = Place { number, order: 0, tier: 0, site: (0, &site), path: "/*", when: None };
        push(cx, meta, &place, &filters, to);
    }
}

/// Answers 503 in the place of an Ingress that is left out as a whole, so that no wider path, which may lack what
/// guards it, takes its requests.
fn close<'c>(cx: &mut Cx<'c>, object: &'c Object<Ingress>, annotated: &Annotated, known: &Hosts<'c>) {
    let meta = &object.meta;
    let aliases = known.aliases(cx, meta, annotated);
    let mut count = 0;
    for (at, rule) in object.spec.rules.iter().enumerate() {
        let Some(host) = host_of(rule) else { continue };
        let sites = known.sites(meta, &host, &aliases);
        for path in rule.http.iter().flat_map(|http| &http.paths) {
            let value = path.path.as_deref().unwrap_or("/");
            for (nth, site) in sites.iter().enumerate() {
                // The pattern may be what Weir refuses.
                let pattern = match annotated.is_regex() {
                    true => Some(closed_below(&sure_start(value))),
                    false => shape(false, &path.path_type, value, site).map(|(pattern, _)| pattern),
                };
                let Some(pattern) = pattern else { continue };
                let place = Place {
                    number: (at, count),
                    order: length(annotated.is_regex(), &path.path_type, value, &pattern) * MAX_CHOICES,
                    tier: site.tier(annotated.is_regex(), &path.path_type, value),
                    site: (nth, site),
                    path: &pattern,
                    when: None,
                };
                let cost = CLOSED_ROUTE + pattern.len() + site.hosts.iter().map(String::len).sum::<usize>();
                if !cx.room.take(&meta.namespace, cost) {
                    let message = "its namespace has more paths that are left out than can be closed: wider \
                                   paths take some of their requests";
                    return note(cx, &meta.key(), message.to_owned());
                }
                push(cx, meta, &place, &[], ("respond", answer(503)));
            }
            count += 1;
        }
    }
    if object.spec.default_backend.is_some() {
        if !cx.room.take(&meta.namespace, CLOSED_ROUTE) {
            return note(cx, &meta.key(), "its default backend is left out, and cannot be closed".to_owned());
        }
        let (number, site) = ((object.spec.rules.len(), count), known.site(meta, ""));
        let place = Place { number, order: 0, tier: 0, site: (0, &site), path: "/*", when: None };
        push(cx, meta, &place, &[], ("respond", answer(503)));
    }
}

/// The pattern of a path, and why it answers 503 if it does. `None` if no request can have it.
fn shape(is_regex: bool, kind: &str, value: &str, site: &Site) -> Option<(String, Option<String>)> {
    if is_regex {
        // A wider path, also of another Ingress, may lack what guards this one.
        return Some(match pattern(value) {
            Ok(pattern) => (if pattern == "/*" { WHOLE.to_owned() } else { pattern }, None),
            Err(why) => (closed_below(&sure_start(value)), Some(why)),
        });
    }
    if let Some(start) = text::start_of_long(value) {
        let why = format!("a path is not served: it is longer than {} bytes", text::MAX_PATH);
        return Some((closed_below(&start), Some(why)));
    }
    let pattern = match (kind, site.is_patterned) {
        ("Exact", true) => text::exact_pattern(value),
        ("Exact", false) => text::exact_path(value),
        (_, true) => text::prefix_pattern(value),
        (_, false) => text::prefix_path(value),
    };
    pattern.map(|pattern| (pattern, None))
}

/// The rank of a path among patterns: Weir's table puts longer paths first by itself, but not longer patterns.
fn length(is_regex: bool, kind: &str, value: &str, pattern: &str) -> usize {
    match (pattern.starts_with('~'), kind) {
        (true, "Exact") if !is_regex => MAX_LENGTH,
        (true, _) => value.len().min(MAX_LENGTH),
        (false, _) => 0,
    }
}

/// The backend of a path.
fn backend_of<'c>(object: &'c Object<Ingress>, host: &str, path: &str) -> Option<&'c IngressBackend> {
    let rules = object.spec.rules.iter().filter(|rule| rule.host.as_deref().unwrap_or_default() == host);
    let mut paths = rules.flat_map(|rule| rule.http.iter().flat_map(|http| &http.paths));
    paths.find(|known| known.path.as_deref().unwrap_or("/") == path).map(|path| &path.backend)
}

/// Whether an Ingress brings a certificate for a host.
fn has_tls(ingress: &Ingress, host: &str) -> bool {
    let names = ingress.tls.iter().flat_map(|tls| &tls.hosts).filter_map(|name| text::host(name));
    names.into_iter().any(|name| name == host || text::covers(&name, host))
}

/// The pattern of a path that is a regular expression of nginx, within the limits of the table.
fn pattern(path: &str) -> Result<String, String> {
    let wrong = |why: String| format!("the path `{}` is not served: {why}", shown(path));
    let pattern = ingress_annotations::pattern(path).map_err(wrong)?;
    if !pattern.starts_with('~') {
        return Ok(pattern);
    }
    let compiled = weir_gateway::route::Pattern::parse(&pattern, weir_gateway::route::Case::Sensitive);
    match compiled {
        Ok(read) if read.capture_names().iter().all(|name| name.bytes().all(|b| b.is_ascii_digit())) => {
            Ok(pattern)
        }
        Ok(_) => Err(wrong("it has named groups".to_owned())),
        Err(why) => Err(wrong(why.message.to_string())),
    }
}

/// The pattern of every path that begins with a text, without regard to case.
fn closed_below(start: &str) -> String {
    let end = start.char_indices().map(|(at, _)| at).find(|at| *at >= text::MAX_PATH).unwrap_or(start.len());
    format!("~(?i){}.*", text::quoted(start.get(..end).unwrap_or("/")))
}

/// Where requests go of which a canary gets a share.
fn split(main: &Target, canary: &Target, weight: u32, total: u32) -> Target {
    match (main, canary) {
        (("", _), _) => main.clone(),
        _ if weight >= total => canary.clone(),
        (("upstream", Value::String(main)), ("upstream", Value::String(canary))) if main != canary => {
            ("upstream", json!({ main: total - weight, canary: weight }))
        }
        _ => main.clone(),
    }
}

/// The key of a route's target and its value; an empty key if a filter answers.
type Target = (&'static str, Value);

/// More than the choices of a canary.
const MAX_CHOICES: usize = 16;

/// Longer than every pattern that Weir takes.
const MAX_LENGTH: usize = 1 << 20;

/// The pattern of all paths, for hosts whose paths are patterns.
const WHOLE: &str = "~/.*";

/// What a closed path costs beside its hosts and pattern, at most: names of objects have up to 253 bytes.
const CLOSED_ROUTE: usize = 700;

/// What a route matches, and its place among others.
#[derive(Clone, Copy)]
struct Place<'a> {
    /// The numbers of its rule and path.
    number: (usize, usize),
    /// Among routes that match equally well, the greater comes first: longer patterns, and choices of canaries.
    order: usize,
    /// Comes before everything else: see [`Site::tier`].
    tier: u8,
    /// The number of the site and the site.
    site: (usize, &'a Site),
    path: &'a str,
    when: Option<&'a str>,
}

fn push(cx: &mut Cx<'_>, meta: &Meta, place: &Place<'_>, filters: &[Value], to: Target) {
    let mut conditions = Map::new();
    let (nth, site) = place.site;
    if !site.hosts.is_empty() {
        conditions.insert("hosts".to_owned(), json!(site.hosts));
        // A wildcard of an Ingress stands for one label.
        let suffixes = site.hosts.iter().filter_map(|host| host.strip_prefix('*'));
        let deeper: Vec<String> =
            suffixes.map(|suffix| format!("~.*\\..*{}", text::quoted(suffix))).collect();
        if !deeper.is_empty() {
            conditions.insert("not".to_owned(), json!({ "hosts": deeper }));
        }
    }
    conditions.insert("path".to_owned(), json!(place.path));
    if let Some(when) = place.when {
        conditions.insert("when".to_owned(), json!(when));
    }
    let (rule, matched) = place.number;
    let rank = Rank {
        tier: place.tier,
        claim: (site.claim.is_alias, site.claim.since.clone(), meta.namespace.clone()),
        headers: Reverse(place.order),
        created: meta.creation_timestamp.clone(),
        name: meta.key(),
        rule,
        matched,
        ..Rank::default()
    };
    let numbers = (rule.to_string(), matched.to_string());
    let choice = (place.order % MAX_CHOICES).to_string();
    let mut parts = vec!["ing", &meta.namespace, &meta.name, &numbers.0, &numbers.1];
    if place.when.is_some() {
        parts.push(&choice);
    }
    let alias = format!("a{nth}");
    if nth > 0 {
        parts.push(&alias);
    }
    let mut value = json!({ "match": conditions });
    if !filters.is_empty() {
        value["filters"] = json!(filters);
    }
    if !to.0.is_empty() {
        value[to.0] = to.1;
    }
    cx.push(rank, names::join(&parts), value, (Kind::Ingress, &meta.key()));
}

fn target(
    cx: &mut Cx<'_>,
    meta: &Meta,
    backend: Option<&IngressBackend>,
    settings: &Map<String, Value>,
) -> Target {
    let found = backend
        .and_then(|backend| backend.service.as_ref())
        .ok_or_else(|| Problem::new("BackendNotFound", "only Services are supported as backends"));
    let made = found.and_then(|service| {
        if let Some(closed) = cx.closed(Kind::Ingress, &meta.key()) {
            return Err(closed);
        }
        let name = Name::new(&meta.namespace, &service.name);
        let is = |port: &crate::objects::ServicePort| match service.port.number {
            0 => port.name == service.port.name,
            number => port.port == number,
        };
        let port = port_of(cx, &name, is)
            .map_err(|problem| Problem { message: shown(&problem.message), ..problem })?;
        let manner = Manner { settings: settings.clone(), ..Manner::default() };
        upstream(cx, &name, port, &manner, &BTreeSet::new())
    });
    match made {
        Ok(Backend::Upstream(name)) => ("upstream", json!(name)),
        Ok(Backend::Empty) => ("respond", answer(503)),
        Err(problem) => {
            if cx.closed(Kind::Ingress, &meta.key()).is_none() {
                let message = format!("a path answers 503: {}", problem.message);
                cx.notices.push((Kind::Ingress, meta.key(), Problem { message, ..problem }));
            }
            ("respond", answer(503))
        }
    }
}
