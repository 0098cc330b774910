//! What reconcile works on: the index of holds, the last block that was checked, reconcile requests, requests for
//! evictions, wallets, and whether those are low.

pub(crate) mod evictions;
pub(crate) mod holds;
pub(crate) mod outflows;
pub(crate) mod wallet_levels;
