//! Routes, one for each of their uris, in the order of `radixtree_host_uri`.

use super::consumers::Known;
use super::plugins;
use super::{Apisix, common, refuse_rest, upstreams, vars};
use crate::config::{Case, Config, Filter, Match, Route, Target};
use crate::ledger::{Ledger, Piece};
use crate::shared::expression::Expression;
use crate::shared::order::{self, Candidate, Host, Path};
use crate::shared::path;
use crate::shared::ranked;
use crate::shared::regex::{Searching, Subject};
use crate::shared::tree::{Entry, Fields, Node};
use crate::yaml::Map;
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

/// A uri of a route.
struct Part {
    rank: (u8, usize, bool, usize, i64, Reverse<usize>),
    candidate: Candidate,
    written: Option<String>,
    route: Route,
    title: String,
    pieces: Vec<Piece>,
}

type Plugins<'t> = BTreeMap<&'t str, &'t Entry>;
/// The plugins, the upstream and the hosts of a service.
type Service<'t> = (Plugins<'t>, Option<String>, Option<Vec<String>>);

fn plugins_of<'t>(node: Option<&'t Node>, merged: &mut Plugins<'t>) {
    for entry in node.and_then(Node::as_map).unwrap_or_default() {
        merged.insert(&entry.key, entry);
    }
}

/// The upstream by id, inline, or of the service.
struct Upstreams {
    by_id: HashMap<String, Option<String>>,
}

pub(super) fn translate<'t>(
    apisix: &Apisix<'t>,
    known: &Known<'t>,
    config: &mut Config,
    ledger: &mut Ledger,
) {
    let mut by_id = Upstreams { by_id: HashMap::new() };
    for (id, node) in apisix.of("upstreams") {
        let name = upstreams::translate(node, &format!("upstream-{id}"), config, ledger);
        by_id.by_id.insert(id.clone(), name);
    }
    let mut services: HashMap<String, Service<'t>> = HashMap::new();
    for (id, node) in apisix.of("services") {
        let mut fields = Fields::of(node);
        let name = common(&mut fields, ledger).unwrap_or_else(|| format!("service-{id}"));
        let mut own = Plugins::new();
        if let Some((plugins, piece)) = fields.map("plugins", ledger) {
            ledger.same(piece);
            plugins_of(Some(plugins), &mut own);
        }
        let upstream = by_id.of(&mut fields, &name, config, ledger);
        let hosts = fields.texts("hosts", ledger).map(|(hosts, piece)| {
            ledger.same(piece);
            hosts
        });
        if let Some(entry) = fields.entry("enable_websocket") {
            ledger.by_itself(entry.piece, "Weir lets upgrades pass");
        }
        refuse_rest(fields, "a service", ledger);
        services.insert(id.clone(), (own, upstream, hosts));
    }
    for (_, node) in apisix.of("plugin_configs") {
        let mut fields = Fields::of(node);
        common(&mut fields, ledger);
        if let Some((_, piece)) = fields.map("plugins", ledger) {
            ledger.same(piece);
        }
        refuse_rest(fields, "a plugin config", ledger);
    }
    let mut global = Plugins::new();
    for (_, node) in apisix.of("global_rules") {
        let mut fields = Fields::of(node);
        common(&mut fields, ledger);
        if let Some((plugins, piece)) = fields.map("plugins", ledger) {
            ledger.same(piece);
            plugins_of(Some(plugins), &mut global);
        }
    }
    let nobody = Known::default();
    config.filters = plugins::filters(&global, &nobody, config, ledger);
    let mut parts = Vec::new();
    for (at, (id, node)) in apisix.of("routes").iter().enumerate() {
        let mut fields = Fields::of(node);
        let title = common(&mut fields, ledger).unwrap_or_else(|| format!("route-{id}"));
        let mut merged = Plugins::new();
        let mut is_lost = false;
        let service = fields.text("service_id", ledger);
        let service = service.and_then(|(id, piece)| match services.get(&id) {
            Some(service) => {
                ledger.same(piece);
                Some(service)
            }
            None => {
                ledger.refused(piece, format!("service `{id}` is not in the file"), "correct the source");
                is_lost = true;
                None
            }
        });
        if let Some((plugins, ..)) = service {
            merged.extend(plugins.iter().map(|(key, entry)| (*key, *entry)));
        }
        let mut is_whole = !is_lost;
        if let Some((id, piece)) = fields.text("plugin_config_id", ledger) {
            match apisix.find("plugin_configs", &id) {
                Some(node) => {
                    ledger.same(piece);
                    plugins_of(node.get("plugins"), &mut merged);
                }
                None => {
                    is_whole = false;
                    ledger.refused(
                        piece,
                        format!("plugin config `{id}` is not in the file"),
                        "correct the source",
                    );
                }
            }
        }
        if let Some((plugins, piece)) = fields.map("plugins", ledger) {
            ledger.same(piece);
            plugins_of(Some(plugins), &mut merged);
        }
        let mut route = Route { file: "routes".to_owned(), ..Route::default() };
        let own = by_id.of(&mut fields, &title, config, ledger);
        let upstream = own.or_else(|| service.and_then(|(_, upstream, _)| upstream.clone()));
        let timeouts = upstreams::timeouts(fields.map("timeout", ledger), ledger);
        if let Some(response) = timeouts.get("response") {
            route.more.set("timeouts", Map::new().with("response", response.clone()));
        }
        if let Some(entry) = fields.entry("enable_websocket") {
            ledger.by_itself(entry.piece, "Weir lets upgrades pass");
        }
        if let Some((status, piece)) = fields.number("status", ledger) {
            ledger.same(piece);
            if status == 0 {
                for entry in fields.rest() {
                    entry.each_piece(&mut |piece| ledger.left_out(piece, "the route is off (status 0)"));
                }
                merged.values().for_each(|entry| {
                    entry.each_piece(&mut |piece| {
                        if !ledger.is_judged(piece) {
                            ledger.left_out(piece, "the route is off (status 0)");
                        }
                    })
                });
                continue;
            }
        }
        let regex_uri = merged
            .get("proxy-rewrite")
            .and_then(|entry| entry.node.as_map()?.iter().find(|entry| &*entry.key == "regex_uri"));
        route.filters = plugins::filters(&merged, known, config, ledger);
        let answers =
            route.filters.iter().any(|filter| filter.name == "respond" || filter.name == "redirect");
        match upstream {
            Some(name) => route.target = Some(Target::Upstream(name)),
            None if answers => {}
            None => {
                is_whole = false;
                ledger.note(format!("route `{title}` has no upstream that Weir can use, so it answers 503"));
            }
        }
        let hosts = service.and_then(|(.., hosts)| hosts.clone());
        uris(fields, at, &title, route, hosts, regex_uri, is_whole, &mut parts, ledger);
    }
    write(parts, config, ledger);
}

impl Upstreams {
    fn of(
        &mut self,
        fields: &mut Fields<'_>,
        wish: &str,
        config: &mut Config,
        ledger: &mut Ledger,
    ) -> Option<String> {
        if let Some((id, piece)) = fields.text("upstream_id", ledger) {
            match self.by_id.get(&id) {
                Some(name) => {
                    ledger.same(piece);
                    return name.clone();
                }
                None => {
                    ledger.refused(piece, format!("upstream `{id}` is not in the file"), "correct the source")
                }
            }
        }
        let (node, piece) = fields.map("upstream", ledger)?;
        ledger.same(piece);
        upstreams::translate(node, wish, config, ledger)
    }
}

#[allow(clippy::too_many_arguments, reason = "what a route is made of")]
fn uris(
    mut fields: Fields<'_>,
    at: usize,
    title: &str,
    route: Route,
    service_hosts: Option<Vec<String>>,
    regex_uri: Option<&Entry>,
    mut is_whole: bool,
    parts: &mut Vec<Part>,
    ledger: &mut Ledger,
) {
    let mut matches = Match::default();
    let mut extra = Expression::constant(true);
    let mut pieces = Vec::new();
    let mut list = |one: &str, many: &str, fields: &mut Fields<'_>, ledger: &mut Ledger| {
        let mut all: Vec<String> = Vec::new();
        if let Some((text, piece)) = fields.text(one, ledger) {
            all.push(text);
            ledger.same(piece);
            pieces.push(piece);
        }
        if let Some((texts, piece)) = fields.texts(many, ledger) {
            all.extend(texts);
            ledger.same(piece);
            pieces.push(piece);
        }
        all
    };
    let uris = list("uri", "uris", &mut fields, ledger);
    let mut named = list("host", "hosts", &mut fields, ledger);
    let clients = list("remote_addr", "remote_addrs", &mut fields, ledger);
    if named.is_empty() {
        named = service_hosts.unwrap_or_default();
    }
    let is_no_host = |host: &&String| host.strip_prefix('*').unwrap_or(host).contains('*');
    if let Some(host) = named.iter().find(is_no_host) {
        is_whole = false;
        let why = format!("`{host}`: a host has `*` only at its beginning");
        pieces.iter().for_each(|piece| ledger.refused(*piece, why.clone(), "match.hosts"));
        named.clear();
    }
    let hosts: Vec<Host> = named
        .iter()
        .map(|host| host.to_ascii_lowercase())
        .map(|host| match host.strip_prefix('*') {
            Some(ending) => Host::Suffix(ending.to_owned()),
            None => Host::Exact(host),
        })
        .collect();
    if !clients.is_empty() {
        let networks: Result<Vec<String>, String> =
            clients.iter().map(|text| crate::shared::networks::network(text)).collect();
        match networks {
            Ok(networks) => {
                extra = extra.and(Expression::raw("client.ip").is_in(networks.iter().map(String::as_str)))
            }
            Err(why) => {
                is_whole = false;
                pieces
                    .iter()
                    .for_each(|piece| ledger.refused(*piece, why.clone(), "match.when with client.ip"));
            }
        }
    }
    if let Some((methods, piece)) = fields.texts("methods", ledger) {
        matches.methods = methods;
        ledger.same(piece);
    }
    if let Some(entry) = fields.entry("vars") {
        match vars::all(&entry.node) {
            Ok(is) => {
                extra = extra.and(is);
                ledger.same(entry.piece);
            }
            Err(why) => {
                is_whole = false;
                ledger.refused(entry.piece, why, "match.when: docs/reference/expressions.md");
            }
        }
    }
    let mut priority = 0;
    if let Some(entry) = fields.entry("priority") {
        priority = entry.node.as_text().and_then(|text| text.parse::<i64>().ok()).unwrap_or(0);
        ledger.changed(
            entry.piece,
            "decides between routes of one uri; a longer uri comes first whatever its priority",
        );
    }
    for key in ["filter_func", "script", "script_id"] {
        if let Some(entry) = fields.entry(key) {
            is_whole = false;
            ledger.refused(entry.piece, "Lua", "match.when, or the filter ext_proc");
        }
    }
    refuse_rest(fields, "a route", ledger);
    let mut route = route;
    if !is_whole {
        // It may protect what it matches, so no other route may take its requests.
        pieces.iter().for_each(|piece| {
            ledger.refused(*piece, "the route answers 503, because a part of it is refused: see there", "")
        });
        ranked::shut(&mut route, "a part of the route was refused");
    }
    for uri in uris {
        let mut is_closed = false;
        let (path, written, only) = match read_uri(&uri) {
            Ok(read) => read,
            Err(why) => {
                let nearest = "match.path: docs/reference/routing.md#paths";
                let wider = wider(&uri);
                let what = match &wider {
                    Some(start) => format!("`{uri}`: {why}. The route answers 503 below `{start}`"),
                    None => format!("`{uri}`: {why}"),
                };
                pieces.iter().for_each(|piece| ledger.refused(*piece, what.clone(), nearest));
                let Some(start) = wider else { continue };
                is_closed = true;
                let written = (start != "/").then(|| path::prefix(&start));
                (Path::Prefix(start), written, Expression::constant(true))
            }
        };
        let mut route = route.clone();
        if is_closed {
            ranked::shut(&mut route, "its uri was not understood");
        }
        let mut rewritten = None;
        if let Some(entry) = regex_uri {
            match rewrite(entry, &path) {
                Ok((whole, start, target)) => {
                    ledger.changed(
                        entry.piece,
                        "a route of its own takes the paths that the regex matches, so that its groups can be used",
                    );
                    let mut route = route.clone();
                    if route.target.is_some() {
                        route.filters.push(Filter::new("rewrite", Map::new().with("path", target)));
                    }
                    rewritten = Some((route, Some(format!("~{whole}")), Path::Regex { whole, start }));
                }
                Err(why) => {
                    ledger.refused(entry.piece, why, "rewrite: { path } with captures of match.path");
                    ranked::shut(&mut route, "its regex_uri was not translated");
                }
            }
        }
        let is = extra.clone().and(only);
        let mut matches = matches.clone();
        matches.when = (is.as_constant() != Some(true)).then(|| is.as_str().to_owned());
        let host_rank = hosts.iter().map(|host| match host {
            Host::Exact(_) => (2, 0),
            Host::Suffix(ending) => (1, ending.len()),
        });
        let (kind, length) = host_rank.max().unwrap_or((0, 0));
        let rank = (kind, length, matches!(path, Path::Exact(_)), uri.len(), priority, Reverse(at));
        let part = |path, written, route| Part {
            rank,
            candidate: Candidate { hosts: hosts.clone(), path, matches: matches.clone() },
            written,
            route,
            title: title.to_owned(),
            pieces: pieces.clone(),
        };
        // Of one rank, so the regex must come first.
        parts.extend(rewritten.map(|(route, written, path)| part(path, written, route)));
        parts.push(part(path, written, route));
    }
}

fn read_uri(uri: &str) -> Result<(Path, Option<String>, Expression), String> {
    let always = Expression::constant(true);
    let (text, is_prefix) = uri.strip_suffix('*').map_or((uri, false), |text| (text, true));
    if text.contains('*') {
        return Err("`*` stands only at the end".to_owned());
    }
    if text.split('/').any(|segment| segment.starts_with(':')) {
        return Err(
            "`:name` is a parameter only with radixtree_uri_with_parameter; Weir writes `{name}`".to_owned()
        );
    }
    if is_prefix && matches!(text, "" | "/") {
        return Ok((Path::Prefix("/".to_owned()), None, always));
    }
    if let Some(why) = path::never_matches(text) {
        return Err(why.to_owned());
    }
    let canonical = path::canonical(text);
    if !is_prefix {
        return Ok((Path::Exact(canonical), Some(path::exact(text)), always));
    }
    let only = match path::takes_its_folder(text) {
        Some(folder) => Expression::raw("request.path").differs(Expression::text(&path::canonical(folder))),
        None => always,
    };
    Ok((Path::Prefix(canonical), Some(path::prefix(text)), only))
}

/// What every path begins with that a uri which Weir cannot read may match. None if it matches none.
fn wider(uri: &str) -> Option<String> {
    let end = [uri.find('*'), uri.find("/:").map(|at| at + 1)].into_iter().flatten().min();
    let start = &uri[..end?];
    (start.starts_with('/') && path::never_matches(start).is_none()).then(|| path::canonical(start))
}

/// `regex_uri: [pattern, target]` of a route whose uri is a prefix that the pattern begins with.
fn rewrite(entry: &Entry, path: &Path) -> Result<(String, String, String), String> {
    let texts = entry.node.as_texts().unwrap_or_default();
    let [pattern, target] = &*texts else { return Err("one pair is expected".to_owned()) };
    let read = Searching::read(pattern, false, Subject::Path)?;
    read.compiled()?;
    let start = read.literal_start();
    let fits = matches!(path, Path::Prefix(prefix) if start.starts_with(prefix.trim_end_matches('/')));
    if !fits || !pattern.contains(".*") {
        return Err("the pattern must begin as the uri does and reach to the end".to_owned());
    }
    let mut out = String::new();
    let mut chars = target.chars().peekable();
    while let Some(c) = chars.next() {
        match (c, chars.peek().copied()) {
            ('$', Some(digit)) if digit.is_ascii_digit() => {
                chars.next();
                out.push_str(&format!("{{{digit}}}"));
            }
            ('{' | '}' | '$', _) => return Err("braces or variables in the target".to_owned()),
            (c, _) => out.push(c),
        }
    }
    Ok((read.whole(), start, out))
}

fn write(mut parts: Vec<Part>, config: &mut Config, ledger: &mut Ledger) {
    parts.sort_by_key(|part| Reverse(part.rank));
    let candidates: Vec<Candidate> = parts.iter().map(|part| part.candidate.clone()).collect();
    let kept = order::keep(&candidates);
    let titles: Vec<String> = parts.iter().map(|part| part.title.clone()).collect();
    let mut names: Vec<Option<String>> = vec![None; parts.len()];
    for (at, mut part) in parts.into_iter().enumerate() {
        let kept = &kept[at];
        if let Some(by) = kept.covered_by {
            let why = format!(
                "not written, because APISIX never uses it: route `{}` takes all its requests",
                titles[by]
            );
            part.pieces.iter().for_each(|piece| ledger.changed(*piece, why.clone()));
            continue;
        }
        if let Some(by) = kept.unsolved {
            let why = ranked::unsolved("APISIX", &titles[by]);
            part.pieces
                .iter()
                .for_each(|piece| ledger.refused(*piece, why.clone(), "priority, or match.when"));
            ranked::shut(&mut part.route, &why);
        }
        let mut route = part.route;
        for not in &kept.nots {
            route.comment.push(format!("APISIX prefers `{}`, so its requests are left to it.", titles[*not]));
        }
        route.priority = kept.priority;
        route.matches = part.candidate.matches.clone();
        route.matches.hosts = part.candidate.hosts.iter().map(ToString::to_string).collect();
        route.matches.path = part.written;
        route.matches.when = order::when(&candidates, kept, at);
        names[at] = Some(config.add_route(&part.title, route, part.pieces));
    }
    for (case, winner) in order::cases(&candidates) {
        let route = winner.map(|at| names[at].clone());
        if route != Some(None) {
            config.tests.push(Case { route: route.flatten(), ..case });
        }
    }
}
