//! The group's API and pages over HTTP: a database in the process, and sessions of an issuer of the tests' own.
//!
//! Who may ask for what with which token is tested for all functions together (`tests/it/access.rs`).

#![expect(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test stops where its ground is missing"
)]

mod support;

mod agents;
mod approvals;
mod document;
mod keys;
mod logs;
mod pages;
mod rules;
mod services;
mod sign_in;
