//! Tests that each stream record is published and aggregated exactly once, despite failures and repetitions.

#![expect(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test stops where its ground is missing"
)]

mod brakes;
mod journal;
mod published;
mod rebuild;
mod world;
