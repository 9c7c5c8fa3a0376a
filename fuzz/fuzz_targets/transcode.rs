//! See `weir_fuzz::transcode::transcode`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_fuzz::transcode::transcode(data));
