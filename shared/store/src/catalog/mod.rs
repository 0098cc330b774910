//! The catalog's table, and the copy of it that each environment keeps.

pub(crate) mod cache;
pub(crate) mod table;
