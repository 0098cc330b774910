//! What is kept of a decision, for the people who govern the agent.

use crate::{
    Address, AgentId, Amount, ApprovalId, Check, Fingerprint, OperationSlug, Reason, ServiceId, Timestamp,
    TransactionId,
};

/// The audit row of a block or an escalation. An allow leaves its settlement instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecisionRecord {
    /// The audit reference that the caller was given.
    pub transaction: TransactionId,
    /// Who asked.
    pub agent: AgentId,
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
