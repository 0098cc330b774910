//! The catalog: services, operations, their pricing and verified payees, and the results of probes.

pub(crate) mod attested;
pub(crate) mod endpoint;
pub(crate) mod pricing;
pub(crate) mod probe;
pub(crate) mod service;
