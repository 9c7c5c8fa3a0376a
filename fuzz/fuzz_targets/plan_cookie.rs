//! See `weir_fuzz::plan::cookie`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_fuzz::plan::cookie(data));
