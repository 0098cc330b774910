//! The shadow of an agent: limits that judge its decisions beside those in force, without effect, until they are promoted
//! or removed.

pub(crate) mod actions;
pub(crate) mod api;
pub(crate) mod operations;
pub(crate) mod page;
