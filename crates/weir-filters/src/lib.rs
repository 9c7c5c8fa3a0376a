//! The filters that come with the gateway, and their registry. To add a filter, add a file here and its two lines
//! below, in sorted order.
//!
//! A filter sees only what weir-filter exposes to filters. `shared/` holds code that several filters use, `prelude`
//! the names that nearly all of them need, and `testing` runs one filter alone.

/// Declares causes: NAME, code, status, what happened, and what the operator can change.
macro_rules! causes {
    ($($name:ident $code:literal $status:literal $meaning:literal $change:literal $(, $key:ident: $value:expr)*)*) => {$(
        static $name: Cause = Cause {
            code: $code,
            status: $status,
            meaning: $meaning,
            change: $change,
            $($key: $value,)*
            ..Cause::USUAL
        };
    )*};
}

mod acl;
mod any;
mod basic_auth;
mod body_limit;
mod cache;
mod circuit_breaker;
mod compress;
mod concurrency;
mod connect;
mod cors;
mod errors;
mod fault;
mod forward_auth;
mod grpc_json;
mod grpc_web;
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

mod shared;

use weir_filter::filter::FilterKind;
use weir_filter::prelude;
#[cfg(test)]
use weir_filter::testing;

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
    &connect::KIND,
    &cors::KIND,
    &errors::KIND,
    &fault::KIND,
    &forward_auth::KIND,
    &grpc_json::KIND,
    &grpc_web::KIND,
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
