//! Translations by tables: `tests/cases/NAME.yaml` has objects, `NAME.out` the config and the statuses made from them.
//!
//! Each case adds objects to those of `base.yaml`. Its document of the kind `Case` has requests, and the outcomes that
//! the Gateway API prescribes, written by hand. The code that routes live traffic answers them from the compiled
//! config, so a golden output cannot bless a wrong translation. Every config passes `weir check`.
//!
//! `WEIR_BLESS=1` writes the golden outputs.
//!
//! *Layout:* `cases.rs` runs all cases. `case.rs` reads one and asks where its requests go. The other files change cases,
//! each for one theme.

#![allow(clippy::unwrap_used, reason = "this is test code: a panic is how a test fails")]

mod case;
mod cases;
mod certificates;
mod left_out;
mod ports;
mod scale;

/// When statuses are written, in all tests.
const NOW: &str = "2026-11-29T06:00:00Z";
/// Our name, in all tests.
const CONTROLLER: &str = "weir.dev/gateway";
