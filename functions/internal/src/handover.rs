//! `PUT` and `DELETE /internal/agents/{agentId}/handover`: offers an agent to a new owner, who must accept the offer.

use crate::Caller;
use crate::Operators;
use axum::Json;
use axum::extract::State;
use purser_api::{Body, Failure, Id, Operator};
use purser_domain::{
    Act, Agent, AgentId, AuditChanges, AuditKind, Error, ErrorKind, OperatorReason, OwnershipOffer, Result, UserId,
    ValidationError,
};
use serde::Serialize;
use std::sync::Arc;
use utoipa::ToSchema;

purser_api::body! {
    /// The user to whom the agent is offered, and the reason.
    pub(crate) struct HandoverBody {
        /// The user's id, as shown on the user's sessions page.
        to: UserId,
        /// The reason, which the user sees. White space at the start and the end is removed.
        reason: OperatorReason = {"example": "their predecessor has left"},
    }
}

/// An agent that is offered to a new owner.
#[derive(Serialize, ToSchema)]
#[schema(as = Handover)]
pub(crate) struct HandoverView {
    #[schema(value_type = uuid::Uuid)]
    agent_id: String,
    /// The ID of the agent's current owner.
    owner: String,
    /// The user who may accept the agent.
    to: String,
    reason: String,
    operator: String,
    #[schema(format = DateTime)]
    offered_at: String,
    /// The time at which the offer expires.
    #[schema(format = DateTime)]
    ends_at: String,
}

/// An agent whose offer was withdrawn.
#[derive(Serialize, ToSchema)]
#[schema(as = HandoverTakenBack)]
pub(crate) struct TakenBack {
    #[schema(value_type = uuid::Uuid)]
    agent_id: String,
}

/// Offer an agent to a new owner. The offer replaces an earlier offer.
///
/// The user has seven days to accept the offer and needs a recent sign-in. The agent keeps its keys, policies, rules
/// and pending approvals.
#[utoipa::path(
    put, path = "/internal/agents/{agentId}/handover", operation_id = "offer_agent",
    responses((status = 200, body = HandoverView, description = "The offer."))
)]
pub(crate) async fn handle_agent_offer(
    State(operators): State<Arc<Operators>>,
    Caller(operator): Caller,
    Id(id): Id<AgentId>,
    body: Body<HandoverBody>,
) -> Result<Json<HandoverView>, Failure> {
    let agent = operators.find_agent_for_ownership_transfer(id).await?;
    let HandoverBody { to, reason } = body.parse()?;
    let offer = operators.offer_agent(&operator, &agent, to, reason).await?;
    Ok(Json(HandoverView {
        agent_id: id.to_string(),
        owner: agent.owner,
        to: offer.to.to_string(),
        reason: offer.reason.as_str().to_owned(),
        operator: offer.by.to_string(),
        offered_at: offer.at.to_string(),
        ends_at: offer.ends_at.to_string(),
    }))
}

/// Withdraw an agent's offer that has not been accepted.
#[utoipa::path(
    delete, path = "/internal/agents/{agentId}/handover", operation_id = "take_offer_back",
    responses((status = 200, body = TakenBack, description = "The offer was withdrawn."))
)]
pub(crate) async fn handle_offer_withdrawal(
    State(operators): State<Arc<Operators>>,
    Caller(operator): Caller,
    Id(id): Id<AgentId>,
) -> Result<Json<TakenBack>, Failure> {
    operators.withdraw_ownership_offer(&operator, id).await?;
    Ok(Json(TakenBack {
        agent_id: id.to_string(),
    }))
}

impl Operators {
    /// Reads the agent that an operator wants to offer.
    pub(crate) async fn find_agent_for_ownership_transfer(&self, id: AgentId) -> Result<Agent> {
        Ok(self.ledger.read_agent_by_id(id).await?.ok_or(ErrorKind::NotFound)?)
    }

    /// Offers an agent to a user, after a second operator's confirmation if the deployment requires it.
    pub(crate) async fn offer_agent(
        &self,
        operator: &Operator,
        agent: &Agent,
        to: UserId,
        reason: OperatorReason,
    ) -> Result<OwnershipOffer> {
        if agent.owner == to.as_str() {
            return Err(Error::invalid(vec![ValidationError::at_path(
                "/to",
                "owns the agent already",
            )]));
        }
        let awaits_second = self.needs_second_operator(operator) && {
            let earlier = self.ledger.read_agent_offer(agent.id).await?;
            let is_second = |earlier: &OwnershipOffer| {
                earlier.awaits_second() && earlier.to == to && !earlier.by.is_same_operator(&operator.name)
            };
            !earlier.as_ref().is_some_and(is_second)
        };
        let at = self.clock.now();
        let offer = OwnershipOffer {
            agent: agent.id,
            to,
            reason,
            by: operator.name.clone(),
            at,
            ends_at: if awaits_second {
                at
            } else {
                at.after(OwnershipOffer::VALIDITY)
            },
        };
        let action = Act::new(AuditKind::HandoverOffered).on_agent(agent.id);
        let changes = AuditChanges::single("owner", agent.owner.as_str(), offer.to.as_str());
        let owner = UserId::parse(&agent.owner);
        let entry = self.audit_entry_for_owner(operator, &action, changes, owner.as_ref())?;
        self.ledger.store_agent_offer(&offer, &entry).await?;
        tracing::info!(
            operator.name = %offer.by,
            agent.id = %agent.id,
            old.owner = agent.owner,
            new.owner = %offer.to,
            awaits_second,
            "handover.offered"
        );
        Ok(offer)
    }

    pub(crate) async fn withdraw_ownership_offer(&self, operator: &Operator, id: AgentId) -> Result<()> {
        let action = Act::new(AuditKind::HandoverTakenBack).on_agent(id);
        let agent = self.ledger.read_agent_by_id(id).await?;
        let owner = agent.and_then(|agent| UserId::parse(&agent.owner));
        let entry = self.audit_entry_for_owner(operator, &action, AuditChanges::default(), owner.as_ref())?;
        self.ledger.remove_offer(id, &entry).await?;
        tracing::info!(operator.name = %operator.name, agent.id = %id, "handover.taken_back");
        Ok(())
    }
}
