//! Metrics and trace ids.

pub(crate) mod metrics;
pub(crate) mod trace_id;
