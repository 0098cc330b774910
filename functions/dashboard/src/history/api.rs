//! JSON API under `…/versions`: the versions of an agent's policies and rules.

use crate::agents::owned::OwnedAgent;
use crate::cursor;
use crate::history::operations::{ChangedVersion, RuleReport, audited_rules};
use crate::preview::api::{AskedReason, ExampleView, parse_days};
use crate::request::ServiceReference;
use crate::request::Version;
use crate::request::{body_with_version, parse_page_request};
use crate::services::api::service_response;
use crate::services::operations::find_service_id;
use crate::state::People;
use axum::Json;
use axum::extract::State;
use axum::http::Uri;
use axum::response::Response;
use purser_api::{Failure, Id, IfMatch, Parameters, PolicyView, Query, errors, with_etag};
use purser_domain::{Agent, AuditChanges, EnabledService, RuleDecisions, RuleId, Timestamp};
use serde::Serialize;
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use std::sync::Arc;
use utoipa::ToSchema;

/// A field that a version changed.
#[derive(Serialize, ToSchema)]
#[schema(as = LimitChange)]
pub(crate) struct ChangeView {
    /// The field's name. For a rule, `rules/` followed by the rule's id.
    #[schema(example = "max_per_day_units")]
    member: String,
    /// The previous value. Null if the field was absent.
    #[schema(required)]
    before: Option<Value>,
    /// The new value. Null if the field is now absent.
    #[schema(required)]
    after: Option<Value>,
}

pub(crate) fn change_views(changes: &AuditChanges) -> Vec<ChangeView> {
    let AuditChanges { before, after } = changes;
    let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let view = |name: &String| ChangeView {
        member: name.clone(),
        before: before.get(name).cloned(),
        after: after.get(name).cloned(),
    };
    names.into_iter().map(view).collect()
}

/// One version of an agent's policy for a service, with the changes since the version before.
#[derive(Serialize, ToSchema)]
#[schema(as = PolicyVersion)]
pub(crate) struct PolicyVersionView {
    version: u64,
    /// The time of the update. Null until the time is known.
    #[schema(format = DateTime, required)]
    changed_at: Option<String>,
    /// The user who made the update. Null until `changed_at` is known, for an update that no user made, and for an
    /// update from before Purser recorded users.
    #[schema(required)]
    edited_by: Option<String>,
    /// The id of the update's row in the audit log. Null in the same cases as `edited_by`.
    #[schema(value_type = Option<uuid::Uuid>, required)]
    audit_id: Option<String>,
    /// The reason that the user entered. Null if the user entered no reason.
    #[schema(required)]
    edit_reason: Option<String>,
    /// Whether the service was enabled in this version.
    enabled: bool,
    policy: PolicyView,
    /// The differences from the previous version, or from the version in `compared_with`.
    changes: Vec<ChangeView>,
    /// Whether this version may allow a payment that the previous version, or the version in `compared_with`, blocks or
    /// escalates. False for the first version.
    widens: bool,
    /// Whether this version may block or escalate a payment that the previous version, or the version in
    /// `compared_with`, allows. False for the first version.
    narrows: bool,
}

impl PolicyVersionView {
    fn new(version: &ChangedVersion<EnabledService>, owner: &str, now: Timestamp) -> Self {
        let (record, mark) = (&version.version.record, &version.version.mark);
        Self {
            version: version.version.version,
            changed_at: version.version.at.map(|at: Timestamp| at.to_string()),
            edited_by: mark.by.as_ref().map(ToString::to_string),
            audit_id: mark.audit_id.map(|id| id.to_string()),
            edit_reason: mark.reason.as_ref().map(|reason| reason.as_str().to_owned()),
            enabled: record.enabled,
            policy: PolicyView::from_policy(&record.policy, owner, now),
            changes: change_views(&version.changes),
            widens: version.direction.widens,
            narrows: version.direction.narrows,
        }
    }
}

/// A policy's versions, newest first.
#[derive(Serialize, ToSchema)]
#[schema(as = PolicyVersionList)]
pub(crate) struct PolicyVersionList {
    versions: Vec<PolicyVersionView>,
    /// The number of versions in this response.
    count: usize,
    /// The `cursor` of the next page. Null on the last page.
    #[schema(required)]
    next_cursor: Option<String>,
}

/// A version of an agent's record, with its rules.
#[derive(Serialize, ToSchema)]
#[schema(as = AgentVersion)]
pub(crate) struct RulesVersionView {
    version: u64,
    /// The time of the update. Null until the time is known.
    #[schema(format = DateTime, required)]
    changed_at: Option<String>,
    /// The user who made the update. Null until `changed_at` is known, for an update that no user made, and for an
    /// update from before Purser recorded users.
    #[schema(required)]
    edited_by: Option<String>,
    /// The id of the update's row in the audit log. Null in the same cases as `edited_by`.
    #[schema(value_type = Option<uuid::Uuid>, required)]
    audit_id: Option<String>,
    /// The reason that the user entered. Null if the user entered no reason.
    #[schema(required)]
    edit_reason: Option<String>,
    /// The rules. Each key is `rules/` followed by the rule's id.
    rules: Map<String, Value>,
    /// The changes of the rules since the previous version, or since the version in `compared_with`. Empty if the
    /// update changed other fields.
    changes: Vec<ChangeView>,
    /// Whether this version may allow a payment that the previous version, or the version in `compared_with`, blocks or
    /// escalates. False for the first version.
    widens: bool,
    /// Whether this version may block or escalate a payment that the previous version, or the version in
    /// `compared_with`, allows. False for the first version.
    narrows: bool,
    /// How often each rule decided, without rules that never decided. Decisions under a version that did not change
    /// the rules count under the version that did. Null if the request has no `days`.
    #[schema(required)]
    decisions: Option<Vec<RuleDecisionsView>>,
}

/// How often a rule decided in a version of the agent's record.
#[derive(Serialize, ToSchema)]
#[schema(as = RuleDecisions)]
pub(crate) struct RuleDecisionsView {
    #[schema(value_type = uuid::Uuid)]
    rule_id: String,
    /// The number of payments that the rule blocked.
    blocked: u64,
    /// The number of payments for which the rule was the first that required an approval.
    escalated: u64,
    /// The number of allowed payments that used a larger share of this budget than of the daily cap, and after which
    /// this budget had the least remaining amount of all budgets.
    tightest: u64,
    /// The newest blocks and escalations, at most three.
    examples: Vec<ExampleView>,
}

impl RuleDecisionsView {
    fn new(rule: RuleId, decisions: &RuleDecisions) -> Self {
        Self {
            rule_id: rule.to_string(),
            blocked: decisions.blocked,
            escalated: decisions.escalated,
            tightest: decisions.tightest,
            examples: decisions.examples.iter().map(ExampleView::from).collect(),
        }
    }
}

impl RulesVersionView {
    fn new(version: &ChangedVersion<Agent>, report: Option<&RuleReport>) -> Self {
        let (record, mark) = (&version.version.record, &version.version.mark);
        let decisions = report.map(|report| {
            let rules = report.rules.iter();
            let own = rules.filter(|((number, _), _)| *number == version.version.version);
            own.map(|((_, rule), decisions)| RuleDecisionsView::new(*rule, decisions))
                .collect()
        });
        Self {
            decisions,
            version: version.version.version,
            changed_at: version.version.at.map(|at: Timestamp| at.to_string()),
            edited_by: mark.by.as_ref().map(ToString::to_string),
            audit_id: mark.audit_id.map(|id| id.to_string()),
            edit_reason: mark.reason.as_ref().map(|reason| reason.as_str().to_owned()),
            rules: audited_rules(record).into_iter().collect(),
            changes: change_views(&version.changes),
            widens: version.direction.widens,
            narrows: version.direction.narrows,
        }
    }
}

/// The versions of an agent's record, newest first.
#[derive(Serialize, ToSchema)]
#[schema(as = AgentVersionList)]
pub(crate) struct RulesVersionList {
    versions: Vec<RulesVersionView>,
    /// The number of versions in this response.
    count: usize,
    /// Whether there are more decisions than were counted. At most the newest 5,000 decisions are counted.
    partial: bool,
    /// The `cursor` of the next page. Null on the last page.
    #[schema(required)]
    next_cursor: Option<String>,
}

/// The ID of the rule that was restored, and the agent's new version.
#[derive(Serialize, ToSchema)]
#[schema(as = RestoredRule)]
pub(crate) struct RestoredView {
    /// The rule's id, which is new if the rule had been removed.
    #[schema(value_type = uuid::Uuid)]
    rule_id: String,
    /// The agent's new version.
    version: u64,
}

/// List the versions of an agent's policy for a service.
///
/// A new version appears about a second after the update. Versions from a previous owner's time are not listed.
#[utoipa::path(
    get, path = "/agents/{agentId}/services/{serviceId}/versions", operation_id = "list_policy_versions",
    params(
        ("limit" = Option<u32>, Query, minimum = 1, maximum = 100, description = "The maximum number of items. The default is 25."),
        ("cursor" = Option<String>, Query, pattern = "^[1-9][0-9]{0,18}$", description = "The `next_cursor` of an earlier response."),
        ("compared_with" = Option<String>, Query, pattern = "^[1-9][0-9]{0,18}$", description = "The version to compare each version with. By default, each version is compared with the previous version."),
    ),
    responses((status = 200, body = PolicyVersionList, description = "A page of the list, newest first."))
)]
pub(crate) async fn list_policy_versions(
    State(people): State<Arc<People>>,
    owned: OwnedAgent,
    Id(ServiceReference(reference)): Id<ServiceReference>,
    uri: Uri,
) -> Result<Json<PolicyVersionList>, Failure> {
    let edition = people.current_catalog().await?;
    let id = people
        .require_agent_service(&owned, find_service_id(&edition.catalog, &reference)?)
        .await?;
    let mut query = Query::from_uri(&uri);
    let page_request = parse_page_request(&mut query, cursor::parse_version_cursor);
    let other = query.parse_with("compared_with", cursor::parse_version_cursor, "must be a version");
    query.finish()?;
    let history = people.read_policy_history(&owned, id, page_request, other).await?;
    let (user, now) = (&owned.agent().owner, people.now());
    let versions = history
        .items
        .iter()
        .map(|changed| PolicyVersionView::new(changed, user, now));
    let versions: Vec<_> = versions.collect();
    Ok(Json(PolicyVersionList {
        count: versions.len(),
        versions,
        next_cursor: history.next.map(|version| version.to_string()),
    }))
}

/// Restore a version of an agent's policy for a service.
///
/// Restoring creates a new version with the earlier values. `enabled_operations` is restored without operations that
/// left the catalog.
#[utoipa::path(
    post, path = "/agents/{agentId}/services/{serviceId}/versions/{version}/restore",
    operation_id = "restore_policy_version",
    responses(
        (status = 200, body = crate::services::api::ServiceView, description = "The service with the updated policy.", headers(("ETag" = String, description = "The policy's version. Send it in `If-Match` with the next update."))),
        errors::RecentSignInRequired,
    )
)]
pub(crate) async fn restore_policy_version(
    State(people): State<Arc<People>>,
    owned: OwnedAgent,
    Id(ServiceReference(reference)): Id<ServiceReference>,
    Id(Version(version)): Id<Version>,
    if_match: IfMatch,
    reason: Parameters<AskedReason>,
) -> Result<Response, Failure> {
    let edition = people.current_catalog().await?;
    let id = people
        .require_agent_service(&owned, find_service_id(&edition.catalog, &reference)?)
        .await?;
    let (reason, if_match) = body_with_version(reason.0, if_match.into_precondition())?;
    let owned = owned.with_reason(reason.edit_reason);
    let service = people.restore_policy(&owned, if_match, id, version).await?;
    Ok(service_response(&people, &owned, &service, &edition.catalog))
}

/// List the versions of an agent's record, with its rules.
///
/// A new version appears about a second after the update. Versions from a previous owner's time are not listed.
#[utoipa::path(
    get, path = "/agents/{agentId}/versions", operation_id = "list_agent_versions",
    params(
        ("limit" = Option<u32>, Query, minimum = 1, maximum = 100, description = "The maximum number of items. The default is 25."),
        ("cursor" = Option<String>, Query, pattern = "^[1-9][0-9]{0,18}$", description = "The `next_cursor` of an earlier response."),
        ("compared_with" = Option<String>, Query, pattern = "^[1-9][0-9]{0,18}$", description = "The version to compare each version with. By default, each version is compared with the previous version."),
        ("days" = Option<u32>, Query, minimum = 1, maximum = 30, description = "Counts how often each rule decided in this number of days before now. By default, nothing is counted."),
    ),
    responses((status = 200, body = RulesVersionList, description = "A page of the list, newest first."))
)]
pub(crate) async fn list_agent_versions(
    State(people): State<Arc<People>>,
    owned: OwnedAgent,
    uri: Uri,
) -> Result<Json<RulesVersionList>, Failure> {
    let mut query = Query::from_uri(&uri);
    let page_request = parse_page_request(&mut query, cursor::parse_version_cursor);
    let other = query.parse_with("compared_with", cursor::parse_version_cursor, "must be a version");
    let days = parse_days(&mut query);
    query.finish()?;
    let history = people.read_rules_history(&owned, page_request, other).await?;
    let report = match days {
        None => None,
        Some(days) => Some(people.report_rules(&owned, &history, days).await?),
    };
    let report = report.as_ref();
    let versions = history.items.iter();
    let versions: Vec<_> = versions.map(|item| RulesVersionView::new(item, report)).collect();
    Ok(Json(RulesVersionList {
        partial: report.is_some_and(|report| report.is_partial),
        count: versions.len(),
        versions,
        next_cursor: history.next.map(|version| version.to_string()),
    }))
}

/// Restore a rule from a version of the agent's record.
///
/// Restoring creates a new version. If the rule was removed in the meantime, the rule is added again with a new id.
#[utoipa::path(
    post, path = "/agents/{agentId}/versions/{version}/rules/{ruleId}/restore", operation_id = "restore_rule_version",
    responses(
        (status = 200, body = RestoredView, description = "The rule was restored.", headers(("ETag" = String, description = "The agent's version, for `If-Match`."))),
        errors::RecentSignInRequired,
    )
)]
pub(crate) async fn restore_rule_version(
    State(people): State<Arc<People>>,
    owned: OwnedAgent,
    Id(Version(version)): Id<Version>,
    Id(rule): Id<RuleId>,
    if_match: IfMatch,
    reason: Parameters<AskedReason>,
) -> Result<Response, Failure> {
    let (reason, if_match) = body_with_version(reason.0, if_match.into_precondition())?;
    let owned = owned.with_reason(reason.edit_reason);
    let (owned, rule) = people.restore_rule(owned, if_match, version, rule).await?;
    let version = owned.agent().version;
    let view = RestoredView {
        rule_id: rule.to_string(),
        version,
    };
    Ok(with_etag(version, Json(view)))
}
