//! The libFuzzer entry point for `purser_fuzz::payment_response`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| purser_fuzz::payment_response(bytes));
