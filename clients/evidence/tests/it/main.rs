//! Verifies documents, some of which other implementations wrote.

#![expect(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::string_slice,
    clippy::unwrap_used,
    reason = "tests may panic: that is how they fail"
)]

mod documents;
mod packs;
mod proofs;
#[path = "../../../../shared/evidence/tests/it/sample.rs"]
mod sample;
mod transfers;
