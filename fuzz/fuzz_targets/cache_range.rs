//! See `weir_fuzz::cache::range`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_fuzz::cache::range(data));
