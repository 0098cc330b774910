//! The integration tests: one binary, one file for each thing that must hold.

mod access;
mod agents;
mod approvals;
mod attacks;
mod bad_input;
mod bodies;
mod browser;
mod catalog;
mod costs;
mod docs;
mod errors;
mod events;
mod faults;
mod flow;
mod isolation;
mod metrics;
mod operators;
mod people;
mod permissions;
mod preflight;
mod races;
mod reconcile;
mod secrets;
mod side_by_side;
mod windows;
