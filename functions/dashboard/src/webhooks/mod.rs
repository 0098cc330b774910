//! Webhooks and their deliveries.

pub(crate) mod actions;
pub(crate) mod api;
pub(crate) mod deliveries;
pub(crate) mod form;
pub(crate) mod list_page;
pub(crate) mod operations;
pub(crate) mod page;
pub(crate) mod pages;
pub(crate) mod paths;
pub(crate) mod terms;
