//! The audit log: who did each act, from where, and which fields it changed.

pub(crate) mod changes;
pub(crate) mod reason;
pub(crate) mod record;
