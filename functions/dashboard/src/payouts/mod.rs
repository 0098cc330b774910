//! Withdrawals from an agent's wallet.

pub(crate) mod actions;
pub(crate) mod api;
pub(crate) mod operations;
pub(crate) mod section;
