//! Search by id, transaction hash, payee, host, and names of agents and services.

pub(crate) mod api;
pub(crate) mod operations;
pub(crate) mod page;
