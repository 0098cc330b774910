//! Handovers of agents between owners.

pub(crate) mod api;
pub(crate) mod operations;
