//! The audit log of a person.

pub(crate) mod api;
pub(crate) mod columns;
pub(crate) mod operations;
pub(crate) mod page;
