//! A user's audit log.

pub(crate) mod api;
pub(crate) mod columns;
pub(crate) mod operations;
pub(crate) mod page;
