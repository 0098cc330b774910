//! What reconcile works on: the index of holds, the sweep's cursor, and reconcile requests.

pub(crate) mod holds;
