//! The group's API and pages over HTTP: a database in the process, and sessions of an issuer of the tests' own.
//!
//! What the API does is tested for all functions together: `tests/it/people`, `access.rs` and `isolation.rs` beside it.
//! Here is what takes a database that stops in between, and what pages show and their forms do.

#![expect(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test stops where its ground is missing"
)]

mod support;

mod agents;
mod document;
mod laws;
mod pages;
mod sign_in;
