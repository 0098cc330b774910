//! The version history of an agent's policies and rules: lists, comparisons and restoring.

pub(crate) mod actions;
pub(crate) mod api;
pub(crate) mod operations;
pub(crate) mod page;
