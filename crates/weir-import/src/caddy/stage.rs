//! Caddy's config for a world of its own: the Caddyfile with its imports put in, other addresses and no automation.
//!
//! Sites listen on loopback with the certificate of the proof, and nothing orders one. What writes (logs, storage),
//! and what asks upstreams by itself (health checks), is left out. Addresses of upstreams stay: in the world of the
//! proof every address and name leads to the echo.

use super::file::{self, Caddyfile};
use super::model::{Handler, Kind, Listen, Matcher, Op, Route};
use super::options;
use super::path::Pattern;
use super::site;
use super::syntax::{Segment, Word};
use crate::config::Config;
use crate::ledger::{Ledger, Piece};
use crate::proof::callers::HASH;
use crate::proof::patterns::{
    Condition, Effect, Front, Line, Origin, PathKind, PathPattern, Patterns, Setting, Site, Stage, Subject,
    unix_in_workspace,
};
use crate::proof::program::{CERTIFICATE, KEY, Program, Reads, number_after};
use crate::proof::{edges, edges_of_network};
use crate::source::{Place, SourceTree, Unreadable, join};
use crate::yaml::{VARIABLE_BEGIN, VARIABLE_END};
use std::collections::BTreeSet;

/// Caddy 2, as its packages install it.
pub(crate) static PROGRAM: Program = Program {
    system: "caddy",
    title: "Caddy",
    binary: "caddy",
    suffix: ".caddyfile",
    stage,
    version: &["version"],
    check: |config| ["validate", "--config", config, "--adapter", "caddyfile"].map(str::to_owned).to_vec(),
    reads: Reads::One(
        |config| ["adapt", "--config", config, "--adapter", "caddyfile"].map(str::to_owned).to_vec(),
        ".json",
    ),
    run: |config| ["run", "--config", config, "--adapter", "caddyfile"].map(str::to_owned).to_vec(),
    // It trusts the upstreams of the proof, and writes nowhere else.
    environment: &[
        ("SSL_CERT_FILE", CERTIFICATE),
        ("XDG_CONFIG_HOME", "/run/weir-proof/config"),
        ("XDG_DATA_HOME", "/run/weir-proof/data"),
    ],
    folders: &["config", "data"],
    refusal,
    own_pages: &[],
};

/// Directives of sites that are left out, with the reason if a proof should say so.
const DROPPED: &[(&str, Option<&str>)] = &[
    ("acme_server", Some("it makes certificates")),
    ("bind", None),
    ("log", None),
    ("log_append", None),
    ("log_name", None),
    ("log_skip", None),
    ("push", None),
    ("skip_log", None),
    ("tls", Some("the proof has certificates of its own")),
    ("tracing", None),
];
/// Settings of proxies that are left out: they ask upstreams by themselves, depend on time, or name certificates.
const DROPPED_OF_PROXIES: &[&str] = &[
    "fail_duration",
    "health_body",
    "health_headers",
    "health_interval",
    "health_path",
    "health_port",
    "health_status",
    "health_timeout",
    "health_uri",
    "lb_try_duration",
    "lb_try_interval",
    "max_fails",
    "tls_client_auth",
    "tls_trust_pool",
    "tls_trusted_ca_certs",
    "unhealthy_latency",
    "unhealthy_request_count",
    "unhealthy_status",
];
/// Waits of proxies, which stay.
const WAITS: &[&str] = &[
    "dial_fallback_delay",
    "dial_timeout",
    "expect_continue_timeout",
    "read_timeout",
    "response_header_timeout",
    "write_timeout",
];
/// Global options that stay.
const KEPT_OPTIONS: &[&str] = &["http_port", "https_port", "order"];

/// What Caddy says when it refuses a config: `…: /run/weir-proof/old.caddyfile:12 - Error during parsing: …`.
fn refusal(said: &str) -> (Option<usize>, String) {
    let line = said
        .lines()
        .rfind(|line| line.starts_with("Error:") || line.starts_with("validate:"))
        .unwrap_or(said);
    (number_after(said, ".caddyfile:"), line.trim_start_matches("Error: ").trim().to_owned())
}

/// Stages the files of `tree`; `around` is the folder of the first, for relative paths.
fn stage(tree: &mut SourceTree<'_>, around: &str) -> Result<Stage, Unreadable> {
    let mut ledger = Ledger::default();
    let mut files = Vec::new();
    for path in tree.given().to_vec() {
        files.push(tree.read(&path)?);
    }
    let mut stage = Stage::default();
    if let Some(file) = files.iter().find(|file| super::is_json(file)) {
        let line = Line { place: Place { file: file.name.clone(), line: 1 }, text: "{".to_owned() };
        let why = "the proof runs Caddyfiles, not JSON: prove the Caddyfile that it was adapted from";
        stage.patterns.obstacles.push((line, why.to_owned()));
        return Ok(stage);
    }
    let parsed = file::read(tree, &files, &mut ledger)?;
    let mut config = Config::default();
    let options = options::read(&parsed.options, &mut config, &mut ledger);
    let adapted = site::adapt(&parsed, &options, &mut config, &mut ledger);
    let mut scan = Scan { ledger: &ledger, patterns: Patterns::default(), origins: BTreeSet::new() };
    for server in &adapted.servers {
        let fronts: Vec<Front> = server.listens.iter().filter_map(front).collect();
        for route in &server.routes {
            scan.site(route, &fronts);
        }
    }
    scan.patterns.origins = scan.origins.into_iter().collect();
    stage.patterns = scan.patterns;
    let mut writer = Writer { around, stage: &mut stage };
    writer.options(&parsed, options.redirects);
    for site in &parsed.sites {
        let has_tls = site.body.iter().any(|segment| segment.name() == "tls");
        let binds: Vec<Listen> = site
            .addresses
            .iter()
            .flat_map(|text| site::listens_of(text, &site.body, &options, has_tls))
            .collect();
        writer.site(site, &binds);
    }
    Ok(stage)
}

/// A listener on loopback; none for sockets of files.
fn front(listen: &Listen) -> Option<Front> {
    let (host, port) = listen.address.rsplit_once(':')?;
    let ip = match host.parse::<std::net::Ipv4Addr>() {
        Ok(ip) if !ip.is_unspecified() => host.to_owned(),
        _ => "127.0.0.1".to_owned(),
    };
    Some(Front { ip, port: port.parse().ok()?, tls: listen.tls })
}

/// Writes the staged Caddyfile.
struct Writer<'a> {
    around: &'a str,
    stage: &'a mut Stage,
}

impl Writer<'_> {
    fn line(&mut self, depth: usize, line: &str, place: Option<&Place>) {
        // A quoted text may span lines.
        let text = format!("{}{line}\n", "\t".repeat(depth));
        text.matches('\n').for_each(|_| self.stage.places.push(place.cloned()));
        self.stage.text.push_str(&text);
    }

    fn options(&mut self, parsed: &Caddyfile, redirects: bool) {
        self.line(0, "{", None);
        self.line(1, "admin off", None);
        // Redirects to TLS stay; nobody orders certificates.
        self.line(1, if redirects { "auto_https disable_certs" } else { "auto_https off" }, None);
        // The proof speaks no HTTP/3, which would be told in every answer.
        self.line(1, "servers {", None);
        self.line(2, "protocols h1 h2", None);
        self.line(1, "}", None);
        for segment in parsed.options.iter().filter(|segment| KEPT_OPTIONS.contains(&segment.name())) {
            self.segment(segment, 1);
        }
        self.line(0, "}", None);
    }

    fn site(&mut self, site: &file::Site, listens: &[Listen]) {
        let mut addresses: Vec<String> = Vec::new();
        let mut binds: BTreeSet<String> = BTreeSet::new();
        for (text, listen) in site.addresses.iter().zip(listens) {
            let address = super::address::Address::read(&site::resolved(text));
            let Some(front) = front(listen) else {
                let line = Line { place: Place::new(self.around, 0), text: text.clone() };
                self.stage.patterns.unprovable.push((line, "a socket of a file".to_owned()));
                continue;
            };
            let scheme = if front.tls { "https" } else { "http" };
            let host = plain(&address.host);
            addresses.push(format!("{scheme}://{host}:{}{}", front.port, address.path));
            binds.insert(front.ip);
        }
        if addresses.is_empty() {
            return;
        }
        let place = site.body.first().map(|segment| segment.place.clone());
        self.line(0, &format!("{} {{", addresses.join(", ")), place.as_ref());
        self.line(1, &format!("bind {}", binds.into_iter().collect::<Vec<_>>().join(" ")), None);
        if listens.iter().any(|listen| listen.tls) {
            self.line(1, &format!("tls {CERTIFICATE} {KEY}"), None);
        }
        for segment in &site.body {
            self.segment(segment, 1);
        }
        self.line(0, "}", None);
    }

    /// Users with the password that the proof knows.
    fn users(&mut self, segment: &Segment, depth: usize) {
        let words: Vec<String> = segment.words.iter().map(written).collect();
        self.line(depth, &format!("{} {{", words.join(" ")), Some(&segment.place));
        for user in segment.block.iter().flatten() {
            let name = plain(user.name());
            self.line(depth + 1, &format!("{name} {HASH}"), Some(&user.place));
            self.stage.patterns.add_user(name);
        }
        self.line(depth, "}", Some(&segment.place));
    }

    fn segment(&mut self, segment: &Segment, depth: usize) {
        let name = segment.name();
        if let Some((_, why)) = DROPPED.iter().find(|(known, _)| *known == name) {
            if let Some(why) = why {
                let text = segment.words.iter().map(|word| &*word.text).collect::<Vec<_>>().join(" ");
                let line = Line { place: segment.place.clone(), text };
                self.stage.patterns.unprovable.push((line, (*why).to_owned()));
            }
            return;
        }
        let is_dropped = DROPPED_OF_PROXIES.contains(&name) && depth > 1;
        if is_dropped || (WAITS.contains(&name) && depth > 1) {
            let text = segment.words.iter().map(|word| &*word.text).collect::<Vec<_>>().join(" ");
            let line = Line { place: segment.place.clone(), text };
            let why = "it depends on time, checks upstreams, or names certificates";
            self.stage.patterns.unprovable.push((line, why.to_owned()));
        }
        if is_dropped {
            return;
        }
        if matches!(name, "basicauth" | "basic_auth")
            && !segment.words.iter().any(|word| word.text == "argon2id")
        {
            return self.users(segment, depth);
        }
        let mut words: Vec<Word> = segment.words.clone();
        for word in &mut words {
            word.text = plain(&word.text);
            if let Some(path) = word.text.strip_prefix("unix/") {
                let moved = unix_in_workspace(&format!("/{}", path.trim_start_matches('/')));
                word.text = format!("unix/{moved}");
            }
        }
        // A relative folder is beside the config.
        if name == "root"
            && let Some(root) = words.last_mut().filter(|word| !word.text.starts_with(['/', '{', '*', '@']))
        {
            root.text = join(self.around, &root.text);
        }
        let mut line: Vec<String> = words.iter().map(written).collect();
        if segment.block.is_some() {
            line.push("{".to_owned());
        }
        self.line(depth, &line.join(" "), Some(&segment.place));
        if let Some(block) = &segment.block {
            for inner in block {
                self.segment(inner, depth + 1);
            }
            self.line(depth, "}", Some(&segment.place));
        }
    }
}

/// A variable with its default value, or with the value that the check uses.
fn plain(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once(VARIABLE_BEGIN) {
        let Some((inner, after)) = behind.split_once(VARIABLE_END) else { break };
        out.push_str(before);
        match inner.split_once(":-") {
            Some((_, default)) => out.push_str(default),
            None => out.push_str(&super::stand_in(inner)),
        }
        rest = after;
    }
    out.push_str(rest);
    out
}

/// A word as Caddy reads it.
fn written(word: &Word) -> String {
    let is_plain = !word.text.is_empty()
        && !word.text.contains(char::is_whitespace)
        && !word.text.starts_with(['"', '`', '#', '<']);
    let is_brace = matches!(&*word.text, "{" | "}");
    match (is_plain && !is_brace, word.text.contains('`')) {
        (true, _) => word.text.clone(),
        (_, false) => format!("`{}`", word.text),
        (_, true) => format!("\"{}\"", word.text.replace('"', "\\\"")),
    }
}

/// Finds what the lines tell apart.
struct Scan<'a> {
    ledger: &'a Ledger,
    patterns: Patterns,
    origins: BTreeSet<Origin>,
}

/// What routes around a handler have in common.
#[derive(Clone, Default)]
struct Around {
    /// Prefixes that were taken off.
    prefix: String,
    settings: Vec<Setting>,
}

impl Scan<'_> {
    fn line(&self, piece: Piece) -> Line {
        let (place, text) = self.ledger.shown(piece);
        Line { place, text }
    }

    fn site(&mut self, route: &Route, fronts: &[Front]) {
        let Some(piece) = route.pieces.first() else { return };
        let line = self.line(*piece);
        let mut site =
            Site { line: line.clone(), hosts: Vec::new(), fronts: fronts.to_vec(), paths: Vec::new() };
        for set in &route.sets {
            for matcher in set {
                if let Matcher::Host(hosts) = matcher {
                    site.hosts.extend(hosts.iter().map(|host| (plain(host), line.clone())));
                }
            }
        }
        let settings = self.settings(std::slice::from_ref(route));
        let whole = pattern(&line, PathKind::Prefix, "/", settings.clone());
        self.paths(std::slice::from_ref(route), &Around { prefix: String::new(), settings }, &mut site.paths);
        let mut whole = whole;
        whole.conditions = conditions(&self.all_matchers(std::slice::from_ref(route)), &line);
        whole.body_limit = self.body_limit(std::slice::from_ref(route));
        site.paths.push(whole);
        self.patterns.sites.push(site);
    }

    /// All matchers below routes, with their lines.
    fn all_matchers(&self, routes: &[Route]) -> Vec<Matcher> {
        let mut all = Vec::new();
        for route in routes {
            all.extend(route.sets.iter().flatten().cloned());
            for handler in &route.handlers {
                if let Kind::Subroute(inner) = &handler.kind {
                    all.extend(self.all_matchers(inner));
                }
            }
        }
        all
    }

    fn body_limit(&self, routes: &[Route]) -> Option<(u64, Line)> {
        let mut found = None;
        for route in routes {
            for handler in &route.handlers {
                match &handler.kind {
                    Kind::Subroute(inner) => found = found.or_else(|| self.body_limit(inner)),
                    Kind::Filter(filter) if filter.name == "body_limit" => {
                        if let crate::yaml::Value::Map(map) = &filter.settings
                            && let Some(crate::yaml::Value::Text(size)) = map.get("max")
                            && let Some(bytes) = crate::shared::units::read_size(size)
                        {
                            found = Some((bytes, self.line(handler.piece)));
                        }
                    }
                    _ => {}
                }
            }
        }
        found
    }

    /// Paths that routes name, each as a pattern.
    fn paths(&mut self, routes: &[Route], around: &Around, found: &mut Vec<PathPattern>) {
        let mut around = around.clone();
        for route in routes {
            let line = route.pieces.first().map(|piece| self.line(*piece));
            let mut inner = around.clone();
            let own = self.settings(std::slice::from_ref(route));
            if let Some(line) = line {
                let mut settings = own.clone();
                settings.extend(around.settings.iter().cloned());
                for matcher in with_nots(&route.sets) {
                    for (kind, text) in kinds(matcher, &around.prefix) {
                        let mut made = pattern(&line, kind, &text, settings.clone());
                        made.conditions = conditions(&route.sets.concat(), &line);
                        found.push(made);
                    }
                }
            }
            for handler in &route.handlers {
                match &handler.kind {
                    Kind::Rewrite(super::model::Rewrite::StripPrefix(prefix)) => {
                        if route.sets.is_empty() {
                            around.prefix.push_str(prefix);
                        }
                        inner.prefix.push_str(prefix);
                    }
                    Kind::Subroute(routes) => {
                        inner.settings.splice(0..0, own.iter().cloned());
                        self.paths(routes, &inner, found);
                    }
                    _ => {}
                }
            }
        }
    }

    /// What handlers do, innermost first.
    fn settings(&mut self, routes: &[Route]) -> Vec<Setting> {
        let mut settings = Vec::new();
        for route in routes {
            for handler in &route.handlers {
                if let Kind::Subroute(inner) = &handler.kind {
                    settings.extend(self.settings(inner));
                } else {
                    let line = self.line(handler.piece);
                    let effects = self.effects(handler);
                    settings.extend(effects.into_iter().map(|effect| Setting { effect, line: line.clone() }));
                }
            }
        }
        settings
    }

    fn effects(&mut self, handler: &Handler) -> Vec<Effect> {
        let name = |op: &Op| match op {
            Op::Set(name, _) | Op::Add(name, _) | Op::Delete(name) => name.to_ascii_lowercase(),
        };
        match &handler.kind {
            Kind::Headers(ops) => {
                let request = ops.request.iter().map(|op| Effect::UpstreamField(name(op)));
                let answer = ops.response.iter().map(|op| Effect::AnswerField(name(op)));
                request.chain(answer).collect()
            }
            Kind::Rewrite(_) => vec![Effect::Target],
            Kind::Respond(answer) => {
                let redirect = answer.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("location"));
                let status = Effect::Status(answer.status.parse().ok().into_iter().collect());
                let body = if redirect { Effect::Redirect } else { Effect::Body };
                vec![status, body, Effect::Who]
            }
            Kind::Proxy(proxy) => {
                let tls = proxy.upstream.more.get("tls").is_some();
                let addresses: Vec<String> =
                    proxy.upstream.endpoints.iter().map(|endpoint| plain(&endpoint.address)).collect();
                self.origins.extend(addresses.iter().map(|address| Origin { address: address.clone(), tls }));
                if addresses.len() > 1 && !self.patterns.groups.contains(&addresses) {
                    self.patterns.groups.push(addresses);
                }
                let mut effects = vec![Effect::Who, Effect::Target];
                effects.extend(proxy.request.iter().map(|op| Effect::UpstreamField(name(op))));
                effects.extend(proxy.response.iter().map(|op| Effect::AnswerField(name(op))));
                effects.push(Effect::UpstreamField("host".to_owned()));
                effects
            }
            Kind::Ask(ask) => {
                let tls = ask.proxy.upstream.more.get("tls").is_some();
                let addresses = ask.proxy.upstream.endpoints.iter().map(|endpoint| plain(&endpoint.address));
                self.origins.extend(addresses.map(|address| Origin { address, tls }));
                vec![Effect::Status(vec![401, 403]), Effect::Who]
            }
            Kind::Files(_) => vec![Effect::Who, Effect::Body, Effect::Status(vec![404])],
            Kind::Users { .. } => vec![Effect::Status(vec![401])],
            Kind::Error { status } => vec![Effect::Status(status.parse().ok().into_iter().collect())],
            Kind::Abort | Kind::Closed(_) => vec![Effect::Status(Vec::new())],
            Kind::Filter(filter) if filter.name == "body_limit" => vec![Effect::Status(vec![413])],
            _ => Vec::new(),
        }
    }
}

fn pattern(line: &Line, kind: PathKind, text: &str, settings: Vec<Setting>) -> PathPattern {
    PathPattern {
        line: line.clone(),
        kind,
        text: text.to_owned(),
        settings,
        conditions: Vec::new(),
        body_limit: None,
        burst: None,
        endpoints: Vec::new(),
        mirrors: false,
    }
}

/// Matchers of sets, and those that must not hold.
fn with_nots(sets: &[Vec<Matcher>]) -> Vec<&Matcher> {
    let mut all = Vec::new();
    for matcher in sets.iter().flatten() {
        match matcher {
            Matcher::Not(inner) => all.extend(with_nots(inner)),
            other => all.push(other),
        }
    }
    all
}

/// A matcher's paths as patterns of the proof.
fn kinds(matcher: &Matcher, prefix: &str) -> Vec<(PathKind, String)> {
    let regex = |text: String| (PathKind::Regex { ignores_case: true }, text);
    match matcher {
        Matcher::Path(paths) => paths
            .iter()
            .map(|path| match Pattern::read(path) {
                Pattern::Any => (PathKind::Prefix, format!("{prefix}/")),
                Pattern::Exact(text) => (PathKind::Exact, format!("{prefix}{text}")),
                Pattern::Prefix(text) => (PathKind::Prefix, format!("{prefix}{text}")),
                Pattern::Suffix(end) => regex(format!("{}$", crate::shared::regex::literal(&end))),
                Pattern::Contains(part) => regex(crate::shared::regex::literal(&part)),
                Pattern::Glob(pattern, _) => regex(format!("^{prefix}{pattern}$")),
            })
            .collect(),
        Matcher::PathRegexp { pattern, .. } => {
            vec![(PathKind::Regex { ignores_case: false }, pattern.clone())]
        }
        _ => Vec::new(),
    }
}

/// What else matchers look at.
fn conditions(matchers: &[Matcher], line: &Line) -> Vec<Condition> {
    let one = |of: Subject, values: Vec<String>| Condition { line: line.clone(), of, values };
    let mut all = Vec::new();
    for matcher in matchers {
        match matcher {
            Matcher::Method(methods) => all.push(one(Subject::Method, methods.clone())),
            Matcher::Query(pairs) => all.extend(pairs.iter().map(|(name, values)| {
                one(Subject::Argument(name.clone()), values.iter().map(|value| sample(value)).collect())
            })),
            Matcher::Header(fields) => all.extend(fields.iter().map(|(name, values)| {
                let values = values.iter().flatten().map(|value| sample(value)).collect();
                one(Subject::Field(name.clone()), values)
            })),
            Matcher::Client(networks) => {
                let values = networks.iter().flat_map(|network| edges_of_network(network)).collect();
                all.push(one(Subject::Client, values));
            }
            Matcher::HeaderRegexp(fields) => all.extend(
                fields.iter().map(|(name, pattern)| one(Subject::Field(name.clone()), edges(pattern))),
            ),
            Matcher::Not(sets) => all.extend(conditions(&sets.concat(), line)),
            _ => {}
        }
    }
    all
}

/// A value that a pattern of a field takes.
fn sample(value: &str) -> String {
    if value == "*" { "some".to_owned() } else { value.replace('*', "x") }
}
