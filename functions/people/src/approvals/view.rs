//! An approval as its agent sees it.

use purser_api::CallView;
use purser_domain::{Approval, Timestamp};
use serde::Serialize;
use utoipa::ToSchema;

/// The state of an approval.
#[derive(Serialize, ToSchema)]
#[schema(as = Approval)]
pub(crate) struct ApprovalView {
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
    /// When a person decided.
    #[schema(format = DateTime, required)]
    resolved_at: Option<String>,
    /// The person's note.
    #[schema(required)]
    note: Option<String>,
    /// The settlement that used it.
    #[schema(value_type = Option<Uuid>, required)]
    settlement_id: Option<String>,
    call: CallView,
}

impl ApprovalView {
    pub(crate) fn at(approval: &Approval, now: Timestamp) -> Self {
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
            note: approval.ruling().and_then(|ruling| ruling.note.clone()),
            settlement_id: approval.settlement().map(|id| id.to_string()),
            call: CallView::from(&approval.call),
        }
    }
}
