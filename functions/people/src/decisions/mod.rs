//! The log of decisions.

pub(crate) mod api;
pub(crate) mod columns;
pub(crate) mod operations;
pub(crate) mod page;
