//! Operator freezes of one agent, of all agents of an owner, or of the whole deployment. A freeze applies to every
//! decision that starts after the response. Only operators can end a freeze.
//!
//! In a browser, an operator cannot end a freeze that was set with a token. Otherwise, a compromised Lambda function
//! `people` could end the freeze that responds to the compromise.

use crate::{AppState, Caller, Operators};
use axum::Json;
use purser_api::{Body, Id, Operator, Reply, endpoint, view};
use purser_domain::{
    Act, AgentId, AuditChanges, AuditKind, AuditRejection, ErrorKind, FreezeChange, FreezeTarget, Freezes,
    OperatorFreeze, OperatorReason, Result, StrongerFreeze, Timestamp, UserId,
};
use purser_store::{Backoff, ChangeFreezeResult};

purser_api::body! {
    /// The reason for which an operator freezes an agent, an owner or the deployment.
    pub(crate) struct FreezeBody {
        /// The reason, which owners of frozen agents see. White space at the start and the end is removed.
        reason: OperatorReason = {"example": "reported stolen"},
    }
}

/// A freeze that an operator set for an agent, an owner or the whole deployment. Payments of frozen agents are blocked.
#[view(OperatorFreeze)]
pub(crate) struct FreezeView {
    /// The scope: `agent`, `owner` or `deployment`.
    #[schema(value_type = String, example = "agent")]
    scope: &'static str,
    /// The frozen agent. Null unless `scope` is `agent`.
    agent_id: Option<AgentId>,
    /// The owner whose agents are frozen. If `scope` is `agent`, the agent's current owner. Null for the deployment.
    owner: Option<String>,
    reason: String,
    /// The operator who set the freeze: `browser:<name>` if the operator acted in a browser.
    operator: String,
    /// The operator who requested the end of the freeze in a browser. A second operator must confirm the request. Null
    /// if nobody requested the end.
    end_requested_by: Option<String>,
    frozen_at: Timestamp,
}

/// All operator freezes.
#[view(OperatorFreezeList)]
pub(crate) struct FreezeList {
    freezes: Vec<FreezeView>,
    /// The number of freezes in this response.
    count: usize,
}

impl Operators {
    async fn freeze_list_response(&self) -> Result<Json<FreezeList>> {
        let stored = self.ledger.list_operator_freezes().await?;
        let frozen = stored.iter().filter_map(|freeze| match &freeze.target {
            FreezeTarget::Agent(agent) => Some(*agent),
            FreezeTarget::Owner(_) | FreezeTarget::Deployment => None,
        });
        let agents = self.ledger.read_agents(frozen).await?;
        let view = |freeze: &OperatorFreeze| {
            let owner_of = |id: &AgentId| agents.iter().find(|agent| agent.id == *id).map(|agent| &agent.owner);
            let (agent_id, owner) = match &freeze.target {
                FreezeTarget::Agent(id) => (Some(*id), owner_of(id).cloned()),
                FreezeTarget::Owner(owner) => (None, Some(owner.to_string())),
                FreezeTarget::Deployment => (None, None),
            };
            FreezeView {
                scope: freeze.target.scope_name(),
                agent_id,
                owner,
                reason: freeze.reason.as_str().to_owned(),
                operator: freeze.by.to_string(),
                end_requested_by: freeze.end_asked_by.as_ref().map(ToString::to_string),
                frozen_at: freeze.at,
            }
        };
        Ok(Json(FreezeList::from_items(stored.iter().map(view))))
    }

    async fn handle_freeze(
        &self,
        operator: &Operator,
        target: FreezeTarget,
        body: &Body<FreezeBody>,
    ) -> Result<Json<FreezeList>> {
        // A mistyped id must not look like a successful freeze.
        if let FreezeTarget::Agent(id) = &target {
            self.ledger.read_agent_by_id(*id).await?.ok_or(ErrorKind::NotFound)?;
        }
        let FreezeBody { reason } = body.parse()?;
        let action = freeze_audit_action(AuditKind::FreezeSet, &target);
        let begin = |stored| {
            let freeze = OperatorFreeze {
                target: target.clone(),
                reason: reason.clone(),
                by: operator.name.clone(),
                at: self.clock.now(),
                end_asked_by: None,
            };
            FreezeChange::begin_freeze(stored, freeze)
        };
        let change = self.change_freeze(operator, &action, &target, begin);
        self.audit_rejection(operator, &action, change).await??;
        self.freeze_list_response().await
    }

    /// Ends a freeze, or stores the request to end it if a second operator must confirm.
    async fn handle_unfreeze(&self, operator: &Operator, target: FreezeTarget) -> Result<Json<FreezeList>> {
        let needs_second = self.needs_second_operator(operator);
        let end = |stored| FreezeChange::end_freeze(target.clone(), stored, &operator.name, needs_second);
        let action = freeze_audit_action(AuditKind::FreezeEnded, &target);
        self.change_freeze(operator, &action, &target, end).await??;
        self.freeze_list_response().await
    }

    /// Changes a target's freeze, and retries after a concurrent change. The inner result is `invalid_internal_token`
    /// if the freeze was set with a token, because only an operator with a token can change that freeze.
    async fn change_freeze(
        &self,
        operator: &Operator,
        action: &Act,
        target: &FreezeTarget,
        change: impl Fn(Option<OperatorFreeze>) -> Result<FreezeChange, StrongerFreeze>,
    ) -> Result<Result<(), ErrorKind>> {
        let owner = self.find_freeze_target_owner(target).await?;
        let mut backoff = Backoff::new();
        loop {
            let freezes = self.ledger.list_operator_freezes().await?;
            let stored = freezes.into_iter().find(|freeze| freeze.target == *target);
            let Ok(change) = change(stored) else {
                let rejection = AuditRejection::new("token_required", "the freeze was set with a token");
                self.record_rejection(operator, action, rejection).await?;
                return Ok(Err(ErrorKind::InvalidInternalToken));
            };
            if operator.name.is_browser_session_name() && change.stored_freeze().or(change.new_freeze()).is_none() {
                return Err(ErrorKind::NotFound.into());
            }
            // The freeze stays active until a second operator confirms, so the owner's audit log gets no row yet.
            let is_request = change.new_freeze().is_some_and(|freeze| freeze.end_asked_by.is_some());
            let request = freeze_audit_action(AuditKind::FreezeEndRequested, target);
            let (audit_action, owner) = if is_request {
                (&request, None)
            } else {
                (action, owner.as_ref())
            };
            let [before, after] = [change.stored_freeze(), change.new_freeze()]
                .map(|freeze| freeze.map(OperatorFreeze::audit_log_fields));
            let entry =
                self.audit_entry_for_owner(operator, audit_action, AuditChanges::between(before, after), owner)?;
            match self.ledger.change_freeze(&change, &entry).await? {
                ChangeFreezeResult::Stored => {
                    log_freeze_change(operator, &change, is_request);
                    return Ok(Ok(()));
                }
                ChangeFreezeResult::TooMany => return Err(ErrorKind::TooManyFreezes { limit: Freezes::MAX }.into()),
                ChangeFreezeResult::Conflict => backoff.wait_for_retry().await?,
            }
        }
    }

    /// Returns the owner of the frozen agents, or `None` for a freeze of the deployment.
    async fn find_freeze_target_owner(&self, target: &FreezeTarget) -> Result<Option<UserId>> {
        Ok(match target {
            FreezeTarget::Agent(id) => {
                let agent = self.ledger.read_agent_by_id(*id).await?;
                agent.and_then(|agent| UserId::parse(&agent.owner))
            }
            FreezeTarget::Owner(owner) => Some(owner.clone()),
            FreezeTarget::Deployment => None,
        })
    }
}

fn freeze_audit_action(kind: AuditKind, target: &FreezeTarget) -> Act {
    match target {
        FreezeTarget::Agent(agent) => Act::new(kind).on_agent(*agent),
        FreezeTarget::Owner(owner) => Act::new(kind).with_object(owner),
        FreezeTarget::Deployment => Act::new(kind).with_object(&target.scope_name()),
    }
}

/// Logs a change of a freeze without the reason, which is free text.
fn log_freeze_change(operator: &Operator, change: &FreezeChange, is_request: bool) {
    let (by, target) = (&operator.name, change.target());
    let (agent, owner) = match target {
        FreezeTarget::Agent(agent) => (Some(agent.to_string()), None),
        FreezeTarget::Owner(owner) => (None, Some(owner.as_str())),
        FreezeTarget::Deployment => (None, None),
    };
    let scope = target.scope_name();
    if is_request {
        tracing::info!(operator.name = %by, scope, "freeze.end_requested");
    } else if change.new_freeze().is_some() {
        tracing::warn!(operator.name = %by, scope, agent.id = agent, owner, "freeze.set");
    } else {
        tracing::warn!(operator.name = %by, scope, agent.id = agent, owner, "freeze.ended");
    }
}

/// List all operator freezes.
#[endpoint(get "/internal/freezes", returns = "All active operator freezes.")]
pub(crate) async fn list_freezes(operators: AppState, Caller(_operator): Caller) -> Reply<Json<FreezeList>> {
    Ok(operators.freeze_list_response().await?)
}

/// Freeze an agent.
///
/// Payments of the agent are blocked, and the owner cannot unfreeze it.
#[endpoint(
    put "/internal/freezes/agents/{agentId}", returns = "The active freezes, including the new freeze.",
    errors(TooManyFreezes)
)]
pub(crate) async fn freeze_agent(
    operators: AppState,
    Caller(operator): Caller,
    Id(agent): Id<AgentId>,
    body: Body<FreezeBody>,
) -> Reply<Json<FreezeList>> {
    Ok(operators
        .handle_freeze(&operator, FreezeTarget::Agent(agent), &body)
        .await?)
}

/// End an agent's freeze.
#[endpoint(delete "/internal/freezes/agents/{agentId}", returns = "The freezes that are still active.")]
pub(crate) async fn unfreeze_agent(
    operators: AppState,
    Caller(operator): Caller,
    Id(agent): Id<AgentId>,
) -> Reply<Json<FreezeList>> {
    Ok(operators.handle_unfreeze(&operator, FreezeTarget::Agent(agent)).await?)
}

/// Freeze all agents of an owner, including agents that are created later.
#[endpoint(
    put "/internal/freezes/owners/{person}", returns = "The active freezes, including the new freeze.",
    errors(TooManyFreezes)
)]
pub(crate) async fn freeze_owner(
    operators: AppState,
    Caller(operator): Caller,
    Id(owner): Id<UserId>,
    body: Body<FreezeBody>,
) -> Reply<Json<FreezeList>> {
    Ok(operators
        .handle_freeze(&operator, FreezeTarget::Owner(owner), &body)
        .await?)
}

/// End an owner's freeze.
#[endpoint(delete "/internal/freezes/owners/{person}", returns = "The freezes that are still active.")]
pub(crate) async fn unfreeze_owner(
    operators: AppState,
    Caller(operator): Caller,
    Id(owner): Id<UserId>,
) -> Reply<Json<FreezeList>> {
    Ok(operators.handle_unfreeze(&operator, FreezeTarget::Owner(owner)).await?)
}

/// Freeze the whole deployment, so that all agents' payments are blocked.
#[endpoint(put "/internal/freezes/deployment", returns = "The active freezes, including the new freeze.")]
pub(crate) async fn freeze_deployment(
    operators: AppState,
    Caller(operator): Caller,
    body: Body<FreezeBody>,
) -> Reply<Json<FreezeList>> {
    Ok(operators
        .handle_freeze(&operator, FreezeTarget::Deployment, &body)
        .await?)
}

/// End the deployment's freeze.
#[endpoint(delete "/internal/freezes/deployment", returns = "The freezes that are still active.")]
pub(crate) async fn unfreeze_deployment(operators: AppState, Caller(operator): Caller) -> Reply<Json<FreezeList>> {
    Ok(operators.handle_unfreeze(&operator, FreezeTarget::Deployment).await?)
}
