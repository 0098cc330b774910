//! Policy templates: named sets of limits that agents follow.

pub(crate) mod api;
pub(crate) mod apply;
pub(crate) mod operations;
pub(crate) mod page;
