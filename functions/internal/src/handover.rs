//! `PUT` and `DELETE /internal/agents/{agentId}/handover`: offers an agent to another owner, and withdraws the offer.
//!
//! An operator can't change an agent: its owner changes when the person to whom it is offered accepts.

use crate::Operators;
use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, State};
use purser_api::{Failure, Member as _, Operator, OperatorCredentials, json_body};
use purser_domain::{
    Act, Agent, AgentId, AuditChanges, AuditKind, Error, ErrorKind, Handover, OperatorReason, PersonId, Problem, Result,
};
use serde::Serialize;
use std::sync::Arc;
use utoipa::ToSchema;

purser_api::error_responses! {
    /// The errors of offering an agent.
    pub(crate) OfferErrors: 400, 401, 404, 413, 429, 500;
    /// The errors of withdrawing an offer.
    pub(crate) TakeBackErrors: 401, 404, 429, 500;
}

purser_api::body! {
    /// The person to whom an agent is offered, and the reason.
    pub(crate) struct HandoverBody {
        /// The person's ID, as shown on their sessions page.
        to: PersonId,
        /// Shown to the person. Surrounding white space is removed.
        reason: OperatorReason = {"example": "their predecessor has left"},
    }
}

/// An agent that is offered to another owner.
#[derive(Serialize, ToSchema)]
#[schema(as = Handover)]
pub(crate) struct HandoverView {
    #[schema(value_type = uuid::Uuid)]
    agent_id: String,
    /// The present owner.
    owner: String,
    /// The person who may accept the agent.
    to: String,
    reason: String,
    operator: String,
    #[schema(format = DateTime)]
    offered_at: String,
    /// The end of the offer.
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

/// Offer an agent to another owner. This replaces an earlier offer.
///
/// The person has seven days to accept, with a recent sign-in. The agent keeps its keys, policies, rules and pending
/// approvals.
#[utoipa::path(
    put,
    path = "/internal/agents/{agentId}/handover",
    operation_id = "offer_agent",
    tag = "internal",
    security(("internalToken" = [])),
    params(("agentId" = uuid::Uuid, Path, description = "The agent.")),
    request_body = HandoverBody,
    responses((status = 200, body = HandoverView, description = "Offered."), OfferErrors)
)]
pub(crate) async fn offer(
    State(operators): State<Arc<Operators>>,
    caller: OperatorCredentials,
    Path(agent): Path<String>,
    body: Bytes,
) -> Result<Json<HandoverView>, Failure> {
    let operator = operators.authenticate(caller).await?;
    let id = AgentId::parse(&agent).ok_or(ErrorKind::NotFound)?;
    let agent = operators.find_agent_to_offer(id).await?;
    let HandoverBody { to, reason } = HandoverBody::parse(&json_body(&body)?)?;
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

/// Withdraw the offer of an agent, if it has not been accepted.
#[utoipa::path(
    delete,
    path = "/internal/agents/{agentId}/handover",
    operation_id = "take_offer_back",
    tag = "internal",
    security(("internalToken" = [])),
    params(("agentId" = uuid::Uuid, Path, description = "The agent.")),
    responses((status = 200, body = TakenBack, description = "The agent is not offered."), TakeBackErrors)
)]
pub(crate) async fn take_back(
    State(operators): State<Arc<Operators>>,
    caller: OperatorCredentials,
    Path(agent): Path<String>,
) -> Result<Json<TakenBack>, Failure> {
    let operator = operators.authenticate(caller).await?;
    let id = AgentId::parse(&agent).ok_or(ErrorKind::NotFound)?;
    operators.withdraw_offer(&operator, id).await?;
    Ok(Json(TakenBack {
        agent_id: id.to_string(),
    }))
}

impl Operators {
    /// The agent that is to be offered.
    pub(crate) async fn find_agent_to_offer(&self, id: AgentId) -> Result<Agent> {
        Ok(self.ledger.agent(id).await?.ok_or(ErrorKind::NotFound)?)
    }

    /// Offers an agent to a person. An offer that needs a second operator waits until another operator makes the same
    /// offer.
    pub(crate) async fn offer_agent(
        &self,
        operator: &Operator,
        agent: &Agent,
        to: PersonId,
        reason: OperatorReason,
    ) -> Result<Handover> {
        if agent.owner == to.as_str() {
            return Err(Error::invalid(vec![Problem::at("/to", "owns the agent already")]));
        }
        let awaits_second = self.needs_second(operator) && {
            let earlier = self.ledger.offer_of(agent.id).await?;
            let is_second = |earlier: &Handover| {
                earlier.awaits_second() && earlier.to == to && !earlier.by.is_same_operator(&operator.name)
            };
            !earlier.as_ref().is_some_and(is_second)
        };
        let at = self.clock.now();
        let offer = Handover {
            agent: agent.id,
            to,
            reason,
            by: operator.name.clone(),
            at,
            ends_at: if awaits_second {
                at
            } else {
                at.after(Handover::OPEN_FOR)
            },
        };
        let act = Act::new(AuditKind::HandoverOffered).on(agent.id);
        let changes = AuditChanges::one("owner", agent.owner.as_str(), offer.to.as_str());
        let owner = PersonId::parse(&agent.owner);
        let entry = self.entry_telling(operator, &act, changes, owner.as_ref())?;
        self.ledger.offer_agent(&offer, &entry).await?;
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

    /// Withdraws the offer of an agent, if there is one.
    pub(crate) async fn withdraw_offer(&self, operator: &Operator, id: AgentId) -> Result<()> {
        let act = Act::new(AuditKind::HandoverTakenBack).on(id);
        let agent = self.ledger.agent(id).await?;
        let owner = agent.and_then(|agent| PersonId::parse(&agent.owner));
        let entry = self.entry_telling(operator, &act, AuditChanges::default(), owner.as_ref())?;
        self.ledger.take_offer_back(id, &entry).await?;
        tracing::info!(operator.name = %operator.name, agent.id = %id, "handover.taken_back");
        Ok(())
    }
}
