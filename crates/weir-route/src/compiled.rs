//! A route as written and as compiled. `table.rs` compiles it.

use std::cmp::Reverse;
use std::sync::Arc;

use super::exclusion::Exclusion;
use super::host::{self, HostPattern};
use super::matcher::{Conditions, NO_CONDITIONS};
use super::parameters::Parameters;
use super::pattern::{Case, Pattern};
use super::request::{Failed, Headers, Request};
use super::when::When;

/// A route's `match`, as written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RouteSpec {
    /// The route's name, for messages.
    pub name: Arc<str>,
    /// `api.example.com`, `*.example.com`, `www.*`, `[::1]`, `~regex`, `*`; empty for any host.
    pub hosts: Vec<String>,
    /// `/hello`, `/users/{id}`, `/users/{id}.json`, `/beta/*`, `/spot/{rest*}`, `/beta*`, `~regex`, `/*`: each is a path
    /// of the route. Empty for any path.
    pub paths: Vec<String>,
    /// Whether the letters of the paths are compared exactly. A regex has to be.
    pub case: Case,
    /// Methods, upper case as sent; empty for any method.
    pub methods: Vec<String>,
    /// Name and value: literal, `*` (present), `~regex`.
    pub headers: Vec<(String, String)>,
    /// Name and value: literal, `*` (present).
    pub query: Vec<(String, String)>,
    /// Numbers of listeners; empty for any listener.
    pub listeners: Vec<u16>,
    /// Name and value: literal, `*` (present), `~regex`.
    pub cookies: Vec<(String, String)>,
    /// Networks of the client, `10.0.0.0/8` or `2001:db8::1`; empty for any client.
    pub clients: Vec<String>,
    /// What a request must not meet, none of these.
    pub not: Vec<Exclusion>,
    /// An expression that must hold.
    pub when: Option<Box<When>>,
    /// Decides between routes that are otherwise equal, and between the best regex and the best prefix: the higher wins.
    pub priority: i32,
    /// Its place in an order that somebody else has decided: of two routes with equally good hosts and paths the lower
    /// wins, whatever conditions and priority they have, and no tie is reported. `None` for routes that people wrote.
    /// Give all routes of a table one, or none.
    pub rank: Option<u32>,
    /// How to show it if a part of it came from outside and must stay hidden.
    pub shown: Option<Box<Shown>>,
}

/// A route's `match` for display: with `${VAR}` where something came from outside.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shown {
    /// As [`RouteSpec::hosts`].
    pub hosts: Vec<String>,
    /// As [`RouteSpec::paths`].
    pub paths: Vec<String>,
    /// As [`RouteSpec::methods`].
    pub methods: Vec<String>,
}

/// A compiled route with one of its paths. The source text is not kept, because there may be 200,000 routes.
#[derive(Debug)]
pub(super) struct Route {
    pub(super) name: Arc<str>,
    pub(super) priority: i32,
    /// [`RouteSpec::rank`]; 0 for none.
    pub(super) rank: u32,
    /// Sorted but for regexes, without duplicates, never empty. Routes for the same hosts share one list.
    pub(super) hosts: Arc<[HostPattern]>,
    /// The hosts as written, if order or form differ.
    pub(super) written_hosts: Box<[String]>,
    pub(super) pattern: Pattern,
    /// `None` for most routes.
    pub(super) conditions: Option<Box<Conditions>>,
    pub(super) shown: Option<Box<Shown>>,
}

const _: () = assert!(size_of::<Route>() <= 128);

/// A route's place among those with one host and one shape: its rank, then its conditions, then its priority.
pub(super) type Order = (u32, Reverse<(Weight, i32)>);

/// How many conditions a route has, and whether one is an expression.
type Weight = (usize, bool);

// === impl Route ===

impl Route {
    /// A route for any host, for tests of its parts.
    #[cfg(test)]
    pub(super) fn for_tests(path: &str) -> Self {
        Self {
            name: "test".into(),
            priority: 0,
            rank: 0,
            hosts: [HostPattern::Any].into(),
            written_hosts: Box::default(),
            pattern: Pattern::parse(path, Case::Sensitive).expect("a sound path"),
            conditions: None,
            shown: None,
        }
    }

    /// Whether a request, whose path it matches, meets its conditions, if this is its only path.
    #[inline]
    pub(super) fn check<H: Headers>(&self, request: &Request<'_, H>) -> Result<(), Failed<'_>> {
        self.conditions().check(request, self.parameters(request.path, request.host))
    }

    /// Its captures in a request.
    #[inline]
    pub(super) fn parameters<'a>(&'a self, path: &'a [u8], host: &'a [u8]) -> Parameters<'a> {
        Parameters::new(&self.pattern, &self.hosts, path, host)
    }

    /// Of a route's paths the one that captures: the best that matches.
    pub(super) fn best<'a>(paths: &'a [Self], path: &[u8]) -> Option<&'a Self> {
        if let [only] = paths {
            return Some(only);
        }
        let matching = paths.iter().filter(|route| route.pattern.matches(path));
        matching.min_by(|a, b| a.pattern.compare(&b.pattern).0)
    }

    /// All its conditions except host and path.
    #[inline]
    pub(super) fn conditions(&self) -> &Conditions {
        self.conditions.as_deref().unwrap_or(&NO_CONDITIONS)
    }

    /// The hosts for display: as written, with `${VAR}` where something came from outside.
    pub(super) fn shown_hosts(&self) -> String {
        match (&self.shown, &*self.written_hosts) {
            (Some(shown), _) => shown.hosts.join(", "),
            (None, []) => {
                let hosts: Vec<String> = self.hosts.iter().map(HostPattern::to_text).collect();
                hosts.join(", ")
            }
            (None, written) => written.join(", "),
        }
    }

    /// The path for display.
    pub(super) fn shown_path(&self) -> &str {
        let shown = self.shown.as_ref().and_then(|shown| shown.paths.first());
        shown.map_or(self.pattern.as_str(), String::as_str)
    }

    /// The methods for display.
    pub(super) fn shown_methods(&self) -> String {
        match &self.shown {
            Some(shown) => shown.methods.join(", "),
            None => {
                let methods: Vec<_> =
                    self.conditions().methods.iter().map(|method| String::from_utf8_lossy(method)).collect();
                methods.join(", ")
            }
        }
    }

    /// Sorts routes with one host and one shape: by rank; without one, more conditions first, then those with an
    /// expression, then higher priority.
    pub(super) fn order(&self) -> Order {
        (self.rank, Reverse((self.conditions().weight(), self.priority)))
    }

    /// The most specific of the route's hosts that matches a normalized host.
    pub(super) fn host_for(&self, host: &[u8]) -> Option<&HostPattern> {
        host::best(&self.hosts, host)
    }
}
