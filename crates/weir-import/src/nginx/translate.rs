//! A whole config: tables first, then listeners, then each server's locations as routes.

use super::block::Block;
use super::context::Cx;
use super::global::{finish, globals, notes, trusted_proxies};
use super::location::{Kind, find, refuse_all};
use super::read::Directive;
use super::route::{Draft, Made, routes};
use super::server::{Listeners, Server, join_families, listeners};
use crate::config::Case;
use crate::yaml::Map;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// Most tests of an import.
pub(super) const TESTS: usize = 500;

/// Directives that stand only outside of `http`.
const MAIN: &[&str] = &[
    "daemon",
    "env",
    "load_module",
    "lock_file",
    "master_process",
    "pcre_jit",
    "pid",
    "thread_pool",
    "timer_resolution",
    "user",
    "worker_cpu_affinity",
    "worker_priority",
    "worker_processes",
    "worker_rlimit_core",
    "worker_rlimit_nofile",
    "worker_shutdown_timeout",
];

/// The directives of `http`, of all its blocks and of files that stand alone.
pub(super) fn http_of<'a>(cx: &mut Cx<'a, '_>, directives: &'a [Directive]) -> Rc<Block<'a>> {
    let mut all: Vec<&Directive> = Vec::new();
    for directive in directives {
        match &*directive.name {
            "http" => {
                cx.ledger.same(directive.piece);
                all.extend(directive.block.iter().flatten());
            }
            "events" => cx.ledger.by_itself(directive.piece, "Weir chooses how it waits for sockets"),
            "stream" => {}
            "mail" => {
                let why = "Weir proxies no mail";
                cx.ledger.refused(directive.piece, why, "listeners.NAME.tcp passes bytes on");
                refuse_all(cx, directive);
            }
            "location" => {
                let why = "a location without its server: give weir import the file that includes this one";
                cx.ledger.refused(directive.piece, why, "routes.NAME");
                refuse_all(cx, directive);
            }
            name if MAIN.contains(&name) => {}
            _ => all.push(directive),
        }
    }
    Block::new(all, None)
}

/// Tables that texts and directives name.
pub(super) fn tables<'a>(cx: &mut Cx<'a, '_>, http: &Block<'a>) {
    for directive in http.all() {
        match &*directive.name {
            "upstream" => {
                let known = cx.upstreams.insert(directive.first(), directive);
                if known.is_some() {
                    let why = "an upstream of this name stands before it";
                    cx.ledger.refused(directive.piece, why, "another name");
                }
            }
            "map" | "geo" => {
                if let Some(variable) = directive.args.last() {
                    cx.tables.insert(variable.trim_start_matches('$'), directive);
                }
            }
            "limit_req_zone" | "limit_conn_zone" => {
                let zone = directive.args.iter().find_map(|word| word.strip_prefix("zone="));
                let kind =
                    if directive.name == "limit_req_zone" { "limit_req_zone" } else { "limit_conn_zone" };
                if let Some(zone) = zone {
                    cx.zones.insert((kind, zone.split(':').next().unwrap_or(zone)), directive);
                }
            }
            "proxy_cache_path" => {
                let zone = directive.args.iter().find_map(|word| word.strip_prefix("keys_zone="));
                if let Some(zone) = zone {
                    cx.caches.insert(zone.split(':').next().unwrap_or(zone), directive);
                }
            }
            _ => {}
        }
    }
    count_zones(cx, http.all().iter().copied());
}

fn count_zones<'a>(cx: &mut Cx<'a, '_>, directives: impl Iterator<Item = &'a Directive>) {
    for directive in directives {
        if directive.name == "limit_req"
            && let Some(zone) = directive.args.iter().find_map(|word| word.strip_prefix("zone="))
        {
            *cx.zone_uses.entry(("limit_req_zone", zone)).or_insert(0) += 1;
        }
        count_zones(cx, directive.block.iter().flatten());
    }
}

/// All servers of `http`.
pub(super) fn translate<'a>(cx: &mut Cx<'a, '_>, http: &Rc<Block<'a>>) {
    let mut servers: Vec<Server<'a>> =
        http.own("server").iter().map(|directive| Server::new(cx, directive, http)).collect();
    join_families(cx, &mut servers);
    trusted_proxies(cx, http);
    let listening = listeners(cx, &servers);
    let mut drafts = Vec::new();
    let mut taken: BTreeSet<(String, String)> = BTreeSet::new();
    let patterns = Patterns::of(&servers);
    for (at, server) in servers.iter().enumerate() {
        one_server(cx, &listening, at, server, &mut taken, &patterns, &mut drafts);
    }
    globals(cx, http);
    notes(cx, &drafts);
    finish(cx, drafts);
}

fn one_server<'a>(
    cx: &mut Cx<'a, '_>,
    listening: &Listeners,
    at: usize,
    server: &Server<'a>,
    taken: &mut BTreeSet<(String, String)>,
    patterns: &Patterns<'_>,
    drafts: &mut Vec<Draft>,
) {
    if server.listens.is_empty() {
        cx.ledger.refused(server.directive.piece, "none of its `listen` lines is taken", "listeners");
        refuse_all(cx, server.directive);
        return;
    }
    let addresses: BTreeSet<&String> = server.listens.iter().map(|listen| &listen.address).collect();
    let default_on: Vec<&String> =
        addresses.iter().copied().filter(|address| listening.defaults.get(*address) == Some(&at)).collect();
    let mut hosts = Vec::new();
    for host in &server.hosts {
        let is_new = addresses.iter().filter(|a| taken.insert(((**a).clone(), host.clone()))).count() > 0;
        if is_new {
            hosts.push(host.clone());
        } else if let Some(name) = server.block.own("server_name").first() {
            cx.ledger
                .changed(name.piece, format!("`{host}` belongs to a server before this one, as nginx warns"));
        }
    }
    cx.ledger.same(server.directive.piece);
    if server.refused_name && hosts.is_empty() && default_on.is_empty() {
        refuse_all(cx, server.directive);
        return;
    }
    if hosts.is_empty() && default_on.is_empty() {
        leave_all(
            cx,
            server.directive,
            "no request comes here: the server has no name of its own, and is no default",
        );
        return;
    }
    let names = |some: &[&String]| -> Vec<String> {
        let all = listening.names.len() == some.len();
        if all { Vec::new() } else { some.iter().filter_map(|a| listening.names.get(*a).cloned()).collect() }
    };
    let all: Vec<&String> = addresses.iter().copied().collect();
    let mut places: Vec<Place> = Vec::new();
    let is_default = default_on.len() == all.len();
    if !hosts.is_empty() && (!is_default || patterns.takes_one_of(at, &hosts)) {
        let (regexes, plain): (Vec<String>, Vec<String>) =
            hosts.iter().cloned().partition(|h| h.starts_with('~'));
        let earlier = patterns.before(at, &addresses, &regexes);
        if earlier.is_empty() {
            places.push(Place { hosts, listeners: names(&all), except: Vec::new(), end: "" });
        } else {
            if !plain.is_empty() {
                places.push(Place { hosts: plain, listeners: names(&all), except: Vec::new(), end: "" });
            }
            places.push(Place {
                hosts: regexes,
                listeners: names(&all),
                except: earlier,
                end: "-by-pattern",
            });
        }
    }
    if !default_on.is_empty() {
        let listeners = names(&default_on);
        places.push(Place { hosts: Vec::new(), listeners, except: Vec::new(), end: "-unknown-hosts" });
    }
    let made = routes(cx, server);
    let first_listener =
        server.listens.first().and_then(|listen| listening.names.get(&listen.address)).cloned();
    for (count, place) in places.iter().enumerate() {
        let Place { hosts, listeners, except, end } = place;
        let label = if count == 0 { server.label.clone() } else { format!("{}{end}", server.label) };
        let mut names = BTreeMap::new();
        for (slug, draft) in &made.drafts {
            let mut route = draft.route.clone();
            route.matches.hosts.clone_from(hosts);
            route.matches.listeners.clone_from(listeners);
            if !except.is_empty() {
                route.matches.more.set("not", Map::new().with("hosts", except.clone()));
            }
            route.file = crate::config::name_of(&server.label);
            if names.is_empty() && hosts.is_empty() && is_default && !server.hosts.is_empty() {
                let why = format!(
                    "For any host: nginx's default server takes unknown ones too, beside {}.",
                    server.hosts.join(", ")
                );
                route.comment.insert(0, why);
            }
            if names.is_empty() && !except.is_empty() {
                route
                    .comment
                    .insert(0, "Of regexes that match, nginx takes the first: those before it.".to_owned());
            }
            let name = format!("{label}.{slug}");
            names.insert(slug.clone(), drafts.len());
            drafts.push(Draft { route, name, ..draft.clone() });
        }
        tests(cx, &made, hosts, listeners, first_listener.as_deref(), &names);
    }
}

/// Which hosts on which listeners a server has.
struct Place {
    hosts: Vec<String>,
    listeners: Vec<String>,
    /// Regexes for hosts of servers before it.
    except: Vec<String>,
    /// The end of its routes' label, if another place stands before it.
    end: &'static str,
}

/// Names with `*` and regexes of all servers.
struct Patterns<'s> {
    /// With the server and its addresses.
    all: Vec<(usize, BTreeSet<&'s str>, &'s str)>,
}

impl<'s> Patterns<'s> {
    fn of(servers: &'s [Server<'_>]) -> Self {
        let is_pattern =
            |host: &&String| host.starts_with("*.") || host.ends_with(".*") || host.starts_with('~');
        let mut all = Vec::new();
        for (at, server) in servers.iter().enumerate() {
            let addresses: BTreeSet<&str> = server.listens.iter().map(|listen| &*listen.address).collect();
            let hosts = server.hosts.iter().filter(is_pattern);
            all.extend(hosts.map(|host| (at, addresses.clone(), host.as_str())));
        }
        Self { all }
    }

    /// Whether a pattern of another server may take one of these hosts: a route for any host would lose to it.
    fn takes_one_of(&self, server: usize, hosts: &[String]) -> bool {
        let others = || self.all.iter().filter(|(at, ..)| *at != server);
        hosts.iter().any(|host| others().any(|(.., pattern)| fits(pattern, host)))
    }

    /// Regexes of servers before this one that may take a host which one of `regexes` takes.
    fn before(&self, server: usize, addresses: &BTreeSet<&String>, regexes: &[String]) -> Vec<String> {
        let earlier = self.all.iter().filter(|(at, on, pattern)| {
            *at < server && pattern.starts_with('~') && addresses.iter().any(|own| on.contains(own.as_str()))
        });
        let mut found: Vec<String> = earlier
            .map(|(.., pattern)| *pattern)
            .filter(|pattern| regexes.iter().any(|own| own != pattern && may_both(own, pattern)))
            .map(str::to_owned)
            .collect();
        found.dedup();
        found
    }
}

/// Whether two regexes may match one host: if they end with different text, none does.
fn may_both(a: &str, b: &str) -> bool {
    let (a, b) = (literal_end(a), literal_end(b));
    a.ends_with(&b) || b.ends_with(&a)
}

/// The literal text at the end of a regex, so far as it is plain.
fn literal_end(pattern: &str) -> String {
    if pattern.contains('|') {
        return String::new();
    }
    let mut end: Vec<char> = Vec::new();
    let mut rest = pattern;
    while let Some(c) = rest.chars().next_back() {
        let before = &rest[..rest.len() - c.len_utf8()];
        match c {
            '.' if before.ends_with('\\') && !before.ends_with("\\\\") => {
                end.push('.');
                rest = &before[..before.len() - 1];
            }
            c if c.is_ascii_alphanumeric() && !before.ends_with('\\') => {
                end.push(c.to_ascii_lowercase());
                rest = before;
            }
            '-' | '_' if !before.ends_with('\\') => {
                end.push(c);
                rest = before;
            }
            _ => break,
        }
    }
    end.iter().rev().collect()
}

/// Whether a pattern of hosts may take a host.
fn fits(pattern: &str, host: &str) -> bool {
    match (pattern.strip_prefix("*."), pattern.strip_suffix(".*")) {
        (Some(end), _) => {
            host.strip_suffix(end).is_some_and(|rest| rest.ends_with('.')) || host.starts_with('*')
        }
        (_, Some(start)) => {
            host.strip_prefix(start).is_some_and(|rest| rest.starts_with('.')) || host.ends_with('*')
        }
        _ => true,
    }
}

/// Leaves out all lines of a block that no request reaches.
pub(super) fn leave_all(cx: &mut Cx<'_, '_>, directive: &Directive, why: &'static str) {
    for inner in directive.block.iter().flatten() {
        if !cx.ledger.is_judged(inner.piece) {
            cx.ledger.left_out(inner.piece, why);
        }
        leave_all(cx, inner, why);
    }
}

/// Requests that show which location takes what.
fn tests<'a>(
    cx: &mut Cx<'a, '_>,
    made: &Made<'a>,
    hosts: &[String],
    listeners: &[String],
    first_listener: Option<&str>,
    names: &BTreeMap<String, usize>,
) {
    if made.has_apart || made.locations.is_empty() {
        return;
    }
    let host = match hosts.first() {
        None => "unknown.invalid".to_owned(),
        Some(host) if host.starts_with('~') => return,
        Some(host) => host.replace('*', "a"),
    };
    let listener = listeners.first().map(String::as_str).or(first_listener);
    let mut paths: BTreeSet<String> =
        BTreeSet::from(["/".to_owned(), "/x/y.php".to_owned(), "/x.js".to_owned()]);
    for location in &made.locations {
        match &location.kind {
            Kind::Exact(path) => {
                paths.extend([path.clone(), format!("{path}x")]);
            }
            Kind::Prefix { path, .. } => {
                let bare = path.trim_end_matches('/');
                paths.extend([path.clone(), bare.to_owned(), format!("{bare}x"), format!("{bare}/x")]);
                paths.extend([format!("{bare}/x.php"), format!("{bare}/x.js")]);
            }
            Kind::Regex { pattern, .. } => {
                paths.extend([pattern.literal_start(), format!("{}x", pattern.literal_start())]);
            }
            Kind::Named(_) => {}
        }
    }
    let is_plain = |path: &String| {
        path.starts_with('/')
            && path.bytes().all(|b| b.is_ascii_alphanumeric() || b"/-_.~".contains(&b))
            && !path.contains("/.")
            && !path.contains("//")
    };
    let plain: Vec<&String> = paths.iter().filter(|path| is_plain(path)).collect();
    // Each asks all regexes: evenly chosen.
    let step = plain.len().div_ceil(TESTS).max(1);
    for path in plain.into_iter().step_by(step) {
        if cx.config.tests.len() >= 20 * TESTS {
            return;
        }
        let slug = match made.of_path.get(path) {
            Some(slug) => Some(slug),
            None => find(&made.locations, path)
                .and_then(|found| made.locations.iter().position(|other| std::ptr::eq(other, found)))
                .and_then(|at| made.of_location.get(&at)),
        };
        let Some(at) = slug.and_then(|slug| names.get(slug)) else { continue };
        cx.config.tests.push(Case {
            method: "GET".to_owned(),
            url: format!("http://{host}{path}"),
            headers: Vec::new(),
            listener: listener.map(str::to_owned),
            // Its name is given when it is added: see `finish`.
            route: Some(at.to_string()),
        });
    }
}
