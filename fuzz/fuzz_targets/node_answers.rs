//! The libFuzzer entry point for `purser_fuzz::node_answers`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| purser_fuzz::node_answers(bytes));
