//! The group's API and pages over HTTP: an in-process database, and sessions signed by a test issuer.
//!
//! The API is tested for all functions together: `tests/it/people`, `access.rs` and `isolation.rs`. This crate tests
//! failures of the database in the middle of an operation, and the pages and their forms.

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
mod preview;
mod sessions;
mod shadow;
mod sign_in;
mod templates;
mod webhooks;
