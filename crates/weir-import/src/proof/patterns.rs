//! What the lines of the old config tell apart, and its staged text.

use crate::source::Place;
use serde::{Deserialize, Serialize};

/// The old program's config, to be run in a world of its own, and what its lines tell apart.
#[derive(Clone, Debug, Default)]
pub struct Stage {
    /// The config.
    pub text: String,
    /// For each line of the text the line of the source that it came from.
    pub places: Vec<Option<Place>>,
    /// The same config with the limits of time (`limit_req`), if it has any.
    pub limited: Option<String>,
    /// Files that the config names, by path below the workspace.
    pub files: Vec<(String, String)>,
    /// What its lines tell apart.
    pub patterns: Patterns,
}

/// What the lines of a config tell apart.
#[derive(Clone, Debug, Default)]
pub struct Patterns {
    /// Servers with their locations.
    pub sites: Vec<Site>,
    /// Addresses that requests are sent to, `HOST:PORT` or `unix:/path`, without duplicates.
    pub origins: Vec<Origin>,
    /// Groups of such addresses that stand for one another.
    pub groups: Vec<Vec<String>>,
    /// Addresses of which a hash of the request chooses one.
    pub hashed: Vec<String>,
    /// Lines that no witness can judge, with the reason.
    pub unprovable: Vec<(Line, String)>,
    /// Whether versions of the program differ about a field that is sent twice: nginx compares the first before 1.23,
    /// and all of them, joined, since. Then no request repeats one.
    pub reads_one_field: bool,
    /// Names of users, who all have [`super::callers::PASSWORD`] in the staged config.
    pub users: Vec<String>,
    /// Why nothing can be proved, if so: a line that the staged config cannot hold.
    pub obstacles: Vec<(Line, String)>,
}

/// An address that requests are sent to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Origin {
    /// `HOST:PORT` or `unix:/path`, as written.
    pub address: String,
    /// Whether it is spoken to with TLS.
    pub tls: bool,
}

/// A line of the source.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Line {
    /// Where it is.
    pub place: Place,
    /// Its text.
    pub text: String,
}

/// An address that clients connect to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Front {
    /// An IPv4 address.
    pub ip: String,
    /// The port, as in the source.
    pub port: u16,
    /// Whether clients speak TLS.
    pub tls: bool,
}

/// A server.
#[derive(Clone, Debug)]
pub struct Site {
    /// Its first line.
    pub line: Line,
    /// Its names: `a.example`, `*.example`, `.example`, `a.*`, `~regex`; empty for any.
    pub hosts: Vec<(String, Line)>,
    /// Where clients reach it.
    pub fronts: Vec<Front>,
    /// Its paths.
    pub paths: Vec<PathPattern>,
}

/// A pattern of paths and what happens to them.
#[derive(Clone, Debug)]
pub struct PathPattern {
    /// Its line.
    pub line: Line,
    /// What kind it is.
    pub kind: PathKind,
    /// The path or the regular expression.
    pub text: String,
    /// What happens: innermost first, so that the first that fits a difference is its cause.
    pub settings: Vec<Setting>,
    /// Requests that it tells apart.
    pub conditions: Vec<Condition>,
    /// The largest body in bytes, with its line.
    pub body_limit: Option<(u64, Line)>,
    /// How many requests at once pass, with the line that limits them.
    pub burst: Option<(u32, Line)>,
    /// Addresses that it sends requests to, of one group.
    pub endpoints: Vec<String>,
    /// Whether it copies requests to a further upstream, at a time of its own.
    pub mirrors: bool,
}

/// Kinds of path patterns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathKind {
    /// This path alone.
    Exact,
    /// Paths that begin so.
    Prefix,
    /// Paths in which the regular expression is found.
    Regex {
        /// Whether letters are compared without case.
        ignores_case: bool,
    },
}

/// Something that a line does to requests or answers.
#[derive(Clone, Debug)]
pub struct Setting {
    /// What.
    pub effect: Effect,
    /// The line.
    pub line: Line,
}

/// What a line changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// A field of the answer, in lower case.
    AnswerField(String),
    /// The body of the answer.
    Body,
    /// A redirect.
    Redirect,
    /// Which status is answered: one of these; empty for any.
    Status(Vec<u16>),
    /// What the upstream is asked for.
    Target,
    /// A field that the upstream sees, in lower case.
    UpstreamField(String),
    /// Who answers.
    Who,
}

impl Patterns {
    /// Adds the name of a user, once.
    pub(crate) fn add_user(&mut self, name: String) {
        if !self.users.contains(&name) {
            self.users.push(name);
        }
    }
}

impl Setting {
    /// Whether a difference can come from the line: what kind of line causes it, and the two statuses if it is one.
    #[must_use]
    pub fn causes(&self, effect: &Effect, statuses: (u16, u16)) -> bool {
        match (&self.effect, effect) {
            (Effect::Status(known), Effect::Status(_)) => {
                known.is_empty() || known.contains(&statuses.0) || known.contains(&statuses.1)
            }
            (own, wanted) => own == wanted,
        }
    }
}

/// Something other than host and path that tells requests apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// The line.
    pub line: Line,
    /// What is looked at.
    pub of: Subject,
    /// Values that are told apart.
    pub values: Vec<String>,
}

/// What a condition looks at.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Subject {
    /// A parameter of the query.
    Argument(String),
    /// The client's address; the values are addresses.
    Client,
    /// A cookie.
    Cookie(String),
    /// A field.
    Field(String),
    /// The host.
    Host,
    /// The method.
    Method,
    /// The path.
    Path,
}

/// The socket in the workspace that stands for a socket of the machine.
#[must_use]
pub fn unix_in_workspace(path: &str) -> String {
    // A path of a socket has 107 bytes at most: its end tells more than its beginning.
    let name: String = path.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    let from = name.len().saturating_sub(70);
    format!("{}/s{}", super::WORKSPACE, &name[from..])
}
