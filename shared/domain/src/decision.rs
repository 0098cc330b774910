//! What is kept of a decision, for the people who govern the agent.

use crate::{
    Address, AgentId, Amount, ApprovalId, Check, Fingerprint, OperationSlug, Reason, ServiceId, Settlement, Timestamp,
    TransactionId,
};
use uuid::Uuid;

/// The audit row of a block or an escalation. An allow leaves its settlement instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecisionRecord {
    /// The audit reference that the caller was given.
    pub transaction: TransactionId,
    /// Who asked.
    pub agent: AgentId,
    /// The `sub` of the user who owns the agent.
    pub owner: String,
    /// For which service.
    pub service: ServiceId,
    /// For which operation, as it was named or found.
    pub operation: Option<OperationSlug>,
    /// How much.
    pub amount: Amount,
    /// To whom.
    pub pay_to: Address,
    /// What was asked, to the byte.
    pub fingerprint: Fingerprint,
    /// When.
    pub at: Timestamp,
    /// Why it was refused.
    pub reason: Reason,
    /// Which policy version refused it; `None` where the service was never enabled.
    pub policy_version: Option<u64>,
    /// The approval that was staged or joined.
    pub approval: Option<ApprovalId>,
    /// Every check, in order.
    pub checks: Vec<Check>,
    /// How long the decision took.
    pub latency_ms: u64,
}

/// One line of an agent's decision log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoggedDecision {
    /// A payment was authorized; its settlement is the record.
    Allowed(Settlement),
    /// It was not.
    Refused(LoggedRefusal),
}

/// A block or an escalation as the log keeps it: what was said to the caller, in words, and the numbers it rests on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedRefusal {
    /// The audit reference.
    pub transaction: TransactionId,
    /// Who asked.
    pub agent: AgentId,
    /// For which service.
    pub service: ServiceId,
    /// For which operation.
    pub operation: Option<OperationSlug>,
    /// How much.
    pub amount: Amount,
    /// To whom.
    pub pay_to: Address,
    /// When.
    pub at: Timestamp,
    /// `block` or `escalate`.
    pub result: String,
    /// The slug that was answered.
    pub error: String,
    /// The reason, such as `category_block:finance`.
    pub reason: String,
    /// The rule or cap that refused.
    pub rule: String,
    /// The host that was not allowed.
    pub hostname: Option<String>,
    /// Which policy version refused it; `None` where the service was never enabled.
    pub policy_version: Option<u64>,
    /// The approval that was staged or joined.
    pub approval: Option<ApprovalId>,
    /// Every check, in order.
    pub checks: Vec<Check>,
    /// How long the decision took.
    pub latency_ms: u64,
}

impl LoggedDecision {
    /// Its place in the log: a `UUIDv7` of the decision's time, unique over all agents. Text order is time order.
    pub const fn place(&self) -> Uuid {
        match self {
            Self::Allowed(settlement) => settlement.terms.id.uuid(),
            Self::Refused(refusal) => refusal.transaction.uuid(),
        }
    }

    /// The audit reference.
    pub const fn transaction(&self) -> TransactionId {
        match self {
            Self::Allowed(settlement) => settlement.terms.transaction,
            Self::Refused(refusal) => refusal.transaction,
        }
    }

    /// For which service.
    pub const fn service(&self) -> ServiceId {
        match self {
            Self::Allowed(settlement) => settlement.terms.service,
            Self::Refused(refusal) => refusal.service,
        }
    }

    /// `allow`, `block` or `escalate`.
    pub fn result(&self) -> &str {
        match self {
            Self::Allowed(_) => "allow",
            Self::Refused(refusal) => &refusal.result,
        }
    }
}

/// The outcome of a preflight, as it was told and as a repetition is told again (`docs/spec.md` §4.3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preflight {
    /// `allow`, `block` or `escalate`.
    pub result: String,
    /// `x402_authorized`, a slug, or a rule's own reason.
    pub reason: String,
    /// The provider's price.
    pub amount: Amount,
    /// Every check, in order.
    pub checks: Vec<Check>,
}
