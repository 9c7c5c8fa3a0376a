//! Keeps another router's order of precedence.
//!
//! Each route comes with its rank in the other system: of two that match one request, the greater rank wins there.
//! Weir decides by host, path, conditions, expression and priority (docs/reference/routing.md). For each pair that
//! may
//! match one request, [`keep`] finds out whether Weir decides alike. If not, a `priority` settles it where Weir asks
//! for one; elsewhere the loser gets the winner's conditions, negated. So no order is lost, whatever the two rules
//! are.
//!
//! Whether two routes may match one request is decided on the safe side: for two regexes mostly yes.

mod overlap;

pub(super) use overlap::overlap;

use super::expression::Expression;
use crate::config::{Case, Match};
use overlap::{beginning, covers, hosts_cover, hosts_overlap, path_covers};
use std::collections::BTreeMap;
use std::fmt;

/// Most conditions of other routes that one route is given. More are refused: nobody could read them.
const MAX_NOTS: usize = 16;
/// Most pairs of routes that may match one request and are compared.
const MAX_PAIRS: usize = 4_000_000;
/// Most routes that tests are made for.
const MAX_CASES: usize = 200;
/// Rounds after which no new negation may appear. Each makes the next need fewer.
const MAX_ROUNDS: usize = 12;

/// A route whose order is kept.
///
/// Of two routes that may match one request, either both name the same listeners or one names none: no expression
/// says by which listener a request came, so a condition could not tell them apart.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// Hosts; empty for any.
    pub hosts: Vec<Host>,
    /// The path.
    pub path: Path,
    /// What else it matches: methods, headers, query, listeners, `when`.
    pub matches: Match,
}

/// A host that a route matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Host {
    /// This name.
    Exact(String),
    /// Every name that ends so: `.example.com`.
    Suffix(String),
}

/// As Weir writes it.
impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(name) => f.write_str(name),
            Self::Suffix(ending) => write!(f, "*{ending}"),
        }
    }
}

/// A path that a route matches, in canonical form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Path {
    /// From end to end.
    Exact(String),
    /// Every path that begins with these bytes.
    Prefix(String),
    /// The whole path, by a regex that begins with this text.
    Regex {
        /// As Weir writes it, without `~`.
        whole: String,
        /// The text that every match begins with.
        start: String,
    },
}

/// What keeps the order of a route.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// Its priority.
    pub priority: i64,
    /// The routes whose requests it must leave to them, by index.
    pub nots: Vec<usize>,
    /// The route that takes all its requests, by index.
    pub covered_by: Option<usize>,
    /// A route before which Weir would use this one although it must not, by index: nothing keeps their order.
    pub unsolved: Option<usize>,
}

/// How Weir decides between two routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Decided {
    /// By a rule before priority: the first of the two wins.
    First,
    /// The second wins.
    Second,
    /// It depends on the request.
    Both,
    /// By priority; if those are equal the first wins.
    PriorityFirst,
    /// By priority; if those are equal the second wins.
    PrioritySecond,
    /// By priority; if those are equal nothing decides.
    PriorityOnly,
}

/// Finds what keeps the order of `routes`, which are sorted: of two that match one request, the earlier must win.
#[must_use]
pub fn keep(routes: &[Candidate]) -> Vec<Kept> {
    let mut kept = vec![Kept::default(); routes.len()];
    let mut pairs: Vec<(usize, usize)> = Vec::new();
    // Two paths may overlap only if one's beginning begins with the other's: those are neighbours in sorted order.
    let mut by_beginning: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (at, route) in routes.iter().enumerate() {
        by_beginning.entry(beginning(&route.path)).or_default().push(at);
    }
    for (loser, route) in routes.iter().enumerate() {
        let start = beginning(&route.path);
        let shorter = (0..start.len()).filter_map(|end| by_beginning.get(start.get(..end)?));
        let longer =
            by_beginning.range(start..).take_while(|(other, _)| other.starts_with(start)).map(|(_, all)| all);
        let mut near: Vec<usize> =
            shorter.chain(longer).flat_map(|all| all.iter().copied().take_while(|at| *at < loser)).collect();
        near.sort_unstable();
        for winner in near {
            let other = &routes[winner];
            if kept[winner].covered_by.is_some() || !overlap(other, route) {
                continue;
            }
            if covers(other, route) {
                kept[loser].covered_by = Some(winner);
                break;
            }
            if pairs.len() >= MAX_PAIRS {
                kept[loser].unsolved = Some(winner);
                break;
            }
            pairs.push((winner, loser));
        }
    }
    pairs.retain(|(_, loser)| kept[*loser].covered_by.is_none());
    for round in 0..MAX_ROUNDS {
        let has_when: Vec<bool> = routes
            .iter()
            .zip(&kept)
            .map(|(route, kept)| route.matches.when.is_some() || !kept.nots.is_empty())
            .collect();
        let mut groups = Groups::new(routes.len());
        let mut is_new = false;
        pairs.retain(|&(winner, loser)| {
            let decided = decide(&routes[winner], &routes[loser], has_when[winner], has_when[loser]);
            match decided {
                Decided::First => {}
                Decided::PriorityFirst => groups.join(winner, loser, false),
                Decided::PriorityOnly => groups.join(winner, loser, true),
                Decided::Second | Decided::PrioritySecond | Decided::Both
                    if kept[loser].nots.len() >= MAX_NOTS =>
                {
                    kept[loser].unsolved.get_or_insert(winner);
                }
                Decided::Second | Decided::PrioritySecond | Decided::Both => {
                    is_new = true;
                    kept[loser].nots.push(winner);
                    return false;
                }
            }
            true
        });
        if !is_new || round + 1 == MAX_ROUNDS {
            groups.number(&mut kept);
            break;
        }
    }
    kept
}

/// The `when` of a route: its own, and none of the conditions of the routes that must get its requests first.
#[must_use]
pub fn when(routes: &[Candidate], kept: &Kept, at: usize) -> Option<String> {
    let own = routes[at].matches.when.clone();
    let mut when = own.map_or_else(|| Expression::constant(true), Expression::whole);
    for not in &kept.nots {
        when = when.and(condition(&routes[*not], &routes[at]).not());
    }
    (when.as_constant() != Some(true)).then(|| when.as_str().to_owned())
}

/// The condition under which `winner` matches a request that `loser` matches: what `loser` says itself is left out.
#[must_use]
pub fn condition(winner: &Candidate, loser: &Candidate) -> Expression {
    let mut all = Expression::constant(true);
    if !hosts_cover(&winner.hosts, &loser.hosts) {
        let host = || Expression::raw("request.host");
        let exact: Vec<&str> = winner
            .hosts
            .iter()
            .filter_map(|host| match host {
                Host::Exact(name) => Some(&**name),
                Host::Suffix(_) => None,
            })
            .collect();
        let mut any = Expression::constant(false);
        match &*exact {
            [] => {}
            [name] => any = any.or(host().equals(Expression::text(name))),
            names => any = any.or(host().is_in(names.iter().copied())),
        }
        for ending in &winner.hosts {
            if let Host::Suffix(ending) = ending {
                any = any.or(host().ends_with(ending));
            }
        }
        all = all.and(any);
    }
    if !path_covers(&winner.path, &loser.path) {
        let path = Expression::raw("request.path");
        all = all.and(match &winner.path {
            Path::Exact(exact) => path.equals(Expression::text(exact)),
            Path::Prefix(prefix) => path.starts_with(prefix),
            Path::Regex { whole, .. } => path.matches(&format!("^(?:{whole})$")),
        });
    }
    let methods = &winner.matches.methods;
    let says_methods = !loser.matches.methods.is_empty()
        && loser.matches.methods.iter().all(|method| methods.contains(method));
    if !methods.is_empty() && !says_methods {
        all = all.and(Expression::raw("request.method").is_in(methods.iter().map(String::as_str)));
    }
    for (name, pattern) in &winner.matches.headers {
        if !loser.matches.headers.contains(&(name.clone(), pattern.clone())) {
            all = all.and(field("request.headers", name, pattern));
        }
    }
    for (name, pattern) in &winner.matches.query {
        if !loser.matches.query.contains(&(name.clone(), pattern.clone())) {
            all = all.and(field("request.args", name, pattern));
        }
    }
    match &winner.matches.when {
        Some(when) if loser.matches.when.as_ref() != Some(when) => all.and(Expression::whole(when)),
        _ => all,
    }
}

/// Requests for the tests of a config, each with the route that must take it: for each route one at its path, one
/// below it and one with more text. Where an expression or a regex must be evaluated to know the winner, there is
/// none.
#[must_use]
pub fn cases(routes: &[Candidate]) -> Vec<(Case, Option<usize>)> {
    let mut cases = Vec::new();
    for route in routes.iter().take(MAX_CASES) {
        let host = match route.hosts.first() {
            None => "unknown.test".to_owned(),
            Some(Host::Exact(name)) => name.clone(),
            Some(Host::Suffix(ending)) => format!("any{ending}"),
        };
        let start = beginning(&route.path);
        if matches!(route.path, Path::Regex { .. }) || !route.matches.query.is_empty() {
            continue;
        }
        let method = route.matches.methods.first().map_or("GET", String::as_str);
        let headers = route.matches.headers.clone();
        if headers.iter().any(|(_, value)| value.starts_with('~')) {
            continue;
        }
        let endings: &[&str] = match (&route.path, start.ends_with('/')) {
            // `//` would be one slash again.
            (Path::Exact(_), true) => &[""],
            (Path::Exact(_), false) => &["", "/"],
            (_, true) => &["", "x"],
            (_, false) => &["", "/x", "x"],
        };
        for ending in endings {
            let path = format!("{start}{ending}");
            let listener = route.matches.listeners.first();
            if let Some(winner) = winner(routes, listener, &host, &path, method, &headers) {
                let headers = headers.iter().map(|(name, value)| {
                    (name.clone(), if value == "*" { "x".to_owned() } else { value.clone() })
                });
                let case = Case {
                    method: method.to_owned(),
                    url: format!("http://{host}{path}"),
                    headers: headers.collect(),
                    listener: listener.cloned(),
                    route: None,
                };
                if !cases.iter().any(|(known, _)| *known == case) {
                    cases.push((case, winner));
                }
            }
        }
    }
    cases
}

/// The first route that matches; none if that is not known without evaluating something.
fn winner(
    routes: &[Candidate],
    listener: Option<&String>,
    host: &str,
    path: &str,
    method: &str,
    headers: &[(String, String)],
) -> Option<Option<usize>> {
    let host = Host::Exact(host.to_owned());
    for (at, route) in routes.iter().enumerate() {
        let fits = (route.hosts.is_empty()
            || route.hosts.iter().any(|own| hosts_overlap(Some(own), Some(&host))))
            && (route.matches.methods.is_empty() || route.matches.methods.iter().any(|own| own == method))
            && (route.matches.listeners.is_empty()
                || listener.is_some_and(|listener| route.matches.listeners.contains(listener)));
        let may =
            fits && match &route.path {
                Path::Exact(exact) => exact == path,
                Path::Prefix(prefix) => path.starts_with(prefix.as_str()),
                Path::Regex { start, .. } => path.starts_with(start.as_str()),
            } && route.matches.headers.iter().all(|(name, _)| headers.iter().any(|(known, _)| known == name));
        if !may {
            continue;
        }
        let is_known = !matches!(route.path, Path::Regex { .. })
            && route.matches.when.is_none()
            && route.matches.query.is_empty()
            && route.matches.headers.iter().all(|pair| headers.contains(pair));
        return is_known.then_some(Some(at));
    }
    Some(None)
}

fn field(variable: &str, name: &str, pattern: &str) -> Expression {
    let value = Expression::of(variable, name);
    match pattern.strip_prefix('~') {
        _ if pattern == "*" => Expression::raw(format!("has({})", value.as_str())),
        Some(regex) => value.matches(&format!("^(?:{regex})$")),
        None => value.equals(Expression::text(pattern)),
    }
}

fn decide(first: &Candidate, second: &Candidate, first_when: bool, second_when: bool) -> Decided {
    let mut all: Option<Decided> = None;
    let any = [None];
    let hosts = |route: &'_ Candidate| -> Vec<Option<Host>> {
        if route.hosts.is_empty() { any.to_vec() } else { route.hosts.iter().cloned().map(Some).collect() }
    };
    let rest = decide_path(first, second, first_when, second_when);
    for one in &hosts(first) {
        for other in hosts(second).iter().filter(|other| hosts_overlap(one.as_ref(), other.as_ref())) {
            let decided = match weight(one.as_ref()).cmp(&weight(other.as_ref())) {
                std::cmp::Ordering::Greater => Decided::First,
                std::cmp::Ordering::Less => Decided::Second,
                std::cmp::Ordering::Equal => rest,
            };
            all = Some(match all {
                None => decided,
                Some(before) if before == decided => decided,
                // One by an earlier rule and one by priority: both must come to the same.
                Some(Decided::First) if is_priority(decided) => decided,
                Some(before) if is_priority(before) && decided == Decided::First => before,
                Some(_) => Decided::Both,
            });
        }
    }
    all.unwrap_or(Decided::First)
}

const fn is_priority(decided: Decided) -> bool {
    matches!(decided, Decided::PriorityFirst | Decided::PrioritySecond | Decided::PriorityOnly)
}

fn decide_path(first: &Candidate, second: &Candidate, first_when: bool, second_when: bool) -> Decided {
    let by_path = match (&first.path, &second.path) {
        (Path::Exact(_), Path::Exact(_)) | (Path::Regex { .. }, Path::Regex { .. }) => {
            std::cmp::Ordering::Equal
        }
        (Path::Exact(_), _) => std::cmp::Ordering::Greater,
        (_, Path::Exact(_)) => std::cmp::Ordering::Less,
        (Path::Prefix(one), Path::Prefix(other)) => one.len().cmp(&other.len()),
        (Path::Regex { .. }, Path::Prefix(_)) => return Decided::PriorityFirst,
        (Path::Prefix(_), Path::Regex { .. }) => return Decided::PrioritySecond,
    };
    let conditions = |route: &Candidate| {
        let matches = &route.matches;
        usize::from(!matches.methods.is_empty())
            + usize::from(!matches.listeners.is_empty())
            + matches.headers.len()
            + matches.query.len()
    };
    let order = by_path
        .then_with(|| conditions(first).cmp(&conditions(second)))
        .then_with(|| first_when.cmp(&second_when));
    match order {
        std::cmp::Ordering::Greater => Decided::First,
        std::cmp::Ordering::Less => Decided::Second,
        std::cmp::Ordering::Equal => Decided::PriorityOnly,
    }
}

/// How specific a host is, as Weir compares them.
fn weight(host: Option<&Host>) -> (u8, usize) {
    match host {
        Some(Host::Exact(_)) => (2, 0),
        Some(Host::Suffix(ending)) => (1, ending.len()),
        None => (0, 0),
    }
}

/// Routes whose priorities depend on one another.
struct Groups {
    parents: Vec<usize>,
    /// Whether equal priorities would decide wrongly somewhere in the group.
    needed: Vec<bool>,
}

impl Groups {
    fn new(count: usize) -> Self {
        Self { parents: (0..count).collect(), needed: vec![false; count] }
    }

    fn root(&mut self, mut at: usize) -> usize {
        while self.parents[at] != at {
            self.parents[at] = self.parents[self.parents[at]];
            at = self.parents[at];
        }
        at
    }

    fn join(&mut self, one: usize, other: usize, is_needed: bool) {
        let (one, other) = (self.root(one), self.root(other));
        self.needed[one] |= is_needed || self.needed[other];
        self.parents[other] = one;
    }

    /// Numbers each group that needs it, from its last route up.
    fn number(&mut self, kept: &mut [Kept]) {
        let mut next = vec![0_i64; kept.len()];
        for at in (0..kept.len()).rev() {
            let root = self.root(at);
            if self.needed[root] {
                kept[at].priority = next[root];
                next[root] += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(host: &str, path: &str, methods: &[&str]) -> Candidate {
        let hosts = match host.strip_prefix('*') {
            _ if host.is_empty() => Vec::new(),
            Some(ending) => vec![Host::Suffix(ending.to_owned())],
            None => vec![Host::Exact(host.to_owned())],
        };
        let path = match path.strip_prefix('~') {
            Some(whole) => {
                let start = whole.split(['.', '[', '(']).next().unwrap_or_default().to_owned();
                Path::Regex { whole: whole.to_owned(), start }
            }
            None => match path.strip_suffix('*') {
                Some(prefix) => Path::Prefix(prefix.to_owned()),
                None => Path::Exact(path.to_owned()),
            },
        };
        let methods = methods.iter().map(|method| (*method).to_owned()).collect();
        Candidate { hosts, path, matches: Match { methods, ..Match::default() } }
    }

    /// The priority of each route, and its negated conditions.
    fn kept(routes: &[Candidate]) -> Vec<(i64, String)> {
        let nots = |at: usize, kept: &Kept| {
            let nots = kept.nots.iter().map(|not| condition(&routes[*not], &routes[at]).not());
            nots.fold(Expression::constant(true), Expression::and).as_str().to_owned()
        };
        keep(routes).iter().enumerate().map(|(at, kept)| (kept.priority, nots(at, kept))).collect()
    }

    #[test]
    fn what_weir_decides_alike_needs_nothing() {
        let routes =
            [route("a.test", "/x/y*", &[]), route("a.test", "/x*", &["GET"]), route("", "/x*", &["GET"])];
        assert!(kept(&routes).iter().all(|kept| *kept == (0, "true".to_owned())));
    }

    #[test]
    fn a_shorter_prefix_that_wins_is_excluded_from_the_longer() {
        let routes = [route("", "/x*", &["GET"]), route("", "/x/y*", &[])];
        assert_eq!(kept(&routes)[1], (0, "!(request.method in [\"GET\"])".to_owned()));
    }

    #[test]
    fn a_path_that_beats_a_host_is_excluded_from_it() {
        let routes = [route("", "/x*", &["GET"]), route("a.test", "/*", &[])];
        let not = "!(request.path.startsWith(\"/x\") && request.method in [\"GET\"])";
        assert_eq!(kept(&routes)[1].1, not);
    }

    #[test]
    fn regexes_are_numbered_where_equal_priorities_would_not_do() {
        let routes = [route("", "~/a/[0-9]+", &[]), route("", "~/a/.*", &[]), route("", "/a*", &[])];
        assert_eq!(kept(&routes).iter().map(|kept| kept.0).collect::<Vec<_>>(), [2, 1, 0]);
        let routes = [route("", "~/a/[0-9]+", &[]), route("", "/a*", &[])];
        assert_eq!(kept(&routes).iter().map(|kept| kept.0).collect::<Vec<_>>(), [0, 0]);
        // A prefix that must win is excluded from the regex: that holds whatever decides between the two kinds.
        let routes = [route("", "/a*", &["GET"]), route("", "~/a/[0-9]+", &[])];
        assert_eq!(kept(&routes)[1], (0, "!(request.method in [\"GET\"])".to_owned()));
    }

    #[test]
    fn a_route_that_another_covers_is_named() {
        let routes = [route("*.test", "/x*", &[]), route("a.test", "/x/y*", &["GET"])];
        assert_eq!(keep(&routes)[1].covered_by, Some(0));
    }
}
