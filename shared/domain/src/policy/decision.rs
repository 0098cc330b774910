//! Records of decisions, for the users who manage the agent.

use crate::{
    Address, AgentId, Amount, ApprovalId, CallDescription, Check, Fingerprint, KeyId, OperationSlug, Purpose, Reason,
    ServiceId, Settlement, SettlementId, Timestamp, TransactionId, TxHash, VanishedTransfer, catalog::service::named,
};
use std::fmt;
use uuid::Uuid;

named! {
    /// The result of a line in the decision log: of a decision, a reverted confirmation or a withdrawal.
    DecisionResult {
        /// The payment was authorized.
        Allow = "allow" => "Allowed",
        /// The payment was denied.
        Block = "block" => "Blocked",
        /// The payment needs a user's approval.
        Escalate = "escalate" => "Asked for approval",
        /// A confirmation was reverted, because the transfer is no longer on chain.
        RevertConfirmation = "take_back" => "Reverted",
        /// The owner withdrew money from the wallet.
        Payout = "payout" => "Paid out",
    }
}

/// The reason of an allowed payment, in responses and in the decision log.
pub const ALLOWED_REASON: &str = "x402_authorized";

/// The version of the evaluation logic, which decisions record and replays report. Increment the version if
/// [`evaluate`](crate::evaluate) may decide the same inputs differently.
pub const ENGINE_VERSION: u32 = 1;

/// The versions of a decision's inputs except the policy, with which the decision can be replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct InputVersions {
    /// The [`ENGINE_VERSION`] that made the decision.
    pub engine: u32,
    /// The version of the agent's record.
    pub agent: u64,
    /// The version of the service in the catalog.
    pub service: u64,
}

/// Writes `<engine>.<agent>.<service>`.
impl fmt::Display for InputVersions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.engine, self.agent, self.service)
    }
}

impl InputVersions {
    /// Parses `<engine>.<agent>.<service>`. Returns `None` for any other text.
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

/// The record of a block or an escalation. An allowed payment has a settlement instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecisionRecord {
    /// The transaction id, which is also in the response to the caller.
    pub transaction: TransactionId,
    /// The agent that requested the payment.
    pub agent: AgentId,
    /// The id of the agent key that sent the request.
    pub key: KeyId,
    /// The user id of the agent's owner.
    pub owner: String,
    /// The number of the agent's ownership transfers before the decision.
    pub transfers: u32,
    /// The service that the agent wanted to pay.
    pub service: ServiceId,
    /// The operation that the call matches, or the operation in the request if there is no match.
    pub operation: Option<OperationSlug>,
    /// The requested amount, in micro-USDC.
    pub amount: Amount,
    /// The address that the payment would have paid.
    pub pay_to: Address,
    /// The fingerprint of the payment request.
    pub fingerprint: Fingerprint,
    /// The call as the agent described it.
    pub call: CallDescription,
    /// The time of the decision.
    pub at: Timestamp,
    /// Why the payment was denied or escalated.
    pub reason: Reason,
    /// The version of the evaluated policy; `None` if the service was never enabled or no check was made.
    pub policy_version: Option<u64>,
    /// The versions of the decision's inputs except the policy; `None` if no check was made.
    pub inputs: Option<InputVersions>,
    /// The new approval request, or the pending approval request for an identical payment.
    pub approval: Option<ApprovalId>,
    /// All checks in the order of evaluation.
    pub checks: Vec<Check>,
    /// The duration of the decision, in milliseconds.
    pub latency_ms: u64,
}

/// One line of an agent's decision log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoggedDecision {
    /// A payment was authorized. The settlement is the record of the decision.
    Allowed(Settlement),
    /// A payment was denied or escalated.
    Refused(LoggedDenial),
    /// The confirmation of a payment was reverted.
    ConfirmationReverted(ConfirmationReverted),
    /// The owner withdrew money. The settlement is the record of the decision.
    PaidOut(Settlement),
}

/// A block or an escalation as the decision log stores it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedDenial {
    /// The decision's transaction id, which is also the position in the decision log.
    pub transaction: TransactionId,
    /// The agent that requested the payment.
    pub agent: AgentId,
    /// The number of the agent's ownership transfers before the decision
    /// ([`crate::Agent::owner_after_transfers`]).
    pub transfers: u32,
    /// The id of the agent key that sent the request.
    pub key: KeyId,
    /// The service that the agent wanted to pay.
    pub service: ServiceId,
    /// The operation that the call matches, or the operation in the request if there is no match.
    pub operation: Option<OperationSlug>,
    /// The requested amount, in micro-USDC.
    pub amount: Amount,
    /// The address that the payment would have paid.
    pub pay_to: Address,
    /// The call as the agent described it.
    pub call: CallDescription,
    /// The time of the decision.
    pub at: Timestamp,
    /// The result: a block or an escalation.
    pub result: DecisionResult,
    /// The slug in the field `error` of the response to the agent.
    pub error: String,
    /// The reason, such as `category_block:finance`.
    pub reason: String,
    /// The rule or cap that denied the payment.
    pub rule: String,
    /// The host that the policy's allowed domains do not contain.
    pub hostname: Option<String>,
    /// The version of the evaluated policy; `None` if the service was never enabled or no check was made.
    pub policy_version: Option<u64>,
    /// The versions of the decision's inputs except the policy; `None` if no check was made.
    pub inputs: Option<InputVersions>,
    /// The new approval request, or the pending approval request for an identical payment.
    pub approval: Option<ApprovalId>,
    /// All checks in the order of evaluation.
    pub checks: Vec<Check>,
    /// The duration of the decision, in milliseconds.
    pub latency_ms: u64,
}

/// The record of a reverted confirmation, whose transfer is no longer on chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfirmationReverted {
    /// This record's own transaction id. The decision that allowed the payment has another id.
    pub transaction: TransactionId,
    /// The agent whose payment was reverted.
    pub agent: AgentId,
    /// The number of the agent's ownership transfers before the payment was authorized.
    pub transfers: u32,
    /// The id of the agent key that requested the payment; `None` for a withdrawal.
    pub key: Option<KeyId>,
    /// The service that the payment was for; `None` for a withdrawal.
    pub service: Option<ServiceId>,
    /// The operation that the payment was for; `None` for a withdrawal.
    pub operation: Option<OperationSlug>,
    /// The amount of the reverted payment, in micro-USDC.
    pub amount: Amount,
    /// The address that the reverted payment paid.
    pub pay_to: Address,
    /// The time at which the confirmation was reverted.
    pub at: Timestamp,
    /// The settlement whose confirmation was reverted.
    pub settlement: SettlementId,
    /// The hash of the transaction that had confirmed the payment.
    pub tx_hash: TxHash,
    /// The version of the policy that allowed the payment.
    pub policy_version: Option<u64>,
}

impl ConfirmationReverted {
    /// The value of `reason` in the decision log for a reverted confirmation.
    pub const REASON: &str = "confirmation_vanished";

    /// Creates the record of this settlement's reverted confirmation.
    pub fn new(
        settlement: &Settlement,
        vanished_transfer: &VanishedTransfer,
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
            tx_hash: vanished_transfer.tx_hash(),
            policy_version: purchase.map(|purchase| purchase.policy_version),
        }
    }
}

impl LoggedDecision {
    /// Creates the log entry of the decision that authorized this settlement.
    pub fn from_settlement(settlement: Settlement) -> Self {
        match settlement.terms.purpose {
            Purpose::Purchase(_) => Self::Allowed(settlement),
            Purpose::Payout(_) => Self::PaidOut(settlement),
        }
    }

    /// Returns the entry's position in the decision log: a `UUIDv7`, whose text order is the time order.
    pub const fn log_position(&self) -> Uuid {
        match self {
            Self::Allowed(settlement) | Self::PaidOut(settlement) => settlement.terms.id.uuid(),
            Self::Refused(rejection) => rejection.transaction.uuid(),
            Self::ConfirmationReverted(reversion) => reversion.transaction.uuid(),
        }
    }

    /// Returns the decision's transaction id, which is not the settlement id.
    pub const fn transaction_id(&self) -> TransactionId {
        match self {
            Self::Allowed(settlement) | Self::PaidOut(settlement) => settlement.terms.transaction,
            Self::Refused(rejection) => rejection.transaction,
            Self::ConfirmationReverted(reversion) => reversion.transaction,
        }
    }

    /// Returns the agent whose wallet pays.
    pub const fn agent_id(&self) -> AgentId {
        match self {
            Self::Allowed(settlement) | Self::PaidOut(settlement) => settlement.terms.agent,
            Self::Refused(rejection) => rejection.agent,
            Self::ConfirmationReverted(reversion) => reversion.agent,
        }
    }

    /// Returns the number of the agent's ownership transfers before the payment, which determines the owner of the
    /// entry.
    pub const fn transfer_count(&self) -> u32 {
        match self {
            Self::Allowed(settlement) | Self::PaidOut(settlement) => settlement.terms.transfers,
            Self::Refused(rejection) => rejection.transfers,
            Self::ConfirmationReverted(reverted) => reverted.transfers,
        }
    }

    /// Returns the recorded time of the decision or of the reversal.
    pub const fn decided_at(&self) -> Timestamp {
        match self {
            Self::Allowed(settlement) | Self::PaidOut(settlement) => settlement.terms.authorized_at,
            Self::Refused(rejection) => rejection.at,
            Self::ConfirmationReverted(reverted) => reverted.at,
        }
    }

    /// Returns the service, or `None` for a withdrawal.
    pub fn service_id(&self) -> Option<ServiceId> {
        match self {
            Self::Allowed(settlement) | Self::PaidOut(settlement) => {
                settlement.terms.purchase().map(|purchase| purchase.service)
            }
            Self::Refused(rejection) => Some(rejection.service),
            Self::ConfirmationReverted(reversion) => reversion.service,
        }
    }

    /// Returns the result of the decision. Withdrawals and reverted confirmations have their own results.
    pub const fn result(&self) -> DecisionResult {
        match self {
            Self::Allowed(_) => DecisionResult::Allow,
            Self::PaidOut(_) => DecisionResult::Payout,
            Self::Refused(rejection) => rejection.result,
            Self::ConfirmationReverted(_) => DecisionResult::RevertConfirmation,
        }
    }
}
