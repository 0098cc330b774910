//! `GET /approvals/{id}`, which agents poll with an agent key, and which owners read with a session.
//!
//! With `wait_seconds`, the response waits until the approval is no longer pending. The caller is authenticated once,
//! before the wait.

use crate::caller::Caller;
use crate::state::{People, PeopleState};
use axum::Json;
use axum::extract::Path;
use axum::http::Uri;
use purser_api::{AgentCredentials, ApprovalView, Query, Reply, SessionToken, endpoint};
use purser_domain::{Approval, ApprovalId, ApprovalStatus, ErrorKind, Result};
use purser_store::DecisionKeys;
use std::time::Duration;
use tokio::time::{MissedTickBehavior, interval};

/// The maximum of `wait_seconds`. The Lambda function `people` times out after 29 s, and the gateway after 30 s.
const MAX_WAIT_SECS: u32 = 20;
/// The interval in which a waiting request reads the approval.
const READ_INTERVAL: Duration = Duration::from_secs(1);

/// Poll an approval, or wait until it is decided.
#[endpoint(
    get "/approvals/{id}", operation_id = "approval", tag = "payments",
    params(
        ("id" = String, Path, description = "The `approval_id` in a response of `POST /x402/authorize`."),
        ("wait_seconds" = Option<u32>, Query, minimum = 0, maximum = 20, description = "The response is sent when the approval is no longer `pending`, or after this number of seconds (long polling). While too many requests wait, the response is sent at once, so pause before the next request. The default is 0."),
    ),
    returns = "The approval. Once its status is `approved`, repeat the payment request with `approval_id`.",
    errors(NotFound)
)]
pub(crate) async fn poll_approval(
    people: PeopleState,
    caller: AgentCredentials,
    session: SessionToken,
    Path(id): Path<String>,
    uri: Uri,
) -> Reply<Json<ApprovalView>> {
    let id = ApprovalId::parse(&id);
    let mut query = Query::from_uri(&uri);
    let wait = query.parse_integer("wait_seconds", 0, MAX_WAIT_SECS);
    let is_user = session.has_jwt_form();
    let approval = if is_user {
        find_approval_for_user(&people, session, id).await?
    } else {
        find_approval_for_agent(&people, caller, id).await?
    };
    query.finish()?;
    let approval = match wait {
        None | Some(0) => approval,
        Some(seconds) => {
            let wait = Duration::from_secs(seconds.into());
            await_decision(&people, approval, is_user, wait).await?
        }
    };
    Ok(Json(ApprovalView::from_approval(&approval, people.now())))
}

/// Returns the approval when it is no longer pending, or after `max_wait`.
async fn await_decision(
    people: &People,
    mut approval: Approval,
    is_user: bool,
    max_wait: Duration,
) -> Result<Approval> {
    let is_pending = |approval: &Approval| approval.status(people.now()) == ApprovalStatus::Pending;
    if !is_pending(&approval) || !people.may_wait_for_decision(&approval).await {
        return Ok(approval);
    }
    let mut reads = interval(READ_INTERVAL);
    reads.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let begun = reads.tick().await;
    while is_pending(&approval) {
        let at = reads.tick().await;
        let again = people.ledger.read_approval_by_id(approval.id).await?;
        // After an ownership transfer, the previous owner can't read the approval. The agent still can.
        let again = again.filter(|again| !is_user || again.owner == approval.owner);
        approval = again.ok_or(ErrorKind::NotFound)?;
        if at.duration_since(begun) >= max_wait {
            break;
        }
    }
    Ok(approval)
}

async fn find_approval_for_agent(
    people: &People,
    caller: AgentCredentials,
    id: Option<ApprovalId>,
) -> Result<Approval> {
    let ask = DecisionKeys {
        approval: id,
        ..DecisionKeys::default()
    };
    let caller = people.authenticate_agent_and_read_inputs(caller, None, &ask).await?;
    let approval = caller.read.approval.as_ref();
    let approval = approval.filter(|approval| approval.agent == caller.agent.id);
    let approval = approval.ok_or(ErrorKind::NotFound)?;
    caller.key_scope()?.check_service(approval.service)?;
    Ok(approval.clone())
}

async fn find_approval_for_user(people: &People, session: SessionToken, id: Option<ApprovalId>) -> Result<Approval> {
    let read = async |user: &Caller| {
        let approval = match id {
            Some(id) => people.ledger.read_approval_by_id(id).await?,
            None => None,
        };
        let approval = approval.ok_or(ErrorKind::NotFound)?;
        people.read_own_agent(user, approval.agent).await?;
        let seen = approval.for_current_owner(user.id.as_str(), people.now());
        seen.ok_or_else(|| ErrorKind::NotFound.into())
    };
    let (_, approval) = people
        .authenticate_user_and_read(session.into_token()?, false, read)
        .await?;
    Ok(approval)
}
