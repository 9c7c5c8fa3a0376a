//! See `weir_fuzz::filters::token`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_fuzz::filters::token(data));
