//! See `weir_fuzz::cache::freshness`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_fuzz::cache::freshness(data));
