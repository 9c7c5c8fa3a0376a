//! Paths of Ingresses as routes, in the order in which nginx chooses servers and locations.
//!
//! nginx chooses the server by host alone, then the location: exact, then the longest prefix. If any Ingress of a host
//! has `use-regex` or `rewrite-target`, all its paths are regular expressions without case, the longest first.

mod annotations;
mod canary;
mod rewrite_target;
mod server;

pub(super) use annotations::{Own, read};
pub(super) use canary::canary_of;
pub(super) use rewrite_target::{groups_of, target_of};

use super::objects::{Backend, Ingress, Kind};
use super::upstreams::{self, Settings, split};
use super::{Cx, flag};
use crate::config::{Filter, Match, Route, Target, name_of};
use crate::ledger::Piece;
use crate::shared::filters::{self, closed, redirect, redirect_to_https};
use crate::shared::order::{Candidate, Host, Path};
use crate::shared::path;
use crate::shared::ranked::{self, Part};
use crate::shared::regex::{Searching, Subject, literal, sure_start};
use crate::yaml::{Map, Value};
use canary::{CANARY, Canary, canary};
use rewrite_target::rewritten;
use server::{Server, servers, twice};
use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};

/// With more hosts than this, all routes are written to one file.
const MAX_FILES: usize = 50;

/// The rank of a location in nginx: the greatest is asked first.
type Rank = (u8, usize, u8, usize, String, u8);

/// A part with its rank.
type Ranked = (Rank, Part);

/// Writes all routes.
pub(super) fn write(cx: &mut Cx<'_, '_>, ingresses: &mut [Ingress<'_>]) {
    let mut canaries: HashMap<(String, String), Canary> = HashMap::new();
    for ingress in ingresses.iter_mut() {
        let is_canary = flag(ingress.annotations.take("canary"), cx.ledger).unwrap_or(false);
        if is_canary {
            canary(cx, ingress, &mut canaries);
        } else {
            for name in CANARY {
                if let Some((_, piece)) = ingress.annotations.take(name) {
                    cx.ledger.left_out(piece, "without `canary: true` it is not used");
                }
            }
        }
    }
    let is_canary =
        |ingress: &Ingress<'_>| ingress.annotations.peek("canary").is_some_and(|text| super::is_on(&text));
    let mut own: Vec<Option<Own>> = Vec::new();
    for ingress in ingresses.iter_mut() {
        own.push((!is_canary(ingress)).then(|| read(cx, ingress)));
    }
    let servers = servers(cx, ingresses, &own);
    let no_server = Server::default();
    let regex_hosts: HashSet<String> = ingresses
        .iter()
        .zip(&own)
        .filter(|(_, own)| own.as_ref().is_some_and(|own| own.uses_regex || own.rewrite.is_some()))
        .flat_map(|(ingress, _)| ingress.rules.iter().map(|rule| rule.host.clone()))
        .collect();
    let hosts: HashSet<&str> =
        ingresses.iter().flat_map(|ingress| ingress.rules.iter().map(|rule| rule.host.as_str())).collect();
    let one_file = hosts.len() > MAX_FILES;
    let mut order: Vec<usize> = (0..ingresses.len()).collect();
    // Older first; those without a creation time follow in the order of the files.
    order.sort_by_key(|at| (ingresses[*at].created.is_none(), ingresses[*at].created.clone(), *at));
    let mut taken: HashMap<(String, String, bool), usize> = HashMap::new();
    let mut ranked: Vec<Ranked> = Vec::new();
    let mut rule_number = 0;
    for at in order {
        let ingress = &ingresses[at];
        let Some(own) = &own[at] else { continue };
        for rule in &ingress.rules {
            let is_regex = regex_hosts.contains(&rule.host);
            for path in &rule.paths {
                rule_number += 1;
                let key =
                    (rule.host.clone(), path.path.trim_end_matches('/').to_owned(), path.kind == Kind::Exact);
                if let Some(older) = taken.get(&key).copied().filter(|older| *older != at) {
                    twice(cx, &ingresses[older], ingress, path.piece);
                    continue;
                }
                taken.insert(key, at);
                let server = servers.get(&rule.host).unwrap_or(&no_server);
                let number = rule_number;
                let place = Place { ingress, own, server, host: &rule.host, is_regex, number, one_file };
                ranked.extend(location(cx, &place, path, &canaries));
            }
            if own.from_to_www {
                rule_number += 1;
                ranked.extend(www(cx, ingress, &rule.host, &hosts, rule_number, rule.piece));
            }
        }
        if let Some(backend) = &ingress.default {
            rule_number += 1;
            let server = servers.get("").unwrap_or(&no_server);
            ranked.extend(default(cx, ingress, (own, server), backend, rule_number));
        }
    }
    fallbacks(&mut ranked, rule_number);
    ranked.sort_by(|(a, _), (b, _)| b.cmp(a));
    let parts = ranked.into_iter().map(|(_, part)| part).collect();
    ranked::write(parts, "ingress-nginx", |_, _| false, cx.config, cx.ledger);
    passthrough(cx, ingresses, &own);
}

/// The Ingress of a path, with its host and server.
struct Place<'a, 't> {
    ingress: &'a Ingress<'t>,
    own: &'a Own,
    server: &'a Server,
    host: &'a str,
    is_regex: bool,
    number: usize,
    one_file: bool,
}

fn host_of(name: &str) -> Vec<Host> {
    match name.strip_prefix('*') {
        _ if name.is_empty() => Vec::new(),
        Some(ending) => vec![Host::Suffix(ending.to_owned())],
        None => vec![Host::Exact(name.to_owned())],
    }
}

fn rank_of(hosts: &[Host]) -> (u8, usize) {
    match hosts.first() {
        Some(Host::Exact(_)) => (2, 0),
        Some(Host::Suffix(ending)) => (1, ending.len()),
        None => (0, 0),
    }
}

/// The parts of a path.
fn location(
    cx: &mut Cx<'_, '_>,
    place: &Place<'_, '_>,
    one: &super::objects::Path,
    canaries: &HashMap<(String, String), Canary>,
) -> Vec<Ranked> {
    let own = place.own;
    let title = match place.host {
        "" => format!("{}-{}", place.ingress.namespace, place.ingress.name),
        host => format!("{host}{}", one.path.trim_end_matches('/')),
    };
    let file = if place.one_file {
        "routes".to_owned()
    } else {
        name_of(if place.host.is_empty() { "any-host" } else { place.host })
    };
    let mut is_closed = one.closed.map(str::to_owned);
    let (path, written) = match compared(cx, place, one) {
        Ok(read) => read,
        Err(why) => {
            let nearest = "match.path: docs/reference/routing.md#paths";
            // Patterns are without case, so nothing is sure but the slash; a text without one matches nothing.
            if !place.is_regex {
                cx.ledger.refused(one.piece, format!("`{}`: {why}", one.path), nearest);
                return Vec::new();
            }
            let start = sure_start(&one.path);
            let whole = format!("(?i){}.*", literal(&start));
            cx.ledger.refused(
                one.piece,
                format!(
                    "`{}`: {why}. Its host answers 503 below `{start}`, which holds all its paths",
                    one.path
                ),
                nearest,
            );
            is_closed.get_or_insert_with(|| format!("the pattern {} was not understood", one.path));
            match &*start {
                "/" => (Path::Prefix("/".to_owned()), None),
                _ => (Path::Regex { whole: whole.clone(), start: "/".to_owned() }, Some(format!("~{whole}"))),
            }
        }
    };
    let mut hosts = host_of(place.host);
    hosts.extend(place.server.aliases.iter().flat_map(|alias| host_of(alias)));
    let redirects = own.forces_tls || own.redirects_tls && place.server.has_tls;
    let mut filters: Vec<Filter> = Vec::new();
    filters.extend(own.traffic.before.iter().filter(|filter| filter.name == "cors").cloned());
    if redirects {
        filters.push(redirect_to_https(cx.defaults.redirect_status));
    }
    filters.extend(own.upstream.closed.iter().map(|why| closed(why)));
    filters.extend(own.traffic.answer.iter().cloned());
    filters.extend(own.traffic.before.iter().filter(|filter| filter.name != "cors").cloned());
    filters.extend(place.server.filters.iter().cloned());
    filters.extend(own.access.iter().cloned());
    filters.extend(own.traffic.behind.iter().cloned());
    filters.extend(rewritten(cx, own, &path, one));
    if let Some(why) = &is_closed {
        filters.insert(0, closed(why));
    }
    let target = match upstreams::upstream(cx, &place.ingress.namespace, &one.backend, &own.upstream) {
        Ok(name) => Some(Target::Upstream(name)),
        Err(why) => {
            cx.ledger.refused(one.piece, why.clone(), "upstreams.NAME.endpoints");
            filters.insert(0, closed(&why));
            None
        }
    };
    let (class, length) = rank_of(&hosts);
    let kind = u8::from(matches!(path, Path::Exact(_)));
    let rank =
        |extra: u8| (class, length, kind, one.path.trim_end_matches('/').len(), one.path.clone(), extra);
    let part = |when: Option<String>, target: Option<Target>| {
        let matches = Match { when, ..Match::default() };
        let answers = filters.iter().any(filters::answers);
        let route = Route {
            file: file.clone(),
            filters: filters.clone(),
            target: target.filter(|_| !answers),
            ..Route::default()
        };
        Part {
            rule: place.number,
            candidate: Candidate { hosts: hosts.clone(), path: path.clone(), matches },
            written: written.clone(),
            route,
            title: title.clone(),
            pieces: vec![one.piece],
        }
    };
    let mut out = Vec::new();
    let mut usual = target.clone();
    if let (Some(Target::Upstream(main)), Some(canary)) =
        (&target, canaries.get(&(place.host.to_owned(), one.path.clone())))
    {
        match upstreams::upstream(cx, &canary.namespace, &canary.backend, &canary.settings) {
            Ok(name) => {
                usual = Some(split(main, &name, canary.share.weight, canary.share.total));
                let choices = canary.share.choices();
                let count = choices.len();
                for (at, (is, takes)) in choices.into_iter().enumerate() {
                    let upstream = if takes { &name } else { main };
                    let extra = u8::try_from(count - at).unwrap_or(u8::MAX);
                    let when = Some(is.as_str().to_owned());
                    let mut part = part(when, Some(Target::Upstream(upstream.clone())));
                    part.rule = place.number;
                    out.push((rank(extra), part));
                }
            }
            Err(why) => cx.ledger.refused(one.piece, why, "upstreams.NAME.endpoints"),
        }
    }
    out.push((rank(0), part(None, usual)));
    if let Some(root) = own.app_root.as_ref().filter(|_| one.path == "/" || one.path.starts_with("/(")) {
        let mut root_part = part(None, None);
        root_part.candidate.path = Path::Exact("/".to_owned());
        root_part.written = Some("/".to_owned());
        root_part.title = format!("{}-root", place.host);
        let to = crate::shared::template::Template::text(root).to_setting();
        let mut filters: Vec<Filter> =
            filters.iter().filter(|filter| filter.name == "redirect").cloned().collect();
        filters.push(redirect(&to, 302, false));
        root_part.route.filters = filters;
        root_part.rule = usize::MAX - place.number;
        out.push(((class, length, 1, usize::MAX, "/".to_owned(), 0), root_part));
    }
    out
}

/// The path of a location.
fn compared(
    cx: &mut Cx<'_, '_>,
    place: &Place<'_, '_>,
    one: &super::objects::Path,
) -> Result<(Path, Option<String>), String> {
    let text = one.path.as_str();
    if place.is_regex {
        if text == "/" {
            return Ok((Path::Prefix("/".to_owned()), None));
        }
        let read = Searching::read(&format!("^{text}"), true, Subject::Path)?;
        read.compiled()?;
        if one.kind != Kind::Free {
            cx.ledger.changed(
                one.piece,
                "a pattern without case, whatever its pathType says: an Ingress of this host has use-regex or \
                 rewrite-target",
            );
        }
        let whole = read.whole();
        // Letters of the beginning may come in either case.
        return Ok((Path::Regex { whole: whole.clone(), start: "/".to_owned() }, Some(format!("~{whole}"))));
    }
    if let Some(why) = path::never_matches(text) {
        return Err(why.to_owned());
    }
    let plain = text.trim_end_matches('/');
    match one.kind {
        Kind::Exact => Ok((Path::Exact(path::canonical(text)), Some(path::exact(text)))),
        _ if plain.is_empty() => Ok((Path::Prefix("/".to_owned()), None)),
        Kind::Prefix => Ok((
            Path::Prefix(format!("{}/", path::canonical(plain))),
            Some(path::prefix(&format!("{plain}/"))),
        )),
        Kind::Free => {
            if text.ends_with('/') {
                cx.ledger.changed(
                    one.piece,
                    format!("`{plain}` goes to the Service too; nginx redirects it to `{text}`"),
                );
            }
            Ok((Path::Prefix(path::canonical(text)), Some(path::prefix(text))))
        }
    }
}

/// `www.x` redirects to `x`, or the other way round.
fn www(
    cx: &mut Cx<'_, '_>,
    ingress: &Ingress<'_>,
    host: &str,
    hosts: &HashSet<&str>,
    number: usize,
    piece: Piece,
) -> Option<Ranked> {
    if host.is_empty() || host.starts_with('*') {
        return None;
    }
    let from = host.strip_prefix("www.").map_or_else(|| format!("www.{host}"), str::to_owned);
    if hosts.contains(from.as_str()) {
        cx.ledger.changed(piece, format!("`{from}` has an Ingress of its own, so it is not redirected"));
        return None;
    }
    let has_tls = ingress.tls.iter().any(|(names, ..)| names.contains(&from));
    let scheme = if has_tls { "https" } else { "{scheme}" };
    let to = redirect(&format!("{scheme}://{host}{{path}}"), cx.defaults.redirect_status, true);
    let route = Route { file: name_of(host), filters: vec![to], ..Route::default() };
    let candidate =
        Candidate { hosts: host_of(&from), path: Path::Prefix("/".to_owned()), matches: Match::default() };
    let title = from.clone();
    let part = Part { rule: number, candidate, written: None, route, title, pieces: vec![piece] };
    Some(((2, 0, 0, 0, "/".to_owned(), 0), part))
}

/// The default backend of an Ingress: every host, every path.
fn default(
    cx: &mut Cx<'_, '_>,
    ingress: &Ingress<'_>,
    (own, server): (&Own, &Server),
    backend: &Backend,
    number: usize,
) -> Option<Ranked> {
    let target = match upstreams::upstream(cx, &ingress.namespace, backend, &own.upstream) {
        Ok(name) => Target::Upstream(name),
        Err(why) => {
            cx.ledger.refused(ingress.piece, why, "upstreams.NAME.endpoints");
            return None;
        }
    };
    let mut filters = own.traffic.before.clone();
    filters.extend(server.filters.iter().cloned());
    filters.extend(own.access.iter().cloned());
    filters.extend(own.traffic.behind.iter().cloned());
    let route = Route { file: "any-host".to_owned(), filters, target: Some(target), ..Route::default() };
    let candidate =
        Candidate { hosts: Vec::new(), path: Path::Prefix("/".to_owned()), matches: Match::default() };
    let title = format!("{}-{}-default", ingress.namespace, ingress.name);
    let part = Part { rule: number, candidate, written: None, route, title, pieces: vec![ingress.piece] };
    Some(((0, 0, 0, 0, String::new(), 0), part))
}

/// nginx never leaves the server that it chose by host: a path that this server lacks is 404, even if the server of a
/// wider host has it.
fn fallbacks(ranked: &mut Vec<Ranked>, mut number: usize) {
    let hosts = |part: &Part| part.candidate.hosts.clone();
    let has_wider = |host: &Host| {
        ranked.iter().any(|(_, part)| {
            let other = hosts(part);
            other.is_empty()
                || other.iter().any(|other| match (other, host) {
                    (Host::Suffix(ending), Host::Exact(name)) => name.ends_with(ending.as_str()),
                    (Host::Suffix(ending), Host::Suffix(own)) => {
                        own != ending && own.ends_with(ending.as_str())
                    }
                    _ => false,
                })
        })
    };
    let mut wanted: Vec<Host> = Vec::new();
    for host in ranked.iter().flat_map(|(_, part)| hosts(part)) {
        let is_whole = ranked.iter().any(|(_, part)| {
            part.candidate.path == Path::Prefix("/".to_owned())
                && part.candidate.matches.when.is_none()
                && part.candidate.hosts.contains(&host)
        });
        if !is_whole && !wanted.contains(&host) && has_wider(&host) {
            wanted.push(host);
        }
    }
    for host in wanted {
        number += 1;
        let name = host.to_string();
        let mut route = Route {
            file: name_of(&name),
            target: Some(Target::Respond(filters::respond(404, None, None))),
            ..Route::default()
        };
        route.comment.push(
            "nginx chooses by host first: other paths are 404 here, whatever other hosts have.".to_owned(),
        );
        let (class, length) = rank_of(std::slice::from_ref(&host));
        let candidate =
            Candidate { hosts: vec![host], path: Path::Prefix("/".to_owned()), matches: Match::default() };
        let title = format!("{name}-rest");
        let part = Part { rule: number, candidate, written: None, route, title, pieces: Vec::new() };
        ranked.push(((class, length, 0, 0, String::new(), 0), part));
    }
}

/// Hosts whose TLS ends at the Service.
fn passthrough(cx: &mut Cx<'_, '_>, ingresses: &[Ingress<'_>], own: &[Option<Own>]) {
    let mut sni = Map::new();
    for (ingress, own) in ingresses.iter().zip(own) {
        let Some((own, piece)) = own.as_ref().and_then(|own| Some((own, own.passthrough?))) else { continue };
        for rule in ingress.rules.iter().filter(|rule| !rule.host.is_empty()) {
            let Some(path) = rule.paths.iter().max_by_key(|path| Reverse(path.path.len())) else { continue };
            // Weir relays bytes here, so no setting of HTTP applies.
            let plain = Settings { uses_service: own.upstream.uses_service, ..Settings::default() };
            match upstreams::upstream(cx, &ingress.namespace, &path.backend, &plain) {
                Ok(name) => sni.set(rule.host.clone(), Map::new().with("upstream", name)),
                Err(why) => cx.ledger.refused(piece, why, "listeners.NAME.sni"),
            }
        }
        cx.ledger.changed(
            piece,
            "by the name in the handshake: listeners.https-port.sni; routes of the host serve cleartext",
        );
    }
    if sni.is_empty() {
        return;
    }
    let mut more = Map::new().with("sni", Value::Map(sni));
    let address = Some("0.0.0.0:443".to_owned());
    if let Some(https) = cx.config.listeners.get_mut("https") {
        https.address = None;
        more.set("otherwise", Map::new().with("listener", "https"));
    }
    cx.config.listeners.add("https-port", crate::config::Listener { address, more, ..Default::default() });
}
