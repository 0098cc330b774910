//! Search over ids, transaction hashes, payees, hosts, and names of agents and services.

pub(crate) mod api;
pub(crate) mod operations;
pub(crate) mod page;
