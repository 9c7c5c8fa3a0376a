//! A whole config: tables first, then listeners, then each server's locations as routes.

use super::action::{Action, action, limit_of};
use super::block::Block;
use super::context::Cx;
use super::fields::response_fields;
use super::location::{Kind, Location, find, flatten, refuse_all};
use super::read::Directive;
use super::rewrite::{Answer, Apart, Does, Rewritten, run};
use super::server::{Listeners, Server, listeners};
use super::site::Site;
use crate::config::{Case, Filter, Match, Route, Target};
use crate::shared::filters::redirect;
use crate::shared::networks::network;
use crate::shared::path;
use crate::shared::regex::literal;
use crate::shared::units::size;
use crate::yaml::{Map, Value};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;

/// Priority of what a server does before it searches for a location.
const BEFORE: i64 = 100_000;
/// Most tests of an import.
const TESTS: usize = 500;

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

/// A route that is not yet in the config, with what is decided over all of them.
struct Draft {
    route: Route,
    name: String,
    body: Option<u64>,
    is_proxied: bool,
}

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
    let servers: Vec<Server<'a>> =
        http.own("server").iter().map(|directive| Server::new(cx, directive, http)).collect();
    let listening = listeners(cx, &servers);
    let mut drafts = Vec::new();
    let mut taken: BTreeSet<(String, String)> = BTreeSet::new();
    let is_pattern = |host: &&String| host.starts_with("*.") || host.ends_with(".*") || host.starts_with('~');
    let patterns: Vec<(usize, String)> = servers
        .iter()
        .enumerate()
        .flat_map(|(at, server)| server.hosts.iter().filter(is_pattern).map(move |host| (at, host.clone())))
        .collect();
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
    patterns: &[(usize, String)],
    drafts: &mut Vec<Draft>,
) {
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
    // Which hosts on which listeners.
    let mut places: Vec<(Vec<String>, Vec<String>)> = Vec::new();
    let is_default = default_on.len() == all.len();
    // A route for any host loses to a pattern of another server that its names fit.
    let loses =
        hosts.iter().any(|host| patterns.iter().any(|(other, pattern)| *other != at && fits(pattern, host)));
    if !hosts.is_empty() && (!is_default || loses) {
        places.push((hosts.clone(), names(&all)));
    }
    if !default_on.is_empty() {
        places.push((Vec::new(), names(&default_on)));
    }
    let made = routes(cx, server);
    let first_listener =
        server.listens.first().and_then(|listen| listening.names.get(&listen.address)).cloned();
    for (count, (hosts, listeners)) in places.iter().enumerate() {
        let label = if count == 0 { server.label.clone() } else { format!("{}-unknown-hosts", server.label) };
        let mut names = BTreeMap::new();
        for (slug, draft) in &made.drafts {
            let mut route = draft.route.clone();
            route.matches.hosts.clone_from(hosts);
            route.matches.listeners.clone_from(listeners);
            route.file = crate::config::name_of(&server.label);
            if names.is_empty() && hosts.is_empty() && is_default && !server.hosts.is_empty() {
                let why = format!(
                    "For any host: nginx's default server takes unknown ones too, beside {}.",
                    server.hosts.join(", ")
                );
                route.comment.insert(0, why);
            }
            let name = format!("{label}.{slug}");
            names.insert(slug.clone(), drafts.len());
            drafts.push(Draft { route, name, body: draft.body, is_proxied: draft.is_proxied });
        }
        tests(cx, &made, hosts, listeners, first_listener.as_deref(), &names);
    }
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

/// What a line in a server that no request reaches says does not matter.
fn leave_all(cx: &mut Cx<'_, '_>, directive: &Directive, why: &'static str) {
    for inner in directive.block.iter().flatten() {
        if !cx.ledger.is_judged(inner.piece) {
            cx.ledger.left_out(inner.piece, why);
        }
        leave_all(cx, inner, why);
    }
}

/// The routes of a server by their slugs, and its locations for the tests.
struct Made<'a> {
    drafts: Vec<(String, Draft)>,
    /// Where the draft of a slug is.
    slugs: HashMap<String, usize>,
    locations: Vec<Location<'a>>,
    /// The slug of each location's route, by its place in `locations`.
    of_location: BTreeMap<usize, String>,
    /// The slug of the route for exactly this path.
    of_path: BTreeMap<String, String>,
    /// Whether routes of their own take some paths.
    has_apart: bool,
}

fn routes<'a>(cx: &mut Cx<'a, '_>, server: &Server<'a>) -> Made<'a> {
    let mut site = Site { server, locations: Vec::new(), set: BTreeMap::new() };
    let mut scope = site.outer(&server.block);
    let own = server.block.all().to_vec();
    let before = run(cx, &mut scope, &own, None);
    site.set.clone_from(&scope.set);
    let mut made = Made {
        drafts: Vec::new(),
        slugs: HashMap::new(),
        locations: Vec::new(),
        of_location: BTreeMap::new(),
        of_path: BTreeMap::new(),
        has_apart: false,
    };
    for (at, apart) in before.apart.iter().enumerate() {
        let priority = BEFORE + i64::try_from(before.apart.len() - at).unwrap_or(0);
        if let Does::Answer(answer) = &apart.does {
            let path = format!("~{}", apart.pattern.whole());
            let mut filters = apart.before.clone();
            let target = answer_of(answer.clone(), &mut filters);
            let mut draft = draft(path, priority, filters, target);
            close(&mut draft.route, &before.closed);
            add(&mut made, "rewrite", draft);
        }
        made.has_apart = true;
    }
    if let Some(answer) = &before.answer {
        let mut filters: Vec<Filter> = response_fields(cx, &scope, false).into_iter().collect();
        filters.extend(before.filters.clone());
        let target = answer_of(answer.clone(), &mut filters);
        let mut draft = draft("/*".to_owned(), 0, filters, target);
        close(&mut draft.route, &before.closed);
        add(&mut made, "root", draft);
        for location in server.block.own("location") {
            let why = "no request comes so far: the server answers all with `return`";
            cx.ledger.left_out(location.piece, why);
            leave_all(cx, location, why);
        }
        return made;
    }
    site.locations = flatten(cx, &server.block);
    let count = site.locations.len();
    let mut seen = BTreeSet::new();
    for at in 0..count {
        let location = &site.locations[at];
        if matches!(location.kind, Kind::Named(_)) {
            continue;
        }
        let key = match &location.kind {
            Kind::Exact(path) => format!("={path}"),
            Kind::Prefix { path, .. } => path.clone(),
            Kind::Regex { .. } | Kind::Named(_) => format!("#{at}"),
        };
        if !seen.insert(key) {
            if let Some(directive) = location.directive {
                cx.ledger.refused(directive.piece, "a location of this path stands before it", "one of them");
            }
            continue;
        }
        let done = action(cx, &site, location);
        let slug = emit(cx, &site, location, done, &before, &mut made);
        made.of_location.insert(at, slug);
    }
    folders(&site, &mut made);
    made.locations = site.locations;
    made
}

fn answer_of(answer: Answer, filters: &mut Vec<Filter>) -> Option<Target> {
    match answer {
        Answer::Redirect(filter) => {
            filters.push(filter);
            None
        }
        Answer::Respond(map) => Some(Target::Respond(map)),
    }
}

fn draft(path: String, priority: i64, filters: Vec<Filter>, target: Option<Target>) -> Draft {
    let matches = Match { path: (path != "/*").then_some(path), ..Match::default() };
    let route = Route { matches, priority, filters, target, ..Route::default() };
    Draft { route, name: String::new(), body: None, is_proxied: false }
}

/// Adds a route under a slug that is free.
fn add(made: &mut Made<'_>, slug: &str, draft: Draft) -> String {
    let slug = match made.slugs.contains_key(slug) {
        false => slug.to_owned(),
        true => format!("{slug}-{}", made.drafts.len() + 1),
    };
    made.slugs.insert(slug.clone(), made.drafts.len());
    made.drafts.push((slug.clone(), draft));
    slug
}

/// The route of a location, and those beside it.
fn emit<'a>(
    cx: &mut Cx<'a, '_>,
    site: &Site<'_, 'a>,
    location: &Location<'a>,
    done: Action,
    before: &Rewritten,
    made: &mut Made<'a>,
) -> String {
    let mut filters = before.filters.clone();
    let rewrite_at = filters.len() + done.rewrite_at;
    filters.extend(done.filters);
    let priority = location.priority(&site.locations);
    let (path, when, priority) = match &location.kind {
        Kind::Exact(exact) => {
            let path = path::exact(exact);
            let priority = if path.starts_with('~') { BEFORE } else { 0 };
            (path, None, priority)
        }
        Kind::Prefix { path: prefix, .. } => {
            let path = path::prefix(prefix);
            if path.starts_with('~')
                && let Some(directive) = location.directive
            {
                let why =
                    "a prefix with `*`, `{` or `}`: a regex takes its place, which beats longer prefixes";
                cx.ledger.changed(directive.piece, why);
            }
            (path, None, priority)
        }
        Kind::Regex { pattern, within, .. } => {
            let (path, when) = regex_path(&pattern.whole(), &pattern.literal_start(), within.as_ref());
            (path, when, priority)
        }
        Kind::Named(_) => return String::new(),
    };
    let is_proxied =
        done.body.is_some() || matches!(done.target, Some(Target::Upstream(_) | Target::FastCgi { .. }));
    let mut draft = draft(path, priority, filters, done.target);
    draft.route.matches.when = when;
    draft.route.comment = done.comment;
    draft.body = done.body;
    draft.is_proxied = is_proxied;
    // The groups of a pattern are for what rewrites.
    let closed: Vec<String> = before.closed.iter().chain(&done.closed).cloned().collect();
    beside(location, &draft, &done.apart, rewrite_at, &closed, &before.filters, made);
    close(&mut draft.route, &closed);
    if draft.route.target.is_none() && closed.is_empty() && !answers(&draft.route) {
        draft.route.target = Some(Target::Respond(Map::new().with("status", 404_u16)));
    }
    add(made, &location.slug, draft)
}

/// Whether a route's filters answer every request.
fn answers(route: &Route) -> bool {
    route.filters.iter().any(|filter| matches!(filter.name, "redirect" | "respond"))
}

/// Routes for paths of a pattern within a location.
fn beside<'a>(
    location: &Location<'a>,
    own: &Draft,
    apart: &[Apart],
    rewrite_at: usize,
    closed: &[String],
    server_first: &[Filter],
    made: &mut Made<'a>,
) {
    for (count, one) in apart.iter().enumerate() {
        made.has_apart = true;
        let inside = match &location.kind {
            Kind::Prefix { path, .. } | Kind::Exact(path) => Some((path.clone(), Vec::new())),
            Kind::Regex { within, .. } => within.clone(),
            Kind::Named(_) => None,
        };
        let (path, when) = regex_path(&one.pattern.whole(), &one.pattern.literal_start(), inside.as_ref());
        let mut route = own.route.clone();
        route.matches.path = Some(path);
        route.matches.when = when;
        // Above the location's own pattern, below what the server does before.
        route.priority = own.route.priority + 50_000 - i64::try_from(count).unwrap_or(0);
        match &one.does {
            Does::Answer(answer) => {
                route.filters.retain(|filter| matches!(filter.name, "headers" | "errors"));
                // A guard that stands before it, of the server and of the location, comes first.
                route.filters.extend(server_first.iter().chain(&one.before).cloned());
                route.target = answer_of(answer.clone(), &mut route.filters);
            }
            Does::Rewrite(filter) => {
                route.filters.insert(rewrite_at.min(route.filters.len()), filter.clone())
            }
        }
        close(&mut route, closed);
        let body = if matches!(one.does, Does::Answer(_)) { None } else { own.body };
        let draft = Draft { route, name: String::new(), body, is_proxied: own.is_proxied };
        add(made, &format!("{}-rewrite", location.slug), draft);
    }
}

/// A route's path for a regex, and the expression that keeps it within a prefix.
fn regex_path(
    whole: &str,
    literal_start: &str,
    within: Option<&(String, Vec<String>)>,
) -> (String, Option<String>) {
    let plain = format!("~{whole}");
    let Some((outer, holes)) = within else { return (plain, None) };
    let starts = |prefix: &str| {
        crate::shared::expression::Expression::raw("request.path").starts_with(&path::canonical(prefix))
    };
    let mut is = crate::shared::expression::Expression::constant(true);
    let mut path = plain;
    if !literal_start.starts_with(&**outer) && outer != "/" {
        // What can match only in the last segment may stand behind the prefix.
        let (flag, bare) = match whole.strip_prefix("(?i)") {
            Some(bare) => ("(?i)", bare),
            None => ("", whole),
        };
        let is_last = bare.strip_prefix(".*").filter(|rest| {
            !rest.ends_with(".*")
                && rest.replace("\\.", "").chars().all(|c| c.is_ascii_alphanumeric() || "()|?:_-".contains(c))
        });
        match is_last {
            Some(rest) if outer.ends_with('/') && flag.is_empty() => {
                path = format!("~{}.*{rest}", literal(&path::canonical(outer)));
            }
            _ => is = is.and(starts(outer)),
        }
    }
    for hole in holes.iter().filter(|hole| {
        literal_start.is_empty() || hole.starts_with(literal_start) || literal_start.starts_with(&***hole)
    }) {
        is = is.and(starts(hole).not());
    }
    let when = is.as_constant().is_none().then(|| is.as_str().to_owned());
    (path, when)
}

/// Answers 503 before all else, because a guard is missing.
fn close(route: &mut Route, closed: &[String]) {
    if closed.is_empty() {
        return;
    }
    let body = "This route is closed: a line of its old config was not imported.\n";
    let mut filter = Filter::new("respond", Map::new().with("status", 503_u16).with("body", body));
    filter.comment.push("CLOSED until you have decided; then take out this filter:".to_owned());
    filter.comment.extend(closed.iter().cloned());
    route.filters.insert(0, filter);
    if route.target.is_none() {
        route.target = Some(Target::Respond(Map::new().with("status", 503_u16)));
    }
}

/// `location /p/` does not take `/p`; `/p/*` does. So `/p` gets the route that nginx gives it.
fn folders<'a>(site: &Site<'_, 'a>, made: &mut Made<'a>) {
    let exact: BTreeSet<&str> = site
        .locations
        .iter()
        .filter_map(|location| match &location.kind {
            Kind::Exact(path) => Some(&**path),
            _ => None,
        })
        .collect();
    let mut more: Vec<(String, String, Draft)> = Vec::new();
    for (at, location) in site.locations.iter().enumerate() {
        let Kind::Prefix { path: prefix, .. } = &location.kind else { continue };
        let Some(folder) = path::takes_its_folder(prefix).filter(|folder| !exact.contains(folder)) else {
            continue;
        };
        let Some(own) = made.of_location.get(&at) else { continue };
        let passes = ["proxy_pass", "fastcgi_pass", "grpc_pass", "uwsgi_pass", "scgi_pass"]
            .iter()
            .any(|name| !location.block.own(name).is_empty());
        let by_slug =
            |slug: &str| made.slugs.get(slug).and_then(|at| made.drafts.get(*at)).map(|(_, draft)| draft);
        let Some(own_draft) = by_slug(own) else { continue };
        if passes {
            let to = redirect(&path::canonical(prefix), 301, true);
            let mut draft = draft(path::exact(folder), 0, vec![to], None);
            draft.route.comment.push(format!("nginx redirects {folder} to {prefix}."));
            more.push((folder.to_owned(), format!("{}-slash", location.slug), draft));
            continue;
        }
        let Some(taker) = find(&site.locations, folder) else { continue };
        let index = site.locations.iter().position(|other| std::ptr::eq(other, taker));
        let slug = index.and_then(|index| made.of_location.get(&index));
        let Some(other) = slug.and_then(|slug| by_slug(slug)) else { continue };
        let is_same =
            other.route.target == own_draft.route.target && other.route.filters == own_draft.route.filters;
        if is_same {
            continue;
        }
        let mut route = other.route.clone();
        route.matches.path = Some(path::exact(folder));
        route.matches.when = None;
        route.priority = 0;
        route.comment = vec![format!("{prefix} does not take {folder}.")];
        let draft = Draft { route, name: String::new(), body: other.body, is_proxied: other.is_proxied };
        more.push((folder.to_owned(), format!("{}-folder", location.slug), draft));
    }
    for (folder, slug, draft) in more {
        let slug = add(made, &slug, draft);
        made.of_path.insert(folder, slug);
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
    for path in paths.iter().filter(|path| is_plain(path)) {
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

/// Settings of the whole gateway.
fn globals<'a>(cx: &mut Cx<'a, '_>, http: &Block<'a>) {
    let mut trusted: Vec<String> = Vec::new();
    collect_trusted(cx, http.all().iter().copied(), &mut trusted);
    if !trusted.is_empty() {
        cx.config.more.set("trusted_proxies", trusted);
    }
    let custom: Vec<&str> = http.own("log_format").iter().map(|format| format.first()).collect();
    if let Some(log) = http.own("access_log").first() {
        let target = log.first();
        let format = log.args.get(1).map_or("combined", String::as_str);
        let mut map = Map::new();
        if target == "off" {
            cx.ledger.same(log.piece);
        } else {
            match target.strip_prefix("syslog:server=") {
                Some(server) => {
                    let server = server.split(',').next().unwrap_or(server);
                    let server =
                        if server.contains(':') { server.to_owned() } else { format!("{server}:514") };
                    map.set("syslog", Map::new().with("server", format!("udp://{server}")));
                }
                None if target == "/dev/stdout" || target == "/dev/stderr" => {
                    map.set("output", target.trim_start_matches("/dev/"));
                }
                None => map.set("output", super::server::absolute(target)),
            }
            if custom.contains(&format) {
                map.set("format", "json");
                cx.ledger.changed(
                    log.piece,
                    "lines are JSON with fields of Weir: the formats of nginx are not taken",
                );
            } else {
                map.set("format", "combined");
                cx.ledger.same(log.piece);
            }
            cx.config.more.set("access_log", map);
        }
    }
    for format in http.own("log_format") {
        let why = "the lines of Weir have fields of their own: access_log.format";
        cx.ledger.changed(format.piece, why);
    }
    for log in http.own("access_log").iter().skip(1) {
        cx.ledger.refused(log.piece, "a second access log", "access_log");
    }
    if cx.needs_request_id {
        cx.config.filters.push(Filter::new("request_id", Map::new().with("incoming", "replace")));
    }
}

/// What differs everywhere, whatever the source says.
fn notes(cx: &mut Cx<'_, '_>, drafts: &[Draft]) {
    if drafts.is_empty() {
        return;
    }
    cx.ledger.note(
        "Weir compares and sends paths in one canonical form: `//` is one slash, dot segments are resolved, `%61` is `a`; \
         in redirects too. Paths with a backslash, a control byte or raw bytes from 0x80 are 400; TRACE is 501",
    );
    if drafts.iter().any(|draft| draft.is_proxied) {
        cx.ledger.note(
            "Weir speaks HTTP/1.1 to upstreams, keeps connections, and streams request bodies, in chunks if their \
             length is unknown; nginx reads bodies whole and speaks HTTP/1.0 unless told otherwise",
        );
        cx.ledger.note(
            "where nothing is said, nginx repeats a request at the next server after an error or a timeout and takes a \
             failing server out for 10 s; Weir repeats failed connects, avoids servers that cannot be connected to, and \
             repeats idempotent requests only (`retry`, `health`)",
        );
        cx.ledger.note(
            "nginx drops fields of clients whose names have `_`; Weir drops only those that servers could take for a \
             field that Weir itself sets",
        );
    }
}

fn collect_trusted<'a>(
    cx: &mut Cx<'a, '_>,
    directives: impl Iterator<Item = &'a Directive>,
    trusted: &mut Vec<String>,
) {
    for directive in directives {
        match &*directive.name {
            "set_real_ip_from" => match network(directive.first()) {
                Ok(network) => {
                    cx.ledger.same(directive.piece);
                    if !trusted.contains(&network) {
                        trusted.push(network);
                    }
                }
                Err(_) if directive.first() == "unix:" => {
                    cx.ledger.left_out(directive.piece, "clients on a Unix socket have no address");
                }
                Err(why) => cx.ledger.refused(directive.piece, why, "trusted_proxies"),
            },
            "real_ip_header" => match &*directive.first().to_ascii_lowercase() {
                "x-forwarded-for" => cx.ledger.same(directive.piece),
                "proxy_protocol" => cx.ledger.same(directive.piece),
                _ => {
                    let why = "Weir reads X-Forwarded-For and Forwarded of trusted proxies: no other field";
                    cx.ledger.refused(
                        directive.piece,
                        why,
                        "trusted_proxies, with X-Forwarded-For of the proxy",
                    );
                }
            },
            "real_ip_recursive" => match directive.first() {
                "on" => cx.ledger.same(directive.piece),
                _ => {
                    let why = "the client is the last address that is not of a trusted proxy";
                    cx.ledger.changed(directive.piece, why);
                }
            },
            _ => {}
        }
        collect_trusted(cx, directive.block.iter().flatten(), trusted);
    }
}

/// Decides what holds for all routes, and adds them to the config.
fn finish(cx: &mut Cx<'_, '_>, mut drafts: Vec<Draft>) {
    let bodies: BTreeSet<u64> = drafts.iter().filter_map(|draft| draft.body).collect();
    let is_unlimited = drafts.iter().any(|draft| draft.is_proxied && draft.body.is_none());
    let most = bodies.last().copied().filter(|_| !is_unlimited);
    if let Some(most) = most {
        let mut limits = Map::new();
        if most == 1 << 20 {
            limits.comment("nginx's own default.");
        }
        limits.set("body_bytes", size(most));
        cx.config.more.set("limits", limits);
    }
    for draft in &mut drafts {
        let Some(bytes) = draft.body.filter(|bytes| Some(*bytes) != most) else { continue };
        let at = draft
            .route
            .filters
            .iter()
            .position(|filter| matches!(filter.name, "headers" | "rewrite" | "cache"));
        if let Some(filter) = limit_of(bytes) {
            // Behind what changes answers, before what changes the request.
            let at = at.map_or(draft.route.filters.len(), |at| match &draft.route.filters[at].settings {
                Value::Map(map) if map.get("response").is_some() => at + 1,
                _ => at,
            });
            draft.route.filters.insert(at, filter);
        }
    }
    for name in ["errors", "compress"] {
        share(cx, &mut drafts, name);
    }
    let names: Vec<String> =
        drafts.into_iter().map(|draft| cx.config.routes.add(&draft.name, draft.route)).collect();
    // Each test looks at all routes, so a large config has fewer: evenly chosen.
    let most = (400_000 / names.len().max(1)).clamp(50, TESTS);
    let step = cx.config.tests.len().div_ceil(most).max(1);
    let mut count = 0;
    cx.config.tests.retain(|_| {
        count += 1;
        (count - 1) % step == 0
    });
    for case in &mut cx.config.tests {
        let at = case.route.as_ref().and_then(|at| at.parse::<usize>().ok());
        case.route = at.and_then(|at| names.get(at)).cloned();
    }
}

/// Moves a filter that all routes with a target of their own have into `filters`, for every route.
fn share(cx: &mut Cx<'_, '_>, drafts: &mut [Draft], name: &str) {
    let has_target = |draft: &&Draft| {
        matches!(draft.route.target, Some(Target::Upstream(_) | Target::Files(_) | Target::FastCgi { .. }))
    };
    let found: Vec<Option<&Filter>> = drafts
        .iter()
        .filter(has_target)
        .map(|draft| draft.route.filters.iter().find(|filter| filter.name == name))
        .collect();
    let first = found.first().copied().flatten();
    let shared = first.filter(|first| found.len() > 1 && found.iter().all(|other| *other == Some(*first)));
    if let Some(shared) = shared.cloned() {
        for draft in drafts {
            draft.route.filters.retain(|filter| *filter != shared);
        }
        cx.config.filters.push(shared);
    }
}
