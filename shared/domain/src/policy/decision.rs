//! The record of a decision, for the people who govern the agent.

use crate::{
    Address, AgentId, Amount, ApprovalId, CallDescription, Check, Fingerprint, KeyId, OperationSlug, Purpose, Reason,
    ServiceId, Settlement, SettlementId, Timestamp, TransactionId, TransferGone, TxHash, catalog::service::named,
};
use uuid::Uuid;

named! {
    /// The result of a decision.
    DecisionResult {
        /// The payment was authorized.
        Allow = "allow",
        /// It was refused.
        Block = "block",
        /// A person is asked.
        Escalate = "escalate",
        /// A confirmation was reverted: the transfer is no longer on the chain.
        RevertConfirmation = "take_back",
        /// The owner took money back.
        Payout = "payout",
    }
}

/// The audit row of a block or an escalation. An allow leaves its settlement instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecisionRecord {
    /// The audit reference that the caller was given.
    pub transaction: TransactionId,
    /// Who asked.
    pub agent: AgentId,
    /// With which key.
    pub key: KeyId,
    /// The `sub` of the person who owns the agent.
    pub owner: String,
    /// For which service.
    pub service: ServiceId,
    /// The operation that the call matches, or else the named one.
    pub operation: Option<OperationSlug>,
    /// How much.
    pub amount: Amount,
    /// The payee.
    pub pay_to: Address,
    /// The hash of the request.
    pub fingerprint: Fingerprint,
    /// The call, as the agent describes it.
    pub call: CallDescription,
    /// The time.
    pub at: Timestamp,
    /// Why it was refused.
    pub reason: Reason,
    /// Which policy version refused it; `None` where the service was never enabled.
    pub policy_version: Option<u64>,
    /// The approval that was staged, or the open one that was joined.
    pub approval: Option<ApprovalId>,
    /// Every check, in order.
    pub checks: Vec<Check>,
    /// The duration of the decision.
    pub latency_ms: u64,
}

/// One line of an agent's decision log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoggedDecision {
    /// A payment was authorized; its settlement is the record.
    Allowed(Settlement),
    /// It was not.
    Refused(LoggedRefusal),
    /// A payment that was confirmed no longer is.
    ConfirmationReverted(ConfirmationReverted),
    /// The owner took money back; its settlement is the record.
    PaidOut(Settlement),
}

/// A block or an escalation as the log keeps it: the answer to the caller, as text, and its numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedRefusal {
    /// The ID of the decision in the audit log.
    pub transaction: TransactionId,
    /// Who asked.
    pub agent: AgentId,
    /// With which key.
    pub key: KeyId,
    /// For which service.
    pub service: ServiceId,
    /// For which operation.
    pub operation: Option<OperationSlug>,
    /// How much.
    pub amount: Amount,
    /// The payee.
    pub pay_to: Address,
    /// The call, as the agent describes it.
    pub call: CallDescription,
    /// The time.
    pub at: Timestamp,
    /// A block or an escalation.
    pub result: DecisionResult,
    /// The slug that was answered.
    pub error: String,
    /// The reason, such as `category_block:finance`.
    pub reason: String,
    /// The rule or cap that refused the call.
    pub rule: String,
    /// The host that was not allowed.
    pub hostname: Option<String>,
    /// Which policy version refused it; `None` where the service was never enabled.
    pub policy_version: Option<u64>,
    /// The approval that was staged, or the open one that was joined.
    pub approval: Option<ApprovalId>,
    /// Every check, in order.
    pub checks: Vec<Check>,
    /// The duration of the decision.
    pub latency_ms: u64,
}

/// The audit row of a reverted confirmation: the transfer that it rested on is no longer on the chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfirmationReverted {
    /// Its own audit reference.
    pub transaction: TransactionId,
    /// The agent.
    pub agent: AgentId,
    /// The key that authorized it; `None` for a payout, like the other fields that only a purchase has.
    pub key: Option<KeyId>,
    /// For which service.
    pub service: Option<ServiceId>,
    /// For which operation.
    pub operation: Option<OperationSlug>,
    /// How much.
    pub amount: Amount,
    /// The payee.
    pub pay_to: Address,
    /// When it was reverted.
    pub at: Timestamp,
    /// The payment.
    pub settlement: SettlementId,
    /// The transaction that had confirmed it.
    pub tx_hash: TxHash,
    /// Which policy version had allowed it.
    pub policy_version: Option<u64>,
}

impl ConfirmationReverted {
    /// `reason` in the log.
    pub const REASON: &str = "confirmation_vanished";

    /// The row for reverting that settlement's confirmation.
    pub fn of(
        settlement: &Settlement,
        transfer_gone: &TransferGone,
        transaction: TransactionId,
        at: Timestamp,
    ) -> Self {
        let terms = &settlement.terms;
        let purchase = terms.purchase();
        Self {
            transaction,
            agent: terms.agent,
            key: purchase.map(|purchase| purchase.key),
            service: purchase.map(|purchase| purchase.service),
            operation: purchase.map(|purchase| purchase.operation.clone()),
            amount: terms.amount,
            pay_to: terms.pay_to,
            at,
            settlement: terms.id,
            tx_hash: transfer_gone.tx_hash(),
            policy_version: purchase.map(|purchase| purchase.policy_version),
        }
    }
}

impl LoggedDecision {
    /// The line of a settlement.
    pub fn of(settlement: Settlement) -> Self {
        match settlement.terms.purpose {
            Purpose::Purchase(_) => Self::Allowed(settlement),
            Purpose::Payout(_) => Self::PaidOut(settlement),
        }
    }

    /// Its position in the log: a `UUIDv7` of the decision's time, unique over all agents. Text order is time order.
    pub const fn place(&self) -> Uuid {
        match self {
            Self::Allowed(settlement) | Self::PaidOut(settlement) => settlement.terms.id.uuid(),
            Self::Refused(refusal) => refusal.transaction.uuid(),
            Self::ConfirmationReverted(taken_back) => taken_back.transaction.uuid(),
        }
    }

    /// The ID of the decision in the audit log.
    pub const fn transaction(&self) -> TransactionId {
        match self {
            Self::Allowed(settlement) | Self::PaidOut(settlement) => settlement.terms.transaction,
            Self::Refused(refusal) => refusal.transaction,
            Self::ConfirmationReverted(taken_back) => taken_back.transaction,
        }
    }

    /// For which service; `None` for a payout.
    pub fn service(&self) -> Option<ServiceId> {
        match self {
            Self::Allowed(settlement) | Self::PaidOut(settlement) => {
                settlement.terms.purchase().map(|purchase| purchase.service)
            }
            Self::Refused(refusal) => Some(refusal.service),
            Self::ConfirmationReverted(taken_back) => taken_back.service,
        }
    }

    /// The result.
    pub const fn result(&self) -> DecisionResult {
        match self {
            Self::Allowed(_) => DecisionResult::Allow,
            Self::PaidOut(_) => DecisionResult::Payout,
            Self::Refused(refusal) => refusal.result,
            Self::ConfirmationReverted(_) => DecisionResult::RevertConfirmation,
        }
    }
}
