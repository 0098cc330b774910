//! JSON API for the caller's agents.

use crate::agents::listing::AgentFilter;
use crate::agents::operations::{AgentUpdate, NewAgentLimits};
use crate::agents::owned::OwnedAgent;
use crate::caller::Caller;
use crate::cursor;
use crate::request::{body_with_version, created_response};
use crate::state::People;
use axum::Json;
use axum::extract::{Path, State};
use axum::http::Uri;
use axum::response::Response;
use purser_api::{
    Body, BodyPath, CallerIds, Failure, IfMatch, Member as _, Query, SessionToken, ValidationErrors, errors,
    labels_by_key, with_etag,
};
use purser_domain::{Agent, AgentName, FollowedTemplate, OperatorFreeze, Result, StartingLimits, TemplateName};
use purser_store::{AgentOrder, MAX_ROWS_PER_READ, Page};
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use utoipa::ToSchema;

/// One of the caller's agents.
#[derive(Serialize, ToSchema)]
#[schema(as = OwnAgent)]
pub(crate) struct AgentView {
    #[schema(value_type = uuid::Uuid)]
    agent_id: String,
    name: String,
    /// `active` or `frozen`. A frozen agent cannot pay, not even for a payment that a user approved.
    #[schema(value_type = String, example = "active")]
    status: &'static str,
    /// Whether the agent is archived. An archived agent is frozen and omitted from lists until you restore the agent.
    archived: bool,
    #[schema(example = json!({"team": "search"}))]
    labels: BTreeMap<String, String>,
    /// The maximum cap that the agent may request as a temporary limit increase, as a multiple of the current cap. With
    /// 0, the agent may request no increase.
    max_raise_factor: u32,
    /// The address of the wallet that the agent pays from.
    wallet_address: String,
    #[schema(format = DateTime)]
    created_at: String,
    /// The agent's version. Every update of the agent, its keys or rules increases it. Send it as
    /// `If-Match`.
    version: u64,
    /// The policy template that the agent follows. Null if the agent follows no template.
    #[schema(required)]
    template: Option<FollowedView>,
    /// The operator freeze that applies to the agent, and stops all of the agent's payments even while `status` is
    /// `active`. Null if there is none.
    #[schema(required)]
    frozen_by_operators: Option<FreezeView>,
}

/// The policy template that an agent follows, and its applied version.
#[derive(Serialize, ToSchema)]
#[schema(as = FollowedTemplate)]
pub(crate) struct FollowedView {
    #[schema(example = "research")]
    name: String,
    /// The template version that was last applied to the agent. Null while a version is being applied.
    #[schema(required)]
    version: Option<u64>,
}

impl FollowedView {
    fn new(template: &FollowedTemplate) -> Self {
        Self {
            name: template.name.to_string(),
            version: template.version(),
        }
    }
}

/// A freeze that an operator set. The owner of the agent cannot end the freeze.
#[derive(Serialize, ToSchema)]
#[schema(as = FreezeByOperators)]
pub(crate) struct FreezeView {
    /// What the operator froze: the `agent`, all agents of its `owner`, or the whole `deployment`.
    #[schema(value_type = String, example = "agent")]
    scope: &'static str,
    /// The reason that the operator gave.
    reason: String,
    #[schema(format = DateTime)]
    frozen_at: String,
}

impl AgentView {
    fn new(agent: &Agent, freeze: Option<&OperatorFreeze>) -> Self {
        Self {
            agent_id: agent.id.to_string(),
            name: agent.name.clone(),
            status: agent.status.name(),
            archived: agent.archived,
            labels: labels_by_key(&agent.labels),
            max_raise_factor: agent.max_increase_factor,
            wallet_address: agent.wallet.address.to_string(),
            created_at: agent.created_at.to_string(),
            version: agent.version,
            template: agent.template.as_ref().map(FollowedView::new),
            frozen_by_operators: freeze.map(|freeze| FreezeView {
                scope: freeze.target.scope_name(),
                reason: freeze.reason.as_str().to_owned(),
                frozen_at: freeze.at.to_string(),
            }),
        }
    }
}

/// A page of the caller's agents, oldest first.
#[derive(Serialize, ToSchema)]
#[schema(as = OwnAgentList)]
pub(crate) struct AgentList {
    agents: Vec<AgentView>,
    /// The number of agents in this response. With a filter, a page can contain fewer agents than `limit` even if more
    /// pages follow.
    count: usize,
    /// The cursor of the next page. Send it as `cursor`. Null on the last page.
    #[schema(required)]
    next_cursor: Option<String>,
}

purser_api::body! {
    /// The settings of a new agent.
    pub(crate) struct NewAgent as "NewAgentBody" {
        /// The agent's display name. White space at the start and the end is removed.
        pub(crate) name: AgentName,
        /// The agent's initial limits: `none`, or `safe` for the limits in docs/policies/safe.yaml. If absent, your
        /// default policy template applies, or else the deployment's default limits.
        pub(crate) limits: Option<StartingLimits>,
        /// The policy template that the agent follows, and that sets its initial limits. Send either `template` or
        /// `limits`.
        pub(crate) template: Option<TemplateName>,
    }
}

pub(crate) fn parse_new_agent(body: &Value) -> Result<(AgentName, NewAgentLimits)> {
    let mut errors = ValidationErrors::default();
    let new = NewAgent::read(body, BodyPath::Body, &mut errors).map(|new| {
        let limits = match (new.limits, new.template) {
            (None, None) => NewAgentLimits::Default,
            (Some(limits), None) => NewAgentLimits::Starting(limits),
            (limits, Some(template)) => {
                if limits.is_some() {
                    let path = BodyPath::Member(&BodyPath::Body, "template");
                    errors.add_at(path, "must not be combined with `limits`");
                }
                NewAgentLimits::Template(template)
            }
        };
        (new.name, limits)
    });
    errors.finish(new)
}

impl People {
    /// Returns the agent's JSON, with the agent's version as `ETag`.
    pub(crate) async fn agent_response(&self, agent: &Agent) -> Result<Response> {
        let freeze = self.find_operator_freeze(agent).await?;
        Ok(with_etag(agent.version, Json(AgentView::new(agent, freeze.as_ref()))))
    }
}

/// List your agents. Archived agents are left out by default.
///
/// With a filter, Purser reads at most 100 agents per page, so a page can be short although more pages follow.
#[utoipa::path(
    get, path = "/agents", operation_id = "list_agents",
    params(
        ("q" = Option<String>, Query, max_length = 100, description = "Only agents whose name or id contains this text."),
        ("label" = Option<String>, Query, pattern = "^[a-z][a-z0-9_.-]{0,29}(=[^\\x00-\\x1f\\x7f-\\x9f]{1,60})?$", description = "Only agents with this label, as `key=value`, or as `key` for any value."),
        ("status" = Option<String>, Query, pattern = "^(active|frozen)$", description = "Only agents with this status."),
        ("template" = Option<String>, Query, pattern = "^[a-z0-9][a-z0-9_-]{0,49}$", description = "Only agents that follow this policy template."),
        ("archived" = Option<bool>, Query, description = "If true, only archived agents. By default, only agents that are not archived."),
        ("limit" = Option<u32>, Query, minimum = 1, maximum = 100, description = "The maximum number of items. The default is 100."),
        ("cursor" = Option<String>, Query, pattern = "^0[0-2][0-9a-f]{46}$", description = "The `next_cursor` of an earlier response."),
    ),
    responses((status = 200, body = AgentList, description = "A page of the list, oldest first."))
)]
pub(crate) async fn list_agents(
    State(people): State<Arc<People>>,
    user: Caller,
    uri: Uri,
) -> Result<Json<AgentList>, Failure> {
    let mut query = Query::from_uri(&uri);
    let from = query.parse_with("cursor", cursor::parse_agent_cursor, cursor::FORM);
    let limit = query.parse_limit("limit", MAX_ROWS_PER_READ, MAX_ROWS_PER_READ);
    let filter = AgentFilter::from_query(&mut query);
    query.finish()?;
    let oldest_first = AgentOrder::OldestFirst;
    let Page { items: agents, next } = people.list_agents(&user, &filter, oldest_first, from, limit).await?;
    let freezes = people
        .read_freezes_by_agent(agents.iter().map(OwnedAgent::agent))
        .await?;
    let agents = agents.iter().map(OwnedAgent::agent);
    let agents: Vec<AgentView> = agents
        .map(|agent| AgentView::new(agent, freezes.get(&agent.id)))
        .collect();
    Ok(Json(AgentList {
        count: agents.len(),
        agents,
        next_cursor: next.map(cursor::format_agent_cursor),
    }))
}

/// Create an agent.
///
/// The new agent has a wallet but no agent key. Every curated service is enabled. If neither the request nor a default
/// sets limits, the agent has no limits. Set limits before you send money to the wallet.
#[utoipa::path(
    post, path = "/agents", operation_id = "create_agent",
    responses(
        (status = 201, body = AgentView, description = "The agent.", headers(("ETag" = String, description = "The agent's version. Send it in `If-Match` with the next update.")),
            links(
                ("read" = (operation_id = "read_agent", parameters(("agentId" = "$response.body#/agent_id")))),
                ("edit" = (operation_id = "edit_agent", parameters(("agentId" = "$response.body#/agent_id"), ("If-Match" = "$response.header.ETag")))),
                ("createKey" = (operation_id = "create_key", parameters(("agentId" = "$response.body#/agent_id"), ("If-Match" = "$response.header.ETag")))),
                ("enableService" = (operation_id = "enable_service", parameters(("agentId" = "$response.body#/agent_id")))),
                ("addRule" = (operation_id = "add_rule", parameters(("agentId" = "$response.body#/agent_id"), ("If-Match" = "$response.header.ETag")))),
                ("wallet" = (operation_id = "read_wallet", parameters(("agentId" = "$response.body#/agent_id")))),
            )),
    )
)]
pub(crate) async fn create_agent(
    State(people): State<Arc<People>>,
    user: Caller,
    caller: CallerIds,
    body: Body<NewAgent>,
) -> Result<Response, Failure> {
    let (name, limits) = parse_new_agent(&body.json()?)?;
    let owned = people.create_agent(&user, &name, limits, caller).await?;
    Ok(created_response(people.agent_response(owned.agent()).await?))
}

/// Read an agent.
#[utoipa::path(
    get, path = "/agents/{agentId}", operation_id = "read_agent",
    responses(
        (status = 200, body = AgentView, description = "The agent.", headers(("ETag" = String, description = "The agent's version. Send it in `If-Match` with the next update."))),
    )
)]
pub(crate) async fn read_agent(State(people): State<Arc<People>>, owned: OwnedAgent) -> Result<Response, Failure> {
    Ok(people.agent_response(owned.agent()).await?)
}

/// Rename, label, freeze, unfreeze, archive or restore an agent.
#[utoipa::path(
    patch, path = "/agents/{agentId}", operation_id = "edit_agent",
    params(("agentId" = String, Path, description = "The ID of an agent that you own.")),
    responses(
        (status = 200, body = AgentView, description = "The updated agent.", headers(("ETag" = String, description = "The agent's version. Send it in `If-Match` with the next update."))),
        errors::NotFound, errors::RecentSignInRequired,
    )
)]
pub(crate) async fn update_agent(
    State(people): State<Arc<People>>,
    token: SessionToken,
    if_match: IfMatch,
    Path(agent): Path<String>,
    body: Body<AgentUpdate>,
) -> Result<Response, Failure> {
    let update = body.parse();
    let stops = update.as_ref().is_ok_and(AgentUpdate::stops_payments);
    let owned = people.authenticate_for_agent(token, &agent, stops).await?;
    let (update, if_match) = body_with_version(update, if_match.into_precondition())?;
    let owned = people.update_agent(owned, if_match, &update).await?;
    Ok(people.agent_response(owned.agent()).await?)
}
