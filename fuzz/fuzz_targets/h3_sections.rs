//! See `weir_fuzz::h3::sections`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_fuzz::h3::sections(data));
