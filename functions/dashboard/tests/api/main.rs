//! Tests of the dashboard's API and pages over HTTP, with an in-process database and sessions that a test identity
//! provider signs.
//!
//! The API is tested together with all functions in `tests/it/people`, `access.rs` and `isolation.rs`. This crate tests
//! database failures in the middle of an operation, and the pages with their forms.

#![expect(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test stops where its ground is missing"
)]

mod support;

mod agents;
mod bulk;
mod document;
mod fleet;
mod flood;
mod laws;
mod lists;
mod operators;
mod pages;
mod predictions;
mod preview;
mod sessions;
mod shadow;
mod sign_in;
mod templates;
mod webhooks;
