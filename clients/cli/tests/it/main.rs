//! The command line against the real local stack: what it does, says and ends with.

#![expect(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "tests may panic: that is how they fail"
)]

mod agent;
mod home;
mod import;
mod operator;
