//! An entry of the decision history: one decision about a payment, with the settlement's current state.
//!
//! An entry is computed from the decision's row and the agent's name and labels, and can be recomputed. The
//! entry does not contain the decision's checks and provider call, which are only in the row.

use crate::{
    ALLOWED_REASON, Address, AgentId, Amount, ApprovalId, Check, CheckName, CheckOutcome, ConfirmationReverted, Day,
    DecisionResult, Hour, KeyId, Labels, LoggedDecision, LoggedDenial, Network, OperationSlug, ServiceId, Settlement,
    SettlementId, SettlementState, Timestamp, TransactionId, UsageTotals,
};
use serde::{Deserialize, Serialize};
use std::cmp::Ordering;
use uuid::Uuid;

/// One decision: an allow, a block, an escalation, a reverted confirmation or a withdrawal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryEntry {
    /// The entry's position in the decision history: a `UUIDv7` with the time of the decision. The position of a
    /// decision that allowed a payment or a withdrawal is the settlement's id. The position of any other decision is
    /// the decision's id.
    pub place: Uuid,
    /// The agent whose payment or withdrawal the decision concerns.
    pub agent: AgentId,
    /// The agent's name when the entry was last written.
    pub agent_name: String,
    /// The agent's labels when the entry was last written.
    pub labels: Labels,
    /// The id of the decision.
    pub transaction: TransactionId,
    /// The result of the decision.
    pub result: DecisionResult,
    /// The time of the decision.
    pub at: Timestamp,
    /// The id of the agent key that requested the payment; `None` for a withdrawal.
    pub key: Option<KeyId>,
    /// The paid service; `None` for a withdrawal.
    pub service: Option<ServiceId>,
    /// The operation that the call matched, or the operation in the request if there was no match. `None`
    /// without either, or for a withdrawal.
    pub operation: Option<OperationSlug>,
    /// The requested amount, in micro-USDC.
    pub amount: Amount,
    /// The address that the payment pays, or would have paid.
    pub pay_to: Address,
    /// The reason for the decision: for example, `x402_authorized` for an allowed payment, `confirmation_vanished` for
    /// a reverted confirmation, or the reason for a denial.
    pub reason: String,
    /// The version of the policy that was evaluated.
    pub policy_version: Option<u64>,
    /// The approval that this decision requested or used.
    pub approval: Option<ApprovalId>,
    /// Details of a block or an escalation; `None` for other decisions.
    pub refusal: Option<HistoryDenial>,
    /// Details of an allowed payment or a withdrawal; `None` for other decisions.
    pub payment: Option<HistoryPayment>,
    /// The settlement whose confirmation was reverted; `None` if the decision is not a reverted confirmation.
    pub reverted: Option<SettlementId>,
}

/// Details of a block or an escalation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryDenial {
    /// The slug in the field `error` of the response to the agent.
    pub error: String,
    /// The name of the rule or the policy's limit that denied the payment.
    pub rule: String,
    /// The host that the policy's allowed domains do not contain.
    pub hostname: Option<String>,
    /// The limit of the failed check, if the check has a limit.
    pub limit: Option<Amount>,
    /// The part of the failed check's limit that earlier payments had used.
    pub used: Option<Amount>,
    /// The time from the start of the request to the decision, in milliseconds.
    pub latency_ms: u64,
}

/// Details of an allowed payment or a withdrawal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryPayment {
    /// The chain on which the payment is made.
    pub network: Network,
    /// The address of the agent's wallet, which is the payer.
    pub wallet: Address,
    /// The EIP-3009 `validBefore`: the chain accepts the payment only in blocks with an earlier time.
    pub valid_before: Timestamp,
    /// Whether the payment is authorized, confirmed or expired.
    pub state: SettlementState,
    /// The daily cap or budget with the largest used share after this payment; `None` for a withdrawal.
    pub nearest: Option<LimitUse>,
}

/// The used part of a daily cap or a budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitUse {
    /// The sum of the payments that count toward the limit, including this payment.
    pub used: Amount,
    /// The daily cap, or the limit of the budget.
    pub limit: Amount,
}

/// Compares the used shares of the limits first, and then the limits.
impl Ord for LimitUse {
    fn cmp(&self, other: &Self) -> Ordering {
        // Compares used / limit without a division.
        let product = |a: Amount, b: Amount| u128::from(a.units()).saturating_mul(u128::from(b.units()));
        let shares = product(self.used, other.limit).cmp(&product(other.used, self.limit));
        shares.then(self.limit.cmp(&other.limit))
    }
}

impl PartialOrd for LimitUse {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl LimitUse {
    /// Returns the daily cap or budget with the largest used share after a payment of this amount.
    pub(crate) fn for_nearest_limit(checks: &[Check], amount: Amount) -> Option<Self> {
        let of = |check: &Check| {
            let is_window = matches!(check.name, CheckName::Day | CheckName::Budget);
            let (limit, used) = check.limit.zip(check.used)?;
            (is_window && !limit.is_zero()).then(|| Self {
                used: used.plus(amount).unwrap_or(Amount::MAX),
                limit,
            })
        };
        checks.iter().filter_map(of).max()
    }
}

impl HistoryEntry {
    /// Creates the entry for a decision about an agent with this name and these labels.
    pub fn new(decision: &LoggedDecision, agent_name: &str, labels: &Labels) -> Self {
        match decision {
            LoggedDecision::Allowed(settlement) => {
                Self::from_settlement(settlement, ALLOWED_REASON, agent_name, labels)
            }
            LoggedDecision::PaidOut(settlement) => Self::from_settlement(settlement, "paid_out", agent_name, labels),
            LoggedDecision::Refused(denial) => Self {
                place: denial.transaction.uuid(),
                agent: denial.agent,
                agent_name: agent_name.to_owned(),
                labels: labels.clone(),
                transaction: denial.transaction,
                result: denial.result,
                at: denial.at,
                key: Some(denial.key),
                service: Some(denial.service),
                operation: denial.operation.clone(),
                amount: denial.amount,
                pay_to: denial.pay_to,
                reason: denial.reason.clone(),
                policy_version: denial.policy_version,
                approval: denial.approval,
                refusal: Some(HistoryDenial {
                    error: denial.error.clone(),
                    rule: denial.rule.clone(),
                    hostname: denial.hostname.clone(),
                    limit: find_failed_check(denial).and_then(|check| check.limit),
                    used: find_failed_check(denial).and_then(|check| check.used),
                    latency_ms: denial.latency_ms,
                }),
                payment: None,
                reverted: None,
            },
            LoggedDecision::ConfirmationReverted(reverted) => Self {
                place: reverted.transaction.uuid(),
                agent: reverted.agent,
                agent_name: agent_name.to_owned(),
                labels: labels.clone(),
                transaction: reverted.transaction,
                result: DecisionResult::RevertConfirmation,
                at: reverted.at,
                key: reverted.key,
                service: reverted.service,
                operation: reverted.operation.clone(),
                amount: reverted.amount,
                pay_to: reverted.pay_to,
                reason: ConfirmationReverted::REASON.to_owned(),
                policy_version: reverted.policy_version,
                approval: None,
                refusal: None,
                payment: None,
                reverted: Some(reverted.settlement),
            },
        }
    }

    fn from_settlement(settlement: &Settlement, reason: &str, agent_name: &str, labels: &Labels) -> Self {
        let terms = &settlement.terms;
        let purchase = terms.purchase();
        Self {
            place: terms.id.uuid(),
            agent: terms.agent,
            agent_name: agent_name.to_owned(),
            labels: labels.clone(),
            transaction: terms.transaction,
            result: match purchase {
                Some(_) => DecisionResult::Allow,
                None => DecisionResult::Payout,
            },
            at: terms.authorized_at,
            key: purchase.map(|purchase| purchase.key),
            service: purchase.map(|purchase| purchase.service),
            operation: purchase.map(|purchase| purchase.operation.clone()),
            amount: terms.amount,
            pay_to: terms.pay_to,
            reason: reason.to_owned(),
            policy_version: purchase.map(|purchase| purchase.policy_version),
            approval: purchase.and_then(|purchase| purchase.approval),
            refusal: None,
            payment: Some(HistoryPayment {
                network: terms.network,
                wallet: terms.wallet,
                valid_before: terms.valid_before,
                state: settlement.state.clone(),
                nearest: purchase.and_then(|purchase| LimitUse::for_nearest_limit(&purchase.checks, terms.amount)),
            }),
            reverted: None,
        }
    }

    /// Returns the settlement that was authorized or reverted.
    pub fn settlement_id(&self) -> Option<SettlementId> {
        let own = self.payment.as_ref().map(|_| SettlementId::from_uuid(self.place));
        own.or(self.reverted)
    }

    /// Returns the UTC day whose sums include the entry.
    pub fn day(&self) -> Day {
        // The position is a UUIDv7 like a settlement id.
        Day::containing(SettlementId::from_uuid(self.place).authorized_at())
    }

    /// Returns the UTC hour whose sum includes the entry.
    pub fn hour(&self) -> Hour {
        Hour::containing(SettlementId::from_uuid(self.place).authorized_at())
    }

    /// Returns the amount that the entry adds to the hour's sum: the amount of an allowed payment that was not
    /// released.
    pub fn amount_for_hour_sum(&self) -> Amount {
        match (self.result, self.settlement_state()) {
            (DecisionResult::Allow, Some(SettlementState::Authorized | SettlementState::Confirmed { .. })) => {
                self.amount
            }
            _ => Amount::ZERO,
        }
    }

    /// Returns the settlement's state for an allowed payment or a withdrawal.
    pub fn settlement_state(&self) -> Option<&SettlementState> {
        self.payment.as_ref().map(|payment| &payment.state)
    }

    /// Returns the amounts that the entry adds to the day's sums. A withdrawal adds nothing.
    pub fn usage_sums(&self) -> UsageTotals {
        let none = UsageTotals::default();
        match (self.result, self.settlement_state()) {
            (DecisionResult::Allow, Some(state)) => {
                let authorized = UsageTotals {
                    authorized: self.amount,
                    allowed: 1,
                    ..none
                };
                match state {
                    SettlementState::Authorized => authorized,
                    SettlementState::Confirmed { .. } => UsageTotals {
                        confirmed: self.amount,
                        ..authorized
                    },
                    SettlementState::Expired => UsageTotals {
                        released: self.amount,
                        ..authorized
                    },
                }
            }
            (DecisionResult::Block, _) => UsageTotals { blocked: 1, ..none },
            (DecisionResult::Escalate, _) => UsageTotals { escalated: 1, ..none },
            (DecisionResult::RevertConfirmation, _) if self.service.is_some() => UsageTotals {
                taken_back: self.amount,
                ..none
            },
            (DecisionResult::Payout | DecisionResult::RevertConfirmation, _) | (DecisionResult::Allow, None) => none,
        }
    }
}

/// Returns the first failed check, which determined the decision.
fn find_failed_check(denial: &LoggedDenial) -> Option<&Check> {
    denial.checks.iter().find(|check| check.outcome == CheckOutcome::Failed)
}
