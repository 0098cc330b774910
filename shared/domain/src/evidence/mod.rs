//! Evidence of decisions and payments for readers who have no access to this deployment: JSON documents whose hashes
//! any tool can recompute. Signatures and the log of statements are in `shared/evidence`.

pub(crate) mod inputs;
pub(crate) mod stated;
pub(crate) mod statement;
