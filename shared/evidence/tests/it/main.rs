//! The formats against the vectors that other implementations accept, and the log against all that may happen to it.

#![expect(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::string_slice,
    clippy::unwrap_used,
    reason = "tests may panic: that is how they fail"
)]

mod documents;
mod keys;
mod log;
mod notes;
mod packs;
mod proofs;
mod sample;
mod statements;
mod transfers;
