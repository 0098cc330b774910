//! The libFuzzer entry point for `purser_fuzz::hosts`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| purser_fuzz::hosts(bytes));
