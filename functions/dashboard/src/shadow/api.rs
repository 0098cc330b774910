//! JSON API for shadow policies, which are evaluated on an agent's decisions without effect.

use crate::agents::owned::OwnedAgent;
use crate::backtests::api::{CandidatePolicies, CandidateRules, parse_tested_limits};
use crate::history::api::{ChangeView, change_views};
use crate::preview::api::{ComparisonView, PreviewView, RequestedUpdate, TestedView};
use crate::request::combine_results_and_errors;
use crate::shadow::operations::{EvaluatedShadow, PromotionResult};
use crate::state::PeopleState;
use axum::Json;
use axum::response::{IntoResponse as _, Response};
use purser_api::{
    Body, BodyPath, IfMatch, Member as _, Parameters, Reply, ValidationErrors, endpoint, view, with_etag,
};
use purser_domain::{AgentId, Catalog, Error, ErrorKind, Result, ServiceId, TestedLimits, Timestamp};
use serde_json::Value;
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

purser_api::views! {
    /// A shadow policy: limits that are evaluated on an agent's decisions without effect. A shadow policy ends after 31
    /// days.
    pub(crate) struct ShadowView {
        fn new(evaluated_shadow: EvaluatedShadow);
        let EvaluatedShadow { shadow, result, .. } = evaluated_shadow;

        agent_id: AgentId = shadow.agent,
        /// The version to send in `If-Match` when you apply the shadow policy. It changes if the shadow policy, or a
        /// limit that the shadow policy would replace, changes.
        version: u64 = evaluated_shadow.version,
        attached_at: Timestamp = shadow.attached_at,
        /// The time up to which decisions were evaluated.
        until: Timestamp = evaluated_shadow.until,
        /// Whether the agent, or a policy that the shadow policy would replace, was updated after the shadow policy was
        /// attached.
        edited: bool = evaluated_shadow.is_edited,
        /// The changes that applying the shadow policy would make.
        changes: Vec<ChangeView> = change_views(&evaluated_shadow.changes),
        #[serde(flatten)]
        comparison: ComparisonView = evaluated_shadow.comparison.into(),
        /// The number of tested decisions that have the same result under the shadow policy. The number assumes that
        /// nobody approves payments for which only the shadow policy requires approval.
        agreed: u64 = result.decisions.saturating_sub(result.if_declined.count_changed()),
        #[serde(flatten)]
        tested: TestedView = TestedView::new(result, evaluated_shadow.from, evaluated_shadow.is_partial),
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

fn evaluated_shadow_response(shadow: EvaluatedShadow) -> Response {
    with_etag(shadow.version, Json(ShadowView::new(shadow)))
}

purser_api::views! {
    /// The result of applying a shadow policy: which of the agent's limits were updated.
    pub(crate) struct PromotedView as PromotedShadow {
        fn from(result: PromotionResult);

        agent_id: AgentId = result.owned.agent().id,
        /// The agent's new version.
        version: u64 = result.owned.agent().version,
        /// True if the shadow policy's rules replaced the agent's rules. False if the rules were the same.
        rules_edited: bool = result.has_rules,
        /// The ids of the services whose policies the shadow policy replaced.
        services_edited: Vec<ServiceId> = result.services,
    }
}

/// The agent whose shadow policy was removed.
#[view(RemovedShadow)]
pub(crate) struct RemovedView {
    agent_id: AgentId,
}

/// Read an agent's shadow policy, and how it would have decided the agent's requests since it was attached.
///
/// The decisions are evaluated during the request: at most the newest 20,000.
#[endpoint(get "/agents/{agentId}/shadow", body = ShadowView, returns = "The shadow policy.", etag = "shadow policy")]
pub(crate) async fn read_shadow(people: PeopleState, owned: OwnedAgent) -> Reply {
    Ok(evaluated_shadow_response(people.evaluate_shadow_policy(&owned).await?))
}

/// Attach a shadow policy to an agent. The shadow policy is evaluated on all later requests, and has no effect on them.
///
/// The new shadow policy replaces the agent's current shadow policy. An ownership transfer removes the shadow policy. A
/// preview attaches nothing, and describes what an update to these limits would change.
#[endpoint(
    put "/agents/{agentId}/shadow", body = ShadowOrPreview,
    returns = "The attached shadow policy, or with `preview=true` what an update to the limits in the request would change.",
    etag = "shadow policy", errors(ServiceNotFound)
)]
pub(crate) async fn attach_shadow(
    people: PeopleState,
    owned: OwnedAgent,
    query: Parameters<RequestedUpdate>,
    body: Body<ShadowBody>,
) -> Reply {
    let edition = people.current_catalog().await?;
    let terms = body
        .json()
        .and_then(|body| parse_shadow_limits(&body, &edition.catalog));
    let (terms, query) = combine_results_and_errors(terms, query.0)?;
    let errors = terms.key_errors(owned.agent());
    if !errors.is_empty() {
        return Err(Error::invalid(errors).into());
    }
    if let Some(days) = query.preview_days() {
        let preview = people.preview_tested_limits(&owned, &terms, days).await?;
        return Ok(PreviewView::new(preview).into_response());
    }
    let owned = owned.with_reason(query.edit_reason);
    people.attach_shadow(&owned, terms).await?;
    Ok(evaluated_shadow_response(people.evaluate_shadow_policy(&owned).await?))
}

/// Remove an agent's shadow policy.
#[endpoint(delete "/agents/{agentId}/shadow", returns = "The shadow policy was removed.")]
pub(crate) async fn remove_shadow(people: PeopleState, owned: OwnedAgent) -> Reply<Json<RemovedView>> {
    people.remove_shadow(&owned).await?;
    let agent_id = owned.agent().id;
    Ok(Json(RemovedView { agent_id }))
}

/// Apply a shadow policy's limits to the agent, and remove the shadow policy.
///
/// The agent's rules and policies are updated one after another. If an update is rejected, the shadow policy stays
/// attached. Repeat the call to continue with the remaining updates.
#[endpoint(
    post "/agents/{agentId}/shadow/promote", body = PromotedView, returns = "The limits were applied.",
    headers(("ETag" = String, description = "The agent's version, for `If-Match`.")),
    errors(RecentSignInRequired, ServiceNotFound)
)]
pub(crate) async fn promote_shadow(people: PeopleState, owned: OwnedAgent, if_match: IfMatch) -> Reply {
    let promoted = people.promote_shadow(owned, if_match.into_precondition()?).await?;
    Ok(with_etag(
        promoted.owned.agent().version,
        Json(PromotedView::from(promoted)),
    ))
}
