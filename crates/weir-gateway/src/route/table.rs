//! The table of routes: built once for a snapshot, asked once for each request.

use super::{Failed, Headers, Request, RouteId, Trace};

/// A route's `match`, as written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RouteSpec {
    /// The route's name, for messages.
    pub name: String,
    /// `api.example.com`, `*.example.com`, `[::1]`, `*`; none = any host.
    pub hosts: Vec<String>,
    /// `/hello`, `/users/{id}`, `/beta/*`, `/spot/{rest*}`, `~regex`, `/*`.
    pub path: String,
    /// Methods, upper case as sent; none = any method.
    pub methods: Vec<String>,
    /// Name and value: literal, `*` (present), `~regex`.
    pub headers: Vec<(String, String)>,
    /// Name and value: literal, `*` (present).
    pub query: Vec<(String, String)>,
    /// Numbers of listeners; none = any listener.
    pub listeners: Vec<u16>,
    /// Decides between routes that are otherwise equal: the higher wins.
    pub priority: i32,
}

/// Why a set of routes makes no table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// What is wrong.
    pub kind: ConflictKind,
    /// Index of the route that is at fault.
    pub route: usize,
    /// Index of the route that it collides with.
    pub other: Option<usize>,
    /// Where in the route: `match.path`, `match.hosts[1]`, `match.headers.x-env`, `priority`.
    pub field: String,
    /// What is wrong, in a sentence.
    pub message: String,
    /// What to do about it.
    pub hint: String,
    /// A request that both routes match, as `weir explain` takes it, where one could be made up.
    pub example: Option<String>,
}

/// The kinds of [`Conflict`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ConflictKind {
    /// Two routes are equal in everything that decides and one request can match both.
    Ambiguous,
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
    /// Another route takes every request that this one could match.
    Unreachable,
}

/// The compiled routes of a snapshot.
#[derive(Debug)]
pub struct Table {
    specs: Vec<RouteSpec>,
}

impl Table {
    /// Compiles `routes`, or tells everything that is wrong with them.
    pub fn build(routes: Vec<RouteSpec>) -> Result<Self, Vec<Conflict>> {
        Ok(Self { specs: routes })
    }

    /// The route that wins this request.
    pub fn find<H: Headers, T: Trace>(&self, request: &Request<'_, H>, trace: &mut T) -> Option<RouteId> {
        let route = self.specs.iter().position(|spec| spec.path.as_bytes() == request.path)?;
        let id = RouteId(u32::try_from(route).ok()?);
        trace.asked(id, Err(Failed::Path));
        Some(id)
    }

    /// How many routes there are.
    pub fn len(&self) -> usize {
        self.specs.len()
    }

    /// No route at all.
    pub fn is_empty(&self) -> bool {
        self.specs.is_empty()
    }

    /// The route as written.
    pub fn spec(&self, route: RouteId) -> Option<&RouteSpec> {
        self.specs.get(route.index())
    }

    /// What the route's pattern captures in `path`, the canonical path that it matched. Computed here, not by `find`.
    pub fn captures<'t, 'p>(&'t self, route: RouteId, path: &'p [u8]) -> Captures<'t, 'p> {
        let _ = route;
        Captures { path, found: smallvec::SmallVec::new() }
    }
}

/// The named pieces of a path.
#[derive(Clone, Debug, Default)]
pub struct Captures<'t, 'p> {
    path: &'p [u8],
    found: smallvec::SmallVec<[(&'t str, std::ops::Range<usize>); 4]>,
}

impl<'t, 'p> Captures<'t, 'p> {
    /// The bytes that `name` captured.
    pub fn get(&self, name: &str) -> Option<&'p [u8]> {
        self.iter().find(|(n, _)| *n == name).map(|(_, value)| value)
    }

    /// Every name with its bytes, in the order of the pattern.
    pub fn iter(&self) -> impl Iterator<Item = (&'t str, &'p [u8])> {
        self.found.iter().filter_map(|(name, range)| Some((*name, self.path.get(range.clone())?)))
    }
}
