//! The versions of an agent's limits: each policy and the rules, the differences between versions, and restoring one.

pub(crate) mod actions;
pub(crate) mod api;
pub(crate) mod operations;
pub(crate) mod page;
