//! JSON API under `/handovers`: ownership transfers that operators offer to a user.

use crate::agents::api::AgentView;
use crate::agents::owned::require_id;
use crate::caller::Caller;
use crate::state::People;
use axum::Json;
use axum::extract::{Path, State};
use axum::response::Response;
use purser_api::{Failure, errors};
use purser_domain::{Agent, AgentId, OwnershipOffer};
use serde::Serialize;
use std::sync::Arc;
use utoipa::ToSchema;

/// An agent that an operator offers to the user.
#[derive(Serialize, ToSchema)]
#[schema(as = OfferedAgent)]
pub(crate) struct OfferView {
    #[schema(value_type = uuid::Uuid)]
    agent_id: String,
    agent_name: String,
    /// The operator's reason for the offer.
    reason: String,
    #[schema(format = DateTime)]
    offered_at: String,
    /// The time at which the offer expires.
    #[schema(format = DateTime)]
    ends_at: String,
}

impl OfferView {
    fn new((offer, agent): &(OwnershipOffer, Agent)) -> Self {
        Self {
            agent_id: agent.id.to_string(),
            agent_name: agent.name.clone(),
            reason: offer.reason.as_str().to_owned(),
            offered_at: offer.at.to_string(),
            ends_at: offer.ends_at.to_string(),
        }
    }
}

/// The offered agents, oldest offer first.
#[derive(Serialize, ToSchema)]
#[schema(as = OfferedAgentList)]
pub(crate) struct OfferList {
    handovers: Vec<OfferView>,
    /// The number of offers in this response.
    count: usize,
}

/// List the agents that operators offer to you.
#[utoipa::path(
    get, path = "/handovers", operation_id = "list_handovers",
    responses((status = 200, body = OfferList, description = "The offers that you can accept."))
)]
pub(crate) async fn list_handovers(
    State(people): State<Arc<People>>,
    user: Caller,
) -> Result<Json<OfferList>, Failure> {
    let offers = people.list_handovers(&user).await?;
    let handovers: Vec<OfferView> = offers.iter().map(OfferView::new).collect();
    Ok(Json(OfferList {
        count: handovers.len(),
        handovers,
    }))
}

/// Accept an agent that an operator offers to you. Requires a recent sign-in.
///
/// The agent keeps its policies, rules and keys. The keys work until you revoke them. You decide the agent's pending
/// approvals from then on.
#[utoipa::path(
    post, path = "/handovers/{agentId}/accept", operation_id = "accept_handover",
    params(("agentId" = String, Path, description = "The ID of an agent that an operator offers to you.")),
    responses(
        (status = 200, body = AgentView, description = "The agent, which now belongs to you.", headers(("ETag" = String, description = "The agent's version. Send it in `If-Match` with the next update."))),
        errors::NotFound, errors::RecentSignInRequired,
    )
)]
pub(crate) async fn accept_handover(
    State(people): State<Arc<People>>,
    user: Caller,
    Path(agent): Path<String>,
) -> Result<Response, Failure> {
    let owned = people
        .accept_ownership_offer(&user, require_id(AgentId::parse(&agent))?)
        .await?;
    Ok(people.agent_response(owned.agent()).await?)
}
