//! The audit log: its rows, and reading them.

pub(crate) mod entry;
pub(crate) mod log;
