//! The JSON of an approval and of a temporary limit increase.

use crate::CallView;
use purser_domain::{Amount, Approval, TemporaryCaps, Timestamp};
use serde::Serialize;
use utoipa::ToSchema;

/// Higher caps for a limited time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = Raise)]
pub struct RaiseView {
    /// The temporary cap per call, in micro-units; null if the increase does not change this cap.
    #[schema(required)]
    pub max_per_call_units: Option<u64>,
    /// The temporary cap on the amount authorized in the last 24 hours, in micro-units; null if the increase does not
    /// change this cap.
    #[schema(required)]
    pub max_per_day_units: Option<u64>,
    /// The time at which the increase ends.
    #[schema(format = DateTime)]
    pub until: String,
}

impl From<TemporaryCaps> for RaiseView {
    fn from(TemporaryCaps { caps, until }: TemporaryCaps) -> Self {
        Self {
            max_per_call_units: caps.max_per_call.map(Amount::units),
            max_per_day_units: caps.max_per_day.map(Amount::units),
            until: until.to_string(),
        }
    }
}

/// An agent's request for approval, and the owner's decision.
#[derive(Serialize, ToSchema)]
#[schema(as = Approval)]
pub struct ApprovalView {
    #[schema(value_type = Uuid)]
    approval_id: String,
    /// `pending`, `approved`, `rejected`, `expired` or `executed`.
    status: &'static str,
    #[schema(value_type = Uuid)]
    transaction_id: String,
    #[schema(value_type = Uuid)]
    service_id: String,
    operation_id: String,
    amount_units: u64,
    pay_to: String,
    #[schema(format = DateTime)]
    created_at: String,
    #[schema(format = DateTime)]
    expires_at: String,
    /// The time at which a user decided; null while the approval is pending.
    #[schema(format = DateTime, required)]
    resolved_at: Option<String>,
    /// The note that the user added to the decision. Null without a note.
    #[schema(required)]
    note: Option<String>,
    /// The settlement that used the approval. Null if no settlement used the approval.
    #[schema(value_type = Option<Uuid>, required)]
    settlement_id: Option<String>,
    call: CallView,
    /// The higher caps that the agent requested or, after the owner's approval, the higher caps that the owner granted,
    /// which may be lower and end earlier. Absent if the approval is for the payment itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    raised_caps: Option<RaiseView>,
}

impl ApprovalView {
    /// Creates the view of an approval at `now`.
    pub fn from_approval(approval: &Approval, now: Timestamp) -> Self {
        Self {
            approval_id: approval.id.to_string(),
            status: approval.status(now).name(),
            transaction_id: approval.transaction.to_string(),
            service_id: approval.service.to_string(),
            operation_id: approval.operation.to_string(),
            amount_units: approval.amount.units(),
            pay_to: approval.pay_to.to_string(),
            created_at: approval.created_at.to_string(),
            expires_at: approval.expires_at.to_string(),
            resolved_at: approval.resolved_at().map(|at| at.to_string()),
            note: approval.users_decision().and_then(|resolution| resolution.note.clone()),
            settlement_id: approval.settlement_id().map(|id| id.to_string()),
            call: CallView::from(&approval.call),
            raised_caps: approval.temporary_caps().map(RaiseView::from),
        }
    }
}
