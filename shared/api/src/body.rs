//! Request bodies. The size has been judged before (`router.rs`); what the members mean is the domain's to read.

use purser_domain::{Error, Result, parse_json};
use serde_json::Value;

/// The JSON document that a body is; 400 `invalid_request` for anything else.
///
/// The `Content-Type` of a request is not looked at: there is only JSON (`docs/spec.md` §1).
pub fn json_body(bytes: &[u8]) -> Result<Value> {
    parse_json(bytes).map_err(|problem| Error::invalid(vec![problem]))
}
