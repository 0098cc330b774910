//! The inputs of a decision as JSON documents, and their SHA-256 hashes in RFC 8785 form.
//!
//! The documents contain no secrets. The agent's document has only id, version, status, wallet and rules.

use crate::{Agent, EnabledService, ReplayInputs, Service, Timestamp, evidence::document::Element as _};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use std::fmt;

/// The SHA-256 of a JSON document in RFC 8785 form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DocumentHash([u8; 32]);

impl DocumentHash {
    /// Hashes a document in RFC 8785 form.
    ///
    /// RFC 8785 writes numbers as IEEE doubles, which are exact up to 2^53. Amounts are at most [`Amount::MAX`], which
    /// is below.
    pub fn for_document(document: &Value) -> Self {
        // Serializing a `Value` into a `Vec` can't fail.
        let canonical = serde_json_canonicalizer::to_vec(document).unwrap_or_default();
        Self(Sha256::digest(canonical).into())
    }
}

/// Writes 64 lower-case hexadecimal digits.
impl fmt::Display for DocumentHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&alloy_primitives::hex::encode(self.0))
    }
}

/// The inputs of a decision as JSON documents.
#[derive(Clone, Debug, PartialEq)]
pub struct InputDocuments {
    /// The agent's id, version, status, wallet address and rules.
    pub agent: Value,
    /// The policy; `null` if the service was never enabled.
    pub policy: Value,
    /// The service and the operation from the catalog, priced at the time of the decision.
    pub service: Value,
}

impl InputDocuments {
    /// Creates the documents of a decision's inputs at this time.
    pub fn new(inputs: &ReplayInputs<'_>, at: Timestamp) -> Self {
        Self {
            agent: inputs.agent.to_json(),
            policy: inputs
                .enabled
                .map_or(Value::Null, |enabled| policy_document(enabled, inputs.agent)),
            service: service_document(inputs.service, at),
        }
    }

    /// Returns a JSON object with the documents `agent`, `policy` and `service`.
    pub fn to_json(&self) -> Value {
        json!({"agent": self.agent, "policy": self.policy, "service": self.service})
    }
}

fn policy_document(enabled: &EnabledService, agent: &Agent) -> Value {
    let mut enabled = enabled.clone();
    // An increase that an earlier owner granted has no effect.
    enabled.policy.raises.retain(|increase| increase.by == agent.owner);
    enabled.to_json()
}

fn service_document(service: &Service, at: Timestamp) -> Value {
    let mut service = service.clone();
    for operation in &mut service.operations {
        *operation = operation.at_time(at);
        operation.max_price = operation.pricing_at(at).max_price();
        operation.fetches_target = Some(operation.fetches_target(service.category));
    }
    service.to_json()
}
