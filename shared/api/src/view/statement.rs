//! The JSON of a signed statement.

use serde::Serialize;
use utoipa::ToSchema;

/// A signed statement, with the proof that it is in the log of this deployment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = SignedStatement)]
pub struct StatementView {
    /// The statement: a JWS in the compact serialization. `/.well-known/jwks.json` has its key.
    pub statement: String,
    /// The proof: the statement, its index, hashes and a checkpoint (c2sp.org/tlog-proof). `purser verify` reads it.
    pub proof: String,
    /// The index of the statement in the log.
    pub index: u64,
}
