//! JSON API under `/handovers`: ownership transfers that operators offer to a user.

use crate::agents::api::AgentView;
use crate::agents::owned::require_id;
use crate::caller::Caller;
use crate::state::PeopleState;
use axum::Json;
use axum::extract::Path;
use purser_api::{Reply, endpoint, view};
use purser_domain::{Agent, AgentId, OwnershipOffer, Timestamp};

purser_api::views! {
    /// An agent that an operator offers to the user.
    pub(crate) struct OfferView as OfferedAgent {
        fn new((offer, agent): &(OwnershipOffer, Agent));

        agent_id: AgentId = agent.id,
        agent_name: String = agent.name.clone(),
        /// The operator's reason for the offer.
        reason: String = offer.reason.as_str().to_owned(),
        offered_at: Timestamp = offer.at,
        /// The time at which the offer expires.
        ends_at: Timestamp = offer.ends_at,
    }
}

/// The offered agents, oldest offer first.
#[view(OfferedAgentList)]
pub(crate) struct OfferList {
    handovers: Vec<OfferView>,
    /// The number of offers in this response.
    count: usize,
}

/// List the agents that operators offer to you.
#[endpoint(get "/handovers", returns = "The offers that you can accept.")]
pub(crate) async fn list_handovers(people: PeopleState, user: Caller) -> Reply<Json<OfferList>> {
    let offers = people.list_handovers(&user).await?;
    Ok(Json(OfferList::from_items(offers.iter().map(OfferView::new))))
}

/// Accept an agent that an operator offers to you. Requires a recent sign-in.
///
/// The agent keeps its policies, rules and keys. The keys work until you revoke them. You decide the agent's pending
/// approvals from then on.
#[endpoint(
    post "/handovers/{agentId}/accept",
    params(("agentId" = String, Path, description = "The ID of an agent that an operator offers to you.")),
    body = AgentView, returns = "The agent, which now belongs to you.", etag = "agent",
    errors(NotFound, RecentSignInRequired)
)]
pub(crate) async fn accept_handover(people: PeopleState, user: Caller, Path(agent): Path<String>) -> Reply {
    let owned = people
        .accept_ownership_offer(&user, require_id(AgentId::parse(&agent))?)
        .await?;
    Ok(people.agent_response(owned.agent()).await?)
}
