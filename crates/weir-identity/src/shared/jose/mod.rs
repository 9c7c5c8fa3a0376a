//! Signed tokens (JWS and JWT, RFC 7515 and 7519): parsing them, and verifying them with keys. Not a filter; the
//! filters that receive tokens use it.
//!
//! `token` takes a compact token apart; it handles bytes only, so it is fuzzed. `json` parses JSON without repeated
//! names. `algorithm` names the algorithms. `key` is one key, verified by aws-lc-rs, and `key_set` is several keys
//! from a JWKS or PEM. `pem` parses PEM, and `remote` keeps the keys of a URL fresh.
//!
//! Invariant: a key is bound to the algorithms of its type when it is parsed, so no token can make a public key serve
//! as a secret.

pub(crate) mod algorithm;
mod json;
pub(crate) mod key;
pub(crate) mod key_set;
pub(crate) mod pem;
pub(crate) mod remote;
pub(crate) mod token;
#[cfg(test)]
mod vectors;

use weir_wire::base64; // imported here, because `fuzz/` compiles `token` on its own
