//! The catalog: services, operations, their addresses and pricing, and what probes see of them.

pub(crate) mod endpoint;
pub(crate) mod pricing;
pub(crate) mod probe;
pub(crate) mod service;
