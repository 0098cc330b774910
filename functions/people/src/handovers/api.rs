//! `/handovers`: agents that operators offer to a person.

use crate::agents::api::AgentView;
use crate::agents::owned::parse_id;
use crate::state::People;
use axum::Json;
use axum::extract::{Path, State};
use axum::response::Response;
use purser_api::{Failure, SessionToken};
use purser_domain::{Agent, AgentId, Handover};
use serde::Serialize;
use std::sync::Arc;
use utoipa::ToSchema;

purser_api::error_responses! {
    /// The errors of listing offers.
    pub(crate) ListErrors: 401, 403, 429, 500;
    /// The errors of accepting an offer.
    pub(crate) AcceptErrors: 401, 403, 404, 429, 500;
}

/// An agent that is offered to the caller.
#[derive(Serialize, ToSchema)]
#[schema(as = OfferedAgent)]
pub(crate) struct OfferView {
    #[schema(value_type = uuid::Uuid)]
    agent_id: String,
    agent_name: String,
    /// The operator's reason.
    reason: String,
    #[schema(format = DateTime)]
    offered_at: String,
    /// The time after which it can't be accepted.
    #[schema(format = DateTime)]
    ends_at: String,
}

impl OfferView {
    fn new((offer, agent): &(Handover, Agent)) -> Self {
        Self {
            agent_id: agent.id.to_string(),
            agent_name: agent.name.clone(),
            reason: offer.reason.as_str().to_owned(),
            offered_at: offer.at.to_string(),
            ends_at: offer.ends_at.to_string(),
        }
    }
}

/// The agents that are offered to the caller, the oldest offer first.
#[derive(Serialize, ToSchema)]
#[schema(as = OfferedAgentList)]
pub(crate) struct OfferList {
    handovers: Vec<OfferView>,
    /// The number of offers in this answer.
    count: usize,
}

/// List the agents that operators offer you.
#[utoipa::path(
    get,
    path = "/handovers",
    operation_id = "list_handovers",
    tag = "dashboard",
    security(("session" = [])),
    responses((status = 200, body = OfferList, description = "The offers that can be accepted now."), ListErrors)
)]
pub(crate) async fn list(State(people): State<Arc<People>>, token: SessionToken) -> Result<Json<OfferList>, Failure> {
    let person = people.authenticate(token).await?;
    let offers = people.handovers(&person).await?;
    let handovers: Vec<OfferView> = offers.iter().map(OfferView::new).collect();
    Ok(Json(OfferList {
        count: handovers.len(),
        handovers,
    }))
}

/// Accept an agent that is offered to you. This requires a recent sign-in.
///
/// Its keys keep working until you revoke them. Its policies and rules stay, and its pending approvals become yours.
#[utoipa::path(
    post,
    path = "/handovers/{agentId}/accept",
    operation_id = "accept_handover",
    tag = "dashboard",
    security(("session" = [])),
    params(("agentId" = String, Path, description = "An agent that is offered to you by an operator.")),
    responses(
        (status = 200, body = AgentView, description = "Your agent.", headers(("ETag" = String, description = "Its version."))),
        AcceptErrors,
    )
)]
pub(crate) async fn accept(
    State(people): State<Arc<People>>,
    token: SessionToken,
    Path(agent): Path<String>,
) -> Result<Response, Failure> {
    let person = people.authenticate(token).await?;
    let owned = people
        .accept_handover(&person, parse_id(AgentId::parse(&agent))?)
        .await?;
    Ok(people.agent_response(owned.agent()).await?)
}
