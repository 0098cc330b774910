//! `GET /approvals/{id}`: where the question to a person stands. Another agent's, and an unknown one, are alike not
//! found.

use crate::view::ApprovalView;
use crate::{Payments, only};
use axum::Json;
use axum::extract::{Path, State};
use purser_api::{Caller, Failure};
use purser_domain::{ApprovalId, ErrorKind};
use purser_store::Ask;
use std::sync::Arc;

purser_api::error_responses! {
    /// What this endpoint may be refused with.
    pub(crate) ApprovalErrors: 401, 404, 429, 500;
}

/// Poll an approval.
#[utoipa::path(
    get,
    path = "/approvals/{id}",
    tag = "payments",
    security(("agentKey" = [])),
    params(("id" = String, Path, description = "The `approval_id` of an escalation.")),
    responses(
        (status = 200, body = ApprovalView, description = "Where it stands. Once approved, repeat the call with `approval_id`."),
        ApprovalErrors,
    )
)]
pub(crate) async fn approval(
    State(payments): State<Arc<Payments>>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<ApprovalView>, Failure> {
    let approval = ApprovalId::parse(&id);
    let (agent, _, snapshot) = payments
        .enter(caller, |agent| Ask {
            approval,
            ..only(agent)
        })
        .await?;
    let approval = snapshot
        .approval
        .filter(|approval| approval.agent == agent.id)
        .ok_or(ErrorKind::NotFound)?;
    Ok(Json(ApprovalView::at(&approval, payments.clock.now())))
}
