//! See `weir_fuzz::h2::server`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_fuzz::h2::server(data));
