//! Fuzz targets: plain functions of bytes that panic if a property is violated.
//!
//! To add a target: its function here (one module per crate), a line in [`TARGETS`], `fuzz_targets/<name>.rs`, a
//! `[[bin]]` in `Cargo.toml` and some seeds in `seeds/<name>/`. libFuzzer and the smoke runner call the same
//! function.

pub mod cache;
pub mod client_hello;
pub mod discover;
pub mod expression;
pub mod fastcgi;
pub mod filters;
pub mod h1;
pub mod h2;
pub mod h3;
pub mod import;
pub mod plan;
pub mod traffic;
pub mod transcode;
mod websocket;

/// The parsers of `cache` name `sfv` by the crate that owns it.
extern crate self as weir_filter;
pub(crate) use filters::sfv;
/// The files of weir-plan name these by their crate.
pub(crate) use plan::{limits, origin};

/// A fuzz target: its name and its function.
pub type Target = (&'static str, fn(&[u8]));

/// Every target, by name.
pub static TARGETS: &[Target] = &[
    ("cache_control", cache::control),
    ("cache_freshness", cache::freshness),
    ("cache_range", cache::range),
    ("cache_vary", cache::vary),
    ("client_hello", client_hello::client_hello),
    ("discover", discover::discover),
    ("expression", expression::expression),
    ("fastcgi", fastcgi::fastcgi),
    ("h1_chunked", h1::chunked),
    ("h1_request", h1::request),
    ("h1_response", h1::response),
    ("h2_client", h2::client),
    ("h2_server", h2::server),
    ("h3_client", h3::client),
    ("h3_qpack", h3::qpack),
    ("h3_sections", h3::sections),
    ("h3_server", h3::server),
    ("import", import::import),
    ("import_rule", import::rule),
    ("plan_cookie", plan::cookie),
    ("plan_csv", plan::csv),
    ("plan_json_path", plan::json_path),
    ("plan_url", plan::url),
    ("structured_field", filters::structured_field),
    ("token", filters::token),
    ("traffic", traffic::traffic),
    ("transcode", transcode::transcode),
];

/// xorshift64: the same numbers in every run. Never seeded with 0, which it would not leave.
pub struct Random(pub u64);

impl Random {
    /// A number below `n`, or 0.
    pub fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 33) as usize % n.max(1)
    }
}
