//! Code that several filters share. Nothing here is a filter.
//!
//! `claimed` uses claims, and `fair_queue` serves clients in turn on threads. `jose` parses and verifies signed tokens,
//! `named` is a consumer that was found, `field_form` is how a signature covers a field, and `signature` builds what a
//! signature covers.

pub(super) mod claimed;
pub(super) mod fair_queue;
pub(super) mod field_form;
pub(super) mod jose;
pub(super) mod named;
pub(super) mod signature;

use weir_wire::base64;

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
