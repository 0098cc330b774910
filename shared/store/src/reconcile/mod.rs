//! What reconcile works on: the index of holds, the last block that was checked, reconcile requests, requests for
//! evictions, and wallets.

pub(crate) mod evictions;
pub(crate) mod holds;
pub(crate) mod outflows;
