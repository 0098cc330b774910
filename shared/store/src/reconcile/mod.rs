//! The work items of reconcile: the index of holds, the last checked block, reconcile requests, eviction requests,
//! wallets, and their levels.

pub(crate) mod evictions;
pub(crate) mod holds;
pub(crate) mod outflows;
pub(crate) mod wallet_levels;
