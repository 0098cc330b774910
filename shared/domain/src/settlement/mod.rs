//! Signed payments: the settlement, the transfer that confirms it, and reconciliation.

pub(crate) mod reconcile;
pub(crate) mod record;
pub(crate) mod transfer;
