//! The version history of an agent's policies and rules: listing versions, comparing them, and restoring one.

pub(crate) mod actions;
pub(crate) mod api;
pub(crate) mod operations;
pub(crate) mod page;
