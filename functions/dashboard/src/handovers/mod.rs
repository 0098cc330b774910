//! Ownership transfers of agents.

pub(crate) mod api;
pub(crate) mod operations;
