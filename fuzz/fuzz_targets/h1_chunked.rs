//! See `weir_fuzz::h1::chunked`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_fuzz::h1::chunked(data));
