//! What a config of Caddy says, whether it came from a Caddyfile or from JSON: servers with routes of matchers and
//! handlers, in the order in which Caddy runs them.

use crate::config::{Filter, Upstream};
use crate::ledger::Piece;
use crate::yaml::Map;

/// A group of addresses with one list of routes.
#[derive(Clone, Debug, Default)]
pub(super) struct Server {
    pub(super) listens: Vec<Listen>,
    pub(super) routes: Vec<Route>,
}

/// An address that clients connect to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Listen {
    /// `[::]:80`.
    pub(super) address: String,
    pub(super) tls: bool,
}

/// A route: if one of its sets matches, its handlers run.
#[derive(Clone, Debug)]
pub(super) struct Route {
    /// Alternatives; empty for every request.
    pub(super) sets: Vec<Set>,
    /// Of the routes of a group, only the first that matches runs.
    pub(super) group: Option<String>,
    /// Whether nothing runs behind it.
    pub(super) is_terminal: bool,
    pub(super) handlers: Vec<Handler>,
    pub(super) pieces: Vec<Piece>,
}

/// Matchers that must all hold.
pub(super) type Set = Vec<Matcher>;

/// A condition.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Matcher {
    Host(Vec<String>),
    Path(Vec<String>),
    PathRegexp {
        name: String,
        pattern: String,
    },
    Method(Vec<String>),
    /// Parameters with values of which one must be there; `*` for any.
    Query(Vec<(String, Vec<String>)>),
    /// Fields with values of which one must be there; none if the field must be absent.
    Header(Vec<(String, Option<Vec<String>>)>),
    HeaderRegexp(Vec<(String, String)>),
    Client(Vec<String>),
    Protocol(String),
    Not(Vec<Set>),
    Expression(String),
    File(FileTest),
    /// What Weir cannot say, with the reason.
    Unknown(String),
}

/// Whether a file exists.
#[derive(Clone, Debug, PartialEq, Default)]
pub(super) struct FileTest {
    pub(super) root: Option<String>,
    pub(super) tries: Vec<String>,
    pub(super) splits: bool,
}

/// What a route does.
#[derive(Clone, Debug)]
pub(super) struct Handler {
    pub(super) kind: Kind,
    pub(super) piece: Piece,
}

/// Kinds of handlers.
#[derive(Clone, Debug)]
pub(super) enum Kind {
    Subroute(Vec<Route>),
    Headers(Ops),
    Rewrite(Rewrite),
    Respond(Answer),
    Proxy(Box<Proxy>),
    Files(Files),
    /// `root` and others.
    Vars(Vec<(String, String)>),
    /// A filter that changes nothing of the flow.
    Filter(Filter),
    /// Users with their hashes, and the realm.
    Users {
        users: Vec<(String, String)>,
        realm: Option<String>,
    },
    /// A service that is asked, with what follows if it agrees.
    Ask(Box<Ask>),
    Map(Table),
    Error {
        status: String,
    },
    Abort,
    /// Says nothing that Weir needs.
    Nothing,
    /// What may guard the route and cannot be translated.
    Closed(String),
}

/// Changes to fields.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Ops {
    pub(super) request: Vec<Op>,
    pub(super) response: Vec<Op>,
    /// Whether those of the response wait for it.
    pub(super) is_deferred: bool,
    /// Fields, with which those of the response do nothing.
    pub(super) unless: Vec<String>,
}

/// A change to a field.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Op {
    Set(String, String),
    Add(String, String),
    Delete(String),
}

/// A change to the URI.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Rewrite {
    /// The whole.
    Uri(String),
    StripPrefix(String),
    /// What a regular expression finds in the path, and what takes its place.
    Replace(String, String),
    Method(String),
    /// What Weir cannot do, with what it has.
    Other(String),
}

/// An answer of the server itself.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Answer {
    /// As written; empty for 200.
    pub(super) status: String,
    pub(super) body: String,
    pub(super) headers: Vec<(String, String)>,
}

/// A reverse proxy.
#[derive(Clone, Debug, Default)]
pub(super) struct Proxy {
    /// Its upstream, complete but for what many share.
    pub(super) upstream: Upstream,
    /// A name for it.
    pub(super) name: String,
    pub(super) request: Vec<Op>,
    pub(super) response: Vec<Op>,
    pub(super) rewrite: Option<String>,
    /// The field Host, if it is set.
    pub(super) host: Option<String>,
    pub(super) fastcgi: Option<FastCgi>,
    /// Why it cannot be used, if so.
    pub(super) closed: Option<String>,
    /// Filters of the proxy, such as `buffer`.
    pub(super) filters: Vec<Filter>,
}

/// The settings of `transport fastcgi`.
#[derive(Clone, Debug, Default)]
pub(super) struct FastCgi {
    pub(super) root: Option<String>,
    pub(super) split: Option<String>,
    pub(super) index: Option<String>,
    pub(super) env: Vec<(String, String)>,
    /// Whether it is `php_fastcgi`, which looks for files itself.
    pub(super) is_idiom: bool,
    pub(super) tries: Option<Vec<String>>,
}

/// A file server.
#[derive(Clone, Debug, Default)]
pub(super) struct Files {
    pub(super) root: Option<String>,
    pub(super) settings: Map,
    pub(super) passes_on: bool,
}

/// `forward_auth`.
#[derive(Clone, Debug)]
pub(super) struct Ask {
    pub(super) proxy: Proxy,
    pub(super) uri: String,
    /// Fields of the answer with the name that the request gets.
    pub(super) copy: Vec<(String, String)>,
}

/// `map`.
#[derive(Clone, Debug, Default)]
pub(super) struct Table {
    pub(super) source: String,
    pub(super) destinations: Vec<String>,
    /// A text or `~regex`, and a value for each destination.
    pub(super) rows: Vec<(String, Vec<String>)>,
    pub(super) defaults: Vec<String>,
}

impl Route {
    /// A route for every request.
    pub(super) fn always(handler: Handler) -> Self {
        Self {
            sets: Vec::new(),
            group: None,
            is_terminal: false,
            pieces: vec![handler.piece],
            handlers: vec![handler],
        }
    }
}
