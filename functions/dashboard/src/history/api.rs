//! JSON API under `…/versions`: the versions of an agent's policies and rules.

use crate::agents::owned::OwnedAgent;
use crate::cursor;
use crate::history::operations::{ChangedVersion, RuleReport, audited_rules};
use crate::preview::api::{AskedReason, ExampleView, parse_preview_days};
use crate::request::ServiceReference;
use crate::request::Version;
use crate::request::{combine_results_and_errors, parse_page_request};
use crate::services::api::service_update_response;
use crate::state::PeopleState;
use axum::Json;
use axum::http::Uri;
use purser_api::{Id, IfMatch, Parameters, PolicyView, Query, Reply, endpoint, view, with_etag};
use purser_domain::{Agent, AuditChanges, AuditId, EnabledService, RuleDecisions, RuleId, Timestamp};
use serde_json::{Map, Value};
use std::collections::BTreeSet;

/// A field that a version changed.
#[view(LimitChange)]
pub(crate) struct ChangeView {
    /// The field's name. For a rule, `rules/` followed by the rule's id.
    #[schema(example = "max_per_day_units")]
    member: String,
    /// The previous value. Null if the field was absent.
    before: Option<Value>,
    /// The new value. Null if the field is now absent.
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

purser_api::views! {
    /// One version of an agent's policy for a service, with the changes since the version before.
    pub(crate) struct PolicyVersionView {
        fn new(version: &ChangedVersion<EnabledService>, owner: &str, now: Timestamp);
        let (record, mark) = (&version.version.record, &version.version.mark);

        version: u64 = version.version.version,
        /// The time of the update. Null until the time is known.
        changed_at: Option<Timestamp> = version.version.at,
        /// The user who made the update. Null until `changed_at` is known, and for an update that no user made.
        edited_by: Option<String> = mark.by.as_ref().map(ToString::to_string),
        /// The id of the update's row in the audit log. Null in the same cases as `edited_by`.
        audit_id: Option<AuditId> = mark.audit_id,
        /// The reason that the user entered. Null if the user entered no reason.
        edit_reason: Option<String> = mark.reason.as_ref().map(|reason| reason.as_str().to_owned()),
        /// Whether the service was enabled in this version.
        enabled: bool = record.enabled,
        policy: PolicyView = PolicyView::from_policy(&record.policy, owner, now),
        /// The differences from the previous version, or from the version in `compared_with`.
        changes: Vec<ChangeView> = change_views(&version.changes),
        /// Whether this version may allow a payment that the previous version, or the version in `compared_with`,
        /// blocks or escalates. False for the first version.
        widens: bool = version.direction.widens,
        /// Whether this version may block or escalate a payment that the previous version, or the version in
        /// `compared_with`, allows. False for the first version.
        narrows: bool = version.direction.narrows,
    }
}

/// A policy's versions, newest first.
#[view]
pub(crate) struct PolicyVersionList {
    versions: Vec<PolicyVersionView>,
    /// The number of versions in this response.
    count: usize,
    /// The `cursor` of the next page. Null on the last page.
    next_cursor: Option<String>,
}

purser_api::views! {
    /// A version of an agent's record, with its rules.
    pub(crate) struct RulesVersionView as AgentVersion {
        fn new(version: &ChangedVersion<Agent>, report: Option<&RuleReport>);
        let (record, mark) = (&version.version.record, &version.version.mark);
        let decisions = report.map(|report| {
            let rules = report.rules.iter();
            let own = rules.filter(|((number, _), _)| *number == version.version.version);
            own.map(|((_, rule), decisions)| RuleDecisionsView::new(*rule, decisions))
                .collect()
        });

        version: u64 = version.version.version,
        /// The time of the update. Null until the time is known.
        changed_at: Option<Timestamp> = version.version.at,
        /// The user who made the update. Null until `changed_at` is known, and for an update that no user made.
        edited_by: Option<String> = mark.by.as_ref().map(ToString::to_string),
        /// The id of the update's row in the audit log. Null in the same cases as `edited_by`.
        audit_id: Option<AuditId> = mark.audit_id,
        /// The reason that the user entered. Null if the user entered no reason.
        edit_reason: Option<String> = mark.reason.as_ref().map(|reason| reason.as_str().to_owned()),
        /// The rules. Each key is `rules/` followed by the rule's id.
        rules: Map<String, Value> = audited_rules(record).into_iter().collect(),
        /// The changes of the rules since the previous version, or since the version in `compared_with`. Empty if the
        /// update changed other fields.
        changes: Vec<ChangeView> = change_views(&version.changes),
        /// Whether this version may allow a payment that the previous version, or the version in `compared_with`,
        /// blocks or escalates. False for the first version.
        widens: bool = version.direction.widens,
        /// Whether this version may block or escalate a payment that the previous version, or the version in
        /// `compared_with`, allows. False for the first version.
        narrows: bool = version.direction.narrows,
        /// The number of payments that each rule blocked or escalated, or for which the rule was the nearest limit.
        /// Rules without such payments are omitted. Consecutive versions with the same rules are counted together, in
        /// the oldest of these versions. Null if the request has no `days`.
        decisions: Option<Vec<RuleDecisionsView>>,
    }

    /// The number of payments that a rule blocked or escalated, or for which the rule was the nearest limit, under one
    /// version of the agent's record.
    pub(crate) struct RuleDecisionsView {
        fn new(rule: RuleId, decisions: &RuleDecisions);

        rule_id: RuleId = rule,
        /// The number of payments that the rule blocked.
        blocked: u64 = decisions.blocked,
        /// The number of payments for which the rule was the first that required an approval.
        escalated: u64 = decisions.escalated,
        /// The number of allowed payments for which this budget was the nearest limit: after the payment, a larger
        /// share of this budget than of the daily cap was used, and no other budget had a smaller remaining amount.
        tightest: u64 = decisions.tightest,
        /// The newest payments that the rule blocked or escalated: at most three, newest first.
        examples: Vec<ExampleView> = decisions.examples.iter().map(ExampleView::from).collect(),
    }
}

/// The versions of an agent's record, newest first.
#[view(AgentVersionList)]
pub(crate) struct RulesVersionList {
    versions: Vec<RulesVersionView>,
    /// The number of versions in this response.
    count: usize,
    /// Whether there are more decisions than were counted. At most the newest 5,000 decisions are counted.
    partial: bool,
    /// The `cursor` of the next page. Null on the last page.
    next_cursor: Option<String>,
}

/// The ID of the rule that was restored, and the agent's new version.
#[view(RestoredRule)]
pub(crate) struct RestoredView {
    /// The id of the restored rule. If the rule was removed before, the restored rule has a new id.
    rule_id: RuleId,
    /// The agent's new version.
    version: u64,
}

/// List the versions of an agent's policy for a service.
///
/// A new version appears about a second after the update. Versions from a previous owner's time are not listed.
#[endpoint(
    get "/agents/{agentId}/services/{serviceId}/versions",
    params(
        ("limit" = Option<u32>, Query, minimum = 1, maximum = 100, description = "The maximum number of items. The default is 25."),
        ("cursor" = Option<String>, Query, pattern = "^[1-9][0-9]{0,18}$", description = "The `next_cursor` of an earlier response."),
        ("compared_with" = Option<String>, Query, pattern = "^[1-9][0-9]{0,18}$", description = "The version to compare each version with. By default, each version is compared with the previous version."),
    ),
    returns = "A page of the list, newest first."
)]
pub(crate) async fn list_policy_versions(
    people: PeopleState,
    owned: OwnedAgent,
    Id(ServiceReference(reference)): Id<ServiceReference>,
    uri: Uri,
) -> Reply<Json<PolicyVersionList>> {
    let id = people.find_agent_service(&owned, &reference).await?;
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
    Ok(Json(PolicyVersionList::from_items(
        versions,
        history.next.map(|version| version.to_string()),
    )))
}

/// Restore a version of an agent's policy for a service.
///
/// Restoring creates a new version with the earlier values. `enabled_operations` is restored without operations that
/// left the catalog.
#[endpoint(
    post "/agents/{agentId}/services/{serviceId}/versions/{version}/restore", body = crate::services::api::ServiceView,
    returns = "The service with the updated policy.", etag = "policy", errors(RecentSignInRequired)
)]
pub(crate) async fn restore_policy_version(
    people: PeopleState,
    owned: OwnedAgent,
    Id(ServiceReference(reference)): Id<ServiceReference>,
    Id(Version(version)): Id<Version>,
    if_match: IfMatch,
    reason: Parameters<AskedReason>,
) -> Reply {
    let id = people.find_agent_service(&owned, &reference).await?;
    let (reason, if_match) = combine_results_and_errors(reason.0, if_match.into_precondition())?;
    let owned = owned.with_reason(reason.edit_reason);
    let update = people.find_policy_to_restore(&owned, id, version).await?;
    let saved = people.save_service(&owned, if_match, id, &update).await?;
    service_update_response(&people, &owned, saved).await
}

/// List the versions of an agent's record, with its rules.
///
/// A new version appears about a second after the update. Versions from a previous owner's time are not listed.
#[endpoint(
    get "/agents/{agentId}/versions",
    params(
        ("limit" = Option<u32>, Query, minimum = 1, maximum = 100, description = "The maximum number of items. The default is 25."),
        ("cursor" = Option<String>, Query, pattern = "^[1-9][0-9]{0,18}$", description = "The `next_cursor` of an earlier response."),
        ("compared_with" = Option<String>, Query, pattern = "^[1-9][0-9]{0,18}$", description = "The version to compare each version with. By default, each version is compared with the previous version."),
        ("days" = Option<u32>, Query, minimum = 1, maximum = 30, description = "Counts how often each rule decided in this number of days before now. By default, nothing is counted."),
    ),
    returns = "A page of the list, newest first."
)]
pub(crate) async fn list_agent_versions(
    people: PeopleState,
    owned: OwnedAgent,
    uri: Uri,
) -> Reply<Json<RulesVersionList>> {
    let mut query = Query::from_uri(&uri);
    let page_request = parse_page_request(&mut query, cursor::parse_version_cursor);
    let other = query.parse_with("compared_with", cursor::parse_version_cursor, "must be a version");
    let days = parse_preview_days(&mut query);
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
#[endpoint(
    post "/agents/{agentId}/versions/{version}/rules/{ruleId}/restore", body = RestoredView,
    returns = "The rule was restored.",
    headers(("ETag" = String, description = "The agent's version, for `If-Match`.")), errors(RecentSignInRequired)
)]
pub(crate) async fn restore_rule_version(
    people: PeopleState,
    owned: OwnedAgent,
    Id(Version(version)): Id<Version>,
    Id(rule): Id<RuleId>,
    if_match: IfMatch,
    reason: Parameters<AskedReason>,
) -> Reply {
    let (reason, if_match) = combine_results_and_errors(reason.0, if_match.into_precondition())?;
    let owned = owned.with_reason(reason.edit_reason);
    let (update, rule) = people.find_rule_to_restore(&owned, version, rule).await?;
    let owned = people.save_rules(owned, if_match, &update).await?;
    let version = owned.agent().version;
    let view = RestoredView { rule_id: rule, version };
    Ok(with_etag(version, Json(view)))
}
