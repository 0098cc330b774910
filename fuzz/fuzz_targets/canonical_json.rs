//! The libFuzzer entry point for `purser_fuzz::canonical_json`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| purser_fuzz::canonical_json(bytes));
