//! The audit log: the actor, the source and the changes of each act.

pub(crate) mod changes;
pub(crate) mod reason;
pub(crate) mod record;
