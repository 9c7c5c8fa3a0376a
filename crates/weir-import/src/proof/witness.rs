//! Witnesses: requests that tell the lines of both configs apart. The same configs give the same list.

use super::patterns::{Condition, Front, Line, PathKind, PathPattern, Patterns, Site, Subject};
use super::samples;
use serde::{Deserialize, Serialize};
use std::collections::HashSet;

/// Most witnesses of a proof. 400 small sites make about 20,000.
pub const MAX_WITNESSES: usize = 60_000;
/// Most pairs of patterns of one site.
const MAX_PAIRS: usize = 60;
/// Most values of a condition.
const MAX_VALUES: usize = 8;
/// Largest body that is sent.
pub const MAX_BODY: u64 = 16 << 20;
/// A host that no config names.
const UNKNOWN_HOST: &str = "weir-witness.invalid";

/// A request to ask, as plain data.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Ask {
    /// Where.
    pub front: Front,
    /// The field `Host`; none sends none, in HTTP/1.0.
    pub host: Option<String>,
    /// The method.
    pub method: String,
    /// The target, as sent.
    pub target: String,
    /// Further fields.
    pub fields: Vec<(String, String)>,
    /// How many bytes of body.
    pub body: u64,
    /// What the upstreams do.
    pub scenario: Scenario,
    /// How often it is asked in a row.
    pub calls: u32,
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

/// A route of our config, as far as witnesses need it.
#[derive(Clone, Debug, Default)]
pub struct OurRoute {
    /// Its name.
    pub name: String,
    /// Its hosts.
    pub hosts: Vec<String>,
    /// Its paths.
    pub paths: Vec<String>,
    /// Its methods.
    pub methods: Vec<String>,
    /// Fields that it matches.
    pub headers: Vec<(String, String)>,
}

/// The witnesses, and how many more there would have been.
#[derive(Clone, Debug, Default)]
pub struct Witnesses {
    /// Those to ask, in order.
    pub list: Vec<Witness>,
    /// How many were not kept.
    pub dropped: usize,
}

struct Maker<'a> {
    patterns: &'a Patterns,
    seen: HashSet<Ask>,
    made: Witnesses,
}

/// The witnesses of both configs. With `limits` those of limits of time instead, each on its own.
#[must_use]
pub fn witnesses(patterns: &Patterns, ours: &[OurRoute], limits: bool) -> Witnesses {
    let mut maker = Maker { patterns, seen: HashSet::new(), made: Witnesses::default() };
    if limits {
        maker.bursts();
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
    maker.made.list.sort_by_key(|witness| matches!(witness.ask.scenario, Scenario::Dead(_)));
    maker.made
}

impl Ask {
    pub(super) fn new(front: &Front, host: Option<&str>, target: &str) -> Self {
        Self {
            front: front.clone(),
            host: host.map(str::to_owned),
            method: "GET".to_owned(),
            target: target.to_owned(),
            fields: Vec::new(),
            body: 0,
            scenario: Scenario::Plain,
            calls: 1,
        }
    }

    /// How much there is to understand: the smallest witness of a difference is shown.
    #[must_use]
    pub fn weight(&self) -> (bool, usize, u64, usize) {
        (self.scenario != Scenario::Plain, self.fields.len(), self.body, self.target.len())
    }

    /// As people write it: `POST http://a.example/x (x-y: z; 10 bytes)`.
    #[must_use]
    pub fn shown(&self) -> String {
        let scheme = if self.front.tls { "https" } else { "http" };
        let host = self.host.as_deref().unwrap_or("(no host)");
        let usual = if self.front.tls { 443 } else { 80 };
        let port = if self.front.port == usual || host.contains(':') {
            String::new()
        } else {
            format!(":{}", self.front.port)
        };
        let mut more: Vec<String> =
            self.fields.iter().map(|(name, value)| format!("{name}: {value}")).collect();
        if self.body > 0 {
            more.push(format!("{} bytes", self.body));
        }
        match &self.scenario {
            Scenario::Plain => {}
            Scenario::Answer(status) => more.push(format!("upstream answers {status}")),
            Scenario::SetCookie => more.push("upstream sets cookies".to_owned()),
            Scenario::Dead(addresses) => more.push(format!("{} refuses connections", addresses.join(", "))),
        }
        if self.calls > 1 {
            more.push(format!("{} times", self.calls));
        }
        let more = if more.is_empty() { String::new() } else { format!(" ({})", more.join("; ")) };
        format!("{} {scheme}://{host}{port}{}{more}", self.method, self.target)
    }
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

    fn site(&mut self, at: usize, site: &Site) {
        let Some(front) = site.fronts.first() else { return };
        let host = host_of(site);
        let host = host.as_deref();
        let mut limits = HashSet::new();
        for (path_at, path) in site.paths.iter().enumerate() {
            let of = Some((at, path_at));
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
            for method in ["HEAD", "POST", "PUT", "DELETE", "OPTIONS"] {
                let body = if matches!(method, "POST" | "PUT") { 5 } else { 0 };
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
                // Where nothing takes a body, its length decides between refusals at most.
                let matters = !path.endpoints.is_empty() && *bytes <= MAX_BODY;
                if matters && limits.insert((*bytes, line.place.clone())) {
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

    /// A route of ours: what it takes, the old program must take to the same place.
    fn route(&mut self, route: &OurRoute) {
        let hosts: Vec<String> =
            route.hosts.iter().filter_map(|host| host_samples(host).into_iter().next()).collect();
        let by_host = |site: &&Site| {
            site.hosts.iter().any(|(name, _)| hosts.iter().any(|host| host_samples(name).contains(host)))
        };
        let sites = &self.patterns.sites;
        let found = sites.iter().find(by_host).or_else(|| sites.iter().find(|site| site.hosts.is_empty()));
        let Some(site) = found.or_else(|| sites.first()) else { return };
        let at = sites.iter().position(|known| std::ptr::eq(known, site)).unwrap_or(0);
        let Some(front) = site.fronts.first().cloned() else { return };
        let host = hosts.first().cloned().or_else(|| host_of(site));
        let (line, paths): (Line, Vec<(String, usize)>) = (
            site.line.clone(),
            site.paths
                .iter()
                .enumerate()
                .filter(|(_, path)| path.kind == PathKind::Prefix)
                .map(|(n, path)| (path.text.clone(), n))
                .collect(),
        );
        for path in &route.paths {
            for text in our_samples(path) {
                let longest = paths
                    .iter()
                    .filter(|(prefix, _)| text.starts_with(prefix.as_str()))
                    .max_by_key(|(prefix, _)| prefix.len());
                let of = longest.map(|(_, n)| (at, *n));
                let line = of
                    .and_then(|(at, n)| self.patterns.sites.get(at)?.paths.get(n))
                    .map_or_else(|| line.clone(), |path| path.line.clone());
                for (target, about) in forms(&text, false) {
                    let mut ask = Ask::new(&front, host.as_deref(), &target);
                    self.add(ask.clone(), about, &line, of);
                    if let Some(method) = route.methods.first() {
                        ask.method.clone_from(method);
                        self.add(ask.clone(), "a method of the route", &line, of);
                    }
                    let plain =
                        |(_, value): &&(String, String)| !value.starts_with(['~', '!']) && value != "*";
                    for (name, value) in route.headers.iter().filter(plain) {
                        ask.fields = vec![(name.clone(), value.clone())];
                        self.add(ask.clone(), "a field of the route", &line, of);
                    }
                }
            }
        }
    }

    /// Several endpoints: all must be asked.
    fn spread(&mut self, at: usize, site: &Site) {
        let Some(front) = site.fronts.first() else { return };
        let host = host_of(site);
        for (path_at, path) in site.paths.iter().enumerate().filter(|(_, path)| path.endpoints.len() > 1) {
            let Some(target) = path_samples(path).into_iter().next() else { continue };
            let calls = u32::try_from(path.endpoints.len() * 4).unwrap_or(u32::MAX).min(64);
            let ask = Ask { calls, ..Ask::new(front, host.as_deref(), &target) };
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

    /// Limits: what passes at once, and one more.
    fn bursts(&mut self) {
        let patterns = self.patterns;
        let mut lines = HashSet::new();
        for (at, site) in patterns.sites.iter().enumerate() {
            let (Some(front), host) = (site.fronts.first(), host_of(site)) else { continue };
            for (path_at, path) in site.paths.iter().enumerate() {
                let Some((burst, line)) = &path.burst else { continue };
                let Some(target) = path_samples(path).into_iter().next() else { continue };
                if *burst <= 1000 && lines.insert(&line.place) {
                    let ask = Ask { calls: burst + 3, ..Ask::new(front, host.as_deref(), &target) };
                    self.add(ask, "requests over the limit", line, Some((at, path_at)));
                }
            }
        }
    }
}

/// A host of the site; one that no config names if it has none.
fn host_of(site: &Site) -> Option<String> {
    let named = site.hosts.iter().find_map(|(name, _)| host_samples(name).into_iter().next());
    named.or_else(|| Some(UNKNOWN_HOST.to_owned()))
}

/// Hosts that a name takes.
fn host_samples(name: &str) -> Vec<String> {
    let lower = name.to_ascii_lowercase();
    if let Some(rest) = lower.strip_prefix("*.") {
        return vec![format!("w.{rest}"), format!("v.w.{rest}")];
    }
    if let Some(rest) = lower.strip_prefix('.') {
        return vec![rest.to_owned(), format!("w.{rest}")];
    }
    if let Some(rest) = lower.strip_suffix(".*") {
        return vec![format!("{rest}.test"), format!("{rest}.w.test")];
    }
    if let Some(pattern) = name.strip_prefix('~') {
        let fits = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
        let found = samples(pattern.trim_start_matches('*'));
        return found
            .into_iter()
            .map(|host| host.trim_matches('.').to_owned())
            .filter(|host| !host.is_empty() && host.chars().all(fits))
            .collect();
    }
    if lower.contains('$') || lower.is_empty() { Vec::new() } else { vec![lower] }
}

/// Paths that a pattern takes, decoded.
fn path_samples(path: &PathPattern) -> Vec<String> {
    let found = match path.kind {
        PathKind::Exact | PathKind::Prefix => vec![path.text.clone()],
        PathKind::Regex { .. } => samples(&path.text),
    };
    let rooted = |text: String| if text.starts_with('/') { text } else { format!("/w{text}") };
    found.into_iter().map(rooted).map(|text| escaped(&text)).collect()
}

/// Paths that a pattern of ours takes.
fn our_samples(path: &str) -> Vec<String> {
    let found = match path.strip_prefix('~') {
        Some(pattern) => samples(pattern),
        None => {
            let mut text = String::new();
            let mut depth = 0;
            for c in path.chars() {
                match c {
                    '{' => depth += 1,
                    '}' => {
                        depth -= 1;
                        text.push('w');
                    }
                    '*' if depth == 0 => {}
                    c if depth == 0 => text.push(c),
                    _ => {}
                }
            }
            vec![text]
        }
    };
    found.into_iter().filter(|text| text.starts_with('/')).map(|text| escaped(&text)).collect()
}

/// A path in the forms that programs read differently.
fn forms(path: &str, all: bool) -> Vec<(String, &'static str)> {
    let bare = path.trim_end_matches('/');
    let folder = path.len() > bare.len();
    let mut found = vec![(path.to_owned(), "as written")];
    if folder && !bare.is_empty() {
        found.push((bare.to_owned(), "without its slash"));
    } else if !folder {
        found.push((format!("{path}/"), "with a slash"));
    }
    found.push((format!("{path}x"), "longer"));
    found.push((format!("{bare}/w/v"), "below it"));
    if !all {
        return found;
    }
    if bare.len() > 1 && bare.is_char_boundary(bare.len() - 1) && !bare.ends_with(['%', '/']) {
        let shorter = &bare[..bare.len() - 1];
        // Half an escape is no path.
        let cuts =
            shorter.ends_with('%') || shorter.get(..shorter.len() - 1).is_some_and(|s| s.ends_with('%'));
        if !cuts {
            found.push((shorter.to_owned(), "shorter"));
        }
    }
    found.push((format!("{path}?a=1&b=%2F"), "with a query"));
    found.push((format!("/w{path}"), "below another folder"));
    let upper = path.to_ascii_uppercase();
    if upper != path {
        found.push((upper, "in upper case"));
    }
    if let Some(at) = path.find(|c: char| c.is_ascii_alphabetic()).filter(|_| !path.contains('%')) {
        let letter = path.as_bytes()[at];
        let text = format!("{}%{letter:02X}{}", &path[..at], &path[at + 1..]);
        found.push((text, "with a letter escaped"));
    }
    if let Some(at) = path.find(|c: char| "!$&'()*+,:=@".contains(c)) {
        let sign = path.as_bytes()[at];
        found.push((format!("{}%{sign:02X}{}", &path[..at], &path[at + 1..]), "with a sign escaped"));
    }
    if !bare.is_empty() {
        found.push((format!("{bare}%2Fw"), "with %2F"));
        found.push((format!("{bare}/w%2Fv"), "with %2F below it"));
    }
    found.push((format!("/{path}"), "with two slashes"));
    found.push((format!("{bare}//w"), "with two slashes inside"));
    found.push((format!("/w/..{path}"), "with dot segments"));
    found.push((format!("{bare}/./w"), "with a dot segment"));
    found.push((format!("{bare}/w/../v"), "with dot segments inside"));
    found
}

/// A request with a condition on, each value once.
fn conditional(ask: &Ask, condition: &Condition) -> Vec<Ask> {
    let printable = |value: &&String| !value.is_empty() && value.bytes().all(|b| (b' '..=b'~').contains(&b));
    let values = condition.values.iter().filter(printable).take(MAX_VALUES);
    let joined = if ask.target.contains('?') { '&' } else { '?' };
    let one = |value: &String| {
        let mut ask = ask.clone();
        match &condition.of {
            Subject::Argument(name) => {
                ask.target = format!("{}{joined}{name}={}", ask.target, escaped(value))
            }
            Subject::Cookie(name) => ask.fields.push(("cookie".to_owned(), format!("{name}={value}"))),
            Subject::Field(name) => ask.fields.push((name.clone(), value.clone())),
            Subject::Method => {
                if !value.bytes().all(|b| b.is_ascii_uppercase()) {
                    return None;
                }
                ask.method.clone_from(value);
            }
        }
        Some(ask)
    };
    values.filter_map(one).collect()
}

/// The same with the field twice, once with another value, in both orders: a guard that looks at one of them is passed
/// by the other. Fields that must be alone are left out: programs refuse two.
fn twice(ask: &Ask, name: &str) -> Vec<Ask> {
    const SINGLE: &[&str] =
        &["authorization", "content-length", "content-type", "cookie", "expect", "host", "transfer-encoding"];
    if SINGLE.contains(&&*name.to_ascii_lowercase()) {
        return Vec::new();
    }
    let other = (name.to_owned(), "weir-other".to_owned());
    let (mut before, mut behind) = (ask.clone(), ask.clone());
    before.fields.insert(0, other.clone());
    behind.fields.push(other);
    vec![before, behind]
}

/// A decoded path as a target.
fn escaped(path: &str) -> String {
    let mut text = String::new();
    for byte in path.bytes() {
        match byte {
            b'!'
            | b'$'..=b'/'
            | b'0'..=b'9'
            | b':'
            | b';'
            | b'='
            | b'@'
            | b'A'..=b'Z'
            | b'_'
            | b'a'..=b'z'
            | b'~' => {
                text.push(char::from(byte));
            }
            byte => text.push_str(&format!("%{byte:02X}")),
        }
    }
    text
}
