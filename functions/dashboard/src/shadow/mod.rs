//! An agent's shadow policy: limits that are evaluated without effect, until the user applies or removes them.

pub(crate) mod actions;
pub(crate) mod api;
pub(crate) mod operations;
pub(crate) mod page;
