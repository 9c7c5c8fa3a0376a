//! See `weir_fuzz::discover::discover`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_fuzz::discover::discover(data));
