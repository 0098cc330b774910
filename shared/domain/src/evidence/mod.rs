//! Evidence of decisions and payments: JSON documents whose hashes any tool can recompute. Signatures and the log are
//! in `shared/evidence`.

pub(crate) mod document;
pub(crate) mod inputs;
pub(crate) mod stated;
pub(crate) mod statement;
