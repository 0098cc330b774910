//! Rules: budgets and other limits of an agent across its services.

pub(crate) mod actions;
pub(crate) mod api;
pub(crate) mod operations;
pub(crate) mod section;
