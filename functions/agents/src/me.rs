//! `GET /mcp/agents/me`: the agent that owns the key.

use crate::Agents;
use crate::view::AgentInfo;
use axum::Json;
use axum::extract::State;
use purser_api::{AgentCredentials, Failure};
use std::sync::Arc;

/// Returns the agent that owns the key. Use this request to check whether a key is valid.
#[utoipa::path(
    get, path = "/mcp/agents/me", operation_id = "me",
    responses(
        (status = 200, body = AgentInfo, description = "The agent of the key. The key is active.",
        links(
            ("services" = (operation_id = "services", parameters(("agentId" = "$response.body#/agent_id")))),
            ("receipts" = (operation_id = "receipts", parameters(("agentId" = "$response.body#/agent_id")))),
        )),
    )
)]
pub(crate) async fn read_calling_agent(
    State(agents): State<Arc<Agents>>,
    caller: AgentCredentials,
) -> Result<Json<AgentInfo>, Failure> {
    // This call needs no permission, because agents use it to check whether a key is valid.
    let caller = agents.authenticate(caller, None).await?;
    Ok(Json(AgentInfo::from(&caller.agent)))
}
