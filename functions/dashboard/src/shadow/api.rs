//! JSON API for shadow policies, which are evaluated on an agent's decisions without effect.

use crate::agents::owned::OwnedAgent;
use crate::backtests::api::{CandidatePolicies, CandidateRules, parse_tested_limits};
use crate::history::api::{ChangeView, change_views};
use crate::preview::api::{ComparisonView, PreviewView, RequestedUpdate, TestedView};
use crate::request::combine_results;
use crate::shadow::operations::{EvaluatedShadow, PromotionResult};
use crate::state::People;
use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use purser_api::{Body, BodyPath, Failure, IfMatch, Member as _, Parameters, ValidationErrors, errors, with_etag};
use purser_domain::{Catalog, ErrorKind, Result, TestedLimits};
use serde::Serialize;
use serde_json::Value;
use std::sync::Arc;
use utoipa::ToSchema;

purser_api::body! {
    /// A shadow policy's limits: rules, policies, or both. An absent field keeps the agent's current limits.
    pub(crate) struct ShadowBody {
        /// The rules that replace the agent's rules.
        rules: Option<CandidateRules>,
        /// Updates to the agent's policies, at most one per service.
        policies: Option<CandidatePolicies>,
    }
}

/// An unknown service is `service_not_found`, not a validation error.
pub(crate) fn parse_shadow_limits(body: &Value, catalog: &Catalog) -> Result<TestedLimits> {
    let mut errors = ValidationErrors::default();
    let read = ShadowBody::read(body, BodyPath::Body, &mut errors);
    let read = read.map(|read| parse_tested_limits(read.rules, read.policies, catalog, &mut errors));
    let terms = errors.finish(read)?;
    terms.ok_or_else(|| ErrorKind::ServiceNotFound.into())
}

/// A shadow policy: limits that are evaluated on an agent's decisions without effect. A shadow policy ends after 31
/// days.
#[derive(Serialize, ToSchema)]
#[schema(as = Shadow)]
pub(crate) struct ShadowView {
    #[schema(value_type = uuid::Uuid)]
    agent_id: String,
    /// The version to send in `If-Match` when you apply the shadow policy. It changes if the shadow policy, or a limit
    /// that the shadow policy would replace, changes.
    version: u64,
    #[schema(format = DateTime)]
    attached_at: String,
    /// The time up to which decisions were evaluated.
    #[schema(format = DateTime)]
    until: String,
    /// Whether the agent, or a policy that the shadow policy would replace, was updated after the shadow policy was
    /// attached.
    edited: bool,
    /// The changes that applying the shadow policy would make.
    changes: Vec<ChangeView>,
    #[serde(flatten)]
    comparison: ComparisonView,
    /// The number of tested decisions that have the same result under the shadow policy. The number assumes that nobody
    /// approves payments for which only the shadow policy requires approval.
    agreed: u64,
    #[serde(flatten)]
    tested: TestedView,
}

impl ShadowView {
    fn new(evaluated_shadow: EvaluatedShadow) -> Self {
        let EvaluatedShadow { shadow, result, .. } = evaluated_shadow;
        Self {
            agent_id: shadow.agent.to_string(),
            version: evaluated_shadow.version,
            attached_at: shadow.attached_at.to_string(),
            until: evaluated_shadow.until.to_string(),
            edited: evaluated_shadow.is_edited,
            changes: change_views(&evaluated_shadow.changes),
            comparison: evaluated_shadow.comparison.into(),
            agreed: result.decisions.saturating_sub(result.if_declined.count_changed()),
            tested: TestedView::new(result, evaluated_shadow.from, evaluated_shadow.is_partial),
        }
    }
}

/// The attached shadow policy. If the request has `preview=true`: a preview of what an update to the limits in the
/// request would change.
#[derive(ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "it describes the answers, which are made as one or the other")]
pub(crate) enum ShadowOrPreview {
    Attached(ShadowView),
    Preview(PreviewView),
}

fn shadow_response(shadow: EvaluatedShadow) -> Response {
    with_etag(shadow.version, Json(ShadowView::new(shadow)))
}

/// The result of applying a shadow policy: which of the agent's limits were updated.
#[derive(Serialize, ToSchema)]
#[schema(as = PromotedShadow)]
pub(crate) struct PromotedView {
    #[schema(value_type = uuid::Uuid)]
    agent_id: String,
    /// The agent's new version.
    version: u64,
    /// True if the shadow policy's rules replaced the agent's rules. False if the rules were the same.
    rules_edited: bool,
    /// The ids of the services whose policies the shadow policy replaced.
    #[schema(value_type = Vec<uuid::Uuid>)]
    services_edited: Vec<String>,
}

impl From<PromotionResult> for PromotedView {
    fn from(result: PromotionResult) -> Self {
        Self {
            agent_id: result.owned.agent().id.to_string(),
            version: result.owned.agent().version,
            rules_edited: result.has_rules,
            services_edited: result.services.iter().map(ToString::to_string).collect(),
        }
    }
}

/// The agent whose shadow policy was removed.
#[derive(Serialize, ToSchema)]
#[schema(as = RemovedShadow)]
pub(crate) struct RemovedView {
    #[schema(value_type = uuid::Uuid)]
    agent_id: String,
}

/// Read an agent's shadow policy, and how it would have decided the agent's requests since it was attached.
///
/// The decisions are evaluated during the request: at most the newest 20,000.
#[utoipa::path(
    get, path = "/agents/{agentId}/shadow", operation_id = "read_shadow",
    responses(
        (status = 200, body = ShadowView, description = "The shadow policy.", headers(("ETag" = String, description = "The shadow policy's version. Send it in `If-Match` with the next update."))),
    )
)]
pub(crate) async fn read_shadow(State(people): State<Arc<People>>, owned: OwnedAgent) -> Result<Response, Failure> {
    Ok(shadow_response(people.evaluate_shadow(&owned).await?))
}

/// Attach a shadow policy to an agent. The shadow policy is evaluated on all later requests, and has no effect on them.
///
/// The new shadow policy replaces the agent's current shadow policy. An ownership transfer removes the shadow policy. A
/// preview attaches nothing, and describes what an update to these limits would change.
#[utoipa::path(
    put, path = "/agents/{agentId}/shadow", operation_id = "attach_shadow",
    responses(
        (status = 200, body = ShadowOrPreview, description = "The attached shadow policy, or with `preview=true` what an update to the limits in the request would change.", headers(("ETag" = String, description = "The shadow policy's version. Send it in `If-Match` with the next update."))),
        errors::ServiceNotFound,
    )
)]
pub(crate) async fn attach_shadow(
    State(people): State<Arc<People>>,
    owned: OwnedAgent,
    query: Parameters<RequestedUpdate>,
    body: Body<ShadowBody>,
) -> Result<Response, Failure> {
    let edition = people.current_catalog().await?;
    let terms = body
        .json()
        .and_then(|body| parse_shadow_limits(&body, &edition.catalog));
    let (terms, query) = combine_results(terms, query.0)?;
    if let Some(days) = query.preview() {
        let preview = people.preview_limits(&owned, &terms, days).await?;
        return Ok(PreviewView::new(preview).into_response());
    }
    let owned = owned.with_reason(query.edit_reason);
    people.attach_shadow(&owned, terms).await?;
    Ok(shadow_response(people.evaluate_shadow(&owned).await?))
}

/// Remove an agent's shadow policy.
#[utoipa::path(
    delete, path = "/agents/{agentId}/shadow", operation_id = "remove_shadow",
    responses((status = 200, body = RemovedView, description = "The shadow policy was removed."))
)]
pub(crate) async fn remove_shadow(
    State(people): State<Arc<People>>,
    owned: OwnedAgent,
) -> Result<Json<RemovedView>, Failure> {
    people.remove_shadow(&owned).await?;
    let agent_id = owned.agent().id.to_string();
    Ok(Json(RemovedView { agent_id }))
}

/// Apply a shadow policy's limits to the agent, and remove the shadow policy.
///
/// The agent's rules and policies are updated one after another. If an update is rejected, the shadow policy stays
/// attached. Repeat the call to continue with the remaining updates.
#[utoipa::path(
    post, path = "/agents/{agentId}/shadow/promote", operation_id = "promote_shadow",
    responses(
        (status = 200, body = PromotedView, description = "The limits were applied.", headers(("ETag" = String, description = "The agent's version, for `If-Match`."))),
        errors::RecentSignInRequired, errors::ServiceNotFound,
    )
)]
pub(crate) async fn promote_shadow(
    State(people): State<Arc<People>>,
    owned: OwnedAgent,
    if_match: IfMatch,
) -> Result<Response, Failure> {
    let promoted = people.promote_shadow(owned, if_match.into_precondition()?).await?;
    Ok(with_etag(
        promoted.owned.agent().version,
        Json(PromotedView::from(promoted)),
    ))
}
