//! The audit log: the actor, the source and the changes of each act.

pub(crate) mod changes;
pub(crate) mod record;
