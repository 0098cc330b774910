//! The catalog's table, and each environment's cache of it.

pub(crate) mod cache;
pub(crate) mod table;
