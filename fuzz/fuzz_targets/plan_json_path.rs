//! See `weir_fuzz::plan::json_path`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_fuzz::plan::json_path(data));
