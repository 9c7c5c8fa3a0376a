//! The routes of one server: of its locations, of paths that a `rewrite` sends elsewhere, and of folders.
//!
//! ```text
//! end to end      exact locations, `/p` of `location /p/`
//! ~regex          SERVER + n   what the server does before it searches a location
//!                 BEFORE       exact paths that could not be written otherwise
//!                 NESTED, n…   regex locations: file order, see `location`; between two of them the rewrites of one
//! best prefix     0, STOPS     or below, so that the regexes of its own rewrites win
//! ```
//! Weir compares conditions before priorities, so a regex with `when` would beat one that has a higher priority and no
//! `when`. [`level`] gives the latter a condition that is always met.

use super::action::{Action, Reached, action};
use super::context::Cx;
use super::fields::response_fields;
use super::location::{Kind, Location, find, flatten};
use super::rewrite::{Answer, Apart, Rewritten, Search, leads_to, run};
use super::server::Server;
use super::site::Site;
use super::translate::leave_all;
use crate::config::{Filter, Match, Route, Target};
use crate::ledger::Piece;
use crate::shared::expression::Expression;
use crate::shared::filters::redirect;
use crate::shared::path;
use crate::shared::regex::{Searching, literal};
use crate::yaml::Map;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Priority of what a server does before it searches for a location.
const SERVER: i64 = 200_000;
/// Priority of an exact path that is written as a regex.
const BEFORE: i64 = 100_000;
/// What a refused `rewrite` can become.
const NEW_PATH: &str = "rewrite: { replace } of a route with the upstream of the new path";
/// Most paths of one route: more are hard to read.
const MAX_PATHS: usize = 50;

/// A route that is not yet in the config, with what is decided over all of them.
#[derive(Clone)]
pub(super) struct Draft {
    pub(super) route: Route,
    pub(super) name: String,
    pub(super) body: Option<u64>,
    pub(super) is_proxied: bool,
    /// The statements that it was made from.
    pub(super) pieces: Vec<Piece>,
}

/// The routes of a server by their slugs, and its locations for the tests.
#[derive(Default)]
pub(super) struct Made<'a> {
    pub(super) drafts: Vec<(String, Draft)>,
    /// Where the draft of a slug is.
    slugs: HashMap<String, usize>,
    pub(super) locations: Vec<Location<'a>>,
    /// The slug of each location's route, by its place in `locations`.
    pub(super) of_location: BTreeMap<usize, String>,
    /// The slug of the route for exactly this path.
    pub(super) of_path: BTreeMap<String, String>,
    /// Whether routes of their own take some paths.
    pub(super) has_apart: bool,
    /// The priority of the next route for a rewrite of a prefix: 0 and below.
    next_apart: i64,
}

pub(super) fn routes<'a>(cx: &mut Cx<'a, '_>, server: &Server<'a>) -> Made<'a> {
    let mut site = Site { server, locations: Vec::new(), set: BTreeMap::new() };
    let mut scope = site.outer(&server.block);
    let own = server.block.all().to_vec();
    let before = run(cx, &site, &mut scope, &own, None);
    site.set.clone_from(&scope.set);
    let mut made = Made::default();
    if before.answer.is_none() || before.apart.iter().any(|one| matches!(one.does, Answer::Search(_))) {
        site.locations = flatten(cx, &server.block);
    }
    server_first(cx, &site, &before, &mut made);
    if let Some(answer) = &before.answer {
        if matches!(answer, Answer::Search(_)) {
            site.locations = flatten(cx, &server.block);
        }
        let mut filters: Vec<Filter> = response_fields(cx, &scope, false).into_iter().collect();
        filters.extend(before.filters.clone());
        let draft = match answer {
            Answer::Search(search) => match found_one(cx, &site, search, &before.filters, None) {
                Ok(action) => of_action("/*".to_owned(), 0, action),
                Err(why) => {
                    let lines = own.iter().filter(|line| line.name == "rewrite");
                    lines
                        .for_each(|line| cx.ledger.refused(line.piece, why.clone(), "upstream of one route"));
                    closed_draft("/*".to_owned(), 0, why)
                }
            },
            answer => {
                let target = answer_of(answer.clone(), &mut filters);
                draft("/*".to_owned(), 0, filters, target)
            }
        };
        let mut draft = draft;
        close(&mut draft.route, &before.closed);
        add(&mut made, "root", draft);
        for location in server.block.own("location") {
            let why = "no request comes so far: the server answers all with `return` or one `rewrite`";
            if !cx.ledger.is_judged(location.piece) {
                cx.ledger.left_out(location.piece, why);
            }
            leave_all(cx, location, why);
        }
        level(&mut made);
        return made;
    }
    let mut seen = BTreeSet::new();
    for at in 0..site.locations.len() {
        let location = &site.locations[at];
        if matches!(location.kind, Kind::Named(_)) {
            continue;
        }
        if let Some(prefix) = location.is_never_asked(&site.locations)
            && let Some(directive) = location.directive
        {
            let why =
                format!("nginx never asks this regex: `^~ {prefix}` takes all paths that it could match");
            cx.ledger.changed(directive.piece, why);
            leave_all(cx, directive, "it stands in a location that nginx never asks");
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
        let done = action(cx, &site, location, Reached::ByClients);
        let slug = emit(cx, &site, location, done, &before, &mut made);
        made.of_location.insert(at, slug);
    }
    folders(&site, &before, &mut made);
    made.locations = site.locations;
    yield_to_server(&before, &mut made);
    level(&mut made);
    merge(&mut made);
    made
}

/// Routes for the paths that the server itself sends elsewhere.
fn server_first<'a>(cx: &mut Cx<'a, '_>, site: &Site<'_, 'a>, before: &Rewritten, made: &mut Made<'a>) {
    let mut drafts = Vec::new();
    for apart in &before.apart {
        let path = match &apart.pattern {
            Some(pattern) => format!("~{}", pattern.whole()),
            None => "~.*".to_owned(),
        };
        let when = apart.when.as_ref();
        let mut add = |mut draft: Draft, is: Option<Expression>| {
            draft.route.matches.when = is.map(|is| is.as_str().to_owned());
            close(&mut draft.route, &before.closed);
            drafts.push(draft);
        };
        match &apart.does {
            Answer::Search(search) => match found(cx, site, search, &apart.before, None) {
                Ok(actions) => {
                    for (pattern, action) in actions {
                        let is = pattern
                            .map(|pattern| Expression::raw("request.path").matches(&pattern.searching()));
                        let is = match (when, is) {
                            (Some(when), Some(is)) => Some(when.clone().and(is)),
                            (when, is) => when.cloned().or(is),
                        };
                        add(of_action(path.clone(), 0, action), is);
                    }
                }
                Err(why) => {
                    cx.ledger.refused(apart.piece, why.clone(), NEW_PATH);
                    add(closed_draft(path, 0, why), when.cloned());
                }
            },
            answer => {
                let mut filters = apart.before.clone();
                let target = answer_of(answer.clone(), &mut filters);
                add(draft(path, 0, filters, target), when.cloned());
            }
        }
    }
    let count = i64::try_from(drafts.len()).unwrap_or(0);
    for (mut draft, at) in drafts.into_iter().zip(0..) {
        draft.route.priority = SERVER + count - at;
        add(made, "rewrite", draft);
        made.has_apart = true;
    }
}

/// What the locations do with requests that a `rewrite` sends to them, each with what the old path must match.
fn found<'a>(
    cx: &mut Cx<'a, '_>,
    site: &Site<'_, 'a>,
    search: &Search,
    before: &[Filter],
    own: Option<&Location<'a>>,
) -> Result<Vec<(Option<Searching>, Action)>, String> {
    let mut actions = Vec::new();
    for (pattern, location) in leads_to(site, &search.path, own)? {
        let mut action = action(cx, site, location, Reached::ByRewrite);
        let at = action.rewrite_at.min(action.filters.len());
        let first: Vec<Filter> = before.iter().chain(&search.filters).cloned().collect();
        action.filters.splice(at..at, first);
        actions.push((pattern.cloned(), action));
    }
    Ok(actions)
}

/// The same for a `rewrite` whose requests all go to one location.
fn found_one<'a>(
    cx: &mut Cx<'a, '_>,
    site: &Site<'_, 'a>,
    search: &Search,
    before: &[Filter],
    own: Option<&Location<'a>>,
) -> Result<Action, String> {
    let mut actions = found(cx, site, search, before, own)?;
    match actions.pop() {
        Some((None, action)) if actions.is_empty() => Ok(action),
        _ => Err("several locations take the new paths".to_owned()),
    }
}

/// A route that does what a location does.
fn of_action(path: String, priority: i64, action: Action) -> Draft {
    let mut draft = draft(path, priority, action.filters, action.target);
    draft.body = action.body;
    draft.is_proxied = action.body.is_some()
        || matches!(draft.route.target, Some(Target::Upstream(_) | Target::FastCgi { .. }));
    draft.route.comment = action.comment;
    close(&mut draft.route, &action.closed);
    if draft.route.target.is_none() && !answers(&draft.route) {
        draft.route.target = Some(Target::Respond(Map::new().with("status", 404_u16)));
    }
    draft
}

fn answer_of(answer: Answer, filters: &mut Vec<Filter>) -> Option<Target> {
    match answer {
        Answer::Redirect(filter) => {
            filters.push(filter);
            None
        }
        Answer::Respond(map) => Some(Target::Respond(map)),
        Answer::Search(_) => Some(Target::Respond(Map::new().with("status", 503_u16))),
    }
}

fn draft(path: String, priority: i64, filters: Vec<Filter>, target: Option<Target>) -> Draft {
    let matches = Match { path: (path != "/*").then_some(path), ..Match::default() };
    let route = Route { matches, priority, filters, target, ..Route::default() };
    Draft { route, name: String::new(), body: None, is_proxied: false, pieces: Vec::new() }
}

/// A route that answers 503, because nobody knows where its requests must go.
fn closed_draft(path: String, priority: i64, why: String) -> Draft {
    let mut closed = draft(path, priority, Vec::new(), None);
    close(&mut closed.route, &[why]);
    closed
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
    mut done: Action,
    before: &Rewritten,
    made: &mut Made<'a>,
) -> String {
    if let Some((search, early)) = done.search.take() {
        match found_one(cx, site, &search, &early, Some(location)) {
            Ok(action) => done = action,
            Err(why) => {
                let lines = location.block.own("rewrite");
                lines.iter().for_each(|line| {
                    cx.ledger.refused(line.piece, why.clone(), "the upstream of the new path");
                });
                done.closed.push(why);
            }
        }
    }
    let mut filters = before.filters.clone();
    filters.append(&mut done.filters);
    let base = location.priority(&site.locations);
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
            (path, None, base)
        }
        Kind::Regex { pattern, within, .. } => {
            let (path, when) = regex_path(&pattern.whole(), &pattern.literal_start(), within.as_ref());
            (path, when, base)
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
    draft.pieces.extend(location.directive.map(|directive| directive.piece));
    let closed: Vec<String> = before.closed.iter().chain(&done.closed).cloned().collect();
    beside(cx, site, location, &mut draft, &done.apart, before, made);
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

/// Routes for the requests of a location that a `rewrite` sends elsewhere.
///
/// They take no request of another location: below a prefix not those of longer prefixes and of regexes, below a regex
/// only those that it takes.
fn beside<'a>(
    cx: &mut Cx<'a, '_>,
    site: &Site<'_, 'a>,
    location: &Location<'a>,
    own: &mut Draft,
    apart: &[Apart],
    before: &Rewritten,
    made: &mut Made<'a>,
) {
    let base = own.route.priority;
    for (count, one) in apart.iter().enumerate() {
        if let (Some(pattern), Kind::Prefix { path, .. }) = (&one.pattern, &location.kind)
            && is_beside(pattern, path)
        {
            cx.ledger.changed(one.piece, "its pattern matches no path of the location");
            continue;
        }
        let (path, is) = match &one.pattern {
            None => (own.route.matches.path.clone(), own.route.matches.when.clone().map(Expression::raw)),
            Some(pattern) => {
                let (path, is) =
                    regex_path(&pattern.whole(), &pattern.literal_start(), inside(site, location).as_ref());
                let is = is.map(Expression::raw);
                let is = match &location.kind {
                    Kind::Regex { pattern, .. } => {
                        let own = Expression::raw("request.path").matches(&pattern.searching());
                        Some(is.map_or_else(|| own.clone(), |is| own.clone().and(is)))
                    }
                    _ => is,
                };
                (Some(path), is)
            }
        };
        let is = match (&one.when, is) {
            (Some(when), Some(is)) => Some(when.clone().and(is)),
            (when, is) => when.clone().or(is),
        };
        let priority = match (&one.pattern, &location.kind) {
            (None, _) => base,
            (Some(_), Kind::Regex { .. }) => base + i64::try_from(apart.len() - count).unwrap_or(0),
            (Some(_), _) => {
                let priority = base + made.next_apart;
                made.next_apart -= 1;
                own.route.priority = own.route.priority.min(priority);
                priority
            }
        };
        let all_before: Vec<Filter> = before.filters.iter().chain(&one.before).cloned().collect();
        let mut draft = match &one.does {
            Answer::Search(search) => match found_one(cx, site, search, &all_before, Some(location)) {
                Ok(action) => of_action(String::new(), priority, action),
                // The location's own upstream must not get requests that nginx sends elsewhere.
                Err(why) => {
                    cx.ledger.refused(one.piece, why.clone(), NEW_PATH);
                    closed_draft(String::new(), priority, why)
                }
            },
            answer => {
                let kept = |filter: &&Filter| matches!(filter.name, "headers" | "errors");
                let mut filters: Vec<Filter> = own.route.filters.iter().filter(kept).cloned().collect();
                // A guard that stands before it, of the server and of the location, comes first.
                filters.extend(all_before);
                let target = answer_of(answer.clone(), &mut filters);
                draft(String::new(), priority, filters, target)
            }
        };
        draft.route.matches.path = path;
        draft.route.matches.when = is.map(|is| is.as_str().to_owned());
        close(&mut draft.route, &before.closed);
        made.has_apart = true;
        add(made, &format!("{}-rewrite", location.slug), draft);
    }
}

/// Whether a pattern can match no path with this prefix.
fn is_beside(pattern: &Searching, prefix: &str) -> bool {
    let (start, prefix) = (pattern.literal_start(), path::canonical(prefix));
    !pattern.ignores_case() && !start.starts_with(&*prefix) && !prefix.starts_with(&*start)
}

/// The paths of a location that a regex may be asked about: its prefix, and longer ones whose paths are not its own.
fn inside(site: &Site<'_, '_>, location: &Location<'_>) -> Option<(String, Vec<String>)> {
    match &location.kind {
        Kind::Prefix { path, .. } => {
            let holes = site.locations.iter().filter_map(|other| match &other.kind {
                Kind::Prefix { path: longer, .. }
                    if longer.len() > path.len() && longer.starts_with(&**path) =>
                {
                    Some(longer.clone())
                }
                _ => None,
            });
            Some((path.clone(), holes.collect()))
        }
        Kind::Regex { within, .. } => within.clone(),
        Kind::Exact(_) | Kind::Named(_) => None,
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
    let starts = |prefix: &str| Expression::raw("request.path").starts_with(&path::canonical(prefix));
    let mut is = Expression::constant(true);
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
pub(super) fn close(route: &mut Route, closed: &[String]) {
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
fn folders<'a>(site: &Site<'_, 'a>, before: &Rewritten, made: &mut Made<'a>) {
    let exact: BTreeSet<&str> = site
        .locations
        .iter()
        .filter_map(|location| match &location.kind {
            Kind::Exact(path) => Some(&**path),
            _ => None,
        })
        .collect();
    let mut more: Vec<(String, String, Draft)> = Vec::new();
    let mut alike: Vec<(String, String)> = Vec::new();
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
        // nginx looks at `internal` before it redirects to `/p/`, and only a location that passes on redirects.
        if passes && location.block.one("internal").is_some() {
            let mut route = own_draft.route.clone();
            route.matches.path = Some(path::exact(folder));
            let draft = Draft { route, ..own_draft.clone() };
            more.push((folder.to_owned(), format!("{}-folder", location.slug), draft));
            continue;
        }
        if passes {
            let to = redirect(&path::canonical(prefix), 301, true);
            let filters = before.filters.iter().cloned().chain([to]).collect();
            let mut draft = draft(path::exact(folder), 0, filters, None);
            close(&mut draft.route, &before.closed);
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
            alike.push((folder.to_owned(), own.clone()));
            continue;
        }
        let mut route = other.route.clone();
        route.matches.path = Some(path::exact(folder));
        route.matches.when = None;
        route.priority = 0;
        route.comment = vec![format!("{prefix} does not take {folder}.")];
        let draft = Draft { route, name: String::new(), ..other.clone() };
        more.push((folder.to_owned(), format!("{}-folder", location.slug), draft));
    }
    made.of_path.extend(alike);
    for (folder, slug, draft) in more {
        let slug = add(made, &slug, draft);
        made.of_path.insert(folder, slug);
    }
}

/// Rewrites of the server beat its exact paths too, but Weir would try exact paths first. So those become regexes.
fn yield_to_server(before: &Rewritten, made: &mut Made<'_>) {
    let patterns: Vec<&Searching> = before.apart.iter().filter_map(|one| one.pattern.as_ref()).collect();
    let takes_all = before.apart.iter().any(|one| one.pattern.is_none());
    let compiled: Vec<_> = patterns.iter().filter_map(|pattern| pattern.compiled().ok()).collect();
    let mut next = BEFORE;
    for (_, draft) in &mut made.drafts {
        let Some(path) = &draft.route.matches.path else { continue };
        let is_exact = !path.starts_with('~') && !path.ends_with('*');
        if is_exact && (takes_all || compiled.iter().any(|pattern| pattern.is_match(path.as_bytes()))) {
            // Weir does not see that two regexes exclude each other, so each has its own.
            draft.route.priority = next;
            next += 1;
            draft.route.matches.path = Some(format!("~{}", literal(path)));
        }
    }
}

/// Gives a regex a condition if another one of lower priority has one, which would win otherwise.
fn level(made: &mut Made<'_>) {
    let is_regex =
        |draft: &Draft| draft.route.matches.path.as_ref().is_some_and(|path| path.starts_with('~'));
    let regexes = || made.drafts.iter().map(|(_, draft)| draft).filter(|draft| is_regex(draft));
    let lowest = regexes().filter(|draft| draft.route.matches.when.is_some()).map(|d| d.route.priority).min();
    let Some(lowest) = lowest else { return };
    for (_, draft) in &mut made.drafts {
        if is_regex(draft) && draft.route.matches.when.is_none() && draft.route.priority > lowest {
            let is = Expression::raw("request.path").starts_with("/");
            draft.route.matches.when = Some(is.as_str().to_owned());
            let why = "Its condition is always met: so its priority decides against routes that have one.";
            draft.route.comment.push(why.to_owned());
        }
    }
}

/// Routes that differ by their path alone become one with a list of paths. Each path competes on its own, so no
/// request takes another way. Regexes stay alone: their captures may differ.
fn merge(made: &mut Made<'_>) {
    let mut kept: Vec<(String, Draft)> = Vec::new();
    let mut renamed: HashMap<String, String> = HashMap::new();
    let mut known: HashMap<String, usize> = HashMap::new();
    for (slug, draft) in std::mem::take(&mut made.drafts) {
        let path = draft.route.matches.path.clone().unwrap_or_else(|| "/*".to_owned());
        if path.starts_with('~') || path == "/*" {
            kept.push((slug, draft));
            continue;
        }
        let mut alike = draft.route.clone();
        alike.matches.path = None;
        let key = format!("{alike:?} {:?} {}", draft.body, draft.is_proxied);
        let into = known.get(&key).and_then(|at| kept.get_mut(*at));
        match into {
            Some((into, other)) if 1 + other.route.matches.more_paths.len() < MAX_PATHS => {
                other.route.matches.more_paths.push(path);
                renamed.insert(slug, into.clone());
            }
            _ => {
                known.insert(key, kept.len());
                kept.push((slug, draft));
            }
        }
    }
    made.drafts = kept;
    made.slugs = made.drafts.iter().enumerate().map(|(at, (slug, _))| (slug.clone(), at)).collect();
    for slug in made.of_location.values_mut().chain(made.of_path.values_mut()) {
        if let Some(into) = renamed.get(slug) {
            slug.clone_from(into);
        }
    }
}
