//! `weir shadow`: judges another config on the heads of live requests, after their answers.
//!
//! ```text
//!   exchange/record.rs ─► Tap (one bit test without a shadow) ─► bounded queue ─► Judge, on a thread of its own
//!     after the answer      copies the head and the live decision    full: counted      decides for both configs
//! ```
//!
//! A [`Tap`] is what cores hold while a shadow runs. A [`Judge`] computes what a config decides about a head, with the
//! code of live traffic: `matching.rs` finds the route, `to_run.rs` orders the filters, and the filters are those of
//! the snapshot. Its filters reach no core (`judge.rs` says what they get instead), so nothing is dialed, started or
//! waited for.
//!
//! *Invariant:* a head leaves this module only as a [`Seen`], which has no value of a field, cookie or query.

mod judge;
mod seen;

pub use crate::tap::{Counts, Heads, Sample, Tap, WAITING, WAITING_BYTES, tap};
pub use judge::{Decision, How, Judge, Judged, Outcome, Passed};
pub use seen::Seen;
