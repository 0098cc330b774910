//! Rules: an agent's budgets and other limits across services.

pub(crate) mod actions;
pub(crate) mod api;
pub(crate) mod form;
pub(crate) mod operations;
pub(crate) mod section;
