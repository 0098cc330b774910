//! The libFuzzer entry point of the target with this name.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| purser_fuzz::hosts(bytes));
