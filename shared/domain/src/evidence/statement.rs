//! Statements about a decision or a payment: the payloads of the documents that this deployment signs.
//!
//! A statement is a function of stored rows. It contains no `metadata` of a call, no labels, and no names of agents or
//! users.

use crate::{
    AgentId, Approval, ApprovalChange, ApprovalId, CallDescription, ConfirmationReverted, DecisionRecord, DocumentHash,
    EventSource, InputDocuments, InputVersions, KeyId, LoggedDenial, Network, RecordedDecision, ServiceId, Settlement,
    SettlementId, SettlementState, SettlementTerms, Timestamp, TransactionId, evidence::document::Element as _,
};
use serde_json::{Map, Value, json};

/// The `statement` field of a signed decision.
pub const DECISION_STATEMENT: &str = "purser.decision.v1";
/// The `statement` field of a signed receipt.
pub const RECEIPT_STATEMENT: &str = "purser.receipt.v1";
/// The `statement` field of a signed change of a payment or an approval.
pub const CHANGE_STATEMENT: &str = "purser.change.v1";

/// The ids of a decision about a purchase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecisionIds {
    /// The id of the decision.
    pub transaction: TransactionId,
    /// The agent that requested the payment.
    pub agent: AgentId,
    /// The id of the agent key that sent the request.
    pub key: KeyId,
    /// The service that the agent wanted to pay.
    pub service: ServiceId,
    /// The settlement, if the purchase was allowed.
    pub settlement: Option<SettlementId>,
    /// The approval that the decision requested or used.
    pub approval: Option<ApprovalId>,
}

impl DecisionIds {
    /// Returns the ids of the decision that allowed this purchase; `None` for a withdrawal.
    pub fn from_settlement(settlement: &Settlement) -> Option<Self> {
        Self::from_terms(&settlement.terms)
    }

    fn from_terms(terms: &SettlementTerms) -> Option<Self> {
        let purchase = terms.purchase()?;
        Some(Self {
            transaction: terms.transaction,
            agent: terms.agent,
            key: purchase.key,
            service: purchase.service,
            settlement: Some(terms.id),
            approval: purchase.approval,
        })
    }

    /// Returns the ids of the decision that blocked or escalated this purchase.
    pub const fn from_denial(denial: &LoggedDenial) -> Self {
        Self {
            transaction: denial.transaction,
            agent: denial.agent,
            key: denial.key,
            service: denial.service,
            settlement: None,
            approval: denial.approval,
        }
    }
}

/// Returns the `decision_hash` of a decision that allows a purchase, before it is stored. `None` for a withdrawal.
pub fn allow_decision_hash(terms: &SettlementTerms, call: CallDescription) -> Option<DocumentHash> {
    let ids = DecisionIds::from_terms(terms)?;
    let decision = &RecordedDecision::from_terms(terms, call)?;
    let inputs = None;
    Some(StatedDecision { ids, decision, inputs }.decision_hash())
}

/// Returns the `decision_hash` of a block or an escalation, before it is stored.
pub fn rejection_decision_hash(record: &DecisionRecord, network: Network) -> DocumentHash {
    let ids = DecisionIds {
        transaction: record.transaction,
        agent: record.agent,
        key: record.key,
        service: record.service,
        settlement: None,
        approval: record.approval,
    };
    let decision = &RecordedDecision::from_record(record, network);
    let inputs = None;
    StatedDecision { ids, decision, inputs }.decision_hash()
}

/// The content of a decision's statement.
#[derive(Clone, Copy, Debug)]
pub struct StatedDecision<'a> {
    /// The ids of the decision and of the objects that it concerns.
    pub ids: DecisionIds,
    /// The recorded decision, with the checks and their results.
    pub decision: &'a RecordedDecision,
    /// The inputs of the decision, if the checks were made and the inputs are stored.
    pub inputs: Option<(InputVersions, &'a InputDocuments)>,
}

impl StatedDecision<'_> {
    /// Returns the `decision_hash` in the response to the caller and in the statement. The hash does not depend on the
    /// inputs.
    pub fn decision_hash(&self) -> DocumentHash {
        DocumentHash::for_document(&self.decision_hash_input())
    }

    /// Returns the payload of the statement by this deployment.
    pub fn to_json(&self, issuer: &EventSource) -> Value {
        let hashed = self.decision_hash_input();
        let mut payload = json!({
            "iss": issuer.as_str(),
            "iat": self.decision.at.secs(),
            "statement": DECISION_STATEMENT,
            "decision_hash": DocumentHash::for_document(&hashed).to_string(),
            "inputs": self.inputs_json(),
        });
        if let (Some(payload), Value::Object(hashed)) = (payload.as_object_mut(), hashed) {
            payload.extend(hashed);
        }
        payload
    }

    fn decision_hash_input(&self) -> Value {
        let decision = self.decision;
        json!({
            "transaction_id": self.ids.transaction.to_string(),
            "settlement_id": self.ids.settlement.map(|id| id.to_string()),
            "approval_id": self.ids.approval.map(|id| id.to_string()),
            "facts": self.decision_facts_json(),
            "result": decision.result.name(),
            "reason": decision.reason,
        })
    }

    fn decision_facts_json(&self) -> Value {
        let decision = self.decision;
        json!({
            "agent_id": self.ids.agent.to_string(),
            "key_id": self.ids.key.to_string(),
            "service_id": self.ids.service.to_string(),
            "operation_id": decision.operation.as_ref().map(ToString::to_string),
            "network": decision.network.caip2(),
            "asset": decision.network.token().address.to_string(),
            "amount_units": decision.amount.units(),
            "pay_to": decision.pay_to.to_string(),
            "decided_at": decision.at.to_string(),
            "versions": {
                "engine": decision.inputs.map(|versions| versions.engine),
                "agent": decision.inputs.map(|versions| versions.agent),
                "policy": decision.policy_version,
                "service": decision.inputs.map(|versions| versions.service),
            },
            "call": decision.call.to_json(),
            "checks": decision.checks.to_json(),
        })
    }

    fn inputs_json(&self) -> Value {
        self.inputs.map_or(Value::Null, |(versions, documents)| {
            json!({
                "engine_version": versions.engine,
                "agent_version": versions.agent,
                "agent_hash": DocumentHash::for_document(&documents.agent).to_string(),
                "policy_version": self.decision.policy_version,
                "policy_hash": DocumentHash::for_document(&documents.policy).to_string(),
                "service_version": versions.service,
                "service_hash": DocumentHash::for_document(&documents.service).to_string(),
            })
        })
    }
}

/// Returns the payload of a receipt of a confirmed payment or withdrawal; `None` if the settlement is not confirmed.
pub fn receipt_payload(settlement: &Settlement, issuer: &EventSource) -> Option<Value> {
    let SettlementState::Confirmed {
        tx_hash,
        block_number,
        settled_at,
    } = &settlement.state
    else {
        return None;
    };
    let terms = &settlement.terms;
    let mut payment = payment_json(terms);
    payment.insert("tx_hash".to_owned(), tx_hash.to_string().into());
    payment.insert("block_number".to_owned(), (*block_number).into());
    payment.insert("settled_at".to_owned(), settled_at.to_string().into());
    Some(json!({
        "iss": issuer.as_str(),
        "iat": settled_at.secs(),
        "statement": RECEIPT_STATEMENT,
        "settlement_id": terms.id.to_string(),
        "transaction_id": terms.transaction.to_string(),
        "settlement": payment,
    }))
}

fn payment_json(terms: &SettlementTerms) -> Map<String, Value> {
    let purchase = terms.purchase();
    let fields = json!({
        "agent_id": terms.agent,
        "service_id": purchase.map(|purchase| purchase.service),
        "operation_id": purchase.map(|purchase| purchase.operation.to_string()),
        "network": terms.network.caip2(),
        "asset": terms.network.token().address.to_string(),
        "wallet": terms.wallet.to_string(),
        "pay_to": terms.pay_to.to_string(),
        "amount_units": terms.amount.units(),
        "authorized_at": terms.authorized_at,
        "valid_before": terms.valid_before,
        "nonce_prefix": terms.nonce_prefix.to_string(),
    });
    fields.as_object().cloned().unwrap_or_default()
}

/// Returns whether the payment in a logged decision or receipt differs from the record. The transaction hash
/// is compared only if `settled_at` is equal, because a receipt may be about an earlier confirmation.
pub fn has_different_payment(payload: &Value, settlement: &Settlement) -> bool {
    let Some(stated) = payload.get("settlement").or_else(|| payload.get("facts")) else {
        return true;
    };
    let mut recorded = payment_json(&settlement.terms);
    if let SettlementState::Confirmed {
        tx_hash, settled_at, ..
    } = &settlement.state
        && stated.get("settled_at") == Some(&settled_at.to_string().into())
    {
        recorded.insert("tx_hash".to_owned(), tx_hash.to_string().into());
    }
    let mut fields = recorded.iter();
    fields.any(|(name, value)| stated.get(name).is_some_and(|stated| stated != value))
}

/// A change of a payment after the decision.
#[derive(Clone, Copy, Debug)]
pub enum PaymentChange<'a> {
    /// The confirmation was reverted. Contains the confirmation's receipt, if the log has the receipt.
    Reversal(&'a ConfirmationReverted, Option<LoggedReceipt>),
    /// The payment expired, and the amount was released at this time.
    Release(Timestamp),
    /// The payment is a withdrawal, which the agent's owner decided.
    Withdrawal,
}

/// The position of a receipt in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoggedReceipt {
    /// The index in the log, from 0.
    pub index: u64,
    /// The hash of the leaf (RFC 6962 §2.1).
    pub leaf_hash: [u8; 32],
}

impl PaymentChange<'_> {
    /// Returns the payload of the statement about the change. `call` is the payment's call; `None` for a withdrawal.
    pub fn to_json(self, terms: &SettlementTerms, call: Option<CallDescription>, issuer: &EventSource) -> Value {
        let (name, at, transaction, changed_receipt) = match self {
            Self::Reversal(reverted, receipt) => {
                let receipt = json!({
                    "tx_hash": reverted.tx_hash.to_string(),
                    "index": receipt.map(|receipt| receipt.index),
                    "leaf_hash": receipt.map(|receipt| alloy_primitives::hex::encode(receipt.leaf_hash)),
                });
                ("reversal", reverted.at, Some(reverted.transaction), receipt)
            }
            Self::Release(at) => ("release", at, None, Value::Null),
            Self::Withdrawal => ("withdrawal", terms.authorized_at, Some(terms.transaction), Value::Null),
        };
        let decision_hash = call.and_then(|call| allow_decision_hash(terms, call));
        json!({
            "iss": issuer.as_str(),
            "iat": at.secs(),
            "statement": CHANGE_STATEMENT,
            "change": name,
            "changed_at": at.to_string(),
            "transaction_id": transaction.map(|id| id.to_string()),
            "settlement_id": terms.id.to_string(),
            "changed_decision": {
                "transaction_id": terms.transaction.to_string(),
                "decision_hash": decision_hash.map(|hash| hash.to_string()),
            },
            "changed_receipt": changed_receipt,
            "settlement": payment_json(terms),
        })
    }
}

/// The content of a statement about a change of an approval request.
#[derive(Clone, Copy, Debug)]
pub struct StatedApproval<'a> {
    /// The approval request after the change.
    pub approval: &'a Approval,
    /// The `decision_hash` of the decision that required the approval or blocked the payment.
    pub decision_hash: DocumentHash,
    /// What happened to the approval request.
    pub change: ApprovalChange,
    /// The time of the change.
    pub at: Timestamp,
}

impl StatedApproval<'_> {
    /// Returns the payload of the statement. It contains no user, because only the agent's owner decides approval
    /// requests.
    pub fn to_json(&self, issuer: &EventSource) -> Value {
        let approval = self.approval;
        json!({
            "iss": issuer.as_str(),
            "iat": self.at.secs(),
            "statement": CHANGE_STATEMENT,
            "change": self.change.name(),
            "changed_at": self.at.to_string(),
            "changed_decision": {
                "transaction_id": approval.transaction.to_string(),
                "decision_hash": self.decision_hash.to_string(),
            },
            "approval": {
                "approval_id": approval.id.to_string(),
                "agent_id": approval.agent.to_string(),
                "service_id": approval.service.to_string(),
                "operation_id": approval.operation.to_string(),
                "amount_units": approval.amount.units(),
                "pay_to": approval.pay_to.to_string(),
                "requested_at": approval.created_at.to_string(),
                "expires_at": approval.expires_at.to_string(),
                "decided_by": (self.change != ApprovalChange::Expired).then_some("owner"),
                "temporary_limits": approval.temporary_caps().to_json(),
            },
        })
    }
}
