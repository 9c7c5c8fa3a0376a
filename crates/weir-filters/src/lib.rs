//! The registry of all filters, and those filters that need no crate of their own. To add a filter, add a file here
//! and its two lines below, in sorted order.
//!
//! weir-identity has the filters that decide who calls, weir-rpc those that translate to gRPC, weir-cache `cache`.
//!
//! A filter sees only what weir-filter exposes to filters. `shared/` holds code that several filters use, `prelude`
//! the names that nearly all of them need, and `testing` runs one filter alone.

mod body_limit;
mod buffer;
mod circuit_breaker;
mod compress;
mod concurrency;
mod cookies;
mod cors;
mod errors;
mod fault;
mod headers;
mod ip;
mod log_body;
mod maintenance;
mod mirror;
mod rate_limit;
mod redirect;
mod redirects;
mod replace;
mod request_id;
mod respond;
mod rewrite;
mod security_headers;
mod timeout;
mod transform;
mod validate;
mod when;

mod shared;

use weir_filter::filter::FilterKind;
use weir_filter::prelude;
#[cfg(test)]
use weir_filter::testing;

/// Every kind of filter, by name.
pub static KINDS: &[&FilterKind] = &[
    &weir_identity::acl::KIND,
    &weir_identity::any::KIND,
    &weir_identity::basic_auth::KIND,
    &body_limit::KIND,
    &buffer::KIND,
    &weir_cache::filter::KIND,
    &circuit_breaker::KIND,
    &compress::KIND,
    &concurrency::KIND,
    &weir_rpc::connect::KIND,
    &cookies::KIND,
    &cors::KIND,
    &errors::KIND,
    &weir_rpc::ext_proc::KIND,
    &fault::KIND,
    &weir_identity::forward_auth::KIND,
    &weir_rpc::grpc_json::KIND,
    &weir_rpc::grpc_web::KIND,
    &headers::KIND,
    &ip::KIND,
    &weir_identity::jwt::KIND,
    &weir_identity::key_auth::KIND,
    &log_body::KIND,
    &maintenance::KIND,
    &mirror::KIND,
    &weir_identity::mtls_auth::KIND,
    &weir_identity::oidc::KIND,
    &rate_limit::KIND,
    &redirect::KIND,
    &redirects::KIND,
    &replace::KIND,
    &request_id::KIND,
    &respond::KIND,
    &rewrite::KIND,
    &security_headers::KIND,
    &weir_identity::sign::KIND,
    &weir_identity::signature_auth::KIND,
    &timeout::KIND,
    &transform::KIND,
    &validate::KIND,
    &when::KIND,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_registry_is_sorted() {
        assert!(KINDS.is_sorted_by(|a, b| a.name < b.name), "{KINDS:?}");
    }
}
