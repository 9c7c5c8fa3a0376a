//! Routes in the order of another router, written as ours.
//!
//! A rule of another system may need several routes: its parts. [`write()`] keeps the order of all parts ([`order`]) and
//! writes those of one rule as one route again where nothing but their paths or listeners differs.

use super::order::{self, Candidate, Kept, Path};
use crate::config::{Case, Config, Route};
use crate::ledger::{Ledger, Piece};
use crate::yaml::Value;

/// How many rules of equal rank are looked at, to say that chance decides between two.
const MAX_TIES: usize = 1000;

/// A part of a rule.
pub struct Part {
    /// The rule that it is of. Its parts share name and pieces.
    pub rule: usize,
    /// What it matches.
    pub candidate: Candidate,
    /// The path as Weir writes it; none for any.
    pub written: Option<String>,
    /// The route without its `match` and priority.
    pub route: Route,
    /// The name of the rule.
    pub title: String,
    /// The statements that say which requests match.
    pub pieces: Vec<Piece>,
}

/// A part as it will be written.
struct Ready {
    rule: usize,
    /// Its path, by which paths of one route are compared.
    paths: Vec<Path>,
    written: Vec<Option<String>>,
    route: Route,
    /// The parts that became it.
    parts: Vec<usize>,
}

/// Writes `parts`, which are sorted: of two that match one request, the earlier must win. `system` is its title.
/// `is_tie` says whether two rules are equal in the other system, so that it decides by what no file says.
pub fn write(
    parts: Vec<Part>,
    system: &str,
    is_tie: impl Fn(usize, usize) -> bool,
    config: &mut Config,
    ledger: &mut Ledger,
) {
    let candidates: Vec<Candidate> = parts.iter().map(|part| part.candidate.clone()).collect();
    let kept = order::keep(&candidates);
    judge(&parts, &kept, system, &is_tie, ledger);
    let mut ready: Vec<Ready> = Vec::new();
    for (at, part) in parts.iter().enumerate() {
        if kept[at].covered_by.is_some() {
            continue;
        }
        let mut route = routed(at, &parts, &candidates, &kept[at], system);
        if let Some(by) = kept[at].unsolved {
            shut(&mut route, &unsolved(system, &parts[by].title));
        }
        ready.push(Ready {
            rule: part.rule,
            paths: vec![part.candidate.path.clone()],
            written: vec![part.written.clone()],
            route,
            parts: vec![at],
        });
    }
    let ready = join_paths(join_listeners(ready));
    let mut names: Vec<Option<String>> = vec![None; parts.len()];
    let mut in_order: Vec<Ready> = ready;
    in_order.sort_by_key(|one| one.rule);
    for one in in_order {
        let mut route = one.route;
        match &*one.written {
            [only] => route.matches.path.clone_from(only),
            several => {
                let paths: Vec<String> = several.iter().flatten().cloned().collect();
                route.matches.more.set("path", Value::from(paths));
            }
        }
        let title = one.parts.first().map_or("", |at| parts[*at].title.as_str());
        let pieces = one.parts.first().map_or_else(Vec::new, |at| parts[*at].pieces.clone());
        let name = config.add_route(title, route, pieces);
        one.parts.iter().for_each(|at| names[*at] = Some(name.clone()));
    }
    for (case, winner) in order::cases(&candidates) {
        let route = winner.map(|at| names[at].clone());
        if route != Some(None) {
            config.tests.push(Case { route: route.flatten(), ..case });
        }
    }
}

/// Says which rules have no route, and which are decided by chance.
fn judge(
    parts: &[Part],
    kept: &[Kept],
    system: &str,
    is_tie: &impl Fn(usize, usize) -> bool,
    ledger: &mut Ledger,
) {
    for (at, part) in parts.iter().enumerate() {
        let others = || parts.iter().zip(kept).filter(|(other, _)| other.rule == part.rule);
        if let Some(by) = kept[at].unsolved {
            let why = format!("{}. It answers 503", unsolved(system, &parts[by].title));
            part.pieces.iter().for_each(|p| ledger.refused(*p, why.clone(), "priority, or match.when"));
        }
        if let Some(by) = kept[at].covered_by.filter(|by| parts[*by].rule != part.rule)
            && others().all(|(_, kept)| kept.covered_by.is_some())
        {
            let why = format!(
                "not written, because {system} never uses it: `{}` takes all its requests",
                parts[by].title
            );
            part.pieces.iter().for_each(|p| ledger.changed(*p, why.clone()));
        }
        let same_rank =
            |other: &usize| is_tie(*other, at) && order::overlap(&parts[*other].candidate, &part.candidate);
        let before = (0..at)
            .rev()
            .take_while(|other| is_tie(*other, at) || parts[*other].rule == part.rule)
            .take(MAX_TIES);
        if let Some(by) = before.into_iter().find(same_rank).as_ref() {
            let why = format!(
                "{system} does not say which of equal rules wins; here `{}` comes before this one",
                parts[*by].title
            );
            part.pieces.iter().for_each(|p| ledger.changed(*p, why.clone()));
        }
    }
}

/// Why the order of a route cannot be kept.
pub fn unsolved(system: &str, by: &str) -> String {
    format!("too many routes stand before it in {system}'s order, `{by}` among them")
}

/// Closes a route whose place in the order cannot be kept: it may take requests of others, and what it protects must not
/// go to a route behind it. What it does is kept behind the filter.
pub fn hold(route: &mut Route, why: &str) {
    route.filters.insert(0, super::filters::closed(why));
}

/// Closes a route that Weir refuses, and takes away what it does.
pub fn shut(route: &mut Route, why: &str) {
    route.filters = vec![super::filters::closed(why)];
    route.target = None;
    route.more = crate::yaml::Map::new();
}

fn routed(at: usize, parts: &[Part], candidates: &[Candidate], kept: &Kept, system: &str) -> Route {
    let part = &parts[at];
    let mut route = part.route.clone();
    for not in &kept.nots {
        let comment = format!("{system} prefers `{}`, so its requests are left to it.", parts[*not].title);
        if parts[*not].rule != part.rule && !route.comment.contains(&comment) {
            route.comment.push(comment);
        }
    }
    route.priority = kept.priority;
    let more = std::mem::take(&mut route.matches.more);
    route.matches = part.candidate.matches.clone();
    route.matches.more = more;
    route.matches.hosts = part.candidate.hosts.iter().map(ToString::to_string).collect();
    route.matches.when = order::when(candidates, kept, at);
    route
}

/// Makes one route of those that differ in their listeners only.
fn join_listeners(all: Vec<Ready>) -> Vec<Ready> {
    let mut out: Vec<Ready> = Vec::new();
    for one in all {
        let same = out.iter_mut().find(|known| {
            let with = |route: &Route| {
                let mut route = route.clone();
                route.matches.listeners.clear();
                route
            };
            known.rule == one.rule && known.written == one.written && with(&known.route) == with(&one.route)
        });
        match same {
            Some(known) => {
                for listener in one.route.matches.listeners {
                    if !known.route.matches.listeners.contains(&listener) {
                        known.route.matches.listeners.push(listener);
                    }
                }
                known.parts.extend(one.parts);
            }
            None => out.push(one),
        }
    }
    out
}

/// Makes one route of those that differ in their paths only, unless one path could be matched by both.
fn join_paths(all: Vec<Ready>) -> Vec<Ready> {
    let mut out: Vec<Ready> = Vec::new();
    for one in all {
        let are_apart = |a: &Path, b: &Path| match (a, b) {
            (Path::Exact(a), Path::Exact(b)) => a != b,
            (Path::Prefix(a), Path::Prefix(b)) => !a.starts_with(b.as_str()) && !b.starts_with(a.as_str()),
            (Path::Exact(exact), Path::Prefix(prefix)) | (Path::Prefix(prefix), Path::Exact(exact)) => {
                !exact.starts_with(prefix.as_str())
            }
            _ => false,
        };
        let same = out.iter_mut().find(|known| {
            known.rule == one.rule
                && known.route == one.route
                && one.written.iter().chain(&known.written).all(Option::is_some)
                && known.paths.iter().all(|a| one.paths.iter().all(|b| are_apart(a, b)))
        });
        match same {
            Some(known) => {
                known.paths.extend(one.paths);
                known.written.extend(one.written);
                known.parts.extend(one.parts);
            }
            None => out.push(one),
        }
    }
    out
}
