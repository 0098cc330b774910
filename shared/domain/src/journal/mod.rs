//! The decision history of an owner's agents: one entry per decision about a payment, in order of time.

pub(crate) mod entry;
pub(crate) mod hour;
pub(crate) mod sums;
