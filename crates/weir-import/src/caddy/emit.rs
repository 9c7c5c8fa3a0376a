//! Ways through Caddy's routes as routes of Weir.

mod answer;
mod path;

use super::flow::{Branch, Out, closed_filter};
use super::model::{Op, Ops};
use super::path::{Holds, Known};
use super::world::{Now, Step, What, World};
use crate::config::{Config, Filter, Match, Route, Target};
use crate::ledger::{Ledger, Piece};
use crate::shared::expression::Expression;
use crate::shared::filters::when;
use crate::shared::order::{self, Candidate, Host};
use crate::shared::regex::literal;
use crate::yaml::{Map, Value};
use answer::{answer_fields, answered, names};
use path::{candidate_path, file_of, host_of, name_of, path_of};

/// What all routes of a server share.
pub(super) struct Around<'a> {
    pub(super) ledger: &'a mut Ledger,
    pub(super) config: &'a mut Config,
    /// The listeners that the routes belong to, if the config has others.
    pub(super) listeners: Vec<String>,
    /// The pages for errors of each site, by its hosts.
    pub(super) pages: &'a [(Vec<String>, Map)],
    /// A name for routes of any host.
    pub(super) name: String,
}

/// A route with what keeps its order.
struct Made {
    route: Route,
    candidate: Candidate,
    /// The whole condition, for routes that must leave its requests to it.
    asked: Expression,
    name: String,
    piece: Option<Piece>,
}

/// Adds the routes of a server.
pub(super) fn emit(branches: Vec<Branch>, around: &mut Around<'_>) {
    let branches = with_files(branches, around.ledger);
    let mut made: Vec<Made> = branches.into_iter().filter_map(|branch| one(branch, around)).collect();
    let candidates: Vec<Candidate> = made.iter().map(|made| made.candidate.clone()).collect();
    let kept = order::keep(&candidates);
    let mut names: Vec<Option<String>> = vec![None; made.len()];
    let mut merged: Vec<Option<usize>> = vec![None; made.len()];
    for at in 0..made.len() {
        if kept[at].covered_by.is_some() {
            continue;
        }
        if kept[at].unsolved.is_some() {
            let why = "its place in Caddy's order cannot be kept among so many routes";
            let nearest = "`priority`, and `weir explain` for the requests that matter";
            match made[at].piece {
                Some(piece) => around.ledger.refused(piece, format!("{why}. It answers 503"), nearest),
                None => around.ledger.note(format!("{}: {why}. It answers 503", made[at].name)),
            }
            crate::shared::ranked::hold(&mut made[at].route, why);
        }
        let mut not = Expression::constant(true);
        for winner in &kept[at].nots {
            not = not.and(relative(&made[*winner], &made[at]).not());
        }
        let route = &mut made[at].route;
        route.priority = kept[at].priority;
        if not.as_constant().is_none() {
            let own = route
                .matches
                .when
                .take()
                .map_or_else(|| Expression::constant(true), |own| Expression::raw(format!("({own})")));
            route.matches.when = Some(not.and(own).as_str().to_owned());
        }
    }
    // Routes that differ in nothing but their paths are one.
    for at in 0..made.len() {
        if kept[at].covered_by.is_some() || made[at].route.matches.path.is_none() {
            continue;
        }
        let twin = (at.saturating_sub(8)..at).rev().find(|other| {
            kept[*other].covered_by.is_none()
                && merged[*other].is_none()
                && is_twin(&made[*other].route, &made[at].route)
        });
        merged[at] = twin;
    }
    for at in 0..made.len() {
        if kept[at].covered_by.is_some() || merged[at].is_some() {
            continue;
        }
        let mut route = made[at].route.clone();
        let more = (at + 1..made.len()).filter(|other| merged[*other] == Some(at));
        let mut paths: Vec<String> =
            more.filter_map(|other| made[other].route.matches.path.clone()).collect();
        if !paths.is_empty()
            && let Some(own) = route.matches.path.take()
        {
            paths.insert(0, own);
            let rest = std::mem::take(&mut route.matches.more);
            route.matches.more.set("path", paths);
            rest.iter().for_each(|(key, value)| route.matches.more.set(key, value.clone()));
        }
        route.matches.listeners.clone_from(&around.listeners);
        let pieces = made[at].piece.into_iter().collect();
        names[at] = Some(around.config.add_route(&made[at].name, route, pieces));
    }
    for at in 0..made.len() {
        if let Some(into) = merged[at] {
            names[at] = names[into].clone();
        }
    }
    tests(&candidates, &names, around);
}

fn is_twin(one: &Route, other: &Route) -> bool {
    let is_regex = |route: &Route| route.matches.path.as_ref().is_some_and(|path| path.starts_with('~'));
    let same = |route: &Route| Route {
        matches: Match { path: None, ..route.matches.clone() },
        comment: Vec::new(),
        ..route.clone()
    };
    !is_regex(one)
        && !is_regex(other)
        && other.comment == one.comment
        && same(one) == same(other)
        && !one.filters.iter().any(|filter| format!("{:?}", filter.settings).contains("{rest}"))
}

fn tests(candidates: &[Candidate], names: &[Option<String>], around: &mut Around<'_>) {
    let listener = around
        .listeners
        .first()
        .cloned()
        .or_else(|| around.config.listeners.iter().next().map(|(name, _)| name.to_owned()));
    for (mut case, winner) in order::cases(candidates) {
        let Some(name) = winner.and_then(|winner| names[winner].clone()) else { continue };
        case.route = Some(name);
        case.listener.clone_from(&listener);
        if case.url.contains([crate::yaml::VARIABLE_BEGIN, ' ', '*', '"']) || !case.url.is_ascii() {
            continue;
        }
        if !around.config.tests.contains(&case) {
            around.config.tests.push(case);
        }
    }
}

/// The condition of `winner`, without what a request of `loser` meets anyway.
fn relative(winner: &Made, loser: &Made) -> Expression {
    let hosts = |made: &Made| made.candidate.hosts.clone();
    if hosts(winner) == hosts(loser) || hosts(winner).is_empty() {
        return winner.asked.clone();
    }
    let host = || Expression::raw("request.host");
    let any = winner.candidate.hosts.iter().fold(Expression::constant(false), |any, one| {
        any.or(match one {
            Host::Exact(name) => host().equals(Expression::text(name)),
            Host::Suffix(end) => host().ends_with(end),
        })
    });
    any.and(winner.asked.clone())
}

/// A branch that a file decides, with its other half: `files` with `missing`.
fn with_files(branches: Vec<Branch>, ledger: &mut Ledger) -> Vec<Branch> {
    let mut out: Vec<Branch> = Vec::new();
    let mut branches = branches.into_iter().peekable();
    while let Some(mut branch) = branches.next() {
        let Some((test, exists)) = branch.world.file.take() else {
            out.push(branch);
            continue;
        };
        let same = |other: &Branch| {
            other
                .world
                .file
                .as_ref()
                .is_some_and(|(known, there)| known.tries == test.tries && *there != exists)
                && other.world.path == branch.world.path
                && other.world.hosts == branch.world.hosts
                && other.world.when == branch.world.when
                && other.world.methods == branch.world.methods
        };
        let plain = test.tries.iter().all(|tried| {
            matches!(
                &**tried,
                "{path}"
                    | "{http.request.uri.path}"
                    | "{path}/"
                    | "{http.request.uri.path}/"
                    | "{path}/index.html"
                    | "{http.request.uri.path}/index.html"
            )
        });
        if plain && branches.peek().is_some_and(same) {
            let mut other = branches.next().expect("it was seen");
            other.world.file = None;
            let (found, missing) = if exists { (branch, other) } else { (other, branch) };
            match (&found.out, &missing.out) {
                (Out::Files(files), Out::Upstream { name, response }) => {
                    let mut files = files.clone();
                    files.set("missing", name.clone());
                    let asks_folders =
                        test.tries.iter().any(|tried| tried.ends_with('/') || tried.ends_with(".html"));
                    if let Some(piece) = found.piece.filter(|_| !asks_folders) {
                        ledger.changed(
                            piece,
                            "a folder with an index file is served, which Caddy leaves to the proxy",
                        );
                    }
                    let mut world = missing.world.clone();
                    if world.steps != found.world.steps {
                        for piece in found.piece.into_iter().chain(missing.piece) {
                            let why = "one route serves the files and the rest, with the filters of the rest";
                            ledger.changed(piece, why);
                        }
                    }
                    world.pieces.extend(found.world.pieces.iter().copied());
                    if !response.is_empty() {
                        let ops = Ops { response: response.clone(), is_deferred: true, ..Ops::default() };
                        world.steps.push(Step { sets: Vec::new(), now: Now::Same, what: What::Answer(ops) });
                    }
                    out.push(Branch { world, out: Out::Files(files), piece: missing.piece });
                }
                (a, b) if a == b => out.push(missing),
                _ => {
                    let why = "Weir does not choose between these two by whether a file exists".to_owned();
                    for piece in found.piece.into_iter().chain(missing.piece) {
                        ledger.refused(piece, why.clone(), "`files` with `missing`");
                    }
                    out.push(Branch { out: Out::Closed(why), ..missing });
                }
            }
            continue;
        }
        let why = format!(
            "whether the file `{}` exists decides, and that Weir asks only in `files`",
            test.tries.join("`, `")
        );
        if let Some(piece) = branch.piece.iter().chain(&branch.world.pieces).next() {
            ledger.refused(*piece, why.clone(), "`files` with `missing` or `fallback`");
        }
        branch.out = Out::Closed(why);
        out.push(branch);
    }
    out
}

fn one(branch: Branch, around: &mut Around<'_>) -> Option<Made> {
    let Branch { world, out, piece } = branch;
    let mut route = Route { file: file_of(&world, &around.name), ..Route::default() };
    let mut asked = Expression::constant(true);
    let (path, comment) = match path_of(&world.path) {
        Ok(found) => found,
        Err(why) => {
            // No request that Weir takes has such a path.
            if let Some(piece) = piece {
                around.ledger.changed(piece, why);
            }
            return None;
        }
    };
    route.comment.extend(comment);
    if let Known::Exact(path) = &world.path
        && world.folders.contains(path)
    {
        route.comment.push(format!("{path}/* of Caddy does not take {path}."));
    }
    let matches = &mut route.matches;
    for host in &world.hosts {
        if host.starts_with("*.") {
            around.ledger.note("`*.example.com` of Caddy takes one label before the dot, Weir's one or more");
        }
        matches.hosts.push(host.clone());
    }
    if let Some(path) = &path {
        matches.path = Some(path.clone());
        let has_letters = path.contains(|c: char| c.is_ascii_alphabetic());
        if !path.starts_with('~') && has_letters {
            matches.more.set("case", "insensitive");
        }
    }
    asked = asked.and(match &world.path {
        Known::Any => Expression::constant(true),
        Known::Exact(path) => super::path::Pattern::Exact(path.clone()).expression(),
        Known::Prefix(start) => super::path::Pattern::Prefix(start.clone()).expression(),
        Known::Regex { whole, .. } => Expression::raw("request.path").matches(&format!("^(?:{whole})$")),
    });
    if let Some(methods) = &world.methods {
        matches.methods.clone_from(methods);
        asked = asked.and(Expression::raw("request.method").is_in(methods.iter().map(String::as_str)));
    }
    matches.headers.clone_from(&world.headers);
    matches.query.clone_from(&world.query);
    for (variable, pairs) in [("request.headers", &world.headers), ("request.args", &world.query)] {
        for (name, _) in pairs {
            let has = format!("has({})", Expression::of(variable, name).as_str());
            asked = asked.and(Expression::raw(has));
        }
    }
    let is = world.when.iter().cloned().fold(Expression::constant(true), Expression::and);
    if is.as_constant() == Some(false) {
        return None;
    }
    asked = asked.and(is.clone());
    matches.when = is.as_constant().is_none().then(|| is.as_str().to_owned());
    let candidate = Candidate {
        hosts: world.hosts.iter().map(|host| host_of(host)).collect(),
        path: candidate_path(&world.path),
        matches: route.matches.clone(),
    };
    target(&mut route, &world, out, piece, around);
    let wish = name_of(&world, &around.name);
    Some(Made { route, candidate, asked, name: wish, piece })
}

/// Filters and target of a route.
fn target(route: &mut Route, world: &World, out: Out, piece: Option<Piece>, around: &mut Around<'_>) {
    let is_proxied = matches!(out, Out::Upstream { .. } | Out::FastCgi { .. });
    let is_for =
        |hosts: &Vec<String>| hosts.is_empty() || world.hosts.iter().all(|host| hosts.contains(host));
    if let Some((_, pages)) = around.pages.iter().find(|(hosts, _)| is_for(hosts)) {
        let mut pages = pages.clone();
        if matches!(out, Out::Error(_)) {
            pages.set("upstream", vec!["4xx", "5xx"]);
        }
        route.filters.push(Filter::new("errors", pages));
    }
    let mut down: Vec<Op> = Vec::new();
    let mut target_filter = None;
    match out {
        Out::Nothing => {
            let host_note = "Caddy answers 200 without a body where nothing else does.";
            route.comment.push(host_note.to_owned());
            route.target = Some(Target::Respond(Map::new()));
        }
        Out::Respond(answer) => target_filter = answered(route, &answer, world, piece, around),
        Out::Error(status) => {
            route.target =
                Some(Target::Respond(Map::new().with("status", status.parse().unwrap_or(500_u16))));
        }
        Out::Abort => route.target = Some(Target::Respond(Map::new().with("status", 403_u16))),
        Out::Upstream { name, response } => {
            down = response;
            route.target = Some(Target::Upstream(name));
        }
        Out::Files(map) => route.target = Some(Target::Files(map)),
        Out::FastCgi { name, fastcgi, files, response } => {
            down = response;
            let files = files.map(|files| files.with("missing", name.clone()));
            route.target = Some(Target::FastCgi { upstream: name, fastcgi, files });
        }
        Out::Closed(why) => {
            route.filters.push(closed_filter(&why));
            route.target = Some(Target::Respond(Map::new().with("status", 503_u16)));
        }
    }
    route.filters.extend(answer_fields(world, &down, is_proxied, piece, around));
    let steps = world.steps.iter().filter(|step| !matches!(step.what, What::Answer(_)));
    for step in steps {
        let (list, is_path) = match &step.what {
            What::Filters(list) => (list.clone(), false),
            What::Path(filter) => (vec![filter.clone()], true),
            What::Answer(_) => continue,
        };
        let list = if is_path { rest(list, route, world) } else { list };
        if is_path
            && !matches!(route.target, Some(Target::Upstream(_) | Target::Files(_) | Target::FastCgi { .. }))
        {
            continue;
        }
        route.filters.extend(under(step, list, world));
    }
    route.filters.extend(target_filter);
}

/// `strip_prefix` as Caddy does it, which ignores case: as a capture where the route's path is the prefix, or else by a
/// regular expression.
fn rest(list: Vec<Filter>, route: &mut Route, world: &World) -> Vec<Filter> {
    let [filter] = &*list else { return list };
    let Value::Map(map) = &filter.settings else { return list };
    let Some(Value::Text(prefix)) = map.get("strip_prefix") else { return list };
    if !prefix.contains(|c: char| c.is_ascii_alphabetic()) {
        return list;
    }
    let start = format!("{prefix}/");
    let is_prefix = matches!(&world.path, Known::Prefix(known) if *known == start);
    if !is_prefix || route.matches.path.as_deref() != Some(&*format!("{start}*")) {
        let pattern = format!("(?i)^{}(?:/|$)", literal(prefix));
        return vec![Filter::new("rewrite", Map::new().with("replace", Map::new().with(pattern, "/")))];
    }
    route.matches.path = Some(format!("{start}{{rest*}}"));
    vec![Filter::new("rewrite", Map::new().with("path", "/{rest}"))]
}

/// Filters of a step, under its condition.
fn under(step: &Step, list: Vec<Filter>, world: &World) -> Vec<Filter> {
    match world.any(&step.sets, &step.now) {
        Holds::Always => list,
        Holds::Never => Vec::new(),
        Holds::Maybe => match world.expression(&step.sets, &step.now, true) {
            Ok(is) => when(&is, list, Vec::new()),
            // It was refused when the step was made.
            Err(_) => Vec::new(),
        },
    }
}

/// Whether two filters change other fields, so that one can do it.
fn merges(one: &Filter, other: &Filter) -> bool {
    match (names(one), names(other)) {
        (Some(one), Some(other)) => !one.iter().any(|name| other.contains(name)),
        _ => false,
    }
}

fn merge(into: &mut Filter, other: &Filter) {
    let (Value::Map(map), Value::Map(more)) = (&mut into.settings, &other.settings) else { return };
    let Some(Value::Map(more)) = more.get("response") else { return };
    let response = map.map_mut("response");
    for (key, value) in more.iter() {
        match (response.get(key).cloned(), value) {
            (Some(Value::Map(mut known)), Value::Map(fields)) => {
                fields.iter().for_each(|(name, value)| known.set(name, value.clone()));
                response.set(key, known);
            }
            (Some(Value::List(mut known)), Value::List(list)) => {
                known.extend(list.iter().cloned());
                response.set(key, Value::List(known));
            }
            (_, value) => response.set(key, value.clone()),
        }
    }
}
