//! See `weir_fuzz::cache::control`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_fuzz::cache::control(data));
