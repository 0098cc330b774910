//! Backtests of other limits over a person's agents, in the background.

pub(crate) mod api;
pub(crate) mod operations;
pub(crate) mod page;
