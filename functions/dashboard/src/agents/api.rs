//! JSON API for the caller's agents.

use crate::agents::listing::AgentFilter;
use crate::agents::operations::{AgentUpdate, NewAgentLimits};
use crate::agents::owned::OwnedAgent;
use crate::caller::Caller;
use crate::cursor;
use crate::request::{combine_results_and_errors, created_response};
use crate::state::{People, PeopleState};
use axum::Json;
use axum::extract::Path;
use axum::http::Uri;
use axum::response::Response;
use purser_api::{
    Body, BodyPath, CallerIds, IfMatch, Member as _, Query, Reply, SessionToken, ValidationErrors, endpoint,
    labels_by_key, view, with_etag,
};
use purser_domain::{
    Agent, AgentId, AgentName, FollowedTemplate, OperatorFreeze, Result, StartingLimits, TemplateName, Timestamp,
};
use purser_store::{AgentOrder, MAX_ROWS_PER_READ, Page};
use serde_json::Value;
use std::collections::BTreeMap;

purser_api::views! {
    /// One of the caller's agents.
    pub(crate) struct AgentView as OwnAgent {
        fn new(agent: &Agent, freeze: Option<&OperatorFreeze>);

        agent_id: AgentId = agent.id,
        name: String = agent.name.clone(),
        /// `active` or `frozen`. A frozen agent cannot pay, not even for a payment that a user approved.
        #[schema(value_type = String, example = "active")]
        status: &'static str = agent.status.name(),
        /// Whether the agent is archived. An archived agent is frozen and omitted from lists until you restore the
        /// agent.
        archived: bool = agent.archived,
        #[schema(example = json!({"team": "search"}))]
        labels: BTreeMap<String, String> = labels_by_key(&agent.labels),
        /// The maximum cap that the agent may request as a temporary limit increase, as a multiple of the current cap.
        /// With 0, the agent may request no increase.
        max_raise_factor: u32 = agent.max_increase_factor,
        /// The address of the wallet that the agent pays from.
        wallet_address: String = agent.wallet.address.to_string(),
        created_at: Timestamp = agent.created_at,
        /// The agent's version. Every update of the agent, its keys or rules increases it. Send it as
        /// `If-Match`.
        version: u64 = agent.version,
        /// The policy template that the agent follows. Null if the agent follows no template.
        template: Option<FollowedView> = agent.template.as_ref().map(FollowedView::new),
        /// The operator freeze that applies to the agent, and stops all of the agent's payments even while `status` is
        /// `active`. Null if there is none.
        frozen_by_operators: Option<FreezeView> = freeze.map(|freeze| FreezeView {
            scope: freeze.target.scope_name(),
            reason: freeze.reason.as_str().to_owned(),
            frozen_at: freeze.at,
        }),
    }

    /// The policy template that an agent follows, and its applied version.
    pub(crate) struct FollowedView as FollowedTemplate {
        fn new(template: &FollowedTemplate);

        #[schema(example = "research")]
        name: String = template.name.to_string(),
        /// The template version that was last applied to the agent. Null while a version is being applied.
        version: Option<u64> = template.version(),
    }
}

/// A freeze that an operator set. The owner of the agent cannot end the freeze.
#[view(FreezeByOperators)]
pub(crate) struct FreezeView {
    /// What the operator froze: the `agent`, all agents of its `owner`, or the whole `deployment`.
    #[schema(value_type = String, example = "agent")]
    scope: &'static str,
    /// The reason that the operator gave.
    reason: String,
    frozen_at: Timestamp,
}

/// A page of the caller's agents, oldest first.
#[view(OwnAgentList)]
pub(crate) struct AgentList {
    agents: Vec<AgentView>,
    /// The number of agents in this response. With a filter, a page can contain fewer agents than `limit` even if more
    /// pages follow.
    count: usize,
    /// The cursor of the next page. Send it as `cursor`. Null on the last page.
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
#[endpoint(
    get "/agents",
    params(
        ("q" = Option<String>, Query, max_length = 100, description = "Only agents whose name or id contains this text."),
        ("label" = Option<String>, Query, pattern = "^[a-z][a-z0-9_.-]{0,29}(=[^\\x00-\\x1f\\x7f-\\x9f]{1,60})?$", description = "Only agents with this label, as `key=value`, or as `key` for any value."),
        ("status" = Option<String>, Query, pattern = "^(active|frozen)$", description = "Only agents with this status."),
        ("template" = Option<String>, Query, pattern = "^[a-z0-9][a-z0-9_-]{0,49}$", description = "Only agents that follow this policy template."),
        ("archived" = Option<bool>, Query, description = "If true, only archived agents. By default, only agents that are not archived."),
        ("limit" = Option<u32>, Query, minimum = 1, maximum = 100, description = "The maximum number of items. The default is 100."),
        ("cursor" = Option<String>, Query, pattern = "^0[0-2][0-9a-f]{46}$", description = "The `next_cursor` of an earlier response."),
    ),
    returns = "A page of the list, oldest first."
)]
pub(crate) async fn list_agents(people: PeopleState, user: Caller, uri: Uri) -> Reply<Json<AgentList>> {
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
    Ok(Json(AgentList::from_items(
        agents.map(|agent| AgentView::new(agent, freezes.get(&agent.id))),
        next.map(cursor::format_agent_cursor),
    )))
}

/// Create an agent.
///
/// The new agent has a wallet but no agent key. Every curated service is enabled. If neither the request nor a default
/// sets limits, the agent has no limits. Set limits before you send money to the wallet.
#[endpoint(
    post "/agents", status = 201, body = AgentView, returns = "The agent.", etag = "agent",
    links(
                ("read" = (operation_id = "read_agent", parameters(("agentId" = "$response.body#/agent_id")))),
                ("edit" = (operation_id = "edit_agent", parameters(("agentId" = "$response.body#/agent_id"), ("If-Match" = "$response.header.ETag")))),
                ("createKey" = (operation_id = "create_key", parameters(("agentId" = "$response.body#/agent_id"), ("If-Match" = "$response.header.ETag")))),
                ("enableService" = (operation_id = "enable_service", parameters(("agentId" = "$response.body#/agent_id")))),
                ("addRule" = (operation_id = "add_rule", parameters(("agentId" = "$response.body#/agent_id"), ("If-Match" = "$response.header.ETag")))),
                ("wallet" = (operation_id = "read_wallet", parameters(("agentId" = "$response.body#/agent_id")))),
            )
)]
pub(crate) async fn create_agent(people: PeopleState, user: Caller, caller: CallerIds, body: Body<NewAgent>) -> Reply {
    let (name, limits) = parse_new_agent(&body.json()?)?;
    let owned = people.create_agent(&user, &name, limits, caller).await?;
    Ok(created_response(people.agent_response(owned.agent()).await?))
}

/// Read an agent.
#[endpoint(get "/agents/{agentId}", body = AgentView, returns = "The agent.", etag = "agent")]
pub(crate) async fn read_agent(people: PeopleState, owned: OwnedAgent) -> Reply {
    Ok(people.agent_response(owned.agent()).await?)
}

/// Rename, label, freeze, unfreeze, archive or restore an agent.
#[endpoint(
    patch "/agents/{agentId}", operation_id = "edit_agent",
    params(("agentId" = String, Path, description = "The ID of an agent that you own.")), body = AgentView,
    returns = "The updated agent.", etag = "agent", errors(NotFound, RecentSignInRequired)
)]
pub(crate) async fn update_agent(
    people: PeopleState,
    token: SessionToken,
    if_match: IfMatch,
    Path(agent): Path<String>,
    body: Body<AgentUpdate>,
) -> Reply {
    let update = body.parse();
    let stops = update.as_ref().is_ok_and(AgentUpdate::stops_payments);
    let owned = people.authenticate_for_agent(token, &agent, stops).await?;
    let (update, if_match) = combine_results_and_errors(update, if_match.into_precondition())?;
    let owned = people.update_agent(owned, if_match, &update).await?;
    Ok(people.agent_response(owned.agent()).await?)
}
