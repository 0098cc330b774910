//! `GET /mcp/agents/{agentId}/services`: the services enabled for the agent, with their policies.

use crate::view::{EnabledServiceList, EnabledServiceView};
use crate::{AppState, require_caller_in_path};
use axum::Json;
use axum::extract::Path;
use purser_api::{AgentCredentials, Reply, endpoint};
use purser_domain::Permission;

/// Returns the services that are enabled for the agent, each with its policy.
#[endpoint(
    get "/mcp/agents/{agentId}/services", operation_id = "services",
    params(("agentId" = String, Path, description = "The ID of the agent that makes the call.")),
    returns = "Every service that is enabled for the agent, including services that can't be paid now. A key that is limited to some services gets only these services.",
    errors(NotFound)
)]
pub(crate) async fn list_enabled_services(
    agents: AppState,
    caller: AgentCredentials,
    Path(agent): Path<String>,
) -> Reply<Json<EnabledServiceList>> {
    let caller = agents.authenticate(caller, Some(Permission::Read)).await?;
    require_caller_in_path(&caller.agent, &agent)?;
    let scope = caller.key_scope()?;
    let (records, edition) = tokio::try_join!(
        agents.ledger.list_enabled_services(&caller.agent),
        agents.catalog.current(agents.clock.now())
    )?;
    let (owner, now) = (&caller.agent.owner, agents.clock.now());
    let mut services: Vec<EnabledServiceView> = records
        .iter()
        .filter(|record| record.enabled && scope.includes_service(record.service))
        .map(|record| EnabledServiceView::new(record, edition.catalog.find_by_id(record.service), owner, now))
        .collect();
    services.sort_by(|a, b| a.sort_key().cmp(&b.sort_key()));
    Ok(Json(EnabledServiceList::from_items(
        caller.agent.id.to_string(),
        services,
    )))
}
