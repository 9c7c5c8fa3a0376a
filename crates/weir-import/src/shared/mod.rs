//! What several systems need to say in our words.
//!
//! - [`units`]: durations and sizes as Weir writes them.
//! - [`regex`]: regular expressions that search, in PCRE's syntax, as ones that match the whole, in Rust's.
//! - [`path`]: paths and prefixes in the canonical form that Weir's router compares.
//! - [`expression`]: expressions of CEL, built without string concatenation.
//! - [`template`]: texts with variables as texts with placeholders and `{= … }`.
//! - [`networks`]: addresses and networks.
//! - [`families`]: listeners of IPv4 and IPv6 at one port.
//! - [`order`]: keeps another router's order of precedence.
//! - [`secrets`]: variables for secrets; `protect` moves those that no importer knew.
//! - [`users`]: users with hashed passwords.
//! - [`tls`]: ciphers and curves by the names of others.
//! - [`json`]: large JSON with the line of each value, for sources of plans.
//! - [`tree`], [`toml`]: YAML, JSON and TOML, with the line of each key.
//! - [`ranked`]: routes in the order of another router, written as ours.
//! - `claims`: conditions on what only trusted proxies may say.
//! - [`filters`]: the filters that every system has: redirects, fields, limits, lists of addresses.

pub(crate) mod claims;
pub mod expression;
pub mod families;
pub mod filters;
pub mod json;
pub mod networks;
pub mod order;
pub mod path;
pub(crate) mod protect;
pub mod ranked;
pub mod regex;
pub mod secrets;
pub mod template;
pub mod tls;
pub mod toml;
pub mod tree;
pub mod units;
pub mod users;
