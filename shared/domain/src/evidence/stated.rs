//! Replays a decision from the signed statement and the input documents.
//!
//! The parsed documents are serialized again and compared with the originals. A difference means that a field was
//! misread, so the replay is rejected.

use crate::{
    Agent, Check, CheckName, CheckOutcome, DecisionIds, DecisionResult, DocumentHash, EnabledService, InputDocuments,
    InputVersions, Network, Operation, RecordedDecision, ReplayDifference, ReplayInputs, Service, StatedDecision,
    evidence::document::{Element as _, Object, read_field},
    replay_decision,
};
use serde_json::Value;

/// Why a decision can't be replayed from the statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoReplay {
    /// The statement has no hashes of the inputs, or an input document is missing.
    #[error("the statement has no input hashes, or the file lacks input documents, which the owner's file contains")]
    NoInputs,
    /// This version of the software can't parse the statement, or computes another `decision_hash`.
    #[error("this version of the software can't read the statement")]
    Statement,
    /// The hash of an input document differs from the hash in the statement.
    #[error("the hashes of the input documents differ from the hashes in the statement")]
    OtherDocuments,
    /// This version of the software can't parse the input documents.
    #[error("this version of the software can't read the input documents")]
    Documents,
    /// The decision depends on call parameters or an estimated price, which the documents do not contain.
    #[error("the decision depends on a call parameter or an estimated price, which the input documents do not contain")]
    NotDocumented,
}

/// Replays the decision in a statement and returns the differences. The caller must verify the signatures.
pub fn replay_stated_decision(payload: &Value, inputs: &Value) -> Result<Vec<ReplayDifference>, NoReplay> {
    let payload = payload.as_object().ok_or(NoReplay::NoInputs)?;
    let hashes = payload
        .get("inputs")
        .and_then(Value::as_object)
        .ok_or(NoReplay::NoInputs)?;
    let document = |name| inputs.get(name).cloned().ok_or(NoReplay::NoInputs);
    let documents = InputDocuments {
        agent: document("agent")?,
        policy: document("policy")?,
        service: document("service")?,
    };
    for (name, document) in [
        ("agent_hash", &documents.agent),
        ("policy_hash", &documents.policy),
        ("service_hash", &documents.service),
    ] {
        if hashes.get(name) != Some(&DocumentHash::for_document(document).to_string().into()) {
            return Err(NoReplay::OtherDocuments);
        }
    }
    let (ids, decision) = parse_decision(payload).ok_or(NoReplay::Statement)?;
    let stated = StatedDecision {
        ids,
        decision: &decision,
        inputs: None,
    };
    if payload.get("decision_hash") != Some(&stated.decision_hash().to_string().into()) {
        return Err(NoReplay::Statement);
    }
    let agent = Agent::from_json(&documents.agent).ok_or(NoReplay::Documents)?;
    let service = Service::from_json(&documents.service).ok_or(NoReplay::Documents)?;
    let enabled = match &documents.policy {
        Value::Null => None,
        document => Some(EnabledService::from_json(document).ok_or(NoReplay::Documents)?),
    };
    let inputs = ReplayInputs {
        agent: &agent,
        service: &service,
        enabled: enabled.as_ref(),
    };
    if InputDocuments::new(&inputs, decision.at) != documents {
        return Err(NoReplay::Documents);
    }
    let differences = replay_decision(&decision, &inputs);
    let failed_domain = |check: &Check| check.name == CheckName::Domain && check.outcome == CheckOutcome::Failed;
    let called = |operation: &&Operation| Some(&operation.slug) == decision.operation.as_ref();
    let mut called = service.operations.iter().filter(called);
    let is_documented =
        called.all(|operation| operation.payment.is_some()) && !decision.checks.iter().any(failed_domain);
    if differences.is_empty() || is_documented {
        Ok(differences)
    } else {
        Err(NoReplay::NotDocumented)
    }
}

fn parse_decision(payload: &Object) -> Option<(DecisionIds, RecordedDecision)> {
    let inputs = payload.get("facts")?.as_object()?;
    let versions = inputs.get("versions")?.as_object()?;
    let ids = DecisionIds {
        transaction: read_field(payload, "transaction_id")?,
        agent: read_field(inputs, "agent_id")?,
        key: read_field(inputs, "key_id")?,
        service: read_field(inputs, "service_id")?,
        settlement: read_field(payload, "settlement_id")?,
        approval: read_field(payload, "approval_id")?,
    };
    let network = inputs.get("network")?.as_str()?;
    let decision = RecordedDecision {
        result: DecisionResult::from_name(payload.get("result")?.as_str()?)?,
        reason: read_field(payload, "reason")?,
        checks: read_field(inputs, "checks")?,
        operation: read_field(inputs, "operation_id")?,
        amount: read_field(inputs, "amount_units")?,
        pay_to: read_field(inputs, "pay_to")?,
        key: ids.key,
        network: Network::ALL.into_iter().find(|known| known.caip2() == network)?,
        call: read_field(inputs, "call")?,
        at: read_field(inputs, "decided_at")?,
        policy_version: read_field(versions, "policy")?,
        inputs: Some(InputVersions {
            engine: read_field(versions, "engine")?,
            agent: read_field(versions, "agent")?,
            service: read_field(versions, "service")?,
        }),
    };
    Some((ids, decision))
}
