//! What tests of the store need, here and in the integration tests: the emulator with our tables, a meter of consumed
//! capacity, the checker of the invariants, sample values, and a plain authorize. The proxy that adds what the emulator
//! lacks is a crate of its own, `tests/proxy`.
//! Another crate's tests include this file with `#[path]` and expect `dead_code` for what they leave unused.

#![expect(
    clippy::arithmetic_side_effects,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test stops where its ground is missing"
)]
#![expect(unreachable_pub, reason = "it is the same in every crate that includes it")]

pub mod authorize;
pub mod emulator;
pub mod invariants;
pub mod meter;
pub mod sample;
