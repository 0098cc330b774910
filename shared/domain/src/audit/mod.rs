//! The audit log: the actor of each action, the source of the request, and the changed fields.

pub(crate) mod changes;
pub(crate) mod reason;
pub(crate) mod record;
