//! Code that several filters share. Nothing here is a filter.
//!
//! `by` decides what is counted, `page` is a page that an operator wrote. `media` has patterns of media types, `changed`
//! what follows for the head of a response whose body a filter changes, `json_body` what of a body is read as JSON.

pub(super) mod by;
pub(super) mod changed;
pub(super) mod media;
pub(super) mod page;
