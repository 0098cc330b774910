//! `/agents/{agentId}/shadow`: limits that judge an agent's decisions without effect.

use crate::backtests::api::{CandidatePolicies, CandidateRules, terms_of};
use crate::history::api::{ChangeView, changes_of};
use crate::preview::api::{ComparisonView, TestedView};
use crate::shadow::operations::{JudgedShadow, PromotionResult};
use crate::state::People;
use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::response::Response;
use purser_api::{Failure, IfMatch, Member as _, Place, Problems, SessionToken, VersionTag, json_body, with_etag};
use purser_domain::{BacktestTerms, Catalog, ErrorKind, Result};
use serde::Serialize;
use serde_json::Value;
use std::sync::Arc;
use utoipa::ToSchema;

purser_api::error_responses! {
    /// The errors of reading or removing a shadow.
    pub(crate) ReadErrors: 401, 403, 404, 429, 500;
    /// The errors of attaching a shadow.
    pub(crate) AttachErrors: 400, 401, 403, 404, 413, 429, 500;
    /// The errors of promoting a shadow.
    pub(crate) PromoteErrors: 400, 401, 403, 404, 412, 428, 429, 500;
}

purser_api::body! {
    /// The limits of a shadow: rules, policies, or both. What is absent stays as it is in force.
    pub(crate) struct ShadowBody {
        /// All rules of the agent.
        rules: Option<CandidateRules>,
        /// Edits of the agent's policies, at most one for each service.
        policies: Option<CandidatePolicies>,
    }
}

/// Parses the body of a shadow. An unknown service is not a problem of the body, but `service_not_found`.
pub(crate) fn parse(body: &Value, catalog: &Catalog) -> Result<BacktestTerms> {
    let mut problems = Problems::default();
    let read = ShadowBody::read(body, Place::Body, &mut problems);
    let read = read.map(|read| terms_of(read.rules, read.policies, catalog, &mut problems));
    let terms = problems.finish(read)?;
    terms.ok_or_else(|| ErrorKind::ServiceNotFound.into())
}

/// Limits that judge an agent's decisions without effect. They end after 31 days.
#[derive(Serialize, ToSchema)]
#[schema(as = Shadow)]
pub(crate) struct ShadowView {
    #[schema(value_type = uuid::Uuid)]
    agent_id: String,
    /// The version of the shadow together with what it would replace: a promotion names it.
    version: u64,
    #[schema(format = DateTime)]
    attached_at: String,
    /// The time until which decisions were read.
    #[schema(format = DateTime)]
    until: String,
    /// Whether the agent, or a policy that the shadow names, was edited since it was attached.
    edited: bool,
    /// What a promotion would change.
    changes: Vec<ChangeView>,
    #[serde(flatten)]
    comparison: ComparisonView,
    /// The number of decisions with the same result, if nobody approves what only the shadow asks for.
    agreed: u64,
    #[serde(flatten)]
    tested: TestedView,
}

impl ShadowView {
    fn new(judged: JudgedShadow) -> Self {
        let JudgedShadow { shadow, result, .. } = judged;
        Self {
            agent_id: shadow.agent.to_string(),
            version: judged.version,
            attached_at: shadow.attached_at.to_string(),
            until: judged.until.to_string(),
            edited: judged.is_edited,
            changes: changes_of(&judged.changes),
            comparison: judged.comparison.into(),
            agreed: result.decisions.saturating_sub(result.if_declined.count_flipped()),
            tested: TestedView::new(result, shadow.attached_at, judged.is_partial),
        }
    }
}

fn shadow_response(judged: JudgedShadow) -> Response {
    with_etag(judged.version, Json(ShadowView::new(judged)))
}

/// What a promotion edited.
#[derive(Serialize, ToSchema)]
#[schema(as = PromotedShadow)]
pub(crate) struct PromotedView {
    #[schema(value_type = uuid::Uuid)]
    agent_id: String,
    /// The agent's version.
    version: u64,
    /// Whether its rules were edited.
    rules_edited: bool,
    /// The services whose policies were edited.
    #[schema(value_type = Vec<uuid::Uuid>)]
    services_edited: Vec<String>,
}

impl From<PromotionResult> for PromotedView {
    fn from(promoted: PromotionResult) -> Self {
        Self {
            agent_id: promoted.owned.agent().id.to_string(),
            version: promoted.owned.agent().version,
            rules_edited: promoted.has_rules,
            services_edited: promoted.services.iter().map(ToString::to_string).collect(),
        }
    }
}

/// A removed shadow.
#[derive(Serialize, ToSchema)]
#[schema(as = RemovedShadow)]
pub(crate) struct RemovedView {
    #[schema(value_type = uuid::Uuid)]
    agent_id: String,
}

/// Read the shadow of an agent: what would its limits have decided since it was attached?
///
/// The decisions are read now: the first 20,000.
#[utoipa::path(
    get,
    path = "/agents/{agentId}/shadow",
    operation_id = "read_shadow",
    tag = "dashboard",
    security(("session" = [])),
    params(("agentId" = String, Path, description = "An agent that you own.")),
    responses(
        (status = 200, body = ShadowView, description = "The shadow.", headers(("ETag" = String, description = "Its version."))),
        ReadErrors,
    )
)]
pub(crate) async fn read(
    State(people): State<Arc<People>>,
    token: SessionToken,
    Path(agent): Path<String>,
) -> Result<Response, Failure> {
    let owned = people.authenticate_for(token, &agent).await?;
    Ok(shadow_response(people.judge_shadow(&owned).await?))
}

/// Attach a shadow to an agent: limits that judge its decisions from now on, without effect.
///
/// It replaces the agent's present shadow. A handover removes it.
#[utoipa::path(
    put,
    path = "/agents/{agentId}/shadow",
    operation_id = "attach_shadow",
    tag = "dashboard",
    security(("session" = [])),
    params(("agentId" = String, Path, description = "An agent that you own.")),
    request_body = ShadowBody,
    responses(
        (status = 200, body = ShadowView, description = "The shadow.", headers(("ETag" = String, description = "Its version."))),
        AttachErrors,
    )
)]
pub(crate) async fn attach(
    State(people): State<Arc<People>>,
    token: SessionToken,
    Path(agent): Path<String>,
    body: Bytes,
) -> Result<Response, Failure> {
    let owned = people.authenticate_for(token, &agent).await?;
    let edition = people.catalog().await?;
    let terms = json_body(&body).and_then(|body| parse(&body, &edition.catalog))?;
    people.attach_shadow(&owned, terms).await?;
    Ok(shadow_response(people.judge_shadow(&owned).await?))
}

/// Remove the shadow of an agent.
#[utoipa::path(
    delete,
    path = "/agents/{agentId}/shadow",
    operation_id = "remove_shadow",
    tag = "dashboard",
    security(("session" = [])),
    params(("agentId" = String, Path, description = "An agent that you own.")),
    responses((status = 200, body = RemovedView, description = "The shadow is removed."), ReadErrors)
)]
pub(crate) async fn remove(
    State(people): State<Arc<People>>,
    token: SessionToken,
    Path(agent): Path<String>,
) -> Result<Json<RemovedView>, Failure> {
    let owned = people.authenticate_for(token, &agent).await?;
    people.remove_shadow(&owned).await?;
    let agent_id = owned.agent().id.to_string();
    Ok(Json(RemovedView { agent_id }))
}

/// Put the limits of a shadow in force, and remove the shadow.
///
/// These are edits of the rules and of each policy. If one of them is refused, the shadow remains, and a repeated call
/// continues with it.
#[utoipa::path(
    post,
    path = "/agents/{agentId}/shadow/promote",
    operation_id = "promote_shadow",
    tag = "dashboard",
    security(("session" = [])),
    params(
        ("agentId" = String, Path, description = "An agent that you own."),
        ("If-Match" = inline(VersionTag), Header, description = "The shadow's current version in quotation marks, or `*`."),
    ),
    responses(
        (status = 200, body = PromotedView, description = "The limits are in force.", headers(("ETag" = String, description = "The agent's version."))),
        PromoteErrors,
    )
)]
pub(crate) async fn promote(
    State(people): State<Arc<People>>,
    token: SessionToken,
    if_match: IfMatch,
    Path(agent): Path<String>,
) -> Result<Response, Failure> {
    let owned = people.authenticate_for(token, &agent).await?;
    let promoted = people.promote_shadow(owned, if_match.precondition()?).await?;
    Ok(with_etag(
        promoted.owned.agent().version,
        Json(PromotedView::from(promoted)),
    ))
}
