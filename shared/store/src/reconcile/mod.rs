//! Data of reconcile: the index of holds, the last checked block, requests to reconcile, eviction requests, wallets,
//! and wallet levels.

pub(crate) mod evictions;
pub(crate) mod holds;
pub(crate) mod outflows;
pub(crate) mod wallet_levels;
