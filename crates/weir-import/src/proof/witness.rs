//! Witnesses: requests that tell the lines of both configs apart. The same configs give the same list.

mod ask;
mod limits;

pub use ask::Ask;

use super::callers::Caller;
use super::forms::{
    all_on, conditional, escaped, forms, host_of, host_samples, our_edges, our_samples, path_edges,
    path_samples, together, twice, varied, with,
};
use super::ours::OurRoute;
use super::patterns::{Front, Line, PathKind, Patterns, Site, Subject};
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, HashSet};

/// Most witnesses of a proof. 400 small sites make about 52,000.
pub const MAX_WITNESSES: usize = 60_000;
/// Most witnesses that vary a value or a regular expression a little.
const MAX_VARIATIONS: usize = 20_000;
/// Most pairs of patterns of one site.
const MAX_PAIRS: usize = 60;
/// Most users that each path of the old config is asked with, and most callers that a route of ours is.
const MAX_USERS: usize = 3;
const MAX_OF_ROUTE: usize = 20;
/// Most listeners at which callers ask: one may only redirect to another.
const MAX_FRONTS: usize = 3;
/// Most bytes of bodies at limits that are repeated for each path of a line.
const MAX_BODIES: u64 = 256 << 20;
/// Most requests at a limit, in one witness and in all.
pub const MAX_AT_LIMIT: u32 = 1000;
const MAX_AT_LIMITS: u32 = 20_000;
/// Longest waits for a copy, in milliseconds: at a location that sends copies, and at others of its site.
const COPY_MS: u64 = 500;
const COPY_ELSEWHERE_MS: u64 = 5;
/// Most calls until each endpoint of a group has answered.
const MAX_CALLS: u32 = 256;
/// Largest body that is sent.
pub const MAX_BODY: u64 = 16 << 20;
/// A method that no standard and no config names.
const UNKNOWN_METHOD: &str = "WEIRD";
/// A host that no config names.
pub(super) const UNKNOWN_HOST: &str = "weir-witness.invalid";

/// The same request of another caller.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Turn {
    /// The client's address; none for that of the calls.
    pub client: Option<String>,
    /// The target; none for that of the calls.
    pub target: Option<String>,
    /// Fields instead of those of the calls.
    pub fields: Vec<(String, String)>,
}

/// What the upstreams do while a witness is asked.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Scenario {
    /// They answer 200.
    Plain,
    /// They answer this status; 302 with a Location.
    Answer(u16),
    /// They set cookies.
    SetCookie,
    /// Those at these addresses take no connection. Asked last: programs remember it.
    Dead(Vec<String>),
}

/// A request with the reason to ask it.
#[derive(Clone, Debug)]
pub struct Witness {
    /// The request.
    pub ask: Ask,
    /// What is special about it.
    pub about: String,
    /// The line that it was made for.
    pub line: Line,
    /// The site and the pattern that it was made for.
    pub of: Option<(usize, usize)>,
}

/// The witnesses, and how many more there would have been.
#[derive(Clone, Debug, Default)]
pub struct Witnesses {
    /// Those to ask, in order.
    pub list: Vec<Witness>,
    /// How many were not kept.
    pub dropped: usize,
    /// How many more variations of values and regular expressions there would have been.
    pub variations_left: usize,
}

struct Maker<'a> {
    patterns: &'a Patterns,
    /// Sites by the hosts that they surely take.
    by_host: HashMap<String, usize>,
    seen: HashSet<Ask>,
    made: Witnesses,
    /// Variations, which are asked only if there is room.
    variations: Vec<Witness>,
    /// Sites that copy requests.
    copying: HashSet<usize>,
    /// Bytes of bodies at limits that were asked before.
    bodies: u64,
}

/// The witnesses of the old config and of routes of ours. With `limits` those of limits over time instead.
#[must_use]
pub fn witnesses(patterns: &Patterns, ours: &[OurRoute], limits: bool) -> Witnesses {
    let mut by_host = HashMap::new();
    for (at, site) in patterns.sites.iter().enumerate() {
        for host in site.hosts.iter().flat_map(|(name, _)| host_samples(name)) {
            by_host.entry(host).or_insert(at);
        }
    }
    let mut maker = Maker {
        patterns,
        by_host,
        seen: HashSet::new(),
        made: Witnesses::default(),
        variations: Vec::new(),
        copying: HashSet::new(),
        bodies: 0,
    };
    if limits {
        maker.bursts(ours);
        return maker.made;
    }
    for (at, site) in patterns.sites.iter().enumerate() {
        maker.site(at, site);
    }
    maker.unknown_hosts();
    for route in ours {
        maker.route(route);
    }
    for (at, site) in patterns.sites.iter().enumerate() {
        maker.spread(at, site);
    }
    maker.dead();
    maker.vary();
    let copying = maker.copying;
    for witness in &mut maker.made.list {
        let path = |(site, path): (usize, usize)| patterns.sites.get(site)?.paths.get(path);
        witness.ask.copies_ms = match witness.of {
            Some(of) if path(of).is_some_and(|path| path.mirrors) => COPY_MS,
            Some((site, _)) if copying.contains(&site) => COPY_ELSEWHERE_MS,
            _ => 0,
        };
    }
    maker.made.list.sort_by_key(|witness| matches!(witness.ask.scenario, Scenario::Dead(_)));
    maker.made
}

impl Maker<'_> {
    fn add(&mut self, ask: Ask, about: &str, line: &Line, of: Option<(usize, usize)>) {
        if !self.seen.insert(ask.clone()) {
            return;
        }
        if self.made.list.len() >= MAX_WITNESSES {
            self.made.dropped += 1;
            return;
        }
        self.made.list.push(Witness { ask, about: about.to_owned(), line: line.clone(), of });
    }

    /// Keeps a variation, to be asked if there is room.
    fn later(&mut self, ask: Ask, about: &str, line: &Line, of: Option<(usize, usize)>) {
        self.variations.push(Witness { ask, about: about.to_owned(), line: line.clone(), of });
    }

    /// Adds the variations. If there are too many, takes them from all paths and routes in turn.
    fn vary(&mut self) {
        let mut rounds: HashMap<(Option<(usize, usize)>, Line), usize> = HashMap::new();
        let mut all = std::mem::take(&mut self.variations);
        all.retain(|witness| !self.seen.contains(&witness.ask));
        let mut numbered: Vec<(usize, Witness)> = Vec::with_capacity(all.len());
        for witness in all {
            let round = rounds.entry((witness.of, witness.line.clone())).or_default();
            *round += 1;
            numbered.push((*round, witness));
        }
        numbered.sort_by_key(|(round, _)| *round);
        let room = MAX_VARIATIONS.min(MAX_WITNESSES.saturating_sub(self.made.list.len()));
        let most = self.made.list.len() + room;
        for (_, Witness { ask, about, line, of }) in numbered {
            if self.made.list.len() < most {
                self.add(ask, &about, &line, of);
            } else if !self.seen.contains(&ask) {
                self.made.variations_left += 1;
            }
        }
    }

    fn site(&mut self, at: usize, site: &Site) {
        let Some(front) = site.fronts.first() else { return };
        let host = host_of(site);
        let host = host.as_deref();
        let (mut limits, mut conditions) = (HashSet::new(), HashSet::new());
        for (path_at, path) in site.paths.iter().enumerate() {
            let of = Some((at, path_at));
            if path.mirrors {
                self.copying.insert(at);
            }
            for target in path_edges(path) {
                self.later(Ask::new(front, host, &target), "at an edge of the pattern", &path.line, of);
            }
            let texts = path_samples(path);
            let Some(base) = texts.first().cloned() else { continue };
            for (nth, text) in texts.iter().enumerate() {
                for (target, about) in forms(text, nth == 0) {
                    self.add(Ask::new(front, host, &target), about, &path.line, of);
                }
            }
            for other in site.fronts.iter().skip(1) {
                self.add(Ask::new(other, host, &base), "another listener", &path.line, of);
            }
            let ask = || Ask::new(front, host, &base);
            for method in ["HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", UNKNOWN_METHOD] {
                let body = if matches!(method, "POST" | "PUT" | "PATCH") { 5 } else { 0 };
                self.add(Ask { method: method.to_owned(), body, ..ask() }, "another method", &path.line, of);
            }
            for condition in &path.conditions {
                for ask in conditional(&ask(), condition) {
                    if let Subject::Field(name) = &condition.of
                        && !self.patterns.reads_one_field
                    {
                        for ask in twice(&ask, name) {
                            self.add(ask, "a condition, its field sent twice", &condition.line, of);
                        }
                    }
                    self.add(ask, "a condition", &condition.line, of);
                }
                // Lines that hold for many paths are varied at the first.
                if conditions.insert((&condition.line.place, &condition.of)) {
                    for ask in varied(&ask(), condition) {
                        self.later(ask, "at an edge of a condition", &condition.line, of);
                    }
                }
            }
            for (nth, user) in self.patterns.users.iter().take(MAX_USERS).enumerate() {
                let about = format!("as the user {user}");
                let Some(ask) = as_caller(&ask(), &Caller::user(user)) else { continue };
                for front in site.fronts.iter().take(MAX_FRONTS) {
                    let ask = Ask { front: front.clone(), ..ask.clone() };
                    match nth {
                        0 => self.add(ask, &about, &path.line, of),
                        _ => self.later(ask, &about, &path.line, of),
                    }
                }
            }
            if !path.endpoints.is_empty() {
                for status in [302, 404, 502] {
                    let scenario = Scenario::Answer(status);
                    self.add(Ask { scenario, ..ask() }, "the upstream's answer", &path.line, of);
                }
                let scenario = Scenario::SetCookie;
                self.add(Ask { scenario, ..ask() }, "the upstream's cookies", &path.line, of);
            }
            if let Some((bytes, line)) = &path.body_limit {
                // If nothing accepts a body, its length only decides which refusal is sent.
                let matters = !path.endpoints.is_empty() && *bytes <= MAX_BODY;
                let is_first = matters && limits.insert((*bytes, line.place.clone()));
                self.bodies += if is_first || !matters { 0 } else { bytes * 2 };
                if is_first || (matters && self.bodies < MAX_BODIES) {
                    for (body, about) in
                        [(*bytes, "a body at the limit"), (bytes + 1, "a body over the limit")]
                    {
                        self.add(Ask { method: "POST".to_owned(), body, ..ask() }, about, line, of);
                    }
                }
            }
        }
        self.pairs(at, site, front, host);
        self.hosts(at, site, front);
    }

    /// Overlapping patterns: what one matches, below the other.
    fn pairs(&mut self, at: usize, site: &Site, front: &Front, host: Option<&str>) {
        let mut pairs = 0;
        for (inner_at, inner) in site.paths.iter().enumerate() {
            for outer in
                site.paths.iter().filter(|outer| outer.kind == PathKind::Prefix && outer.text.len() > 1)
            {
                if pairs >= MAX_PAIRS || std::ptr::eq(inner, outer) {
                    continue;
                }
                for text in path_samples(inner).iter().take(2) {
                    let target = escaped(&format!("{}{text}", outer.text.trim_end_matches('/')));
                    self.add(
                        Ask::new(front, host, &target),
                        "two patterns",
                        &inner.line,
                        Some((at, inner_at)),
                    );
                    pairs += 1;
                }
            }
        }
    }

    /// The names of a site in all their forms, at the first path.
    fn hosts(&mut self, at: usize, site: &Site, front: &Front) {
        let path = site.paths.iter().position(|path| path.kind == PathKind::Prefix).unwrap_or(0);
        let Some(target) = site.paths.get(path).and_then(|path| path_samples(path).into_iter().next()) else {
            return;
        };
        let of = Some((at, path));
        for (name, line) in &site.hosts {
            for host in host_samples(name) {
                self.add(Ask::new(front, Some(&host), &target), "a host", line, of);
            }
        }
        let Some(host) = host_of(site) else { return };
        let line = site.hosts.first().map_or(&site.line, |(_, line)| line);
        let others = [
            (host.to_ascii_uppercase(), "a host in upper case"),
            (format!("{host}:{}", front.port), "a host with its port"),
            (format!("{host}:4711"), "a host with another port"),
            (format!("sub.{host}"), "a host below another"),
            (
                host.split_once('.').map_or_else(|| UNKNOWN_HOST.to_owned(), |(_, rest)| rest.to_owned()),
                "a host above another",
            ),
        ];
        for (host, about) in others {
            self.add(Ask::new(front, Some(&host), &target), about, line, of);
        }
    }

    /// Hosts that no site names, once for each address.
    fn unknown_hosts(&mut self) {
        let mut fronts = HashSet::new();
        for (at, site) in self.patterns.sites.iter().enumerate() {
            for front in &site.fronts {
                if !fronts.insert(front) {
                    continue;
                }
                let of = Some((at, 0));
                self.add(Ask::new(front, Some(UNKNOWN_HOST), "/"), "an unknown host", &site.line, of);
                self.add(Ask::new(front, Some(&front.ip), "/"), "an address for a host", &site.line, of);
                self.add(Ask::new(front, None, "/"), "no host, in HTTP/1.0", &site.line, of);
            }
        }
    }

    /// The site that a route of ours belongs to, with a host that the route takes.
    fn site_of(&self, route: &OurRoute) -> Option<(usize, Option<String>)> {
        let hosts: Vec<String> =
            route.hosts.iter().filter_map(|host| host_samples(host).into_iter().next()).collect();
        let sites = &self.patterns.sites;
        let found = hosts.iter().find_map(|host| self.by_host.get(host).copied());
        let found = found.or_else(|| sites.iter().position(|site| site.hosts.is_empty()));
        let at = found.or_else(|| (!sites.is_empty()).then_some(0))?;
        let host = hosts.into_iter().next().or_else(|| host_of(sites.get(at)?));
        Some((at, host))
    }

    /// Where clients of a site reach a route of ours: at its listeners, if the site has them.
    fn fronts_of(&self, at: usize, route: &OurRoute) -> Vec<Front> {
        let fronts = self.patterns.sites.get(at).map_or(&[][..], |site| &site.fronts);
        let own = |front: &&Front| route.listeners.contains(&(front.port, front.tls));
        let found: Vec<Front> = fronts.iter().filter(own).cloned().collect();
        if found.is_empty() { fronts.to_vec() } else { found }
    }

    /// The pattern of a site that a path probably belongs to, and its line.
    fn pattern_of(&self, at: usize, target: &str) -> Option<(Option<(usize, usize)>, Line)> {
        let site = self.patterns.sites.get(at)?;
        let prefixes = site.paths.iter().enumerate().filter(|(_, path)| path.kind == PathKind::Prefix);
        let longest = prefixes
            .filter(|(_, path)| target.starts_with(&*path.text))
            .max_by_key(|(_, path)| path.text.len());
        Some(match longest {
            Some((n, path)) => (Some((at, n)), path.line.clone()),
            None => (None, site.line.clone()),
        })
    }

    /// A route of ours: what it takes, the old program must take to the same place.
    fn route(&mut self, route: &OurRoute) {
        let Some((at, host)) = self.site_of(route) else { return };
        let fronts = self.fronts_of(at, route);
        let Some(front) = fronts.first().cloned() else { return };
        if route.mirrors {
            self.copying.insert(at);
        }
        let any = ["/".to_owned()];
        let paths: &[String] = if route.paths.is_empty() { &any } else { &route.paths };
        for path in paths {
            for (n, text) in our_samples(path).into_iter().enumerate() {
                let Some((of, line)) = self.pattern_of(at, &text) else { return };
                let upper = (text.to_ascii_uppercase(), "in upper case");
                for (target, about) in forms(&text, false).into_iter().chain([upper]) {
                    let mut ask = Ask::new(&front, host.as_deref(), &target);
                    self.add(ask.clone(), about, &line, of);
                    if about == "as written" && n == 0 {
                        let with_query = format!("{target}?a=1&b=%2F");
                        self.later(Ask { target: with_query, ..ask.clone() }, "with a query", &line, of);
                    }
                    if let Some(method) = route.methods.first() {
                        ask.method.clone_from(method);
                        self.add(ask, "a method of the route", &line, of);
                    }
                }
                if n > 0 {
                    continue;
                }
                for other in fronts.iter().skip(1) {
                    let ask = Ask::new(other, host.as_deref(), &text);
                    self.later(ask, "another listener", &line, of);
                }
                let base = Ask::new(&front, host.as_deref(), &text);
                for method in route.methods.iter().map(String::as_str).chain(["PATCH", "PUT", UNKNOWN_METHOD])
                {
                    let ask = Ask { method: method.to_owned(), ..base.clone() };
                    self.later(ask, "another method", &line, of);
                }
                for front in fronts.iter().take(MAX_FRONTS) {
                    self.callers(route, &Ask { front: front.clone(), ..base.clone() }, (&line, of));
                }
                self.conditions_of(route, &base, (&line, of));
            }
            for target in our_edges(path) {
                let Some((of, line)) = self.pattern_of(at, &target) else { return };
                let ask = Ask::new(&front, host.as_deref(), &target);
                for on in all_on(&ask, &route.own) {
                    self.later(on, "at an edge of the pattern, the conditions on", &line, of);
                }
                self.later(ask, "at an edge of the pattern", &line, of);
            }
        }
    }

    /// Those who may call a route of ours, and somebody else.
    fn callers(&mut self, route: &OurRoute, base: &Ask, (line, of): (&Line, Option<(usize, usize)>)) {
        let mut others: Vec<&Caller> = Vec::new();
        for (name, caller) in route.callers.iter().take(MAX_OF_ROUTE) {
            let about = format!("as the consumer {name}");
            let Some(ask) = as_caller(base, caller) else { continue };
            for on in all_on(&ask, &route.own) {
                self.later(on, &format!("{about}, the conditions on"), line, of);
            }
            self.add(ask, &about, line, of);
            if !others.iter().any(|other| other.of == caller.of) {
                others.push(caller);
            }
        }
        for caller in others {
            let unknown = Caller { value: caller.unknown.clone(), ..caller.clone() };
            if let Some(ask) = as_caller(base, &unknown) {
                self.later(ask, "with an unknown credential", line, of);
            }
        }
    }

    /// The conditions of a route of ours besides host and path.
    fn conditions_of(&mut self, route: &OurRoute, base: &Ask, (line, of): (&Line, Option<(usize, usize)>)) {
        for (subject, values) in &route.conditions {
            for value in values {
                let asks = with(base, subject, value).into_iter();
                // A path may matter by its end alone.
                let within = (*subject == Subject::Path && base.target.len() > 1)
                    .then(|| with(base, subject, &format!("{}{value}", base.target)));
                for ask in asks.chain(within.flatten()) {
                    self.later(ask, "at an edge of a condition", line, of);
                }
                // Filters see only requests that the route takes.
                let others: Vec<_> = route.own.iter().filter(|(own, _)| own != subject).cloned().collect();
                for on in all_on(base, &others) {
                    if let Some(ask) = with(&on, subject, value) {
                        self.later(ask, "at an edge of a condition, those of the match on", line, of);
                    }
                }
            }
        }
        for expression in &route.together {
            for ask in together(base, expression) {
                self.later(ask, "at an edge of a condition, the others on", line, of);
            }
        }
        let site = of.and_then(|(site, _)| self.patterns.sites.get(site));
        let known: Vec<u64> = site
            .iter()
            .flat_map(|site| &site.paths)
            .filter_map(|path| path.body_limit.as_ref().map(|(bytes, _)| *bytes))
            .collect();
        for bytes in route.body_limits.iter().filter(|bytes| **bytes <= MAX_BODY && !known.contains(bytes)) {
            for body in [*bytes, bytes + 1] {
                let ask = Ask { method: "POST".to_owned(), body, ..base.clone() };
                self.later(ask, "a body at a limit of Weir's config", line, of);
            }
        }
    }

    /// Several endpoints: all must be asked.
    fn spread(&mut self, at: usize, site: &Site) {
        let Some(front) = site.fronts.first() else { return };
        let host = host_of(site);
        for (path_at, path) in site.paths.iter().enumerate().filter(|(_, path)| path.endpoints.len() > 1) {
            let Some(target) = path_samples(path).into_iter().next() else { continue };
            let by_hash = path.endpoints.iter().any(|address| self.patterns.hashed.contains(address));
            let until = path.endpoints.clone();
            let ask = Ask { calls: MAX_CALLS, until, by_hash, ..Ask::new(front, host.as_deref(), &target) };
            self.add(ask, "all endpoints", &path.line, Some((at, path_at)));
        }
    }

    /// Each group of endpoints once: one of them dead, then all.
    fn dead(&mut self) {
        let patterns = self.patterns;
        let mut groups = HashSet::new();
        for (at, site) in patterns.sites.iter().enumerate() {
            let (Some(front), host) = (site.fronts.first(), host_of(site)) else { continue };
            for (path_at, path) in site.paths.iter().enumerate() {
                if path.endpoints.is_empty() || !groups.insert(&path.endpoints) {
                    continue;
                }
                let Some(target) = path_samples(path).into_iter().next() else { continue };
                let of = Some((at, path_at));
                let ask = |dead: &[String], calls| Ask {
                    scenario: Scenario::Dead(dead.to_vec()),
                    calls,
                    ..Ask::new(front, host.as_deref(), &target)
                };
                if let ([first, ..], 2..) = (&*path.endpoints, path.endpoints.len()) {
                    self.add(ask(std::slice::from_ref(first), 4), "one endpoint dead", &path.line, of);
                }
                self.add(ask(&path.endpoints, 1), "all endpoints dead", &path.line, of);
            }
        }
    }
}

/// A request with a credential. None if no request can carry it.
fn as_caller(base: &Ask, caller: &Caller) -> Option<Ask> {
    with(base, &caller.of, &caller.value)
}
