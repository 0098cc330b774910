//! An agent's services with their policies, and the catalog page.

pub(crate) mod actions;
pub(crate) mod api;
pub(crate) mod catalog_page;
pub(crate) mod operations;
pub(crate) mod policy;
pub(crate) mod section;
