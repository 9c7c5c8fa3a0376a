//! Shared parts of this crate's tests.

use super::variables::{Bounds, Vocabulary};
use super::{Case, Exclusion, Request, RouteSpec, When, capture_names};

/// Random numbers that repeat in each run, so that a failure can be repeated.
pub(crate) struct Random(fastrand::Rng);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(fastrand::Rng::with_seed(seed))
    }

    /// A number below `limit`.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        self.0.usize(..limit)
    }

    /// One of `items`.
    pub(crate) fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())]
    }
}

/// A route for any host: `name`, `path`.
pub(crate) fn route(name: &str, path: &str) -> RouteSpec {
    RouteSpec { name: name.into(), paths: vec![path.to_owned()], ..RouteSpec::default() }
}

impl RouteSpec {
    pub(crate) fn hosts(mut self, hosts: &[&str]) -> Self {
        self.hosts = hosts.iter().map(|&host| host.to_owned()).collect();
        self
    }

    pub(crate) fn or_path(mut self, path: &str) -> Self {
        self.paths.push(path.to_owned());
        self
    }

    pub(crate) fn insensitive(mut self) -> Self {
        self.case = Case::Insensitive;
        self
    }

    pub(crate) fn methods(mut self, methods: &[&str]) -> Self {
        self.methods = methods.iter().map(|&method| method.to_owned()).collect();
        self
    }

    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn cookie(mut self, name: &str, value: &str) -> Self {
        self.cookies.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn clients(mut self, networks: &[&str]) -> Self {
        self.clients = networks.iter().map(|&network| network.to_owned()).collect();
        self
    }

    pub(crate) fn not(mut self, exclusion: Exclusion) -> Self {
        let place = format!("not[{}]", self.not.len());
        self.not.push(Exclusion { place, ..exclusion });
        self
    }

    pub(crate) fn query(mut self, name: &str, value: &str) -> Self {
        self.query.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn listeners(mut self, listeners: &[u16]) -> Self {
        self.listeners = listeners.to_vec();
        self
    }

    pub(crate) fn when(mut self, source: &str) -> Self {
        let vocabulary = Vocabulary::without_maps(Bounds { head_bytes: 32 * 1024, fields: 4 });
        let names = capture_names(
            self.hosts.iter().map(String::as_str),
            self.paths.iter().map(String::as_str),
            self.case,
        );
        let when = When::compile(source, names.as_deref(), &vocabulary)
            .unwrap_or_else(|e| panic!("{source}: {e:?}"));
        self.when = Some(Box::new(when));
        self
    }

    pub(crate) fn priority(mut self, priority: i32) -> Self {
        self.priority = priority;
        self
    }
}

/// An exclusion, made of what `match` of a route holds.
pub(crate) fn excluding(spec: RouteSpec) -> Exclusion {
    let RouteSpec { hosts, mut paths, case, methods, headers, query, cookies, clients, listeners, .. } = spec;
    paths.retain(|path| path != "-");
    Exclusion {
        place: String::new(),
        hosts,
        paths,
        case,
        methods,
        headers,
        query,
        cookies,
        clients,
        listeners,
    }
}

/// An exclusion of any path.
pub(crate) fn without() -> RouteSpec {
    route("", "-")
}

/// Header fields of a request in a test.
pub(crate) type Pairs<'a> = &'a [(&'a str, &'a str)];

/// A request on listener 0 without headers: `GET`, `api.example.com`, `/path?query`.
pub(crate) fn request<'a>(
    method: &'a str,
    host: &'a str,
    target: &'a str,
    headers: Pairs<'a>,
) -> Request<'a, Pairs<'a>> {
    let (path, query) =
        target.split_once('?').map_or((target, None), |(path, query)| (path, Some(query.as_bytes())));
    Request {
        listener: 0,
        host: host.as_bytes(),
        method: method.as_bytes(),
        path: path.as_bytes(),
        query,
        headers,
    }
}
