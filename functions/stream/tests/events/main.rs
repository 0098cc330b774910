//! Tests that records of the table streams are published and aggregated exactly once, despite failures, repetitions and
//! reordering.

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
