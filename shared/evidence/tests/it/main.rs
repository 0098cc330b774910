//! Tests the formats against vectors that other implementations accept, and the log against faults and attacks.

#![expect(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::string_slice,
    clippy::unwrap_used,
    reason = "tests may panic: that is how they fail"
)]

mod keys;
mod log;
mod notes;
mod proofs;
mod sample;
mod statements;
