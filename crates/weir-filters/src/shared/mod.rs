//! Code that several filters share. Nothing here is a filter.
//!
//! `by` decides what is counted. `claimed` uses claims, `cookies` reads and removes cookies, and `fair_queue` serves
//! clients in turn on threads. `field_form` is how a signature covers a field, `grpc` loads the descriptors of a gRPC
//! service, and `jose` parses and verifies signed tokens. `page` is a page that an operator wrote, `query` reads and
//! edits query strings, `sfv` parses structured fields, and `signature` builds what a signature covers.

pub(super) mod by;
pub(super) mod claimed;
pub(super) mod cookies;
pub(super) mod fair_queue;
pub(super) mod field_form;
pub(super) mod grpc;
pub(super) mod jose;
pub(super) mod page;
pub(super) mod query;
pub(super) mod sfv;
pub(super) mod signature;

use weir_filter::filter::{Build, HeaderName};
use weir_h1::Known;
use weir_wire::base64; // imported here, because `fuzz/` compiles `sfv` on its own

/// The part after the scheme in credentials such as `Bearer TOKEN`; `None` for another scheme, or if nothing follows
/// it.
///
/// Any character that ends the scheme counts as its end, not only the space of RFC 9110 §11.4. Text that an upstream
/// may read as a token (`Bearer`, a tab, a token) must not pass as if there were none.
pub(super) fn after_scheme<'v>(value: &'v [u8], scheme: &str) -> Option<&'v [u8]> {
    let (word, rest) = value.split_at_checked(scheme.len())?;
    let is_longer = |b: &u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(b); // RFC 9110 §5.6.2
    if !word.eq_ignore_ascii_case(scheme.as_bytes()) || rest.first().is_none_or(is_longer) {
        return None;
    }
    let credentials = rest.trim_ascii_start();
    (!credentials.is_empty()).then_some(credentials)
}

/// Whether a field contains only the client's address, as every proxy sends it. Upstreams may not vary by such a
/// field.
pub(super) fn is_address(name: &str) -> bool {
    const ADDRESSES: [&str; 9] = [
        "cf-connecting-ip",
        "forwarded",
        "true-client-ip",
        "via",
        "x-client-ip",
        "x-cluster-client-ip",
        "x-envoy-external-address",
        "x-forwarded-for",
        "x-real-ip",
    ];
    ADDRESSES.iter().any(|known| known.eq_ignore_ascii_case(name))
}

/// Refuses header names that affect message framing, belong to one connection, or have a better setting. Returns
/// whether the name may be used.
pub(super) fn allow_name(build: &mut Build<'_>, field: &str, name: &HeaderName) -> bool {
    let why = match Known::of(name.as_str().as_bytes()) {
        Known::ContentLength | Known::TransferEncoding | Known::Trailer => {
            "says where a message ends; the gateway alone writes it"
        }
        Known::Connection | Known::KeepAlive | Known::ProxyConnection | Known::Te | Known::Upgrade => {
            "belongs to one connection; the gateway alone writes it"
        }
        Known::Expect => "is answered by the gateway",
        Known::Host => "is part of the request's target",
        Known::Alias => "is dropped from every request, because servers read `_` as `-`",
        _ => return true,
    };
    let hint = match Known::of(name.as_str().as_bytes()) {
        Known::Host => "use the filter rewrite: { host: NAME }, or `host` of the upstream",
        Known::Alias => "write it with `-`",
        _ => "leave it out",
    };
    build.refuse(field, format!("`{name}` {why}", name = name.as_str()), Some(hint.into()));
    false
}
