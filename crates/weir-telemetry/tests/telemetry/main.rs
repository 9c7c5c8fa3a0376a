//! Telemetry from outside: what a core records is what a scraper and a log reader see.

#![allow(clippy::unwrap_used, reason = "a test may, and so may what it calls")]

mod access_log;
mod exposition;
#[path = "../../../weir-testkit/src/generated.rs"]
mod generated;
mod log;
mod manual;
mod parser;
mod series;
