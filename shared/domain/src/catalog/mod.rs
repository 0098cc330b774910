//! The catalog: services, operations, their addresses, and what a probe may change.

pub(crate) mod endpoint;
pub(crate) mod probe;
pub(crate) mod service;
