//! The filters that decide who calls and who may pass, and those that sign.
//!
//! A filter sees only what weir-filter exposes to filters. `shared/` holds code that several of these filters use:
//! tokens, signatures, cookies. weir-filters lists them with all others.

pub mod acl;
pub mod any;
pub mod basic_auth;
pub mod forward_auth;
pub mod jwt;
pub mod key_auth;
pub mod mtls_auth;
pub mod oidc;
pub mod sign;
pub mod signature_auth;

mod shared;

use weir_filter::prelude;
#[cfg(test)]
use weir_filter::testing;

/// The filters of this crate, for tests that combine them.
#[cfg(test)]
static KINDS: &[&weir_filter::filter::FilterKind] = &[
    &acl::KIND,
    &any::KIND,
    &basic_auth::KIND,
    &forward_auth::KIND,
    &jwt::KIND,
    &key_auth::KIND,
    &mtls_auth::KIND,
    &oidc::KIND,
    &sign::KIND,
    &signature_auth::KIND,
];
