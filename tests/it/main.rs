//! The integration tests: one binary, one file for each thing that must hold.

mod access;
mod agents;
mod approvals;
mod bad_input;
mod browser;
mod catalog;
mod costs;
mod docs;
mod errors;
mod events;
mod flow;
mod metrics;
mod operators;
mod people;
mod permissions;
mod races;
mod reconcile;
mod secrets;
mod windows;
