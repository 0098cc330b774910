//! `…/versions`: the versions of an agent's policies and rules.

use crate::agents::owned::parse_id;
use crate::cursor;
use crate::history::operations::{ChangedVersion, rules_of};
use crate::preview::api::parse_reason_query;
use crate::request::{slice, with_version};
use crate::services::api::service_response;
use crate::services::operations::find_service;
use crate::state::People;
use axum::Json;
use axum::extract::{Path, State};
use axum::http::Uri;
use axum::response::Response;
use purser_api::{Failure, IfMatch, PolicyView, Query, SessionToken, VersionTag, with_etag};
use purser_domain::{Agent, AuditChanges, EnabledService, RuleId, Timestamp};
use serde::Serialize;
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use std::sync::Arc;
use utoipa::ToSchema;

purser_api::error_responses! {
    /// The errors of listing versions.
    pub(crate) ListErrors: 400, 401, 403, 404, 429, 500;
    /// The errors of restoring a version.
    pub(crate) RestoreErrors: 400, 401, 403, 404, 412, 428, 429, 500;
}

/// A member that a version changed.
#[derive(Serialize, ToSchema)]
#[schema(as = LimitChange)]
pub(crate) struct ChangeView {
    /// The name of the member; of a rule, `rules/` and its id.
    #[schema(example = "max_per_day_units")]
    member: String,
    /// The value before; null if there was none.
    #[schema(required)]
    before: Option<Value>,
    /// The value since; null if there is none.
    #[schema(required)]
    after: Option<Value>,
}

pub(crate) fn changes_of(changes: &AuditChanges) -> Vec<ChangeView> {
    let AuditChanges { before, after } = changes;
    let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let view = |name: &String| ChangeView {
        member: name.clone(),
        before: before.get(name).cloned(),
        after: after.get(name).cloned(),
    };
    names.into_iter().map(view).collect()
}

/// A version of a policy.
#[derive(Serialize, ToSchema)]
#[schema(as = PolicyVersion)]
pub(crate) struct PolicyVersionView {
    version: u64,
    /// The time of the edit; null if it is not known yet.
    #[schema(format = DateTime, required)]
    changed_at: Option<String>,
    /// The person who made the edit; null if it is not known yet, for an edit that no person made, and for edits before
    /// this was recorded.
    #[schema(required)]
    edited_by: Option<String>,
    /// The edit's entry in the audit log; null as above.
    #[schema(value_type = Option<uuid::Uuid>, required)]
    audit_id: Option<String>,
    /// The person's reason; null if they gave none.
    #[schema(required)]
    edit_reason: Option<String>,
    /// Whether the service was enabled.
    enabled: bool,
    policy: PolicyView,
    /// The differences from the version before, or from `compared_with`.
    changes: Vec<ChangeView>,
    /// Whether it may allow what the other version refuses or asks for; false for the first version.
    widens: bool,
    /// Whether it may refuse or ask for what the other version allows; false for the first version.
    narrows: bool,
}

impl PolicyVersionView {
    fn new(changed: &ChangedVersion<EnabledService>, owner: &str, now: Timestamp) -> Self {
        let (record, mark) = (&changed.version.record, &changed.version.mark);
        Self {
            version: changed.version.version,
            changed_at: changed.version.at.map(|at: Timestamp| at.to_string()),
            edited_by: mark.by.as_ref().map(ToString::to_string),
            audit_id: mark.audit_id.map(|id| id.to_string()),
            edit_reason: mark.reason.as_ref().map(|reason| reason.as_str().to_owned()),
            enabled: record.enabled,
            policy: PolicyView::at(&record.policy, owner, now),
            changes: changes_of(&changed.changes),
            widens: changed.direction.widens,
            narrows: changed.direction.narrows,
        }
    }
}

/// The versions of a policy, newest first.
#[derive(Serialize, ToSchema)]
#[schema(as = PolicyVersionList)]
pub(crate) struct PolicyVersionList {
    versions: Vec<PolicyVersionView>,
    /// The number of versions in this answer.
    count: usize,
    /// Send it as `cursor` to read the next page; null at the end.
    #[schema(required)]
    next_cursor: Option<String>,
}

/// A version of an agent's record, with its rules.
#[derive(Serialize, ToSchema)]
#[schema(as = AgentVersion)]
pub(crate) struct RulesVersionView {
    version: u64,
    /// The time of the edit; null if it is not known yet.
    #[schema(format = DateTime, required)]
    changed_at: Option<String>,
    /// The person who made the edit; null if it is not known yet, for an edit that no person made, and for edits before
    /// this was recorded.
    #[schema(required)]
    edited_by: Option<String>,
    /// The edit's entry in the audit log; null as above.
    #[schema(value_type = Option<uuid::Uuid>, required)]
    audit_id: Option<String>,
    /// The person's reason; null if they gave none.
    #[schema(required)]
    edit_reason: Option<String>,
    /// Each rule's terms, by `rules/` and its id.
    rules: Map<String, Value>,
    /// The differences of the rules from the version before, or from `compared_with`; empty if something else was edited.
    changes: Vec<ChangeView>,
    /// Whether it may allow what the other version refuses or asks for; false for the first version.
    widens: bool,
    /// Whether it may refuse or ask for what the other version allows; false for the first version.
    narrows: bool,
}

impl RulesVersionView {
    fn new(changed: &ChangedVersion<Agent>) -> Self {
        let (record, mark) = (&changed.version.record, &changed.version.mark);
        Self {
            version: changed.version.version,
            changed_at: changed.version.at.map(|at: Timestamp| at.to_string()),
            edited_by: mark.by.as_ref().map(ToString::to_string),
            audit_id: mark.audit_id.map(|id| id.to_string()),
            edit_reason: mark.reason.as_ref().map(|reason| reason.as_str().to_owned()),
            rules: rules_of(record).into_iter().collect(),
            changes: changes_of(&changed.changes),
            widens: changed.direction.widens,
            narrows: changed.direction.narrows,
        }
    }
}

/// The versions of an agent's record, newest first.
#[derive(Serialize, ToSchema)]
#[schema(as = AgentVersionList)]
pub(crate) struct RulesVersionList {
    versions: Vec<RulesVersionView>,
    /// The number of versions in this answer.
    count: usize,
    /// Send it as `cursor` to read the next page; null at the end.
    #[schema(required)]
    next_cursor: Option<String>,
}

/// A restored rule.
#[derive(Serialize, ToSchema)]
#[schema(as = RestoredRule)]
pub(crate) struct RestoredView {
    /// The rule's id: a new one if the rule had been removed.
    #[schema(value_type = uuid::Uuid)]
    rule_id: String,
    /// The agent's version.
    version: u64,
}

/// List the versions of an agent's policy for a service.
///
/// A new version is listed about a second after the edit. Versions from the time of another owner are not listed.
#[utoipa::path(
    get,
    path = "/agents/{agentId}/services/{serviceId}/versions",
    operation_id = "list_policy_versions",
    tag = "dashboard",
    security(("session" = [])),
    params(
        ("agentId" = String, Path, description = "An agent that you own."),
        ("serviceId" = String, Path, description = "Slug or UUID."),
        ("limit" = Option<u32>, Query, minimum = 1, maximum = 100, description = "Default 25."),
        ("cursor" = Option<String>, Query, pattern = "^[1-9][0-9]{0,18}$", description = "The `next_cursor` of an earlier answer."),
        ("compared_with" = Option<String>, Query, pattern = "^[1-9][0-9]{0,18}$", description = "The version from which the differences are told; without it, the one before each."),
    ),
    responses((status = 200, body = PolicyVersionList, description = "Newest first."), ListErrors)
)]
pub(crate) async fn policy_versions(
    State(people): State<Arc<People>>,
    token: SessionToken,
    Path((agent, reference)): Path<(String, String)>,
    uri: Uri,
) -> Result<Json<PolicyVersionList>, Failure> {
    let owned = people.authenticate_for(token, &agent).await?;
    let edition = people.catalog().await?;
    let id = people
        .find_known_service(&owned, find_service(&edition.catalog, &reference)?)
        .await?;
    let mut query = Query::from_uri(&uri);
    let slice = slice(&mut query, cursor::read_version);
    let other = query.read("compared_with", cursor::read_version, "must be a version");
    query.finish()?;
    let history = people.policy_history(&owned, id, slice, other).await?;
    let (person, now) = (&owned.agent().owner, people.now());
    let versions = history
        .items
        .iter()
        .map(|changed| PolicyVersionView::new(changed, person, now));
    let versions: Vec<_> = versions.collect();
    Ok(Json(PolicyVersionList {
        count: versions.len(),
        versions,
        next_cursor: history.next.map(|version| version.to_string()),
    }))
}

/// Restore a version of an agent's policy for a service.
///
/// This is an edit that makes a new version.
#[utoipa::path(
    post,
    path = "/agents/{agentId}/services/{serviceId}/versions/{version}/restore",
    operation_id = "restore_policy_version",
    tag = "dashboard",
    security(("session" = [])),
    params(
        ("agentId" = String, Path, description = "An agent that you own."),
        ("serviceId" = String, Path, description = "Slug or UUID."),
        ("version" = String, Path, description = "The version to restore."),
        ("If-Match" = inline(VersionTag), Header, description = "The record's current version in quotation marks, or `*`."),
        ("edit_reason" = Option<String>, Query, max_length = 200, pattern = "^[^\\x00-\\x1f\\x7f-\\x9f]*$", description = "Why you make the edit. It is kept in the version and the audit log."),
    ),
    responses(
        (status = 200, body = crate::services::api::ServiceView, description = "The updated record.", headers(("ETag" = String, description = "Its version."))),
        RestoreErrors,
    )
)]
pub(crate) async fn restore_policy(
    State(people): State<Arc<People>>,
    token: SessionToken,
    if_match: IfMatch,
    uri: Uri,
    Path((agent, reference, version)): Path<(String, String, String)>,
) -> Result<Response, Failure> {
    let owned = people.authenticate_for(token, &agent).await?;
    let edition = people.catalog().await?;
    let id = people
        .find_known_service(&owned, find_service(&edition.catalog, &reference)?)
        .await?;
    let version = parse_id(cursor::read_version(&version))?;
    let (reason, if_match) = with_version(parse_reason_query(&uri), if_match.precondition())?;
    let owned = owned.because(reason);
    let service = people.restore_policy(&owned, if_match, id, version).await?;
    Ok(service_response(&people, &owned, &service, &edition.catalog))
}

/// List the versions of an agent's record, with its rules.
///
/// A new version is listed about a second after the edit. Versions from the time of another owner are not listed.
#[utoipa::path(
    get,
    path = "/agents/{agentId}/versions",
    operation_id = "list_agent_versions",
    tag = "dashboard",
    security(("session" = [])),
    params(
        ("agentId" = String, Path, description = "An agent that you own."),
        ("limit" = Option<u32>, Query, minimum = 1, maximum = 100, description = "Default 25."),
        ("cursor" = Option<String>, Query, pattern = "^[1-9][0-9]{0,18}$", description = "The `next_cursor` of an earlier answer."),
        ("compared_with" = Option<String>, Query, pattern = "^[1-9][0-9]{0,18}$", description = "The version from which the differences are told; without it, the one before each."),
    ),
    responses((status = 200, body = RulesVersionList, description = "Newest first."), ListErrors)
)]
pub(crate) async fn agent_versions(
    State(people): State<Arc<People>>,
    token: SessionToken,
    Path(agent): Path<String>,
    uri: Uri,
) -> Result<Json<RulesVersionList>, Failure> {
    let owned = people.authenticate_for(token, &agent).await?;
    let mut query = Query::from_uri(&uri);
    let slice = slice(&mut query, cursor::read_version);
    let other = query.read("compared_with", cursor::read_version, "must be a version");
    query.finish()?;
    let history = people.rules_history(&owned, slice, other).await?;
    let versions: Vec<_> = history.items.iter().map(RulesVersionView::new).collect();
    Ok(Json(RulesVersionList {
        count: versions.len(),
        versions,
        next_cursor: history.next.map(|version| version.to_string()),
    }))
}

/// Restore a rule as it was in a version of the agent's record.
///
/// This is an edit. A rule that was removed since is added again, with a new id.
#[utoipa::path(
    post,
    path = "/agents/{agentId}/versions/{version}/rules/{ruleId}/restore",
    operation_id = "restore_rule_version",
    tag = "dashboard",
    security(("session" = [])),
    params(
        ("agentId" = String, Path, description = "An agent that you own."),
        ("version" = String, Path, description = "The version that has the rule."),
        ("ruleId" = String, Path, description = "The rule's id in that version."),
        ("If-Match" = inline(VersionTag), Header, description = "The agent's current version in quotation marks, or `*`."),
        ("edit_reason" = Option<String>, Query, max_length = 200, pattern = "^[^\\x00-\\x1f\\x7f-\\x9f]*$", description = "Why you make the edit. It is kept in the version and the audit log."),
    ),
    responses(
        (status = 200, body = RestoredView, description = "The rule is in force.", headers(("ETag" = String, description = "The agent's version."))),
        RestoreErrors,
    )
)]
pub(crate) async fn restore_rule(
    State(people): State<Arc<People>>,
    token: SessionToken,
    if_match: IfMatch,
    uri: Uri,
    Path((agent, version, rule)): Path<(String, String, String)>,
) -> Result<Response, Failure> {
    let owned = people.authenticate_for(token, &agent).await?;
    let version = parse_id(cursor::read_version(&version))?;
    let rule = parse_id(RuleId::parse(&rule))?;
    let (reason, if_match) = with_version(parse_reason_query(&uri), if_match.precondition())?;
    let owned = owned.because(reason);
    let (owned, rule) = people.restore_rule(owned, if_match, version, rule).await?;
    let version = owned.agent().version;
    let view = RestoredView {
        rule_id: rule.to_string(),
        version,
    };
    Ok(with_etag(version, Json(view)))
}
