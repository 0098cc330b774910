//! The audit log: writing and reading its rows.

pub(crate) mod entry;
pub(crate) mod log;
