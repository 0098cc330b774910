//! The record of a decision, for the people who govern the agent.

use crate::{
    Address, AgentId, Amount, ApprovalId, CallDescription, Check, Fingerprint, KeyId, OperationSlug, Purpose, Reason,
    ServiceId, Settlement, SettlementId, Timestamp, TransactionId, TransferGone, TxHash, catalog::service::named,
};
use std::fmt;
use uuid::Uuid;

named! {
    /// The result of a decision.
    DecisionResult {
        /// The payment was authorized.
        Allow = "allow",
        /// The payment was refused.
        Block = "block",
        /// The payment needs a person's approval.
        Escalate = "escalate",
        /// A confirmation was reverted, because the transfer is no longer on the chain.
        RevertConfirmation = "take_back",
        /// The owner withdrew money from the wallet.
        Payout = "payout",
    }
}

/// The reason of an allow, in answers and in the decision log.
pub const ALLOWED_REASON: &str = "x402_authorized";

/// The version of the evaluation. It is increased with every change after which [`evaluate`](crate::evaluate) may judge
/// the same facts otherwise, so that a replay can say which engine judged a decision.
pub const ENGINE_VERSION: u32 = 1;

/// The versions of what a decision was based on, besides its policy's. With them it can be evaluated again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct InputVersions {
    /// The [`ENGINE_VERSION`] that evaluated it.
    pub engine: u32,
    /// The version of the agent's record.
    pub agent: u64,
    /// The version of the service's catalog entry.
    pub service: u64,
}

/// `<engine>.<agent>.<service>`.
impl fmt::Display for InputVersions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.engine, self.agent, self.service)
    }
}

impl InputVersions {
    /// Parses the text of [`InputVersions`]; `None` for any other text.
    pub fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.split('.');
        let (engine, agent, service) = (numbers.next()?, numbers.next()?, numbers.next()?);
        let versions = Self {
            engine: engine.parse().ok()?,
            agent: agent.parse().ok()?,
            service: service.parse().ok()?,
        };
        (versions.to_string() == text).then_some(versions)
    }
}

/// The audit row of a block or an escalation. An allowed payment has a settlement instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecisionRecord {
    /// The audit reference in the answer to the caller.
    pub transaction: TransactionId,
    /// The requesting agent.
    pub agent: AgentId,
    /// The key of the request.
    pub key: KeyId,
    /// The `sub` of the person who owns the agent.
    pub owner: String,
    /// The number of the agent's ownership transfers before.
    pub transfers: u32,
    /// The service.
    pub service: ServiceId,
    /// The operation that the call matches, or else the one that the request names.
    pub operation: Option<OperationSlug>,
    /// The amount.
    pub amount: Amount,
    /// The payee.
    pub pay_to: Address,
    /// The hash of the request.
    pub fingerprint: Fingerprint,
    /// The call, as the agent describes it.
    pub call: CallDescription,
    /// The time of the decision.
    pub at: Timestamp,
    /// The reason for the refusal.
    pub reason: Reason,
    /// The policy version that refused it; `None` if the service was never enabled.
    pub policy_version: Option<u64>,
    /// The versions of the other inputs; `None` if the checks were not made.
    pub inputs: Option<InputVersions>,
    /// The created approval, or the open one of an identical request.
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
    /// A payment was refused or escalated.
    Refused(LoggedRefusal),
    /// The confirmation of a payment was reverted.
    ConfirmationReverted(ConfirmationReverted),
    /// The owner withdrew money; its settlement is the record.
    PaidOut(Settlement),
}

/// A block or an escalation in the decision log: its answer to the caller as text, and its numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedRefusal {
    /// The ID of the decision in the audit log.
    pub transaction: TransactionId,
    /// The requesting agent.
    pub agent: AgentId,
    /// The number of the agent's ownership transfers before: it determines the owner
    /// ([`Agent::owner_then`](crate::Agent::owner_then)).
    pub transfers: u32,
    /// The key of the request.
    pub key: KeyId,
    /// The service.
    pub service: ServiceId,
    /// The operation.
    pub operation: Option<OperationSlug>,
    /// The amount.
    pub amount: Amount,
    /// The payee.
    pub pay_to: Address,
    /// The call, as the agent describes it.
    pub call: CallDescription,
    /// The time of the decision.
    pub at: Timestamp,
    /// The result: a block or an escalation.
    pub result: DecisionResult,
    /// The `error` slug of the answer.
    pub error: String,
    /// The reason, such as `category_block:finance`.
    pub reason: String,
    /// The rule or cap that refused the call.
    pub rule: String,
    /// The host that was not allowed.
    pub hostname: Option<String>,
    /// The policy version that refused it; `None` if the service was never enabled.
    pub policy_version: Option<u64>,
    /// The versions of the other inputs; `None` if the checks were not made.
    pub inputs: Option<InputVersions>,
    /// The created approval, or the open one of an identical request.
    pub approval: Option<ApprovalId>,
    /// Every check, in order.
    pub checks: Vec<Check>,
    /// The duration of the decision.
    pub latency_ms: u64,
}

/// The audit row of a reverted confirmation: the transfer that confirmed the payment is no longer on the chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfirmationReverted {
    /// The row's own audit reference.
    pub transaction: TransactionId,
    /// The agent.
    pub agent: AgentId,
    /// The number of the agent's ownership transfers before the payment was authorized.
    pub transfers: u32,
    /// The key that authorized it; `None` for a payout, like the other fields that only a purchase has.
    pub key: Option<KeyId>,
    /// The service.
    pub service: Option<ServiceId>,
    /// The operation.
    pub operation: Option<OperationSlug>,
    /// The amount.
    pub amount: Amount,
    /// The payee.
    pub pay_to: Address,
    /// The time at which the confirmation was reverted.
    pub at: Timestamp,
    /// The settlement whose confirmation was reverted.
    pub settlement: SettlementId,
    /// The hash of the transaction that had confirmed it.
    pub tx_hash: TxHash,
    /// The policy version that allowed it.
    pub policy_version: Option<u64>,
}

impl ConfirmationReverted {
    /// The value of `reason` in the log.
    pub const REASON: &str = "confirmation_vanished";

    /// The row for the reverted confirmation of that settlement.
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
            transfers: terms.transfers,
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
    /// The log line of a settlement.
    pub fn of(settlement: Settlement) -> Self {
        match settlement.terms.purpose {
            Purpose::Purchase(_) => Self::Allowed(settlement),
            Purpose::Payout(_) => Self::PaidOut(settlement),
        }
    }

    /// The line's position in the log: a `UUIDv7` of the decision's time, unique across agents. Text order is time
    /// order.
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

    /// The agent.
    pub const fn agent(&self) -> AgentId {
        match self {
            Self::Allowed(settlement) | Self::PaidOut(settlement) => settlement.terms.agent,
            Self::Refused(refusal) => refusal.agent,
            Self::ConfirmationReverted(taken_back) => taken_back.agent,
        }
    }

    /// The number of the agent's ownership transfers before it. A reverted confirmation is its payment owner's.
    pub const fn transfers(&self) -> u32 {
        match self {
            Self::Allowed(settlement) | Self::PaidOut(settlement) => settlement.terms.transfers,
            Self::Refused(refusal) => refusal.transfers,
            Self::ConfirmationReverted(reverted) => reverted.transfers,
        }
    }

    /// The recorded time.
    pub const fn at(&self) -> Timestamp {
        match self {
            Self::Allowed(settlement) | Self::PaidOut(settlement) => settlement.terms.authorized_at,
            Self::Refused(refusal) => refusal.at,
            Self::ConfirmationReverted(reverted) => reverted.at,
        }
    }

    /// The service; `None` for a payout.
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
