//! The lists of decisions and settlements as JSON, as pages and as CSV.

pub(crate) mod api;
pub(crate) mod columns;
pub(crate) mod filter;
pub(crate) mod operations;
pub(crate) mod page;
pub(crate) mod row;
