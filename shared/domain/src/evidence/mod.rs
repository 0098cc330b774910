//! Evidence of decisions and payments for readers who don't have this deployment's data: JSON documents with hashes that
//! any tool can compute again. Signing, and the log of statements, are in `shared/evidence`.

pub(crate) mod inputs;
pub(crate) mod stated;
pub(crate) mod statement;
