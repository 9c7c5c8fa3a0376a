//! Our config as the importers build it: listeners, upstreams, routes and what they name, not yet text.
//!
//! The types hold what every importer needs. Rare settings go into the `more` of a thing, under the names that
//! docs/reference/config.md has; `weir check` reads all of it before it is written, so a misspelled name cannot leave
//! the program.

use super::ledger::Piece;
use super::yaml::{Map, Value};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Longest name of a thing.
const NAME_CHARS: usize = 64;

/// A whole config.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// Comments at the top of weir.yaml.
    pub comments: Vec<String>,
    /// Keys of weir.yaml: `access_log`, `limits`, `trusted_proxies` and others.
    pub more: Map,
    /// Filters for every route.
    pub filters: Vec<Filter>,
    /// Listeners, by name.
    pub listeners: Named<Listener>,
    /// Upstreams, by name.
    pub upstreams: Named<Upstream>,
    /// Consumers, by name: settings as in the reference.
    pub consumers: Named<Map>,
    /// Maps, by name.
    pub maps: Named<Map>,
    /// Stores, by name.
    pub stores: Named<Map>,
    /// Routes, by name.
    pub routes: Named<Route>,
    /// The statements that a route was made from, by the route's name.
    pub origins: HashMap<String, Vec<Piece>>,
    /// Requests with the route that must take them, for the file of tests.
    pub tests: Vec<Case>,
    /// Further files, such as tables of redirects, by path below the folder.
    pub files: BTreeMap<String, String>,
    /// Files that only their owner may read, such as private keys, by path below the folder.
    pub secret_files: BTreeMap<String, String>,
    /// Values of variables, which go into the file of secrets.
    pub secrets: Vec<(String, String)>,
    /// Variables among them whose values the source does not have: what stands there serves the check alone.
    pub placeholders: BTreeSet<String>,
    /// Secrets that stand in the config itself, because no variable can stand there: files with them have mode 0600.
    pub private: BTreeSet<String>,
}

/// Things by name, in the order in which they were added.
#[derive(Clone, Debug)]
pub struct Named<T> {
    things: Vec<(String, T)>,
    index: HashMap<String, usize>,
    /// The last number that a name was given.
    numbers: HashMap<String, usize>,
}

/// An address that clients connect to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Listener {
    /// Comment above it.
    pub comment: Vec<String>,
    /// `0.0.0.0:80`, `unix:/run/x.sock`; none for one that another listener names.
    pub address: Option<String>,
    /// `protocols`, `tls`, `tcp`, `timeouts` and others.
    pub more: Map,
}

/// A group of endpoints.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Upstream {
    /// Comment above it.
    pub comment: Vec<String>,
    /// Its endpoints.
    pub endpoints: Vec<Endpoint>,
    /// `tls`, `host`, `balancer`, `timeouts` and others.
    pub more: Map,
}

/// One address of an upstream.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Endpoint {
    /// `HOST:PORT` or `unix:/path`.
    pub address: String,
    /// Its share; none for 1.
    pub weight: Option<u32>,
    /// The tier; none for 0.
    pub priority: Option<u32>,
}

/// A route.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Route {
    /// The file below `routes/` that it is written to, without `.yaml`: a name for the site or the service.
    pub file: String,
    /// Comment above it.
    pub comment: Vec<String>,
    /// Which requests match.
    pub matches: Match,
    /// Decides between routes that match equally well.
    pub priority: i64,
    /// Its filters, in order.
    pub filters: Vec<Filter>,
    /// What answers. None if the filters always answer.
    pub target: Option<Target>,
    /// `timeouts`, `escaped_slashes` and others.
    pub more: Map,
}

/// Which requests a route matches.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Match {
    /// Hosts; empty for any.
    pub hosts: Vec<String>,
    /// The path as docs/reference/routing.md writes it; none for any.
    pub path: Option<String>,
    /// Further paths, of which one suffices too.
    pub more_paths: Vec<String>,
    /// Methods; empty for any.
    pub methods: Vec<String>,
    /// Fields and the values that they must have.
    pub headers: Vec<(String, String)>,
    /// Parameters and the values that they must have.
    pub query: Vec<(String, String)>,
    /// Names of listeners; empty for any.
    pub listeners: Vec<String>,
    /// An expression.
    pub when: Option<String>,
    /// `case` and others.
    pub more: Map,
}

/// What answers a request.
#[derive(Clone, Debug, PartialEq)]
pub enum Target {
    /// An upstream.
    Upstream(String),
    /// Several upstreams with their shares.
    Split(Vec<(String, u32)>),
    /// An answer of the gateway.
    Respond(Map),
    /// Files of a folder.
    Files(Map),
    /// A script: the settings of `fastcgi`, the upstream, and files that are served themselves.
    FastCgi {
        /// The upstream with `protocol: fastcgi`.
        upstream: String,
        /// The settings of `fastcgi`.
        fastcgi: Map,
        /// The settings of `files`, whose `missing` is the upstream.
        files: Option<Map>,
    },
}

/// A filter with its settings.
#[derive(Clone, Debug, PartialEq)]
pub struct Filter {
    /// Comment above it.
    pub comment: Vec<String>,
    /// Its name: docs/reference/filters.md.
    pub name: &'static str,
    /// Its settings.
    pub settings: Value,
}

/// A request and the route that must take it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case {
    /// The method.
    pub method: String,
    /// The whole URL.
    pub url: String,
    /// Fields.
    pub headers: Vec<(String, String)>,
    /// The listener, if the URL does not say which.
    pub listener: Option<String>,
    /// The route; none if no route may take it.
    pub route: Option<String>,
}

impl<T> Default for Named<T> {
    fn default() -> Self {
        Self { things: Vec::new(), index: HashMap::new(), numbers: HashMap::new() }
    }
}

impl<T> Named<T> {
    /// Adds a thing under a name made from `wish`, and returns that name: characters that names may not have become
    /// `-`, and a number is added to a name that is taken.
    pub fn add(&mut self, wish: &str, thing: T) -> String {
        let base = name_of(wish);
        let mut name = base.clone();
        while self.index.contains_key(&name) {
            let number = self.numbers.entry(base.clone()).or_insert(1);
            *number += 1;
            let end = format!("-{number}");
            name = base.chars().take(NAME_CHARS - end.len()).chain(end.chars()).collect();
        }
        self.index.insert(name.clone(), self.things.len());
        self.things.push((name.clone(), thing));
        name
    }

    /// The thing with this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&T> {
        self.index.get(name).and_then(|at| self.things.get(*at)).map(|(_, thing)| thing)
    }

    /// The thing with this name.
    pub fn get_mut(&mut self, name: &str) -> Option<&mut T> {
        self.index.get(name).and_then(|at| self.things.get_mut(*at)).map(|(_, thing)| thing)
    }

    /// Takes the thing with this name away.
    pub fn remove(&mut self, name: &str) {
        let Some(at) = self.index.remove(name) else { return };
        self.things.remove(at);
        self.index.values_mut().filter(|later| **later > at).for_each(|later| *later -= 1);
    }

    /// All, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &T)> {
        self.things.iter().map(|(name, thing)| (&**name, thing))
    }

    /// All, in order.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&str, &mut T)> {
        self.things.iter_mut().map(|(name, thing)| (&**name, thing))
    }

    /// How many there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.things.len()
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.things.is_empty()
    }
}

impl Filter {
    /// A filter with settings.
    #[must_use]
    pub fn new(name: &'static str, settings: impl Into<Value>) -> Self {
        Self { comment: Vec::new(), name, settings: settings.into() }
    }

    /// The same with a comment above it.
    #[must_use]
    pub fn because(mut self, comment: impl Into<String>) -> Self {
        self.comment.push(comment.into());
        self
    }

    /// As an item of a list of filters.
    #[must_use]
    pub fn to_value(&self) -> Value {
        let mut map = Map::new();
        self.comment.iter().for_each(|line| map.comment(line));
        map.set(self.name, self.settings.clone());
        map.into()
    }
}

impl Config {
    /// The variable that stands for a secret: `${WISH}`. The same secret under the same wish has one variable.
    pub fn secret(&mut self, wish: &str, value: &str) -> Value {
        let upper = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
        let mut name: String = wish.chars().map(upper).collect();
        if !name.starts_with(|c: char| c.is_ascii_alphabetic()) {
            name.insert_str(0, "SECRET_");
        }
        let first = name.clone();
        for n in 2.. {
            match self.secrets.iter().find(|(known, _)| *known == name) {
                Some((_, known)) if known == value => break,
                Some(_) => name = format!("{first}_{n}"),
                None => {
                    self.secrets.push((name.clone(), value.to_owned()));
                    break;
                }
            }
        }
        Value::WithVariables(format!("${{{name}}}"))
    }

    /// The same for a value that the source does not have. `stand_in` is for the check alone.
    pub fn missing_secret(&mut self, wish: &str, stand_in: &str) -> Value {
        let value = self.secret(wish, stand_in);
        if let Value::WithVariables(text) = &value {
            self.placeholders.insert(text.trim_start_matches("${").trim_end_matches('}').to_owned());
        }
        value
    }

    /// Adds a route that was made from these statements, and returns its name.
    pub(crate) fn add_route(&mut self, wish: &str, route: Route, pieces: Vec<Piece>) -> String {
        let name = self.routes.add(wish, route);
        self.origins.insert(name.clone(), pieces);
        name
    }

    /// Sorts the variables, so that the file of secrets does not depend on the order of the source.
    pub(crate) fn name_secrets(&mut self) {
        self.secrets.sort();
    }
}

/// A name made from a text.
#[must_use]
pub fn name_of(wish: &str) -> String {
    // A name stands in logs, metrics and the console, so it holds no token and no password.
    let wish = wish.rsplit_once('@').map_or(wish, |(_, host)| host);
    let wish = crate::redact::without_tokens(wish);
    let fits = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-') { c } else { '-' };
    let mut name: String = wish.chars().map(fits).collect();
    while name.contains("--") {
        name = name.replace("--", "-");
    }
    let name: String = name.trim_matches(['-', '.']).chars().take(NAME_CHARS).collect();
    if name.is_empty() { "unnamed".to_owned() } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_made_from_texts() {
        let mut named = Named::default();
        let names = ["api.example.com/", "api.example.com", "*.example.com", "~^(x|y)$", ""]
            .map(|wish| named.add(wish, ()));
        assert_eq!(names, ["api.example.com", "api.example.com-2", "example.com", "x-y", "unnamed"]);
        assert_eq!(name_of("h.test/hook/zQ8vL2mN4pR6tU8wY0aC2eG4"), "h.test-hook-token");
        assert_eq!(name_of("h.test.hook-zQ8vL2mN4pR6tU8wY0aC2eG4"), "h.test.hook-token");
        assert_eq!(name_of("bob:s3cret@10.0.0.1"), "10.0.0.1");
    }

    #[test]
    fn a_secret_has_one_variable() {
        let mut config = Config::default();
        let text = |value: Value| format!("{value:?}");
        let first = text(config.secret("authorization", "Basic abc"));
        assert_eq!(first, text(config.secret("authorization", "Basic abc")));
        assert_ne!(first, text(config.secret("authorization", "Basic xyz")));
        assert_eq!(config.secrets[1].0, "AUTHORIZATION_2");
    }
}
