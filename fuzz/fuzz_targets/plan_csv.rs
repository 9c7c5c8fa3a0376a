//! See `weir_fuzz::plan::csv`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_fuzz::plan::csv(data));
