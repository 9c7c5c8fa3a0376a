//! The registry of filters. One more filter is one new file here and its two lines below, in order.
//!
//! Beside the filters: `shared/` is what several of them use, `testing` runs one alone, `manual` makes `docs/filters.md`.

use crate::filter::FilterKind;

mod acl;
mod any;
mod basic_auth;
mod body_limit;
pub(crate) mod cache;
mod circuit_breaker;
mod compress;
mod concurrency;
mod cors;
mod errors;
mod fault;
mod forward_auth;
mod headers;
mod ip;
mod jwt;
mod key_auth;
mod maintenance;
mod mirror;
mod mtls_auth;
mod oidc;
mod rate_limit;
mod redirect;
mod request_id;
mod rewrite;
mod security_headers;
mod sign;
mod signature_auth;
mod timeout;

pub mod manual;
pub(crate) mod shared;
pub mod testing;

/// What a filter's file needs.
pub mod prelude {
    pub use crate::config::delay::Delay;
    pub use crate::config::units::{ByteSize, Duration, Percent};
    pub use crate::error::Cause;
    pub use crate::filter::{
        Answer, Attempt, AttemptEnd, Body, BodySource, BodyUse, Build, CALL_BODY_BYTES, CallAnswer,
        CallRequest, Conceals, Consumer, Consumers, CoreHandle, Cx, End, FetchError, FetchRequest, Fetcher,
        FieldGuards, FilePath, FileRange, Filter, FilterKind, Flow, GrpcStatus, HeaderName, HookResult,
        Hooks, IntoFilter, PerCore, Piece, Portable, Reading, Refusal, RequestHead, ResponseHead, Tended,
        Tending, TextOrPath, Trust, Url, Waiting,
    };
    pub use bytes::Bytes;
    pub use schemars::JsonSchema;
    pub use serde::{Deserialize, Serialize};
}

/// Every kind of filter, by name.
pub static KINDS: &[&FilterKind] = &[
    &acl::KIND,
    &any::KIND,
    &basic_auth::KIND,
    &body_limit::KIND,
    &cache::KIND,
    &circuit_breaker::KIND,
    &compress::KIND,
    &concurrency::KIND,
    &cors::KIND,
    &errors::KIND,
    &fault::KIND,
    &forward_auth::KIND,
    &headers::KIND,
    &ip::KIND,
    &jwt::KIND,
    &key_auth::KIND,
    &maintenance::KIND,
    &mirror::KIND,
    &mtls_auth::KIND,
    &oidc::KIND,
    &rate_limit::KIND,
    &redirect::KIND,
    &request_id::KIND,
    &rewrite::KIND,
    &security_headers::KIND,
    &sign::KIND,
    &signature_auth::KIND,
    &timeout::KIND,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_registry_is_sorted() {
        assert!(KINDS.is_sorted_by(|a, b| a.name < b.name), "{KINDS:?}");
    }
}
