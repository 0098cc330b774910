//! `GET /approvals/{id}`: the status of an approval. Another's and an unknown one are both 404.
//!
//! The agent polls it with its key; the agent's owner may read the same with their session. The form of the bearer
//! token shows which of the two the caller claims to be.

use super::approval_view::ApprovalView;
use crate::state::People;
use axum::Json;
use axum::extract::{Path, State};
use purser_api::{AgentCredentials, Failure, Person, SessionToken};
use purser_domain::{Approval, ApprovalId, ErrorKind, Result};
use purser_store::DecisionKeys;
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
    security(("agentKey" = []), ("session" = [])),
    params(("id" = String, Path, description = "The `approval_id` of an escalation.")),
    responses(
        (status = 200, body = ApprovalView, description = "Where it stands. Once approved, repeat the call with `approval_id`."),
        ApprovalErrors,
    )
)]
pub(crate) async fn approval(
    State(people): State<Arc<People>>,
    caller: AgentCredentials,
    session: SessionToken,
    Path(id): Path<String>,
) -> Result<Json<ApprovalView>, Failure> {
    let id = ApprovalId::parse(&id);
    let approval = if session.has_the_form_of_a_session() {
        of_person(&people, session, id).await?
    } else {
        of_agent(&people, caller, id).await?
    };
    Ok(Json(ApprovalView::at(&approval, people.now())))
}

async fn of_agent(people: &People, caller: AgentCredentials, id: Option<ApprovalId>) -> Result<Approval> {
    let ask = DecisionKeys {
        approval: id,
        ..DecisionKeys::default()
    };
    let caller = people.agent_reading(caller, &ask).await?;
    let approval = caller
        .read
        .approval
        .filter(|approval| approval.agent == caller.agent.id);
    approval.ok_or_else(|| ErrorKind::NotFound.into())
}

async fn of_person(people: &People, session: SessionToken, id: Option<ApprovalId>) -> Result<Approval> {
    let read = async |person: &Person| {
        let approval = match id {
            Some(id) => people.ledger.approval(id).await?,
            None => None,
        };
        let approval = approval.ok_or(ErrorKind::NotFound)?;
        people.own_agent(person, approval.agent).await?;
        Ok(approval)
    };
    let (_, approval) = people.person_reading(&session.presented()?, read).await?;
    Ok(approval)
}
