//! `GET /mcp/agents/me`: the agent behind the key. Also the way to check whether a key works.

use crate::Agents;
use crate::view::AgentInfo;
use axum::Json;
use axum::extract::State;
use purser_api::{AgentCredentials, Failure};
use std::sync::Arc;

purser_api::error_responses! {
    /// The errors of this endpoint.
    pub(crate) MeErrors: 401, 403, 429, 500;
}

/// The agent behind the key.
#[utoipa::path(
    get,
    path = "/mcp/agents/me",
    tag = "agents",
    security(("agentKey" = [])),
    responses((status = 200, body = AgentInfo, description = "The key is active and belongs to this agent.",
        links(
            ("services" = (operation_id = "services", parameters(("agentId" = "$response.body#/agent_id")))),
            ("receipts" = (operation_id = "receipts", parameters(("agentId" = "$response.body#/agent_id")))),
        )), MeErrors)
)]
pub(crate) async fn me(
    State(agents): State<Arc<Agents>>,
    caller: AgentCredentials,
) -> Result<Json<AgentInfo>, Failure> {
    // Allowed for every valid key: this call is for checking a key.
    let caller = agents.authenticate(caller, None).await?;
    Ok(Json(AgentInfo::from(&caller.agent)))
}
