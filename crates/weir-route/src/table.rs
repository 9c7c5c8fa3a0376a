//! The table of routes: built once per snapshot, queried once per request.

use std::collections::{BTreeMap, HashMap, HashSet};

use foldhash::fast::RandomState;

use super::compiled::{Route, RouteSpec};
use super::conflict::{self, Conflict};
use super::host::{self, HOST_BYTES, HostBuffer, HostPattern};
use super::parameters::Parameters;
use super::paths::{Candidate, Paths};
use super::pattern::{Class, Pattern};
use super::request::{Failed, Headers, Request, RouteId, Trace};
use super::sample::Sample;

mod compile;
mod regexes;

use regexes::Regexes;

/// The compiled routes of a snapshot.
///
/// Memory: about 0.3 KiB for a plain route. A regex takes up to [`REGEX_BYTES`](super::REGEX_BYTES), and as much
/// again for its caches.
#[derive(Debug)]
pub struct Table {
    /// Each route once for each of its paths, in order.
    routes: Vec<Route>,
    /// `None` if each route has one path, so that its number is its index.
    lists: Option<Box<Lists>>,
    exact: Map<Box<[u8]>, Paths>,
    wildcards: Map<Box<[u8]>, Paths>,
    /// Bit n is set if a wildcard with n bytes after its `*` exists. Only suffixes of such lengths are looked up.
    wildcard_lengths: [u64; HOST_BYTES / 64 + 1],
    /// Hosts of which most configs have none.
    rarer: Option<Box<RarerHosts>>,
    /// Whether there are routes for some hosts only.
    has_hosts: bool,
    any: Paths,
}

/// Hosts by their first labels, and by regexes.
#[derive(Debug, Default)]
struct RarerHosts {
    /// As `Table::wildcards`: up to the dot before the `*`.
    fronts: Map<Box<[u8]>, Paths>,
    regexes: Regexes,
}

/// Which entries of `Table::routes` belong to which route.
#[derive(Debug)]
struct Lists {
    /// The route of each entry.
    owners: Box<[RouteId]>,
    /// The first entry of each route, and the number of entries.
    firsts: Box<[usize]>,
}

type Map<K, V> = HashMap<K, V, RandomState>;

// === impl Table ===

impl Table {
    /// Compiles `routes`, or reports everything wrong with them, including at most [`MAX_TIES`](super::MAX_TIES) ties
    /// and unreachable routes.
    pub fn build(routes: impl IntoIterator<Item = RouteSpec>) -> Result<Self, Vec<Conflict>> {
        let mut conflicts = Vec::new();
        let mut lists = HashSet::default();
        let mut compiled: Vec<Option<Route>> = Vec::new();
        let mut firsts = Vec::new();
        for (index, spec) in routes.into_iter().enumerate() {
            firsts.push(compiled.len());
            Route::compile(index, spec, &mut lists, &mut conflicts, &mut compiled);
        }
        drop(lists);
        let lists = (firsts.len() != compiled.len()).then(|| {
            firsts.push(compiled.len());
            Box::new(Lists::new(std::mem::take(&mut firsts)))
        });
        drop(firsts);
        // In an order that somebody else has decided, nothing is a tie, and routes may cover others.
        if compiled.iter().flatten().all(|route| route.rank == 0) {
            let owner = |entry: usize| lists.as_ref().map_or(entry, |lists| lists.owner(id(entry)).index());
            conflicts.extend(conflict::ties(&compiled, &owner));
        }
        // Without conflicts every route compiled. Collected in place, because there may be 200,000.
        match compiled.into_iter().collect::<Option<Vec<Route>>>() {
            Some(routes) if conflicts.is_empty() => Ok(Self::file(routes, lists)),
            _ => {
                conflicts.sort_by_key(|conflict| conflict.route);
                Err(conflicts)
            }
        }
    }

    fn file(routes: Vec<Route>, lists: Option<Box<Lists>>) -> Self {
        let mut by_host: BTreeMap<&HostPattern, Vec<usize>> = BTreeMap::new();
        for (index, route) in routes.iter().enumerate() {
            for host in route.hosts.iter() {
                by_host.entry(host).or_default().push(index);
            }
        }
        let (mut exact, mut wildcards, mut any) =
            (Map::default(), Map::default(), Paths::build(std::iter::empty()));
        let mut wildcard_lengths = [0; HOST_BYTES / 64 + 1];
        let mut rarer = RarerHosts::default();
        for (host, mut members) in by_host {
            members.sort_by_key(|&index| routes[index].order());
            let paths = Paths::build(members.into_iter().map(|index| {
                let route = &routes[index];
                (Candidate::new(id(index), !route.conditions().is_empty()), route.priority, &route.pattern)
            }));
            match host {
                HostPattern::Any => any = paths,
                HostPattern::Exact(name) => drop(exact.insert(name.clone(), paths)),
                HostPattern::Front(prefix) => drop(rarer.fronts.insert(prefix.clone(), paths)),
                HostPattern::Regex(regex) => rarer.regexes.push(regex, paths),
                HostPattern::Wildcard(suffix) => {
                    wildcard_lengths[suffix.len() / 64] |= 1 << (suffix.len() % 64);
                    wildcards.insert(suffix.clone(), paths);
                }
            }
        }
        let has_rarer = !rarer.fronts.is_empty() || !rarer.regexes.is_empty();
        let has_hosts = has_rarer || !exact.is_empty() || !wildcards.is_empty();
        let rarer = has_rarer.then(|| Box::new(rarer));
        Self { routes, lists, exact, wildcards, wildcard_lengths, rarer, has_hosts, any }
    }

    /// The route that wins this request.
    ///
    /// `trace` sees each candidate whose conditions were checked; [`NoTrace`](super::NoTrace) compiles to no code.
    /// Never panics, and allocates nothing unless more than 32 nodes of the path trie fit one path, or a path of more
    /// than 256 bytes meets a host with a route that ignores case.
    ///
    /// Cost: a hash of the host, and of each of its suffixes that is as long as some wildcard. Hosts such as `x.*` in
    /// the table add a hash of each beginning of the host. Regexes add a hash of each part that is as long as some
    /// literal text of one, and one run of each regex whose literal beginning and end fit. For each host entry that
    /// fits, most specific first, one lookup by path: linear in the path, independent of the number of other routes. In
    /// addition, each regex whose literal prefix fits, and the conditions of candidates with a matching path.
    pub fn find<H: Headers, T: Trace>(&self, request: &Request<'_, H>, trace: &mut T) -> Option<RouteId> {
        let mut accept = |candidate: Candidate| {
            let entry = candidate.route();
            if !candidate.is_conditional() {
                trace.asked(self.owner(entry), Ok(()));
                return true;
            }
            let Some(compiled) = self.routes.get(entry.index()) else { return false };
            let outcome = self.check(entry, compiled, request);
            trace.asked(self.owner(entry), outcome);
            outcome.is_ok()
        };
        if let Some(won) = self.find_by_host(request, &mut accept) {
            return Some(self.owner(won.route()));
        }
        Some(self.owner(self.any.find(request.path, &mut accept)?.route()))
    }

    /// Whether a request, whose path the entry matches, meets its conditions.
    #[inline]
    pub(super) fn check<'t, H: Headers>(
        &'t self,
        entry: RouteId,
        compiled: &'t Route,
        request: &Request<'_, H>,
    ) -> Result<(), Failed<'t>> {
        let Some(lists) = &self.lists else { return compiled.check(request) };
        // An expression holds alike for all paths of a route, so it reads what the best one captures.
        let best = compiled
            .conditions()
            .when
            .as_ref()
            .and_then(|_| Route::best(self.paths_of(lists.owner(entry)), request.path));
        best.unwrap_or(compiled).check(request)
    }

    /// The route of an entry.
    #[inline]
    pub(super) fn owner(&self, entry: RouteId) -> RouteId {
        self.lists.as_ref().map_or(entry, |lists| lists.owner(entry))
    }

    /// The entries of a route, one for each of its paths.
    fn paths_of(&self, route: RouteId) -> &[Route] {
        let range = match &self.lists {
            None => route.index()..route.index() + 1,
            Some(lists) => {
                let first = |at: usize| lists.firsts.get(at).copied().unwrap_or(self.routes.len());
                first(route.index())..first(route.index() + 1)
            }
        };
        self.routes.get(range).unwrap_or_default()
    }

    fn find_by_host<H>(
        &self,
        request: &Request<'_, H>,
        accept: &mut impl FnMut(Candidate) -> bool,
    ) -> Option<Candidate> {
        if !self.has_hosts {
            return None;
        }
        let mut buffer = HostBuffer::new();
        let host = host::normalize(request.host, &mut buffer);
        if let Some(paths) = self.exact.get(host)
            && let Some(won) = paths.find(request.path, accept)
        {
            return Some(won);
        }
        if !self.wildcards.is_empty()
            && let Some(won) = self.find_by_wildcard(host, request.path, accept)
        {
            return Some(won);
        }
        self.find_by_rarer_host(self.rarer.as_deref()?, host, request.path, accept)
    }

    #[inline]
    fn find_by_wildcard(
        &self,
        host: &[u8],
        path: &[u8],
        accept: &mut impl FnMut(Candidate) -> bool,
    ) -> Option<Candidate> {
        for dot in memchr::memchr_iter(b'.', host).filter(|&dot| dot > 0) {
            let suffix = host.get(dot..).unwrap_or_default();
            let known = self
                .wildcard_lengths
                .get(suffix.len() / 64)
                .is_some_and(|bits| bits >> (suffix.len() % 64) & 1 == 1);
            if known
                && let Some(paths) = self.wildcards.get(suffix)
                && let Some(won) = paths.find(path, accept)
            {
                return Some(won);
            }
        }
        None
    }

    /// The longest `x.*` first, then the regexes.
    #[inline(never)]
    fn find_by_rarer_host(
        &self,
        rarer: &RarerHosts,
        host: &[u8],
        path: &[u8],
        accept: &mut impl FnMut(Candidate) -> bool,
    ) -> Option<Candidate> {
        if !rarer.fronts.is_empty() {
            // Something stands behind the dot, because a normalized host does not end with one.
            for dot in memchr::memrchr_iter(b'.', host).filter(|&dot| dot + 1 < host.len()) {
                if let Some(paths) = rarer.fronts.get(host.get(..=dot).unwrap_or_default())
                    && let Some(won) = paths.find(path, accept)
                {
                    return Some(won);
                }
            }
        }
        if rarer.regexes.is_empty() {
            return None;
        }
        match &rarer.regexes.matching(host)[..] {
            [] => None,
            [only] => only.find(path, accept),
            several => self.find_in_all(several, path, accept),
        }
    }

    /// The best route of several equal host entries: the best of each kind of path, and between regex and prefix the
    /// higher priority.
    fn find_in_all(
        &self,
        found: &[&Paths],
        path: &[u8],
        accept: &mut impl FnMut(Candidate) -> bool,
    ) -> Option<Candidate> {
        let route = |candidate: Candidate| self.routes.get(candidate.route().index());
        let mut best = |class: Class| {
            let of_class = |candidate| route(candidate).is_some_and(|route| route.pattern.class() == class);
            let each = found.iter().filter_map(|paths| {
                let won = paths.find(path, &mut |candidate| of_class(candidate) && accept(candidate))?;
                Some((route(won)?, won))
            });
            each.min_by(|(a, _), (b, _)| {
                a.pattern.compare(&b.pattern).0.then_with(|| a.order().cmp(&b.order()))
            })
        };
        if let Some((_, exact)) = best(Class::Exact) {
            return Some(exact);
        }
        match (best(Class::Regex), best(Class::Prefix)) {
            (Some((regex, _)), Some((prefix, won))) if prefix.priority > regex.priority => Some(won),
            (regex, prefix) => Some(regex.or(prefix)?.1),
        }
    }

    /// A request that meets host, path and conditions of `route`; `None` if a regex is too hard to satisfy.
    ///
    /// Where a raw prefix or a route that ignores case has a rival, it avoids it if it can. A more specific route may
    /// still win it: ask [`Table::find`].
    pub fn sample(&self, route: RouteId) -> Option<Sample> {
        let wins = |sample: &Sample| self.find(&sample.request(), &mut super::NoTrace) == Some(route);
        let paths = || self.paths_of(route).iter();
        let plain = || paths().filter_map(Sample::of);
        plain()
            .find(wins)
            .or_else(|| paths().filter_map(Sample::unusual).find(wins))
            .or_else(|| plain().next())
    }

    /// The number of routes.
    pub fn len(&self) -> usize {
        self.lists.as_ref().map_or(self.routes.len(), |lists| lists.firsts.len() - 1)
    }

    /// Whether it has no route.
    pub fn is_empty(&self) -> bool {
        self.routes.is_empty()
    }

    /// The route's name.
    #[inline]
    pub fn name(&self, route: RouteId) -> Option<&str> {
        Some(&self.route(route)?.name)
    }

    /// The pattern of the route that matched `path`: of several the best.
    #[inline]
    pub fn pattern(&self, route: RouteId, path: &[u8]) -> Option<&Pattern> {
        Some(&Route::best(self.paths_of(route), path)?.pattern)
    }

    /// What the route captures in `path`, the canonical path it matched, and in `host`, the authority as received.
    /// Computed when it is read, not by `find`.
    #[inline]
    pub fn parameters<'a>(
        &'a self,
        route: RouteId,
        path: &'a [u8],
        host: &'a [u8],
    ) -> Option<Parameters<'a>> {
        let paths = self.paths_of(route);
        Some(Route::best(paths, path).or_else(|| paths.first())?.parameters(path, host))
    }

    /// The first entry of a route.
    #[inline]
    fn route(&self, route: RouteId) -> Option<&Route> {
        self.paths_of(route).first()
    }

    /// All entries.
    pub(super) fn entries(&self) -> impl Iterator<Item = (RouteId, &Route)> {
        self.routes.iter().enumerate().map(|(index, route)| (id(index), route))
    }

    /// The paths of a route for display.
    pub(super) fn shown_paths(&self, route: RouteId) -> String {
        let paths: Vec<&str> = self.paths_of(route).iter().map(Route::shown_path).collect();
        paths.join(", ")
    }
}

// === impl Lists ===

impl Lists {
    fn new(firsts: Vec<usize>) -> Self {
        let of = |(route, bounds): (usize, &[usize])| std::iter::repeat_n(id(route), bounds[1] - bounds[0]);
        Self { owners: firsts.windows(2).enumerate().flat_map(of).collect(), firsts: firsts.into() }
    }

    #[inline]
    fn owner(&self, entry: RouteId) -> RouteId {
        self.owners.get(entry.index()).copied().unwrap_or(entry)
    }
}

fn id(index: usize) -> RouteId {
    RouteId(u32::try_from(index).expect("a table holds fewer than 2^31 routes"))
}

#[cfg(test)]
mod tests;
