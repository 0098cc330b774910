//! The data of the function `reconcile`.

pub(crate) mod evictions;
pub(crate) mod holds;
pub(crate) mod outflows;
pub(crate) mod wallet_levels;
