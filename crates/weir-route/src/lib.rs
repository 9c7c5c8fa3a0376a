//! Routes: which one wins a request, and why.
//!
//! This crate knows nothing of config, sockets or tasks: it takes plain route specs and bytes.
//!
//! ```text
//!   RouteSpec… ──Table::build──▶ Table ──find(&Request, &mut Trace)──▶ RouteId
//!      │ pattern.rs   path: literal, {name}, prefix/*, raw*, ~regex      │ NoTrace: live traffic
//!      │ host.rs      host: exact, *.x, x.*, ~regex, any                 │ explain.rs: the decision, told
//!      │ matcher.rs   method, listener, header, query, cookie, client, `not`; when.rs: an expression
//!      │ parameters.rs captures of path and host
//!      │ variables.rs what an expression may name, and its values; maps.rs: named tables
//!      │ compiled.rs  a route as written and as compiled
//!      │ conflict.rs  ties and unreachable routes; sample.rs makes up examples
//!      └ paths.rs     one host's routes by path: literals, trie, regexes; paths/partial.rs: parts of segments
//!   raw path ──path::canonical──▶ the one form that matching, access rules and forwarding share
//!      └ with `%2F` or `;` ──readings::settle──▶ the route that every reading of it takes, or none
//! ```
//!
//! `docs/reference/routing.md` explains this to operators, with worked examples.

mod compiled;
mod conflict;
pub mod cookies;
mod exclusion;
mod explain;
mod host;
mod maps;
mod matcher;
mod parameters;
pub mod path;
mod paths;
mod pattern;
mod query;
mod readings;
mod request;
mod sample;
mod table;
#[cfg(test)]
mod testing;
pub mod variables;
mod when;

pub use self::compiled::{RouteSpec, Shown};
pub use self::conflict::{Conflict, ConflictKind, MAX_TIES};
pub use self::exclusion::Exclusion;
pub use self::explain::{
    Captured, Decision, Lost, NEAR_MISSES, NearMiss, Rule, Winner, explain, explain_without,
};
pub use self::host::HOST_BYTES;
pub use self::maps::{EntryError, Keys, MAPS, MapMistake, Maps, MapsBuilder, REGEXES, is_network};
pub use self::parameters::{Parameters, capture_names};
pub use self::path::{Ambiguity, Canonical, PathError, Slashes, canonical, examine};
pub use self::pattern::{Captures, Case, Pattern, PatternError, REGEX_BYTES};
pub use self::readings::{Contested, EscapedSlashes, Settled, settle};
pub use self::request::{Failed, Headers, NoTrace, Request, RouteId, Trace};
pub use self::sample::{OfSample, Sample};
pub use self::table::Table;
pub use self::when::When;
