//! Tests of the command line against the local stack: effects, output and exit codes.

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
mod login;
mod operator;
mod policy;
mod replay;
mod verify;
mod wire;
