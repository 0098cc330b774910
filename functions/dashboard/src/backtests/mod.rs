//! Background backtests of proposed limits for a user's agents.

pub(crate) mod api;
pub(crate) mod operations;
pub(crate) mod page;
