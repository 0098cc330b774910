//! The decision history: one entry for each decision about a payment, ordered by time, for the agent's owner.

pub(crate) mod entry;
pub(crate) mod hour;
pub(crate) mod sums;
