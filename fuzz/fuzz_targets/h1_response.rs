//! See `weir_fuzz::h1::response`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_fuzz::h1::response(data));
