//! Signed payments: settlements, withdrawals, the transfers that confirm them, and reconciliation.

pub(crate) mod outflow;
pub(crate) mod payout;
pub(crate) mod reconcile;
pub(crate) mod record;
pub(crate) mod transfer;
