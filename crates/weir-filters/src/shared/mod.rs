//! Code that several filters share. Nothing here is a filter.
//!
//! `by` decides what is counted, and `page` is a page that an operator wrote.

pub(super) mod by;
pub(super) mod page;
