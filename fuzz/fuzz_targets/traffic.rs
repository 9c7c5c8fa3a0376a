//! See `weir_fuzz::traffic::traffic`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_fuzz::traffic::traffic(data));
