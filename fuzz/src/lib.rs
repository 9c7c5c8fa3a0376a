//! What is fuzzed: plain functions of bytes that panic when a property is broken.
//!
//! To add a target: its function here (one module per crate), a line in [`TARGETS`], `fuzz_targets/<name>.rs`, a `[[bin]]`
//! in `Cargo.toml` and some seeds in `seeds/<name>/`. libFuzzer and the smoke runner call the same function.

pub mod h1;
pub mod h2;
mod websocket;

/// A fuzz target: its name and what it does with an input.
pub type Target = (&'static str, fn(&[u8]));

/// Every target, by name.
pub static TARGETS: &[Target] = &[
    ("h1_chunked", h1::chunked),
    ("h1_request", h1::request),
    ("h1_response", h1::response),
    ("h2_client", h2::client),
    ("h2_server", h2::server),
];
