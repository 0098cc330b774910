//! The journal: one entry for each decision about a payment, in the order of time, for the owner of the agent.

pub(crate) mod entry;
pub(crate) mod hour;
pub(crate) mod sums;
