//! Signed tokens (JWS and JWT, RFC 7515 and 7519): how they are read, and with which keys they are verified. Not a filter;
//! what those use that get tokens.
//!
//! `token` takes a compact token apart and knows bytes only, so it is fuzzed; `json` reads JSON without repeated names;
//! `algorithm` names the algorithms; `key` is a key and its verification by aws-lc-rs; `key_set` is several of them, from a
//! JWKS or PEM; `pem` reads the latter; `remote` keeps those of a URL fresh.
//!
//! Invariant: a key is bound to the algorithms of its own type when it is read, so no token can have a public key taken
//! for a secret.

pub(crate) mod algorithm;
mod json;
pub(crate) mod key;
pub(crate) mod key_set;
pub(crate) mod pem;
pub(crate) mod remote;
pub(crate) mod token;
#[cfg(test)]
mod vectors;

use weir_wire::base64; // named here once, because `fuzz/` makes `token` of its own files
