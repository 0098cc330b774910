//! Signed payments: the settlement, the payout, the transfer that confirms it, and reconciliation.

pub(crate) mod outflow;
pub(crate) mod payout;
pub(crate) mod reconcile;
pub(crate) mod record;
pub(crate) mod transfer;
