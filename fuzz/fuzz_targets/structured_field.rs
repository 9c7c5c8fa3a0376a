//! See `weir_fuzz::filters::structured_field`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_fuzz::filters::structured_field(data));
