//! What several systems need to say in our words.
//!
//! - [`units`]: durations and sizes as Weir writes them.
//! - [`regex`]: regular expressions that search, in PCRE's syntax, as ones that match the whole, in Rust's.
//! - [`path`]: paths and prefixes in the canonical form that Weir's router compares.
//! - [`expression`]: expressions of CEL, built without string concatenation.
//! - [`template`]: texts with variables as texts with placeholders and `{= … }`.
//! - [`networks`]: addresses and networks.
//! - [`order`]: keeps another router's order of precedence.
//! - [`secrets`]: variables for secrets.
//! - [`tree`]: YAML and JSON, with the line of each key.
//! - [`filters`]: the filters that every system has: redirects, fields, limits, lists of addresses.

pub mod expression;
pub mod filters;
pub mod networks;
pub mod order;
pub mod path;
pub mod regex;
pub mod secrets;
pub mod template;
pub mod tree;
pub mod units;
