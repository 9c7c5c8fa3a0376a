//! HTTP routers as routes, in Traefik's order: by priority, which is the length of the rule unless it is given.

use super::cx::{Cx, Kind, Thing, list, nothing_else};
use super::fixed::{Fixed, Tls, tls};
use super::listeners::Listeners;
use super::matches::{self, Matched, matched};
use super::middlewares::{self, About, Chain};
use super::paths;
use super::rule::{Syntax, branches, widest};
use super::services;
use crate::config::{Filter, Match, Route, Target, name_of};
use crate::ledger::Piece;
use crate::shared::filters::closed;
use crate::shared::order::{Candidate, Host, Path};
use crate::shared::ranked::{self, Part};
use crate::shared::tree::Fields;
use crate::yaml::Map;
use std::cmp::Reverse;

/// With more routers, all routes are in one file.
const MAX_FILES: usize = 50;

/// A router as read.
pub(super) struct Router<'t> {
    thing: Thing<'t>,
    syntax: Syntax,
    rule: Option<(String, Piece)>,
    priority: i64,
    middlewares: Vec<(String, Piece)>,
    service: Option<(String, Option<Piece>)>,
    /// The entry points that it names.
    pub(super) points: Option<(Vec<String>, Piece)>,
    pub(super) tls: Option<Tls>,
    /// The statement of `tls`.
    pub(super) tls_piece: Option<Piece>,
    /// The hosts of its rule, for certificates.
    pub(super) hosts: Vec<String>,
    matched: Vec<Matched>,
    /// Whether it has a rule.
    has_rule: bool,
    /// Why its routes are closed: its rule could not be read. They match at least the requests of the rule.
    closed: Option<String>,
}

impl Router<'_> {
    /// The statement that messages about its entry points point at: `entryPoints`, else its rule, else the router.
    pub(super) fn statement(&self) -> Piece {
        let named = self.points.as_ref().map(|(_, piece)| *piece);
        let own = || self.thing.container.map_or(self.thing.piece, |container| container.piece);
        named.or_else(|| self.rule.as_ref().map(|(_, piece)| *piece)).unwrap_or_else(own)
    }
}

/// Reads all routers.
pub(super) fn read<'t>(cx: &mut Cx<'t, '_>, fixed: &Fixed<'_>) -> Vec<Router<'t>> {
    let things = cx.things.of(Kind::Router).to_vec();
    things.into_iter().map(|thing| one(cx, thing, fixed)).collect()
}

fn one<'t>(cx: &mut Cx<'t, '_>, thing: Thing<'t>, fixed: &Fixed<'_>) -> Router<'t> {
    cx.ledger.same(thing.piece);
    let mut fields = Fields::in_any_case(thing.node);
    let mut syntax = cx.default_syntax;
    if let Some((text, piece)) = fields.text("ruleSyntax", cx.ledger) {
        cx.ledger.same(piece);
        syntax = if text == "v2" { Syntax::V2 } else { Syntax::V3 };
    }
    let rule = fields.text("rule", cx.ledger).or_else(|| default_rule(cx, &thing, fixed));
    let mut priority = rule.as_ref().map_or(0, |(rule, _)| i64::try_from(rule.len()).unwrap_or(i64::MAX));
    if let Some(entry) = fields.entry("priority") {
        match entry.node.as_text().and_then(|text| text.parse::<i64>().ok()) {
            Some(0) => cx.ledger.by_itself(entry.piece, "0 is the length of the rule"),
            Some(number) => {
                priority = number;
                cx.ledger.same(entry.piece);
            }
            None => cx.ledger.refused(entry.piece, "expected a whole number", "correct the source"),
        }
    }
    let middlewares = list(&mut fields, "middlewares", cx.ledger);
    let middlewares = middlewares.map_or_else(Vec::new, |(names, piece)| {
        cx.ledger.same(piece);
        names.into_iter().filter(|name| !name.is_empty()).map(|name| (name, piece)).collect()
    });
    let service = fields.text("service", cx.ledger).map(|(name, piece)| (name, Some(piece)));
    let service = service.or_else(|| implied(&thing, cx).map(|name| (name, None)));
    let points = list(&mut fields, "entryPoints", cx.ledger);
    let entry = fields.entry("tls");
    let own_tls = entry.and_then(|entry| tls(entry, cx.ledger));
    if let Some(entry) = fields.entry("observability") {
        entry.each_piece(&mut |piece| {
            cx.ledger.changed(piece, "access_log.when and tracing are for all routes")
        });
    }
    nothing_else(fields, "a router", cx.ledger);
    let mut router = Router {
        thing,
        syntax,
        rule,
        priority,
        middlewares,
        service,
        points,
        tls: own_tls,
        tls_piece: entry.map(|entry| entry.piece),
        hosts: Vec::new(),
        matched: Vec::new(),
        has_rule: true,
        closed: None,
    };
    rule_of(cx, &mut router);
    router
}

/// Reads the rule of a router.
fn rule_of(cx: &mut Cx<'_, '_>, router: &mut Router<'_>) {
    let Some((rule, piece)) = router.rule.clone() else {
        router.has_rule = false;
        let why = format!("router `{}` has no rule, so it is not written", router.thing.name);
        match router.thing.container {
            None => cx.ledger.refused(router.thing.piece, why, "rule: Host(`…`)"),
            Some(container) => cx.ledger.refused(
                container.piece,
                why,
                "the label traefik.http.routers.NAME.rule; weir import cannot know the container's name",
            ),
        }
        return;
    };
    let read = branches(&rule, router.syntax).and_then(|all| {
        let each: Result<Vec<Vec<Matched>>, String> =
            all.iter().map(|branch| matched(branch, router.syntax)).collect();
        Ok((all, each?))
    });
    match read {
        Ok((all, each)) => {
            cx.ledger.same(piece);
            router.matched = each.into_iter().flatten().collect();
            for why in router.matched.iter().flat_map(|matched| &matched.changed) {
                cx.ledger.changed(piece, why.clone());
            }
            let names = all.iter().flatten().filter(|one| one.name.starts_with("Host") && !one.is_negated);
            let names = names.filter(|one| matches!(one.name.as_str(), "Host" | "HostHeader"));
            for name in names.flat_map(|one| one.values.iter().flatten()) {
                let name = name.to_ascii_lowercase();
                if !router.hosts.contains(&name) {
                    router.hosts.push(name);
                }
            }
            let is_hostless = all.len() > 1
                && !router.hosts.is_empty()
                && router.matched.iter().any(|matched| matched.candidate.hosts.is_empty());
            if is_hostless {
                cx.ledger.changed(
                    piece,
                    "taken as it is: an alternative without a Host matches requests for every host",
                );
            }
        }
        Err(why) => {
            router.matched = widest(&rule).iter().flat_map(|branch| matches::widest(branch)).collect();
            let names = router.matched.iter().flat_map(|matched| &matched.candidate.hosts);
            router.hosts = names
                .filter_map(|host| match host {
                    Host::Exact(name) => Some(name.clone()),
                    Host::Suffix(_) => None,
                })
                .collect();
            let what = match router.matched.iter().any(|matched| matched.is_everything()) {
                true => "all requests of its entry points",
                false => "all requests that the rest of the rule matches",
            };
            cx.ledger.refused(
                piece,
                format!("{why}. The router may protect what it matches, so {what} get 503 from its place on"),
                "correct the rule and import again; or write the match by hand: docs/reference/routing.md",
            );
            router.closed = Some(format!("the rule of router {} was not understood", router.thing.name));
        }
    }
}

/// The rule of a container without one, if it is simple enough.
fn default_rule(cx: &mut Cx<'_, '_>, thing: &Thing<'_>, fixed: &Fixed<'_>) -> Option<(String, Piece)> {
    let container = thing.container?;
    let (rule, _) = fixed.default_rule.as_ref()?;
    let name = container.name.to_ascii_lowercase().replace(['_', '.', '/'], "-");
    let mut out = rule.clone();
    // Compose names a container by project, service and number; the template usually names the service alone.
    for pattern in [
        "{{ index .Labels \"com.docker.compose.service\" }}",
        "{{index .Labels \"com.docker.compose.service\"}}",
    ] {
        out = out.replace(pattern, &name);
    }
    if out.contains("{{") {
        return None;
    }
    cx.ledger.changed(container.piece, "the default rule, with the service's name");
    Some((out, container.piece))
}

/// The service that a router of labels has without naming it.
fn implied(thing: &Thing<'_>, cx: &Cx<'_, '_>) -> Option<String> {
    let container = thing.container?;
    let is_his = |other: &&Thing<'_>| other.container.is_some_and(|own| std::ptr::eq(own, container));
    let mut his = cx.things.of(Kind::Service).iter().filter(is_his);
    let first = his.next()?;
    his.next().is_none().then(|| first.name.clone())
}

/// Writes the routes of all routers.
pub(super) fn write(cx: &mut Cx<'_, '_>, fixed: &Fixed<'_>, listeners: &Listeners, routers: &[Router<'_>]) {
    let mut ranked: Vec<(i64, usize, bool, Part)> = Vec::new();
    for (at, router) in routers.iter().enumerate() {
        if !router.has_rule {
            for (_, piece) in &router.middlewares {
                cx.ledger.refused(*piece, "the router is not written", "correct its rule");
            }
            if let Some((_, Some(piece))) = router.service {
                cx.ledger.refused(piece, "the router is not written", "correct its rule");
            }
            continue;
        }
        for (is_apart, part) in parts(cx, fixed, listeners, routers.len(), at, router) {
            ranked.push((router.priority, at, !is_apart, part));
        }
    }
    for (at, point) in fixed.points.iter().enumerate() {
        let Some(redirect) = &point.redirect else { continue };
        let rank = redirect.priority.unwrap_or(i64::MAX);
        ranked.extend(
            redirection(cx, fixed, listeners, routers.len() + at, at).map(|part| (rank, 0, true, part)),
        );
    }
    // The greatest priority first. Of one router first what Weir would take first, so that nothing else is needed.
    ranked.sort_by_key(|(priority, at, is_usual, part)| {
        (Reverse(*priority), *at, *is_usual, Reverse(specific(&part.candidate)))
    });
    let ranks: Vec<i64> = ranked.iter().map(|(priority, ..)| *priority).collect();
    let rules: Vec<usize> = ranked.iter().map(|(.., part)| part.rule).collect();
    let parts = ranked.into_iter().map(|(.., part)| part).collect();
    let is_tie = |a: usize, b: usize| ranks[a] == ranks[b] && rules[a] != rules[b];
    ranked::write(parts, "Traefik", is_tie, cx.config, cx.ledger);
}

/// How specific Weir finds a match, roughly.
fn specific(candidate: &Candidate) -> (bool, bool, usize, usize) {
    let is_exact_host = candidate.hosts.iter().all(|host| matches!(host, Host::Exact(_)));
    let (kind, length) = match &candidate.path {
        Path::Exact(path) => (2, path.len()),
        Path::Regex { start, .. } => (1, start.len()),
        Path::Prefix(path) => (0, path.len()),
    };
    (!candidate.hosts.is_empty() && is_exact_host, !candidate.hosts.is_empty(), kind, length)
}

/// The parts of a router: each alternative of its rule, on each class of listeners; and whether it is for the paths
/// that a pattern of a middleware finds.
fn parts(
    cx: &mut Cx<'_, '_>,
    fixed: &Fixed<'_>,
    listeners: &Listeners,
    count: usize,
    at: usize,
    router: &Router<'_>,
) -> Vec<(bool, Part)> {
    let mut out = Vec::new();
    let name = &router.thing.name;
    let file = if count <= MAX_FILES { name_of(name) } else { "routes".to_owned() };
    let pieces: Vec<Piece> = router.rule.iter().map(|(_, piece)| *piece).collect();
    let classes = listeners.classes_of(at);
    if classes.is_empty() {
        for (_, piece) in &router.middlewares {
            cx.ledger.changed(*piece, "of a router that is not written");
        }
        if let Some((_, Some(piece))) = router.service {
            cx.ledger.changed(piece, "of a router that is not written");
        }
        return out;
    }
    for class in classes {
        let is_tls = listeners.is_tls(&class);
        let all_named = router.matched.iter().all(|matched| {
            !matched.candidate.hosts.is_empty()
                && matched.candidate.hosts.iter().all(|host| matches!(host, Host::Exact(_)))
        });
        let hosts = if all_named { router.hosts.clone() } else { Vec::new() };
        let about = About { is_tls, hosts };
        let mut chain = Chain::default();
        if let Some(why) = router.closed.as_deref().or_else(|| listeners.closed(at)) {
            chain.filters.push(closed(why));
        }
        for point in fixed.points.iter().filter(|point| class.contains(&name_of(&point.name))) {
            for (name, piece) in &point.middlewares {
                middlewares::add(cx, name, "file", *piece, &about, &mut chain, 0);
            }
        }
        for (name, piece) in &router.middlewares {
            middlewares::add(cx, name, router.thing.provider, *piece, &about, &mut chain, 0);
        }
        let (target, behind) = target(cx, router, &mut chain);
        // A trusted proxy may say that its client uses TLS: such a request is not redirected.
        let trusts = cx.config.more.get("trusted_proxies").is_some();
        let route = |filters: Vec<Filter>| {
            let mut filters = filters;
            filters.extend(behind.iter().cloned());
            // Browsers ask without credentials first, so cors stands before what asks for them.
            filters.sort_by_key(|filter| filter.name != "cors");
            let answered = middlewares::answer_all(&filters)
                || !is_tls && !trusts && filters.iter().any(|filter| filter.name == "redirect");
            let target = target.clone().filter(|_| !answered);
            Route { file: file.clone(), filters, target, ..Route::default() }
        };
        let listed = if listeners.is_one_class() { Vec::new() } else { class.clone() };
        let usual = route(chain.filters.clone());
        for matched in &router.matched {
            let mut candidate = matched.candidate.clone();
            candidate.matches.listeners.clone_from(&listed);
            let part = |candidate, written, route| Part {
                rule: at,
                candidate,
                written,
                route,
                title: name.clone(),
                pieces: pieces.clone(),
            };
            if let Some(apart) = &chain.apart {
                let mut filters = chain.filters.clone();
                let behind = filters.split_off(apart.at.min(filters.len()));
                filters.extend(apart.filters.iter().cloned());
                filters.extend(behind);
                let found = match &candidate.path {
                    Path::Exact(exact) => Some(apart.finds(exact)),
                    _ => None,
                };
                if found != Some(false) {
                    let (candidate, written) = narrowed(&candidate, apart);
                    out.push((true, part(candidate, written, route(filters))));
                }
                if found == Some(true) {
                    continue;
                }
            }
            out.push((false, part(candidate, matched.written.clone(), usual.clone())));
        }
    }
    out
}

/// The paths of a candidate that a pattern finds.
fn narrowed(candidate: &Candidate, apart: &paths::Apart) -> (Candidate, Option<String>) {
    let mut candidate = candidate.clone();
    let is = match &candidate.path {
        Path::Prefix(prefix) if apart.start.starts_with(prefix.as_str()) => None,
        Path::Prefix(prefix) => Some(format!("request.path.startsWith({})", quoted(prefix))),
        Path::Exact(exact) => Some(format!("request.path == {}", quoted(exact))),
        Path::Regex { whole, .. } => {
            Some(format!("request.path.matches({})", quoted(&format!("^(?:{whole})$"))))
        }
    };
    if let Some(is) = is {
        candidate.matches.when = Some(match candidate.matches.when.take() {
            None => is,
            Some(when) => format!("({when}) && {is}"),
        });
    }
    candidate.path = Path::Regex { whole: apart.path.clone(), start: apart.start.clone() };
    (candidate, Some(format!("~{}", apart.path)))
}

fn quoted(text: &str) -> String {
    crate::shared::expression::Expression::text(text).as_str().to_owned()
}

/// What answers the requests of a router, and the filters of its service.
fn target(cx: &mut Cx<'_, '_>, router: &Router<'_>, chain: &mut Chain) -> (Option<Target>, Vec<Filter>) {
    let respond = |status: u16| Some(Target::Respond(Map::new().with("status", status)));
    let Some((name, piece)) = &router.service else {
        let why = format!("router `{}` has no service", router.thing.name);
        if !middlewares::answer_all(&chain.filters) {
            cx.ledger.refused(
                router.thing.container.map_or(router.thing.piece, |container| container.piece),
                why.clone(),
                "upstreams, and `upstream` of the route",
            );
            chain.filters.push(closed(&why));
        }
        return (None, Vec::new());
    };
    if let Some(internal) = name.strip_suffix("@internal") {
        let piece = piece.unwrap_or(router.thing.piece);
        return match internal {
            "noop" => {
                cx.ledger.same(piece);
                (respond(418), Vec::new())
            }
            "api" | "dashboard" => {
                cx.ledger.changed(
                    piece,
                    "Traefik's dashboard is gone; Weir's console is on the admin listener, 127.0.0.1:9180",
                );
                (respond(404), Vec::new())
            }
            "ping" => {
                cx.ledger.same(piece);
                (Some(Target::Respond(Map::new().with("status", 200_u16).with("body", "OK"))), Vec::new())
            }
            _ => {
                cx.ledger.refused(
                    piece,
                    format!("Weir has no service `{name}`"),
                    "the admin listener: /metrics",
                );
                (respond(404), Vec::new())
            }
        };
    }
    match services::served(cx, name, router.thing.provider, chain.retry.as_ref(), 0) {
        Ok(served) => {
            piece.iter().for_each(|piece| cx.ledger.same(*piece));
            (Some(served.target), served.filters)
        }
        Err(why) => {
            let piece = piece
                .or(router.thing.container.map(|container| container.piece))
                .unwrap_or(router.thing.piece);
            cx.ledger.refused(piece, why.clone(), "upstreams, and `upstream` of the route");
            chain.filters.push(closed(&why));
            (None, Vec::new())
        }
    }
}

/// The route of an entry point that redirects all its requests.
fn redirection(
    cx: &mut Cx<'_, '_>,
    fixed: &Fixed<'_>,
    listeners: &Listeners,
    rule: usize,
    at: usize,
) -> Option<Part> {
    let point = &fixed.points[at];
    let redirect = point.redirect.as_ref()?;
    let target = fixed.points.iter().find(|point| point.name == redirect.to);
    let port = match target {
        Some(target) => target.address.rsplit(':').next().unwrap_or_default().to_owned(),
        None => redirect.to.trim_start_matches(':').to_owned(),
    };
    if port.parse::<u16>().is_err() {
        cx.ledger.refused(redirect.piece, format!("`{}` is no entry point", redirect.to), "redirect: { to }");
        return None;
    }
    cx.ledger.changed(redirect.piece, paths::STATUS);
    let listener = name_of(&point.name);
    let class = vec![listener];
    let filters = paths::to_scheme(
        &redirect.scheme,
        &port,
        paths::status(redirect.is_permanent),
        listeners.is_tls(&class),
    );
    if filters.is_empty() {
        return None;
    }
    let not_found = Target::Respond(Map::new().with("status", 404_u16));
    let trusts = cx.config.more.get("trusted_proxies").is_some();
    let target = (trusts && !middlewares::answer_all(&filters)).then_some(not_found);
    let listed = if listeners.is_one_class() { Vec::new() } else { class };
    let matches = Match { listeners: listed, ..Match::default() };
    let candidate = Candidate { hosts: Vec::new(), path: Path::Prefix("/".to_owned()), matches };
    Some(Part {
        rule,
        candidate,
        written: None,
        route: Route { file: "redirects".to_owned(), filters, target, ..Route::default() },
        title: format!("{}-to-{}", point.name, redirect.to.trim_start_matches(':')),
        pieces: vec![redirect.piece],
    })
}
