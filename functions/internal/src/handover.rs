//! `PUT` and `DELETE /internal/agents/{agentId}/handover`: offers an agent to a new owner, who must accept the offer.

use crate::{AppState, Caller, Operators};
use axum::Json;
use purser_api::{Body, Id, Operator, Reply, endpoint, view};
use purser_domain::{
    Act, Agent, AgentId, AuditChanges, AuditKind, Error, ErrorKind, OperatorReason, OwnershipOffer, Result, Timestamp,
    UserId, ValidationError,
};

purser_api::body! {
    /// The user to whom the agent is offered, and the reason.
    pub(crate) struct HandoverBody {
        /// The user's id, as shown on the user's sessions page.
        to: UserId,
        /// The reason, which the user sees. White space at the start and the end is removed.
        reason: OperatorReason = {"example": "their predecessor has left"},
    }
}

purser_api::views! {
    /// An agent that is offered to a new owner.
    pub(crate) struct HandoverView {
        fn new(agent: Agent, offer: &OwnershipOffer);

        agent_id: AgentId = agent.id,
        /// The ID of the agent's current owner.
        owner: String = agent.owner,
        /// The user who may accept the agent.
        to: String = offer.to.to_string(),
        reason: String = offer.reason.as_str().to_owned(),
        operator: String = offer.by.to_string(),
        offered_at: Timestamp = offer.at,
        /// The time at which the offer expires.
        ends_at: Timestamp = offer.ends_at,
    }
}

/// An agent whose offer was withdrawn.
#[view(HandoverTakenBack)]
pub(crate) struct TakenBack {
    agent_id: AgentId,
}

/// Offer an agent to a new owner. The offer replaces an earlier offer.
///
/// The user has seven days to accept the offer and needs a recent sign-in. The agent keeps its keys, policies, rules
/// and pending approvals.
#[endpoint(put "/internal/agents/{agentId}/handover", operation_id = "offer_agent", returns = "The offer.")]
pub(crate) async fn handle_ownership_offer(
    operators: AppState,
    Caller(operator): Caller,
    Id(id): Id<AgentId>,
    body: Body<HandoverBody>,
) -> Reply<Json<HandoverView>> {
    let agent = operators
        .ledger
        .read_agent_by_id(id)
        .await?
        .ok_or(ErrorKind::NotFound)?;
    let HandoverBody { to, reason } = body.parse()?;
    let offer = operators.offer_ownership(&operator, &agent, to, reason).await?;
    Ok(Json(HandoverView::new(agent, &offer)))
}

/// Withdraw an agent's offer that has not been accepted.
#[endpoint(
    delete "/internal/agents/{agentId}/handover", operation_id = "take_offer_back",
    returns = "The offer was withdrawn."
)]
pub(crate) async fn handle_ownership_offer_withdrawal(
    operators: AppState,
    Caller(operator): Caller,
    Id(id): Id<AgentId>,
) -> Reply<Json<TakenBack>> {
    let action = Act::new(AuditKind::HandoverTakenBack).on_agent(id);
    let agent = operators.ledger.read_agent_by_id(id).await?;
    let owner = agent.and_then(|agent| UserId::parse(&agent.owner));
    let entry = operators.audit_entry_for_owner(&operator, &action, AuditChanges::default(), owner.as_ref())?;
    operators.ledger.remove_ownership_offer(id, &entry).await?;
    tracing::info!(operator.name = %operator.name, agent.id = %id, "handover.taken_back");
    Ok(Json(TakenBack { agent_id: id }))
}

impl Operators {
    /// Offers an agent to a user, after a second operator's confirmation if the deployment requires it.
    async fn offer_ownership(
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
        let awaits_second_operator = self.needs_second_operator(operator) && {
            let earlier = self.ledger.read_ownership_offer(agent.id).await?;
            let is_second = |earlier: &OwnershipOffer| {
                earlier.awaits_second_operator() && earlier.to == to && !earlier.by.is_same_operator(&operator.name)
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
            ends_at: if awaits_second_operator {
                at
            } else {
                at.after(OwnershipOffer::VALIDITY)
            },
        };
        let action = Act::new(AuditKind::HandoverOffered).on_agent(agent.id);
        let changes = AuditChanges::single("owner", agent.owner.as_str(), offer.to.as_str());
        let owner = UserId::parse(&agent.owner);
        let entry = self.audit_entry_for_owner(operator, &action, changes, owner.as_ref())?;
        self.ledger.store_ownership_offer(&offer, &entry).await?;
        tracing::info!(
            operator.name = %offer.by,
            agent.id = %agent.id,
            old.owner = agent.owner,
            new.owner = %offer.to,
            awaits_second_operator,
            "handover.offered"
        );
        Ok(offer)
    }
}
