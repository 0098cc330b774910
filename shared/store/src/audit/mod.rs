//! The audit log: writes and reads its rows.

pub(crate) mod entry;
pub(crate) mod log;
