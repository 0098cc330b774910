//! `GET /mcp/agents/me`: the agent that owns the key.

use crate::AppState;
use crate::view::AgentInfo;
use axum::Json;
use purser_api::{AgentCredentials, Reply, endpoint};

/// Returns the agent that owns the key. Use this request to check whether a key is valid.
#[endpoint(
    get "/mcp/agents/me", operation_id = "me", returns = "The agent of the key. The key is active.",
    links(
            ("services" = (operation_id = "services", parameters(("agentId" = "$response.body#/agent_id")))),
            ("receipts" = (operation_id = "receipts", parameters(("agentId" = "$response.body#/agent_id")))),
        )
)]
pub(crate) async fn read_calling_agent(agents: AppState, caller: AgentCredentials) -> Reply<Json<AgentInfo>> {
    // No permission is needed, because agents use this call to check whether a key is valid.
    let caller = agents.authenticate(caller, None).await?;
    Ok(Json(AgentInfo::from(&caller.agent)))
}
