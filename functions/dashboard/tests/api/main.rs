//! Tests of the dashboard's API and pages over HTTP, with an in-process database and a test identity provider.
//!
//! `tests/it/people` tests the API together with all Lambda functions.

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
mod connect;
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
