//! Explains why a request ended as it did: afterwards, by its id or by what happened to it.
//!
//! ```text
//!   exchange/record.rs ─► Autopsies (one per core, bounded) ─► Gateway::why ─► sentence, timeline, key, file:line
//!     failed, slow            `Message::Why` asks each core      on the caller's thread, which only then looks up
//!     or sampled                                                 the runner-up route and the place in the config
//! ```
//!
//! A kept exchange holds the record that its access log line is made from, and the steps that took time. A successful
//! exchange costs two comparisons. No secret is kept (see `kept`). Of an upstream's own error, only its code, reason
//! and message are kept (see `body`).

pub(crate) mod body;
pub(crate) mod kept;
mod keys;
mod render;
pub mod rings;
mod sentence;

pub use render::{Files, ReportContext, connection as connection_kept};
pub use rings::Question;
pub use rings::{Autopsies, Found, SAMPLE, Usual};

use schemars::JsonSchema;
use serde::Serialize;

/// The answer to a question about exchanges.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
#[schemars(rename = "Autopsies")]
pub struct Answer {
    /// The exchanges found, the latest first.
    pub found: Vec<Autopsy>,
    /// Pass this with the next question to get only later exchanges.
    pub cursor: String,
    /// How many exchanges are kept now.
    pub held: usize,
    /// When the oldest kept failure began.
    pub since: Option<String>,
    /// One in this many successful exchanges is kept.
    pub sample: u32,
    /// Whether exchanges are kept at all (`limits.autopsy`).
    pub on: bool,
}

/// What happened to one request, and why.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct Autopsy {
    /// How many more of the same kind, status, cause and route are kept, if the question groups them.
    #[serde(skip_serializing_if = "is_zero")]
    pub alike: u64,
    /// Its id.
    pub id: String,
    /// `failed`, `slow` or `sampled`.
    pub kind: &'static str,
    /// When its first byte arrived.
    pub at: String,
    /// What happened, in a sentence or two.
    pub sentence: String,
    /// The config key that would change it.
    pub key: Option<KeyShown>,
    /// Why the gateway itself answered.
    pub cause: Option<CauseShown>,
    /// The status that the client got; 0 if none.
    pub status: u16,
    /// Everything that took time, in order.
    pub timeline: Vec<Moment>,
    /// From the first byte of the request to the last of the answer, in microseconds.
    pub total_us: u64,
    /// Who asked.
    pub client: ClientShown,
    /// What was asked.
    pub request: RequestShown,
    /// The route it took and the candidates.
    pub route: RouteShown,
    /// The filters that ran, in order.
    pub filters: Vec<String>,
    /// The consumer that a filter named.
    pub consumer: Option<String>,
    /// The arm of the route's split, if the arms have filters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arm: Option<String>,
    /// The upstream.
    pub upstream: Option<String>,
    /// The endpoint of the last attempt.
    pub endpoint: Option<String>,
    /// How many attempts were made.
    pub attempts: u32,
    /// Bytes from the client, head and body.
    pub bytes_in: u64,
    /// Bytes to the client, head and body.
    pub bytes_out: u64,
    /// The revision of the config it ran on.
    pub revision: String,
    /// Whether another config runs now.
    pub config_changed: bool,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
const fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// A key of the config.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct KeyShown {
    /// Its path, such as `upstreams.orders.timeouts.response`.
    pub key: String,
    /// File and line.
    pub at: Option<String>,
    /// Its value, unless it is secret.
    pub value: Option<String>,
    /// Anything else: that it is not set, or that the file has changed.
    pub note: Option<String>,
}

/// A cause.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct CauseShown {
    /// Its code.
    pub code: &'static str,
    /// What it means.
    pub meaning: &'static str,
    /// What to change, for any request.
    pub change: &'static str,
}

/// One moment of an exchange.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Moment {
    /// When, in microseconds since the first byte of the request.
    pub at_us: u64,
    /// How long it took, in microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub took_us: Option<u64>,
    /// What happened.
    pub what: String,
}

/// A client.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct ClientShown {
    /// Its address, after trusted forwarding fields.
    pub address: Option<String>,
    /// The other end of the connection, if different.
    pub peer: Option<String>,
    /// `HTTP/1.1`
    pub protocol: &'static str,
    /// `TLSv1.3 TLS13_AES_256_GCM_SHA384`
    pub tls: Option<String>,
    /// The listener.
    pub listener: String,
}

/// A request, without anything that may be secret.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct RequestShown {
    /// The method.
    pub method: String,
    /// The host.
    pub host: String,
    /// The path as received; keys in it are hidden.
    pub path: String,
    /// The names of its query parameters, with the sizes of their values: `page:2`.
    pub query: Vec<String>,
    /// The names of its header fields, with the sizes of their values: `user-agent:11`.
    pub fields: Vec<String>,
    /// Whether some of this was too long to keep.
    pub cut: bool,
}

/// A route and its neighbors.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct RouteShown {
    /// Its name; `None` if no route matched.
    pub name: Option<String>,
    /// The route that would have been next, and why it was not taken.
    pub runner_up: Option<Neighbour>,
    /// The nearest routes, if none matched.
    pub near: Vec<Neighbour>,
}

/// A route that was not taken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Neighbour {
    /// Its name.
    pub route: String,
    /// Why it was not taken.
    pub why: String,
}
