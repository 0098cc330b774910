//! The audit log: who did what, from where, and what it changed.

pub(crate) mod changes;
pub(crate) mod record;
