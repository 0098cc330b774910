//! The group's API over HTTP, a database in the process, and sessions of an issuer of the tests' own.
//!
//! Who may ask for what with which token is tested for all functions together (`tests/it/access.rs`).

#![expect(clippy::arithmetic_side_effects, reason = "tests calculate what they expect")]

mod agents;
mod approvals;
mod document;
mod keys;
mod logs;
mod rules;
mod services;
mod support;
