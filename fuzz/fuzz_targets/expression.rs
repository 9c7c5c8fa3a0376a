//! See `weir_fuzz::expression::expression`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_fuzz::expression::expression(data));
