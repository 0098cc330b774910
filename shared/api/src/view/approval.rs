//! The JSON of an approval and of a temporary limit increase.

use crate::CallView;
use purser_domain::{Amount, Approval, ApprovalId, ServiceId, SettlementId, TemporaryCaps, Timestamp, TransactionId};
use purser_macros::view;

/// Higher caps for a limited time.
#[view]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RaiseView {
    /// The temporary cap per call, in micro-units; null if the increase does not change this cap.
    pub max_per_call_units: Option<u64>,
    /// The temporary cap on the amount authorized in the last 24 hours, in micro-units; null if the increase does not
    /// change this cap.
    pub max_per_day_units: Option<u64>,
    /// The time at which the first of the caps ends.
    pub until: Timestamp,
    /// The time at which the temporary cap per call ends; null if the increase does not change this cap.
    pub max_per_call_until: Option<Timestamp>,
    /// The time at which the temporary cap on 24 hours ends; null if the increase does not change this cap.
    pub max_per_day_until: Option<Timestamp>,
}

impl RaiseView {
    /// Creates the view of the increases that apply at the same time. Each cap has at most one increase.
    pub fn from_increases(increases: impl IntoIterator<Item = TemporaryCaps>) -> Option<Self> {
        let views = increases.into_iter().map(Self::from);
        views.reduce(|one, other| Self {
            max_per_call_units: one.max_per_call_units.or(other.max_per_call_units),
            max_per_day_units: one.max_per_day_units.or(other.max_per_day_units),
            until: one.until.min(other.until),
            max_per_call_until: one.max_per_call_until.or(other.max_per_call_until),
            max_per_day_until: one.max_per_day_until.or(other.max_per_day_until),
        })
    }
}

impl From<TemporaryCaps> for RaiseView {
    fn from(TemporaryCaps { caps, until }: TemporaryCaps) -> Self {
        Self {
            max_per_call_units: caps.max_per_call.map(Amount::units),
            max_per_day_units: caps.max_per_day.map(Amount::units),
            until,
            max_per_call_until: caps.max_per_call.map(|_| until),
            max_per_day_until: caps.max_per_day.map(|_| until),
        }
    }
}

/// An agent's request for approval, and the owner's decision.
#[view]
pub struct ApprovalView {
    approval_id: ApprovalId,
    /// `pending`, `approved`, `rejected`, `expired` or `executed`.
    status: &'static str,
    transaction_id: TransactionId,
    service_id: ServiceId,
    operation_id: String,
    amount_units: u64,
    pay_to: String,
    created_at: Timestamp,
    expires_at: Timestamp,
    /// The time at which a user decided; null while the approval is pending.
    resolved_at: Option<Timestamp>,
    /// The note that the user added to the decision. Null without a note.
    note: Option<String>,
    /// The settlement that used the approval. Null if no settlement used the approval.
    settlement_id: Option<SettlementId>,
    call: CallView,
    /// The higher caps that the agent requested or, after the owner's approval, the higher caps that the owner granted,
    /// which may be lower and end earlier. Absent if the approval is for the payment itself.
    #[omit_none]
    raised_caps: Option<RaiseView>,
}

impl ApprovalView {
    /// Creates the view of an approval at `now`.
    pub fn from_approval(approval: &Approval, now: Timestamp) -> Self {
        Self {
            approval_id: approval.id,
            status: approval.status(now).name(),
            transaction_id: approval.transaction,
            service_id: approval.service,
            operation_id: approval.operation.to_string(),
            amount_units: approval.amount.units(),
            pay_to: approval.pay_to.to_string(),
            created_at: approval.created_at,
            expires_at: approval.expires_at,
            resolved_at: approval.resolved_at(),
            note: approval.users_decision().and_then(|resolution| resolution.note.clone()),
            settlement_id: approval.settlement_id(),
            call: CallView::from(&approval.call),
            raised_caps: approval.temporary_caps().map(RaiseView::from),
        }
    }
}
