//! JSON API with which an agent opens and closes runs.

use crate::keys::api::{Reference, RevokedKeyView, revoked_key_response};
use crate::request::created_response;
use crate::runs::operations::{PayingAgent, RequestedRun};
use crate::state::{People, PeopleState};
use axum::Json;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use purser_api::{
    AgentCredentials, Argument, Body, BodyPath, Failure, Id, Member as _, OperationDescription, PathId as _, Price,
    Reply, ValidationErrors, endpoint, path_parameter, request_source, view,
};
use purser_domain::{AgentId, Catalog, KeyId, RequestedScope, RuleId, ServiceId, Timestamp};
use serde_json::Value;
use std::sync::Arc;

/// The error is `not_found` if the path names another agent.
impl FromRequestParts<Arc<People>> for PayingAgent {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, people: &Arc<People>) -> Result<Self, Failure> {
        let Ok(credentials) = AgentCredentials::from_request_parts(parts, people).await;
        let agent = path_parameter(parts, AgentId::PARAMETER).await.unwrap_or_default();
        let source = request_source(parts);
        Ok(people.authenticate_paying_agent(credentials, source, &agent).await?)
    }
}

impl Argument for PayingAgent {
    fn describe(operation: &mut OperationDescription) {
        AgentCredentials::describe(operation);
        operation.add_path_parameter(AgentId::PARAMETER, "The ID of the agent that makes the call.", true);
    }
}

purser_api::body! {
    /// The budget and the scope of a run's key. All other limits are those of your key.
    pub(crate) struct NewRunBody {
        /// The maximum amount of all payments with the run's key, in micro-units.
        limit_units: Price,
        /// The time at which the run ends: in the future, at most 7 days from now, and not after the end of your key.
        expires_at: Timestamp,
        /// The slugs or UUIDs of the services that the run's key may pay and list, all among those of your key. By
        /// default, all services of your key.
        services: Option<Vec<Reference>> = {"minItems": 1, "maxItems": 20, "uniqueItems": true},
    }
}

/// The run that was opened, with the secret of its key. No other response contains the secret.
#[view(NewRun)]
pub(crate) struct NewRunView {
    agent_id: AgentId,
    /// The whole key for the sub-agent, including its secret. Purser does not store it, and no other response contains
    /// it.
    #[schema(example = "gak_pub_<id>:gak_sec_<secret>")]
    key: String,
    /// The ID of the run's key, with which you close the run.
    #[schema(example = "00c0ffee00c0ffee")]
    key_id: String,
    /// The ID of the run's budget, a rule of the agent.
    rule_id: RuleId,
    /// The maximum amount of all payments with the run's key, in micro-units.
    limit_units: u64,
    /// The UUIDs of the services that the run's key may pay. Null for all services.
    services: Option<Vec<ServiceId>>,
    /// The time at which the run ends.
    expires_at: Option<Timestamp>,
}

fn parse_run(body: &Value, catalog: &Catalog, now: Timestamp) -> purser_domain::Result<RequestedRun> {
    let mut errors = ValidationErrors::default();
    let run = NewRunBody::read(body, BodyPath::Body, &mut errors).and_then(|body| {
        let names = |services: Vec<Reference>| services.into_iter().map(|service| service.0).collect();
        let scope = RequestedScope {
            services: body.services.map(names),
            expires_at: Some(body.expires_at),
            ..RequestedScope::default()
        };
        let scope = scope
            .validate(catalog, now)
            .map_err(|found| errors.extend(found))
            .ok()?;
        let limit = body.limit_units.0;
        Some(RequestedRun { limit, scope })
    });
    errors.finish(run)
}

/// Open a run: a key with a budget, for a sub-agent's task.
///
/// Payments with the run's key also count against all other limits of the agent. `GET
/// /agents/{agentId}/services/{serviceId}/policy` shows your key the rest of the budget. The run ends at `expires_at`,
/// when you close it, and when your key ends. An agent has at most 5 open runs. A run's key, a grant and a key that a
/// budget or count limit names can't open runs.
#[endpoint(
    post "/agents/{agentId}/runs", tag = "payments", status = 201, body = NewRunView, returns = "The run.",
    errors(PolicyBlocked),
    links(("close" = (operation_id = "close_run", parameters(("agentId" = "$response.body#/agent_id"), ("keyId" = "$response.body#/key_id")))))
)]
pub(crate) async fn open_run(people: PeopleState, caller: PayingAgent, body: Body<NewRunBody>) -> Reply {
    let edition = people.current_catalog().await?;
    let run = body
        .json()
        .and_then(|body| parse_run(&body, &edition.catalog, people.now()))?;
    let (issued, rule) = people.open_run(caller, &run).await?;
    let view = NewRunView {
        agent_id: issued.agent.agent().id,
        key: issued.text,
        key_id: issued.key.id.to_string(),
        rule_id: rule,
        limit_units: run.limit.units(),
        services: issued.key.scope.services,
        expires_at: issued.key.scope.expires_at,
    };
    Ok(created_response(Json(view)))
}

/// Close a run that your key opened. The run's key is rejected at once.
#[endpoint(
    delete "/agents/{agentId}/runs/{keyId}", tag = "payments", body = RevokedKeyView, returns = "The ended key of the run."
)]
pub(crate) async fn close_run(people: PeopleState, caller: PayingAgent, Id(run): Id<KeyId>) -> Reply {
    let (owned, key) = people.close_run(caller, run).await?;
    Ok(revoked_key_response(owned.agent(), &key, people.now()))
}
