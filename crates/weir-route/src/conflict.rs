//! Finds mistakes in a set of routes: malformed parts, ties, and routes that can never win.
//!
//! Only routes with the same host entry, path shape and weight of conditions can tie, so they are grouped by these
//! three. Large groups are split by a value that distinguishes their members (a tenant header, the method, a text that
//! an expression asks of a variable). The rest
//! is compared in pairs. The worst case, 10,000 routes of one shape that no single value distinguishes, takes 5 ×
//! 10^7 comparisons of two condition lists.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::hash::{BuildHasher, Hash, Hasher};
use std::ops::Range;

use foldhash::fast::RandomState;
use weir_expr::Var;

use super::compiled::Route;
use super::host::HostPattern;
use super::matcher::{Conditions, Excluded, Field, Test};
use super::pattern::{Case, Class, PathRegex, Pattern, Segment, Shape, Tail};
use super::sample::Sample;

/// Most ties and unreachable routes reported for one set of routes; more add no information.
pub const MAX_TIES: usize = 100;

/// Groups up to this size are compared in pairs right away.
const SMALL_GROUP: usize = 24;

/// Why a set of routes makes no table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// What is wrong.
    pub kind: ConflictKind,
    /// Index of the route at fault.
    pub route: usize,
    /// Index of the route it collides with.
    pub other: Option<usize>,
    /// The place in the route: `match.path`, `match.hosts[1]`, `match.headers.x-env`.
    pub field: String,
    /// What is wrong, in a sentence.
    pub message: String,
    /// What to do about it.
    pub hint: String,
    /// A request that both routes match, in the form of `weir explain`, if one could be made up.
    pub example: Option<String>,
}

/// The kinds of [`Conflict`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ConflictKind {
    /// Two routes are equal in every deciding respect, and one request can match both.
    Ambiguous,
    /// A network of clients is malformed.
    BadClient,
    /// A cookie's name or value is malformed.
    BadCookie,
    /// An exclusion leaves no request.
    BadExclusion,
    /// A header name or value is malformed.
    BadHeader,
    /// A host is malformed.
    BadHost,
    /// A method is malformed.
    BadMethod,
    /// A path pattern is malformed.
    BadPattern,
    /// A query parameter's name or value is malformed.
    BadQuery,
    /// Another route wins every request that this one could match.
    Unreachable,
}

/// What routes that can tie share: host entry, shape, and weight of conditions.
///
/// A host may match two regexes, so all regexes count as one entry, which is `None`.
type Alike<'h> = (Option<&'h HostPattern>, String, (usize, bool));

/// A host entry, but one for all regexes.
fn entry_of(host: &HostPattern) -> Option<&HostPattern> {
    Some(host).filter(|host| !is_regex(host))
}

fn is_regex(host: &HostPattern) -> bool {
    matches!(host, HostPattern::Regex(_))
}

/// Ties and unreachable routes among the compiled ones, each of which has one path of its `owner`.
pub(super) fn ties(routes: &[Option<Route>], owner: &dyn Fn(usize) -> usize) -> Vec<Conflict> {
    let mut search = Search { routes, owner, tied: BTreeMap::new(), covered: BTreeMap::new() };
    for (host, members) in &groups(routes) {
        search.group(host, members);
    }
    search.shadowed_regexes();
    search.report()
}

/// The routes that share host entry, shape and number of conditions with another: only these can tie.
///
/// Most routes share them with none. So the three are first hashed to a number, and only routes with equal numbers
/// are examined. With the shapes themselves as keys, 200,000 routes would temporarily take 40 MB.
fn groups(routes: &[Option<Route>]) -> Vec<(&HostPattern, Vec<usize>)> {
    let hasher = RandomState::default();
    let mut entries: Vec<(u64, usize, &HostPattern)> = Vec::with_capacity(routes.len());
    for (index, route) in routes.iter().enumerate() {
        let Some(route) = route else { continue };
        let mut has_regex = false;
        for host in route.hosts.iter() {
            if is_regex(host) && std::mem::replace(&mut has_regex, true) {
                continue; // once for all its regexes
            }
            let mut number = hasher.build_hasher();
            (entry_of(host), route.conditions().weight()).hash(&mut number);
            route.pattern.hash_shape(&mut number);
            entries.push((number.finish(), index, host));
        }
    }
    entries.sort_unstable_by_key(|(number, index, _)| (*number, *index));
    let mut groups = Vec::new();
    for alike in entries.chunk_by(|(a, ..), (b, ..)| a == b).filter(|alike| alike.len() > 1) {
        // Different ones may have the same number by chance.
        let mut same: HashMap<Alike<'_>, (&HostPattern, Vec<usize>)> = HashMap::new();
        for &(_, index, host) in alike {
            let Some(Some(route)) = routes.get(index) else { continue };
            let key = (entry_of(host), route.pattern.shape_key(), route.conditions().weight());
            same.entry(key).or_insert_with(|| (host, Vec::new())).1.push(index);
        }
        groups.extend(same.into_values().filter(|(_, members)| members.len() > 1));
    }
    groups.sort_unstable_by(|(_, a), (_, b)| a.cmp(b));
    groups
}

struct Search<'r> {
    routes: &'r [Option<Route>],
    owner: &'r dyn Fn(usize) -> usize,
    /// The later route of a tie, and the earlier.
    tied: BTreeMap<usize, usize>,
    /// A covered route → the route that covers it, and the hosts for which it does.
    covered: BTreeMap<usize, (usize, BTreeSet<&'r HostPattern>)>,
}

impl<'r> Search<'r> {
    fn route(&self, index: usize) -> Option<&'r Route> {
        self.routes.get(index)?.as_ref()
    }

    /// All paths of the route that one belongs to.
    fn siblings(&self, at: usize) -> Range<usize> {
        let is_own = |other: &usize| (self.owner)(*other) == (self.owner)(at);
        let start = (0..at).rev().take_while(is_own).last().unwrap_or(at);
        let end = (at..self.routes.len()).take_while(is_own).last().unwrap_or(at);
        start..end + 1
    }

    fn group(&mut self, host: &'r HostPattern, members: &[usize]) {
        let Some(feature) = (members.len() > SMALL_GROUP).then(|| self.best_feature(members)).flatten()
        else {
            for (at, &later) in members.iter().enumerate() {
                self.against(host, later, members.get(..at).unwrap_or_default());
            }
            return;
        };
        // Members with different values of the feature exclude each other; those without a value must be compared
        // with all.
        let mut by_value: BTreeMap<&[u8], Vec<usize>> = BTreeMap::new();
        let mut open = Vec::new();
        for &member in members {
            match self.route(member).and_then(|route| feature.of(route)) {
                Some(value) => by_value.entry(value).or_default().push(member),
                None => open.push(member),
            }
        }
        for bucket in by_value.values() {
            self.group(host, bucket);
        }
        for (at, &member) in open.iter().enumerate() {
            self.against(host, member, open.get(..at).unwrap_or_default());
            for bucket in by_value.values() {
                self.against(host, member, bucket);
            }
        }
    }

    /// Compares one route with others of its group. One tie per route is enough.
    fn against(&mut self, host: &'r HostPattern, member: usize, others: &[usize]) {
        for &other in others {
            if self.tied.len() >= MAX_TIES {
                return;
            }
            let (earlier, later) = (member.min(other), member.max(other));
            if self.tied.contains_key(&later) {
                // The remaining comparisons may all be of this route; skip them.
                if later == member {
                    return;
                }
                continue;
            }
            let (Some(a), Some(b)) = (self.route(earlier), self.route(later)) else { continue };
            if (self.owner)(earlier) == (self.owner)(later) {
                continue; // two paths of one route
            }
            if a.excludes(b, host) || (is_regex(host) && !a.may_share_a_regex(b)) {
                continue;
            }
            if a.priority == b.priority {
                self.tied.insert(later, earlier);
                continue;
            }
            let (winner, loser) = if a.priority > b.priority { (earlier, later) } else { (later, earlier) };
            let (Some(won), Some(lost)) = (self.route(winner), self.route(loser)) else { continue };
            if won.covers(lost) {
                // A regex covers another only if it is the same.
                let covers = |of: &&HostPattern| match is_regex(host) {
                    true => won.hosts.contains(of),
                    false => **of == *host,
                };
                let covered = lost.hosts.iter().filter(covers);
                self.covered.entry(loser).or_insert_with(|| (winner, BTreeSet::new())).1.extend(covered);
            }
        }
    }

    /// Regexes that can never win, because a prefix of higher priority matches whatever they match.
    ///
    /// That prefix has to be literal, and to hold the literal beginnings of the regex. No prefix that comes before it
    /// may let the regex win.
    ///
    /// Not told of hosts that are regexes, whose requests may belong to another regex too.
    fn shadowed_regexes(&mut self) {
        let mut hosts: BTreeMap<&HostPattern, [Vec<usize>; 2]> = BTreeMap::new();
        let routes = self.routes.iter().enumerate().filter_map(|(at, route)| Some((at, route.as_ref()?)));
        if routes.clone().all(|(_, route)| route.pattern.class() != Class::Regex) {
            return;
        }
        for (at, route) in routes {
            let list = match route.pattern.class() {
                Class::Exact => continue,
                Class::Regex => 0,
                Class::Prefix => 1,
            };
            for host in route.hosts.iter().filter(|host| !is_regex(host)) {
                hosts.entry(host).or_default()[list].push(at);
            }
        }
        for (host, [regexes, prefixes]) in hosts {
            for &regex in &regexes {
                if self.covered.len() >= MAX_TIES {
                    return;
                }
                if let Some(prefix) = self.shadow(regex, &prefixes) {
                    self.covered.entry(regex).or_insert_with(|| (prefix, BTreeSet::new())).1.insert(host);
                }
            }
        }
    }

    /// The prefix that leaves nothing to a regex.
    fn shadow(&self, at: usize, prefixes: &[usize]) -> Option<usize> {
        let loser = self.route(at)?;
        let Shape::Regex(regex) = &loser.pattern.shape else { return None };
        let others = || prefixes.iter().filter_map(|&prefix| Some((prefix, self.route(prefix)?)));
        let lets_it_win = |other: &Route, winner: &Route| {
            other.priority <= loser.priority
                && other.pattern.compare(&winner.pattern).0.is_le()
                && may_meet(regex, &other.pattern)
        };
        let mut winners = others().filter(|(_, winner)| {
            winner.priority > loser.priority
                && holds_all(&winner.pattern, regex)
                && loser.conditions().implies(winner.conditions())
                && !others().any(|(_, other)| lets_it_win(other, winner))
        });
        Some(winners.next()?.0)
    }

    /// The feature that distinguishes most of these routes, if any.
    fn best_feature(&self, members: &[usize]) -> Option<Feature<'r>> {
        let mut values: HashMap<Feature<'r>, (usize, HashSet<&'r [u8]>)> = HashMap::new();
        for route in members.iter().filter_map(|&member| self.route(member)) {
            for feature in Feature::all(route) {
                let Some(value) = feature.of(route) else { continue };
                let (count, distinct) = values.entry(feature).or_default();
                *count += 1;
                distinct.insert(value);
            }
        }
        // More distinct values leave smaller buckets to compare; a higher count leaves fewer routes outside them.
        let best = values.into_iter().filter(|(_, (_, distinct))| distinct.len() > 1);
        best.max_by_key(|(feature, (count, distinct))| (*count, distinct.len(), *feature))
            .map(|(feature, _)| feature)
    }

    fn report(&self) -> Vec<Conflict> {
        let mut conflicts = Vec::new();
        for (&later, &earlier) in &self.tied {
            let (Some(a), Some(b)) = (self.route(earlier), self.route(later)) else { continue };
            let same = a.covers(b) && b.covers(a) && a.hosts.iter().any(|host| b.hosts.contains(host));
            let (a_name, b_name) = (&a.name, &b.name);
            let message = match same {
                true => format!("route `{b_name}` matches exactly the same requests as `{a_name}`"),
                false => format!(
                    "routes `{b_name}` and `{a_name}` can match one request, and nothing decides between them"
                ),
            };
            let by_regex = !a.hosts.iter().any(|host| !is_regex(host) && b.hosts.contains(host));
            let hint = match (&a.pattern.shape, same) {
                (_, true) => "remove one, or make their `match` differ".to_owned(),
                _ if by_regex => format!(
                    "one host may match a regex of both: give one route a `priority`, or begin or end their regexes with different text; the higher priority wins (`{a_name}` has {})",
                    a.priority
                ),
                (Shape::Regex(_), _) => format!(
                    "give one of them a `priority`, or begin their regexes with different text; the higher priority wins (`{a_name}` has {})",
                    a.priority
                ),
                _ => format!(
                    "give one of them a `priority` or one more condition; the higher priority wins (`{a_name}` has {})",
                    a.priority
                ),
            };
            conflicts.push(Conflict {
                kind: ConflictKind::Ambiguous,
                route: (self.owner)(later),
                other: Some((self.owner)(earlier)),
                field: "match".to_owned(),
                message,
                hint,
                example: Sample::of_both(a, b).map(|sample| sample.to_string()),
            });
        }
        for (&loser, (winner, hosts)) in &self.covered {
            let (Some(a), Some(b)) = (self.route(*winner), self.route(loser)) else { continue };
            // If it is covered for only some of its hosts or paths, it still has the others.
            let is_whole =
                |(at, hosts): (usize, usize)| self.route(at).is_some_and(|of| hosts >= of.hosts.len());
            let siblings = self.siblings(loser);
            let covered =
                |at: usize| is_whole((at, self.covered.get(&at).map_or(0, |(_, hosts)| hosts.len())));
            if hosts.len() < b.hosts.len()
                || loser > siblings.start
                || !siblings.clone().all(covered)
                || conflicts.len() >= MAX_TIES
            {
                continue;
            }
            conflicts.push(Conflict {
                kind: ConflictKind::Unreachable,
                route: (self.owner)(loser),
                other: Some((self.owner)(*winner)),
                field: "priority".to_owned(),
                message: format!(
                    "route `{}` can never win: `{}` matches every request that it matches, and has a higher priority",
                    b.name, a.name
                ),
                hint: "remove it, raise its priority, or make its `match` differ".to_owned(),
                example: Sample::of_both(a, b).map(|sample| sample.to_string()),
            });
        }
        conflicts
    }
}

/// A property with at most one value per route, of which two different values exclude each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Feature<'r> {
    Cookie(&'r str),
    Header(&'r str),
    Method,
    Prefix,
    Query(&'r str),
    /// The text that the expression asks of a variable, and its key.
    When(Var, &'r [u8]),
}

impl<'r> Feature<'r> {
    fn all(route: &'r Route) -> impl Iterator<Item = Self> {
        let cookies = route.conditions().cookies().iter().map(|field| Self::Cookie(&field.name));
        let headers = route.conditions().headers.iter().map(|field| Self::Header(&field.name));
        let query = route.conditions().query.iter().map(|field| Self::Query(&field.name));
        let when = route.conditions().when.iter().flat_map(|when| when.texts());
        let when = when.map(|(var, key, _)| Self::When(var, key));
        cookies.chain(headers).chain(query).chain(when).chain([Self::Method, Self::Prefix])
    }

    fn of(self, route: &'r Route) -> Option<&'r [u8]> {
        let exact =
            |fields: &'r [Field], name: &str| match &fields.iter().find(|field| *field.name == *name)?.test {
                Test::Exact(value) => Some(&**value),
                Test::Present | Test::Regex { .. } => None,
            };
        match self {
            Self::Cookie(name) => exact(route.conditions().cookies(), name),
            Self::Header(name) => exact(&route.conditions().headers, name),
            Self::Query(name) => exact(&route.conditions().query, name),
            Self::Method => match &*route.conditions().methods {
                [method] => Some(method),
                _ => None,
            },
            // A regex's first whole segment: a path that begins with another segment cannot match.
            Self::Prefix => match &route.pattern.shape {
                Shape::Regex(regex) => {
                    let inner = regex.prefix.get(1..)?;
                    inner.get(..=memchr::memchr(b'/', inner)?)
                }
                Shape::Segments { .. } => None,
            },
            Self::When(var, key) => {
                let mut texts = route.conditions().when.as_ref()?.texts();
                Some(texts.find(|(of, with, _)| (*of, *with) == (var, key))?.2)
            }
        }
    }
}

impl Route {
    /// Whether no request matches both, given the same host entry and shape.
    fn excludes(&self, other: &Self, host: &HostPattern) -> bool {
        if let (Shape::Regex(a), Shape::Regex(b)) = (&self.pattern.shape, &other.pattern.shape)
            && a.excludes(b)
        {
            return true;
        }
        let takes_all = |not: &[Excluded], route: &Self| not.iter().any(|not| not.takes_all_of(route, host));
        self.conditions().excludes(other.conditions())
            || takes_all(self.conditions().not(), other)
            || takes_all(other.conditions().not(), self)
    }

    /// Whether one host may match a regex of both.
    fn may_share_a_regex(&self, other: &Self) -> bool {
        let of =
            |route: &'_ Self| route.hosts.iter().filter(|host| is_regex(host)).cloned().collect::<Vec<_>>();
        let (mine, theirs) = (of(self), of(other));
        mine.iter().any(|a| theirs.iter().any(|b| !a.is_apart(b)))
    }

    /// Whether this route matches every request that `other` matches, given the same host entry and shape.
    fn covers(&self, other: &Self) -> bool {
        let same_path = match &self.pattern.shape {
            Shape::Regex(_) => self.pattern.as_str() == other.pattern.as_str(),
            Shape::Segments { .. } => true,
        };
        same_path && other.conditions().implies(self.conditions())
    }
}

/// The text before the first capture of a pattern, or before the first segment that ignores case; whether that is
/// all of its segments.
fn lead(pattern: &Pattern) -> Option<(Vec<u8>, bool)> {
    let Shape::Segments { segments, tail } = &pattern.shape else { return None };
    let mut text = Vec::new();
    for segment in segments {
        let Segment::Literal(literal) = segment else { return Some((text, false)) };
        text.push(b'/');
        text.extend_from_slice(literal);
    }
    if let Tail::Raw(raw) = tail {
        if raw.case == Case::Insensitive {
            return Some((text, false));
        }
        text.push(b'/');
        text.extend_from_slice(&raw.text);
    }
    Some((text, true))
}

/// Whether a prefix provably matches every path that the regex matches.
fn holds_all(prefix: &Pattern, regex: &PathRegex) -> bool {
    let Some((mut text, true)) = lead(prefix) else { return false };
    if text.is_empty() {
        return true; // `/*`
    }
    if matches!(prefix.shape, Shape::Segments { tail: Tail::Rest(_), .. }) {
        text.push(b'/');
    }
    !regex.prefixes.is_empty() && regex.prefixes.iter().all(|begin| begin.starts_with(&text))
}

/// Whether a path might match both.
fn may_meet(regex: &PathRegex, prefix: &Pattern) -> bool {
    let text = lead(prefix).map_or(Vec::new(), |(text, _)| text);
    let meets = |begin: &[u8]| begin.starts_with(&text) || text.starts_with(begin);
    regex.prefixes.is_empty() || regex.prefixes.iter().any(|begin| meets(begin))
}

impl Conditions {
    fn excludes(&self, other: &Self) -> bool {
        let disjoint = |a: &[Box<[u8]>], b: &[Box<[u8]>]| {
            !a.is_empty() && !b.is_empty() && !a.iter().any(|method| b.contains(method))
        };
        let apart = |a: &[u16], b: &[u16]| !a.is_empty() && !b.is_empty() && !a.iter().any(|l| b.contains(l));
        let fields = |a: &[Field], b: &[Field]| {
            a.iter().any(|a| b.iter().any(|b| a.name == b.name && a.test.excludes(&b.test)))
        };
        disjoint(&self.methods, &other.methods)
            || apart(&self.listeners, &other.listeners)
            || fields(&self.headers, &other.headers)
            || fields(&self.query, &other.query)
            || fields(self.cookies(), other.cookies())
            || self.clients().zip(other.clients()).is_some_and(|(a, b)| a.are_apart(b))
            || self.when.as_ref().zip(other.when.as_ref()).is_some_and(|(a, b)| a.excludes(b))
    }

    /// Whether a request that meets these conditions meets `other` too.
    fn implies(&self, other: &Self) -> bool {
        let fields = |mine: &[Field], theirs: &[Field]| {
            theirs.iter().all(|t| mine.iter().any(|m| m.name == t.name && m.test.implies(&t.test)))
        };
        let within = |mine: usize, theirs: usize, all: bool| theirs == 0 || (mine > 0 && all);
        within(
            self.methods.len(),
            other.methods.len(),
            self.methods.iter().all(|m| other.methods.contains(m)),
        ) && within(
            self.listeners.len(),
            other.listeners.len(),
            self.listeners.iter().all(|l| other.listeners.contains(l)),
        ) && fields(&self.headers, &other.headers)
            && fields(&self.query, &other.query)
            && fields(self.cookies(), other.cookies())
            && other.clients().is_none_or(|wide| self.clients().is_some_and(|own| own.are_within(wide)))
            && other.not().iter().all(|not| self.avoids(not))
            && (other.when.is_none() || self.when == other.when)
    }
}

impl Conditions {
    /// Whether no request that meets these conditions meets the exclusion.
    fn avoids(&self, not: &Excluded) -> bool {
        self.not().iter().any(|own| own.written.is_like(&not.written)) || self.excludes(&not.conditions)
    }
}

impl Excluded {
    /// Whether every request of a route, on this host entry, provably meets the exclusion: it leaves nothing to it.
    pub(super) fn takes_all_of(&self, route: &Route, host: &HostPattern) -> bool {
        let within = |host: &HostPattern| self.hosts.iter().any(|other| host.is_within(other));
        let hosts = match is_regex(host) {
            true => route.hosts.iter().filter(|host| is_regex(host)).all(within),
            false => within(host),
        };
        (self.hosts.is_empty() || hosts)
            && (self.paths.is_empty() || self.paths.iter().any(|path| is_within(&route.pattern, path)))
            && route.conditions().implies(&self.conditions)
    }
}

/// Whether provably every path that `inner` matches, `outer` matches too.
fn is_within(inner: &Pattern, outer: &Pattern) -> bool {
    if inner.shape_key() == outer.shape_key() && inner.class() != Class::Regex {
        return true;
    }
    if inner.class() == Class::Regex && inner.as_str() == outer.as_str() || outer.is_everything() {
        return true;
    }
    if let Shape::Regex(regex) = &inner.shape {
        return holds_all(outer, regex);
    }
    // A literal path, matched from end to end, is one path.
    if let (Some((path, true)), Class::Exact) = (lead(inner), inner.class()) {
        return outer.matches(if path.is_empty() { b"/" } else { &path });
    }
    // A prefix holds what is below it, whatever follows in the other.
    let (Some((mut text, is_whole)), Some((mut begin, true))) = (lead(inner), lead(outer)) else {
        return false;
    };
    if !is_whole {
        text.push(b'/'); // another segment follows
    }
    match &outer.shape {
        Shape::Segments { tail: Tail::Rest(_), .. } => begin.push(b'/'),
        Shape::Segments { tail: Tail::Raw(_), .. } => {}
        _ => return false,
    }
    text.starts_with(&begin)
}

#[cfg(test)]
mod tests;
