//! Agent keys: their operations, API routes and forms.

pub(crate) mod actions;
pub(crate) mod api;
pub(crate) mod operations;
pub(crate) mod section;
