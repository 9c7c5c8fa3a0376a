//! See `weir_fuzz::import::rule`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_fuzz::import::rule(data));
